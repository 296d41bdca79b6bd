"""The legality checker: its rules against a comparison of all pairs, its reports and files, and the reference traces.

Distances, rows, data and refreshes are tried on both sides of their limits in `test_checker_rules`.
"""

from __future__ import annotations

import dataclasses
import gzip
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import ndpsim.audit
from builders.command_lines import COLUMN, NAMES, NUMBER, Line, line, trace_of, verdict
from mistakes import refused
from ndpsim.audit import CommandBuses, Report, check, check_lanes
from ndpsim.dram.spec import Device, Rule, command_names, resolve
from ndpsim.dram.traces import HEADER, CommandTrace, read_commands, write_commands
from ndpsim.simulate import run_trace

REFERENCE = Path(__file__).parents[1] / "validation" / "ramulator2"
PRESETS = {"DDR4": ("DDR4_8Gb_x8", "DDR4_2400R"), "DDR5": ("DDR5_16Gb_x8", "DDR5_4800AN")}


def names(report: Report) -> set[str]:
    return {violation.rule for violation in report.violations}


def preset(standard: str, ranks: int = 2, **overrides: int) -> Device:
    return resolve(standard, *PRESETS[standard], ranks, overrides)


# All rules at once, against the plainest reading of them: every earlier command, not only the last.


def distance_of(rule: Rule, before: str, after: str, device: Device) -> int:
    written = eval(rule.latency, {}, dict(device.timings))
    cycles = {
        name: 2 if device.standard.name == "DDR5" and name in ("ACT", *COLUMN) else 1 for name in NUMBER
    }
    return int(written) + (cycles[before] - 1) - (cycles[after] - 1)


def related(rule: Rule, first: Line, second: Line) -> bool:
    same_rank = first[2] == second[2]
    if rule.siblings:
        if rule.level == "bank":
            return same_rank and first[3] == second[3] != -1 and first[4] != second[4]
        return not same_rank if rule.level == "rank" else same_rank and first[3] != second[3]
    level = rule.level
    if -1 in (first[4], second[4]) and level in ("bankgroup", "bank"):
        level = "rank"
    if -1 in (first[3], second[3]) and level == "bankgroup":
        level = "rank"
    if -1 in (first[3], second[3]) and level == "bank":
        return same_rank and first[4] == second[4]
    depth = {"channel": 2, "rank": 3, "bankgroup": 4, "bank": 5}[level]
    return first[2:depth] == second[2:depth]


def broken_pairs(lines: list[Line], device: Device) -> set[tuple[int, str, int]]:
    broken = set()
    for index, later in enumerate(lines):
        for rule in device.standard.rules + device.standard.checked_rules:
            after, worst = NAMES[later[1]], 0
            for before in rule.previous if after in rule.next else ():
                need = distance_of(rule, before, after, device)
                earlier = [
                    one for one in lines[:index] if one[1] == NUMBER[before] and related(rule, one, later)
                ]
                for one in earlier[: max(0, len(earlier) - rule.window + 1)]:
                    worst = max(worst, need - (later[0] - one[0]))
            if worst:
                broken.add((index, rule.name, worst))
    return broken


#: Rules that a standard may have, but DDR4 and DDR5 do not.
MADE_UP = (
    Rule("whole rank, then a bank", "bank", ("REFab",), ("PREpb", "RD"), "nRFC"),
    Rule("a group, then the whole rank", "bankgroup", ("WR",), ("PREab", "REFab"), "nRC"),
    Rule("other groups", "bankgroup", ("ACT",), ("ACT", "WR"), "nRC", siblings=True),
    Rule("a bank of every group", "bank", ("REFsb", "RD"), ("RD", "PREsb"), "nRC"),
    Rule("a group, then a bank of every group", "bankgroup", ("WR", "PREsb"), ("WR", "REFsb"), "nRC"),
    Rule("three on the channel", "channel", ("RD",), ("RD", "WR"), "nRC", window=3),
)
SPOTS = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1))
STEPS = st.tuples(st.integers(1, 30), st.sampled_from(sorted(NUMBER)), SPOTS)


