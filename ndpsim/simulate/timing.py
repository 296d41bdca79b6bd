"""A timing kit: the first clock of a command, asked in two ways that share no code: controller and checker.

>>> from ndpsim.timing import Probe
>>> probe = Probe("DDR4", timing="DDR4_3200AA")
>>> opened = probe.issue("ACT", bank=0, row=5)
>>> probe.assert_earliest("RD", bank=0, clock=opened + 22)
>>> print(probe.why("RD", bank=0))
RD from clock 23: tRCD, nRCD = 22 clocks after ACT at clock 1
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from ndpsim.audit import Violation, check
from ndpsim.base.arguments import choice, flag, instance, text, whole_number
from ndpsim.base.caching import cached_by_identity
from ndpsim.base.errors import InputError, MismatchError, unknown
from ndpsim.base.jit import kernel
from ndpsim.base.options.dram import RULE_SET, ChannelSettings
from ndpsim.base.reported import text_table
from ndpsim.dram.spec import Device, Rule, lower, resolve, standards
from ndpsim.dram.spec.checking import MOST_COMMANDS
from ndpsim.dram.spec.lower import BUS, LENGTH, NO_RULE, ON_ANY_TICK
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK, SAME_BANKS, WHOLE_RANK
from ndpsim.dram.timing import note_timing, ready_at
from ndpsim.dram.traces import CommandTrace

__all__ = ["Earliest", "Probe"]


class Issued(NamedTuple):
    """A command; -1 is a coordinate that it does not address. Bank groups are numbered over all stacks."""

    clock: int
    name: str
    rank: int
    group: int
    bank: int
    row: int
    column: int

    @property
    def words(self) -> str:
        """What and when, for messages."""
        return f"{self.name} at clock {self.clock}"


def trace_of(commands: Sequence[Issued], device: Device) -> CommandTrace:
    """The commands as a trace for the checker."""
    names = device.standard.names
    rows = [(issued.clock, names.index(issued.name), *issued[2:]) for issued in commands]
    return CommandTrace.of(np.array(rows, dtype=np.int64).T, names)


def addressed(device: Device, name: str) -> list[str]:
    """The coordinates of a command, by the standard's names of levels."""
    standard = device.standard
    command = standard.by_number[standard.names.index(name)]
    scope, levels = standard.scope_of(command), list(standard.levels[1:])
    ranks = levels[: device.organisation.ranks != 1]
    if scope == WHOLE_RANK:
        return ranks
    if scope == SAME_BANKS:
        return [*ranks, levels[-1]]
    moves = command.reads or command.writes
    second = any(each.completed_by == name for each in standard.commands)
    return ranks + levels[1:] + ["row"] * (moves or command.opens or second) + ["column"] * moves


def placed(device: Device, name: object, place: Mapping[str, object], row: int) -> Issued:
    """A command at a place, at clock 0; coordinates that are not given are 0, and the row is `row`.

    Raises:
        InputError: the command or a coordinate is unknown, or out of range.
    """
    standard = device.standard
    name = choice(name, "command", standard.names, f"{standard.name} command")
    wanted = addressed(device, name)
    sizes = {
        **dict(zip(standard.levels[-2:], (device.groups_per_stack, device.banks_per_group), strict=True)),
        standard.levels[1]: device.ranks,
        "row": device.rows,
        "column": device.bursts_per_row,
    }
    if len(standard.levels) > 4:
        sizes[standard.levels[2]] = device.stacks
    for key in place:
        if key not in sizes:
            raise unknown(key, sizes, "coordinate", key=name)
        if key not in wanted:
            problem = f"addresses no {key}; its coordinates: {', '.join(wanted) or 'none'}"
            raise InputError(problem, "conflict", key=name)
    coordinates = {key: row if key == "row" else 0 for key in wanted}
    coordinates |= {key: whole_number(value, key, 0, sizes[key] - 1) for key, value in place.items()}
    group = -1
    if standard.levels[-2] in wanted:
        stack = coordinates[standard.levels[2]] if len(standard.levels) > 4 else 0
        group = stack * device.groups_per_stack + coordinates[standard.levels[-2]]
    rank, bank = coordinates.get(standard.levels[1], 0), coordinates.get(standard.levels[-1], -1)
    return Issued(0, name, rank, group, bank, coordinates.get("row", -1), coordinates.get("column", -1))


def scope_of(device: Device, name: str) -> int:
    """`ONE_BANK`, `SAME_BANKS` or `WHOLE_RANK`."""
    standard = device.standard
    return standard.scope_of(standard.by_number[standard.names.index(name)])


@kernel
def _note(
    tables: Any, ready: Any, recent: Any, command: int, rank: int, group: int, bank: int, clock: int
) -> None:
    note_timing(tables, ready, recent, command, rank, group, bank, clock)


