"""A standard owns its commands: one with names, refreshes, levels and a clock of its own runs and is judged."""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndpsim
from builders.command_lines import named
from builders.one_channel import run_on
from mistakes import refused
from ndpsim.audit import check
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.config import load_hardware
from ndpsim.dram import state
from ndpsim.dram.engines import FastController, ScanController, compare_channels, make_controller
from ndpsim.dram.spec import Device, lower, resolve, standards
from ndpsim.dram.spec.checking import check_standard
from ndpsim.dram.spec.standard import Command, Rule
from ndpsim.dram.traces import CommandTrace, Requests, read_commands, write_commands
from ndpsim.simulate import Memory, run_requests, simulate_contention, simulate_expert
from ndpsim.simulate.lane import check_refresh
from pairs import all_pairs

# Eight transfers a clock; a row bus and a column bus; commands of one and two cycles; one bank refreshed by itself.
PAGE = """
from ndpsim.dram.spec.standard import Command, Every, Organisation, Rule, Standard

GETS, PUTS = ("GET", "GET-SHUT"), ("PUT", "PUT-SHUT")

STANDARD = Standard(
    name="TOY8",
    source="a test",
    commands=(
        Command("MEND", "bank", refreshes=True, closes_first="SHUT", interval="nREFIpb", bus="row"),
        Command("MEND-ALL", "half", refreshes=True, closes_first="SHUT-ALL", busy="nRFC", bus="row"),
        Command("SHUT-ALL", "half", closes=True, bus="row"),
        Command("SHUT", "bank", closes=True, bus="row"),
        Command("OPEN", "bank", opens=True, cycles=2, bus="row"),
        Command("GET", "bank", reads=True, bus="column"),
        Command("PUT", "bank", writes=True, bus="column"),
        Command("GET-SHUT", "bank", reads=True, closes=True, bus="column"),
        Command("PUT-SHUT", "bank", writes=True, closes=True, bus="column"),
        Command("SYNC", "bank", bus="column"),
    ),
    levels=("stack", "half", "club", "bank"),
    transfers_per_clock=8,
    prefetch=16,
    channel_bits=16,
    rules=(
        Rule("bus", "stack", GETS, GETS, "nBL"),
        Rule("bus", "stack", PUTS, PUTS, "nBL"),
        Rule("turn", "half", GETS, PUTS, "nCL + nBL + 2 - nCWL"),
        Rule("turn", "half", PUTS, GETS, "nCWL + nBL + nWTR"),
        Rule("other half", "half", GETS, GETS, "nBL + nCS", siblings=True),
        Rule("other half", "half", PUTS, PUTS, "nBL + nCS", siblings=True),
        Rule("other half", "half", GETS, PUTS, "nCL + nBL + nCS - nCWL", siblings=True),
        Rule("other half", "half", PUTS, GETS, "nCWL + nBL + nCS - nCL", siblings=True),
        Rule("same club", "club", GETS, GETS, "nCCDL"),
        Rule("same club", "club", PUTS, PUTS, "nCCDL"),
        Rule("opens", "half", ("OPEN",), ("OPEN",), "nRRD"),
        Rule("four opens", "half", ("OPEN",), ("OPEN",), "nFAW", window=4),
        Rule("row", "bank", ("OPEN",), ("OPEN", "MEND"), "nRC"),
        Rule("row to column", "bank", ("OPEN",), (*GETS, *PUTS), "nRCD"),
        Rule("open", "bank", ("OPEN",), ("SHUT",), "nRAS"),
        Rule("shut", "bank", ("SHUT",), ("OPEN", "MEND"), "nRP"),
        Rule("read", "bank", ("GET",), ("SHUT",), "nRTP"),
        Rule("written", "bank", ("PUT",), ("SHUT",), "nCWL + nBL + nWR"),
        Rule("read, shut", "bank", ("GET-SHUT",), ("OPEN", "MEND"), "nRTP + nRP"),
        Rule("written, shut", "bank", ("PUT-SHUT",), ("OPEN", "MEND"), "nCWL + nBL + nWR + nRP"),
        Rule("open", "half", ("OPEN",), ("SHUT-ALL",), "nRAS"),
        Rule("row", "half", ("OPEN",), ("MEND-ALL",), "nRC"),
        Rule("read", "half", ("GET",), ("SHUT-ALL",), "nRTP"),
        Rule("written", "half", ("PUT",), ("SHUT-ALL",), "nCWL + nBL + nWR"),
        Rule("shut", "half", ("SHUT", "SHUT-ALL"), ("MEND-ALL",), "nRP"),
        Rule("shut", "half", ("SHUT-ALL",), ("OPEN", "MEND"), "nRP"),
        Rule("read, shut", "half", ("GET-SHUT",), ("MEND-ALL",), "nRTP + nRP"),
        Rule("written, shut", "half", ("PUT-SHUT",), ("MEND-ALL",), "nCWL + nBL + nWR + nRP"),
        Rule("mended", "half", ("MEND-ALL",), ("OPEN", "SHUT", "SHUT-ALL", "MEND", "MEND-ALL"), "nRFC"),
        Rule("mended", "bank", ("MEND",), ("OPEN", "SHUT", "MEND"), "nRFCpb"),
        Rule("mending", "half", ("MEND",), ("MEND",), "nPBR2PBR"),
        Rule("mending", "half", ("MEND",), ("MEND-ALL", "SHUT-ALL"), "nRFCpb"),
        Rule("mending", "half", ("MEND",), ("OPEN",), "nPBR2ACT"),
    ),
    organisations={"TOY8_1Gb": Organisation(1024, 16, 4, 2, 4096, 2048)},
    speeds={
        "TOY8_6400": dict(
            rate=6400, tCK_ps=1250, nBL=2, nCL=17, nCWL=9, nRCD=15, nRP=15, nRAS=34, nRC=49, nRTP=8, nWR=28,
            nWTR=5, nCCDL=4, nRRD=4, nFAW=24, nCS=2, nRFC=100, nRFCpb=60, nREFI=1600, nREFIpb=200, nPBR2PBR=30,
            nPBR2ACT=6,
        )
    },
    derived={},
    max_postponed_refreshes=8,
    max_pulled_in_refreshes=8,
)
"""
TOY = "TOY8", "TOY8_1Gb", "TOY8_6400"
# The same with a command a clock on each bus; with clocks of two ticks; with rows that open by two commands, and
# SYNC or SYNC-PUT before a read or write after a pause.
TWO_BUSES = PAGE.replace("TOY8", "TOY9").replace('source="a test"', 'source="a test", controller="two-buses"')
HALVES = TWO_BUSES.replace("TOY9", "TOY10").replace("levels=", "ticks_per_clock=2, levels=", 1)
for closing in ('"SHUT", "bank", closes=True', '"SHUT-ALL", "half", closes=True'):
    HALVES = HALVES.replace(closing, closing + ", on_any_tick=True")
