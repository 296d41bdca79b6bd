"""A link between two ends, in one direction: messages leave in order, as packets with headers."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError
from ndpsim.units import exact

Ints = NDArray[np.int64]

_MOST = 1 << 62  # what a counter of ticks may reach


@dataclass(frozen=True)
class Pipe:
    """One direction of a point-to-point link.

    Attributes:
        gbps: bytes a ns on the wire, headers included, in GB/s.
        latency_ns: from the last byte sent to the same byte received.
        packet_bytes: payload of a packet, at most; a packet holds bytes of one message.
        header_bytes: what each packet occupies beside its payload.
    """

    gbps: float
    latency_ns: float
    packet_bytes: int
    header_bytes: int

    @functools.cached_property
    def byte_ps(self) -> Fraction:
        """Time of a byte on the wire in ps, exactly."""
        return 1000 / exact(self.gbps)

    @functools.cached_property
    def _ticks(self) -> tuple[int, int, int]:
        """Ticks in a ps, of a byte on the wire and of the latency, all whole."""
        latency = exact(self.latency_ns) * 1000
        ticks = math.lcm(self.byte_ps.denominator, latency.denominator)
        return ticks, int(self.byte_ps * ticks), int(latency * ticks)

    def wire_bytes(self, size_bytes: Ints) -> Ints:
        """Bytes that messages occupy on the wire: their own and a header for each of their packets.

        The last packet of each is possibly not full.
        """
        packets = -(-size_bytes // self.packet_bytes)
        return size_bytes + packets * self.header_bytes

    def busy_ps(self, size_bytes: Ints) -> Fraction:
        """Time for which messages occupy the wire, in ps, exactly."""
        return int(self.wire_bytes(size_bytes).sum()) * self.byte_ps

    def _checked_ticks(self, ready_ps: Ints, size_bytes: Ints) -> tuple[int, int, int]:
        """See `_ticks` and `arrivals`, which raises what this raises."""
        ticks, byte_ticks, latency_ticks = self._ticks
        total = int(ready_ps.max(initial=0)) * ticks + int(self.wire_bytes(size_bytes).sum()) * byte_ticks
        if total + latency_ticks >= _MOST:
            problem = f"{self.gbps!r} has too many digits for transfers as long as these"
            raise InputError(problem, "too-large", key="gbps")
        return self._ticks

    def arrivals(self, ready_ps: Ints, size_bytes: Ints) -> Ints:
        """When the last byte of each message has arrived, in ps, int64[n].

        A message starts when it is ready and the one before it has left: in order, without gaps between
        packets that are ready. Times are exact inside; what is returned is rounded up to a whole ps, once.

        Args:
            ready_ps: when each message may start, from 0; in any order, messages keep theirs.
            size_bytes: bytes of each message, from 1.

        Raises:
            InputError: times too long, at a rate of this many digits, for 64-bit counters.
        """
        if not len(ready_ps):
            return np.zeros(0, dtype=np.int64)
        ticks, byte_ticks, latency_ticks = self._checked_ticks(ready_ps, size_bytes)
        service = self.wire_bytes(size_bytes) * byte_ticks
        left = np.cumsum(service)
        # A message leaves after the last one before it that found the wire idle, and all since then.
        done = left + np.maximum.accumulate(ready_ps * ticks - (left - service))
        return -(-(done + latency_ticks) // ticks)
