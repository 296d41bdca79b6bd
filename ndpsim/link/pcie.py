"""The link to a GPU: copies of several copy engines share one direction of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError
from ndpsim.link.copying import send_copies
from ndpsim.link.fabric import FAR
from ndpsim.link.point_to_point import check_link, wire_bytes
from ndpsim.units import exact

__all__ = ["Pcie"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Pcie:
    """One direction of a PCIe link.

    Attributes:
        gbps: bytes a ns, headers included, after line coding, in GB/s.
        latency_ns: from the last byte sent to its arrival.
        copy_engines: copies under way at once.
        packet_bytes: payload of a packet, at most.
        header_bytes: what each packet occupies beside its payload.

    Raises:
        InputError: no engine, or see `point_to_point.check_link`.
    """

    gbps: float
    latency_ns: float
    copy_engines: int
    packet_bytes: int
    header_bytes: int

    def __post_init__(self) -> None:
        check_link(self.gbps, self.latency_ns, self.packet_bytes, self.header_bytes)
        if self.copy_engines < 1:
            raise InputError(f"{self.copy_engines!r} is not a whole number from 1", key="copy_engines")

    @property
    def byte_ps(self) -> Fraction:
        """Time of a byte on the link in ps, exactly."""
        return 1000 / exact(self.gbps)

    def arrivals(self, ready_ps: Ints, size_bytes: Ints) -> Ints:
        """When each copy has arrived, in ps, int64[n], rounded up to a whole ps, once.

        Engines take copies in their order; the packets of the copies under way take turns on the link.

        Args:
            ready_ps: when each copy may start, from 0.
            size_bytes: bytes of each copy, from 1.

        Raises:
            InputError: times too long, at a rate of this many digits, for 64-bit counters.
        """
        latency = exact(self.latency_ns) * 1000
        ticks = math.lcm(self.byte_ps.denominator, latency.denominator)  # in a ps
        byte_ticks, latency_ticks = int(self.byte_ps * ticks), int(latency * ticks)
        on_wire = int(wire_bytes(size_bytes, self.packet_bytes, self.header_bytes).sum())
        if int(ready_ps.max(initial=0)) * ticks + on_wire * byte_ticks + latency_ticks >= FAR:
            raise InputError(f"{self.gbps!r} has too many digits for transfers as long as these", key="gbps")
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