SPLIT = (
    TWO_BUSES.replace("TOY9", "TOY11")
    .replace("two-buses", "split-activation")
    .replace('bus="row"', 'bus="column"')
)
SPLIT = SPLIT.replace("opens=True, cycles=2", 'opens=True, completed_by="OPENED", complete_within="nRRD"')
for reads, sync, keeps in (("reads", "SYNC", "nCL + nBL"), ("writes", "SYNC-PUT", "nCWL + nBL")):
    prepared = f'prepared_by="{sync}", prepared_at="half", keeps_prepared="{keeps}"'
    SPLIT = SPLIT.replace(f"{reads}=True", f"{reads}=True, {prepared}")
OTHERS = 'Command("OPENED", "bank", bus="column"), Command("SYNC-PUT", "bank", keeps_prepared="nSYNC", bus="column"),'
SPLIT = SPLIT.replace('Command("SYNC", "bank"', OTHERS + ' Command("SYNC", "bank", keeps_prepared="nSYNC"')
RULES = [
    f'Rule("{sync}", "bank", ("{sync}",), {moves}, "nSYNC"),'
    for sync, moves in (("SYNC", "GETS"), ("SYNC-PUT", "PUTS"))
]
SPLIT = SPLIT.replace("rules=(", "rules=(" + "".join(RULES), 1).replace("nFAW=24", "nFAW=24, nSYNC=3")
PAGES = {"toy8": PAGE, "toy9": TWO_BUSES, "toy10": HALVES, "toy11": SPLIT}
TOY9 = "TOY9", "TOY9_1Gb", "TOY9_6400"