@settings(max_examples=80, deadline=None)
@given(standard=st.sampled_from(["DDR4", "DDR5"]), steps=st.lists(STEPS, min_size=2, max_size=40))
def test_timing_check_equals_a_comparison_of_all_pairs(standard, steps):
    device = preset(standard, nRFC=90)
    known = set(device.standard.names)
    rules = device.standard.rules + tuple(r for r in MADE_UP if {*r.previous, *r.next} <= known)
    steps = [step for step in steps if step[1] in known]
    device = dataclasses.replace(device, standard=dataclasses.replace(device.standard, rules=rules))
    clock, lines = 0, []
    for wait, name, spot in steps:
        clock += wait
        lines.append(line(clock, name, spot))
    timing = {rule.name for rule in device.standard.rules}
    report = verdict(lines, device)
    found = {(v.index, v.rule, v.shortfall) for v in report.violations if v.rule in timing}
    assert found == broken_pairs(lines, device)


# Buses.


@pytest.mark.parametrize("clock", [100, 99, -3])
def test_clocks_must_increase(clock: int) -> None:
    report = verdict([line(100, "PREpb", (0, 0, 0)), line(clock, "PREpb", (1, 0, 0))], preset("DDR4"))
    assert names(report) == {"clock order"}
    assert report.violations[0].index == 1


def test_clocks_start_at_zero() -> None:
    assert names(verdict([line(-1, "PREpb")], preset("DDR4"))) == {"clock order"}
    assert verdict([line(0, "PREpb")], preset("DDR4")).ok


def columns_after_acts(*columns: Line) -> list[Line]:
    spots = sorted({(one[2], one[3], one[4]) for one in columns})
    return [line(100 + 100 * k, "ACT", spot) for k, spot in enumerate(spots)] + list(columns)


@pytest.mark.parametrize(("standard", "shift"), [("DDR4", 0), ("DDR5", 1)])  # by the second cycle
def test_data_that_meet_are_told_with_their_clocks(standard: str, shift: int) -> None:
    device = preset(standard, nBL=8, nCL=40, nCWL=20)
    report = verdict(columns_after_acts(line(1000, "RD"), line(1013, "WR", (0, 2, 0))), device)
    message = report.violations[0].message
    assert f"its data at clocks {1033 + shift} to {1040 + shift}" in message
    assert f"at {1040 + shift} to " in message


def test_tolerated_overlap_hides_no_other() -> None:
    """The data of a write on another rank start between those of two reads that overlap."""
    device = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA", 2)
    reads = line(1000, "RD", (0, 0, 0)), line(1003, "RD", (0, 1, 0))
    report = verdict(columns_after_acts(*reads, line(1008, "WR", (1, 0, 0))), device)
    assert report.tolerated_overlaps == 2
    assert [v.index for v in report.violations if v.rule == "data bus"] == [4]


# Coordinates.


def changed(one: Line, **values: int) -> Line:
    return tuple(values.get(name, value) for name, value in zip(HEADER, one, strict=True))


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
def test_coordinates_within_range(standard: str) -> None:
    device = preset(standard, 2)
    sizes = {
        "rank": 2,
        "bankgroup": device.bankgroups,
        "bank": 4,
        "row": 1 << 16,
        "column": 128 if standard == "DDR4" else 64,
    }
    for name, size in sizes.items():
        for value, legal in ((size - 1, True), (size, False), (0, True), (-1, False), (-2, False)):
            act = line(1000, "ACT")
            if name != "column":
                act = changed(act, **{name: value})
            lines = [act, changed(line(2000, "RD"), **{name: value})]
            report = verdict(lines, device)
            assert report.ok is legal
            if not legal:
                assert "coordinates" in names(report)
                assert f"{name} {value} is not within 0 to {size - 1}" in report.violations[0].message


@pytest.mark.parametrize(
    ("command", "free"),
    [
        ("ACT", ("column",)),
        ("PREpb", ("row", "column")),
        ("PREab", ("bankgroup", "bank", "row", "column")),
        ("REFab", ("bankgroup", "bank", "row", "column")),
    ],
)
def test_what_is_not_addressed_is_minus_one(command: str, free: tuple[str, ...]) -> None:
    assert verdict([line(1000, command)], preset("DDR4")).ok
    for name in free:
        report = verdict([changed(line(1000, command), **{name: 0})], preset("DDR4"))
        assert names(report) == {"coordinates"}
        assert f"{name} is 0, but {command} addresses none (-1)" in report.violations[0].message


@pytest.mark.parametrize("number", [-1, len(command_names()), 1 << 40])
def test_unknown_command_number(number: int) -> None:
    report = verdict([changed(line(1000, "ACT"), command=number)], preset("DDR4"))
    assert names(report) == {"command"}
    assert f"command number {number} at clock" in report.violations[0].message


