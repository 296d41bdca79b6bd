"""Times of experts on GPU, CPU and DIMMs, and of a layer: equations 1 to 7 of TriMoE.

Devices are the GPU, the CPU and each DIMM: `GPU`, `CPU`, and `DIMM` + d. As the paper's equations, this model
includes neither activations on PCIe nor the host's sum of results.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ndpsim.policies.assignment.bottleneck import CPU, DIMM, GPU, schedule
from ndpsim.policies.interface import Parts
from ndpsim.policies.statistics import descending
from ndpsim.policies.views import STRIPED, Estimates, Flags, Floats, Ints, LayerPlacement

#: Classes of experts.
COLD, WARM, HOT = range(3)

# Whether an expert is in the GPU's memory, or being copied to it.
_MISSING, _ARRIVING, _RESIDENT = range(3)


@dataclass(eq=False)
class EngineCosts:
    """Costs of the experts of a layer in ns.

    Attributes:
        time: [engine, expert]. GPU: equation 1 if its memory has the expert, else equation 2. CPU: equation
            3. NDP: equation 4. Infinite if the engine cannot compute the expert.
        contention: [engine, expert] of GPU and CPU: additional busy time of each DIMM with weights of the
            expert, because the host reads them (equation 6); 0: they are not read.
    """

    time: Floats
    contention: Floats


@dataclass(eq=False)
class ExpertCosts:
    """Times in a step of each expert of a layer, by its location: arrays [expert], in ns.

    They are times on the engine that equations 2 to 4 choose. DIMMs work at the same time: a time on one of n
    DIMMs counts as an n-th.

    Attributes:
        striped, localized: time with this location, outside the GPU's memory.
        resident: time in the GPU's memory.
        ndp: time on its DIMM if it is localized and NDP is its best engine, else 0.
        cold: flags of experts that are better localized, because NDP is then their best engine.
    """

    striped: Floats
    localized: Floats
    resident: Floats
    ndp: Floats
    cold: Flags

    @cached_property
    def most_gain(self) -> Floats:
        """The minimum gain of each expert in the GPU's memory, over its locations."""
        return np.asarray(np.minimum(self.striped, self.localized) - self.resident)

    def classes(self, room: int) -> Ints:
        """See `classes_of`."""
        return classes_of(self.most_gain, self.cold, room)

    def gain(self, dimm: NDArray[np.int16]) -> Floats:
        """The gain of each expert in the GPU's memory, relative to its location."""
        return np.where(dimm == STRIPED, self.striped, self.localized) - self.resident


def classes_of(most_gain: Floats, cold: Flags, room: int) -> Ints:
    """`COLD`, `WARM` or `HOT` for each expert; at most `room` experts with the largest gains are hot."""
    hottest = descending(most_gain)[:room]
    classes = np.where(cold, COLD, WARM)
    classes[hottest[most_gain[hottest] > 0]] = HOT
    return classes


