"""Times of an expert on a DIMM, a host read and a relayout, all from cycle-level simulations.

A simulation runs when its result is first needed, unless the cache of results has it. Afterwards a cost is a
look-up in a dictionary.

An expert may begin at any phase of refresh, so its time and energy are means over runs whose starts are
spread evenly over a refresh period. The number of runs is such that they last 20 periods together, at least
one. A run from another clock has one refresh more or less. The error of the mean is therefore below a
twentieth of the time share of refreshes, which is 5 to 11%. Refreshes that were due before the start do not
delay an expert.

A host with its own memory (`host.memory`) reads a copy of every expert there, striped over its channels. Its
reads do not slow down NDP units.

Energies here are added to the standby energy of the machine, which a run counts once (`at_rest_nj`).

A memory device behind a CXL link has no channels to the host. A copy from it to the GPU is read at the
simulated rate and DRAM energy of an expert with one token on its units; the link limits the copy. By
assumption, units and copies share the bandwidth of the device (`shared_bandwidth`). The time of an expert on
the device does not include the link: activations and results are separate transfers, once for each token in
each direction, because the device has all experts of a token and can sum their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache as cache_results
from functools import cached_property, partial
from itertools import pairwise
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import whole_number
from ndpsim.base.errors import InputError
from ndpsim.config import Hardware, load_hardware
from ndpsim.config.system import Host
from ndpsim.dimm.layout import ExpertFormat, Layout, make_layout
from ndpsim.dram.refresh_policies import Schedule
from ndpsim.inference.layers.beside_host import BesideHost
from ndpsim.inference.layers.contention import shared_bandwidth, slowdown_table
from ndpsim.inference.layers.location import Location
from ndpsim.inference.layers.relayouts import RelayoutCost, Relayouts
from ndpsim.inference.layers.shared_dimm import simulation_threads
from ndpsim.inference.layers.standby import Parts, Standby, unknown
from ndpsim.policies.views import STRIPED
from ndpsim.simulate import MAX_TOKENS, simulate_expert, simulate_host_read
from ndpsim.simulate.bank_operands import expert_program
from ndpsim.simulate.bank_turns import bank_expert_token
from ndpsim.simulate.host_traffic import HostTraffic
from ndpsim.simulate.machine import geometry_of, lower_machine, named_weights
from ndpsim.simulate.results.cache import Lookup, ResultCache
from ndpsim.simulate.results.expert import MeanExpert
from ndpsim.simulate.results.slowdown import SlowdownTable
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.workload.models import Expert, MoeShape

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FREE_LINK = {"gbps": 1e6, "latency_ns": 0.0, "header_bytes": 0}
_PERIODS = 20  # refresh periods that the runs of an expert last together
_MOST_PHASES = 1024
_LAST_SIMULATED = 512  # tokens; estimates for more are on the line through the last two points


@dataclass(frozen=True)
class NdpCost:
    """An expert, or a share of its columns, on a DIMM, or on several.

    Attributes:
        time_ns: time from the first activation to the last result, mean over the phases of refresh.
        bytes: bytes of weights.
        added_nj: energy above standby by component; None: not known (`standby`).
    """

    time_ns: float
    bytes: int
    added_nj: Parts


@dataclass(frozen=True)
class HostReadCost:
    """A read of an expert's weights by the host, at its full rate.

    Attributes:
        time_ns: time from the first command to the last beat.
        bytes: bytes of weights.
        channels: number of host channels.
        gbps_per_channel: mean rate of these channels.
        added_nj: as in `NdpCost`.
    """

    time_ns: float
    bytes: int
    channels: int
    gbps_per_channel: float
    added_nj: Parts


def _memory_of(hardware: Hardware) -> Hardware:
    """The hardware without sections on which costs do not depend, for equal cache keys."""
    system = hardware.system
    others = {"name": "memory", "title": None, "paper": None, "gpu": None, "pcie": None, "banks": None}
    host = Host(channels=system.host.channels)
    return replace(hardware, system=system.model_copy(update={**others, "host": host}))


def _with_free_link(hardware: Hardware) -> Hardware:
    """The hardware with a CXL link that takes no time, if it has one."""
    cxl = hardware.system.cxl
    if cxl is None:
        return hardware
    free = {"cxl": cxl.model_copy(update=_FREE_LINK)}
    return replace(hardware, system=hardware.system.model_copy(update=free))


def in_turns(tokens: int) -> list[int]:
    """The tokens of an expert's turns: the minimum number of turns for `MAX_TOKENS`, as equal as possible."""
    turns = -(-tokens // MAX_TOKENS)
    return [tokens // turns + (turn < tokens % turns) for turn in range(turns)]


class Costs:
    """The costs of one model's experts on one hardware.

    Args:
        hw, model, bits: as in `simulate_expert`.
        arbitration: as in `simulate_contention`.
        cache: as in `simulate_expert`.
        traffic: the host's own traffic on each DIMM, beside which all costs are; energy is then not known.

    Attributes:
        shape: the shape of an expert.
        memory: the hardware without GPU, PCIe and CPU, on which costs do not depend.

    Methods raise `InputError` if the hardware has no NDP units, no links, too few DIMMs for a layout, or no
    room for a shape.
    """

    def __init__(
        self,
        hw: str | PathLike[str] | Hardware = "trimoe",
        model: str | PathLike[str] | MoeShape | Expert = "qwen3-235b-a22b",
        bits: int | ExpertFormat = 16,
        arbitration: str = "host-first",
        cache: bool | ResultCache = True,
        traffic: HostTraffic | None = None,
    ) -> None:
        self.hardware, self.traffic = load_hardware(hw), traffic
        self.weights, _ = named_weights(model, bits)
        self.arbitration, self.bits, self._cache = arbitration, bits, cache
        self.shape = Expert(self.weights.hidden, self.weights.intermediate)
        self.memory = _memory_of(self.hardware)
        self._units = _with_free_link(self.memory)
        self._expert = cache_results(self._simulated_expert)
        self._part_ns = cache_results(self._simulated_part_ns)
        self._host_read = cache_results(self._simulated_host_read)
        self._contention = cache_results(self._simulated_contention)
        self._for_bits = cache_results(
            lambda bits: Costs(self.hardware, self.shape, bits, self.arbitration, self._cache, traffic)
        )
        self._beside = None
        if traffic is not None:
            self._beside = BesideHost(self.memory, bits, arbitration, traffic, cache)

    def check(self) -> None:
        """Make sure that the units of a machine can compute these weights, without a simulation.

        Raises:
            InputError: they cannot, or not under this arbitration.
        """
        device = self.hardware.bank_device if self.hardware.experts_in_banks else None
        if device is not None:
            bits = 8 * device.unit.get("element_bytes", 2)
            if self.bits != bits:
                problem = f"the units of {device.name} multiply weights of {bits} bits"
                raise InputError(problem, "unsupported", key="bits")
            expert_program(device, self.shape, 1)
            return
        with self._units.errors_at_origins():
            unit = lower_machine(self._units).unit
            unit.check_format(self.weights.format)
            unit.tile(1, self.weights.hidden, self.weights.intermediate)
            self._placed_on_units()
        if self.hardware.host_reads_dimms or self.hardware.system.link is not None:
            self._check_arbitration()

    def _placed_on_units(self) -> Layout:
        machine = lower_machine(self._units)
        return machine.unit.place("localized", machine.geometry, self.weights, 0)

    def _check_arbitration(self) -> None:
        if self.arbitration != "host-first" and not self._shares_ranks:
            problem = f"{self.arbitration} is for ranks that host and NDP share in simulation"
            raise InputError(problem, "conflict", key="arbitration")

    @property
    def _shares_ranks(self) -> bool:
        return self.hardware.system.cxl is None and lower_machine(self._units).shares_ranks

    @cached_property
    def expert_bytes(self) -> int:
        """Bytes of an expert's weights where the host reads them, as a read counts them."""
        if self.hardware.system.cxl is not None:
            return self._placed_on_units().bytes
        striped = Location(STRIPED).layout
        return make_layout(striped, geometry_of(self._host_memory), self.weights).bytes

    @property
    def host_gbps(self) -> float | None:
        """The rate of the host's own traffic on each DIMM; None: there is none."""
        return None if self.traffic is None else self.traffic.gbps

    @cached_property
    def start_clock(self) -> int:
        """The DRAM clock in the middle between two refreshes.

        A run from there has the mean number of refreshes, within half of one.
        """
        return 1 + self._refreshes.period // 2

    @cached_property
    def _refreshes(self) -> Schedule:
        """Refreshes of the memory with NDP units."""
        with self._units.errors_at_origins():
            return lower_machine(self._units).schedule

    @cached_property
    def standby(self) -> Standby:
        """Power of the DIMMs and their units at rest."""
        return Standby(self.hardware)

    @cached_property
    def _host_memory(self) -> Hardware:
        """The memory that the host reads, reduced as `memory`."""
        return _memory_of(self.hardware.host_memory)

    @cached_property
    def _host_standby(self) -> Standby:
        return Standby(self._host_memory)

    def at_rest_nj(self, time_ns: float) -> dict[str, float | None]:
        """Standby energy of all memory and its units over a time, by component; None: not known."""
        parts = self.standby.over(time_ns)
        if not self.hardware.host_reads_dimms:
            for name, nj in self._host_standby.over(time_ns).items():
                name = "host_memory" if name == "dram" else name
                before = parts.get(name, 0.0)
                parts[name] = None if nj is None or before is None else before + nj
        return parts

    def for_bits(self, bits: int | None) -> Costs:
        """The costs of replicas with this number of bits; None: of the experts themselves."""
        return self if bits is None else self._for_bits(bits)

    def expert(self, tokens: int, shards: int = 1, share: float = 1.0) -> NdpCost:
        """An expert with its weights on one DIMM, or sharded over several.

        Args:
            tokens: its tokens; more than `MAX_TOKENS` are computed in several turns.
            shards: number of DIMMs.
            share: share of its intermediate columns, rounded to whole ones.
        """
        return self._expert(tokens, shards, share)

    def part_ns(self, tokens: int, shards: int, share: float) -> float:
        """Time of one DIMM's part of a sharded expert, if no other DIMM of its channel uses the bus.

        This is the case after another expert: the DIMMs of a channel, which used the bus in turn, are then
        not in step. Arguments as in `expert`.
        """
        return self._part_ns(tokens, shards, share)

    def _simulated_part_ns(self, tokens: int, shards: int, share: float) -> float:
        if shards <= self.hardware.system.host.channels or self.hardware.experts_in_banks:
            return self.expert(tokens, shards, share).time_ns
        columns = max(1, round(share * self.shape.intermediate / shards))
        return self._on_dimms(columns, tokens, 1)[1]

    def _on_dimms(self, columns: int, tokens: int, shards: int) -> tuple[MeanExpert, float, Parts]:
        """A run of so many columns of an expert, its mean time over the phases of refresh, and its energy."""
        model, of_turn = Expert(self.shape.hidden, columns), in_turns(tokens)
        mean = result = self._over_refresh(model, of_turn, Location(0, shards).layout)
        added_nj = self.standby.above(mean.mean_energy_nj, shards, mean.mean_ns)
        if self._beside is None:
            return result, mean.mean_ns, added_nj
        part, on_channel = Expert(model.hidden, -(-columns // shards)), 1
        if shards > 1:
            on_channel = -(-shards // self.hardware.system.host.channels)
            mean = self._over_refresh(part, of_turn, "localized")
        return result, self._beside.expert_ns(part, of_turn, on_channel, mean), unknown(added_nj)

    def _simulated_expert(self, tokens: int, shards: int, share: float) -> NdpCost:
        whole = self.shape
        columns = max(1, round(share * whole.intermediate))
        if self.hardware.experts_in_banks:
            return self._in_banks(tokens, shards, columns)
        result, time_ns, added_nj = self._on_dimms(columns, tokens, shards)
        return NdpCost(time_ns, result.weight_bytes // len(in_turns(tokens)), added_nj)

    def _in_banks(self, tokens: int, shards: int, columns: int) -> NdpCost:
        """So many columns of an expert on one device or several, with the vectors over a link of each.

        Raises:
            InputError: the units multiply other weights, or the part does not fit.
        """
        system, device = self.hardware.system, self.hardware.bank_device
        assert device is not None
        assert system.banks is not None
        self.check()
        size = device.unit.get("element_bytes", 2)
        link, banks = self.hardware.gpu_link, system.banks
        gbps = banks.link_gbps or (link.gbps if link is not None else np.inf)
        part = Expert(self.shape.hidden, -(-columns // shards))
        token_ns = bank_expert_token(device, part, self._cache).time_ns
        # Vectors do not overlap with the units.
        vectors_ns = 2 * (banks.link_latency_ns + tokens * part.hidden * size / gbps)
        whole = Expert(self.shape.hidden, columns)
        return NdpCost(tokens * token_ns + vectors_ns, whole.weights * size, None)

    def _over_refresh(self, model: Expert, tokens: Sequence[int], layout: str) -> MeanExpert:
        """A run of an expert, and the mean over the phases of refresh, from the cache or simulated."""
        inputs = self._units, named_weights(model, self.bits)[0], tokens, layout, self.start_clock
        lookup = Lookup(MeanExpert, self._cache, False, inputs, {})
        found = lookup.find(Stopwatch(), lambda share: None)
        return found or lookup.store(self._simulated_over_refresh(model, tokens, layout))

    def _simulated_over_refresh(self, model: Expert, tokens: Sequence[int], layout: str) -> MeanExpert:
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
        over = result.over_refresh
        assert over is not None
        of_one = result.weight_bytes, result.bandwidth_gbps, result.time_ns
        return MeanExpert(*of_one, over.mean_ns, over.mean_energy_nj, over.start_clocks)

    def expected_ns(self, most_tokens: int, shards: int = 1, each_until: int = 0) -> tuple[Floats, float]:
        """Times of an expert on a DIMM that a policy may expect.

        They are simulated for some numbers of tokens, and interpolated linearly for others.

        each_until: up to this number of tokens, each number is simulated.

        Returns:
            Times in ns, [tokens], 0 to `most_tokens`; and the largest relative error, by simulations in the
            middle between the points, and beyond the last where there is more.
        """
        most = whole_number(most_tokens, "most_tokens", 1, 1 << 31)
        last = min(most, _LAST_SIMULATED)
        powers = [1 << n for n in range(last.bit_length())]
        few = [*powers, *(3 * n // 2 for n in powers[1:]), last, *range(1, each_until + 1)]
        points = sorted({n for n in few if n <= last})
        between = {(a + b) // 2 for a, b in pairwise(points)} | {min(most, 2 * last)}
        tried = sorted({*points, *between})
        with simulation_threads() as pool:
            times = dict(zip(tried, pool.map(lambda n: self.expert(n, shards).time_ns, tried), strict=True))
        simulated = [times[n] for n in points]
        expected = np.interp(np.arange(last + 1), [0, *points], [0.0, *simulated])
        if most > last:
            slope = (simulated[-1] - simulated[-2]) / (points[-1] - points[-2])
            expected = np.append(expected, simulated[-1] + slope * np.arange(1, most - last + 1))
        off = [abs(expected[n] / times[n] - 1) for n in sorted(between - set(points))]
        return expected, float(max(off, default=0.0))

    def host_read(self, shards: int | None = None) -> HostReadCost:
        """A host read of an expert that is sharded over this number of DIMMs; None: striped over all.

        If the host has its own memory, the expert is striped there. Behind a CXL link the device reads it,
        for a copy over the link.
        """
        if self.hardware.system.cxl is not None:
            return self._device_read
        return self._host_read(shards if self.hardware.host_reads_dimms else None)

    def _simulated_host_read(self, shards: int | None) -> HostReadCost:
        layout = (Location(STRIPED) if shards is None else Location(0, shards)).layout
        memory = self._host_memory
        result = simulate_host_read(memory, self.shape, layout, self.bits, cache=self._cache)
        system = memory.system
        beside = sum(dimm % system.host.channels < result.channels for dimm in range(system.dimm.count))
        added_nj = self._host_standby.above(result.energy_nj, beside, result.time_ns)
        if self._beside is not None and self.hardware.host_reads_dimms:
            time_ns = self._beside.read_ns(self.shape, layout)
            gbps = result.weight_bytes / time_ns / result.channels
            return HostReadCost(time_ns, result.weight_bytes, result.channels, gbps, unknown(added_nj))
        return HostReadCost(
            result.time_ns,
            result.weight_bytes,
            result.channels,
            result.bandwidth_gbps / result.channels,
            added_nj,
        )

    @cached_property
    def _device_read(self) -> HostReadCost:
        one = self._over_refresh(self.shape, [1], "localized")
        added = self.standby.above(one.mean_energy_nj, 1, one.mean_ns)
        added = added and {name: nj for name, nj in added.items() if not name.startswith("ndp_")}
        # Refreshes delay the read as long as they delay the expert.
        size, time_ns = one.weight_bytes, one.weight_bytes / one.bandwidth_gbps + one.mean_ns - one.time_ns
        return HostReadCost(time_ns, size, 1, size / time_ns, added)

    @cached_property
    def relayouts(self) -> Relayouts:
        """The costs of moves between DIMMs."""
        moving = None if self._beside is None else self._beside.moving
        given = self.memory, self.weights, self.bits, self.expert_bytes
        return Relayouts(*given, self.standby, self._cache, moving)

    def relayout(self, source: str, target: str) -> RelayoutCost:
        """A move of an expert between "striped", "localized 3" (DIMM 3) and "sharded:4 8" (DIMMs 8 to 11)."""
        return self.relayouts.cost(Location.from_name(source), Location.from_name(target))

    def wire_names(self) -> tuple[str, ...]:
        """The wires of the links between DIMMs."""
        return self.relayouts.network.wire_names

    def contention(self, shards: int = 1) -> SlowdownTable:
        """The mutual slowdown of NDP units, the host and relayouts on a DIMM.

        shards: number of DIMMs, for sharded experts.
        """
        return self._contention(shards)

    def _simulated_contention(self, shards: int) -> SlowdownTable:
        if self._shares_ranks:
            inputs = self.memory, self.shape, self.bits, self.arbitration, self._cache
            return slowdown_table(*inputs, shards, self.traffic)
        self._check_arbitration()
        return shared_bandwidth(self.host_read(1).gbps_per_channel, self.hardware.system.dram.read_buffer)
