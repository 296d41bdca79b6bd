"""Energy from a command trace alone: the commands give the state of the banks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.jit import kernel
from ndpsim.dram.energy.channel import Counts, add_up, channel_energy, counts_of, split
from ndpsim.dram.energy.currents import Currents, find_currents
from ndpsim.dram.spec import Device, Standard
from ndpsim.dram.spec.standard import (
    ACTIVATE,
    BANK_PAIR,
    ONE_BANK,
    PRECHARGE,
    READ,
    READ_AP,
    SAME_BANKS,
    WHOLE_RANK,
    WRITE,
    WRITE_AP,
)
from ndpsim.dram.traces import CommandTrace

Ints = NDArray[np.int64]


@kernel
def sum_open(
    clock: Ints,
    command: Ints,
    first: Ints,
    rules: Ints,
    opening: int,
    bank: Ints,
    end: int,
) -> int:
    """Clocks before `end` for which banks are open, summed over the banks.

    `first[i]`: the first bank of command i. `rules[command]`: reach, stride and keeps. It takes every
    `stride`-th of `reach` banks; `keeps` is how many clocks after it its bank may be precharged, -1 for
    commands that do not touch rows.
    `opening`: the command that opens a row, the second half of an activation that has two.
    `bank[number]` is a working array: the clock of its activation (-1: closed), the clock from which
    it may be precharged.
    """
    total = 0
    for i in range(len(command)):
        kind = command[i]
        now = clock[i]
        reach, stride, keeps = rules[kind, 0], rules[kind, 1], rules[kind, 2]
        if keeps < 0:
            continue
        for number in range(first[i], first[i] + reach, stride):
            if kind == ACTIVATE or kind == opening:
                if bank[number, 0] < 0:
                    keeps_from = bank[number, 1] if kind != ACTIVATE else -1
                    bank[number, 1] = max(keeps_from, now + keeps)
                    if kind == opening:
                        bank[number, 0] = now
                continue
            if bank[number, 0] < 0:
                continue
            closes = now
            if READ <= kind <= WRITE_AP:
                bank[number, 1] = max(bank[number, 1], now + keeps)
                if kind == READ or kind == WRITE:
                    continue
                closes = bank[number, 1]
            total += min(closes, end) - bank[number, 0]
            bank[number, 0] = -1
    for number in range(len(bank)):
        if bank[number, 0] >= 0:
            total += end - bank[number, 0]
    return total


def _opening(standard: Standard) -> int:
    """The number of the command that opens a row."""
    completed_by = standard.by_number[ACTIVATE].completed_by
    return standard.names.index(completed_by) if completed_by else ACTIVATE


def _until_precharge(device: Device) -> Ints:
    """By command, the clocks after which its bank may be precharged; -1 if it does not affect rows."""
    standard, opening = device.standard, _opening(device.standard)
    closes = standard.names[PRECHARGE]

    def kept(number: int) -> int:
        # A command of several cycles begins its effect in the last.
        after = [
            device.clocks(rule.latency) + standard.by_number[number].cycles - 1
            for rule in standard.rules
            if rule.level == standard.levels[-1]
            and standard.names[number] in rule.previous
            and closes in rule.next
        ]
        return max(after, default=0)

    keeps = np.full(len(standard.by_number), -1, dtype=np.int64)
    # tRAS counts from either half of an activation that has two.
    for number in {ACTIVATE, opening, READ, WRITE}:
        keeps[number] = kept(number)
    keeps[READ_AP] = keeps[READ] + standard.by_number[READ_AP].cycles - standard.by_number[READ].cycles
    keeps[WRITE_AP] = keeps[WRITE] + standard.by_number[WRITE_AP].cycles - standard.by_number[WRITE].cycles
    for number, command in enumerate(standard.by_number):
        if command.closes and keeps[number] < 0:
            keeps[number] = 0
    return keeps


def _first_banks(trace: CommandTrace, device: Device) -> Ints:
    """The number of the first bank that each command takes."""
    for name, values, least, size in (
        ("rank", trace.rank, 0, device.ranks),
        ("bankgroup", trace.bankgroup, -1, device.bankgroups),
        ("bank", trace.bank, -1, device.banks_per_group),
    ):
        if len(values) and not least <= values.min() <= values.max() < size:
            raise InputError(f"a command's {name} is not within 0 to {size - 1}", "range", key=name)
    # For coordinates that a command does not address, the first one counts.
    scope = _scopes(device)[trace.command]
    group = np.where(scope == ONE_BANK, trace.bankgroup, 0).clip(0)
    bank = np.where(scope != WHOLE_RANK, trace.bank, 0).clip(0)
    first: Ints = (trace.rank * device.bankgroups + group) * device.banks_per_group + bank
    return first


def _renumbered(trace: CommandTrace, device: Device) -> CommandTrace:
    """The trace with commands as the device's standard numbers them.

    Raises:
        InputError: the standard does not have one of them.
    """
    numbers = trace.numbered(device.standard.names)
    if len(numbers) and numbers.min() < 0:
        unknown = trace.names_of(np.flatnonzero(numbers < 0)[:1])[0]
        raise InputError(f"{device.standard.name} has no command {unknown}", "unknown-name", key="command")
    return replace(trace, command=numbers, names=device.standard.names)


def _scopes(device: Device) -> Ints:
    """The scopes by command."""
    return np.array([device.standard.scope_of(command) for command in device.standard.by_number])


def last_clock(trace: CommandTrace, device: Device) -> int:
    """The clock of the last command or, if later, of the last beat of read data; 0 without commands."""
    reads = trace.clock[np.isin(trace.numbered(device.standard.names), (READ, READ_AP))]
    data = device.read_clocks
    return max(int(trace.clock.max(initial=0)), int(reads.max(initial=-data)) + data)


def count_trace(trace: CommandTrace, device: Device, end: int | None = None, start: int = 0) -> Counts:
    """Counts on which the energy of a channel depends, from its commands.

    Args:
        trace: the commands, in order of clocks; they should be legal.
        device: the channel.
        end: the clock up to which background counts; by default the clock of the last command or, if later,
            of the last beat of read data.
        start: the clock from which background counts.

    Raises:
        InputError: a command addresses what the device does not have.
    """
    if end is None:
        end = max(start, last_clock(trace, device))
    trace = _renumbered(trace, device)
    per_group, per_rank = device.banks_per_group, device.banks_per_rank
    scopes = {ONE_BANK: (1, 1), SAME_BANKS: (per_rank, per_group), WHOLE_RANK: (per_rank, 1)}
    scopes[BANK_PAIR] = (per_rank, max(per_rank // 2, 1))
    banks = np.array([scopes[scope] for scope in _scopes(device).tolist()], dtype=np.int64)
    open_clocks = sum_open(
        trace.clock,
        trace.command,
        _first_banks(trace, device),
        np.column_stack((banks, _until_precharge(device))),
        _opening(device.standard),
        np.full((device.banks, 2), -1, dtype=np.int64),
        end,
    )
    issued = np.bincount(trace.command, minlength=len(device.standard.names))
    return counts_of(issued, device.standard, (end - start) * device.ranks, int(open_clocks))


def from_trace(
    trace: CommandTrace,
    device: Device,
    currents: Currents | None = None,
    end: int | None = None,
    start: int = 0,
    lanes: int | None = None,
) -> dict[str, float | None] | None:
    """Energy in nJ of a channel's commands by component, with their `total`; see `count_trace`.

    Args:
        currents: of the device's chips, by default as `find_currents` finds them.
        lanes: the rank column holds this many lanes, each a channel of its own; all count up to `end`.

    Returns:
        None when the currents are not known.
    """
    currents = currents or find_currents(device)
    if currents is None:
        return None
    if end is None:
        end = max(start, last_clock(trace, device))
    if lanes is None:
        counts = count_trace(trace, device, end, start)
    else:
        parted = [_lane_of(trace, lane) for lane in range(lanes)]
        counted = [count_trace(lane, device, end, start) for lane in parted]
        counts = Counts(*(sum(values) for values in zip(*counted, strict=True)))
    parts = split(counts, channel_energy(device, currents))
    return None if parts is None else add_up(parts)


def _lane_of(trace: CommandTrace, lane: int) -> CommandTrace:
    """The commands of one lane, as a channel with one rank."""
    part = trace.take(np.flatnonzero(trace.rank == lane))
    return replace(part, rank=np.zeros_like(part.rank))
