"""Requests of a host to a computing DIMM: addresses, reads and writes, and their rate."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ndpsim.base.arguments import path_of
from ndpsim.base.errors import InputError, one_of, shown
from ndpsim.base.options.host import PATTERNS, rate_gbps
from ndpsim.base.units import exact
from ndpsim.config import Hardware
from ndpsim.dimm.building import Stream
from ndpsim.dram.mapping import MAPPERS, Coordinates, map_addresses
from ndpsim.dram.spec import Device
from ndpsim.dram.state import FAR, Source, make_source
from ndpsim.dram.traces import Requests, read_requests
from ndpsim.simulate.lane import Ints
from ndpsim.simulate.memory import named_mapping

_ROUND = 1 << 16  # requests of a generated round, which is repeated
_SEED = 1
_MOST_PRODUCT, _MOST_PER = 1 << 61, 1 << 28
_GOLDEN = (5**0.5 - 1) / 2  # golden ratio: the fractional parts of its multiples are spread most evenly


@dataclass(frozen=True)
class HostTraffic:
    """The traffic of a host on one DIMM.

    Attributes:
        gbps: rate in GB/s; None: as fast as the DIMM accepts requests; 0: no requests.
        read_share: share of reads, 0 to 1; ignored with a trace.
        pattern: "sequential", "random", or the path of a request trace.
        requests: the requests of a trace.
    """

    gbps: float | None
    read_share: float
    pattern: str
    requests: Requests | None = None

    @classmethod
    def of(
        cls, gbps: Any, read_share: float, pattern: Any, bus_gbps: float, key: str = "host_gbps"
    ) -> HostTraffic:
        """Traffic from a caller's arguments; `key`: the name of the rate in messages.

        Raises:
            InputError: a rate is not a number from 0 to `bus_gbps`, nor "saturate"; or the pattern is neither
                a name nor a trace of addresses.
        """
        rate, name = rate_gbps(gbps, bus_gbps, key), _pattern(pattern)
        if name in PATTERNS:
            return cls(rate, read_share, name)
        requests = read_requests(name)
        if requests.address is None:
            problem = "locates requests by coordinates; host traffic needs addresses"
            raise InputError(problem, "unsupported", file=name)
        return cls(rate, read_share, name, requests)

    def pace(self, device: Device) -> tuple[int, int]:
        """Clocks between requests, as a fraction; 0 if they come as fast as possible, or never.

        The product of both numbers fits into a kernel's integer; rates of few digits are exact.
        """
        if not self.gbps:
            return 0, 1
        interval = device.burst_bytes * 1000 / exact(self.gbps) / device.clock_ps
        most = math.isqrt(_MOST_PRODUCT * interval.denominator // interval.numerator)
        interval = interval.limit_denominator(max(1, min(most, _MOST_PER)))
        return interval.numerator, interval.denominator


def _pattern(pattern: Any) -> str:
    """A name of `PATTERNS`, or the path of a file."""
    if isinstance(pattern, str) and pattern in PATTERNS:
        return str(pattern)
    try:
        written = path = str(path_of(pattern, "pattern"))
    except InputError:
        written, path = shown(pattern), ""
    if not os.path.isfile(path):
        problem = f"{one_of(written, PATTERNS, 'pattern')}, nor is it a file of requests"
        raise InputError(problem, "unknown-name", key="pattern")
    return path


@dataclass(frozen=True, eq=False)
class RequestRound:
    """Requests to a DIMM in order, one array element each; the last one is followed by the first.

    Attributes:
        at: coordinates, where the channel is the bus.
        write: 1 for writes.
        burst: numbers of the bursts by address.
        pace: the pace of the traffic.
        made: whether there are any requests.
    """

    at: Coordinates
    write: Ints
    burst: Ints
    pace: tuple[int, int]
    made: bool

    def stream(self, buses: int, start: int) -> Stream:
        """The endless requests by bus, from clock `start`."""
        numbers = [np.flatnonzero(self.at.channel == bus) for bus in range(buses)]
        sources = [self._source(chosen) for chosen in numbers]
        offered = [FAR if self.made and len(chosen) else 0 for chosen in numbers]
        return Stream(sources, numbers, start, self.pace, np.array(offered, dtype=np.int64))

    def first(self, bus: int, count: int) -> Source:
        """The first `count` requests of a bus, for a controller without other requests."""
        chosen = np.flatnonzero(self.at.channel == bus)
        rounds, place = np.divmod(np.arange(count, dtype=np.int64), len(chosen))
        number = rounds * len(self.write) + chosen[place]
        clocks, per = self.pace
        cycle = number // per * clocks + number % per * clocks // per if clocks else None
        return self._source(chosen[place], cycle)

    def on_ranks_from(self, first: int) -> RequestRound:
        """The requests for a DIMM whose ranks on the channel begin at `first`."""
        return replace(self, at=self.at._replace(rank=self.at.rank + first))

    def _source(self, chosen: Ints, cycle: Ints | None = None) -> Source:
        coordinates = (values[chosen] for values in self.at[:5])
        return make_source((*coordinates, self.write[chosen], self.burst[chosen]), cycle)


def host_round(hardware: Hardware, traffic: HostTraffic, first_place: int) -> RequestRound:
    """The requests of a traffic to a DIMM, on whose lanes weights are at places before `first_place`.

    The host's data is in the rows above. Addresses are mapped over the sub-channels and ranks of the DIMM;
    those in rows of weights, or beyond the DIMM, are folded into the host's rows.

    Raises:
        InputError: the weights leave no rows.
    """
    device, dimm, mapper = hardware.lane_device(), hardware.system.dimm, hardware.system.host.mapper
    first_row = -(-first_place // (device.banks * device.bursts_per_row))
    if first_row >= device.rows:
        problem = f"not supported: the weights take all {device.rows} rows of a bank and leave the host none"
        raise InputError(problem, "too-large", key="pattern")
    address, write = _requests(traffic, device, dimm.subchannels * dimm.ranks)
    mapping = named_mapping(hardware.system.dram) if mapper == "dram" else MAPPERS[mapper]
    coordinates = map_addresses(address, mapping, replace(device, ranks=dimm.ranks), dimm.subchannels)
    coordinates = Coordinates(*(values.astype(np.int64) for values in coordinates))
    row = first_row + coordinates.row % (device.rows - first_row)
    burst, made = address // device.burst_bytes, traffic.gbps != 0
    return RequestRound(coordinates._replace(row=row), write, burst, traffic.pace(device), made)


def _requests(traffic: HostTraffic, device: Device, lanes: int) -> tuple[Ints, Ints]:
    """Byte addresses of a round, and 1 for writes."""
    capacity = lanes * device.capacity_bytes
    if traffic.requests is not None:
        assert traffic.requests.address is not None
        return traffic.requests.address % capacity, traffic.requests.write.astype(np.int64)
    number = np.arange(_ROUND, dtype=np.int64)
    if traffic.pattern == "random":
        number = np.random.default_rng(_SEED).integers(0, capacity // device.burst_bytes, _ROUND)
    # Reads and writes mix evenly, also among every second or fourth request, which are on one bus or bank
    # group.
    is_read = np.arange(_ROUND) * _GOLDEN % 1 < traffic.read_share
    return number * device.burst_bytes, (~is_read).astype(np.int64)
