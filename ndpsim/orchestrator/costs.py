"""What an expert on a DIMM, a host read and a relayout take: every time from a cycle-level simulation.

A simulation is made when its result is first asked for, and found in the cache of results where it was made
before; from then on a cost is a look-up in a dictionary.

An expert begins anywhere between two refreshes, so its time and energy are the mean over runs that begin
evenly over a period of refreshes: as many as last 20 periods together, at least one. A run from another clock
meets one refresh more or less, so that the mean is within a twentieth of the share of time that refreshes
take, which is 5 to 11%. Refreshes that were due before the expert began do not hold it up.

Some relayouts are alike: on a ring of links those between two DIMMs that are as many links apart, and those
between one DIMM and the stripes over all, turned around the ring by an even number of DIMMs (to the DIMM
opposite, even DIMMs send one way and odd ones the other). One of them is simulated. Between two DIMMs that
is exact. Stripes differ in the order of bursts, which makes less than 0.1% of the time of an expert of
deepseek-v2; where lanes have few bursts, every relayout is simulated.

A host with memory of its own (`host.memory`) reads a copy of every expert there, striped over its channels,
wherever the DIMMs that compute have it; nothing that it reads slows an NDP unit down.

Energy here is what a part of a run adds to the standby of the machine, which a run counts once
(`at_rest_nj`).

A memory device behind a CXL link has no channels to the host. What is copied from it to the GPU is read as
fast as its units read an expert with one token, which is simulated, and takes the energy that DRAM takes
then; the copy is bound by the link. Units and copies share the bandwidth of the device, by assumption, see
`shared_bandwidth`. An expert's time there is without the link: activations and results go over it as
transfers of their own, once a token each way, because the device has all experts of a token and can sum
their results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from ndpsim.arguments import whole_number
from ndpsim.config import Hardware, load_hardware
from ndpsim.config.system import Host
from ndpsim.dram.refresh_policies import Schedule
from ndpsim.errors import InputError
from ndpsim.layout import ExpertFormat, make_layout
from ndpsim.link import Network
from ndpsim.moe import Expert, MoeShape
from ndpsim.orchestrator.contention import ContentionTable, contention_table, shared_bandwidth
from ndpsim.orchestrator.location import Location
from ndpsim.orchestrator.standby import Parts, Standby
from ndpsim.policies.views import STRIPED
from ndpsim.results.cache import ResultCache
from ndpsim.results.expert import ExpertResult, OverRefresh
from ndpsim.simulate import MAX_TOKENS, simulate_expert, simulate_host_read, simulate_relayout
from ndpsim.simulate.geometry import geometry_of
from ndpsim.simulate.machine import lower_machine
from ndpsim.simulate.relayout_plan import access_by_units
from ndpsim.simulate.weights import named_weights

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_MOVED = (
    1 << 26
)  # bytes of a relayout that is simulated at once, which takes some 15 times as much memory
_EVEN_BURSTS = 1000  # of a lane: stripes are then even within 0.1%
_FREE_LINK = {"gbps": 1e6, "latency_ns": 0.0, "header_bytes": 0}
_PERIODS = 20  # of refreshes, that the runs of an expert last together
_MOST_PHASES = 1024
_LAST_SIMULATED = 512  # tokens; estimates for more go on along the line through the last two points


@dataclass(frozen=True)
class NdpCost:
    """An expert, or a share of its columns, on a DIMM, or on several.

    Attributes:
        time_ns: from the first activation to the last result, on average over the phases of refresh.
        bytes: of weights.
        dram_gbps: weights read over the time, on average, those that are read again counted again.
        added_nj: energy above standby by component, None of one that is not known (`standby`).
    """

    time_ns: float
    bytes: int
    dram_gbps: float
    added_nj: Parts


@dataclass(frozen=True)
class HostReadCost:
    """The host reads an expert's weights, as fast as it can.

    Attributes:
        time_ns: from the first command to the last beat.
        bytes: of weights.
        channels: of the host over which they come.
        gbps_per_channel: over the time, on average of these channels.
        added_nj: as in `NdpCost`.
    """

    time_ns: float
    bytes: int
    channels: int
    gbps_per_channel: float
    added_nj: Parts


@dataclass(frozen=True)
class RelayoutCost:
    """An expert moves between layouts, nothing else being under way.

    Attributes:
        time_ns: from the first command to the last beat written.
        bytes: of weights.
        wire_ns: by name of each wire that packets take: how long they occupy it, headers included.
        dimm_read_gbps, dimm_written_gbps: by DIMM, what it reads and what it writes, in bursts.
        added_nj: as in `NdpCost`.
    """

    time_ns: float
    bytes: int
    wire_ns: Mapping[str, float]
    dimm_read_gbps: Mapping[int, float]
    dimm_written_gbps: Mapping[int, float]
    added_nj: Parts

    @property
    def dimm_gbps(self) -> dict[int, float]:
        """By DIMM: what it reads and writes."""
        both = self.dimm_read_gbps, self.dimm_written_gbps
        return {dimm: sum(one.get(dimm, 0.0) for one in both) for dimm in {**both[0], **both[1]}}


def _memory_of(hardware: Hardware) -> Hardware:
    """The same without what costs do not depend on, so that they are found again when only that changes."""
    system = hardware.system
    others = {"name": "memory", "title": None, "paper": None, "gpu": None, "pcie": None}
    host = Host(channels=system.host.channels)
    return replace(hardware, system=system.model_copy(update={**others, "host": host}))


def _with_free_link(hardware: Hardware) -> Hardware:
    """The same, but that a CXL link, if there is one, takes no time."""
    cxl = hardware.system.cxl
    if cxl is None:
        return hardware
    free = {"cxl": cxl.model_copy(update=_FREE_LINK)}
    return replace(hardware, system=hardware.system.model_copy(update=free))


def in_turns(tokens: int) -> list[int]:
    """Tokens of an expert as it computes them: in as few turns as `MAX_TOKENS` allows, as even as can be."""
    turns = -(-tokens // MAX_TOKENS)
    return [tokens // turns + (turn < tokens % turns) for turn in range(turns)]


class Costs:
    """The costs of one model's experts on one hardware.

    Args:
        hw, model, bits: as in `simulate_expert`.
        arbitration: as in `simulate_contention`.
        cache: as in `simulate_expert`.

    Attributes:
        shape: of an expert.
        memory: the hardware without GPU, PCIe and CPU, on which costs do not depend.

    Methods raise `InputError` for what the hardware cannot do: without NDP units, without links, with too few
    DIMMs for a layout, without room for a shape.
    """

    def __init__(
        self,
        hw: str | PathLike[str] | Hardware = "trimoe",
        model: str | PathLike[str] | MoeShape | Expert = "qwen3-235b-a22b",
        bits: int | ExpertFormat = 16,
        arbitration: str = "host-first",
        cache: bool | ResultCache = True,
    ) -> None:
        self.hardware = load_hardware(hw)
        self.weights, _ = named_weights(model, bits)
        self.arbitration, self.bits, self._cache = arbitration, bits, cache
        self.shape = Expert(self.weights.hidden, self.weights.intermediate)
        self.memory = _memory_of(self.hardware)
        self._units = _with_free_link(self.memory)
        self._experts: dict[tuple[int, int, float], NdpCost] = {}
        self._reads: dict[int | None, HostReadCost] = {}
        self._relayouts: dict[tuple[str, str], RelayoutCost] = {}
        self._bursts: dict[Location, Ints] = {}
        self._for_bits: dict[int, Costs] = {}
        self._parts: dict[tuple[int, int, float], float] = {}
        self._contention: dict[int, ContentionTable] = {}

    @cached_property
    def start_clock(self) -> int:
        """The DRAM clock half-way between two refreshes.

        A run from there meets as many of them as runs do on average, but for half of one.
        """
        return 1 + self._refreshes.period // 2

    @cached_property
    def _refreshes(self) -> Schedule:
        """Those of the memory with NDP units."""
        with self._units.errors_at_origins():
            return lower_machine(self._units).schedule

    @cached_property
    def standby(self) -> Standby:
        """What the DIMMs and their units draw at rest."""
        return Standby(self.hardware)

    @cached_property
    def _host_memory(self) -> Hardware:
        """The memory that the host reads, as `memory` has it."""
        return _memory_of(self.hardware.host_memory)

    @cached_property
    def _host_standby(self) -> Standby:
        return Standby(self._host_memory)

    def at_rest_nj(self, time_ns: float) -> dict[str, float | None]:
        """What all memory and its units draw at rest over a time, by component; None: not known."""
        parts = self.standby.over(time_ns)
        if not self.hardware.host_reads_dimms:
            for name, nj in self._host_standby.over(time_ns).items():
                name = "host_memory" if name == "dram" else name
                before = parts.get(name, 0.0)
                parts[name] = None if nj is None or before is None else before + nj
        return parts

    def for_bits(self, bits: int | None) -> Costs:
        """The costs of replicas in so many bits; None: of the experts themselves."""
        if bits is None:
            return self
        found = self._for_bits.get(bits)
        if found is None:
            found = Costs(self.hardware, self.shape, bits, self.arbitration, self._cache)
            self._for_bits[bits] = found
        return found

    def expert(self, tokens: int, shards: int = 1, share: float = 1.0) -> NdpCost:
        """An expert with its weights on one DIMM, or sharded over several.

        Args:
            tokens: that go through it. More than `MAX_TOKENS` go through it in several turns.
            shards: DIMMs.
            share: of its intermediate columns, rounded to whole ones.
        """
        key = tokens, shards, share
        found = self._experts.get(key)
        if found is None:
            found = self._experts[key] = self._simulated_expert(tokens, shards, share)
        return found

    def part_ns(self, tokens: int, shards: int, share: float = 1.0) -> float:
        """One DIMM's part of a sharded expert, if no other DIMM of its channel has the bus meanwhile.

        So it is behind another expert: by then the DIMMs of a channel, which had the bus in turn, are out of
        step. Arguments as in `expert`.
        """
        if shards <= self.hardware.system.host.channels:
            return self.expert(tokens, shards, share).time_ns
        key = tokens, shards, share
        found = self._parts.get(key)
        if found is None:
            columns = max(1, round(share * self.shape.intermediate / shards))
            _, mean = self._over_refresh(Expert(self.shape.hidden, columns), in_turns(tokens), "localized")
            found = self._parts[key] = mean.mean_ns
        return found

    def _simulated_expert(self, tokens: int, shards: int, share: float) -> NdpCost:
        whole = self.shape
        columns = max(1, round(share * whole.intermediate))
        model = whole if columns == whole.intermediate else Expert(whole.hidden, columns)
        of_turn = in_turns(tokens)
        layout = Location(0, shards).layout
        result, mean = self._over_refresh(model, of_turn, layout)
        read = result.weight_bytes * result.weight_reads
        return NdpCost(
            mean.mean_ns,
            result.weight_bytes // len(of_turn),
            read / mean.mean_ns,
            self.standby.above(mean.mean_energy_nj, shards, mean.mean_ns),
        )

    def _over_refresh(
        self, model: Expert, tokens: Sequence[int], layout: str
    ) -> tuple[ExpertResult, OverRefresh]:
        """A run of an expert, and the mean over runs from any clock."""
        run = partial(
            simulate_expert,
            self._units,
            model,
            tokens,
            layout,
            self.bits,
            cache=self._cache,
            start_clock=self.start_clock,
        )
        result = run(refresh_phases=1)
        phases = min(-(-_PERIODS * self._refreshes.period // result.cycles), _MOST_PHASES)
        if self._refreshes.turns and phases > 1:
            result = run(refresh_phases=phases)
        assert result.over_refresh is not None
        return result, result.over_refresh

    def expected_ns(self, most_tokens: int, shards: int = 1, each_until: int = 0) -> tuple[Floats, float]:
        """What a policy may expect of an expert on a DIMM: simulated for some numbers of tokens, and on the
        lines between these for others.

        each_until: up to this one, each number is simulated.

        Returns:
            Times in ns, [tokens], 0 to `most_tokens`; and the largest relative error, by simulations in the
            middle between the points, and beyond the last where there is more.
        """
        most = whole_number(most_tokens, "most_tokens", 1, 1 << 31)
        last = min(most, _LAST_SIMULATED)
        powers = [1 << n for n in range(last.bit_length())]
        few = [*powers, *(3 * n // 2 for n in powers[1:]), last, *range(1, each_until + 1)]
        points = sorted({n for n in few if n <= last})
        simulated = [self.expert(n, shards).time_ns for n in points]
        expected = np.interp(np.arange(last + 1), [0, *points], [0.0, *simulated])
        if most > last:
            slope = (simulated[-1] - simulated[-2]) / (points[-1] - points[-2])
            expected = np.append(expected, simulated[-1] + slope * np.arange(1, most - last + 1))
        between = {(a + b) // 2 for a, b in pairwise(points)} | {min(most, 2 * last)}
        off = [abs(expected[n] / self.expert(n, shards).time_ns - 1) for n in sorted(between - set(points))]
        return expected, float(max(off, default=0.0))

    def host_read(self, shards: int | None = None) -> HostReadCost:
        """The host reads an expert that lies on so many DIMMs, or striped over all: None.

        From memory of its own: striped there. Behind a CXL link: the device reads it, for a copy over the
        link.
        """
        if self.hardware.system.cxl is not None:
            return self._device_read
        if not self.hardware.host_reads_dimms:
            shards = None
        found = self._reads.get(shards)
        if found is None:
            layout = (Location(STRIPED) if shards is None else Location(0, shards)).layout
            memory = self._host_memory
            result = simulate_host_read(memory, self.shape, layout, self.bits, cache=self._cache)
            system = memory.system
            beside = sum(dimm % system.host.channels < result.channels for dimm in range(system.dimm.count))
            found = self._reads[shards] = HostReadCost(
                result.time_ns,
                result.weight_bytes,
                result.channels,
                result.bandwidth_gbps / result.channels,
                self._host_standby.above(result.energy_nj, beside, result.time_ns),
            )
        return found

    @cached_property
    def _device_read(self) -> HostReadCost:
        one, mean = self._over_refresh(self.shape, [1], "localized")
        added = self.standby.above(mean.mean_energy_nj, 1, mean.mean_ns)
        added = added and {name: nj for name, nj in added.items() if not name.startswith("ndp_")}
        # Refreshes hold up the reading as long as they hold up the expert.
        size, time_ns = one.weight_bytes, one.weight_bytes / one.bandwidth_gbps + mean.mean_ns - one.time_ns
        return HostReadCost(time_ns, size, 1, size / time_ns, added)

    def relayout(self, source: str, target: str) -> RelayoutCost:
        """An expert moves between places, "striped", "localized 3" (DIMM 3), "sharded:4 8" (8 to 11)."""
        found = self._relayouts.get((source, target))
        if found is None:
            if source == target:
                raise InputError(f"lies at {source} already", key="target")
            ends = Location.from_name(source), Location.from_name(target)
            found = self._relayouts[source, target] = self._turned(*ends)
        return found

    def wire_names(self) -> tuple[str, ...]:
        """The wires of the links between DIMMs."""
        return self._network.wire_names

    def contention(self, shards: int = 1) -> ContentionTable:
        """How NDP units, the host and relayouts slow each other down on a DIMM.

        shards: of experts that lie over so many DIMMs.
        """
        found = self._contention.get(shards)
        if found is None:
            if self.hardware.system.cxl is not None or not lower_machine(self._units).shares_ranks:
                if self.arbitration != "host-first":
                    problem = f"{self.arbitration} is for ranks that host and NDP share in simulation"
                    raise InputError(problem, key="arbitration")
                found = shared_bandwidth(self.host_read(1).gbps_per_channel)
            else:
                given = self.memory, self.shape, self.bits, self.arbitration, self._cache
                found = contention_table(*given, shards)
            self._contention[shards] = found
        return found

    @cached_property
    def _network(self) -> Network:
        return access_by_units(self.hardware, geometry_of(self.hardware)).network

    def _turned(self, source: Location, target: Location) -> RelayoutCost:
        """A relayout from one that is alike, or simulated."""
        like = self._alike(source, target)
        if like == (source, target):
            return self._simulated_relayout(source, target)
        cost = self.relayout(*(end.name for end in like))
        network = self._network
        if source.layout == target.layout:
            (busy_ns,) = set(cost.wire_ns.values())
            route = network.route(source.dimm, target.dimm)
            wire_ns = {network.wire_names[network.hops[hop].wire]: busy_ns for hop in route}
        else:
            wire_ns = self._turned_wires(cost.wire_ns, max(source.dimm, target.dimm) // 2 * 2)
        read_gbps, written_gbps = (self._dimm_gbps(end, cost.time_ns) for end in (source, target))
        return replace(cost, wire_ns=wire_ns, dimm_read_gbps=read_gbps, dimm_written_gbps=written_gbps)

    def _alike(self, source: Location, target: Location) -> tuple[Location, Location]:
        """The relayout that is simulated for one; see the module."""
        network, same = self._network, (source, target)
        if network.topology != "ring" or max(source.shards, target.shards) > 1:
            return same
        if not (source.striped or target.striped):
            hops = len(network.route(source.dimm, target.dimm))
            return Location(0), Location(hops)
        bursts = self._bursts_of(Location(STRIPED))
        if bursts.min() < _EVEN_BURSTS * geometry_of(self.hardware).lanes or network.dimms % 2:
            return same
        first, second = (end if end.striped else Location(end.dimm % 2) for end in same)
        return first, second

    def _turned_wires(self, wire_ns: Mapping[str, float], by: int) -> dict[str, float]:
        """The same on wires that lie so many DIMMs further around the ring."""
        network = self._network
        names = {(hop.source, hop.target): network.wire_names[hop.wire] for hop in network.hops}
        dimms = network.dimms
        further = {
            name: names[(source + by) % dimms, (target + by) % dimms]
            for (source, target), name in names.items()
        }
        return {further[name]: ns for name, ns in wire_ns.items()}

    @cached_property
    def _slices(self) -> int:
        """Equal slices of its columns in which a large expert moves, one after the other."""
        columns, size = self.shape.intermediate, self.host_read(None).bytes
        fewest = min(-(-size // _MOST_MOVED), columns)
        return next(slices for slices in range(fewest, columns + 1) if columns % slices == 0)

    def _simulated_relayout(self, source: Location, target: Location) -> RelayoutCost:
        slices = self._slices
        result = simulate_relayout(
            self.memory,
            Expert(self.shape.hidden, self.shape.intermediate // slices),
            1,
            source.layout,
            target.layout,
            [source.first_dimm],
            [target.first_dimm],
            self.bits,
            host=False,
            cache=self._cache,
        )
        time_ns = slices * result.time_ns
        added = self.standby.above(result.energy_nj, self.hardware.system.dimm.count, result.time_ns)
        return RelayoutCost(
            time_ns,
            slices * result.weight_bytes,
            {name: share * time_ns for name, share in result.link_busy.items()},
            self._dimm_gbps(source, time_ns),
            self._dimm_gbps(target, time_ns),
            added and {name: None if nj is None else slices * nj for name, nj in added.items()},
        )

    def _dimm_gbps(self, end: Location, time_ns: float) -> dict[int, float]:
        """What each DIMM that holds an expert reads, or writes, when it moves in so long a time."""
        bursts = self._bursts_of(end)
        burst_bytes = self.hardware.lane_device().burst_bytes
        return {int(dimm): int(bursts[dimm]) * burst_bytes / time_ns for dimm in np.flatnonzero(bursts)}

    def _bursts_of(self, end: Location) -> Ints:
        """Bursts of an expert by DIMM."""
        found = self._bursts.get(end)
        if found is None:
            geometry = geometry_of(self.hardware)
            places = make_layout(end.layout, geometry, self.weights, end.first_dimm).places()
            found = self._bursts[end] = np.bincount(places.dimm, minlength=geometry.dimms)
        return found
