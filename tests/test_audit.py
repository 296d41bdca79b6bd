"""The legality checker: each rule on both sides of its limit, and the reference traces."""

from __future__ import annotations

import ast
import dataclasses
import functools
import gzip
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import ndpsim.audit
from mistakes import refused
from ndpsim.audit import CommandBuses, Report, check, check_lanes
from ndpsim.simulate import run_trace
from ndpsim.spec import Device, Rule, command_names, resolve, standards
from ndpsim.traces import HEADER, CommandTrace, read_commands, write_commands

COMMANDS = standards()["DDR5"].by_number

REFERENCE = Path(__file__).parents[1] / "validation" / "ramulator2"
NUMBER = {command.name: number for number, command in enumerate(COMMANDS)}
READS, WRITES = ("RD", "RDA"), ("WR", "WRA")
COLUMN = READS + WRITES
RANK_WIDE = ("PREab", "REFab")
SAME_BANK = ("PREsb", "REFsb")
PRESETS = {"DDR4": ("DDR4_8Gb_x8", "DDR4_2400R"), "DDR5": ("DDR5_16Gb_x8", "DDR5_4800AN")}

Spot = tuple[int, int, int]  # rank, bank group, bank
Line = tuple[int, ...]


def line(clock: int, name: str, spot: Spot = (0, 0, 0), row: int = 7, column: int = 3) -> Line:
    """A well-formed command, where coordinates that it does not address are -1."""
    rank, group, bank = spot
    if name in RANK_WIDE:
        group = bank = -1
    if name in SAME_BANK:
        group = -1
    return (
        clock,
        NUMBER[name],
        rank,
        group,
        bank,
        row if name in ("ACT", *COLUMN) else -1,
        column if name in COLUMN else -1,
    )


def trace_of(lines: Iterable[Line]) -> CommandTrace:
    return CommandTrace.of(np.array(list(lines), dtype=np.int64).reshape(-1, 7).T)


def verdict(lines: Iterable[Line], device: Device, **options: Any) -> Report:
    chosen: dict[str, Any] = {"refresh": "none", "limit": 1000} | options
    return check(trace_of(lines), device, **chosen)


def names(report: Report) -> set[str]:
    return {violation.rule for violation in report.violations}


def preset(standard: str, ranks: int = 2, **overrides: int) -> Device:
    return resolve(standard, *PRESETS[standard], ranks, overrides)


# Timing rules, one by one. In the device, every timing but that under test is one clock, so that only the
# tested rule constrains; the distance is computed here from the standard's rule.


def level_spots(level: str, siblings: bool) -> tuple[Spot, Spot]:
    """Two places that share the node of `level` but none below it."""
    if siblings:
        return (0, 1, 2), (1, 1, 2)
    return {
        "channel": ((0, 1, 2), (0, 2, 3)),  # on one rank: on two, tCS asks for more than BL does
        "rank": ((0, 1, 2), (0, 2, 3)),
        "bankgroup": ((0, 1, 2), (0, 1, 3)),
        "bank": ((0, 1, 2), (0, 1, 2)),
    }[level]


ELSEWHERE: dict[str, Spot] = {"bank": (0, 1, 3), "bankgroup": (0, 2, 3), "rank": (1, 1, 2)}


