"""The controller's side of a probe: the tables of a device, and the plain controller's functions on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ndpsim.base.jit import kernel
from ndpsim.dram.spec import Device, lower
from ndpsim.dram.spec.checking import MOST_COMMANDS
from ndpsim.dram.spec.lower import BUS, LENGTH, NO_RULE, ON_ANY_TICK
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK, SAME_BANKS
from ndpsim.dram.timing import note_timing, ready_at
from ndpsim.simulate.timing.commands import Issued, scope_of


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

    def _nodes(self, one: Issued) -> tuple[int, int, int, int]:
        """Number of the command; its rank, bank group and bank as nodes, 0: none."""
        tables, device = self._tables, self._device
        groups = 1 + tables.ranks
        banks = groups + tables.ranks * tables.bankgroups
        number, scope = device.standard.names.index(one.name), scope_of(device, one.name)
        if scope in (ONE_BANK, BANK_PAIR):
            group = one.rank * tables.bankgroups + one.group
            return number, 1 + one.rank, groups + group, banks + group * tables.banks_per_group + one.bank
        bank = banks + one.rank * device.banks_per_rank + one.bank if scope == SAME_BANKS else 0
        return number, 1 + one.rank, 0, bank

    def note(self, one: Issued) -> None:
        """Issue a command at its clock."""
        number, rank, group, bank = self._nodes(one)
        _note(self._tables, self._ready, self._recent, number, rank, group, bank, one.clock)
        self._last = one.clock
        self._bus[int(self._tables.commands[number, BUS])] = one.clock

    def earliest(self, one: Issued) -> int:
        """The first clock at which the tables allow a command: one command a clock on each bus."""
        number, rank, group, bank = self._nodes(one)
        fields, ticks = self._tables.commands[number], self._tables.ticks
        free = self._bus.get(int(fields[BUS]), 0) + 1
        at = max(int(_ready(self._tables, self._ready, number, rank, group, bank)), self._last, free)
        return at if fields[ON_ANY_TICK] else at + (1 - at) % ticks
