"""The link to a GPU: copies of several copy engines share one direction of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndpsim.dimm.link.copying import send_copies
from ndpsim.dimm.link.point_to_point import Pipe

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PcieLink(Pipe):
    """One direction of a PCIe link; `gbps` is after line coding.

    Attributes:
        copy_engines: number of copies at once.
    """

    copy_engines: int

    def arrivals(self, ready_ps: Ints, size_bytes: Ints) -> Ints:
        """The arrival time of each copy in ps, int64[n], rounded up once to a whole ps.

        Engines take copies in order; the packets of concurrent copies take turns on the link.

        Args:
            ready_ps: the earliest start of each copy, from 0.
            size_bytes: bytes of each copy, from 1.

        Raises:
            InputError: the times are too long for 64-bit counters at this rate.
        """
        ticks, byte_ticks, latency_ticks = self._checked_ticks(ready_ps, size_bytes)
        done, ready = np.zeros_like(size_bytes), ready_ps * ticks
        engines = np.zeros((3, self.copy_engines), dtype=np.int64)
        sizes = (self.packet_bytes, self.header_bytes)
        send_copies(ready, size_bytes, *sizes, byte_ticks, latency_ticks, engines, done)
        return -(-done // ticks)