def pair(rule: Rule, before: str, after: str, distance: int, spots: tuple[Spot, Spot]) -> list[Line]:
    """A trace in which `after` follows `before`, with all other commands long before or between."""
    here, there = spots
    start = 5000
    lines = []
    if before in COLUMN:
        lines.append(line(1000, "ACT", here))
    if after in COLUMN and (here != there or before not in (*COLUMN, "ACT")):
        lines.append(line(2000, "ACT", there))
    lines.append(line(start, before, here))
    for number in range(1, rule.window):
        lines.append(line(start + 8 * number, before, (here[0], (here[1] + number) % 4, 0)))
    if before == "ACT" and (after == "REFab" or (after in ("ACT", "REFsb") and here == there)):
        lines.append(line(start + distance // 2, "PREab" if after == "REFab" else "PREpb", here))
    return [*lines, line(start + distance, after, there)]


def rule_cases() -> Iterator[Any]:
    for standard in ("DDR4", "DDR5"):
        for place, rule in enumerate(standards()[standard].rules):
            for term in re.findall(r"(?<!- )\bn\w+", rule.latency):
                for before in rule.previous:
                    for after in rule.next:
                        label = f"{standard}-{place}-{rule.name}-{rule.level}-{term}-{before}-{after}"
                        yield pytest.param(standard, rule, term, before, after, id=label.replace(" ", ""))


def lone_device(standard: str, rule: Rule, term: str) -> Device:
    clocks = dict.fromkeys(preset(standard).timings, 1)
    del clocks["rate"], clocks["tCK_ps"]
    for subtracted in re.findall(r"- (n\w+)", rule.latency):
        clocks[subtracted] = 5
    return preset(standard, **{**clocks, term: 60})


def distance_of(rule: Rule, before: str, after: str, device: Device) -> int:
    written = eval(rule.latency, {}, dict(device.timings))
    cycles = {
        name: 2 if device.standard.name == "DDR5" and name in ("ACT", *COLUMN) else 1 for name in NUMBER
    }
    return int(written) + (cycles[before] - 1) - (cycles[after] - 1)


@pytest.mark.parametrize(("standard", "rule", "term", "before", "after"), list(rule_cases()))
def test_every_rule_binds_exactly_at_its_distance(
    standard: str, rule: Rule, term: str, before: str, after: str
) -> None:
    device = lone_device(standard, rule, term)
    distance = distance_of(rule, before, after, device)
    spots = level_spots(rule.level, rule.siblings)
    legal = verdict(pair(rule, before, after, distance, spots), device)
    assert legal.ok, [violation.message for violation in legal.violations]

    lines = pair(rule, before, after, distance - 1, spots)
    early = verdict(lines, device)
    assert {violation.index for violation in early.violations} == {len(lines) - 1}
    broken = [violation for violation in early.violations if violation.rule == rule.name]
    assert [violation.shortfall for violation in broken] == [1]
    assert f"{before} at clock 5000 (line " in broken[0].message
    assert f"allows it from clock {5000 + distance}" in broken[0].message

    if rule.level != "channel":
        elsewhere = (0, 2, 3) if rule.siblings else ELSEWHERE[rule.level]
        unbound = verdict(pair(rule, before, after, distance - 1, (spots[0], elsewhere)), device)
        assert rule.name not in names(unbound)


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
@pytest.mark.parametrize("kind", COLUMN)
def test_burst_rule_binds_across_ranks(standard: str, kind: str) -> None:
    device = lone_device(standard, standards()[standard].rules[0], "nBL")
    rule = standards()[standard].rules[0]
    for distance, binds in ((59, True), (60, False)):
        found = names(verdict(pair(rule, kind, kind, distance, ((0, 0, 0), (1, 0, 0))), device))
        assert ("BL" in found, "data bus" in found) == (binds, binds)


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
def test_activate_window_counts_the_fourth_last_act(standard: str) -> None:
    rule = next(rule for rule in standards()[standard].rules if rule.name == "tFAW")
    device = lone_device(standard, rule, "nFAW")
    lines = pair(rule, "ACT", "ACT", 59, level_spots("rank", False))
    assert names(verdict(lines, device)) == {"tFAW"}
    assert verdict(lines[:-2] + lines[-1:], device).ok  # the fourth ACT within the window, not the fifth
    lines[-2] = line(lines[-2][0], "ACT", (1, 0, 0))  # the fourth goes to another rank
    assert verdict(lines, device).ok


# Distances by hand, from the clock counts of JESD79-4 and JESD79-5. DDR5: ACT, RD and WR take two
# command cycles, PRE and REF one; its tFAW is 20 ns, as in Ramulator.
A, B, C, OTHER = (0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 1, 2)  # C: another group; OTHER: another rank
BY_HAND = [
    ("DDR4", "tRCD", "ACT", "RD", A, A, 16),
    ("DDR4", "tRAS", "ACT", "PREpb", A, A, 39),
    ("DDR4", "tRAS", "ACT", "PREab", A, A, 39),
    ("DDR4", "tRC", "ACT", "REFab", A, A, 55),
    ("DDR4", "tRP", "PREpb", "ACT", A, A, 16),
    ("DDR4", "tRTP", "RD", "PREpb", A, A, 9),
    ("DDR4", "tWR", "WR", "PREpb", A, A, 12 + 4 + 18),
    ("DDR4", "tWTR_L", "WR", "RD", A, B, 12 + 4 + 9),
    ("DDR4", "tWTR_S", "WR", "RD", A, C, 12 + 4 + 3),
    ("DDR4", "tRTW", "RD", "WR", A, C, 16 + 4 + 2 - 12),
    ("DDR4", "tCCD_L", "RD", "RD", A, B, 6),
    ("DDR4", "tCCD_S", "WR", "WR", A, C, 4),
    ("DDR4", "tCS", "RD", "RD", A, OTHER, 4 + 2),
    ("DDR4", "tCS", "WR", "RD", A, OTHER, 12 + 4 + 2 - 16),
    ("DDR4", "tRRD_S", "ACT", "ACT", A, C, 4),
    ("DDR4", "tRRD_L", "ACT", "ACT", A, B, 6),
    ("DDR4", "tFAW", "ACT", "ACT", A, (0, 2, 3), 26),
    ("DDR4", "tRTP + tRP", "RDA", "ACT", A, A, 9 + 16),
    ("DDR4", "tWR + tRP", "WRA", "REFab", A, A, 12 + 4 + 18 + 16),
    ("DDR4", "tRFC", "REFab", "ACT", A, A, 433),
    ("DDR5", "tRCD", "ACT", "RD", A, A, 34),
    ("DDR5", "tRAS", "ACT", "PREpb", A, A, 77 + 1),
    ("DDR5", "tRC", "ACT", "REFab", A, A, 111 + 1),
    ("DDR5", "tRP", "PREpb", "ACT", A, A, 34 - 1),
    ("DDR5", "tRP", "PREab", "REFab", A, A, 34),
    ("DDR5", "tPPD", "PREpb", "PREpb", A, C, 2),
    ("DDR5", "tRTP", "RD", "PREpb", A, A, 18 + 1),
    ("DDR5", "tWR", "WR", "PREab", A, A, 32 + 8 + 72 + 1),
    ("DDR5", "tWTR_L", "WR", "RD", A, B, 32 + 8 + 24),
    ("DDR5", "tRTW", "RD", "WR", A, C, 34 + 8 + 2 - 32 + 2),
    ("DDR5", "tCCD_L", "RD", "RD", A, B, 12),
    ("DDR5", "tCCD_L_WR", "WR", "WR", A, B, 48),
    ("DDR5", "tCCD_S_WR", "WR", "WR", A, C, 8),
    ("DDR5", "tCS", "WR", "RD", A, OTHER, 32 + 8 + 2 - 34),
    ("DDR5", "tRRD_L", "ACT", "ACT", A, B, 12),
    ("DDR5", "tFAW", "ACT", "ACT", A, (0, 5, 3), 48),
    ("DDR5", "tRTP + tRP", "RDA", "ACT", A, A, 18 + 34),
    ("DDR5", "tRTP + tRP", "RDA", "REFab", A, A, 18 + 34 + 1),
    ("DDR5", "tRFC", "REFab", "ACT", A, A, 710 - 1),
    ("DDR5", "tRFCsb", "REFsb", "ACT", A, (0, 3, 2), 313 - 1),  # 130 ns, the same bank of another group
    ("DDR5", "tREFSBRD", "REFsb", "ACT", A, B, 73 - 1),  # 30 ns, another bank
    ("DDR5", "tRFCsb", "REFsb", "REFsb", A, B, 313),
]

#: Short timings, so that commands in the middle of a trace do not interfere.
GIVES_WAY = {"tFAW": {"nRRDS": 2}, "tRC": {"nRAS": 2, "nRP": 2}}


@pytest.mark.parametrize(("standard", "name", "before", "after", "here", "there", "distance"), BY_HAND)
def test_preset_distances_worked_out_by_hand(
    standard: str, name: str, before: str, after: str, here: Spot, there: Spot, distance: int
) -> None:
    device = preset(standard, **GIVES_WAY.get(name, {}))
    rule = next(
        rule
        for rule in device.standard.rules
        if rule.name == name and before in rule.previous and after in rule.next
    )
    assert verdict(pair(rule, before, after, distance, (here, there)), device).ok
    assert name in names(verdict(pair(rule, before, after, distance - 1, (here, there)), device))


# All rules at once, against the plainest reading of them: every earlier command, not only the last.


def related(rule: Rule, first: Line, second: Line) -> bool:
    same_rank = first[2] == second[2]
    if rule.siblings:
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
            after, worst = COMMANDS[later[1]].name, 0
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
def test_timing_check_equals_a_comparison_of_all_pairs(
    standard: str, steps: list[tuple[int, str, Spot]]
) -> None:
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


def test_two_cycle_command_holds_the_command_bus() -> None:
    device = preset("DDR5")
    for clock, legal in ((101, False), (102, True)):
        report = verdict([line(100, "ACT", (0, 0, 0)), line(clock, "PREpb", (1, 0, 0))], device)
        assert report.ok is legal
    report = verdict([line(100, "ACT", (0, 0, 0)), line(101, "PREpb", (1, 0, 0))], device)
    assert names(report) == {"command bus"}
    assert report.violations[0].shortfall == 1
    assert verdict([line(100, "PREpb", (0, 0, 0)), line(101, "ACT", (1, 0, 0))], device).ok
    assert verdict([line(100, "ACT", (0, 0, 0)), line(101, "PREpb", (1, 0, 0))], preset("DDR4")).ok


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


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
def test_data_of_read_and_write_may_not_meet(standard: str) -> None:
    """On one rank: the write's data start before, within and after those of the read."""
    device = preset(standard, nBL=8, nCL=40, nCWL=20)
    for apart, overlap in ((12, False), (13, True), (20, True), (27, True), (28, False)):
        lines = columns_after_acts(line(1000, "RD", (0, 0, 0)), line(1000 + apart, "WR", (0, 2, 0)))
        report = verdict(lines, device)
        assert ("data bus" in names(report)) is overlap
        assert report.tolerated_overlaps == 0
    message = (
        verdict(columns_after_acts(line(1000, "RD"), line(1013, "WR", (0, 2, 0))), device)
        .violations[0]
        .message
    )
    first = 1020 if standard == "DDR4" else 1021
    shift = 0 if standard == "DDR4" else 1
    assert f"its data at clocks {1033 + shift} to {1040 + shift}" in message
    assert f"at {first + 20} to " in message


def test_data_of_a_write_may_not_meet_a_read_on_another_rank() -> None:
    device = preset("DDR4", nBL=8, nCL=20, nCWL=20)
    for apart, overlap in ((7, True), (8, False)):
        lines = columns_after_acts(line(1000, "WR", (0, 0, 0)), line(1000 + apart, "RD", (1, 0, 0)))
        assert ("data bus" in names(verdict(lines, device))) is overlap


def test_overlap_that_the_rank_switch_rule_allows_is_counted_apart() -> None:
    """RD then WR on another rank, nBL + nCS apart: DDR4-3200 drives both bursts at once."""
    device = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA", 2)
    report = verdict(columns_after_acts(line(1000, "RD", (0, 0, 0)), line(1006, "WR", (1, 0, 0))), device)
    assert report.ok
    assert report.tolerated_overlaps == 1
    assert report.to_dict()["tolerated_overlaps"] == 1
    early = verdict(columns_after_acts(line(1000, "RD", (0, 0, 0)), line(1005, "WR", (1, 0, 0))), device)
    assert names(early) == {"tCS"}
    late = verdict(columns_after_acts(line(1000, "RD", (0, 0, 0)), line(1010, "WR", (1, 0, 0))), device)
    assert late.ok
    assert late.tolerated_overlaps == 0


def test_tolerated_overlap_hides_no_other() -> None:
    """The data of a write on another rank start between those of two reads that overlap."""
    device = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA", 2)
    reads = line(1000, "RD", (0, 0, 0)), line(1003, "RD", (0, 1, 0))
    report = verdict(columns_after_acts(*reads, line(1008, "WR", (1, 0, 0))), device)
    assert report.tolerated_overlaps == 2
    assert [v.index for v in report.violations if v.rule == "data bus"] == [4]


# Rows.

ROW_CASES = [
    ("ACT to an open bank", ["ACT 1", "ACT 2"], 1),
    ("ACT after PREpb", ["ACT 1", "PREpb", "ACT 2"], None),
    ("ACT after PREab", ["ACT 1", "PREab", "ACT 2"], None),
    ("ACT after RDA", ["ACT 1", "RDA 1", "ACT 2"], None),
    ("ACT after WRA", ["ACT 1", "WRA 1", "ACT 2"], None),
    ("RD to a bank never opened", ["RD 1"], 0),
    ("WR to a bank never opened", ["WR 1"], 0),
    ("RD to the open row", ["ACT 1", "RD 1"], None),
    ("RD to another row", ["ACT 1", "RD 2"], 1),
    ("WR to another row", ["ACT 1", "WR 2"], 1),
    ("RDA to another row", ["ACT 1", "RDA 2"], 1),
    ("WRA to another row", ["ACT 1", "WRA 2"], 1),
    ("RD after RDA", ["ACT 1", "RDA 1", "RD 1"], 2),
    ("RD after WRA", ["ACT 1", "WRA 1", "RD 1"], 2),
    ("WR after PREpb", ["ACT 1", "PREpb", "WR 1"], 2),
    ("WR after PREab", ["ACT 1", "PREab", "WR 1"], 2),
    ("PREpb of a closed bank", ["PREpb", "PREpb"], None),
    ("REFab with a row open", ["ACT 1", "REFab"], 1),
    ("REFab after PREab", ["ACT 1", "PREab", "REFab"], None),
    ("REFab after PREpb", ["ACT 1", "PREpb", "REFab"], None),
    ("REFab after RDA", ["ACT 1", "RDA 1", "REFab"], None),
]


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
@pytest.mark.parametrize(
    ("steps", "faulty"), [case[1:] for case in ROW_CASES], ids=[case[0] for case in ROW_CASES]
)
def test_row_state(standard: str, steps: list[str], faulty: int | None) -> None:
    lines = []
    for place, step in enumerate(steps):
        name, *row = step.split()
        lines.append(line(2000 * (place + 1), name, (0, 3, 1), row=int(*row) if row else -1))
    report = verdict(lines, preset(standard))
    assert [(v.index, v.rule) for v in report.violations] == (
        [] if faulty is None else [(faulty, "row state")]
    )


def test_row_state_is_kept_by_bank_and_rank() -> None:
    device = preset("DDR4")
    lines = [line(1000, "ACT", (0, 0, 1)), line(2000, "RD", (0, 1, 0))]
    assert names(verdict(lines, device)) == {"row state"}
    open_elsewhere = [line(1000, "ACT", (1, 0, 0)), line(2000, "REFab", (0, 0, 0))]
    assert verdict(open_elsewhere, device).ok
    last_bank = [line(1000, "ACT", (0, 3, 3)), line(2000, "REFab", (0, 0, 0))]
    assert "bankgroup 3 bank 3 has row 7 open since ACT at clock 1000 (line 2)" in (
        verdict(last_bank, device).violations[0].message
    )
    assert names(
        verdict([line(1000, "ACT"), line(2000, "PREab", (1, 0, 0)), line(3000, "REFab")], device)
    ) == {"row state"}


# Refresh.

SLOW_REFRESH = {"nREFI": 1000, "nRFC": 10, "nRP": 1}


def debt(lines: list[Line], ranks: int = 1, **options: int) -> Report:
    return verdict(lines, preset("DDR4", ranks, **SLOW_REFRESH), refresh="all-bank", **options)


@pytest.mark.parametrize("max_postponed", [0, 4, 8])
def test_refresh_may_be_postponed_so_far(max_postponed: int) -> None:
    """With n postponed, the first REFab falls due n + 1 intervals after the start."""
    limit = (max_postponed + 1) * 1000
    assert debt([line(limit, "REFab")], max_postponed=max_postponed).ok
    late = debt([line(limit + 1, "REFab")], max_postponed=max_postponed)
    assert [(v.rule, v.shortfall) for v in late.violations] == [("refresh debt", 1)]
    assert verdict([line(limit + 1, "REFab")], preset("DDR4", 1, **SLOW_REFRESH), refresh="none").ok


def test_every_interval_asks_for_its_own_refresh() -> None:
    on_time = [line(1000 * n, "REFab") for n in range(1, 20)]
    assert debt(on_time, max_postponed=0).ok
    assert names(debt([one for one in on_time if one[0] != 7000], max_postponed=0)) == {"refresh debt"}
    assert debt([one for one in on_time if one[0] != 7000], max_postponed=1).ok


def test_refresh_owed_at_the_end_is_found() -> None:
    assert debt([line(4999, "PREpb")], max_postponed=4).ok
    owed = debt([line(10, "PREpb"), line(5000, "PREpb")], max_postponed=4)
    assert [(v.index, v.rule, v.shortfall) for v in owed.violations] == [(1, "refresh debt", 1)]
    assert "rank 0 is 5 intervals of 1000 clocks behind, 4 may be postponed" in owed.violations[0].message


def test_same_bank_refresh_needs_the_bank_closed_in_every_group() -> None:
    device = preset("DDR5")
    closed = [line(100, "ACT", (0, 5, 2)), line(300, "REFsb", (0, 0, 1))]
    assert verdict(closed, device).ok
    open_elsewhere = [line(100, "ACT", (0, 5, 2)), line(300, "REFsb", (0, 0, 2))]
    assert names(verdict(open_elsewhere, device)) == {"row state"}
    precharged = [open_elsewhere[0], line(250, "PREsb", (0, 0, 2)), line(300, "REFsb", (0, 0, 2))]
    assert verdict(precharged, device).ok


def test_every_bank_is_owed_its_same_bank_refresh() -> None:
    device = preset("DDR5", 1, nREFI=1000, nRFCsb=20)
    every = [line(250 * n, "REFsb", (0, 0, (n - 1) % 4)) for n in range(1, 41)]
    assert check(trace_of(every), device, "same-bank", max_postponed=0).ok
    without = [one for one in every if one[0] != 2500]
    report = check(trace_of(without), device, "same-bank", max_postponed=0)
    assert names(report) == {"refresh debt"}
    assert "rank 0 bank 1 is" in report.violations[0].message


@pytest.mark.parametrize(("standard", "owed"), [("DDR4", 8), ("DDR5", 4)])  # JESD79-4, JESD79-5: refresh
def test_a_standard_says_how_many_refreshes_may_be_owed(standard: str, owed: int) -> None:
    device = preset(standard, 1, **SLOW_REFRESH)
    assert check(trace_of([line(1000 * (owed + 1) - 1, "PREpb")]), device).ok
    assert not check(trace_of([line(1000 * (owed + 1), "PREpb")]), device).ok


def test_every_rank_is_owed_its_refresh() -> None:
    report = debt([line(1000 * n, "REFab", (1, 0, 0)) for n in range(1, 7)], ranks=2, max_postponed=4)
    assert [v.rule for v in report.violations] == ["refresh debt"]
    assert "rank 0 is 6 intervals" in report.violations[0].message
    assert "there was none" in report.violations[0].message


def test_refresh_may_be_pulled_in_so_far() -> None:
    eight = [line(100 * n, "REFab") for n in range(1, 9)]
    assert debt(eight).ok
    assert debt([*eight, line(1000, "REFab")]).ok
    early = debt([*eight, line(999, "REFab")])
    assert [(v.index, v.rule, v.shortfall) for v in early.violations] == [(8, "refresh ahead", 1)]
    assert names(debt(eight, max_pulled_in=7)) == {"refresh ahead"}


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


def test_all_are_counted_and_the_first_described() -> None:
    lines = [line(1000 * (n + 1), "RD") for n in range(50)]
    report = verdict(lines, preset("DDR4"), limit=3)
    assert (report.commands, report.count, report.ok) == (50, 50, False)
    assert [v.index for v in report.violations] == [0, 1, 2]
    assert verdict(lines, preset("DDR4"), limit=0).count == 50


def test_an_empty_trace_is_legal() -> None:
    report = verdict([], preset("DDR4"))
    assert report.ok
    assert report.commands == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"refresh": "all-banks"}, "unknown-name refresh ? all-bank"),
        ({"limit": -1}, "range limit"),
        ({"max_postponed": 1.5}, "type max_postponed"),
    ],
)
def test_bad_options(options: dict[str, Any], words: str) -> None:
    with refused(words):
        check(trace_of([]), preset("DDR4"), **options)


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


