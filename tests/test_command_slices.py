"""Commands as slices of banks and data buses, by hand; and their picture."""

from __future__ import annotations

import pytest

from calls import call, refused_call
from ndpsim.dram.spec import resolve
from ndpsim.dram.traces import CommandTrace
from ndpsim.report.command_slices import command_slices
from ndpsim.report.pictures.commands import commands_figure
from ndpsim.report.timelines import write_command_timeline
from trace_events import trace_events

NAMES = ("ACT", "RD", "WR", "PREpb", "PREab", "REFab", "REFsb")


def trace(*commands: tuple[int, str, int, int, int]) -> CommandTrace:
    """Commands by clock, name, rank, bank group and bank."""
    rows = [(clock, NAMES.index(name), *bank, 5, 7) for clock, name, *bank in commands]
    return CommandTrace.of(list(zip(*rows, strict=True)), NAMES)


@pytest.fixture(scope="module")
def device():
    return resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=2)


def spans(row):
    return [(each.command, each.start, each.end) for each in row]


def test_a_slice_lasts_until_the_bank_can_be_used_next(device):
    clocks = {name: device.clocks(name) for name in ("nRCD", "nCCDL", "nCCDL_WR", "nRP", "nRFC")}
    start = 100
    commands = [
        (start, "ACT", 0, 1, 2),
        (start + 50, "RD", 0, 1, 2),
        (start + 150, "WR", 0, 1, 2),
        (start + 300, "PREab", 0, -1, -1),
        (start + 400, "REFab", 0, -1, -1),
    ]
    shown = command_slices(trace(*commands), device, 5)
    # Two cycles of a command count, see `lower`.
    assert spans(shown.banks[0, 1, 2]) == [
        ("ACT", start, start + clocks["nRCD"]),
        ("RD", start + 50, start + 50 + clocks["nCCDL"]),
        ("WR", start + 150, start + 150 + clocks["nCCDL_WR"]),
        ("PREab", start + 300, start + 300 + clocks["nRP"] - 1),
        ("REFab", start + 400, start + 400 + clocks["nRFC"] - 1),
    ]
    # A command to a rank is on each of its banks, and on no other rank's.
    others = spans(shown.banks[0, 1, 2])[3:]
    assert {bank[0] for bank in shown.banks} == {0}
    assert len(shown.banks) == device.banks_per_rank
    assert spans(shown.banks[0, 7, 3]) == others


def test_data_are_on_the_bus_their_latency_later(device):
    shown = command_slices(trace((10, "ACT", 0, 0, 0), (60, "RD", 0, 0, 0), (90, "WR", 1, 0, 0)), device, 5)
    read, write = 60 + device.read_latency, 90 + device.write_latency
    assert {bus: spans(row) for bus, row in shown.buses.items()} == {
        -1: [("RD", read, read + device.burst_clocks), ("WR", write, write + device.burst_clocks)]
    }
    assert shown.bus_name(-1) == "data bus"


def test_the_data_bus_of_a_pseudochannel_is_its_own():
    device = resolve("HBM3", "HBM3_4Gb", "HBM3_6400Mbps")
    shown = command_slices(trace((0, "ACT", 1, 0, 0), (90, "RD", 1, 0, 0)), device, 1)
    assert list(map(shown.bus_name, shown.buses)) == ["data bus of pseudochannel 1"]
    assert list(map(shown.bank_name, shown.banks)) == ["pseudochannel 1, bankgroup 0, bank 0"]


def test_the_part_begins_at_the_first_command_and_a_slice_ends_with_the_next(device):
    clocks = round(1e6 / float(device.clock_ps))  # of a microsecond
    commands = [(7, "ACT", 0, 0, 0), (10, "PREpb", 0, 0, 0), (7 + clocks, "ACT", 0, 0, 1)]
    shown = command_slices(trace(*commands), device, 1)
    assert spans(shown.banks[0, 0, 0])[0] == ("ACT", 7, 10)
    assert set(shown.banks) == {(0, 0, 0)}
    assert (shown.first_clock, shown.end_clock) == (7, 7 + clocks)


def test_one_bank_of_each_group_is_refreshed(device):
    shown = command_slices(trace((5, "REFsb", 1, -1, 2)), device, 1)
    assert set(shown.banks) == {(1, group, 2) for group in range(device.bankgroups)}


def test_a_timeline_has_a_row_for_each_bank_and_bus(device, tmp_path):
    shown = command_slices(trace((0, "ACT", 0, 1, 2), (40, "RD", 0, 1, 2)), device, 1)
    write_command_timeline(str(tmp_path / "t.json"), [("channel 3", shown)])
    events = trace_events(tmp_path / "t.json")
    named = [event["args"]["name"] for event in events if event["name"].endswith("_name")]
    assert named == ["channel 3", "rank 0, bankgroup 1, bank 2", "data bus"]
    act, read, data = (event for event in events if event["ph"] == "X")
    assert act["args"] == {"clock": 0, "row": 5, "column": 7}
    assert read["ts"] == 0.016
    assert data["name"] == "RD"
    assert data["ts"] == pytest.approx((40 + device.read_latency) * float(device.clock_ps) / 1e6, abs=1e-3)


def test_a_picture_has_the_banks_that_commands_name(device):
    commands = [(0, "ACT", 0, group, bank) for group in range(8) for bank in range(4)]
    commands += [(9, "ACT", 1, group, bank) for group in range(8) for bank in range(4)]
    figure = commands_figure("title", command_slices(trace(*commands), device, 1))
    assert "24 more banks are not drawn" in figure.get_suptitle()
    few = trace((0, "ACT", 0, 1, 2), (40, "RD", 0, 1, 2), (90, "REFab", 0, -1, -1))
    axes = commands_figure("title", command_slices(few, device, 1)).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0, 1, 2", "data bus"]


def test_a_request_trace_has_its_timeline_and_picture(here):
    (here / "t").write_text("".join(f"{'LD' if n % 3 else 'ST'} {hex(4096 * n)}\n" for n in range(40)))
    files = ("--commands", "c.csv", "--timeline", "t.json", "--plot-commands", "p.svg", "--first-us", "0.2")
    assert call("dram", "t", *files).status == 0
    spans = [event for event in trace_events("t.json") if event["ph"] == "X"]
    lines = (here / "c.csv").read_text().splitlines()[1:]
    first = int(lines[0].split(",")[0])
    within = {tuple(line.split(",")[:2]) for line in lines if int(line.split(",")[0]) < first + 480}
    assert {
        (str(each["args"]["clock"]), each["name"]) for each in spans if each["args"]["clock"] < first + 480
    } >= within
    assert (here / "p.svg").stat().st_size > 1000
    assert refused_call("dram", "t", "--first-us", "1") == "conflict --first-us"
    assert refused_call("dram", "t", "--plot-commands", "p.csv") == "unknown-name --plot-commands"
    assert refused_call("dram", "t", "--channels", "2", "--timeline", "u.json") == "missing --timeline"
