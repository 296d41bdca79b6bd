"""The checker against rules written here, without numbers or relations from the standards' data.

Clocks of DDR4-2400R (8 Gb x8; CL = RCD = RP 16, CWL 12, BL 4) and DDR5-4800AN (16 Gb x8; CL = RCD = RP 34,
CWL 32, BL 8), after JESD79-4 and JESD79-5; each distance is tried at its limit and a clock before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from builders.command_lines import COLUMN, NUMBER, SAME_BANK, WHOLE_RANK, Line, Spot, line, trace_of, verdict
from mistakes import refused
from ndpsim.audit import check, check_lanes
from ndpsim.dram.spec import Device, lower, resolve
from ndpsim.dram.spec import Rule as SpecRule
from ndpsim.dram.spec.lower import BUSY

R, W = ("RD", "RDA"), ("WR", "WRA")
PRECHARGES = ("PREpb", "PREab", "PREsb")
DDR4_COMMANDS = ("ACT", "PREpb", "PREab", *COLUMN, "REFab")
DDR5_COMMANDS = (*DDR4_COMMANDS, "PREsb", "REFsb", "RFMab", "RFMsb")
TWO_CYCLES = {"DDR4": (), "DDR5": ("ACT", *COLUMN)}

DEVICES = {
    "DDR4": resolve("DDR4", "DDR4_8Gb_x8", "DDR4_2400R", 4),
    "DDR5": resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 4),
}


# Distances between two commands.


class Rule(NamedTuple):
    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    #: "other rank"; "rank": anywhere in the rank; "group": in the same bank group; "bank": in the same bank,
    #: where a same-bank command is in the banks of its number of all groups, PREab and REFab in every bank;
    #: "neighbour": in another bank of the group.
    where: str
    clocks: str  # from the last cycle of the one to the last cycle of the other


OF_BOTH = [
    Rule("BL", R, R, "anywhere", "BL"),
    Rule("BL", W, W, "anywhere", "BL"),
    Rule("tCS", R, R, "other rank", "BL + CS"),
    Rule("tRTW_DR", R, W, "other rank", "RTW_DR"),
    Rule("tCS", W, R, "other rank", "CWL + BL + CS - CL"),
    Rule("tWTW_DR", W, W, "other rank", "WTW_DR"),
    Rule("tCCD_S", R, R, "rank", "CCDS"),
    Rule("tWTR_S", W, R, "rank", "CWL + BL + WTRS"),
    Rule("tRRD_S", ("ACT",), ("ACT",), "rank", "RRDS"),
    Rule("tRRD_L", ("ACT",), ("ACT",), "group", "RRDL"),
    Rule("tRCD", ("ACT",), COLUMN, "bank", "RCD"),
    Rule("tRTP", R, ("PREab",), "rank", "RTP"),
    Rule("tWR", W, ("PREab",), "rank", "CWL + BL + WR"),
]
DDR4_RULES = [
    *OF_BOTH,
    Rule("tCCD_S", W, W, "rank", "CCDS"),
    Rule("tCCD_L", R, R, "group", "CCDL"),
    Rule("tCCD_L", W, W, "group", "CCDL"),
    Rule("tRTW", R, W, "rank", "CL + BL + 2 - CWL"),
    Rule("tWTR_L", W, R, "group", "CWL + BL + WTRL"),
    Rule("tRC", ("ACT",), ("ACT",), "bank", "RC"),
    Rule("tRC", ("ACT",), ("REFab",), "bank", "RC"),
    Rule("tRAS", ("ACT",), ("PREpb", "PREab"), "bank", "RAS"),
    Rule("tRTP", ("RD",), ("PREpb",), "bank", "RTP"),
    Rule("tWR", ("WR",), ("PREpb",), "bank", "CWL + BL + WR"),
    Rule("tRP", ("PREpb", "PREab"), ("ACT", "REFab"), "bank", "RP"),
    Rule("tRTP + tRP", ("RDA",), ("ACT", "REFab"), "bank", "RTP + RP"),
    Rule("tWR + tRP", ("WRA",), ("ACT", "REFab"), "bank", "CWL + BL + WR + RP"),
    Rule("tRFC", ("REFab",), ("ACT", "PREpb", "PREab", "REFab"), "rank", "RFC"),
]
# Refresh and refresh management: of the whole rank, and of a bank of every group.
WHOLE, ONE_EACH = ("REFab", "RFMab"), ("REFsb", "RFMsb")
REFRESHES = WHOLE + ONE_EACH
DDR5_RULES = [
    *OF_BOTH,
    Rule("tCCD_S_WR", W, W, "rank", "CCDS_WR"),
    Rule("tCCD_L", R, R, "bank", "CCDL"),
    Rule("tCCD_L_WR", W, W, "bank", "CCDL_WR"),
    Rule("tCCD_M", R, R, "neighbour", "CCDM"),
    Rule("tCCD_M_WR", W, W, "neighbour", "CCDM_WR"),
    Rule("tRTW", R, W, "rank", "RTW"),
    Rule("tWTR_L", W, R, "bank", "CWL + BL + WTRL"),
    Rule("tWTR_M", W, R, "neighbour", "CWL + BL + WTRM"),
    Rule("tRRD_L", ("ACT",), ONE_EACH, "rank", "RRDL"),
    Rule("tRC", ("ACT",), ("ACT", *REFRESHES), "bank", "RC"),
    Rule("tRAS", ("ACT",), PRECHARGES, "bank", "RAS"),
    Rule("tRTP", ("RD",), ("PREpb", "PREsb"), "bank", "RTP"),
    Rule("tWR", ("WR",), ("PREpb", "PREsb"), "bank", "CWL + BL + WR"),
    Rule("tRP", PRECHARGES, ("ACT", *REFRESHES), "bank", "RP"),
    Rule("tRTP + tRP", ("RDA",), ("ACT", *REFRESHES), "bank", "RTP + RP"),
    Rule("tWR + tRP", ("WRA",), ("ACT", *REFRESHES), "bank", "CWL + BL + WR + RP"),
    Rule("tPPD", PRECHARGES, PRECHARGES, "rank", "PPD"),
    Rule("tRFC", ("REFab",), ("ACT", *PRECHARGES, *REFRESHES), "rank", "RFC"),
    Rule("tRFM", ("RFMab",), ("ACT", *PRECHARGES, *REFRESHES), "rank", "RFM"),
    Rule("tRFCsb", ("REFsb",), (*REFRESHES, "PREab"), "rank", "RFCsb"),
    Rule("tRFCsb", ("REFsb",), ("ACT", "PREpb", "PREsb"), "bank", "RFCsb"),
    Rule("tRFMsb", ("RFMsb",), (*REFRESHES, "PREab"), "rank", "RFMsb"),
    Rule("tRFMsb", ("RFMsb",), ("ACT", "PREpb", "PREsb"), "bank", "RFMsb"),
    Rule("tREFSBRD", ONE_EACH, ("ACT",), "rank", "REFSBRD"),
]
#: Clocks of the devices.
PRESET = {
    "DDR4": dict(
        BL=4, CL=16, CWL=12, CS=2, CCDS=4, CCDL=6, WTRS=3, WTRL=9, RRDS=4, RRDL=6, RCD=16, RP=16, RAS=39, RC=55, RTP=9,
        WR=18, RFC=421,
        RTW_DR=4 + 4 + 2 + 1,  # CL - CWL, the burst, nCS and a write preamble
        WTW_DR=4 + 2,
    ),
    "DDR5": dict(
        BL=8, CL=34, CWL=32, CS=2, CCDS=8, CCDS_WR=8, CCDL=12, CCDL_WR=24, WTRS=6, WTRL=24, RRDS=8, RRDL=12, RCD=34, RP=34,
        RAS=77, RC=111, RTP=18, WR=72, PPD=2, RFC=708, RFCsb=312, REFSBRD=72, RFM=708, RFMsb=312, CCDM=12, CCDM_WR=24, WTRM=24,
        RTW=2 + 8 + 2 + 2,  # CL - CWL, the burst, 2 clocks and a write preamble of 2
        RTW_DR=2 + 8 + 2 + 2, WTW_DR=8 + 2,
    ),
}  # fmt: skip
#: Clocks of which no two are equal, so that no timing can stand for another; the second lets every burst bind.
DISTINCT = dict(
    BL=9, CL=23, CWL=14, CS=3, CCDS=11, CCDS_WR=10, CCDL=17, CCDL_WR=41, WTRS=5, WTRL=12, RRDS=6, RRDL=13, RCD=29, RP=31,
    RAS=59, RC=97, RTP=19, WR=37, PPD=4, RFC=211, RFCsb=151, REFSBRD=43, RFM=223, RFMsb=161, CCDM=16, CCDM_WR=39, WTRM=8,
    RTW=21, RTW_DR=22, WTW_DR=15,
)  # fmt: skip
#: Also banks of a group farther apart than accesses to one bank.
OTHER_CLOCKS = {
    "as it is": {},
    "distinct": DISTINCT,
    "long bursts": DISTINCT | {"BL": 15, "CCDM": 18, "CCDM_WR": 47, "WTRM": 14},
}
RULES = {"DDR4": DDR4_RULES, "DDR5": DDR5_RULES}
NAMES = {"DDR4": DDR4_COMMANDS, "DDR5": DDR5_COMMANDS}


def applies(where: str, before: str, here: Spot, after: str, there: Spot) -> bool:
    if where == "anywhere":
        return True
    if where == "other rank":
        return here[0] != there[0]
    if here[0] != there[0]:
        return False
    if where == "rank" or {before, after} & set(WHOLE_RANK):
        return True
    if where == "group":
        return here[1] == there[1]
    if where == "neighbour":
        return here[1] == there[1] and here[2] != there[2]
    return here[2] == there[2] and (here[1] == there[1] or bool({before, after} & set(SAME_BANK)))


class Timed(NamedTuple):
    """A device, and what its rules ask for."""

    standard: str
    device: Device
    rules: list[tuple[Rule, int]]

    @classmethod
    def of(cls, standard: str, clocks: str) -> Timed:
        changed = {name: OTHER_CLOCKS[clocks][name] for name in PRESET[standard] if OTHER_CLOCKS[clocks]}
        device = DEVICES[standard]
        overrides = {f"n{name}": value for name, value in changed.items()}
        device = resolve(standard, device.org, device.timing, device.ranks, overrides)
        known = PRESET[standard] | changed
        return cls(standard, device, [(rule, eval(rule.clocks, {}, known)) for rule in RULES[standard]])


def needed(of: Timed, before: str, here: Spot, after: str, there: Spot) -> tuple[int, set[str]]:
    """The least distance between two commands, and the rules that require it; 0 without a rule."""
    two_cycles = TWO_CYCLES[of.standard]
    asked = [
        (clocks + (before in two_cycles) - (after in two_cycles), rule.name)
        for rule, clocks in of.rules
        if before in rule.before and after in rule.after and applies(rule.where, before, here, after, there)
    ]
    most = max((clocks for clocks, _ in asked), default=0)
    return most, {name for clocks, name in asked if clocks == most}


def spots_of(device: Device) -> list[Spot]:
    """First, middle and last bank of first, middle and last group, on the first and the last rank."""
    groups, banks = device.bankgroups, device.banks_per_group
    places = itertools.product((0, groups // 2, groups - 1), (0, 1, banks - 1))
    return [(rank, group, bank) for group, bank in places for rank in (0, device.ranks - 1)]


APART = 4000  # clocks, more than any rule requires
MANY = 100_000  # violations, more than any trace has here


def pairs(standard: str) -> Iterator[tuple[str, Spot, str, Spot]]:
    """Every two commands, the earlier in one of some banks, the later at every spot."""
    spots = spots_of(DEVICES[standard])
    groups, banks = DEVICES[standard].bankgroups, DEVICES[standard].banks_per_group
    earlier = [(0, 0, 0), (0, groups // 2, 1), (3, groups - 1, banks - 1), (0, groups - 1, 0)]
    for before, after in itertools.product(NAMES[standard], repeat=2):
        for here in earlier:
            seen = set()
            for there in spots:
                # A spot that says nothing new of a command without bank or group is left out.
                key = line(0, after, there)
                if key not in seen:
                    seen.add(key)
                    yield before, here, after, there


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
@pytest.mark.parametrize("clocks", OTHER_CLOCKS)
def test_any_two_commands_anywhere_are_held_apart_so_far_and_no_farther(standard: str, clocks: str) -> None:
    of = Timed.of(standard, clocks)
    device = of.device
    exact, early, expected = [], [], {}
    for number, (before, here, after, there) in enumerate(pairs(standard)):
        distance, names = needed(of, before, here, after, there)
        start, least = APART * (number + 1), 2 if before in TWO_CYCLES[standard] else 1
        exact += [line(start, before, here), line(start + max(distance, least), after, there)]
        if distance > least:  # otherwise the command bus alone keeps them apart
            early += [line(start, before, here), line(start + distance - 1, after, there)]
            expected[len(early) - 1] = names
    aside = {"row state", "data bus"}  # of which other tests are
    legal = [v.message for v in verdict(exact, device, limit=MANY).violations if v.rule not in aside]
    assert not legal, legal[:3]
    found: dict[int, set[str]] = {}
    for violation in verdict(early, device, limit=MANY).violations:
        if violation.rule not in aside:
            assert violation.shortfall == 1, violation.message
            found.setdefault(violation.index, set()).add(violation.rule)
    assert found == expected
    assert len(expected) > 1000


# Four activates in a window.


@pytest.mark.parametrize(("standard", "window", "apart"), [("DDR4", 26, 6), ("DDR5", 40, 8)])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_the_fifth_activate_waits_for_the_first_of_its_rank(standard, window, apart, rank):
    # tFAW of x8 devices of DDR5 is four times tRRD_S, which would bind, too.
    device = resolve("DDR5", "DDR5_16Gb_x16", "DDR5_4800AN", 4) if standard == "DDR5" else DEVICES[standard]
    four = [line(1000 + apart * n, "ACT", (rank, n, n)) for n in range(4)]
    for short, early in ((0, False), (1, True)):
        report = verdict([*four, line(1000 + window - short, "ACT", (rank, 0, 3))], device)
        assert {v.rule for v in report.violations} == ({"tFAW"} if early else set())
        other = verdict([*four, line(1000 + window - short, "ACT", ((rank + 1) % 4, 0, 3))], device)
        assert other.ok
    # The window slides: the sixth counts from the second.
    fifth = line(1000 + window, "ACT", (rank, 0, 3))
    for short, early in ((0, False), (1, True)):
        sixth = line(1000 + apart + window - short, "ACT", (rank, 1, 3))
        assert verdict([*four, fifth, sixth], device).ok is not early


# The state of rows.


def closed_by(name: str, at: Spot, bank: Spot) -> bool:
    """Whether a command at `at` closes the row of `bank`."""
    if name in ("PREpb", "RDA", "WRA"):
        return at == bank
    if name == "PREab":
        return at[0] == bank[0]
    return name == "PREsb" and (at[0], at[2]) == (bank[0], bank[2])


def wrong(name: str, at: Spot, row: int, opened: dict[Spot, int], device: Device) -> bool:
    """Whether a command is illegal while the banks `opened` have these rows open."""
    if name == "ACT":
        return at in opened
    if name in COLUMN:
        return opened.get(at) != row
    if name in ("REFab", "RFMab"):
        return any(bank[0] == at[0] for bank in opened)
    if name in ("REFsb", "RFMsb"):
        return any((bank[0], bank[2]) == (at[0], at[2]) for bank in opened)
    return False


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
def test_every_command_in_every_state_of_every_bank(standard: str) -> None:
    """A row is opened, or opened and closed; a command comes; then it is tried whether the row is open."""
    device = DEVICES[standard]
    lines: list[Line] = []
    faulty: set[int] = set()
    opened: dict[Spot, int] = {}

    def issue(name: str, at: Spot, row: int = 7) -> None:
        if wrong(name, at, row, opened, device):
            faulty.add(len(lines))
        lines.append(line(APART * (len(lines) + 1), name, at, row))
        if name == "ACT":
            opened[at] = row
        for bank in [bank for bank in opened if closed_by(name, at, bank)]:
            del opened[bank]

    def clear() -> None:
        for rank in range(device.ranks):
            issue("PREab", (rank, 0, 0))

    spots = spots_of(device)
    for name in (name for name in NAMES[standard] if not name.startswith("RFM")):
        for here, there in itertools.product(spots, repeat=2):
            issue("ACT", here)
            issue(name, there)
            issue("RD", here)
            clear()
        for there in spots:  # another row is open; it was closed in one of several ways; it was never open
            issue("ACT", there, 8)
            issue(name, there, 7)
            clear()
            for closing in ("PREpb", "RDA", "WRA"):
                issue("ACT", there)
                issue(closing, there)
                issue(name, there)
                clear()
    report = verdict(lines, device, limit=MANY)
    assert {v.index for v in report.violations if v.rule == "row state"} == faulty
    assert not [v.message for v in report.violations if v.rule != "row state"]
    assert len(faulty) > 1000


def test_a_command_at_fault_counts_once_however_many_banks_are_open() -> None:
    device = DEVICES["DDR5"]
    lines = [line(1000 + 200 * n, "ACT", (1, n, 2)) for n in range(8)]
    assert verdict([*lines, line(9000, "REFab", (1, 0, 0))], device).count == 1
    (violation,) = verdict([*lines, line(9000, "REFsb", (1, 0, 2))], device).violations
    assert "bankgroup 0 bank 2 has row 7 open since ACT at clock 1000 (line 2)" in violation.message


def test_what_a_row_fault_says() -> None:
    device = DEVICES["DDR4"]
    spot = (2, 3, 1)

    def message(*lines: Line) -> str:
        return verdict(lines, device).violations[0].message

    never = message(line(1000, "RD", spot))
    assert never.endswith(
        "RD rank 2 bankgroup 3 bank 1 row 7 column 3 at clock 1000: row state: bankgroup 3 bank 1 was never opened"
    )
    other = message(line(1000, "ACT", spot, 9), line(2000, "WR", spot))
    assert other.endswith("row state: bankgroup 3 bank 1 has row 9 open since ACT at clock 1000 (line 2)")
    closed = message(line(1000, "ACT", spot), line(2000, "PREab", spot), line(3000, "WRA", spot))
    assert closed.endswith("row state: bankgroup 3 bank 1 was closed by PREab at clock 2000 (line 3)")


# Buses.


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
def test_any_two_commands_share_the_command_bus(standard: str) -> None:
    lines, expected = [], {}
    for number, (before, after, distance) in enumerate(
        itertools.product(*[NAMES[standard]] * 2, range(3)), 1
    ):
        cycles = 2 if before in TWO_CYCLES[standard] else 1
        start = APART * number
        lines += [line(start, before, (0, 0, 0)), line(start + distance, after, (3, 1, 1))]
        if distance < cycles:
            rule = "clock order" if distance == 0 else "command bus"
            expected[len(lines) - 1] = rule, cycles - distance
    report = verdict(lines, DEVICES[standard], limit=MANY)
    held = [v for v in report.violations if v.rule in ("command bus", "clock order")]
    assert {v.index: (v.rule, v.shortfall) for v in held} == expected


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
def test_any_two_bursts_share_the_data_bus(standard: str) -> None:
    """A burst of BL/2 clocks starts CL or CWL after its command; a read may meet a later write elsewhere."""
    length, latency = (4, {"R": 16, "W": 12}) if standard == "DDR4" else (8, {"R": 34, "W": 32})
    lines, expected, tolerated = [], {}, 0
    every = itertools.product(COLUMN, COLUMN, (0, 3), range(1, 30))
    for number, (before, after, rank, distance) in enumerate(every, 1):
        start = APART * number
        lines += [line(start, before, (0, 0, 0)), line(start + distance, after, (rank, 1, 0))]
        shift = distance + latency[after[0]] - latency[before[0]]
        if abs(shift) >= length:
            continue
        if (before[0], after[0], rank) == ("R", "W", 3):
            tolerated += 1
        else:
            expected[len(lines) - 1] = length - shift
    report = verdict(lines, DEVICES[standard], limit=MANY)
    assert {v.index: v.shortfall for v in report.violations if v.rule == "data bus"} == expected
    assert report.tolerated_overlaps == tolerated > 0


# Refreshes that are owed.

INTERVAL = 1000
SLOW = {"nREFI": INTERVAL, "nRFC": 10, "nRP": 1, "nRAS": 1, "nRC": 1}


def slow(standard: str, ranks: int) -> Device:
    more = {"nREFI2": INTERVAL, "nRFCsb": 10, "nPPD": 1} if standard == "DDR5" else {}
    org, timing = (DEVICES[standard].org, DEVICES[standard].timing)
    return resolve(standard, org, timing, ranks, SLOW | more)


def refreshing(mode: str, ranks: int, clocks: Iterable[int]) -> list[Line]:
    """A refresh of every rank and, bank by bank, of every bank number, beginning at each of `clocks`."""
    name, banks = ("REFsb", 4) if mode == "same-bank" else ("REFab", 1)
    return [
        line(clock + 20 * rank + 100 * bank, name, (rank, 0, bank))
        for clock in clocks
        for bank in range(banks)
        for rank in range(ranks)
    ]


OWED = [
    ("DDR4", "all-bank"),
    ("DDR4", "staggered"),
    ("DDR5", "all-bank"),
    ("DDR5", "staggered"),
    ("DDR5", "same-bank"),
]


@pytest.mark.parametrize(("standard", "mode"), OWED)
@pytest.mark.parametrize("postponed", [0, 2, None])
def test_the_last_clock_at_which_a_refresh_is_in_time(standard, mode, postponed):
    """The n-th, from 0, by n + 1 intervals and those that may be postponed; whoever it is that is late."""
    ranks, device = 3, slow(standard, 3)
    most = {"DDR4": 8, "DDR5": 4}[standard] if postponed is None else postponed
    for late in (0, 1, 3):
        for rank, bank in itertools.product(range(ranks), range(4 if mode == "same-bank" else 1)):
            for over in (0, 1):
                lines = refreshing(mode, ranks, [INTERVAL * (n + 1) - 500 for n in range(late)])
                deadline = INTERVAL * (late + 1 + most)
                everyone = refreshing(mode, ranks, [deadline - 900])
                name = "REFsb" if mode == "same-bank" else "REFab"
                mine = line(deadline - 900 + 20 * rank + 100 * bank, name, (rank, 0, bank))
                lines += [one for one in everyone if one != mine]
                assert len(lines) == len(set(lines))
                lines.append(line(deadline + over, name, (rank, 0, bank)))
                lines.sort()
                report = verdict(lines, device, refresh=mode, max_postponed=postponed, max_pulled_in=100)
                rules = [(v.rule, v.shortfall, v.index) for v in report.violations]
                assert rules == ([("refresh debt", 1, len(lines) - 1)] if over else [])
                if over:
                    who = f"rank {rank} bank {bank}" if mode == "same-bank" else f"rank {rank}"
                    words = f"1 clock too late, {who} is {most + 1} intervals of 1000 clocks behind, {most} may be"
                    assert words in report.violations[0].message


@pytest.mark.parametrize(("standard", "mode"), OWED)
@pytest.mark.parametrize("pulled_in", [0, 1, None])
def test_the_first_clock_at_which_a_refresh_is_not_too_early(standard, mode, pulled_in):
    """The n-th, from 0, comes n + 1 intervals after the start, less those that may be pulled in."""
    device = slow(standard, 2)
    most = {"DDR4": 8, "DDR5": 4}[standard] if pulled_in is None else pulled_in
    name, bank = ("REFsb", 3) if mode == "same-bank" else ("REFab", 0)
    for early in (0, 1):
        lines = [line(20 * n + 20, name, (1, 0, bank)) for n in range(most)]
        lines.append(line(INTERVAL - early, name, (1, 0, bank)))
        report = verdict(lines, device, refresh=mode, max_pulled_in=pulled_in)
        rules = [(v.rule, v.shortfall, v.index) for v in report.violations]
        assert rules == ([("refresh ahead", 1, most)] if early else [])
        if early:
            who = "rank 1 bank 3" if mode == "same-bank" else "rank 1"
            words = f"1 clock too early, {who} is more than {most} intervals of 1000 clocks ahead"
            assert words in report.violations[0].message


@pytest.mark.parametrize(("standard", "mode"), OWED)
def test_the_last_clock_before_a_refresh_that_never_comes_is_missed(standard: str, mode: str) -> None:
    device = slow(standard, 1)
    for refreshed in (0, 2):
        lines = refreshing(mode, 1, [INTERVAL * (n + 1) for n in range(refreshed)])
        limit = INTERVAL * (refreshed + 2)  # one may be postponed
        for end, owed in ((limit - 1, False), (limit, True)):
            report = verdict([*lines, line(end, "PREpb", (0, 0, 0))], device, refresh=mode, max_postponed=1)
            assert [v.rule for v in report.violations] == ["refresh debt"] * (
                owed * (4 if mode == "same-bank" else 1)
            )
            if owed:
                (last, *_) = report.violations
                assert (last.index, last.shortfall) == (len(lines), 1)
                since = "the last was REF" if refreshed else "there was none"
                assert f" is 2 intervals of 1000 clocks behind, 1 may be postponed; {since}" in last.message


def test_a_whole_refresh_counts_for_every_bank_and_a_bank_for_its_own_number_only() -> None:
    device = slow("DDR5", 2)
    whole = [line(1000 * n + 20 * rank, "REFab", (rank, 0, 0)) for n in range(1, 9) for rank in (0, 1)]
    assert verdict(whole, device, refresh="same-bank", max_postponed=1).ok
    # Half of the time by REFab, half of it by REFsb.
    mixed = [
        one for n in range(1, 9) for one in refreshing("same-bank" if n % 2 else "all-bank", 2, [1000 * n])
    ]
    assert verdict(mixed, device, refresh="same-bank", max_postponed=1).ok
    without = [one for one in mixed if not (one[0] > 4500 and one[2] == 1 and one[4] == 2)]
    owed = verdict(without, device, refresh="same-bank", max_postponed=1).violations
    assert owed
    assert all(v.rule == "refresh debt" and "rank 1 bank 2 is" in v.message for v in owed)
    # Four REFsb, one of each bank number, stand for a REFab, also where no option says that there are any.
    singly = refreshing("same-bank", 1, [1000 * n for n in range(1, 9)])
    bare: dict[str, Any] = {"refresh": "all-bank", "max_postponed": 1}
    assert verdict(singly, slow("DDR5", 1), **bare).ok
    owed = verdict([one for one in singly if one[4] != 3], slow("DDR5", 1), **bare).violations
    assert owed
    assert all(v.rule == "refresh debt" and "rank 0 bank 3 is" in v.message for v in owed)
    assert verdict(singly, slow("DDR5", 1), refresh="none").ok


def test_a_refresh_of_the_fine_granularity_mode_serves_for_half_as_long() -> None:
    """JESD79-5: REFsb exists in that mode only, in which each bank is owed one in tREFI2 = 1.95 us."""
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1)
    half = device.clocks("nREFI2")
    assert 2 * half == device.clocks("nREFI") == 9360

    def each(first: int, step: int, last: int) -> list[Line]:
        starts = range(first, last, step)
        return [line(n + 400 * bank, "REFsb", (0, 0, bank)) for n in starts for bank in range(4)]

    def bare(lines: list[Line], **options: Any) -> list[str]:
        return [v.message for v in verdict(lines, device, refresh="all-bank", **options).violations]

    assert bare(each(half, half, 100_000)) == []
    first = bare(each(half, 2 * half, 200_000))[0]
    assert "is 9 intervals of 4680 clocks behind, 8 may be postponed" in first
    # A REFab serves all banks for tREFI: half of the time by REFab, half of it by REFsb.
    strict = {"max_postponed": 1, "max_pulled_in": 0}
    mixed = [line(9360 * n, "REFab", (0, 0, 0)) for n in range(1, 11)]
    mixed += each(93_600 + half, half, 200_000)
    assert bare(mixed, **strict) == []
    without = bare([one for one in mixed if one[0] != 9360], **strict)
    assert "is 3 intervals of 4680 clocks behind, 2 may be postponed" in without[0]


def test_refreshes_of_one_rank_are_none_of_another() -> None:
    device = slow("DDR4", 3)
    lines = [line(1000 * n + 20 * rank, "REFab", (rank, 0, 0)) for n in range(1, 9) for rank in (0, 2)]
    report = verdict(lines, device, refresh="staggered", max_postponed=1)
    assert [v.message.partition("debt: ")[2].partition(" is")[0] for v in report.violations] == ["rank 1"]


# Lanes, and what is counted.


def test_a_lane_beyond_the_last_is_told_and_the_last_is_checked() -> None:
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1)
    lines = [line(1000, "RD", (rank, 0, 0)) for rank in (-1, 0, 3, 4)]
    trace = trace_of(lines)
    report = check_lanes(trace, device, 4, refresh="none")
    assert [(v.index, v.rule) for v in report.violations] == [
        (0, "coordinates"), (1, "row state"), (2, "row state"), (3, "coordinates")
    ]  # fmt: skip
    assert [v.message.rpartition(": ")[2] for v in report.violations[::3]] == [
        "lane -1 is not within 0 to 3",
        "lane 4 is not within 0 to 3",
    ]
    assert check_lanes(trace, device, 4, refresh="none", limit=2).count == 4
    assert len(check_lanes(trace, device, 4, refresh="none", limit=2).violations) == 2


def test_overlaps_that_are_let_pass_are_added_up_over_lanes() -> None:
    device = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA", 2)
    lines = [
        line(2000 * n + at, name, (rank, 0, 0))
        for n in range(1, 4)
        for at, name, rank in ((0, "RD", 0), (6, "WR", 1))
    ]
    assert verdict(lines, device).tolerated_overlaps == 3


def test_defaults_of_a_check() -> None:
    """All banks at once, the first twenty violations."""
    device = slow("DDR4", 1)
    trace = trace_of([line(1000 * n, "RD", (0, 0, 0)) for n in range(1, 31)])
    report = check(trace, device)
    assert len(report.violations) == 20
    assert report.count == 30 + 1  # a refresh is owed, too
    assert report.to_dict() == {
        "ok": False,
        "commands": 30,
        "count": 31,
        "tolerated_overlaps": 0,
        "violations": [vars(violation) for violation in report.violations],
    }


# The engine's tables; `test_timing_kit` has their distances.


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
def test_the_tables_of_the_engine_hold_the_sizes(standard: str) -> None:
    device, tables = DEVICES[standard], lower(DEVICES[standard])
    sizes = tables.ranks, tables.bankgroups, tables.banks_per_group
    assert sizes == (4, device.bankgroups, device.banks_per_group)
    busy = tables.commands[NUMBER["REFab"], BUSY]
    scalars = tables.read_latency, tables.burst, tables.refresh_interval, busy
    assert scalars == {"DDR4": (20, 4, 9360, 421), "DDR5": (42, 8, 9360, 708)}[standard]


def with_rule(rule: SpecRule) -> Device:
    device = DEVICES["DDR5"]
    return replace(device, standard=replace(device.standard, rules=(rule,)))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (("bankgroup", ("ACT", "REFsb"), ("ACT",), "nFAW", 4), "unsupported DDR5: rule x"),
        (("bank", ("REFsb",), ("RD",), "nFAW", 4), "unsupported DDR5: rule x"),
        (("sid", ("RD",), ("RD",), "nRC"), "unknown-name DDR5: rule x"),
        (("bank", ("RD",), ("REFpb",), "nRC"), "unknown-name DDR5: rule x ? REFsb"),
    ],
)
def test_a_rule_of_what_is_not_there_is_refused_by_engine_and_checker(rule, words):
    device = with_rule(SpecRule("x", *rule))
    for judge in (lower, lambda device: verdict([line(1, "ACT", (0, 0, 0))], device)):
        with refused(words):
            judge(device)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (("rank", ("ACT",), ("ACT",), "nFAW", 4, True), "unsupported DDR5: rule x"),
        (("channel", ("RD",), ("RD",), "nRC", 1, True), "unsupported DDR5: rule x"),
        (("bank", ("REFsb",), ("RD",), "nRC", 1, True), "unsupported DDR5: rule x"),
        (("bankgroup", ("REFsb",), ("RD",), "nRC"), "unsupported DDR5: rule x"),
        (("bank", ("RD",), ("PREab",), "nRC"), "unsupported DDR5: rule x"),
    ],
)  # fmt: skip
def test_a_rule_that_the_tables_cannot_hold_is_refused(rule: tuple[Any, ...], words: str) -> None:
    with refused(words):
        lower(with_rule(SpecRule("x", *rule)))


def test_the_ends_of_what_a_check_may_be_asked() -> None:
    one = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1)
    trace = trace_of([line(1000, "RD", (0, 0, 0)), line(3000, "RD", (1, 0, 0))])
    assert [v.rule for v in check_lanes(trace, one, 1, refresh="none").violations] == [
        "row state",
        "coordinates",
    ]
    for name in ("limit", "max_postponed", "max_pulled_in"):
        options: dict[str, Any] = {"refresh": "all-bank", name: 0}
        assert (
            check_lanes(trace, one, 2, **options).count == check(trace, DEVICES["DDR5"], **options).count == 2
        )
        assert check(trace, DEVICES["DDR5"], **{**options, name: 1_000_000}).count == 2
        for wrong_value in (-1, True, 1.0, 1_000_001):
            kind = "range" if type(wrong_value) is int else "type"
            with refused(f"{kind} {name}"):
                check(trace, one, **{name: wrong_value})
    with refused("unknown-name refresh ? all-bank"):
        check(trace, one, "all-banks")
    for lanes in (0, True, 1.0, 1_000_001):
        with refused(f"{'range' if type(lanes) is int else 'type'} lanes"):
            check_lanes(trace, one, lanes)  # type: ignore[arg-type]
