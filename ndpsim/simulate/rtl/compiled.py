"""A unit compiled by Yosys (CXXRTL) and a C++ compiler, as a library in the cache."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from ndpsim.simulate.rtl.handshake import Advanced, Bytes, Ints, Phase, Sizes

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
