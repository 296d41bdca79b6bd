"""Converts rules to integer tables, the engine's form of a standard."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.caching import cached_by_identity
from ndpsim.dram.spec.checking import MOST_COMMANDS, check_scheduled
from ndpsim.dram.spec.device import Device
from ndpsim.dram.spec.standard import PAUSES_FROM, RANK_ORDERS, STACK, Command

#: Entry of a table for commands without a rule: a clock plus this entry is always in the past.
NO_RULE = -(1 << 40)

# Fields of `Tables.commands`; see `spec.standard.Command`. Other commands are -1 if absent.
SCOPE, CLOSES, IS_REFRESH, CLOSES_FIRST, INTERVAL, BUSY, BUS, CYCLES, RANK_ORDER = range(9)
COMPLETED_BY, COMPLETE_WITHIN, PREPARED_BY, PREPARED_AT, KEEPS_PREPARED, ON_ANY_TICK = range(9, 15)
STARTED_BY, STOPPED_BY = range(15, 17)
# The banks of a round, 0: there are none; its pause; and what that counts from.
ROUND, ROUND_PAUSE, PAUSE_FROM = range(17, 20)

# The first words of a row of `Tables.windows`: the level, and how many commands the window counts. Then come
# two words for each command: its cycles if the window counts it (else 0), and the clocks until it may follow.
LEVEL, LENGTH = range(2)
COUNTED = 2
CLOCKS = COUNTED + MOST_COMMANDS


class Tables(NamedTuple):
    """A device in integers; all times in clocks, commands as `Standard.by_number` has them.

    `gap[level, previous, next]`: least distance at the same channel, rank, bank group, bank or stack.
    `sibling_gap[level, previous, next]`: least distance at two nodes of a level below the same node.
    `windows[window, field]`: a window counts commands at a node of LEVEL. Another command begins at least its
    CLOCKS after the last cycle of the first of the last LENGTH commands that the window counts (tFAW).
    All other distances are from first cycle to first cycle; NO_RULE without a rule.
    """

    ranks: int
    bankgroups: int  # of a rank
    banks_per_group: int
    groups_per_stack: int  # 0: no stacks between ranks and bank groups
    ticks: int  # of a clock of timings, which are the clocks here
    commands: NDArray[np.int64]  # [command, field]
    gap: NDArray[np.int64]
    sibling_gap: NDArray[np.int64]
    binds_siblings: NDArray[np.int64]  # [level, previous]: 1 where `sibling_gap` binds anything
    windows: NDArray[np.int64]
    read_latency: int  # from a read to the last beat of its data
    burst: int  # clocks of data bus per burst
    refresh_interval: int  # nREFI


def _fields(device: Device, command: Command) -> list[int]:
    standard = device.standard
    interval = device.clocks(command.interval) if command.refreshes else 0  # RFM has none
    refreshes = command.refreshes or command.manages
    others = [command.closes_first, command.completed_by, command.prepared_by]
    others += [command.started_by, command.stopped_by]
    first, second, before, start, stop = (standard.names.index(name) if name else -1 for name in others)
    busy, within = device.clocks(command.busy), device.clocks(command.complete_within)
    bus = list(dict.fromkeys(kind.bus for kind in standard.by_number)).index(command.bus)
    effects = [standard.scope_of(command), command.closes, refreshes, first, interval, busy]
    prepared = device.clocks(command.keeps_prepared)
    level = standard.level_of(command.prepared_at) if command.prepared_at else 0
    bus_and_order = [bus, command.cycles, RANK_ORDERS.index(command.ranks)]
    pause = [_banks_in_round(device, command), device.clocks(command.pause)]
    pause.append(PAUSES_FROM.index(command.pause_from))
    prepares = [second, within, before, level, prepared]
    return [*effects, *bus_and_order, *prepares, command.on_any_tick, start, stop, *pause]


def _banks_in_round(device: Device, command: Command) -> int:
    """The number of banks in a round of refreshes of single banks, 0: there are no rounds."""
    if not command.round_of:
        return 0
    level = device.standard.level_of(command.round_of)
    groups = {1: device.bankgroups, STACK: device.groups_per_stack}.get(level, 1)
    return groups * device.banks_per_group


def _window(level: int, length: int) -> NDArray[np.int64]:
    """A row of `Tables.windows` that counts and delays nothing yet."""
    row = np.zeros(CLOCKS + MOST_COMMANDS, dtype=np.int64)
    row[LEVEL], row[LENGTH], row[CLOCKS:] = level, length, NO_RULE
    return row


def _fold_siblings(gap: NDArray[np.int64], sibling: NDArray[np.int64]) -> None:
    """Turn distances between banks of a group into distances of the group if the same bank waits as long.

    The fast controller has no table of sibling banks.
    """
    in_group, in_bank, siblings = gap[2], gap[3], sibling[3]
    same = (siblings > NO_RULE) & (in_bank >= siblings)
    in_group[same] = np.maximum(in_group, siblings)[same]
    siblings[same] = NO_RULE


def _fold_group(gap: NDArray[np.int64]) -> None:
    """Turn distances of the only group of a rank into distances of the rank.

    The fast controller may number a large group without rules as several groups.
    """
    gap[1], gap[2] = np.maximum(gap[1], gap[2]), NO_RULE


@cached_by_identity(64)
def lower(device: Device) -> Tables:
    """The integer tables of `device`. They are shared: nothing may change them.

    A command of several cycles takes effect in the last one: a distance from it increases by the number of
    cycles minus one, a distance to it decreases by as many, and it occupies its command bus (JESD79-5,
    command truth table, for two cycles).

    Raises:
        InputError: a rule of the standard cannot be expressed in the tables.
    """
    standard = device.standard
    commands, number = standard.by_number, {name: index for index, name in enumerate(standard.names)}
    gap = np.full((STACK + 1, MOST_COMMANDS, MOST_COMMANDS), NO_RULE, dtype=np.int64)
    sibling = gap.copy()
    windows: dict[tuple[int, int, tuple[str, ...]], NDArray[np.int64]] = {}
    for previous, first in enumerate(commands):
        for after, second in enumerate(commands):
            if first.bus == second.bus and first.cycles > 1:
                gap[0, previous, after] = first.cycles
    for rule in standard.rules:
        check_scheduled(standard, rule)
        nominal, level = device.clocks(rule.latency), standard.level_of(rule.level)
        if rule.window > 1:
            key = level, rule.window, tuple(sorted(rule.previous))
            row = windows.setdefault(key, _window(level, rule.window))
            for before in (number[name] for name in rule.previous):
                row[COUNTED + before] = commands[before].cycles
            for after in (number[name] for name in rule.next):
                row[CLOCKS + after] = max(row[CLOCKS + after], nominal - (commands[after].cycles - 1))
            continue
        for before in (number[name] for name in rule.previous):
            row = (sibling if rule.siblings else gap)[level, before]
            for after in (number[name] for name in rule.next):
                row[after] = max(row[after], nominal + commands[before].cycles - commands[after].cycles)
    _fold_siblings(gap, sibling)
    if device.bankgroups == 1:
        _fold_group(gap)
    return Tables(
        ranks=device.ranks,
        bankgroups=device.bankgroups,
        banks_per_group=device.banks_per_group,
        groups_per_stack=device.bankgroups // device.stacks if len(standard.levels) > STACK else 0,
        ticks=standard.ticks_per_clock,
        commands=np.array([_fields(device, command) for command in commands], dtype=np.int64),
        gap=gap,
        sibling_gap=sibling,
        binds_siblings=np.array((sibling > NO_RULE).any(axis=2), dtype=np.int64),
        windows=np.array(list(windows.values()), dtype=np.int64).reshape(-1, CLOCKS + MOST_COMMANDS),
        read_latency=device.read_clocks,
        burst=device.burst_clocks,
        refresh_interval=device.clocks("nREFI"),
    )
