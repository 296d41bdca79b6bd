"""Schedules and migrations of TriMoE once more, with NumPy and lists, as its policy reads.

See `ndpsim.policies.assignment.bottleneck` and `relocation`.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ndpsim.policies.assignment.bottleneck import CPU, DIMM, GPU, MISSING, RESIDENT
from ndpsim.policies.assignment.relocation import HOT
from ndpsim.policies.interface import Migration, Parts
from ndpsim.policies.offline import descending
from ndpsim.policies.published.trimoe.makespan import CostModel, ExpertCosts
from ndpsim.policies.published.trimoe.policy import TriMoE
from ndpsim.policies.views import (
    STRIPED,
    BackgroundView,
    Estimates,
    Flags,
    Floats,
    Ints,
    LayerPlacement,
    LayerView,
)
from oracles.assignment_kernels import schedule


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


def engine_costs(
    model: CostModel, loads: Ints, placement: LayerPlacement, arriving: Flags | None = None
) -> EngineCosts:
    """The cost of each expert at its location.

    Args:
        loads: tokens by expert.
        placement: locations of experts.
        arriving: flags [expert]: being copied to the GPU. The GPU waits for the part of the copy after
            the window; the host's read of it is not counted again.
    """
    with_gpu = np.where(placement.resident, RESIDENT, MISSING if arriving is None else arriving)
    location = 2 * with_gpu + (placement.dimm != STRIPED)
    most = model.estimates.most_tokens
    tokens = np.minimum(loads, most)
    return EngineCosts(
        model._time.take(location * (most + 1) + tokens, axis=1),
        model._contention.take(location, axis=1),
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


@dataclass(eq=False)
class Task:
    """A migration, the expert that it evicts from the GPU's memory or None, and its benefit.

    `placement`: the placement of the layer that the decision assumed.
    """

    migration: Migration
    victim: int | None
    placement: LayerPlacement
    benefit_ns: float

    @property
    def resource(self) -> str:
        """The resource that it occupies: "pcie" or "link"."""
        return "pcie" if self.migration.kind == "prefetch" else "link"

    def benefit(self, costs: ExpertCosts) -> float:
        """The benefit of a move in another step, in ns."""
        move, placement = self.migration, self.placement
        if move.kind == "prefetch":
            return _prefetch_benefit(costs.gain(placement.dimm), move.expert, self.victim)
        if move.kind == "relayout":
            return _relayout_benefit(costs, move.expert, move.to)
        busy = ndp_busy(costs, placement, max(move.to, int(placement.dimm.max())) + 1)
        return _rebalance_benefit(busy, costs.ndp[move.expert], placement.dimm[move.expert], move.to)


def _prefetch_benefit(gain: Floats, expert: int, victim: int | None) -> float:
    return float(gain[expert] - (0.0 if victim is None else gain[victim]))


def _relayout_benefit(costs: ExpertCosts, expert: int, to: int) -> float:
    saved = float(costs.localized[expert] - costs.striped[expert])
    return saved if to == STRIPED else -saved


def _rebalance_benefit(busy: Floats, ndp_ns: float, source: int, to: int) -> float:
    before = max(busy[source], busy[to])
    return float(before - max(busy[source] - ndp_ns, busy[to] + ndp_ns))


def _falling(task: Task) -> float:
    """Sort key: tasks by benefit, largest first."""
    return -task.benefit_ns


@dataclass
class Window:
    """The overlap window, in ns, and the time spent of it on PCIe and on the links between DIMMs.

    Attributes:
        budget_ns: its length.
        together: whether both use one budget.
        overrun: whether a task may end after the window, if its benefit in `steps` steps is larger than its
            time after the window.
        steps: see `overrun`.
    """

    budget_ns: float
    together: bool
    overrun: bool
    steps: int

    def __post_init__(self) -> None:
        self._spent = {"pcie": 0.0, "link": 0.0}

    def spent_ns(self, resource: str) -> float:
        """Time spent of the budget of a resource."""
        return sum(self._spent.values()) if self.together else self._spent[resource]

    def spend(self, task: Task) -> None:
        """Add the time of a task."""
        self._spent[task.resource] += task.migration.estimated_ns

    def full(self, resource: str) -> bool:
        """Whether nothing is left of the budget."""
        return self.spent_ns(resource) >= self.budget_ns

    def fits(self, resource: str, benefit_ns: Any, time_ns: Any) -> Any:
        """Whether a task, or each of several alone, fits the rest of the window."""
        behind_ns = self.spent_ns(resource) + time_ns - self.budget_ns
        return (behind_ns <= 0) | (self.overrun & (self.steps * benefit_ns > behind_ns))

    def taken(self, *kinds: Iterable[Task]) -> list[Task]:
        """Tasks by benefit until their times fill the window; each expert once.

        kinds: tasks of a kind, in this order.
        """
        taken: list[Task] = []
        used: set[int] = set()
        for task in heapq.merge(*kinds, key=_falling):
            expert, resource = task.migration.expert, task.resource
            if expert in used or self.full(resource):
                continue
            if self.fits(resource, task.benefit_ns, task.migration.estimated_ns):
                self.spend(task)
                used.add(expert)
                taken.append(task)
        return taken


def ndp_busy(costs: ExpertCosts, placement: LayerPlacement, dimms: int) -> Floats:
    """Busy time of each DIMM with the experts for which NDP is best: [dimm], in ns."""
    times = np.where(placement.resident, 0.0, costs.ndp)
    return np.bincount(placement.dimm - STRIPED, times, dimms + 1)[1:].astype(np.float64)


@dataclass(eq=False)
class Coming:
    """The next layer.

    Attributes:
        layer: its number.
        costs: predicted costs of its experts.
        placement: placement of its experts after all current migrations.
        moving: flags [expert]: it is being moved.
        dimms: DIMMs of the machine.
    """

    layer: int
    costs: ExpertCosts
    placement: LayerPlacement
    moving: Flags
    dimms: int
    estimates: Estimates

    @cached_property
    def movable(self) -> Flags:
        """Flags [expert]: it is neither in the GPU's memory nor being moved."""
        return np.asarray(~(self.placement.resident | self.moving))

    @cached_property
    def busy_ns(self) -> Floats:
        """See `ndp_busy`."""
        return ndp_busy(self.costs, self.placement, self.dimms)