# Reports.


def test_message_names_all_there_is_to_know() -> None:
    device = preset("DDR5", 1)
    lines = [line(785, "ACT", (0, 2, 1), row=77), line(812, "RD", (0, 2, 1), row=77, column=4)]
    report = verdict(lines, device)
    assert [v.message for v in report.violations] == [
        "line 3: RD rank 0 bankgroup 2 bank 1 row 77 column 4 at clock 812: tRCD: 7 clocks too early, "
        "ACT at clock 785 (line 2) allows it from clock 819"
    ]
    (violation,) = report.violations
    assert (violation.index, violation.clock, violation.rule, violation.shortfall) == (1, 812, "tRCD", 7)
    assert violation.command == "RD rank 0 bankgroup 2 bank 1 row 77 column 4"
    assert report.to_dict()["violations"][0]["message"] == violation.message


def test_violations_of_several_rules_are_told_in_the_order_of_the_trace() -> None:
    lines = [line(1000, "RD", (0, 1, 0)), line(2000, "ACT"), line(2001, "RD"), line(9000, "RD", (0, 2, 0))]
    for limit, told in (
        (9, [(0, "row state"), (2, "tRCD"), (3, "row state")]),
        (2, [(0, "row state"), (2, "tRCD")]),
    ):
        report = verdict(lines, preset("DDR4"), limit=limit)
        assert ([(v.index, v.rule) for v in report.violations], report.count) == (told, 3)


def test_an_empty_trace_is_legal() -> None:
    report = verdict([], preset("DDR4"))
    assert report.ok
    assert report.commands == 0


def test_arrays_of_a_trace_have_one_length() -> None:
    one, two = np.zeros(1, dtype=np.int64), np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match="differ in length"):
        CommandTrace(one, one, one, one, one, one, two)


def test_a_command_that_the_standard_does_not_have_is_illegal() -> None:
    lines = [line(100, "REFsb")]
    assert verdict(lines, preset("DDR5", 1), refresh="none").ok
    found = verdict(lines, preset("DDR4", 1), refresh="none")
    assert [one.message for one in found.violations] == [
        "line 2: REFsb rank 0 bank 0 at clock 100: command: DDR4 has no such command"
    ]


# Lanes.


def test_lanes_are_channels_of_their_own() -> None:
    device = preset("DDR5", 1)
    lane = [line(100, "ACT"), line(134, "RD"), line(300, "PREpb")]
    both = sorted(changed(one, rank=lane) for one in lane for lane in (0, 1))
    assert check_lanes(trace_of(both), device, 2, refresh="none").ok
    assert not check(trace_of(both), preset("DDR5", 2), refresh="none").ok


def test_lane_at_fault_is_named() -> None:
    device = preset("DDR5", 1)
    lines = [
        line(100, "ACT"),
        changed(line(100, "ACT"), rank=3),
        line(134, "RD"),
        changed(line(133, "RD"), rank=3),
    ]
    report = check_lanes(trace_of(lines), device, 4, refresh="none")
    assert report.commands == 4
    assert [v.message for v in report.violations] == [
        "line 5: RD lane 3 bankgroup 0 bank 0 row 7 column 3 at clock 133: tRCD: 1 clock too early, "
        "ACT at clock 100 (line 3) allows it from clock 134"
    ]


def test_every_lane_is_owed_its_refresh() -> None:
    device = preset("DDR4", 1, nREFI=1000, nRFC=10, nRP=1)
    lines = [line(1000 * n, "REFab") for n in range(1, 7)] + [changed(line(6000, "PREpb"), rank=1)]
    report = check_lanes(trace_of(lines), device, 2, max_postponed=4)
    assert [(v.index, v.rule) for v in report.violations] == [(6, "refresh debt")]
    assert "lane 1 is 6 intervals" in report.violations[0].message


def test_lanes_are_counted_and_those_of_several_ranks_share_no_command_bus() -> None:
    with refused("conflict buses"):
        check_lanes(trace_of([]), preset("DDR4", 2), 4, buses=CommandBuses("shared", 2))
    with refused("range lanes"):
        check_lanes(trace_of([]), preset("DDR4", 1), 0)


# Command buses. Of two DIMMs with two ranks and two sub-channels, lanes 0 and 2 are the ranks of a bus.


