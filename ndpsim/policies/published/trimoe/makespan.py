"""Times of experts on GPU, CPU and DIMMs, and of a layer: equations 1 to 7 of TriMoE.

Devices are the GPU, the CPU and each DIMM: `GPU`, `CPU`, and `DIMM` + d. The paper's equations know neither
activations on PCIe nor the host's sum of results, and so does this model not.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ndpsim.policies.views import STRIPED, Estimates, Flags, Floats, LayerPlacement

GPU = 0
CPU = 1
#: The first DIMM.
DIMM = 2

#: A makespan lower by no more than this share is not lower: it is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class EngineCosts:
    """Costs of the experts of a layer in ns, arrays [expert]; infinite where an engine cannot.

    Attributes:
        gpu: of equation 1 where the expert is with the GPU, of equation 2 elsewhere.
        cpu, ndp: of equations 3 and 4.
        gpu_contention, cpu_contention: by how much longer each DIMM with weights of it is busy, because the
            host reads them (equation 6); 0: they are not read.
    """

    gpu: Floats
    cpu: Floats
    ndp: Floats
    gpu_contention: Floats
    cpu_contention: Floats


@dataclass(frozen=True, eq=False)
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

    def hot(self, room: int) -> Flags:
        """The experts, `room` at most, that gain most by being with the GPU, at any location."""
        hot = np.zeros(len(self._hottest), np.bool_)
        hot[self._hottest[:room]] = True
        return hot & (self._most_gain > 0)

    @cached_property
    def _most_gain(self) -> Floats:
        return np.minimum(self.striped, self.localized) - self.resident

    @cached_property
    def _hottest(self) -> NDArray[np.intp]:
        """All experts, those first that gain most."""
        return (-self._most_gain).argsort(kind="stable")

    def gain(self, dimm: NDArray[np.int16]) -> Floats:
        """Gain of each expert by being in the GPU, from its location."""
        return np.where(dimm == STRIPED, self.striped, self.localized) - self.resident


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
        self._tokens = np.arange(estimates.most_tokens + 1, dtype=np.float64)
        part = estimates.localized_read_ns / max(dimms, 1)
        self._striped_contention_ns = estimates.striped_read_ns if whole_reads else part
        #: What is left of a copy that was to end in the window.
        self._late_copy_ns = max(0.0, estimates.pcie_ns - estimates.window_ns)

    def _times(self, loads: NDArray[np.floating | np.integer]) -> tuple[Floats, Floats, Floats]:
        """f_calc_gpu, f_calc_cpu and equation 4, which is simulated with its read, for at least a token."""
        tokens, estimates = np.maximum(loads, 1), self.estimates
        tables = estimates.gpu_ns, estimates.cpu_ns, estimates.ndp_ns
        if tokens.dtype.kind == "i":
            gpu, cpu, ndp = (table.take(tokens, mode="clip") for table in tables)
        else:
            gpu, cpu, ndp = (np.interp(tokens, self._tokens, table) for table in tables)
        return gpu, cpu if self.cpu else np.full(len(cpu), np.inf), ndp

    def costs(
        self, loads: NDArray[np.integer], placement: LayerPlacement, arriving: Flags | None = None
    ) -> EngineCosts:
        """The cost of each expert at its location.

        Args:
            loads: tokens by expert.
            placement: locations of experts.
            arriving: flags [expert]: on its way to the GPU. The GPU waits for what the window left of that
                copy, and the host's read of it has been paid for.
        """
        gpu, cpu, ndp = self._times(loads)
        striped = placement.dimm == STRIPED
        read = np.where(striped, self.estimates.striped_read_ns, self.estimates.localized_read_ns)
        contention = np.where(striped, self._striped_contention_ns, self.estimates.localized_read_ns)
        missed = np.maximum(np.maximum(gpu, self.estimates.pcie_ns), read)  # eq. 2
        there = placement.resident
        if arriving is not None and arriving.any():
            missed = np.where(arriving, np.maximum(gpu, self._late_copy_ns), missed)
            there = there | arriving
        return EngineCosts(
            gpu=np.where(placement.resident, gpu, missed),  # eq. 1
            cpu=np.maximum(cpu, read),  # eq. 3
            ndp=np.where(striped, np.inf, ndp),  # eq. 4
            gpu_contention=np.where(there, 0.0, contention),
            cpu_contention=contention,
        )

    def expert_costs(self, loads: NDArray[np.floating | np.integer]) -> ExpertCosts:
        """Costs of each expert in a step with this many tokens, or this many in the mean."""
        gpu, cpu, ndp = self._times(loads)
        share = np.minimum(loads, 1.0)
        striped = _host_ns(gpu, cpu, self.estimates.pcie_ns, self.estimates.striped_read_ns)
        if not self.dimms:
            never = np.full(len(gpu), np.inf)
            return ExpertCosts(striped * share, never, gpu * share, np.zeros(len(gpu)), never < striped)
        read = _host_ns(gpu, cpu, self.estimates.pcie_ns, self.estimates.localized_read_ns)
        near = ndp <= read
        localized = np.where(near, ndp / self.dimms, read)
        return ExpertCosts(
            striped * share,
            localized * share,
            gpu * share,
            np.where(near, ndp * share, 0.0),
            localized < striped,
        )


def _host_ns(gpu: Floats, cpu: Floats, pcie_ns: float, read_ns: float) -> Floats:
    """The lesser of equations 2 and 3."""
    return np.maximum(np.minimum(np.maximum(gpu, pcie_ns), cpu), read_ns)


class Schedule:
    """Experts on devices, and how long each device is busy by equations 5 and 6.

    Args:
        costs: of the layer's experts.
        placement: their locations.
        dimms: DIMMs of the machine.
        shared_ns: the shared experts, which the GPU computes in any case ("hot experts (e.g., shared
            experts)", Section 1).
    """

    def __init__(
        self, costs: EngineCosts, placement: LayerPlacement, dimms: int, shared_ns: float = 0.0
    ) -> None:
        self._cost: tuple[list[float], ...] = costs.gpu.tolist(), costs.cpu.tolist(), costs.ndp.tolist()
        self._read: tuple[list[float], ...] = costs.gpu_contention.tolist(), costs.cpu_contention.tolist()
        self._dimm: list[int] = placement.dimm.tolist()
        #: Of the GPU, the CPU and each DIMM; of a DIMM without the striped reads.
        self._busy = [shared_ns, 0.0, *[0.0] * dimms]
        #: Striped reads, which make every DIMM busy.
        self._striped_ns = 0.0
        self.device: dict[int, int] = {}
        #: (cost, -expert) of each device's experts, ascending: the last is the most costly, of equals the
        #: first expert.
        self._on: list[list[tuple[float, int]]] = [[] for _ in self._busy]

    def cost(self, expert: int, device: int) -> float:
        """Equation 1 to 4 of an expert on a device, infinite where it cannot run."""
        if device < DIMM:
            return self._cost[device][expert]
        return self._cost[DIMM][expert] if self._dimm[expert] == device - DIMM else float("inf")

    def _add(self, expert: int, device: int, sign: int, busy: list[float]) -> float:
        """Change `busy` by an expert on a device; the striped reads that come or go."""
        busy[device] += sign * self.cost(expert, device)
        read = self._read[device][expert] if device < DIMM else 0.0
        if not read or len(busy) == DIMM:
            return 0.0
        if self._dimm[expert] == STRIPED:
            return sign * read
        busy[DIMM + self._dimm[expert]] += sign * read
        return 0.0

    def put(self, expert: int, device: int) -> None:
        """An expert onto a device, first or instead of where it is."""
        before = self.device.get(expert)
        if before is not None:
            self._on[before].remove((self.cost(expert, before), -expert))
            self._striped_ns += self._add(expert, before, -1, self._busy)
        self._striped_ns += self._add(expert, device, 1, self._busy)
        self.device[expert] = device
        bisect.insort(self._on[device], (self.cost(expert, device), -expert))

    def put_all(self, devices: Iterable[tuple[int, int]]) -> None:
        """Experts that are nowhere yet, each onto a device."""
        busy, on = self._busy, self._on
        for expert, device in devices:
            cost = self._cost[min(device, DIMM)][expert]
            busy[device] += cost
            self.device[expert] = device
            on[device].append((cost, -expert))
            if device >= DIMM or len(busy) == DIMM:
                continue
            if self._dimm[expert] == STRIPED:
                self._striped_ns += self._read[device][expert]
            else:
                busy[DIMM + self._dimm[expert]] += self._read[device][expert]
        for listed in on:
            listed.sort()

    def totals(self) -> list[float]:
        """How long the GPU, the CPU (equation 5) and each DIMM (equation 6) are busy."""
        return [*self._busy[:DIMM], *[one + self._striped_ns for one in self._busy[DIMM:]]]

    @property
    def makespan_ns(self) -> float:
        """Equation 7."""
        return _makespan(self._busy, self._striped_ns)

    def if_moved(self, expert: int, device: int) -> tuple[float, float]:
        """The makespan after a move, and by how much longer the receiving device is busy."""
        busy = self._busy.copy()
        striped = self._striped_ns + self._add(expert, self.device[expert], -1, busy)
        striped += self._add(expert, device, 1, busy)
        longer = _total(device, busy, striped) - _total(device, self._busy, self._striped_ns)
        return _makespan(busy, striped), longer

    def most_costly(self, device: int) -> int | None:
        """The most costly expert on a device; of equals the first; None: there is none."""
        return -self._on[device][-1][1] if self._on[device] else None

    def places(self, expert: int) -> list[int]:
        """Devices where an expert may run, except for the one where it is."""
        own = (GPU, CPU, DIMM + self._dimm[expert])
        return [
            device
            for device in own
            if device != self.device[expert] and self.cost(expert, device) != float("inf")
        ]

    def experts(self, device: int) -> list[int]:
        """The experts on a device, the most costly first."""
        return [-negative for _, negative in reversed(self._on[device])]


def _total(device: int, busy: Sequence[float], striped_ns: float) -> float:
    """How long a device is busy."""
    return busy[device] + striped_ns if device >= DIMM else busy[device]


def _makespan(busy: Sequence[float], striped_ns: float) -> float:
    """How long the busiest device is busy."""
    return max(busy[GPU], busy[CPU], max(busy[DIMM:], default=0.0) + striped_ns)


def greedy(
    costs: EngineCosts, placement: LayerPlacement, active: Iterable[int], dimms: int, shared_ns: float = 0.0
) -> Schedule:
    """Each active expert on the engine with the least of equations 1 to 4.

    Of equals the engine that needs the least besides itself: NDP, then the CPU, then the GPU.
    """
    schedule = Schedule(costs, placement, dimms, shared_ns)
    best = np.argmin((costs.ndp, costs.cpu, costs.gpu), axis=0).tolist()
    dimm = placement.dimm.tolist()
    schedule.put_all((expert, (DIMM + dimm[expert], CPU, GPU)[best[expert]]) for expert in active)
    return schedule


def refine(schedule: Schedule, limit: int) -> int:
    """Moves experts while that lowers the makespan, `limit` times at most; how many have been moved.

    Each time the most costly expert of the busiest device goes to that device where the makespan is least, of
    equals to the one that is busy least longer by it (Section 4.2). Where it may run on none, or where no
    move lowers the makespan, refinement ends.
    """
    for moves in range(limit):
        totals = schedule.totals()
        makespan = max(totals)
        expert = schedule.most_costly(totals.index(makespan))
        if expert is None:
            return moves
        best = min(((*schedule.if_moved(expert, to), to) for to in schedule.places(expert)), default=None)
        if best is None or best[0] >= makespan * (1 - _ROUNDING):
            return moves
        schedule.put(expert, best[2])
    return limit