def prefetches(coming: Coming, hot: Flags, free: int) -> list[Task]:
    """Experts predicted as hot, the hottest first; without `free` space they replace cold residents."""
    wanted = np.flatnonzero(hot & coming.movable).tolist()
    if not wanted:
        return []
    placement, time_ns = coming.placement, coming.estimates.pcie_ns
    gain = coming.costs.gain(placement.dimm)
    there = np.flatnonzero(placement.resident & ~coming.moving).tolist()
    if free <= 0 and (not there or gain[wanted].max() <= gain[there].min()):
        return []
    wanted.sort(key=(-gain).tolist().__getitem__)
    there.sort(key=gain.tolist().__getitem__)
    tasks = []
    for expert, victim in zip(wanted, [*[None] * max(free, 0), *there], strict=False):
        benefit = _prefetch_benefit(gain, expert, victim)
        if benefit > 0:
            migration = Migration("prefetch", coming.layer, expert, estimated_ns=time_ns)
            tasks.append(Task(migration, victim, placement, benefit))
    return sorted(tasks, key=_falling)


def relayouts(coming: Coming, window: Window) -> Iterator[Task]:
    """Experts whose layout is not that of their best engine, those that gain most first.

    A striped expert goes to the least busy DIMM, including the experts before it. There are none if the
    links' window is full, or too short for each of them.
    """
    costs, estimates = coming.costs, coming.estimates
    times = estimates.to_striped_ns, estimates.to_localized_ns
    striped = coming.placement.dimm == STRIPED
    saved = costs.localized - costs.striped
    saved = np.where(striped, -saved, saved)
    wanted = np.flatnonzero((saved > 0) & coming.movable)
    most = saved[wanted].max(initial=0.0)
    if not len(wanted) or not any(window.fits("link", most, time) for time in times):
        return
    busy: list[float] = coming.busy_ns.tolist()
    for expert in descending(saved, wanted).tolist():
        if window.full("link"):
            return
        to = STRIPED
        if striped[expert]:
            to = busy.index(min(busy))
            busy[to] += float(costs.ndp[expert])
        migration = Migration("relayout", coming.layer, expert, to, times[to != STRIPED])
        yield Task(migration, None, coming.placement, float(saved[expert]))