class CostModel:
    """Equations 1 to 4, and the terms of equation 6, from a policy's estimates.

    Without `cpu` no expert can run on the CPU. A striped read occupies each DIMM for the time of its part of
    the bytes; with `whole_reads` for the whole read.

    Numbers of tokens may be means: times are interpolated between whole numbers, and the cost of an expert
    with a mean below one token is that share of its cost with one.
    """

    def __init__(
        self, estimates: Estimates, dimms: int, cpu: bool = True, *, whole_reads: bool = False
    ) -> None:
        self.estimates = estimates
        self.dimms = dimms
        self.cpu = cpu
        self._calculated = np.stack((estimates.gpu_ns, estimates.cpu_ns, estimates.ndp_ns))
        self._slope = np.diff(self._calculated, append=self._calculated[:, -1:])
        if not cpu:
            self._calculated[CPU], self._slope[CPU] = np.inf, 0.0
        tokens = np.arange(estimates.most_tokens + 1)
        self._time, self._contention = self._engine_costs(tokens, whole_reads)
        self._by_tokens = self._expert_costs(tokens)

    def _times(self, loads: NDArray[np.floating | np.integer]) -> Floats:
        """f_calc_gpu, f_calc_cpu and equation 4, which is simulated with its read, for at least a token."""
        tokens = np.minimum(np.maximum(loads, 1), self.estimates.most_tokens)
        whole = tokens.astype(np.int64)
        between = self._slope.take(whole, axis=1) * (tokens - whole)
        return np.asarray(between + self._calculated.take(whole, axis=1))

    def _engine_costs(self, tokens: Ints, whole_reads: bool) -> tuple[Floats, Floats]:
        """`EngineCosts` for [engine, with the GPU or not, striped or localized], times by tokens, too."""
        gpu, cpu, ndp = self._times(tokens)
        of = self.estimates
        late_copy_ns = max(0.0, of.pcie_ns - of.window_ns)  # the part after the end of the window
        part_ns = of.localized_read_ns / max(self.dimms, 1)
        time = np.empty((3, 3, 2, len(gpu)))
        for at, read in enumerate((of.striped_read_ns, of.localized_read_ns)):
            time[GPU, _MISSING, at] = np.maximum(np.maximum(gpu, of.pcie_ns), read)  # eq. 2
            time[GPU, _ARRIVING, at] = np.maximum(gpu, late_copy_ns)
            time[GPU, _RESIDENT, at] = gpu  # eq. 1
            time[CPU, :, at] = np.maximum(cpu, read)  # eq. 3
        time[DIMM, :, 0], time[DIMM, :, 1] = np.inf, ndp  # eq. 4
        contention = np.zeros((2, 3, 2))
        contention[CPU] = of.striped_read_ns if whole_reads else part_ns, of.localized_read_ns
        contention[GPU, _MISSING] = contention[CPU, _MISSING]
        return time.reshape(3, -1), contention.reshape(2, -1)

    def costs(self, loads: Ints, placement: LayerPlacement, arriving: Flags | None = None) -> EngineCosts:
        """The cost of each expert at its location.

        Args:
            loads: tokens by expert.
            placement: locations of experts.
            arriving: flags [expert]: being copied to the GPU. The GPU waits for the part of the copy after
                the window; the host's read of it is not counted again.
        """
        with_gpu = np.where(placement.resident, _RESIDENT, _MISSING if arriving is None else arriving)
        location = 2 * with_gpu + (placement.dimm != STRIPED)
        most = self.estimates.most_tokens
        tokens = np.minimum(loads, most)
        return EngineCosts(
            self._time.take(location * (most + 1) + tokens, axis=1),
            self._contention.take(location, axis=1),
        )

    def expert_costs(self, loads: NDArray[np.floating | np.integer]) -> ExpertCosts:
        """Costs of each expert in a step with these numbers of tokens, which may be means."""
        if loads.dtype.kind != "i":
            return self._expert_costs(loads)
        of, tokens = self._by_tokens, np.minimum(loads, self.estimates.most_tokens)
        return ExpertCosts(
            of.striped[tokens], of.localized[tokens], of.resident[tokens], of.ndp[tokens], of.cold[tokens]
        )

    def classes(self, loads: Ints, room: int) -> Ints:
        """See `classes_of`, for a step with these numbers of tokens."""
        of, tokens = self._by_tokens, np.minimum(loads, self.estimates.most_tokens)
        return classes_of(of.most_gain[tokens], of.cold[tokens], room)

    def _expert_costs(self, loads: NDArray[np.floating | np.integer]) -> ExpertCosts:
        gpu, cpu, ndp = self._times(loads)
        share = np.minimum(loads, 1.0)
        fetched = np.minimum(np.maximum(gpu, self.estimates.pcie_ns), cpu)
        striped = np.maximum(fetched, self.estimates.striped_read_ns)  # the smaller of eq. 2 and 3
        if not self.dimms:
            never = np.full(len(gpu), np.inf)
            return ExpertCosts(striped * share, never, gpu * share, np.zeros(len(gpu)), never < striped)
        read = np.maximum(fetched, self.estimates.localized_read_ns)
        near = ndp <= read
        localized = np.where(near, ndp / self.dimms, read)
        return ExpertCosts(
            striped * share,
            localized * share,
            gpu * share,
            np.where(near, ndp * share, 0.0),
            localized < striped,
        )


@dataclass(eq=False)
class Schedule:
    """Experts on devices, and the busy time of each device by equations 5 and 6.

    Attributes:
        costs: costs of the layer's experts.
        devices: [expert]: GPU, CPU, a DIMM, or `bottleneck.NOWHERE`.
        busy_ns: [device].
        moves: number of moves of the refinement.
        greedy_ns: the makespan before the refinement.
    """

    costs: EngineCosts
    devices: Ints
    busy_ns: Floats
    moves: int
    greedy_ns: float

    @property
    def makespan_ns(self) -> float:
        """Equation 7."""
        return float(self.busy_ns.max())

    def engines(self, gpu_rank: Ints) -> list[Parts]:
        """Experts of GPU, CPU and, DIMM by DIMM, NDP: on the GPU by rank, then the most costly first."""
        devices = self.devices
        time = self.costs.time[np.minimum(devices, DIMM), np.arange(len(devices))]
        order = np.lexsort((-time, gpu_rank * (devices == GPU), devices))
        ends = devices[order].searchsorted((GPU, CPU, DIMM)).tolist()
        in_full = np.ones(len(order))
        borders = itertools.pairwise((*ends, len(order)))
        return [Parts(order[first:end], in_full[first:end]) for first, end in borders]


def scheduled(
    costs: EngineCosts,
    placement: LayerPlacement,
    loads: Ints,
    dimms: int,
    shared_ns: float = 0.0,
    limit: int = 0,
) -> Schedule:
    """Each expert with tokens on the engine with the least of equations 1 to 4, then refined (Section 4.2).

    Ties go to the engine that uses the fewest other resources: NDP, then the CPU, then the GPU. Refinement
    moves the most costly expert of the busiest device to the device with the smallest makespan; ties go to
    the device with the smallest additional busy time. Refinement ends if the expert can run on no other
    device, or if no move lowers the makespan.

    Args:
        costs: costs of the layer's experts.
        placement: their locations.
        loads: their tokens.
        dimms: DIMMs of the machine.
        shared_ns: the shared experts, which the GPU computes in any case ("hot experts (e.g., shared
            experts)", Section 1).
        limit: maximum number of moves of the refinement.
    """
    devices, busy = np.empty_like(loads), np.zeros(DIMM + dimms + 1)
    busy[GPU] = shared_ns
    memory = np.where(placement.dimm == STRIPED, dimms, placement.dimm) + DIMM
    work = np.empty_like(busy)
    moves, greedy_ns = schedule(costs.time, costs.contention, memory, loads, limit, devices, busy, work)
    busy[DIMM:] += busy[-1]
    return Schedule(costs, devices, busy[:-1], moves, greedy_ns)
