"""Times of experts on GPU, CPU and DIMMs, and of a layer: equations 1 to 7 of TriMoE.

Devices are the GPU, the CPU and each DIMM: `GPU`, `CPU`, and `DIMM` + d. The paper's equations know neither
activations on PCIe nor the host's sum of results, and so does this model not.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ndpsim.assignment.bottleneck import CPU, DIMM, GPU, schedule
from ndpsim.policies.interface import Parts
from ndpsim.policies.views import STRIPED, Estimates, Flags, Floats, Ints, LayerPlacement

#: Classes of experts.
COLD, WARM, HOT = range(3)

# Whether an expert is with the GPU, or on its way.
_MISSING, _ARRIVING, _RESIDENT = range(3)


@dataclass(eq=False)
class EngineCosts:
    """Costs of the experts of a layer in ns.

    Attributes:
        time: [engine, expert]. Of the GPU equation 1 where the expert is there, 2 elsewhere; of the CPU
            equation 3; of NDP equation 4. Infinite where the engine cannot compute it.
        contention: [engine, expert] of GPU and CPU: by how much longer each DIMM with weights of it is busy,
            because the host reads them (equation 6); 0: they are not read.
    """

    time: Floats
    contention: Floats


@dataclass(eq=False)
class ExpertCosts:
    """Times of a step that each expert of a layer takes, by its location: arrays [expert], in ns.

    On the engine that equations 2 to 4 choose there. DIMMs work at the same time: a time on one of n DIMMs
    takes an n-th of it from the step.

    Attributes:
        striped, localized: it has this location, and is not in the GPU.
        resident: it is with the GPU.
        ndp: its time on its DIMM if it is localized and NDP is its best engine there, else 0.
        cold: flags: it is better localized, for NDP is then its best engine.
    """

    striped: Floats
    localized: Floats
    resident: Floats
    ndp: Floats
    cold: Flags

    @cached_property
    def most_gain(self) -> Floats:
        """What each expert gains by being with the GPU at least, at any location."""
        return np.asarray(np.minimum(self.striped, self.localized) - self.resident)

    def classes(self, room: int) -> Ints:
        """See `classes_of`."""
        return classes_of(self.most_gain, self.cold, room)

    def gain(self, dimm: NDArray[np.int16]) -> Floats:
        """Gain of each expert by being in the GPU, from its location."""
        return np.where(dimm == STRIPED, self.striped, self.localized) - self.resident


def classes_of(most_gain: Floats, cold: Flags, room: int) -> Ints:
    """`COLD`, `WARM` or `HOT` of each expert; hot are those, `room` at most, that gain most."""
    hottest = (-most_gain).argsort(kind="stable")[:room]
    classes = np.where(cold, COLD, WARM)
    classes[hottest[most_gain[hottest] > 0]] = HOT
    return classes


class CostModel:
    """Equations 1 to 4, and what equation 6 adds up, on a policy's estimates.

    Without `cpu` no expert can run on the CPU. A striped read makes each DIMM busy for as long as the DIMM
    takes to serve its part of the bytes; with `whole_reads` for all of the read.

    Numbers of tokens may be means: between whole numbers times are interpolated, and an expert with less than
    a token in the mean costs that share of what it costs with one.
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
        late_copy_ns = max(0.0, of.pcie_ns - of.window_ns)  # what is left when the window has ended
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
            arriving: flags [expert]: on its way to the GPU. The GPU waits for what the window left of that
                copy, and the host's read of it has been paid for.
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
        """Costs of each expert in a step with this many tokens, or this many in the mean."""
        if loads.dtype.kind != "i":
            return self._expert_costs(loads)
        of, tokens = self._by_tokens, np.minimum(loads, self.estimates.most_tokens)
        return ExpertCosts(
            of.striped[tokens], of.localized[tokens], of.resident[tokens], of.ndp[tokens], of.cold[tokens]
        )

    def classes(self, loads: Ints, room: int) -> Ints:
        """See `classes_of`; of a step with this many tokens."""
        of, tokens = self._by_tokens, np.minimum(loads, self.estimates.most_tokens)
        return classes_of(of.most_gain[tokens], of.cold[tokens], room)

    def _expert_costs(self, loads: NDArray[np.floating | np.integer]) -> ExpertCosts:
        gpu, cpu, ndp = self._times(loads)
        share = np.minimum(loads, 1.0)
        fetched = np.minimum(np.maximum(gpu, self.estimates.pcie_ns), cpu)
        striped = np.maximum(fetched, self.estimates.striped_read_ns)  # the lesser of eq. 2 and 3
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
    """Experts on devices, and how long each device is busy by equations 5 and 6.

    Attributes:
        costs: of the layer's experts.
        devices: [expert]: GPU, CPU, a DIMM, or `bottleneck.NOWHERE`.
        busy_ns: [device].
        moves: of the refinement.
        greedy_ns: the makespan before these.
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

    Of equals the engine that needs the least besides itself: NDP, then the CPU, then the GPU. Refinement
    moves the most costly expert of the busiest device to that device where the makespan is least, of equals
    to the one that is busy least longer by it. Where it may run on none, or where no move lowers the
    makespan, refinement ends.

    Args:
        costs: of the layer's experts.
        placement: their locations.
        loads: their tokens.
        dimms: DIMMs of the machine.
        shared_ns: the shared experts, which the GPU computes in any case ("hot experts (e.g., shared
            experts)", Section 1).
        limit: moves of the refinement at most.
    """
    devices, busy = np.empty_like(loads), np.zeros(DIMM + dimms + 1)
    busy[GPU] = shared_ns
    memory = np.where(placement.dimm == STRIPED, dimms, placement.dimm) + DIMM
    work = np.empty_like(busy)
    moves, greedy_ns = schedule(costs.time, costs.contention, memory, loads, limit, devices, busy, work)
    busy[DIMM:] += busy[-1]
    return Schedule(costs, devices, busy[:-1], moves, greedy_ns)