def test_lanes_merge_counts_in_order() -> None:
    lines = [changed(line(1000 * (n + 1), "RD"), rank=n % 3) for n in range(30)]
    report = check_lanes(trace_of(lines), preset("DDR4", 1), 2, refresh="none", limit=4)
    assert report.count == 30  # ten in a lane that does not exist, twenty to closed banks
    assert [(v.index, v.rule) for v in report.violations] == [
        (0, "row state"),
        (1, "row state"),
        (2, "coordinates"),
        (3, "row state"),
    ]
    assert "RD at clock 3000: coordinates: lane 2 is not within 0 to 1" in report.violations[2].message


def test_every_lane_is_owed_its_refresh() -> None:
    device = preset("DDR4", 1, **SLOW_REFRESH)
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
    (GOOD.replace(",32", ",1e3").encode(), "type commands.csv:3 column"),
    (GOOD.replace(",32", ", 32").encode(), "type commands.csv:3 column"),
    (GOOD.replace(",32", ",+32").encode(), "type commands.csv:3 column"),
    (GOOD.replace(",32", ",nan").encode(), "type commands.csv:3 column"),
    (GOOD.replace(",32", ",0x20").encode(), "type commands.csv:3 column"),
    (GOOD.replace(",32", ",3_2").encode(), "type commands.csv:3 column"),
    (GOOD.replace(",32", ",32\0").encode(), "type commands.csv:3 column"),
    (GOOD.replace(",32", ",\u0663").encode(), "form commands.csv:3"),
    (GOOD.replace("\n37", "\n# c\n37").encode(), "form commands.csv:3"),
    (GOOD.replace("RD", "rd").encode(), "unknown-name commands.csv:3 command ? RD"),
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