@kernel
def _ready(tables: Any, ready: Any, command: int, rank: int, group: int, bank: int) -> int:
    return ready_at(tables, ready, command, rank, group, bank)  # type: ignore[no-any-return]


class TablesSide:
    """The earliest clocks of commands as controllers know them; the commands so far are given to `note`."""

    def __init__(self, device: Device) -> None:
        self._device, self._tables = device, lower(device)
        tables = self._tables
        nodes = 1 + tables.ranks * (1 + tables.bankgroups * (1 + tables.banks_per_group))
        longest = int(tables.windows[:, LENGTH].max(initial=1))
        self._ready = np.zeros((nodes, MOST_COMMANDS), dtype=np.int64)
        self._recent = np.full((len(tables.windows), nodes, 1 + longest), NO_RULE, dtype=np.int64)
        self._recent[:, :, 0] = 1
        self._last = 1
        self._bus: dict[int, int] = {}

    def _nodes(self, issued: Issued) -> tuple[int, int, int, int]:
        """Number of the command; its rank, bank group and bank as nodes, 0: none."""
        tables, device = self._tables, self._device
        groups = 1 + tables.ranks
        banks = groups + tables.ranks * tables.bankgroups
        number, scope = device.standard.names.index(issued.name), scope_of(device, issued.name)
        if scope in (ONE_BANK, BANK_PAIR):
            group = issued.rank * tables.bankgroups + issued.group
            return (
                number,
                1 + issued.rank,
                groups + group,
                banks + group * tables.banks_per_group + issued.bank,
            )
        bank = banks + issued.rank * device.banks_per_rank + issued.bank if scope == SAME_BANKS else 0
        return number, 1 + issued.rank, 0, bank

    def note(self, issued: Issued) -> None:
        """Issue a command at its clock."""
        number, rank, group, bank = self._nodes(issued)
        _note(self._tables, self._ready, self._recent, number, rank, group, bank, issued.clock)
        self._last = issued.clock
        self._bus[int(self._tables.commands[number, BUS])] = issued.clock

    def earliest(self, candidate: Issued) -> int:
        """The first clock at which the tables allow a command: one command a clock on each bus."""
        number, rank, group, bank = self._nodes(candidate)
        fields, ticks = self._tables.commands[number], self._tables.ticks
        free = self._bus.get(int(fields[BUS]), 0) + 1
        clock = max(int(_ready(self._tables, self._ready, number, rank, group, bank)), self._last, free)
        return clock if fields[ON_ANY_TICK] else clock + (1 - clock) % ticks


#: Findings about the rows of banks; waiting does not remove them.
_OF_ROWS = ("row state", "second half", "preparation")
_EDGE, _BUS = "clock edge", "command bus"


class CheckerSide:
    """The earliest clocks of commands as the checker knows them.

    `rows`: whether commands must also find the rows of their banks as they need them.
    """

    def __init__(self, device: Device, rows: bool) -> None:
        self._device, self._rows = device, rows
        # Of rules that bind equally, those of the page are named.
        self._names = {rule.name for rule in (*device.standard.rules, *device.standard.checked_rules)}

    def findings(self, before: Sequence[Issued], candidate: Issued) -> list[Violation]:
        """What is wrong with a command after others: only its clock.

        Raises:
            InputError: its bank is in a wrong state.
        """
        trace = trace_of([*before, candidate], self._device)
        report = check(trace, self._device, refresh="none", limit=len(trace) * 8 + 100)
        found = [each for each in report.violations if each.index == len(before)]
        for each in found:
            of_rows = each.rule in _OF_ROWS
            if (of_rows and self._rows) or not (of_rows or each.shortfall or each.rule == _EDGE):
                said = each.message.partition(f" at clock {candidate.clock}: ")[2]
                said = re.sub(r" \(line \d+\)", "", said)  # a probe has no lines
                raise InputError(said, "conflict", key=each.command)
        return [each for each in found if each.rule not in _OF_ROWS]

    def earliest(self, before: Sequence[Issued], candidate: Issued) -> tuple[int, str]:
        """The first legal clock of a command after others, and the rule that the clock before breaks."""
        clock, rule = max(before[-1].clock if before else 1, 1), ""
        while found := self.findings(before, candidate._replace(clock=clock)):
            most = max(found, key=lambda each: (each.shortfall, each.rule in self._names))
            # A rule that ends between two edges is what binds, not the edge after it.
            if most.rule != _EDGE or not rule:
                rule = most.rule
            clock += max(most.shortfall, 1)
        return clock, _BUS if rule == "clock order" else rule


_LAST_CLOCK = 10**15
#: Two of them, so that commands can go to another rank.
_RANKS = 2