@pytest.fixture(autouse=True)
def page(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("standards")
    for name, text in PAGES.items():
        (folder / f"{name}.py").write_text(text)
    package = sys.modules["ndpsim.dram.spec.standards"]
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    standards.cache_clear()
    yield
    for name in PAGES:
        sys.modules.pop(f"ndpsim.dram.spec.standards.{name}", None)
        vars(package).pop(name, None)
    standards.cache_clear()


def requests_of(device: Device, count: int, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = (device.ranks, device.bankgroups, device.banks_per_group, 3, device.bursts_per_row)
    places = [rng.integers(0, size, count) for size in sizes]
    return [*places, (rng.random(count) < 0.3).astype(np.int64), np.arange(count)]


def run(make: Any, device: Device, count: int = 3000, **options: Any) -> tuple[Any, CommandTrace]:
    return run_on(make, device, ControllerOptions(**options), requests_of(device, count))


def with_rules(device: Device, rules: tuple[Rule, ...]) -> Device:
    return dataclasses.replace(device, standard=dataclasses.replace(device.standard, rules=rules))


OPEN, CLOSED = ("FRFCFS", "open"), ("FRFCFS-RowHit", "closed-cap")
#: Each row policy is compiled anew for each controller.
CONTROLLERS = [
    pytest.param(name.upper(), *rows, marks=[pytest.mark.long] if rows == CLOSED and name != "toy8" else [])
    for name in PAGES
    for rows in (OPEN, CLOSED)
]


@pytest.mark.parametrize("refresh", ["all-bank", "per-bank"])
@pytest.mark.parametrize(("name", "scheduler", "row_policy"), CONTROLLERS)
def test_every_controller_runs_legally_and_alike_on_both_paths(name, scheduler, row_policy, refresh):
    device = resolve(name, f"{name}_1Gb", f"{name}_6400", 2)
    options = dict(scheduler=scheduler, row_policy=row_policy, refresh=refresh, row_cap=2)
    (plain, trace), (fast, other) = (
        run(make, device, **options) for make in (ScanController, make_controller)
    )
    assert type(fast) is FastController
    report = check(trace, device, refresh)
    assert report.ok, report.violations[0]
    assert other == trace
    assert compare_channels(fast, plain) == []
    if name == "TOY11":
        issued = dict(zip(device.standard.names, plain.issued.tolist(), strict=True))
        assert issued["OPENED"] == issued["OPEN"] > 1000
        assert min(issued["SYNC"], issued["SYNC-PUT"]) > 100


@pytest.mark.parametrize("refresh", ["all-bank", "per-bank"])
@pytest.mark.parametrize(("scheduler", "row_policy"), [OPEN, pytest.param(*CLOSED, marks=pytest.mark.long)])
def test_a_controller_of_two_buses_issues_two_commands_a_clock_legally(scheduler, row_policy, refresh):
    options = dict(scheduler=scheduler, row_policy=row_policy, refresh=refresh)
    traces = [run(make_controller, resolve(*names, 2), 4000, **options)[1] for names in (TOY, TOY9)]
    one, two = traces
    clock, together = np.unique(two.clock, return_counts=True)
    assert (np.diff(one.clock) > 0).all()
    assert together.max() == 2
    assert (together == 2).sum() > 100
    names = two.to_arrays()["command"]
    for at in clock[together == 2][:50]:
        first, second = names[two.clock == at]
        assert first.startswith(("GET", "PUT"))
        assert second in ("OPEN", "SHUT", "MEND", "SHUT-ALL", "MEND-ALL")
    moves = [np.char.startswith(trace.to_arrays()["command"].astype(str), ("GET",)).sum() for trace in traces]
    assert moves[0] == moves[1]
    assert two.clock[-1] <= one.clock[-1] * 1.01


def test_a_page_names_its_controller():
    assert [standards()[name].controller for name in ("DDR5", "TOY9")] == ["one-command", "two-buses"]
    memory = Memory.named(*TOY9, 2)
    address = np.random.default_rng(2).integers(0, memory.capacity_bytes // 32, 2000) * 32
    result = run_requests(
        Requests.of(address, address // 32 % 2), memory, record_commands=True, exact_check=True
    )
    assert len(np.unique(result.command_traces[0].clock)) < len(result.command_traces[0])
    assert check(result.command_traces[0], memory.device).ok
    with refused("unknown-name controller"):
        state.make_policy(ControllerOptions(), "three")


# What the general controller obeys, and the fast one does not know.
WIDER = (
    Rule("other clubs", "club", ("OPEN",), ("OPEN",), "nRRD + 3", siblings=True),
    Rule("other bank", "bank", ("GET",), ("GET",), "nCCDL + 2", siblings=True),
    Rule("three of a club", "club", ("OPEN",), ("OPEN", "MEND"), "nRC + 20", window=3),
    Rule("five on the stack", "stack", ("GET",), ("PUT", "GET"), "nFAW", window=5),
    Rule("two of a bank", "bank", ("GET",), ("SHUT",), "nRAS", window=2),
)


@pytest.mark.parametrize(
    *all_pairs(
        {
            "refresh": ["all-bank", "none", "per-bank", "staggered"],
            "row_policy": ["open", "closed-cap"],
            "ranks": [1, 2],
        }
    )
)
def test_a_standard_with_commands_of_its_own_runs_legally(ranks, row_policy, refresh):
    device = resolve(*TOY, ranks)
    options = dict(refresh=refresh, row_policy=row_policy, row_cap=2)
    channel, trace = run(ScanController, device, **options)
    report = check(trace, device, refresh)
    assert report.ok, report.violations[0]
    names = trace.to_arrays()["command"]
    assert set(names) <= set(device.standard.names)
    expected = {"none": None, "per-bank": "MEND"}.get(refresh, "MEND-ALL")
    for name in ("MEND", "MEND-ALL"):
        assert ((names == name).sum() > 4 * ranks) == (name == expected)
    counts = dict(zip(*np.unique(names, return_counts=True), strict=True))
    by_number = dict(zip(device.standard.names, channel.issued.tolist(), strict=True))
    assert counts == {name: count for name, count in by_number.items() if count}
    moved = sum(counts.get(one.name, 0) for one in device.standard.commands if one.reads or one.writes)
    assert moved > 2900  # all but those that others stand for
    assert ("GET-SHUT" in counts) == (row_policy == "closed-cap")
    # The fast controller runs it with the same commands.
    chosen = make_controller(lower(device), state.make_policy(ControllerOptions(**options)))
    assert type(chosen) is FastController
    fast, other = run(FastController, device, **options)
    assert other == trace
    assert compare_channels(fast, channel) == []


@pytest.mark.parametrize("refresh", ["per-bank", "all-bank"])
def test_windows_and_siblings_bind_at_every_level(refresh):
    device = resolve(*TOY, 2)
    strict = with_rules(device, device.standard.rules + WIDER)
    assert type(make_controller(lower(strict), state.make_policy(ControllerOptions()))) is ScanController
    _, trace = run(ScanController, strict, refresh=refresh)
    report = check(trace, strict, refresh)
    assert report.ok, report.violations[0]
    # Each of them binds here: without it the checker finds what is then issued too early.
    for rule in WIDER:
        _, trace = run(
            ScanController, with_rules(strict, tuple(one for one in strict.standard.rules if one != rule))
        )
        assert {one.rule for one in check(trace, strict, limit=10**6).violations} == {rule.name}


def test_one_bank_is_closed_refreshed_and_opened_again_at_the_clocks_by_hand():
    device = resolve(*TOY)
    # Reads of banks 0 and 1 of the first group, whose refreshes fall due at clocks 200 and 400.
    bank, row = np.array([0, 1, 0, 1]), np.array([5, 5, 5, 5])
    zero, cycle = np.zeros(4, dtype=np.int64), np.array([0, 0, 300, 300])
    requests = [zero, zero, bank, row, zero, zero, np.arange(4), cycle]
    _, trace = run_on(ScanController, device, ControllerOptions(refresh="per-bank"), requests)
    issued = zip(
        trace.clock.tolist(), trace.to_arrays()["command"].tolist(), trace.bank.tolist(), strict=True
    )
    # OPEN begins its effect in its second cycle: nRCD + 1 to GET, nRRD from OPEN to OPEN.
    assert list(issued) == [
        (1, "OPEN", 0),
        (5, "OPEN", 1),
        (17, "GET", 0),
        (21, "GET", 1),
        (200, "SHUT", 0),
        (215, "MEND", 0),  # nRP; the other bank stays open
        (301, "OPEN", 0),  # more than nRFCpb later
        (302, "GET", 1),
        (317, "GET", 0),
    ]


def test_a_burst_takes_its_bits_over_the_data_rate():
    device = resolve(*TOY)
    assert device.clock_ps == 1250
    assert device.peak_gbps == pytest.approx(6.4 * 16 / 8)
    assert float(device.clock_ps) * device.timings["nBL"] / 1000 == pytest.approx(16 / 6.4)


def test_results_and_files_name_commands_as_the_page_does(tmp_path):
    memory = Memory.named(*TOY, options=ControllerOptions(refresh="per-bank"))
    address = np.random.default_rng(2).integers(0, memory.capacity_bytes // 32, 500) * 32
    result = run_requests(Requests.of(address, np.zeros(500, dtype=np.int64)), memory, record_commands=True)
    order = [command.name for command in memory.device.standard.commands]
    assert list(result.commands) == [name for name in order if name in result.commands]
    assert result.commands["MEND"] > 2
    assert result.commands["GET"] == 500 - result.reads_forwarded
    assert result.energy_nj is None
    trace = result.command_traces[0]
    write_commands(tmp_path / "c.csv", trace)
    assert read_commands(tmp_path / "c.csv") == trace
    assert check(read_commands(tmp_path / "c.csv"), memory.device, "per-bank").ok
    with refused("unsupported form"):
        write_commands(tmp_path / "d", trace, "drampower", device=memory.device)


def test_an_expert_runs_on_it():
    sets = ["dram.standard=TOY8", "dram.org=TOY8_1Gb", "dram.timing=TOY8_6400", "dram.overrides={}"]
    hardware = load_hardware("edge", [one for one in sets if "overrides" not in one])
    result = simulate_expert(hardware, ndpsim.Expert(256, 64), record_commands=True, exact_check=True)
    assert set(result.commands) <= set(standards()["TOY8"].names)
    device = hardware.lane_device()
    for trace in result.command_traces:
        report = check(trace, device)
        assert report.ok, report.violations[0]


@pytest.mark.parametrize("refresh", ["all-bank", "per-bank"])
def test_an_expert_beside_the_host_runs_on_it(refresh):
    changes = [
        f"dram.{key}" for key in ("standard=TOY8", "org=TOY8_1Gb", "timing=TOY8_6400", f"refresh={refresh}")
    ]
    hardware = load_hardware("edge", [*changes, "dimm.ranks=2"])
    # Per bank, the readable arbiter runs it, for which others compile this arbitration.
    result = simulate_contention(
        hardware, ndpsim.Expert(256, 128), arbitration="ndp-first", record_commands=True
    )
    assert result.commands["MEND" if refresh == "per-bank" else "MEND-ALL"] > 4
    for trace in result.command_traces:
        report = check(trace, hardware.lane_device(), refresh)
        assert report.ok, report.violations[0]


def test_a_refresh_that_the_standard_lacks_is_one_line():
    with refused("unknown-name refresh"):
        check_refresh(resolve(*TOY), "same-bank")
    with refused("unknown-name refresh"):
        check_refresh(resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN"), "per-bank")


def test_commands_of_other_buses_may_share_a_clock_and_those_of_one_may_not():
    device = resolve(*TOY)
    names = device.standard.names

    def verdict(*commands: tuple[int, str, int]) -> list[str]:
        lines = [(clock, name, 0, 0, bank, 1, 0 if name == "GET" else -1) for clock, name, bank in commands]
        return [one.rule for one in check(named(*lines, names=names), device, "none").violations]

    opened = (1, "OPEN", 0), (100, "OPEN", 1)
    assert verdict(opened[0], (100, "GET", 0), opened[1]) == []
    assert verdict(*opened, (101, "GET", 0)) == []
    assert "clock order" in verdict(*opened, (99, "GET", 0))
    assert "command bus" in verdict((1, "OPEN", 0), (2, "OPEN", 1))
    assert lower(device).gap[0, names.index("OPEN"), names.index("GET")] < 0
    assert lower(device).gap[0, names.index("OPEN"), names.index("SHUT")] == 2


def changed(name: str, **values: Any) -> Callable[[Any], list[Command]]:
    """The commands with one that is another."""
    return lambda c: [dataclasses.replace(one, **values) if one.name == name else one for one in c]


def added(*names: str, scope: str = "bank", **values: Any) -> Callable[[Any], list[Command]]:
    """The commands and more."""
    return lambda c: [*c, *(Command(name, scope, **values) for name in names)]


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (lambda c: [one for one in c if not one.opens], "missing TOY8"),
        (lambda c: [one for one in c if one.name != "PUT-SHUT"], "missing TOY8"),
        (changed("MEND", closes_first=""), "conflict TOY8: command MEND"),
        (changed("MEND", closes_first="SHUT-ALL"), "conflict TOY8: command MEND"),
        (added("SYNC"), "twice TOY8"),
        (added("OPEN2", opens=True), "unsupported TOY8: command OPEN2"),
        (added("OPEN2", scope="club"), "range TOY8"),
        (added(*(f"X{n}" for n in range(7))), "too-large TOY8"),
        (added("X", cycles=0), "range TOY8: command X"),
        (
            added("MEND2", refreshes=True, closes_first="SHUT", interval="nREFIab"),
            "unknown-name TOY8: command MEND2, preset TOY8_6400 ? nREFIpb",
        ),
    ],
)
def test_what_is_wrong_with_commands_is_one_line(commands, expected):
    toy = standards()["TOY8"]
    with refused(expected):
        check_standard(dataclasses.replace(toy, commands=tuple(commands(toy.commands))))


PAGES_AND_FORMATS = (
    "dram/spec/standards/",
    "dram/spec/extensions/",
    "dram/traces/command_formats/",
    "config/importers/",
    "_data/",  # the authors' tools, which come along in a wheel
)


def test_no_code_but_standards_and_foreign_formats_names_a_command():
    names = {"ACT", "PREpb", "PREab", "PREsb", "RD", "WR", "RDA", "WRA", "REFab", "REFsb", "REFpb"}
    root, found = Path(ndpsim.__file__).parent, set()
    for path in root.rglob("*.py"):
        where = path.relative_to(root).as_posix()
        if where.startswith(PAGES_AND_FORMATS):
            continue
        text = path.read_text()
        if names.isdisjoint(re.findall(r"\w+", text)):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and node.value in names:
                found.add(f"{where}: {node.value}")
    assert found == set()
