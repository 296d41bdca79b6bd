"""The link to a GPU: copies of several copy engines share one direction of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError
from ndpsim.link.copying import send_copies
from ndpsim.link.point_to_point import Pipe

__all__ = ["Pcie"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Pcie(Pipe):
    """One direction of a PCIe link; `gbps` is after line coding.

    Attributes:
        copy_engines: copies under way at once.

    Raises:
        InputError: no engine, or see `Pipe`.
    """

    copy_engines: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.copy_engines < 1:
            raise InputError(f"{self.copy_engines!r} is not a whole number from 1", key="copy_engines")

    def arrivals(self, ready_ps: Ints, size_bytes: Ints) -> Ints:
        """When each copy has arrived, in ps, int64[n], rounded up to a whole ps, once.

        Engines take copies in their order; the packets of the copies under way take turns on the link.

        Args:
            ready_ps: when each copy may start, from 0.
            size_bytes: bytes of each copy, from 1.

        Raises:
            InputError: times too long, at a rate of this many digits, for 64-bit counters.
        """
        self._bytes_on_wire(ready_ps, size_bytes)
        ticks, byte_ticks, latency_ticks = self._ticks
        done = np.zeros_like(size_bytes)
        scratch = np.zeros((3, self.copy_engines), dtype=np.int64)
        send_copies(
            ready_ps * ticks,
            size_bytes,
            self.packet_bytes,
            self.header_bytes,
            byte_ticks,
            latency_ticks,
            scratch[0],
            scratch[1],
            scratch[2],
            done,
        )
        return -(-done // ticks)
