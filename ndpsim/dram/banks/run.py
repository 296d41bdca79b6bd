"""Runs programs on devices with units in their banks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.dram.banks.in_order import run_in_order
from ndpsim.dram.banks.look_ahead import run_look_ahead
from ndpsim.dram.banks.lower import Ints, lower
from ndpsim.dram.banks.programs import Line, Lowered, lower_program
from ndpsim.dram.banks.state import CLOCK, LOGGED, make_state
from ndpsim.dram.spec.extension import LEVELS, BankDevice
from ndpsim.dram.traces.unit_commands import UnitCommands

_KERNELS = {"look-ahead": run_look_ahead, "in-order": run_in_order}
_FOR_EVER = 1 << 58
_LOG = 1 << 16  # commands of a part of the log


@dataclass(frozen=True, eq=False)
class BankRun:
    """What a run did.

    `cycles`: its last clock. `counts`: commands by name, over all channels. `per_channel`: commands by
    simulated channel, [channel, command]. `members`: the channels that these stand for.
    """

    cycles: int
    counts: dict[str, int]
    per_channel: Ints
    members: tuple[range, ...]
    commands: UnitCommands | None


def run_program(lines: Sequence[Line], device: BankDevice, record_commands: bool = False) -> BankRun:
    """Run a program to its end.

    Raises:
        InputError: it cannot end under these rules, or too many reads wait for a row.
    """
    lowered, tables = lower_program(lines, device), lower(device)
    program = lowered.program
    room = _LOG + 2 * len(lowered.members)
    state = make_state(tables, program, len(lowered.members), room if record_commands else 0)
    run, parts = _KERNELS[device.extension.controller], []
    outcome = 0
    while outcome == 0:
        outcome = run(tables, program, state, _FOR_EVER)
        parts.append(state.log[: state.value[LOGGED]].copy())
        state.value[LOGGED] = 0
    if outcome < 0:
        clock = int(state.value[CLOCK])
        what = "waits for ever" if outcome == -1 else "has too many accesses of the host with an opened row"
        raise InputError(f"the program {what} from clock {clock} on", "no-progress", key="program")
    sizes = np.array([len(run) for run in lowered.members])
    total = (state.issued * sizes[:, None]).sum(axis=0)
    counts = {name: int(n) for name, n in zip(device.names, total, strict=True) if n}
    commands = _expanded(np.concatenate(parts), lowered, device) if record_commands else None
    return BankRun(int(state.value[CLOCK]), counts, state.issued, lowered.members, commands)


def _expanded(log: Ints, lowered: Lowered, device: BankDevice) -> UnitCommands:
    """The commands of all channels from those of the simulated ones."""
    clock, simulated, command, line, column = log.T
    program, known = lowered.program, np.maximum(log[:, 3], 0)
    fixed = np.array([[level in c.path for level in LEVELS] for c in device.commands], dtype=np.bool_)
    shows_row = np.array([c.row for c in device.commands])[command]
    shows_column = np.array([c.column for c in device.commands])[command]
    address = np.where(line[:, None] >= 0, program.place[known], 0)
    address[line < 0, 0] = -1 - line[line < 0]
    address = np.where(fixed[command], address, -1)
    row = np.where(shows_row & (line >= 0), program.row[known], -1)
    column = np.where(shows_column, column, -1)
    sizes = np.array([len(run) for run in lowered.members])
    first = np.array([run[0] for run in lowered.members])
    times = sizes[simulated]
    index = np.repeat(np.arange(len(log)), times)
    within = np.arange(len(index)) - np.repeat(np.cumsum(times) - times, times)
    channel = first[simulated][index] + within
    order = np.lexsort((index, channel, clock[index]))
    index, channel = index[order], channel[order]
    columns = np.stack((clock, command, *address.T, row, column))[:, index]
    return UnitCommands(np.concatenate((columns[:2], channel[None], columns[2:])), device.names)
