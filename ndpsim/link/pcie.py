"""The link to a GPU: copies of several copy engines share one direction of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndpsim.link.copying import send_copies
from ndpsim.link.point_to_point import Pipe

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Pcie(Pipe):
    """One direction of a PCIe link; `gbps` is after line coding.

    Attributes:
        copy_engines: copies under way at once.
    """

    copy_engines: int

    def arrivals(self, ready_ps: Ints, size_bytes: Ints) -> Ints:
        """When each copy has arrived, in ps, int64[n], rounded up to a whole ps, once.

        Engines take copies in their order; the packets of the copies under way take turns on the link.

        Args:
            ready_ps: when each copy may start, from 0.
            size_bytes: bytes of each copy, from 1.

        Raises:
            InputError: times too long, at a rate of this many digits, for 64-bit counters.
        """
        ticks, byte_ticks, latency_ticks = self._checked_ticks(ready_ps, size_bytes)
        done, ready = np.zeros_like(size_bytes), ready_ps * ticks
        engines = np.zeros((3, self.copy_engines), dtype=np.int64)
        of_packet = (self.packet_bytes, self.header_bytes)
        send_copies(ready, size_bytes, *of_packet, byte_ticks, latency_ticks, engines, done)
        return -(-done // ticks)
