"""Runs programs on devices with units in their banks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.dram.banks.in_order import run_in_order
from ndpsim.dram.banks.lines import Lines
from ndpsim.dram.banks.look_ahead import run_look_ahead
from ndpsim.dram.banks.lower import BankTables, Ints, lower
from ndpsim.dram.banks.programs import Line, Program
from ndpsim.dram.banks.repeats import SKIPPED, Repeats, make_repeats, repeats_for
from ndpsim.dram.banks.state import (
    CLOCK,
    LOGGED,
    MASTER,
    PROGRESS,
    UNIT_FIRST,
    BankProgram,
    BankState,
    make_state,
)
from ndpsim.dram.spec.extension import LEVELS, BankDevice
from ndpsim.dram.traces.unit_commands import UnitCommands

_KERNELS = {"look-ahead": run_look_ahead, "in-order": run_in_order}
_STRIDES = {"look-ahead": 40, "in-order": 3}  # lines between marks; lines in order have many requests
_FOR_EVER = 1 << 58
_LOG = 1 << 16  # commands of a part of the log


@dataclass(frozen=True, eq=False)
class BankRun:
    """What a run did.

    `cycles`: its last clock; `skipped`: those of repeated stretches. `counts`: commands by name, over all
    channels. `per_channel`: commands by simulated channel, [channel, command]. `members`: the channels that
    these stand for. `requests`: those of the program, over all channels. `lists`, `repeats`: the lists of
    channels and the stretches, for a later run.
    """

    cycles: int
    skipped: int
    requests: int
    counts: dict[str, int]
    per_channel: Ints
    members: tuple[range, ...]
    commands: UnitCommands | None
    lists: tuple[tuple[int, ...], ...] = ()
    repeats: Repeats | None = None


class Host(Protocol):
    """A host beside the program; see `dimm.banks.beside`."""

    def run(self, tables: BankTables, program: BankProgram, state: BankState, until: int) -> int:
        """As `run_in_order`."""


def run_program(
    program: Program | Sequence[Line],
    device: BankDevice,
    record_commands: bool = False,
    skip: bool = True,
    host: Callable[[int], Host] | None = None,
    until: int | None = None,
    earlier: BankRun | None = None,
) -> BankRun:
    """Run a program to its end.

    Args:
        program: the program.
        device: the device.
        record_commands: keep every command; nothing is skipped.
        skip: restore the ends of stretches that come again, which gives the same result.
        host: makes a host beside the program for so many simulated channels; nothing is skipped.
        until: the clock at which to end: refreshes, and a host that goes on, fill the time until then.
        earlier: a run of a program with the same words on the same device, whose stretches are known.

    Raises:
        InputError: it cannot end under these rules, or too many reads wait for a row.
    """
    known = () if earlier is None else earlier.lists
    lines, tables = Lines(program, device, host is not None, known, rests=until is not None), lower(device)
    last = _FOR_EVER if until is None else until
    room = _LOG + 2 * len(lines.members)
    state = make_state(tables, lines.program, len(lines.members), room if record_commands else 0)
    controller = device.extension.controller
    skips = skip and not record_commands and host is None
    stride = _STRIDES[controller] if skips else 0
    if earlier is None or earlier.repeats is None or not skips:
        repeats = make_repeats(tables, state, stride, lines.finals, lines.writes)
    else:
        earlier.repeats.value[:] = 0
        repeats = repeats_for(earlier.repeats, tables, state)
    run, beside = _KERNELS[controller], None if host is None else host(len(lines.members))
    if beside is not None:
        state.channel[:, MASTER] = UNIT_FIRST
        lines.reserve(state)
    parts, outcome = list[Ints](), 0
    while outcome in (0, 2) and state.value[CLOCK] < last:
        if beside is None:
            outcome = run(tables, lines.program, state, repeats, last)
        else:
            outcome = beside.run(tables, lines.program, state, last)
        if record_commands:
            parts.append(_expanded(_resolved(state.log[: state.value[LOGGED]], lines, device), lines.members))
        state.value[LOGGED] = 0
        if outcome == -1 and lines.is_over(state):  # it only waits for its end
            outcome, state.value[PROGRESS] = 0, state.value[CLOCK]
            if not device.refreshes:
                state.value[CLOCK] = last
        if outcome == 2:
            state = lines.advance(state, repeats)
            repeats = repeats_for(repeats, tables, state)
    if outcome < 0:
        clock = int(state.value[CLOCK])
        what = "waits for ever" if outcome == -1 else "has too many accesses of the host with an opened row"
        raise InputError(f"the program {what} from clock {clock} on", "no-progress", key="program")
    sizes = np.array([len(run) for run in lines.members])
    total = (state.issued * sizes[:, None]).sum(axis=0)
    counts = {name: int(n) for name, n in zip(device.names, total, strict=True) if n}
    commands = UnitCommands(np.concatenate(parts, axis=1), device.names) if record_commands else None
    return BankRun(
        int(state.value[CLOCK]),
        int(repeats.value[SKIPPED]),
        lines.requests,
        counts,
        state.issued,
        lines.members,
        commands,
        lines.lists,
        repeats,
    )


def _resolved(log: Ints, lines: Lines, device: BankDevice) -> Ints:
    """Clock, command, simulated channel, address, row and column of a part of the log."""
    clock, simulated, command, line, column = log.T
    program, known = lines.program, np.maximum(line, 0)
    fixed = np.array([[level in c.path for level in LEVELS] for c in device.commands], dtype=np.bool_)
    shows_row = np.array([c.row for c in device.commands])[command]
    shows_column = np.array([c.column for c in device.commands])[command]
    address = np.where(line[:, None] >= 0, program.place[known], 0)
    address[line < 0, 0] = -1 - line[line < 0]
    address = np.where(fixed[command], address, -1)
    row = np.where(shows_row & (line >= 0), program.row[known], -1)
    column = np.where(shows_column, column, -1)
    return np.stack((clock, command, simulated, *address.T, row, column))


def _expanded(log: Ints, members: Sequence[range]) -> Ints:
    """The commands of all channels from those of the simulated ones."""
    clock, simulated = log[0], log[2]
    sizes, first = np.array([len(run) for run in members]), np.array([run[0] for run in members])
    times = sizes[simulated]
    index = np.repeat(np.arange(log.shape[1]), times)
    within = np.arange(len(index)) - np.repeat(np.cumsum(times) - times, times)
    channel = first[simulated][index] + within
    order = np.lexsort((index, channel, clock[index]))
    columns = log[:, index[order]]
    columns[2] = channel[order]
    return columns