class Earliest(NamedTuple):
    """The first clock of a command, and what keeps it from the clock before.

    Attributes:
        command: its name.
        clock: the first clock at which it may go.
        rule: the rule that binds, by its name on the standard's page; "command bus" or "clock edge" if none
            of them does; empty if the command could go at once.
        latency: the sum of timings of the rule, for instance "nCL + nBL + 2 - nCWL".
        clocks: that sum in clocks.
        after: the earlier command from which the rule counts; empty if there is none.
        after_clock: its clock; -1 if there is none.
        controller, checker: the first clock by the controller's tables and by the checker.
    """

    command: str
    clock: int
    rule: str
    latency: str
    clocks: int
    after: str
    after_clock: int
    controller: int
    checker: int

    def __str__(self) -> str:
        if not self.latency:
            return f"{self.command} from clock {self.clock}: {self.rule or 'no rule binds it'}"
        since = f"{self.latency} = {self.clocks} clocks after {self.after} at clock {self.after_clock}"
        apart = self.checker - self.after_clock
        cycles = f" ({apart} between their first cycles)" if apart != self.clocks else ""
        only = "" if self.controller == self.checker else f" (the controller alone: {self.controller})"
        return f"{self.command} from clock {self.clock}: {self.rule}, {since}{cycles}{only}"