def test_missing_file_and_directory(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (tmp_path / "none.csv", folder):
        with refused(f"unreadable {path.name}"):
            read_commands(path)
    for path in (tmp_path / "none" / "x.csv", folder):
        with refused("unwritable"):
            write_commands(path, trace_of([]))
    assert list(tmp_path.rglob("*")) == [folder]


NUMBERS = st.integers(-(10**18) + 1, 10**18 - 1)


@settings(max_examples=50, deadline=None)
@given(
    lines=st.lists(st.tuples(NUMBERS, st.integers(0, len(COMMANDS) - 1), *[NUMBERS] * 5), max_size=20),
    suffix=st.sampled_from([".csv", ".csv.gz"]),
)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Line], suffix: str
) -> None:
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


def test_a_device_is_written_in_place(tmp_path: Path) -> None:
    path = tmp_path / "commands.csv"
    path.symlink_to(os.devnull)
    write_commands(path, trace_of([line(1, "ACT")]))
    assert path.is_symlink()


def test_the_checker_reads_the_rules_itself() -> None:
    allowed = {
        "ndpsim.audit",
        "ndpsim.spec",
        "ndpsim.spec.checking",
        "ndpsim.spec.standard",
        "ndpsim.arguments",
        "ndpsim.errors",
        "ndpsim.files",
        "ndpsim.reported",
        "ndpsim.units",
        "ndpsim._jit",
        "ndpsim.plugins",
        "ndpsim.parameters.check",
        "ndpsim.traces",
    }
    for path in Path(ndpsim.audit.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ndpsim"):
                module = node.module or ""
                assert module in allowed or module.startswith("ndpsim.audit.")
                assert not {"lower", "Tables"} & {alias.name for alias in node.names}


# Reference traces: our controller's, which `test_reference` holds to the sha256 of Ramulator's.

CASES = sorted(path.stem for path in REFERENCE.glob("*.yaml"))
CHANNEL = ("standard", "org", "timing", "ranks", "overrides", "mapper")
CONTROLLER = ("scheduler", "row_policy", "refresh", "read_buffer", "write_buffer")


@functools.cache
def golden(case: str) -> tuple[dict[str, Any], CommandTrace]:
    about = yaml.safe_load((REFERENCE / f"{case}.yaml").read_text())
    settings = {name: about[name] for name in (*CHANNEL, *CONTROLLER)}
    trace = run_trace(REFERENCE / f"{case}.trace.gz", **settings, record_commands=True).command_traces[0]
    return about, trace.take(np.flatnonzero(trace.clock <= about["cycles"]))


def golden_device(about: dict[str, Any], **overrides: int) -> Device:
    overrides = {**about["overrides"], **overrides}
    return resolve(about["standard"], about["org"], about["timing"], about["ranks"], overrides)


@pytest.mark.parametrize("case", CASES)
def test_reference_traces_are_legal(case: str) -> None:
    about, trace = golden(case)
    report = check(trace, golden_device(about), about["refresh"], max_postponed=1, max_pulled_in=0)
    assert report.commands == sum(about["commands"].values())
    assert report.ok, [violation.message for violation in report.violations]


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
def test_every_timing_is_held_against_the_reference_traces(standard: str) -> None:
    """One clock more of any timing and some reference trace breaks it: the checker looks at all of them."""
    unused = set(preset(standard).timings) - {"rate", "tCK_ps", "nREFI", "nRFCsb", "nREFSBRD"}
    for case in (case for case in CASES if case.startswith(standard.lower())):
        about, trace = golden(case)
        timings = golden_device(about).timings
        for name in sorted(unused):
            device = golden_device(about, **{name: timings[name] + 1})
            if not check(trace, device, about["refresh"], limit=0).ok:
                unused.remove(name)
    assert not unused


@pytest.mark.parametrize("name", ["nRFCsb", "nREFSBRD"])
def test_every_timing_is_held_against_a_trace_with_same_bank_refresh(name: str) -> None:
    device = preset("DDR5", 1)
    addresses = np.random.default_rng(5).integers(0, device.capacity_bytes // 64, 5000) * 64
    result = run_trace((addresses, np.zeros_like(addresses)), refresh="same-bank", record_commands=True)
    trace = result.command_traces[0]
    assert check(trace, device, "same-bank").ok
    assert not check(trace, preset("DDR5", 1, **{name: device.timings[name] + 1}), "same-bank").ok


@pytest.mark.parametrize("case", CASES)
def test_a_command_moved_earlier_is_found(case: str) -> None:
    """The first access that follows its ACT by tRCD exactly comes a clock earlier."""
    about, trace = golden(case)
    device = golden_device(about)
    columns, opened = trace.columns(), dict[Spot, int]()
    exact = []
    for index, (clock, command, rank, group, bank, *_) in enumerate(columns.T.tolist()):
        if command == NUMBER["ACT"]:
            opened[rank, group, bank] = clock
        elif COMMANDS[command].name in COLUMN:
            exact += [index] if clock == opened[rank, group, bank] + device.timings["nRCD"] else []
    index = exact[0]
    columns[0, index] -= 1
    report = check(CommandTrace.of(columns), device, about["refresh"])
    assert (index, "tRCD") in {(violation.index, violation.rule) for violation in report.violations}
