"""Options do what their help says: the stated default is used, and a number reaches its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import ndpsim
from calls import call, refused_call
from ndpsim.cli.main import cli
from ndpsim.dram.spec.standard import READ as RD
from ndpsim.dram.spec.standard import WRITE as WR
from ndpsim.dram.traces import read_commands
from ndpsim.simulate import run_trace, simulate_contention, simulate_expert, simulate_host_read


def settled(value: Any) -> Any:
    """A result without what differs from run to run: seconds, and what earlier runs taught."""
    if isinstance(value, dict):
        return {
            key: settled(each)
            for key, each in value.items()
            if not key.endswith("_s") and key not in ("fast_forwarded", "timing")
        }
    return [settled(each) for each in value] if isinstance(value, list) else value


def result(*arguments: object) -> Any:
    status, out, err = call(*arguments, "--json", "-")
    assert status == 0, err
    return settled(json.loads(out))


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """Reads and writes among which every policy of a controller finds something to decide."""
    random = np.random.default_rng(11)
    path = tmp_path / "requests.trace"
    bursts, writes = random.integers(0, 1 << 16, 3000), random.random(3000) < 0.4
    path.write_text(
        "".join(f"{'ST' if w else 'LD'} {64 * b:#x}\n" for b, w in zip(bursts, writes, strict=True))
    )
    return path


def stated_defaults(command: str) -> dict[str, str]:
    """Options of a command and the defaults that its help states."""
    found = {}
    for option in cli.get_command(click.Context(cli), command).params:
        if isinstance(option, click.Option):
            words = " ".join(option.help.split()) if option.help else ""
            stated = re.search(r"\[default: (.*)\]$", words)
            if stated:
                found[option.opts[0]] = stated[1]
            elif option.show_default:
                found[option.opts[0]] = str(option.default)
    return found


# ---- Stated defaults are in force, and another value is another result ------------------------------------

SHAPE = ("--shape", "384,320")
HOST = (*SHAPE, "--host-traffic", "12")
GROUPED = (*SHAPE, "--bits", "4", "--group-size", "64")
LPDDR5 = ("dram", "requests", "--standard", "LPDDR5", "--org", "LPDDR5_16Gb_x16", "--timing", "LPDDR5_6400")
GDDR7 = ("dram", "requests", "--standard", "GDDR7", "--org", "GDDR7_16Gb_x8", "--timing", "GDDR7_28000_PAM3")
MOVED = ("relayout", "--shape", "128,32", "--set", "dimm.count=4", "--set", "host.channels=2")

# Of each command, the call beside which an option is tried, its stated default, and another value.
TRIED: dict[str, list[tuple[tuple[str, ...], str, str, str]]] = {
    "gemv": [
        (("gemv", *SHAPE), "--hw", "trimoe", "edge"),
        (("gemv",), "--model", "qwen3-235b-a22b", "mixtral-8x7b"),
        (("gemv", *SHAPE), "--tokens", "1", "2"),
        (("gemv", *SHAPE), "--release-ns", "0", "100"),
        (("gemv", *SHAPE), "--start-clock", "1", "9000"),
        (("gemv", *SHAPE), "--engine", "ndp", "host-read"),
        (("gemv", *SHAPE), "--layout", "localized", "sharded:2"),
        (("gemv", *SHAPE), "--bits", "16", "8"),
        (("gemv", *GROUPED), "--scale-bits", "16", "8"),
        (("gemv", *HOST), "--host-reads", "0.67", "0.5"),
        (("gemv", *HOST), "--host-pattern", "sequential", "random"),
        (("gemv", *HOST), "--arbitration", "host-first", "ndp-first"),
        (("gemv", *HOST, "--arbitration", "slice"), "--slice-clocks", "1000", "400"),
    ],
    "relayout": [
        (MOVED, "--hw", "trimoe", "mine.yaml"),
        (("relayout", *MOVED[3:], "--no-host", "--bits", "1"), "--model", "qwen3-235b-a22b", "deepseek-v2"),
        (MOVED, "--experts", "1", "2"),
        (MOVED, "--from", "localized", "sharded:2"),
        (MOVED, "--to", "striped", "sharded:2"),
        (MOVED, "--bits", "16", "8"),
        ((*MOVED, "--bits", "4", "--group-size", "32"), "--scale-bits", "16", "8"),
    ],
    "dram": [
        (("dram", "requests"), "--standard", "DDR5", ""),
        (("dram", "requests"), "--org", "DDR5_16Gb_x8", "DDR5_32Gb_x8"),
        (("dram", "requests"), "--timing", "DDR5_4800AN", "DDR5_4800BN"),
        (("dram", "requests"), "--ranks", "1", "2"),
        ((*LPDDR5, "--ranks", "2"), "--rules", "standard", "reference"),
        (LPDDR5, "--wck", "need-sync", "always-on"),
        (GDDR7, "--rck", "always-on", "start-with-rckstrt"),
        ((*GDDR7, "--rck", "start-with-rckstrt"), "--rck-idle", "32", "0"),
        (("dram", "requests"), "--channels", "1", "2"),
        (("dram", "requests"), "--mapper", "RoBaRaCoCh", "MOP4CLXOR"),
        (("dram", "requests"), "--scheduler", "FRFCFS", "FRFCFS-RowHit"),
        (("dram", "requests"), "--row-policy", "open", "closed-cap"),
        (("dram", "requests", "--row-policy", "closed-cap"), "--row-cap", "4", "1"),
        (("dram", "requests"), "--refresh", "all-bank", "none"),
        (("dram", "requests"), "--read-buffer", "32", "8"),
        (("dram", "requests"), "--write-buffer", "32", "8"),
    ],
}
#: Stated in words, or for what is no part of the result: each has a test below.
IN_WORDS = {
    "gemv": {"--group-size", "--zero-point-bits", "--lane", "--size", "--title", "--first-us"},
    "relayout": {
        "--group-size",
        "--zero-point-bits",
        "--from-dimms",
        "--to-dimms",
        "--size",
        "--topology",
        "--title",
    },
    "dram": {
        *(
            "--commands-format",
            "--channel",
            "--size",
            "--format",
            "-j",
            "--title",
            "--first-us",
            "--trace-mhz",
        ),
        *("--refresh-control", "--rfm", "--rfm-threshold"),  # see test_refresh_policies and test_rfm
    },
}


@pytest.mark.parametrize("command", TRIED)
def test_every_stated_default_is_tried(command):
    tried = {option: default for _, option, default, _ in TRIED[command]}
    stated = stated_defaults(command)
    stated["--layout"] = stated.get("--layout", "").partition(";")[0]
    for option in [*stated]:
        if option in IN_WORDS[command] or not stated[option]:
            stated.pop(option)
    assert stated == tried


@pytest.mark.parametrize(
    ("before", "option", "default", "other"),
    [pytest.param(*tried, id=f"{command} {tried[1]}") for command, of in TRIED.items() for tried in of],
)
def test_the_stated_default_is_the_one_in_force_and_another_value_makes_a_difference(
    before, option, default, other, requests, tmp_path
):
    arguments = [str(requests) if word == "requests" else word for word in before]
    usual = result(*arguments)
    assert result(*arguments, option, default) == usual
    if other == "mine.yaml":
        other = str(tmp_path / other)
        text = (
            ndpsim.config.data_path("hwconfigs", "trimoe").read_text().replace("name: trimoe", "name: mine")
        )
        Path(other).write_text(text.replace("lane_gbit_s: {value: 25", "lane_gbit_s: {value: 25.0"))
    if other:
        assert result(*arguments, option, other) != usual


# ---- Defaults in words ------------------------------------------------------------------------------------


def test_no_groups_unless_asked_for_and_zero_points_of_a_weights_bits():
    plain = result("gemv", *SHAPE, "--bits", "4")
    assert plain["weight_bytes"] == 3 * 384 * 320 * 4 // 8
    # A row of 384 has six groups, one of 320 five; each has a scale of 16 bits and a zero point.
    groups = 2 * 320 * 6 + 384 * 5
    for more, bits in (
        ((), 16 + 4),
        (("--zero-point-bits", 8), 16 + 8),
        (("--zero-point-bits", 0, "--scale-bits", 8), 8),
    ):
        assert result("gemv", *GROUPED, *more)["weight_bytes"] == plain["weight_bytes"] + groups * bits // 8
    moved = result(*MOVED, "--no-host", "--bits", "4", "--group-size", "32")
    assert moved["weight_bytes"] == 3 * 128 * 32 * 4 // 8 + (2 * 32 * 4 + 128 * 1) * (16 + 4) // 8


def test_host_read_reads_a_striped_expert_unless_told_otherwise():
    usual = result("gemv", *SHAPE, "--engine", "host-read")
    assert usual["config"]["layout"] == "striped"
    assert result("gemv", *SHAPE, "--engine", "host-read", "--layout", "localized")["channels"] == 1


def test_dimms_are_spread_evenly_unless_named():
    usual = result(*MOVED, "--experts", 2, "--to", "localized", "--no-host")
    # Two experts on four DIMMs, and each goes to the next.
    assert (usual["config"]["source_dimms"], usual["config"]["target_dimms"]) == ([0, 2], [1, 3])
    named = result(
        *MOVED, "--experts", 2, "--to", "localized", "--no-host", "--from-dimms", "0,2", "--to-dimms", "1,3"
    )
    assert named == usual
    other = result(
        *MOVED, "--experts", 2, "--to", "localized", "--no-host", "--from-dimms", "3,1", "--to-dimms", "2, 0"
    )
    assert (other["config"]["source_dimms"], other["config"]["target_dimms"]) == ([3, 1], [2, 0])
    assert {one["dimm"] for one in other["stretches"] if one["name"] == "read"} == {1, 3}
    assert {one["dimm"] for one in other["stretches"] if one["name"] == "write"} == {0, 2}
    # Sharded over two: two places, so that the experts of four begin where they may.
    four = result(*MOVED, "--experts", 4, "--from", "sharded:2", "--to", "striped", "--no-host")
    assert four["config"]["source_dimms"] == [0, 0, 2, 2]
    turned = result(*MOVED, "--experts", 2, "--from", "sharded:2", "--to", "sharded:2", "--no-host")
    assert (turned["config"]["source_dimms"], turned["config"]["target_dimms"]) == ([0, 2], [2, 0])


def test_no_host_is_simulated_where_it_is_not_wanted():
    assert result(*MOVED)["host"]["time_ns"] > 0
    without = result(*MOVED, "--no-host")
    assert (without["host"], without["host_speedup"]) == (None, None)


def test_a_picture_is_as_wide_as_two_columns_unless_told_otherwise(tmp_path):
    # Inches, and dots an inch.
    for options, width in (((), 7.16 * 300), (("--size", "column"), 3.5 * 600)):
        assert call("gemv", *SHAPE, "--plot", tmp_path / "p.png", *options)[0] == 0
        header = (tmp_path / "p.png").read_bytes()[:24]
        assert int.from_bytes(header[16:20]) == pytest.approx(width, abs=1)
    for command in ("gemv", "relayout", "dram"):
        assert stated_defaults(command)["--size"] == "two-columns"


# ---- Which lane, bus or channel is written ----------------------------------------------------------------


def written(path: Path) -> list[list[int]]:
    return read_commands(path).columns().tolist()


def test_a_lane_is_the_one_of_its_number_and_without_one_all(tmp_path):
    traces = simulate_expert(
        "edge", ndpsim.Expert(100, 31), layout="sharded:2", record_commands=True
    ).command_traces
    on_edge = ["gemv", "--hw", "edge", "--shape", "100,31", "--layout", "sharded:2", "--commands"]
    options = (*on_edge, tmp_path / "c.csv")
    for lane in (0, 3, 5, 7):
        assert call(*options, "--lane", lane)[0] == 0
        assert written(tmp_path / "c.csv") == traces[lane].columns().tolist()
    assert call(*options)[0] == 0
    every = read_commands(tmp_path / "c.csv")
    assert len(every) == sum(map(len, traces))
    assert [int((every.rank == lane).sum()) for lane in range(8)] == list(map(len, traces))
    assert call(*options, "--lane", 8)[0] == 2
    # By clock, and at a clock by lane.
    assert call("gemv", *SHAPE, "--commands", tmp_path / "c.csv")[0] == 0
    every = read_commands(tmp_path / "c.csv")
    assert (np.lexsort((every.rank, every.clock)) == np.arange(len(every))).all()


def test_a_bus_is_the_one_of_its_number_and_without_one_the_first(tmp_path):
    traces = simulate_host_read(
        "trimoe", ndpsim.Expert(100, 31), "sharded:2", record_commands=True
    ).command_traces
    options = ("gemv", *("--shape", "100,31"), "--engine", "host-read", "--layout", "sharded:2")
    assert len({trace.columns().tobytes() for trace in traces}) > 1
    for lane in (0, 1, 2, 3):
        assert call(*options, "--commands", tmp_path / "c.csv", "--lane", lane)[0] == 0
        assert written(tmp_path / "c.csv") == traces[lane].columns().tolist()
    assert call(*options, "--commands", tmp_path / "c.csv")[0] == 0
    assert written(tmp_path / "c.csv") == traces[0].columns().tolist()


def test_a_lane_beside_the_host_is_the_one_of_its_number(tmp_path):
    ran = simulate_contention(
        "trimoe", ndpsim.Expert(100, 31), host_gbps=9.0, pattern="random", record_commands=True
    )
    options = ("gemv", "--shape", "100,31", "--host-traffic", 9, "--host-pattern", "random")
    for lane in (0, 2, 7):
        assert call(*options, "--commands", tmp_path / "c.csv", "--lane", lane)[0] == 0
        assert written(tmp_path / "c.csv") == ran.command_traces[lane].columns().tolist()


def test_a_channel_is_the_one_of_its_number(requests, tmp_path):
    traces = run_trace(requests, channels=4, record_commands=True).command_traces
    assert len({trace.columns().tobytes() for trace in traces}) == 4
    options = ("dram", requests, "--channels", 4, "--commands", tmp_path / "c.csv")
    for channel in range(4):
        assert call(*options, "--channel", channel)[0] == 0
        assert written(tmp_path / "c.csv") == traces[channel].columns().tolist()
    only = run_trace(requests, record_commands=True).command_traces[0]
    for more in ((), ("--channel", 0), ("--commands-format", "ndpsim")):
        assert call("dram", requests, "--commands", tmp_path / "c.csv", *more)[0] == 0
        assert written(tmp_path / "c.csv") == only.columns().tolist()


def test_the_channel_stands_in_the_file_where_the_format_has_one(requests, tmp_path):
    in_their_form = ("--commands", tmp_path / "c.txt", "--commands-format", "dramsim3")
    options = ("dram", requests, "--channels", 4, *in_their_form)
    for channel in (0, 3):
        assert call(*options, "--channel", channel)[0] == 0
        assert {line.split()[2] for line in (tmp_path / "c.txt").read_text().splitlines()} == {str(channel)}


def test_commands_of_a_relayout_are_those_of_all_lanes_dimm_by_dimm(tmp_path):
    assert call(*MOVED, "--no-host", "--commands", tmp_path / "c.csv")[0] == 0
    sets = [word for word in MOVED if "=" in word]
    ran = ndpsim.simulate_relayout(
        "trimoe", ndpsim.Expert(128, 32), sets=sets, record_commands=True, host=False
    )
    every = read_commands(tmp_path / "c.csv")
    assert [int((every.rank == lane).sum()) for lane in range(32)] == list(map(len, ran.command_traces[0]))


# ---- Host traffic -----------------------------------------------------------------------------------------


def test_the_share_of_reads_is_that_of_the_requests(tmp_path):
    for share in (0.0, 0.25, 0.67, 1.0):
        ran = simulate_contention(
            "trimoe",
            ndpsim.Expert(512, 256),
            host_gbps=8.0,
            read_share=share,
            pattern="random",
            record_commands=True,
        )
        weights = 3 * 512 * 256 * 2 // 64
        reads = sum(int((trace.command == RD).sum()) for trace in ran.command_traces) - weights
        writes = sum(int((trace.command == WR).sum()) for trace in ran.command_traces)
        assert reads / ran.host_requests == pytest.approx(share, abs=0.02)
        assert (reads == 0, writes == 0) == (share == 0.0, share == 1.0)
        assert writes <= ran.host_requests - reads


def test_a_rate_is_a_number_or_all_that_the_dimm_takes():
    rates = [
        result("gemv", *SHAPE, "--host-traffic", rate)["host_offered_gbps"]
        for rate in ("7.5", "saturate", "0")
    ]
    assert rates == [7.5, None, 0]


def test_the_bits_are_those_beside_the_host_as_well():
    low = result("gemv", *SHAPE, "--bits", "4", "--host-traffic", "5")
    assert low["config"]["bits"] == 4
    assert sum(lane["ndp_bytes"] for lane in low["by_lane"]) == 3 * 384 * 320 * 4 // 8


# ---- Relayout ---------------------------------------------------------------------------------------------


def test_dimms_have_numbers_of_up_to_five_digits():
    for number in (100, 99_999, 100_000):
        assert refused_call(*MOVED, "--from-dimms", number) == "range --from-dimms"


def test_no_topology_takes_ports_away():
    ports = {
        name: one["config"]["hardware"]["link"]["ports"]
        for name, one in result(*MOVED, "--no-host", "--topology", "all", "--set", "link.ports=3").items()
    }
    assert ports == {"chain": 3, "ring": 3, "mesh": 3, "full": 3, "bus": 3, "groups": 3}


# ---- Exact checks, and addresses beyond the memory --------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("dram", "requests"),
        ("gemv", *SHAPE),
        ("gemv", "--hw", "cxl", *SHAPE),
        ("gemv", "--engine", "host-read", *SHAPE),
    ],
)
def test_an_exact_check_compares_and_nothing_is_compared_without_it(monkeypatch, requests, arguments):
    arguments = tuple(str(requests) if word == "requests" else word for word in arguments)
    monkeypatch.setattr("ndpsim.simulate.lane.compare_channels", lambda *channels: ["its clocks"])
    assert call(*arguments)[0] == 0
    status, out, err = call(*arguments, "--exact-check")
    assert (status, out, "differs from its plain run in its clocks" in err) == (1, "", True)


@pytest.mark.parametrize("sweep", [(), ("--sweep-load",)])
def test_addresses_beyond_the_memory_are_folded_where_asked_for(tmp_path, sweep):
    near, beyond = tmp_path / "near.trace", tmp_path / "beyond.trace"
    for path, first in ((near, 0), (beyond, 8 << 30)):
        path.write_text("".join(f"LD {first + 64 * n:#x}\n" for n in range(100)))
    assert call("dram", beyond, *sweep)[0] == 2
    folded, plain = result("dram", beyond, "--wrap", *sweep), result("dram", near, *sweep)
    for one in (folded, plain):
        one["config"].pop("trace", None)
    assert folded == plain


# ---- check ------------------------------------------------------------------------------------------------

DDR5 = ("--standard", "DDR5", "--org", "DDR5_16Gb_x8", "--timing", "DDR5_4800AN")


@pytest.fixture
def illegal(tmp_path: Path) -> Path:
    """30 reads of a closed bank."""
    path = tmp_path / "illegal.csv"
    lines = [f"{100 * n},RD,0,0,0,7,{n}" for n in range(1, 31)]
    path.write_text("\n".join(["clock,command,rank,bankgroup,bank,row,column", *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    ("options", "described"), [((), 20), (("--limit", 3), 3), (("--limit", 0), 0), (("--limit", 99), 30)]
)
def test_as_many_violations_are_described_as_the_limit_says(illegal, tmp_path, options, described):
    status, out, _ = call("check", illegal, *DDR5, *options, "--json", tmp_path / "r.json")
    report = json.loads((tmp_path / "r.json").read_text())
    assert (status, report["count"], len(report["violations"])) == (1, 30, described)
    lines = out.splitlines()
    assert lines[-1] == f"{illegal}: fails the check; commands 30, violations 30, tolerated overlaps 0"
    more = [f"and {30 - described} more, which --limit leaves out"] if described < 30 else []
    assert lines[described:-1] == more
    assert [violation["message"] for violation in report["violations"]] == lines[:described]


def test_as_many_as_a_million_may_be_described(illegal):
    assert call("check", illegal, *DDR5, "--limit", 1_000_000)[0] == 1
    for limit in (1_000_001, -1):
        assert refused_call("check", illegal, *DDR5, "--limit", limit) == "range --limit"


def refreshed(tmp_path: Path, times: list[int], command: str = "REFab") -> Path:
    path = tmp_path / "refreshed.csv"
    bank = "0" if command == "REFsb" else "-1"
    lines = [f"{clock},{command},0,-1,{bank},-1,-1" for clock in times]
    path.write_text("\n".join(["clock,command,rank,bankgroup,bank,row,column", *lines]) + "\n")
    return path


def test_refreshes_are_owed_unless_it_says_none(tmp_path):
    # tREFI is 9375 clocks: after a refresh at 9375 none follows for 20 intervals; four may be postponed.
    late = refreshed(tmp_path, [9375, 21 * 9375])
    assert call("check", late, *DDR5)[0] == 1
    assert call("check", late, *DDR5, "--refresh", "all-bank")[0] == 1
    assert call("check", late, *DDR5, "--refresh", "none")[0] == 0
    # The hardware says how its lanes are refreshed, unless the option does.
    assert call("check", late, "--hw", "trimoe")[0] == 1
    assert call("check", late, "--hw", "trimoe", "--set", "dram.refresh=none")[0] == 0
    assert call("check", late, "--hw", "trimoe", "--refresh", "none")[0] == 0
    both = ("--set", "dram.refresh=none", "--refresh", "all-bank")
    assert call("check", late, "--hw", "trimoe", *both)[0] == 1


def test_ranks_and_lanes_are_as_many_as_said(tmp_path):
    commands = tmp_path / "c.csv"
    # Two ranks activate at the same clock: no channel has two commands at once, but two lanes have.
    commands.write_text("clock,command,rank,bankgroup,bank,row,column\n5,ACT,0,0,0,1,-1\n5,ACT,1,0,0,1,-1\n")
    assert "rank 1 is not within 0 to 0" in call("check", commands, *DDR5)[1]
    status, out, _ = call("check", commands, *DDR5, "--ranks", 2)
    assert (status, "rank 1 is not within" in out) == (1, False)
    assert call("check", commands, *DDR5, "--lanes", 2)[0] == 0
    assert call("check", commands, "--hw", "trimoe")[0] == 0
    assert call("check", commands, "--hw", "trimoe", "--ranks", 2)[0] == 1
    one_lane = [part for key in ("count", "ranks", "subchannels") for part in ("--set", f"dimm.{key}=1")]
    for more in (("--lanes", 1), one_lane):
        assert "lane 1 is not within 0 to 0" in call("check", commands, "--hw", "trimoe", *more)[1]


def test_timings_may_be_changed(tmp_path):
    commands = tmp_path / "c.csv"
    commands.write_text("clock,command,rank,bankgroup,bank,row,column\n1,ACT,0,0,0,1,-1\n35,RD,0,0,0,1,0\n")
    assert call("check", commands, *DDR5)[0] == 0  # nRCD is 34
    assert call("check", commands, *DDR5, "--set", "nRCD=35")[0] == 1
    assert call("check", commands, "--hw", "trimoe", "--set", "dram.nRCD=34")[0] == 0
    assert call("check", commands, "--hw", "trimoe")[0] == 1


def test_the_energy_of_lanes_is_that_of_all_of_them(tmp_path):
    commands = tmp_path / "c.csv"
    commands.write_text("clock,command,rank,bankgroup,bank,row,column\n5,ACT,0,0,0,1,-1\n5,ACT,1,0,0,1,-1\n")
    both, one = (
        result("check", commands, *DDR5, "--energy", *more) for more in (("--lanes", 2), ("--lanes", 4))
    )
    assert both["energy_nj"]["activate"] == one["energy_nj"]["activate"]
    assert one["energy_nj"]["background"] > 1.5 * both["energy_nj"]["background"]
    assert both["time_ns"] == pytest.approx(5 / 2.4)
    assert both["moved_bytes"] == 0
    with_currents = result("check", commands, "--hw", "trimoe", "--set", "dram.power.VDD=2.2", "--energy")
    assert with_currents["energy_nj"]["activate"] > 1.5 * both["energy_nj"]["activate"]


# ---- bench and import -------------------------------------------------------------------------------------


def test_the_benchmark_repeats_as_often_as_said(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "ndpsim.studies.bench.run_rows", lambda rows, repeat, progress: asked.append((rows, repeat)) or []
    )
    for options in ((), ("--repeat", 2), ("--row", "import", "--row", "compile")):
        assert call("bench", *options)[0] == 0
    assert asked == [((), 5), ((), 2), (("import", "compile"), 5)]
    assert stated_defaults("bench") == {
        "--only": "speed",
        "--share": "1.0",
        "--repeat": "5",
        "--size": "two-columns",
        "--title": "what ran, and the outcome",
    }
