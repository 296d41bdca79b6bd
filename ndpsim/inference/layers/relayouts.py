"""Times of moves of experts between DIMMs, from cycle-level simulations.

On a ring of links some relayouts are equivalent: those between two DIMMs at equal distance, and those between
one DIMM and the stripes over all, where odd DIMMs are mirror images of even ones (even DIMMs send to the
opposite DIMM in one direction, odd ones in the other). Only one of them is simulated. Between two DIMMs this
is exact. Stripes differ in the order of bursts, which changes the time of an expert of deepseek-v2 by less
than 0.1%. If lanes have few bursts, every relayout is simulated.

Distance only adds the latency of more links, as long as buffers hold the packets on the way: on `trimoe`
20.8 ns a link to the 2 ms of an expert of deepseek-v2. If the farthest DIMM takes less than 0.1% longer than
the nearest, only these are simulated, and the others are on the line between them.

A large expert is simulated as equal slices of its columns, one after the other. This changes the time of an
expert of deepseek-v2 (3 slices) or mixtral-8x7b (28) on `trimoe` by less than 0.1%, and its energy above
standby by up to 0.5%.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache as cache_results
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.config import Hardware
from ndpsim.dimm.layout import ExpertFormat, ExpertWeights, make_layout
from ndpsim.dimm.link import Network
from ndpsim.inference.layers.location import Location
from ndpsim.inference.layers.shared_dimm import simulation_threads
from ndpsim.inference.layers.standby import Parts, Standby, unknown
from ndpsim.policies.views import STRIPED
from ndpsim.simulate import simulate_relayout
from ndpsim.simulate.machine import geometry_of, named_weights
from ndpsim.simulate.relayout_plan import access_by_units
from ndpsim.simulate.results.cache import Lookup, ResultCache
from ndpsim.simulate.results.relayout import MovedExpert
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.workload.models import Expert

Ints = NDArray[np.int64]

_MOST_MOVED = 1 << 24  # maximum bytes of a simulated relayout, which needs some 15 times as much memory
_EVEN_BURSTS = 1000  # bursts of a lane: stripes are then equal within 0.1%
_ON_A_LINE = 0.001  # the share by which the farthest DIMM may take longer than the nearest


@dataclass(frozen=True)
class RelayoutCost:
    """A move of an expert between layouts, without other work.

    Attributes:
        time_ns: from the first command to the last beat written.
        bytes: the bytes of the weights that move.
        wire_ns: time for which packets, including headers, occupy each wire, by its name.
        dimm_read_gbps, dimm_written_gbps: rates of reads and writes of each DIMM, in whole bursts.
        added_nj: as in `NdpCost`.
    """

    time_ns: float
    bytes: int
    wire_ns: Mapping[str, float]
    dimm_read_gbps: Mapping[int, float]
    dimm_written_gbps: Mapping[int, float]
    added_nj: Parts

    def towards(self, other: RelayoutCost, share: float) -> RelayoutCost:
        """The cost on the line to another one that takes the same from each wire and DIMM."""

        def between(begin: float, end: float) -> float:
            return (1 - share) * begin + share * end

        added = None
        if self.added_nj is not None and other.added_nj is not None:
            pairs = {name: (nj, other.added_nj[name]) for name, nj in self.added_nj.items()}
            added = {
                name: None if begin is None or end is None else between(begin, end)
                for name, (begin, end) in pairs.items()
            }
        return replace(self, time_ns=between(self.time_ns, other.time_ns), added_nj=added)


class Relayouts:
    """The costs of relayouts of one model's experts.

    Args:
        memory, weights, bits: as in `Costs`.
        expert_bytes: the bytes of an expert's weights.
        standby: the standby power of the memory.
        cache: as in `simulate_expert`.
        moving: the factor by which a move of an expert takes longer beside the host's traffic; None: there is
            none.

    Attributes:
        network: the links between DIMMs.
    """

    def __init__(
        self,
        memory: Hardware,
        weights: ExpertWeights,
        bits: int | ExpertFormat,
        expert_bytes: int,
        standby: Standby,
        cache: bool | ResultCache,
        moving: Callable[[Expert, Location, Location], float] | None = None,
    ) -> None:
        self._moving = moving
        self._memory, self._weights, self._bits, self._cache = memory, weights, bits, cache
        self._expert_bytes, self._standby = expert_bytes, standby
        self.cost = cache_results(self._cost)
        self._simulated = cache_results(self._simulate)
        self._bursts_of = cache_results(self._counted_bursts)

    @cached_property
    def network(self) -> Network:
        """The links between DIMMs."""
        return access_by_units(self._memory, geometry_of(self._memory)).network

    def _cost(self, source: Location, target: Location) -> RelayoutCost:
        """Cost of moving an expert, from an equivalent relayout or simulated."""
        if source == target:
            raise InputError(f"is at {source.name} already", "conflict", key="target")
        network, stripes = self.network, source.striped or target.striped
        is_distinct = max(source.shards, target.shards) > 1 or network.topology != "ring"
        if is_distinct or (stripes and self._stripes_differ):
            return self._simulated(source, target)
        if not stripes:
            route = network.route(source.dimm, target.dimm)
            cost = self._over_links(len(route))
            (busy_ns,) = set(cost.wire_ns.values())
            wire_ns = {network.wire_names[network.hops[hop].wire]: busy_ns for hop in route}
        else:
            first = Location(0)
            cost = self._simulated(*((source, first) if source.striped else (first, target)))
            wire_ns = self._wires_of(max(source.dimm, target.dimm), cost.wire_ns)
        read_gbps, written_gbps = (self._dimm_gbps(end, cost.time_ns) for end in (source, target))
        return replace(cost, wire_ns=wire_ns, dimm_read_gbps=read_gbps, dimm_written_gbps=written_gbps)

    def _over_links(self, links: int) -> RelayoutCost:
        """Cost of moving an expert over this number of links of a ring; see the module."""
        most, (nearest, farthest) = self.network.dimms // 2, self._ends_of_line
        if 1 < links < most and farthest.time_ns > (1 + _ON_A_LINE) * nearest.time_ns:
            return self._simulated(Location(0), Location(links))
        return nearest.towards(farthest, (links - 1) / max(most - 1, 1))

    @cached_property
    def _ends_of_line(self) -> tuple[RelayoutCost, RelayoutCost]:
        """Costs of moving an expert to the nearest and to the farthest DIMM of a ring."""
        links = sorted({1, self.network.dimms // 2})
        with simulation_threads() as pool:
            costs = list(pool.map(lambda count: self._simulated(Location(0), Location(count)), links))
        return costs[0], costs[-1]

    @cached_property
    def _stripes_differ(self) -> bool:
        """Whether stripes on a ring must be simulated for each DIMM."""
        bursts = self._bursts_of(Location(STRIPED))
        few = bursts.min() < _EVEN_BURSTS * geometry_of(self._memory).lanes
        return bool(few) or self.network.dimms % 2 == 1

    def _wires_of(self, dimm: int, wire_ns: Mapping[str, float]) -> dict[str, float]:
        """The times of wires for a DIMM, from those for the first one: rotated, and mirrored for odd ones."""
        network, way = self.network, -1 if dimm % 2 else 1
        names = {(hop.source, hop.target): network.wire_names[hop.wire] for hop in network.hops}

        def image(of: int) -> int:
            return (dimm + way * of) % network.dimms

        images = {name: names[image(source), image(target)] for (source, target), name in names.items()}
        return {images[name]: ns for name, ns in wire_ns.items()}

    @cached_property
    def _slices(self) -> int:
        """Equal slices of its columns in which a large expert moves, one after the other."""
        columns, size = self._weights.intermediate, self._expert_bytes
        fewest = min(-(-size // _MOST_MOVED), columns)
        return next(slices for slices in range(fewest, columns + 1) if columns % slices == 0)

    @property
    def _slice(self) -> Expert:
        return Expert(self._weights.hidden, self._weights.intermediate // self._slices)

    def _simulate(self, source: Location, target: Location) -> RelayoutCost:
        slices, moved = self._slices, self._moved(source, target)
        alone_ns = time_ns = slices * moved.time_ns
        added = self._standby.above(moved.energy_nj, self._memory.system.dimm.count, moved.time_ns)
        if self._moving is not None:
            time_ns, added = alone_ns * self._moving(self._slice, source, target), unknown(added)
        return RelayoutCost(
            time_ns,
            slices * moved.weight_bytes,
            {name: share * alone_ns for name, share in moved.link_busy.items()},
            self._dimm_gbps(source, time_ns),
            self._dimm_gbps(target, time_ns),
            added and {name: None if nj is None else slices * nj for name, nj in added.items()},
        )

    def _moved(self, source: Location, target: Location) -> MovedExpert:
        """One slice of an expert, from the cache or simulated."""
        part = self._slice
        weights, _ = named_weights(part, self._bits)
        lookup = Lookup(MovedExpert, self._cache, False, (self._memory, weights, source, target), {})
        found = lookup.find(Stopwatch(), lambda share: None)
        if found is not None:
            return found
        layouts = source.layout, target.layout
        dimms = [source.first_dimm], [target.first_dimm]
        result = simulate_relayout(
            self._memory, part, 1, *layouts, *dimms, self._bits, host=False, cache=False
        )
        return lookup.store(
            MovedExpert(result.time_ns, result.weight_bytes, result.link_busy, result.energy_nj)
        )

    def _dimm_gbps(self, end: Location, time_ns: float) -> dict[int, float]:
        """Rate at which each DIMM that holds an expert reads, or writes, when it moves in this time."""
        bursts = self._bursts_of(end)
        burst_bytes = self._memory.lane_device().burst_bytes
        return {int(dimm): int(bursts[dimm]) * burst_bytes / time_ns for dimm in np.flatnonzero(bursts)}

    def _counted_bursts(self, end: Location) -> Ints:
        """Bursts of an expert by DIMM."""
        return make_layout(
            end.layout, geometry_of(self._memory), self._weights, end.first_dimm
        ).bursts_by_dimm()
