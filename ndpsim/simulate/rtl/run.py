"""A unit as hardware on a machine: found, checked, compiled (Yosys' CXXRTL), connected to the lanes."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Any

import numpy as np

from ndpsim.base.run_files import temporary_folder
from ndpsim.simulate.machine import NdpMachine, PlacedOnDimms
from ndpsim.simulate.rtl import units
from ndpsim.simulate.rtl.amaranth import AmaranthUnit
from ndpsim.simulate.rtl.build import UnitSource, compiler, inspect, library, read_source
from ndpsim.simulate.rtl.handshake import Advanced, Bytes, Ints, Phase, RunningUnit, Sizes, check_ports
from ndpsim.simulate.rtl.loop import LanesWithUnit, UnitError, check_machine, sizes_of

_ROOM = 1 << 14  # edges for which the results of one call have room


class CompiledUnit:
    """A unit in a library; see `handshake.RunningUnit`."""

    def __init__(self, library: Path, sizes: Sizes, own_fifo: bool, waves: str = "") -> None:
        self.own_fifo, self._sizes = own_fifo, sizes
        self._library = ctypes.CDLL(str(library))
        self._library.make.restype = ctypes.c_void_p
        self._library.advance.restype = self._library.edge.restype = ctypes.c_int64
        numbers = (ctypes.c_int64(each) for each in (sizes.lanes, sizes.burst_bytes, sizes.vector_bytes))
        self._run = ctypes.c_void_p(self._library.make(*numbers, waves.encode()))
        self._kept: list[Bytes] = []  # the library has their addresses
        self._results = np.zeros((_ROOM, 4), dtype=np.int64)
        self._credits = np.zeros((_ROOM * sizes.lanes, 3), dtype=np.int64)

    @property
    def edge(self) -> int:
        return int(self._library.edge(self._run))

    def set_weights(self, phase: int, weights: Bytes) -> None:
        self._kept.append(weights)
        self._library.weights(self._run, ctypes.c_int64(phase), _address(weights))

    def add_activations(self, lanes: Ints, places: Ints, vectors: Bytes) -> None:
        self._kept.append(vectors)
        lanes, places = np.ascontiguousarray(lanes), np.ascontiguousarray(places)
        count = ctypes.c_int64(len(vectors))
        self._library.add_activations(self._run, count, *map(_address, (lanes, places, vectors)))

    def add_bursts(self, lane: int, fields: Ints) -> None:
        fields = np.ascontiguousarray(fields)
        count = ctypes.c_int64(len(fields))
        self._library.add_bursts(self._run, count, ctypes.c_int64(lane), _address(fields))

    def advance(self, until: int, phase: Phase) -> Advanced:
        until = min(until, self.edge + _ROOM)
        counts = np.zeros(3, dtype=np.int64)
        numbers = (ctypes.c_int64(each) for each in (until, *(phase[1:2] + phase[0:1] + phase[2:])))
        found = self._library.advance(
            self._run, *numbers, *map(_address, (self._results, self._credits, counts))
        )
        given, lost, edge = counts.tolist()
        return Advanced(
            self._results[:found].copy(),
            self._credits[:given].copy(),
            (lost, edge) if lost >= 0 else None,
        )

    def outputs(self, edge: int, phase: Phase) -> dict[str, bytes]:
        """The outputs that say whether others are valid, before an edge."""
        self.advance(edge, phase)
        words = np.zeros(64, dtype=np.uint32)
        ready = -(-self._sizes.lanes // 32)
        self._library.outputs(self._run, ctypes.c_void_p(words.ctypes.data))
        return {"in_ready": words[:ready].tobytes(), "out_valid": words[ready : ready + 1].tobytes()}

    def close(self) -> None:
        if self._run:
            self._library.destroy(self._run)
            self._run = ctypes.c_void_p()


def _address(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


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