def rebalances(coming: Coming, skew: float, most: int) -> list[Task]:
    """Moves of cold experts, one by one, from the busiest DIMM to the least busy one, while there is skew.

    There is skew if the busiest DIMM is busy for longer than the mean by more than the share `skew`. The
    moved expert is the one that makes the two DIMMs most equal; ties go to the first. At most `most` experts
    move.
    """
    time_ns, placement = coming.estimates.rebalance_ns, coming.placement
    busy, movable = coming.busy_ns, coming.movable & (coming.costs.ndp > 0)
    tasks: list[Task] = []
    while len(tasks) < most and len(busy) and busy.max() > busy.sum() / len(busy) * (1 + skew):
        source, to = int(busy.argmax()), int(busy.argmin())
        experts = np.flatnonzero(movable & (placement.dimm == source))
        if not len(experts):
            break
        times = coming.costs.ndp[experts]
        chosen = int(np.argmin(np.abs(busy[source] - busy[to] - 2 * times)))
        expert, time = int(experts[chosen]), float(times[chosen])
        benefit = _rebalance_benefit(busy, time, source, to)
        if benefit <= 0:
            break
        migration = Migration("rebalance", coming.layer, expert, to, time_ns)
        tasks.append(Task(migration, None, placement, benefit))
        busy, dimm = busy.copy(), placement.dimm.copy()
        busy[source] -= time
        busy[to] += time
        dimm[expert] = to
        movable[expert] = False
        placement = LayerPlacement(dimm, placement.shards, placement.resident)
    return sorted(tasks, key=_falling)


def engines_of(policy: TriMoE, view: LayerView) -> list[Parts]:
    """Experts of GPU, CPU and NDP units as `TriMoE.assign` lists them in a decode step."""
    costs, wanted = engine_costs(policy.costs, view.loads, view.placement, view.arriving), policy.parameters
    limit, dimms = wanted.refine_limit if wanted.refine else 0, policy.machine.dimms
    shared_ns, there = policy.estimates.shared_ns, np.where(view.arriving, 1, 2)
    found = scheduled(costs, view.placement, view.loads, dimms, shared_ns, limit)
    return found.engines(np.where(view.placement.resident, 0, there))


def migrations(policy: TriMoE, view: BackgroundView) -> list[Migration]:
    """What `TriMoE.background` decides; its state is as before that call."""
    wanted, row = policy.parameters, policy.row[view.next_layer]
    loads = policy.predictor.loads.copy()
    average = loads[policy.row[view.layer]]
    average += wanted.alpha * (view.loads - average)
    costs = policy.costs.expert_costs(loads[row])
    hot = costs.classes(int(policy.room[row])) == HOT
    window = Window(
        policy.estimates.window_ns, wanted.budget == "together", wanted.overrun, wanted.benefit_steps
    )
    here = view.placement.of_layer(row)
    dimm, resident = here.dimm.copy(), here.resident.copy()
    for begun in (task.migration for task in policy.under_way):
        if not view.moving[policy.row[begun.layer], begun.expert]:
            continue
        window.spend(Task(begun, None, here, 0.0))
        if begun.layer == view.next_layer and begun.kind == "prefetch":
            resident[begun.expert] = True
        elif begun.layer == view.next_layer:
            dimm[begun.expert] = begun.to
    soon = LayerPlacement(dimm, here.shards, resident)
    coming = Coming(view.next_layer, costs, soon, view.moving[row], policy.machine.dimms, policy.estimates)
    kinds: list[Iterable[Task]] = []
    if wanted.prefetch:
        kinds.append(prefetches(coming, hot, view.gpu_free))
    if policy.machine.has_links and wanted.relayout:
        kinds.append(relayouts(coming, window))
    if policy.machine.has_links and wanted.rebalance:
        most = 1 + int(window.budget_ns / max(policy.estimates.rebalance_ns, 1.0))
        kinds.append(rebalances(coming, wanted.skew, most))
    answer = []
    for task in window.taken(*kinds):
        if task.victim is not None:
            answer.append(Migration("evict", view.next_layer, task.victim))
        answer.append(task.migration)
    return answer
