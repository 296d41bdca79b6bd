"""The checks: each looks through a trace for one sort of mistake, and says what it found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.audit.kernels import Rules, find_early, find_row_faults
from ndpsim.audit.report import Violation
from ndpsim.spec import COMMANDS, LEVELS, Device, Rule
from ndpsim.spec.standard import latency_terms
from ndpsim.traces import HEADER, CommandTrace

__all__ = ["CHECKS", "Case", "Finding", "Found", "case_of", "no_such_lane", "refresh_debt", "violation"]

_COORDINATES = HEADER[2:]
_NUMBER = {command.name: number for number, command in enumerate(COMMANDS)}


def _flags(values: Iterable[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


_OPENS = _flags([c.opens for c in COMMANDS])
_CLOSES = _flags([c.closes for c in COMMANDS])
_READS = _flags([c.reads for c in COMMANDS])
_WRITES = _flags([c.writes for c in COMMANDS])
_REFRESHES = _flags([c.refreshes for c in COMMANDS])
_RANK_WIDE = _flags([c.scope == "rank" for c in COMMANDS])
_ONE_BANK = _flags([c.scope == "bank" for c in COMMANDS])
_SAME_BANK = _flags([c.scope == "same-bank" for c in COMMANDS])
_COLUMN = _READS | _WRITES
#: By command and coordinate: whether the command addresses it.
_ADDRESSED = (
    np.stack([np.ones_like(_OPENS), _ONE_BANK, 1 - _RANK_WIDE, _OPENS | _COLUMN, _COLUMN], axis=1) == 1
)


class Finding(NamedTuple):
    """A violation, short of the command's own words."""

    place: int  # of the command in the trace of the case
    rule: str
    shortfall: int
    detail: str


@dataclass(frozen=True)
class Found:
    """All that one check found: how many, the first of them in the order of the trace, what it let pass."""

    count: int
    first: list[Finding]
    tolerated: int = 0


@dataclass(frozen=True)
class Case:
    """A trace against a device."""

    trace: CommandTrace
    device: Device
    limit: int
    index: NDArray[np.int64]  # of each command in the trace as a whole, of which this may be a lane
    lane: int | None
    cycles: NDArray[np.int64]  # by command: clocks on the command bus
    usable: NDArray[np.int64]  # the commands whose bank (or rank) exists
    part: CommandTrace  # those commands

    def at(self, place: int) -> str:
        """An earlier command in words: what, when, on which line."""
        return f"{_name(self.trace, place)} at clock {self.trace.clock[place]} (line {self.index[place] + 2})"

    def origin(self, place: int) -> int:
        """The place in the trace of the usable command at `place`."""
        return int(self.usable[place])

    def rank_name(self, rank: int) -> str:
        """What the user calls this rank."""
        return f"rank {rank}" if self.lane is None else f"lane {self.lane}"


def _name(trace: CommandTrace, place: int) -> str:
    kind = int(trace.command[place])
    return COMMANDS[kind].name if 0 <= kind < len(COMMANDS) else f"command number {kind}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _early(shortfall: int) -> str:
    return f"{_count(shortfall, 'clock')} too early"


# What a trace says, before what it means.


def _wrong_coordinates(trace: CommandTrace, device: Device) -> NDArray[np.bool_]:
    """By coordinate and command: whether the coordinate is out of range or should be -1."""
    sizes = (device.ranks, device.bankgroups, device.banks_per_group, device.rows, device.bursts_per_row)
    values = trace.columns()[2:]
    known = (trace.command >= 0) & (trace.command < len(COMMANDS))
    addressed = _ADDRESSED[np.where(known, trace.command, 0)].T
    out_of_range = (values < 0) | (values >= np.array(sizes)[:, None])
    return np.where(addressed, out_of_range, values != -1) & known


def case_of(
    trace: CommandTrace, device: Device, limit: int, index: NDArray[np.int64], lane: int | None = None
) -> Case:
    """`trace` against `device`, describing `limit` violations of each sort.

    `index`: the place of each command in the whole trace. `lane`: what its rank 0 is called, if not that.
    """
    known = (trace.command >= 0) & (trace.command < len(COMMANDS))
    usable = np.flatnonzero(known & ~_wrong_coordinates(trace, device)[:3].any(axis=0))
    cycles = _flags([device.standard.command_cycles.get(command.name, 1) for command in COMMANDS])
    return Case(trace, device, limit, index, lane, cycles, usable, trace.take(usable))


