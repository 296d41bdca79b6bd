"""The link to a GPU: copies of several copy engines share one direction of it."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.jit import kernel
from ndpsim.base.units import exact
from ndpsim.dimm.link.fabric import FAR

# ---- A link between two ends, in one direction: messages leave in order, as packets with headers


_MOST = 1 << 62  # maximum of a counter of ticks


@dataclass(frozen=True)
class Pipe:
    """One direction of a point-to-point link.

    Attributes:
        gbps: bytes a ns on the wire, headers included, in GB/s.
        latency_ns: from the last byte sent to the same byte received.
        packet_bytes: maximum payload of a packet; a packet has bytes of one message.
        header_bytes: header of each packet.
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
        """Bytes of messages on the wire: their own bytes, and a header for each packet.

        The last packet of a message may not be full.
        """
        packets = -(-size_bytes // self.packet_bytes)
        return size_bytes + packets * self.header_bytes

    def busy_ps(self, size_bytes: Ints) -> Fraction:
        """Time for which messages occupy the wire, in ps, exactly."""
        return int(self.wire_bytes(size_bytes).sum()) * self.byte_ps

    def _checked_ticks(self, ready_ps: Ints, on_wire: int) -> tuple[int, int, int]:
        """`_ticks`, if times in ticks fit in 64 bits; on_wire: bytes of all messages on the wire."""
        ticks, byte_ticks, latency_ticks = self._ticks
        if int(ready_ps.max(initial=0)) * ticks + on_wire * byte_ticks + latency_ticks >= _MOST:
            problem = f"{self.gbps!r} has too many digits for transfers as long as these"
            raise InputError(problem, "too-large", key="gbps")
        return self._ticks

    def arrivals(self, ready_ps: Ints, size_bytes: Ints) -> Ints:
        """The arrival time of the last byte of each message in ps, int64[n].

        A message starts when it is ready and the previous one has left. Messages stay in order, without gaps
        between ready packets. Internal times are exact; results are rounded up once to a whole ps.

        Args:
            ready_ps: the earliest start of each message, from 0, in any order; messages keep their order.
            size_bytes: bytes of each message, from 1.

        Raises:
            InputError: times too long, at a rate of this many digits, for 64-bit counters.
        """
        if not len(ready_ps):
            return np.zeros(0, dtype=np.int64)
        on_wire = self.wire_bytes(size_bytes)
        left = np.cumsum(on_wire)
        ticks, byte_ticks, latency_ticks = self._checked_ticks(ready_ps, int(left[-1]))
        service, left = on_wire * byte_ticks, left * byte_ticks
        # A message leaves after the last message that found the wire idle, and all messages since.
        done = left + np.maximum.accumulate(ready_ps * ticks - (left - service))
        return -(-(done + latency_ticks) // ticks)


# ---- Copies over one link; each copy engine sends the packets of its copies one after the other


@kernel
def send_copies(ready, size, packet_bytes, header_bytes, byte_ticks, latency, engine_state, done):
    """Send copies until all have arrived; times are ticks.

    Copies are assigned in order to the next free engine. Engines with a ready copy take turns on the link,
    packet by packet.

    Args:
        ready, size: [copy].
        packet_bytes, header_bytes: maximum payload and header of a packet.
        byte_ticks, latency: ticks of a byte on the link, and from the last byte to a packet's arrival.
        engine_state: [3, engine]: scratch: its copy or -1, the bytes left, and the tick from which it can
            send.
        done: [copy]: the tick at which each copy has arrived.
    """
    copy_of, left, since = engine_state[0], engine_state[1], engine_state[2]
    engines, copies = len(copy_of), len(ready)
    copy_of[:] = -1
    taken, sent, free, turn = 0, 0, 0, 0
    while sent < copies:
        tick = FAR
        for engine in range(engines):
            if copy_of[engine] < 0 and taken < copies:
                copy_of[engine], left[engine] = taken, size[taken]
                since[engine] = ready[taken]
                taken += 1
            if copy_of[engine] >= 0:
                tick = min(tick, since[engine])
        tick = max(tick, free)
        while copy_of[turn] < 0 or since[turn] > tick:
            turn = 0 if turn + 1 == engines else turn + 1
        payload = min(left[turn], packet_bytes)
        free = tick + (payload + header_bytes) * byte_ticks
        left[turn] -= payload
        if left[turn] == 0:
            done[copy_of[turn]] = free + latency
            copy_of[turn] = -1
            sent += 1
        turn = 0 if turn + 1 == engines else turn + 1


# ---- The link to a GPU: copies of several copy engines share one direction of it


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
        on_wire = int(self.wire_bytes(size_bytes).sum())
        ticks, byte_ticks, latency_ticks = self._checked_ticks(ready_ps, on_wire)
        done, ready = np.zeros_like(size_bytes), ready_ps * ticks
        engines = np.zeros((3, self.copy_engines), dtype=np.int64)
        sizes = (self.packet_bytes, self.header_bytes)
        send_copies(ready, size_bytes, *sizes, byte_ticks, latency_ticks, engines, done)
        return -(-done // ticks)