def on_buses(kind: str, lines: list[list[int]]) -> list[tuple[int, str, int]]:
    buses = CommandBuses(kind, ranks=2, subchannels=2)
    report = check_lanes(trace_of(lines), preset("DDR5", 1), 8, refresh="none", buses=buses)
    assert report.count == len(report.violations)
    return [(one.index, one.rule, one.shortfall) for one in report.violations]


@pytest.mark.parametrize(
    ("lane", "clock", "short"),
    [(2, 100, 2), (2, 101, 1), (2, 102, 0), (1, 100, 0), (3, 101, 0), (4, 100, 0), (6, 101, 0)],
)
def test_ranks_of_a_sub_channel_take_turns_on_a_shared_command_bus(lane, clock, short) -> None:
    lines = [line(100, "ACT"), changed(line(clock, "ACT"), rank=lane)]  # ACT takes two clocks
    assert on_buses("shared", lines) == ([(1, "shared command bus", short)] if short else [])
    assert on_buses("private", lines) == []


def test_a_one_clock_command_holds_a_shared_command_bus_for_one_clock() -> None:
    lines = [line(100, "PREpb"), changed(line(100, "PREpb"), rank=2), changed(line(101, "PREpb"), rank=2)]
    assert on_buses("shared", [lines[0], lines[2]]) == []
    assert on_buses("shared", lines[:2]) == [(1, "shared command bus", 1)]


def test_ranks_of_a_sub_channel_obey_a_broadcast_command_bus_together() -> None:
    def both(one: list[int]) -> list[list[int]]:
        return [one, changed(one, rank=2)]

    same = [*both(line(100, "ACT")), *both(line(134, "RD")), *both(line(300, "PREpb"))]
    assert on_buses("broadcast", same) == []
    assert on_buses("broadcast", same[:-1]) == [(4, "broadcast command bus", 0)]
    assert on_buses("broadcast", [*same[:3], changed(same[3], column=9), *same[4:]]) == [
        (3, "broadcast command bus", 0)
    ]
    assert on_buses("broadcast", [*same[:5], changed(same[5], clock=301)]) == [
        (5, "broadcast command bus", 0)
    ]
    assert on_buses("broadcast", [changed(line(100, "ACT"), rank=2)]) == [(0, "broadcast command bus", 0)]
    with refused("unknown-name buses"):
        on_buses("open", same)


# Files.

GOOD = """\
clock,command,rank,bankgroup,bank,row,column
1,ACT,0,2,2,123,-1
37,RD,0,2,2,123,32
90,REFab,1,-1,-1,-1,-1
"""


def same(one: CommandTrace, other: CommandTrace) -> bool:
    return np.array_equal(one.columns(), other.columns())