def _unknown_commands(case: Case) -> Found:
    """Numbers that are no command's, and commands that the standard does not have."""
    standard, kinds = case.device.standard, case.trace.command
    known = (kinds >= 0) & (kinds < len(COMMANDS))
    has = np.array([command.name in standard.commands for command in COMMANDS])
    places = np.flatnonzero(~known | ~has[np.where(known, kinds, 0)])
    first = []
    for place in places[: case.limit].tolist():
        detail = f"{standard.name} has no such command"
        if not known[place]:
            detail = f"numbers go from 0 to {len(COMMANDS) - 1}"
        first.append(Finding(place, "command", 0, detail))
    return Found(len(places), first)


def _coordinates(case: Case) -> Found:
    device = case.device
    sizes = (device.ranks, device.bankgroups, device.banks_per_group, device.rows, device.bursts_per_row)
    found = np.argwhere(_wrong_coordinates(case.trace, device).T)
    first = []
    for index, coordinate in found[: case.limit].tolist():
        name, kind = _COORDINATES[coordinate], int(case.trace.command[index])
        value = getattr(case.trace, name)[index]
        if _ADDRESSED[kind, coordinate]:
            detail = f"{name} {value} is not within 0 to {sizes[coordinate] - 1}"
        else:
            detail = f"{name} is {value}, but {COMMANDS[kind].name} addresses none (-1)"
        first.append(Finding(index, "coordinates", 0, detail))
    return Found(len(found), first)


# Buses.


def _command_bus(case: Case) -> Found:
    """One command at a time, in the order of time.

    Looking at the line before is enough: a command that overlaps one further back comes after a line
    that overlapped it too, or that was out of order.
    """
    clock = case.trace.clock
    known = np.clip(case.trace.command, 0, len(COMMANDS) - 1)
    start = np.concatenate((np.zeros(1, dtype=np.int64), (clock + case.cycles[known])[:-1]))[: len(clock)]
    found = np.flatnonzero(clock < start)
    first = []
    for i in found[: case.limit].tolist():
        short = int(start[i] - clock[i])
        if i == 0:
            first.append(Finding(i, "clock order", short, "clocks count from 0"))
        elif clock[i] <= clock[i - 1]:
            detail = f"clocks must increase, the line before is at clock {clock[i - 1]}"
            first.append(Finding(i, "clock order", short, detail))
        else:
            held = f"{case.at(i - 1)} holds the command bus for {start[i] - clock[i - 1]} clocks"
            first.append(Finding(i, "command bus", short, f"{_early(short)}, {held}"))
    return Found(len(found), first)


