"""Migrations with a benefit, and the choice of those that fit an overlap window: TriMoE, Section 4.3.

A task is a migration, with the eviction that makes space for it. Its benefit is the gain of the layer's next
visit:

- prefetch: the gain of the expert in the GPU's memory, minus the gain of the evicted one;
- relayout: the difference between the two layouts;
- rebalance: the reduction of the later end of the two DIMMs.

After that visit the benefit is computed again with the actual loads, to judge the decision.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ndpsim.policies.interface import Migration
from ndpsim.policies.published.trimoe.makespan import ExpertCosts
from ndpsim.policies.statistics import descending
from ndpsim.policies.views import STRIPED, Estimates, Flags, Floats, LayerPlacement


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
