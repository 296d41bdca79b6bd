"""Both sides of a probe: the tables of the plain controller, and the checker; and the commands of a probe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ndpsim.audit import Violation, check
from ndpsim.base.arguments import choice, whole_number
from ndpsim.base.errors import InputError, unknown
from ndpsim.base.jit import kernel
from ndpsim.dram.spec import Device, lower
from ndpsim.dram.spec.checking import MOST_COMMANDS
from ndpsim.dram.spec.lower import BUS, LENGTH, NO_RULE, ON_ANY_TICK
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK, SAME_BANKS, WHOLE_RANK
from ndpsim.dram.timing import note_timing, ready_at
from ndpsim.dram.traces import CommandTrace


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
                raise InputError(_without_lines(said), "conflict", key=each.command)
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


def _without_lines(words: str) -> str:
    """A finding without the lines of its trace, which a probe has none of."""
    return re.sub(r" \(line \d+\)", "", words)