def _overlaps(start: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """The pairs of bursts that overlap, as rows (earlier, later) in the order of the trace, by the later."""
    order = np.argsort(start, kind="stable")
    pairs = [np.empty((0, 2), dtype=np.int64)]
    # One command a clock starts at most `length` reads and as many writes within the time of a burst.
    for apart in range(1, min(2 * length, len(start))):
        first, second = order[:-apart], order[apart:]
        close = start[second] - start[first] < length
        if not close.any():
            break
        pairs.append(np.sort(np.stack((first[close], second[close]), axis=1), axis=1))
    every = np.concatenate(pairs)
    return every[np.lexsort((every[:, 0], every[:, 1]))]


def _data_bus(case: Case) -> Found:
    """No two bursts on the data bus at once; a burst starts nCL or nCWL after its command's last cycle.

    One overlap is let pass, and counted: a read, then a write on another rank. The standards leave the
    change between ranks to the system, and the reference's tCS asks only nBL + nCS between the two
    commands, so that with nCL > nCWL + nCS the write's data meet the read's. The timing check holds such
    pairs to tCS.
    """
    timings, length = case.device.timings, case.device.timings["nBL"]
    places = np.flatnonzero(_COLUMN[case.part.command])
    kind, rank = case.part.command[places], case.part.rank[places]
    latency = np.where(_READS[kind] == 1, timings["nCL"], timings["nCWL"])
    start = case.part.clock[places] + case.cycles[kind] - 1 + latency
    pairs = _overlaps(start, length)
    earlier, later = pairs.T
    passed = (_READS[kind[earlier]] == 1) & (_WRITES[kind[later]] == 1) & (rank[earlier] != rank[later])
    pairs = pairs[~passed]
    first = []
    for before, after in pairs[: case.limit].tolist():
        # Starting later, it would come after the earlier burst.
        short = int(start[before] + length - start[after])
        here, there = (f"{start[x]} to {start[x] + length - 1}" for x in (after, before))
        culprit = case.at(case.origin(places[before]))
        detail = f"{_early(short)}, its data at clocks {here} meet those of {culprit} at {there}"
        first.append(Finding(case.origin(places[after]), "data bus", short, detail))
    return Found(len(pairs), first, int(passed.sum()))


# Timing rules.


def _clocks(latency: str, device: Device) -> int:
    total = 0
    for sign, term in latency_terms(latency):
        total += sign * (device.timings[term] if isinstance(term, str) else term)
    return total


def _unset(*shape: int) -> NDArray[np.int64]:
    return np.full(shape, -1, dtype=np.int64)


def _starts(lengths: list[int]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def _rules_of(device: Device) -> tuple[Rule, ...]:
    return device.standard.rules + device.standard.checked_rules


def _rules(device: Device, cycles: NDArray[np.int64]) -> Rules:
    rules = _rules_of(device)
    for rule in rules:
        if rule.window > 1 and (len(rule.previous) > 1 or rule.level not in LEVELS[:2]):
            raise ValueError(f"{rule.name}: a window is counted over one command of a rank or a channel")
    binding = [[k for k, rule in enumerate(rules) if c.name in rule.next] for c in COMMANDS]
    previous = [[_NUMBER[name] for name in rule.previous] for rule in rules]
    return Rules(
        first=_starts([len(one) for one in binding]),
        binding=_flags([k for one in binding for k in one]),
        previous_first=_starts([len(one) for one in previous]),
        previous=np.array([p for one in previous for p in one], dtype=np.int64),
        level=np.array([LEVELS.index(rule.level) for rule in rules], dtype=np.int64),
        window=np.array([rule.window for rule in rules], dtype=np.int64),
        siblings=_flags([rule.siblings for rule in rules]),
        clocks=np.array([_clocks(rule.latency, device) for rule in rules], dtype=np.int64),
        cycles=cycles,
        rank_wide=_RANK_WIDE,
        same_bank=_SAME_BANK,
        children=np.array([1, device.ranks, device.bankgroups, device.banks_per_group], dtype=np.int64),
    )


def _nodes(case: Case) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """By level and usable command its node, -1 for none; by level the first node, and their number last.

    The bank of a same-bank command is the one in the first bank group.
    """
    device, part = case.device, case.part
    sizes = [1, device.ranks, device.ranks * device.bankgroups, device.banks]
    base = _starts(sizes)
    group = part.rank * device.bankgroups + part.bankgroup
    bank = group * device.banks_per_group + part.bank
    of_one = _ONE_BANK[part.command] == 1
    first_of_rank = part.rank * device.banks_per_rank
    node = np.stack(
        (
            np.zeros_like(part.rank),
            base[1] + part.rank,
            np.where(of_one, base[2] + group, -1),
            np.where(
                of_one, base[3] + bank, np.where(part.bank >= 0, base[3] + first_of_rank + part.bank, -1)
            ),
        )
    )
    return node, base


def _timing(case: Case) -> Found:
    node, base = _nodes(case)
    rules = _rules(case.device, case.cycles)
    last, before, rows = _unset(base[-1], len(COMMANDS)), _unset(*node.shape), _unset(case.limit, 4)
    count = find_early(case.part.clock, case.part.command, node, base, rules, last, before, rows)
    first = []
    for place, rule, earlier, short in rows[:count].tolist():
        allowed = case.part.clock[place] + short
        name = _rules_of(case.device)[rule].name
        detail = f"{_early(short)}, {case.at(case.origin(earlier))} allows it from clock {allowed}"
        first.append(Finding(case.origin(place), name, short, detail))
    return Found(int(count), first)


# Rows.


def _row_state(case: Case) -> Found:
    device, part = case.device, case.part
    within = np.maximum(part.bankgroup, 0) * device.banks_per_group + np.maximum(part.bank, 0)
    bank = part.rank * device.banks_per_rank + within
    reach = np.where(_ONE_BANK == 1, 1, device.banks_per_rank)
    stride = np.where(_SAME_BANK == 1, device.banks_per_group, 1)
    kinds = (_OPENS, _CLOSES, _COLUMN, _REFRESHES, reach, stride)
    touched, rows = _unset(device.banks), _unset(case.limit, 3)
    count = find_row_faults(part.command, bank, part.row, *kinds, touched, rows)
    first = []
    for place, at, by in rows[:count].tolist():
        group, number = divmod(at % device.banks_per_rank, device.banks_per_group)
        name = f"bankgroup {group} bank {number}"
        if by < 0:
            detail = f"{name} was never opened"
        elif _OPENS[part.command[by]]:
            detail = f"{name} has row {part.row[by]} open since {case.at(case.origin(by))}"
        else:
            detail = f"{name} was closed by {case.at(case.origin(by))}"
        first.append(Finding(case.origin(place), "row state", 0, detail))
    return Found(int(count), first)


# Refresh.


def _owed(case: Case, refresh: str) -> list[tuple[str, NDArray[np.int64]]]:
    """Who is owed a refresh every interval, by name, and the commands that refresh it, as places.

    Where banks are refreshed that is every bank number of a rank, in all bank groups at once.
    """
    part, device = case.part, case.device
    whole = (_REFRESHES & _RANK_WIDE)[part.command] == 1
    owed = []
    for rank in range(device.ranks):
        of_rank = part.rank == rank
        if refresh in ("all-bank", "staggered"):
            owed.append((case.rank_name(rank), np.flatnonzero(of_rank & whole)))
            continue
        for bank in range(device.banks_per_group):
            of_bank = ((_REFRESHES & _SAME_BANK)[part.command] == 1) & (part.bank == bank)
            owed.append((f"{case.rank_name(rank)} bank {bank}", np.flatnonzero(of_rank & (whole | of_bank))))
    return owed


def refresh_debt(case: Case, refresh: str, max_postponed: int, max_pulled_in: int) -> Found:
    """Whether all that is owed a refresh gets one an interval.

    The n-th, counted from 0, is due at n + 1 intervals: it comes `max_postponed` intervals later at most,
    `max_pulled_in` earlier at most. What is owed when the trace ends is laid on its last command.
    """
    interval = case.device.timings["nREFI"]
    part, end = case.part, int(case.trace.clock[-1])
    late: list[Finding] = []
    early: list[Finding] = []
    for name, places in _owed(case, refresh):
        clock, issued = part.clock[places], np.arange(len(places))
        deadline = (issued + max_postponed + 1) * interval
        for n in np.flatnonzero(clock > deadline).tolist():
            short, behind = int(clock[n] - deadline[n]), int((clock[n] - 1) // interval - n)
            owed = _behind(name, behind, interval, max_postponed)
            detail = f"{_count(short, 'clock')} too late, {owed}"
            late.append(Finding(case.origin(places[n]), "refresh debt", short, detail))
        allowed = (issued + 1 - max_pulled_in) * interval
        for n in np.flatnonzero(clock < allowed).tolist():
            short = int(allowed[n] - clock[n])
            ahead = f"more than {max_pulled_in} intervals of {interval} clocks ahead"
            detail = f"{_early(short)}, {name} is {ahead}"
            early.append(Finding(case.origin(places[n]), "refresh ahead", short, detail))
        owed_from = (len(places) + max_postponed + 1) * interval
        if end >= owed_from:
            behind = end // interval - len(places)
            since = f"the last was {case.at(case.origin(places[-1]))}" if len(places) else "there was none"
            detail = f"{_behind(name, behind, interval, max_postponed)}; {since}"
            late.append(Finding(len(case.trace) - 1, "refresh debt", end + 1 - owed_from, detail))
    findings = sorted(late + early, key=lambda finding: finding.place)
    return Found(len(findings), findings[: case.limit])


def _behind(who: str, behind: int, interval: int, max_postponed: int) -> str:
    return f"{who} is {behind} intervals of {interval} clocks behind, {max_postponed} may be postponed"


#: The checks that need no more than the trace and its device.
CHECKS = (_unknown_commands, _coordinates, _command_bus, _data_bus, _timing, _row_state)


def _words(case: Case, place: int) -> str:
    words = [_name(case.trace, place)]
    kind = int(case.trace.command[place])
    if 0 <= kind < len(COMMANDS):
        for coordinate, name in enumerate(_COORDINATES):
            value = int(getattr(case.trace, name)[place])
            if _ADDRESSED[kind, coordinate] or value != -1:
                words.append(case.rank_name(value) if name == "rank" else f"{name} {value}")
    return " ".join(words)


def violation(case: Case, finding: Finding) -> Violation:
    """`finding` in full."""
    index, clock = int(case.index[finding.place]), int(case.trace.clock[finding.place])
    command = _words(case, finding.place)
    message = f"line {index + 2}: {command} at clock {clock}: {finding.rule}: {finding.detail}"
    return Violation(index, clock, finding.rule, command, finding.shortfall, message)


def no_such_lane(trace: CommandTrace, index: int, lanes: int) -> Violation:
    """The command at `index` is meant for none of the `lanes`."""
    lane, clock, name = int(trace.rank[index]), int(trace.clock[index]), _name(trace, index)
    wrong = f"lane {lane} is not within 0 to {lanes - 1}"
    message = f"line {index + 2}: {name} at clock {clock}: coordinates: {wrong}"
    return Violation(index, clock, "coordinates", name, 0, message)