@pytest.mark.parametrize(
    "data",
    [
        GOOD.encode(),
        GOOD.replace("\n", "\r\n").encode(),
        GOOD.rstrip("\n").encode(),
        gzip.compress(GOOD.encode(), mtime=0),
        GOOD.replace("123,-1", "123,").encode(),
    ],
    ids=["plain", "crlf", "no last newline", "gzip", "no column"],
)
def test_forms_of_a_file_read_alike(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "commands.csv"
    path.write_bytes(data)
    trace = read_commands(path)
    assert trace.columns().T.tolist() == [
        [1, NUMBER["ACT"], 0, 2, 2, 123, -1],
        [37, NUMBER["RD"], 0, 2, 2, 123, 32],
        [90, NUMBER["REFab"], 1, -1, -1, -1, -1],
    ]
    assert trace.clock.dtype == np.int64


def test_a_file_with_no_commands(tmp_path: Path) -> None:
    path = tmp_path / "commands.csv"
    for text in (",".join(HEADER), ",".join(HEADER) + "\n"):
        path.write_text(text)
        assert len(read_commands(path)) == 0


BAD_FILES = [
    (b"", "form commands.csv"),
    (GOOD.replace("bankgroup", "group", 1).encode(), "form commands.csv:1"),
    (b"clock,command,rank\n", "form commands.csv:1"),
    (GOOD.replace("column", "column,x", 1).encode(), "form commands.csv:1"),
    (GOOD.replace(",32", "").encode(), "form commands.csv:3"),
    (GOOD.replace(",32", ",32,1").encode(), "form commands.csv:3"),
    (GOOD.replace("\n37", "\n\n37").encode(), "form commands.csv:3"),
    (GOOD.replace(",32", ",x").encode(), "type commands.csv:3 column"),
    (GOOD.replace(",32", ",").encode(), "type commands.csv:3 column"),
    (GOOD.replace(",32", ",3.0").encode(), "type commands.csv:3 column"),
    (GOOD.replace(",32", ",0x20").encode(), "type commands.csv:3 column"),
    (GOOD.replace(",32", ",32\0").encode(), "type commands.csv:3 column"),
    (GOOD.replace(",32", ",\u0663").encode(), "form commands.csv:3"),
    (GOOD.replace("\n37", "\n# c\n37").encode(), "form commands.csv:3"),
    (GOOD.replace("37,", "9" * 30 + ",").encode(), "range commands.csv:3 clock"),
    (GOOD.replace("37,", str(-(1 << 63)) + ",").encode(), "range commands.csv:3 clock"),
    (GOOD.replace("RD", "RDD").encode(), "unknown-name commands.csv:3 command ? RD"),
    (GOOD.replace("RD", "3").encode(), "unknown-name commands.csv:3 command"),
    (gzip.compress(GOOD.encode() * 50, mtime=0)[:-30], "unreadable commands.csv"),
    (b"\x1f\x8b\x08junk", "unreadable commands.csv"),
    (b"\x7fELF\x02\x01\x00\xff\xfe\n", "form commands.csv:1"),
]


@pytest.mark.parametrize(("data", "words"), BAD_FILES)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "commands.csv"
    path.write_bytes(data)
    with refused(words):
        read_commands(path)


NUMBERS = st.integers(-(10**18) + 1, 10**18 - 1)


@settings(max_examples=50, deadline=None)
@given(
    lines=st.lists(st.tuples(NUMBERS, st.integers(0, len(NAMES) - 1), *[NUMBERS] * 5), max_size=20),
    suffix=st.sampled_from([".csv", ".csv.gz"]),
)
def test_what_is_written_is_read_again(tmp_path_factory, lines, suffix):
    folder = tmp_path_factory.mktemp("trace")
    trace = trace_of(lines)
    first, second = folder / f"a{suffix}", folder / f"b{suffix}"
    write_commands(first, trace)
    write_commands(second, trace)
    assert same(read_commands(first), trace)
    assert first.read_bytes() == second.read_bytes()
    compressed = first.read_bytes().startswith(b"\x1f\x8b")
    assert compressed is (suffix == ".csv.gz")
    assert not compressed or first.read_bytes()[4:8] == bytes(4)  # no time of writing
    assert sorted(path.name for path in folder.iterdir()) == [first.name, second.name]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "commands.csv"
    write_commands(path, trace_of([line(1, "ACT")]))
    before = path.read_bytes()
    with refused("range trace"):
        write_commands(path, trace_of([changed(line(1, "ACT"), command=99)]))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_checker_reads_the_rules_itself() -> None:
    """Contracts in pyproject.toml keep it from all that schedules; nor does it take the engine's tables."""
    for path in Path(ndpsim.audit.__file__).parent.glob("*.py"):
        assert not re.search(r"import .*\b(lower|Tables)\b|spec\.lower", path.read_text()), path


# Reference traces: our controller's, which `test_reference` holds to the sha256 of Ramulator's.

CASES = sorted(path.stem for path in REFERENCE.glob("*.yaml"))
CHANNEL = ("standard", "org", "timing", "ranks", "overrides", "mapper")
CONTROLLER = ("scheduler", "row_policy", "refresh", "read_buffer", "write_buffer")


@pytest.mark.parametrize("case", CASES)
def test_reference_traces_are_legal(case: str) -> None:
    about = yaml.safe_load((REFERENCE / f"{case}.yaml").read_text())
    settings = {name: about[name] for name in (*CHANNEL, *CONTROLLER)}
    settings |= {"rules": "reference", "record_commands": True}
    trace = run_trace(REFERENCE / f"{case}.trace.gz", **settings).command_traces[0]
    trace = trace.take(np.flatnonzero(trace.clock <= about["cycles"]))
    device = resolve(*(about[name] for name in CHANNEL[:5]), rules="reference")
    report = check(trace, device, about["refresh"], max_postponed=1, max_pulled_in=0)
    assert report.commands == sum(about["commands"].values())
    assert report.ok, [violation.message for violation in report.violations]
