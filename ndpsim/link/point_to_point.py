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

__all__ = ["Pipe", "check_link", "packet_count", "wire_bytes"]

Ints = NDArray[np.int64]

_MOST = 1 << 62  # what a counter of ticks may reach


def packet_count(size_bytes: Ints, packet_bytes: int) -> Ints:
    """Packets that messages of `size_bytes` take, the last of each possibly not full."""
    return -(-size_bytes // packet_bytes)


def wire_bytes(size_bytes: Ints, packet_bytes: int, header_bytes: int) -> Ints:
    """Bytes that messages occupy on the wire: their own and a header for each of their packets."""
    return size_bytes + packet_count(size_bytes, packet_bytes) * header_bytes


def check_link(gbps: float, latency_ns: float, packet_bytes: int, header_bytes: int) -> None:
    """Make sure that a link can carry something.

    Raises:
        InputError: no bandwidth, a negative latency or header, or packets without payload.
    """
    checks = (
        ("gbps", gbps, "a number above 0", 0 < gbps < math.inf),
        ("latency_ns", latency_ns, "a number from 0", 0 <= latency_ns < math.inf),
        ("packet_bytes", packet_bytes, "a whole number from 1", packet_bytes >= 1),
        ("header_bytes", header_bytes, "a whole number from 0", header_bytes >= 0),
    )
    for key, value, allowed, good in checks:
        if not good:
            raise InputError(f"{value!r} is not {allowed}", key=key)


@dataclass(frozen=True)
class Pipe:
    """One direction of a point-to-point link.

    Attributes:
        gbps: bytes a ns on the wire, headers included, in GB/s.
        latency_ns: from the last byte sent to the same byte received.
        packet_bytes: payload of a packet, at most; a packet holds bytes of one message.
        header_bytes: what each packet occupies beside its payload.

    Raises:
        InputError: see `check_link`.
    """

    gbps: float
    latency_ns: float
    packet_bytes: int
    header_bytes: int

    def __post_init__(self) -> None:
        check_link(self.gbps, self.latency_ns, self.packet_bytes, self.header_bytes)

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

    def busy_ps(self, size_bytes: Ints) -> Fraction:
        """Time for which messages occupy the wire, in ps, exactly."""
        return int(wire_bytes(size_bytes, self.packet_bytes, self.header_bytes).sum()) * self.byte_ps

    def _bytes_on_wire(self, ready_ps: Ints, size_bytes: Ints) -> Ints:
        """Bytes that each message occupies on the wire; see `arrivals`, which raises what this raises."""
        ticks, byte_ticks, latency_ticks = self._ticks
        on_wire = wire_bytes(size_bytes, self.packet_bytes, self.header_bytes)
        total = int(ready_ps.max(initial=0)) * ticks + int(on_wire.sum()) * byte_ticks
        if total + latency_ticks >= _MOST:
            raise InputError(f"{self.gbps!r} has too many digits for transfers as long as these", key="gbps")
        return on_wire

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
        ticks, byte_ticks, latency_ticks = self._ticks
        service = self._bytes_on_wire(ready_ps, size_bytes) * byte_ticks
        left = np.cumsum(service)
        # A message leaves after the last one before it that found the wire idle, and all since then.
        done = left + np.maximum.accumulate(ready_ps * ticks - (left - service))
        return -(-(done + latency_ticks) // ticks)