class Probe:
    """One channel to which commands are given, one by one, to learn the first clock of the next.

    Coordinates have the names of the standard's levels: rank, bankgroup, bank for DDR5; pseudochannel, stack,
    bankgroup, bank for HBM3. Those that are not given are 0. A clock is that of the first cycle of a command,
    counted from 1, in clocks of command traces. All banks are closed at first. No refreshes are due.

    Args:
        standard: "DDR4", "DDR5", ...; the name of `ndpsim list standards`.
        org, timing: presets; by default the standard's first, of DDR5 DDR5_16Gb_x8 and DDR5_4800AN.
        ranks: ranks of the channel; by default 2, or the standard's fixed number.
        rules: "standard" or "reference".
        overrides: timings and sizes that replace those of the presets, as in `resolve`.
        rows: whether commands must find banks open and closed as they need them. With False only clocks
            count, so that any command may follow any other.

    Raises:
        InputError: a name is unknown or a number is out of range.
    """

    def __init__(
        self,
        standard: str = "DDR5",
        org: str | None = None,
        timing: str | None = None,
        ranks: int | None = None,
        rules: str = "standard",
        overrides: Mapping[str, int | str] | None = None,
        rows: bool = True,
    ) -> None:
        found = standards()[choice(standard, "standard", standards(), "standard")]
        found = found.under(RULE_SET.checked(rules))
        usual = standard == ChannelSettings.standard
        first = ChannelSettings.org if usual else next(iter(found.organisations))
        speed = ChannelSettings.timing if usual else next(iter(found.speeds))
        org = first if org is None else text(org, "org")
        timing = speed if timing is None else timing
        if ranks is None:
            fixed = org in found.organisations and found.organisations[org].ranks
            ranks = 1 if fixed else _RANKS
        self._begin(resolve(standard, org, timing, ranks, overrides, rules), rows)

    @classmethod
    def of(cls, device: Device, rows: bool = True) -> Self:
        """A probe of a channel that `resolve` has made.

        Raises:
            InputError: `device` is no `Device`.
        """
        probe = cls.__new__(cls)
        probe._begin(instance(device, "device", Device), rows)
        return probe

    def _begin(self, device: Device, rows: bool) -> None:
        self.device = device
        self.commands: list[Issued] = []
        self._tables = TablesSide(device)
        self._checker = CheckerSide(device, flag(rows, "rows"))
        self._scheduled = CheckerSide(_without_checked_rules(device), rows)

    def _candidate(self, command: object, place: Mapping[str, object]) -> Issued:
        """The command at its place, by default with the row that its bank has had last."""
        command_here = placed(self.device, command, place, 0)
        where = command_here.rank, command_here.group, command_here.bank
        rows = [each.row for each in self.commands if each.row >= 0 and each[2:5] == where]
        opens = self.device.standard.by_number[self.device.standard.names.index(command_here.name)].opens
        if rows and command_here.row >= 0 and "row" not in place and not opens:
            command_here = command_here._replace(row=rows[-1])
        return command_here

    def issue(self, command: str, *, clock: int | None = None, **place: int) -> int:
        """Issue a command, at its first clock unless one is given; returns the clock.

        Args:
            command: a command of the standard: "ACT", "RD", "PREab", ...
            clock: when; None: as early as possible.
            place: coordinates by the standard's levels, and `row` and `column` where the command has them.
                The row of a read or write is by default that of its bank.

        Raises:
            InputError: a name is unknown, a number is out of range, the clock is too early, or the bank is
                open or closed where it must not be.
        """
        issued = self._candidate(command, place)
        if clock is not None:
            issued = issued._replace(clock=whole_number(clock, "clock", 1, _LAST_CLOCK))
            found = self._checker.findings(self.commands, issued)
            if found:
                first = self._why(issued)
                problem = f"clock {issued.clock} is too early; {first}"
                if found[0].rule == "clock edge":
                    problem = f"clock {issued.clock} is between two edges; {first}"
                raise InputError(problem, "range", key=issued.name)
        else:
            issued = issued._replace(clock=self._why(issued).clock)
            self._checker.findings(self.commands, issued)
        self._tables.note(issued)
        self.commands.append(issued)
        return issued.clock

    def earliest(self, command: str, **place: int) -> int:
        """The first clock at which a command may follow the commands so far.

        The controller's tables and the checker are asked, each on its own.

        Raises:
            InputError: a name is unknown, a number is out of range, or the bank is open or closed where it
                must not be.
            MismatchError: controller and checker differ.
        """
        return self.why(command, **place).clock

    def why(self, command: str, **place: int) -> Earliest:
        """`earliest`, with the rule that binds.

        Raises:
            InputError, MismatchError: as `earliest`.
        """
        return self._why(self._candidate(command, place))

    def assert_earliest(self, command: str, *, clock: int, **place: int) -> None:
        """Check from both sides that a command may go at a clock, and not at the clock before.

        Raises:
            AssertionError: the controller or the checker says another clock; one line with the rule that
                binds and both clocks.
            InputError: as `earliest`.
        """
        candidate = self._candidate(command, place)
        clock = whole_number(clock, "clock", 1, _LAST_CLOCK)
        first = self._why(candidate)
        before, then = (candidate._replace(clock=at) for at in (clock - 1, clock))
        start = self.commands[-1].clock if self.commands else 1
        legal = not self._checker.findings(self.commands, then) if clock >= start else False
        blocked = clock <= start or bool(self._checker.findings(self.commands, before))
        if first.clock != clock or not legal or not blocked:
            at = f"{self.device.standard.name} {self.device.timing}"
            both = f"controller {first.controller}, checker {first.checker}"
            raise AssertionError(
                f"{at}: {candidate.name} not from clock {clock}, but {first.clock} ({both}): {first}"
            )

    def _why(self, candidate: Issued) -> Earliest:
        """The first clock of a command by both sides; raises MismatchError if they differ."""
        controller = self._tables.earliest(candidate)
        checker, rule = self._checker.earliest(self.commands, candidate)
        if controller != checker:
            scheduled = checker
            if self.device.standard.checked_rules:
                scheduled = self._scheduled.earliest(self.commands, candidate)[0]
            if scheduled != controller:
                last = ", ".join(each.words for each in self.commands[-3:])
                problem = (
                    f"{candidate.name} after {last}: the controller's tables allow it from clock {controller}"
                )
                raise MismatchError(f"{problem}, the checker from clock {checker} ({rule or 'no rule'})")
        latency, clocks, since = self._binding(candidate, checker, rule)
        after, after_clock = (since.name, since.clock) if since is not None else ("", -1)
        return Earliest(
            candidate.name, checker, rule, latency, clocks, after, after_clock, controller, checker
        )

    def _binding(self, candidate: Issued, clock: int, rule: str) -> tuple[str, int, Issued | None]:
        """The sum of timings of the rule that binds, its clocks, and the command from which they count."""
        standard = self.device.standard
        cycles = {command.name: command.cycles for command in standard.commands}
        for each in (*standard.rules, *standard.checked_rules):
            if each.name != rule or candidate.name not in each.next:
                continue
            clocks = self.device.clocks(each.latency)
            for since in reversed(self.commands):
                apart = clocks + cycles.get(since.name, 1) - cycles[candidate.name]
                due = since.name in each.previous and self._is_at_level(each, since, candidate)
                if due and since.clock + apart <= clock < since.clock + apart + standard.ticks_per_clock:
                    return each.latency, clocks, since
        return "", 0, None

    def _is_at_level(self, rule: Rule, since: Issued, candidate: Issued) -> bool:
        """Whether ranks are the same, or are not where the rule is for others."""
        level = self.device.standard.level_of(rule.level)
        return level == 0 or (since.rank == candidate.rank) != (rule.siblings and level == 1)

    def __repr__(self) -> str:
        device = self.device
        rows = {"device": f"{device.org} at {device.timing}, rules {device.rules}"}
        rows |= {name: str(count) for name, count in device.parts.items()}
        rows["commands"] = ", ".join(issued.words for issued in self.commands[-5:]) or "none yet"
        return text_table(f"Probe of {device.standard.name}", rows.items())


@cached_by_identity(16)
def _without_checked_rules(device: Device) -> Device:
    """The device with the rules that controllers know, alone."""
    return replace(device, standard=replace(device.standard, checked_rules=(), reference={}))
