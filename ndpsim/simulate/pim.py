"""Runs programs of units in banks."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from ndpsim.base.arguments import Sets, flag, instance, path_of, several
from ndpsim.base.errors import InputError
from ndpsim.base.jit import compiling_s
from ndpsim.config.banks import BankHardware, load_bank_hardware
from ndpsim.dram.banks.programs import Line, Program, read_program
from ndpsim.dram.banks.run import BankRun
from ndpsim.dram.banks.several import run_programs
from ndpsim.dram.energy.channel import add_up, transfer_nj
from ndpsim.dram.spec.extension import LEVELS, UnitCommand
from ndpsim.simulate.pim_host import traffic_of
from ndpsim.simulate.results.pim import PimResult


def run_pim(
    program: str | PathLike[str] | Sequence[str | PathLike[str]] | Sequence[Line] | Program,
    hw: str | PathLike[str] | BankHardware,
    sets: Sets = (),
    rules: str = "standard",
    record_commands: bool = False,
    host: Mapping[str, Any] | None = None,
) -> PimResult:
    """Run a program of commands of units in banks.

    >>> ndpsim.run_pim("attention.csv", "attacc").cycles  # doctest: +SKIP
    165

    Args:
        program: a file in the form of the units (docs/banks.md), its lines, or a `Program` that makes them;
            or several files, which run at once on channels of their own.
        hw: a name of ``ndpsim list pim-hw``, the path of such a file, or a `BankHardware`.
        sets: changes of the hardware, see `load_bank_hardware`.
        rules: "standard", or "reference": with all idealisations of the units' own simulator.
        record_commands: keep every command.
        host: a host that reads and writes other rows until the units are done, with arguments of
            `simulate_contention`: host_gbps (of all channels), read_share, pattern ("sequential" or
            "random"), arbitration, slice_clocks. None: the program runs alone.

    Raises:
        InputError: the program or the hardware has a mistake, or the program cannot end.
    """
    hardware = bank_hardware_of(hw, sets, rules)
    if isinstance(program, str | os.PathLike):
        program = [program]
    if isinstance(program, Program):
        return run_lines([program], hardware, record_commands, host=host)
    listed = several(program, "program", _file_or_line)
    if not listed:
        raise InputError("has no lines", "range", key="program")
    if isinstance(listed[0], Line):
        lines = [instance(line, "program", Line) for line in listed]
        return run_lines([lines], hardware, record_commands, host=host)
    files = [path_of(file, "program") for file in listed]
    programs = [read_program(file, hardware.device) for file in files]
    return run_lines(programs, hardware, record_commands, " ".join(map(str, files)), host)


def _file_or_line(item: object, key: str) -> Any:
    return item if isinstance(item, str | os.PathLike) else instance(item, key, Line)


def bank_hardware_of(hw: str | PathLike[str] | BankHardware, sets: Sets, rules: str) -> BankHardware:
    """The hardware of an argument; for others and errors see `load_bank_hardware`."""
    return hw if isinstance(hw, BankHardware) else load_bank_hardware(hw, sets, rules)


def run_lines(
    programs: Sequence[Sequence[Line] | Program],
    hardware: BankHardware,
    record_commands: bool,
    name: str | None = None,
    host: Mapping[str, Any] | None = None,
) -> PimResult:
    """Run the lines of programs, which have this file or these; see `run_pim`."""
    record_commands = flag(record_commands, "record_commands")
    started, compiled = time.perf_counter(), compiling_s()
    traffic = None if host is None else traffic_of(host, hardware)
    device, beside = hardware.device, None
    run = run_programs(programs, device, record_commands, None if traffic is None else traffic.beside)
    if traffic is not None:
        beside = traffic.result(run, run_programs(programs, device).cycles)
    compile_s = compiling_s() - compiled
    run_s = time.perf_counter() - started - compile_s
    result = _result(name, hardware, run, run_s, compile_s)
    return result if beside is None else replace(result, host=beside)


def _result(
    name: str | None,
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
        skipped_share=run.skipped / run.cycles,
        time_ns=time_ns,
        clock_ns=float(device.clock_ps / 1000),
        requests=run.requests,
        commands=run.counts,
        unit_bytes=read,
        unit_gbps=read / time_ns,
        pin_bytes=moved,
        channels=sum(size for size, counts in zip(sizes, run.per_channel, strict=True) if counts.any()),
        simulated_channels=len(sizes),
        energy_nj=_energy(hardware, run, read, moved),
        config={"trace": name, "hardware": hardware.to_dict()},
        run_s=run_s,
        compile_s=compile_s,
        command_traces=run.commands,
    )


def _energy(hardware: BankHardware, run: BankRun, read: int, moved: int) -> dict[str, float | None]:
    """Energies in nJ; see `PimResult`. `read`: bytes of units; `moved`: bytes across the pins."""
    parts: dict[str, float | None] = {}
    for command in hardware.device.commands:
        count = run.counts.get(command.name, 0)
        if count:
            banks = _banks_of(hardware, command.path) if command.acts_on_banks else 1
            pj = hardware.energy.get(command.name)
            parts[command.name] = None if pj is None else pj * banks * count / 1000
    parts["io"] = transfer_nj(moved, hardware.energy.get("io_pj_per_bit"))
    several = hardware.unit.get("vectors", 1) > 1  # products of a column that was read are then not counted
    product = None if several else hardware.energy.get("product_pj")
    products = read / hardware.unit.get("element_bytes", 2)
    parts["multiply"] = None if product is None else product * products / 1000
    return add_up(parts)


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
