"""The commands of a probe: their names and coordinates, checked against a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ndpsim.base.arguments import choice, whole_number
from ndpsim.base.errors import InputError, unknown
from ndpsim.dram.spec import Device
from ndpsim.dram.spec.standard import SAME_BANKS, WHOLE_RANK
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
    rows = [(one.clock, names.index(one.name), *one[2:]) for one in commands]
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
    second = any(one.completed_by == name for one in standard.commands)
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
    at = {key: row if key == "row" else 0 for key in wanted}
    at |= {key: whole_number(value, key, 0, sizes[key] - 1) for key, value in place.items()}
    group = -1
    if standard.levels[-2] in wanted:
        stack = at[standard.levels[2]] if len(standard.levels) > 4 else 0
        group = stack * device.groups_per_stack + at[standard.levels[-2]]
    rank, bank = at.get(standard.levels[1], 0), at.get(standard.levels[-1], -1)
    return Issued(0, name, rank, group, bank, at.get("row", -1), at.get("column", -1))


def scope_of(device: Device, name: str) -> int:
    """`ONE_BANK`, `SAME_BANKS` or `WHOLE_RANK`."""
    standard = device.standard
    return standard.scope_of(standard.by_number[standard.names.index(name)])
