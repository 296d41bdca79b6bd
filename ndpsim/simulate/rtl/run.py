"""A unit as hardware on a machine: found, checked, compiled and connected to the lanes."""

from __future__ import annotations

import logging
from pathlib import Path

from ndpsim.base.run_files import temporary_folder
from ndpsim.simulate.machine import NdpMachine, PlacedOnDimms
from ndpsim.simulate.rtl import units
from ndpsim.simulate.rtl.amaranth import AmaranthUnit
from ndpsim.simulate.rtl.build import UnitSource, compiler, inspect, library, read_source
from ndpsim.simulate.rtl.compiled import CompiledUnit
from ndpsim.simulate.rtl.handshake import Phase, RunningUnit, Sizes, check_ports
from ndpsim.simulate.rtl.loop import LanesWithUnit, UnitError, check_machine, sizes_of

_log = logging.getLogger("ndpsim")

_IDLE_EDGES = 64  # in which two runs that begin with other register values are compared


def lanes_with_unit(
    machine: NdpMachine,
    expert: PlacedOnDimms,
    recording: bool,
    start_clock: int,
    name: str,
    tiles: tuple[int, ...],
    waves: str = "",
) -> LanesWithUnit:
    """The lanes of a machine with a unit as hardware.

    Args:
        name: a bundled unit, a Verilog or RTLIL file, or ``FILE.py:CLASS``.
        tiles: the tokens of each tile.
        waves: a file for waveforms; "": none.

    Raises:
        InputError: the unit or the machine does not fit, or something is not installed.
    """
    check_machine(machine, expert)
    bits = expert.weights.format.up.bits
    sizes = sizes_of(machine, bits, max(tiles))
    if units.is_bundled(name):
        module = units.hardware_module(name)
        source = units.source_of(module, units.machine_parameters(module, machine, expert, max(tiles)), name)
    else:
        source = read_source(name, sizes, bits)
    return LanesWithUnit(machine, expert, recording, start_clock, start(source, sizes, waves))


def start(source: UnitSource, sizes: Sizes, waves: str = "") -> RunningUnit:
    """Check a unit, and begin to simulate it: compiled, or without a compiler in Amaranth's simulator.

    Raises:
        InputError: the unit does not fit, or something is not installed.
    """
    if source.make is not None and compiler() is None:
        _log.warning("no C++ compiler: the unit runs in Amaranth's simulator, which is much slower")
        own_fifo = source.own_fifo or check_ports(source.ports, sizes, source.name)
        return AmaranthUnit(source.make(), sizes, own_fifo, waves)
    own_fifo = _has_fifo(source, sizes)
    if source.make is None:
        _check_reset(source, sizes, own_fifo)
    return _load(library(source, own_fifo), sizes, own_fifo, waves)


def _has_fifo(source: UnitSource, sizes: Sizes) -> bool:
    """Check the ports; whether the unit has a FIFO of its own."""
    if source.own_fifo is not None:
        return source.own_fifo
    with temporary_folder() as folder:
        return check_ports(inspect(folder, source), sizes, source.name)


def _load(content: bytes, sizes: Sizes, own_fifo: bool, waves: str = "") -> CompiledUnit:
    with temporary_folder() as folder:
        path = Path(folder) / "unit.so"
        path.write_bytes(content)
        return CompiledUnit(path, sizes, own_fifo, waves)


def _check_reset(source: UnitSource, sizes: Sizes, own_fifo: bool) -> None:
    """Check that outputs after reset do not depend on the values with which registers begin.

    Raises:
        UnitError: one does: it is x.
    """
    runs = [_load(library(source, own_fifo, init), sizes, own_fifo) for init in (0, 1)]
    idle = Phase(0, 1 << 62, 1, 1, 1)
    for edge in range(_IDLE_EDGES):
        outputs = [run.outputs(edge, idle) for run in runs]
        for name in outputs[0]:
            if outputs[0][name] != outputs[1][name]:
                raise UnitError(f"{name} is x after reset", edge)
    for run in runs:
        run.close()
