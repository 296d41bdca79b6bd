"""Runs programs of units in banks."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from os import PathLike

from ndpsim.base.arguments import flag, instance, path_of, several
from ndpsim.base.errors import InputError
from ndpsim.base.jit import compiling_s
from ndpsim.config.banks import BankHardware, load_bank_hardware
from ndpsim.dram.banks.programs import Line, read_program
from ndpsim.dram.banks.run import BankRun, run_program
from ndpsim.dram.spec.extension import LEVELS, UnitCommand
from ndpsim.simulate.results.pim import PimResult


def run_pim(
    program: str | PathLike[str] | Sequence[Line],
    hw: str | PathLike[str] | BankHardware,
    sets: Sequence[str] = (),
    rules: str = "standard",
    record_commands: bool = False,
) -> PimResult:
    """Run a program of commands of units in banks.

    Args:
        program: a file in the form of the units (docs/banks.md), or its lines.
        hw: a name of ``ndpsim list pim-hw``, the path of such a file, or a `BankHardware`.
        sets: changes of the hardware, see `load_bank_hardware`.
        rules: "standard", or "reference": with all idealisations of the units' own simulator.
        record_commands: keep every command.

    Raises:
        InputError: the program or the hardware has a mistake, or the program cannot end.
    """
    hardware = bank_hardware_of(hw, sets, rules)
    if isinstance(program, str | os.PathLike):
        lines = read_program(path_of(program, "program"), hardware.device)
        return run_lines(lines, hardware, record_commands, os.fspath(program))
    listed = several(program, "program", lambda line, key: instance(line, key, Line))
    if not listed:
        raise InputError("has no lines", "range", key="program")
    return run_lines(listed, hardware, record_commands)


def bank_hardware_of(hw: str | PathLike[str] | BankHardware, sets: Sequence[str], rules: str) -> BankHardware:
    """The hardware of an argument; for others and errors see `load_bank_hardware`."""
    return hw if isinstance(hw, BankHardware) else load_bank_hardware(hw, sets, rules)


def run_lines(
    lines: Sequence[Line], hardware: BankHardware, record_commands: bool, name: str | None = None
) -> PimResult:
    """Run the lines of a program, which has this file; see `run_pim`."""
    record_commands = flag(record_commands, "record_commands")
    started, compiled = time.perf_counter(), compiling_s()
    run = run_program(lines, hardware.device, record_commands)
    compile_s = compiling_s() - compiled
    run_s = time.perf_counter() - started - compile_s
    return _result(name, lines, hardware, run, run_s, compile_s)


def _result(
    name: str | None,
    lines: Sequence[Line],
    hardware: BankHardware,
    run: BankRun,
    run_s: float,
    compile_s: float,
) -> PimResult:
    device = hardware.device
    time_ns = float(run.cycles * device.clock_ps / 1000)
    read, moved = 0, 0
    for command in device.commands:
        count, (in_banks, on_pins) = run.counts.get(command.name, 0), command_bytes(hardware, command)
        read, moved = read + count * in_banks, moved + count * on_pins
    sizes = [len(members) for members in run.members]
    return PimResult(
        cycles=run.cycles,
        time_ns=time_ns,
        clock_ns=float(device.clock_ps / 1000),
        requests=sum(line.size * len(line.channels) for line in lines),
        commands=run.counts,
        unit_bytes=read,
        unit_gbps=read / time_ns,
        pin_bytes=moved,
        channels=sum(size for size, counts in zip(sizes, run.per_channel, strict=True) if counts.any()),
        simulated_channels=len(sizes),
        config={"trace": name, "hardware": hardware.to_dict()},
        run_s=run_s,
        compile_s=compile_s,
        command_traces=run.commands,
    )


def command_bytes(hardware: BankHardware, command: UnitCommand) -> tuple[int, int]:
    """Bytes that units read or write in their banks by a command, and that cross the pins."""
    if command.drives:
        return 0, hardware.burst_bytes
    if not command.uses:
        return 0, 0
    banks = _banks_of(hardware, command.path)
    return max(banks // hardware.unit.get("banks", 1), 1) * hardware.burst_bytes, 0


def _banks_of(hardware: BankHardware, path: Sequence[str]) -> int:
    """Banks of a channel on which a command with this path acts."""
    sizes = zip(LEVELS, hardware.device.shape, strict=True)
    return math.prod(size for level, size in sizes if level not in path)
