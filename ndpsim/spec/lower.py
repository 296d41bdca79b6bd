"""From rules to integer tables: the only form in which the engine knows a standard."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.spec.checking import MOST_COMMANDS, check_scheduled
from ndpsim.spec.device import Device
from ndpsim.spec.standard import Command

__all__ = [
    "BUS",
    "BUSY",
    "CLOCKS",
    "CLOSES",
    "CLOSES_FIRST",
    "INTERVAL",
    "LENGTH",
    "LEVEL",
    "MOST_COMMANDS",
    "NEXT",
    "NO_RULE",
    "PREVIOUS",
    "SCOPE",
    "Tables",
    "lower",
]

#: Stands in a table where no rule binds two commands: adding it to any clock leaves the past.
NO_RULE = -(1 << 40)

# What `Tables.commands` has of a command; see `spec.standard.Command`.
SCOPE, CLOSES, IS_REFRESH, CLOSES_FIRST, INTERVAL, BUSY, BUS = range(7)  # CLOSES_FIRST: -1 for none

# What `Tables.windows` has of a rule that counts commands.
LEVEL, PREVIOUS, LENGTH, NEXT, CLOCKS = range(5)


class Tables(NamedTuple):
    """A device in integers; all times in clocks, commands as `Standard.by_number` has them.

    `gap[level, previous, next]`: least distance at the same channel, rank, bank group or bank.
    `sibling_gap[level, previous, next]`: least distance at two nodes of a level below the same node.
    `windows[window, field]`: from the first of the last LENGTH commands PREVIOUS at a node of LEVEL to the
    command NEXT there are CLOCKS at least (tFAW).
    Distances count from and to the first cycle of a command; NO_RULE where nothing binds.
    """

    ranks: int
    bankgroups: int
    banks_per_group: int
    commands: NDArray[np.int64]  # [command, field]
    gap: NDArray[np.int64]
    sibling_gap: NDArray[np.int64]
    binds_siblings: NDArray[np.int64]  # [level, previous]: 1 where `sibling_gap` binds anything
    windows: NDArray[np.int64]
    read_latency: int  # from a read to the last beat of its data: nCL + nBL
    burst: int  # clocks of data bus per burst: nBL
    refresh_interval: int  # nREFI


def _fields(device: Device, command: Command) -> list[int]:
    standard = device.standard
    interval = device.clocks(command.interval) if command.refreshes else 0
    first = standard.names.index(command.closes_first) if command.closes_first else -1
    busy = device.clocks(command.busy)
    bus = list(dict.fromkeys(one.bus for one in standard.by_number)).index(command.bus)
    return [standard.scope_of(command), command.closes, command.refreshes, first, interval, busy, bus]


def lower(device: Device) -> Tables:
    """The integer tables of `device`.

    A command of several cycles begins its effect in the last: a distance from it grows by as many less one, a
    distance to it shrinks by as many, and it keeps its command bus from every other command there (JESD79-5,
    command truth table, for two).

    Raises:
        InputError: a rule of the standard cannot be expressed in the tables.
    """
    standard = device.standard
    commands, number = standard.by_number, {name: place for place, name in enumerate(standard.names)}
    gap = np.full((len(standard.levels), MOST_COMMANDS, MOST_COMMANDS), NO_RULE, dtype=np.int64)
    sibling = gap.copy()
    windows: dict[tuple[int, int, int, int], int] = {}
    for previous, one in enumerate(commands):
        for after, other in enumerate(commands):
            if one.bus == other.bus and one.cycles > 1:
                gap[0, previous, after] = one.cycles
    for rule in standard.rules:
        check_scheduled(standard, rule)
        nominal, level = device.clocks(rule.latency), standard.levels.index(rule.level)
        for before in (number[name] for name in rule.previous):
            row = (sibling if rule.siblings else gap)[level, before]
            for after in (number[name] for name in rule.next):
                clocks = nominal + commands[before].cycles - commands[after].cycles
                if rule.window > 1:
                    window = level, before, rule.window, after
                    windows[window] = max(windows.get(window, NO_RULE), clocks)
                else:
                    row[after] = max(row[after], clocks)
    return Tables(
        ranks=device.ranks,
        bankgroups=device.bankgroups,
        banks_per_group=device.banks_per_group,
        commands=np.array([_fields(device, command) for command in commands], dtype=np.int64),
        gap=gap,
        sibling_gap=sibling,
        binds_siblings=np.array((sibling > NO_RULE).any(axis=2), dtype=np.int64),
        windows=np.array([(*of, clocks) for of, clocks in windows.items()], dtype=np.int64).reshape(-1, 5),
        read_latency=device.timings["nCL"] + device.timings["nBL"],
        burst=device.timings["nBL"],
        refresh_interval=device.timings["nREFI"],
    )
