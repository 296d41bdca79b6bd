"""Changes of a layer's assignment that may shorten it, sorted by their estimated gain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ndpsim.policies.interface import Assignment, Part, parts_of
from ndpsim.policies.script import ENGINES, whole_expert_ns
from ndpsim.policies.views import Estimates, LayerView, Machine

#: For each engine the shares of its experts, in the engine's order.
Plan = dict[str, dict[int, float]]

_Resource = tuple[str, int, int]  # an engine; for NDP with the first DIMM and the number of DIMMs
_Ends = Mapping[_Resource, float]  # the end of each resource
_Step = tuple[int, str, str, float]  # an expert, its old and new engine, and the moved share

_SHARES = 16  # number of equal parts of a split expert
_BEST_SWAPS = 4
_MOST_STEPS = 32  # that follow each other by the estimates alone
_LEAST_GAIN = 1e-6  # of a time


def plan_of(assignment: Assignment) -> Plan:
    """The shares of an assignment."""
    return {engine: dict(parts_of(getattr(assignment, engine))) for engine in ENGINES}


def assignment_of(plan: Plan, like: Assignment) -> Assignment:
    """An assignment of these shares, otherwise equal to `like`, without an estimate."""
    gpu, cpu, ndp = (tuple(Part(*part) for part in plan[engine].items()) for engine in ENGINES)
    return replace(like, gpu=gpu, cpu=cpu, ndp=ndp, estimated_ns=None)


def on_gpu(assignment: Assignment, expert: int) -> Assignment:
    """The assignment with a whole expert added on the GPU as the last one."""
    plan = plan_of(assignment)
    for parts in plan.values():
        parts.pop(expert, None)
    plan["gpu"][expert] = 1.0
    return assignment_of(plan, assignment)


class LayerMoves:
    """The moves of one layer, when its tokens are routed.

    A resource is an engine, or the DIMMs of some experts.
    """

    def __init__(self, view: LayerView, machine: Machine, estimates: Estimates) -> None:
        self._times = whole_expert_ns(view, machine, estimates)
        self._here = view.placement.resident | view.arriving
        location = zip(view.placement.dimm.tolist(), view.placement.shards.tolist(), strict=True)
        self._location = list(location)
        self._least_share = 1 / machine.model.expert_intermediate
        self._copy_ns, self._shared_ns = estimates.copy_ns, estimates.shared_ns
        self._experts: dict[_Resource, list[int]] = {}
        for engine, times in self._times.items():
            for expert in times:
                self._experts.setdefault(self._resource(engine, expert), []).append(expert)

    def proposed(self, assignment: Assignment, ends_ns: Mapping[str, float]) -> Iterator[Assignment]:
        """Changed assignments.

        First the GPU computes its experts in the order of their arrival. Then all experts of the resource
        that ends last and of another are distributed again. Then experts, or shares of them, move away from
        it, or are exchanged: many at once, then fewer, and finally each by itself.

        ends_ns: the end of each resource.
        """
        plan = plan_of(assignment)
        ends = self._ends(ends_ns)
        if not ends:
            return
        if (order := self._in_arrival_order(plan["gpu"])) != list(plan["gpu"]):
            yield assignment_of(plan | {"gpu": {expert: plan["gpu"][expert] for expert in order}}, assignment)
        last = _last(ends)
        for target in sorted(ends):
            if target[0] != last[0] and (pooled := self._pooled(plan, ends, last, target)) != plan:
                yield assignment_of(pooled, assignment)
        for changed in self._chained(plan, dict(ends)):
            yield assignment_of(changed, assignment)
        for _, _, steps in sorted(self._steps(plan, ends)):
            yield assignment_of(self._after(plan, steps), assignment)

    def _in_arrival_order(self, parts: Mapping[int, float]) -> list[int]:
        """Copied experts in the order of their estimated arrival, residents in between."""
        here = [expert for expert in parts if self._here[expert]]
        copied = [expert for expert in parts if not self._here[expert]]
        order: list[int] = []
        now_ns, arrives_ns = self._shared_ns, self._copy_ns
        while here or copied:
            if copied and (arrives_ns <= now_ns or not here):
                now_ns = max(now_ns, arrives_ns)
                arrives_ns += self._copy_ns
                order.append(copied.pop(0))
                continue
            order.append(here.pop(0))
            now_ns += self._times["gpu"][order[-1]]
        return order

    def _resource(self, engine: str, expert: int) -> _Resource:
        return (engine, *self._location[expert]) if engine == "ndp" else (engine, 0, 0)

    def _ends(self, ends_ns: Mapping[str, float]) -> dict[_Resource, float]:
        """The time at which each resource ended."""
        return {
            resource: max(
                ends_ns.get(f"ndp {dimm}", 0.0) for dimm in range(resource[1], resource[1] + resource[2])
            )
            if resource[0] == "ndp"
            else ends_ns.get(resource[0], 0.0)
            for resource in self._experts
        }

    # Distribution of the experts of two resources

    def _pooled(self, plan: Plan, ends: _Ends, source: _Resource, target: _Resource) -> Plan:
        """The distribution with which both resources end at the same time, as early as possible.

        Experts are sorted by the ratio of their times in both resources, and one expert is split. This is
        optimal if experts can be split at any point.
        """
        away, to = source[0], target[0]
        there = set(self._experts[target])
        shares = {e: plan[away].get(e, 0.0) + plan[to].get(e, 0.0) for e in self._experts[source]}
        pool = [e for e in self._experts[source] if e in there and shares[e]]
        costs, gains = self._scaled(plan, target, ends[target]), self._scaled(plan, source, ends[source])
        pool.sort(key=lambda e: (gains[e] / costs[e], e))
        source_ns = ends[source] - sum(plan[away].get(e, 0.0) * gains[e] for e in pool)
        target_ns = ends[target] + sum(plan[away].get(e, 0.0) * costs[e] for e in pool)
        for expert in pool:
            balanced = int((target_ns - source_ns) / (costs[expert] + gains[expert]) * _SHARES) / _SHARES
            share = min(max(balanced, 0.0), shares[expert])
            source_ns += share * gains[expert]
            target_ns -= share * costs[expert]
            plan = self._with_share(plan, expert, away, to, share)
        return plan

    def _scaled(self, plan: Plan, resource: _Resource, end_ns: float) -> dict[int, float]:
        """Times of experts in a resource, scaled by its simulated time over the time of its experts alone."""
        times = self._times[resource[0]]
        experts = set(self._experts[resource])
        alone_ns = sum(share * times[e] for e, share in plan[resource[0]].items() if e in experts)
        scale = end_ns / alone_ns if alone_ns and end_ns else 1.0
        return {e: scale * times[e] for e in experts}

    def _with_share(self, plan: Plan, expert: int, away: str, to: str, share: float) -> Plan:
        """The plan with this share of an expert on one of two engines, and the rest of it on the other."""
        had = plan[away].get(expert, 0.0)
        total = had + plan[to].get(expert, 0.0)
        if share < self._least_share:
            share = 0.0
        elif total - share < self._least_share:
            share = total
        if share < had:
            return self._shifted(plan, expert, away, to, had - share)
        return self._shifted(plan, expert, to, away, share - had) if share > had else plan

    # Steps away from the resource that ends last

    def _chained(self, plan: Plan, ends: dict[_Resource, float]) -> Iterator[Plan]:
        """Plans after many steps, then after fewer; each step is the best by the estimates."""
        plans: list[Plan] = []
        while len(plans) < _MOST_STEPS:
            best = min(self._steps(plan, ends), default=None)
            if best is None:
                break
            for expert, away, to, share in best[2]:
                for engine, sign in ((away, -1), (to, 1)):
                    ends[self._resource(engine, expert)] += sign * share * self._times[engine][expert]
            plan = self._after(plan, best[2])
            plans.append(plan)
        count = len(plans)
        while count > 1:
            yield plans[count - 1]
            count //= 2

    def _steps(self, plan: Plan, ends: _Ends) -> Iterator[tuple[float, float, tuple[_Step, ...]]]:
        """Steps with an estimated gain: the end of all resources, of both, and the steps."""
        last = _last(ends)
        for target in sorted(ends):
            if target[0] == last[0]:
                continue
            rest_ns = max((ns for each, ns in ends.items() if each not in (last, target)), default=0.0)
            there = set(self._experts[target])
            leaving = [e for e in self._experts[last] if e in there and e in plan[last[0]]]
            for both_ns, steps in (
                *self._single(plan, leaving, last, target, ends),
                *self._swaps(plan, leaving, last, target, ends),
            ):
                if both_ns < ends[last] * (1 - _LEAST_GAIN):
                    yield max(both_ns, rest_ns), both_ns, steps

    def _single(
        self, plan: Plan, leaving: Sequence[int], source: _Resource, target: _Resource, ends: _Ends
    ) -> Iterator[tuple[float, tuple[_Step, ...]]]:
        """A whole expert moves, or the share that balances both resources."""
        away, to = source[0], target[0]
        for expert in leaving:
            costs, gains, whole = self._times[to][expert], self._times[away][expert], plan[away][expert]
            balanced = int((ends[source] - ends[target]) / (costs + gains) * _SHARES) / _SHARES
            shares = [whole]
            if self._least_share <= balanced <= whole - self._least_share:
                shares.append(balanced)
            for share in shares:
                both_ns = max(ends[source] - share * gains, ends[target] + share * costs)
                yield both_ns, ((expert, away, to, share),)

    def _swaps(
        self, plan: Plan, leaving: Sequence[int], source: _Resource, target: _Resource, ends: _Ends
    ) -> Iterator[tuple[float, tuple[_Step, ...]]]:
        """The best exchanges of two whole experts."""
        away, to, here = source[0], target[0], set(self._experts[source])
        ones = [e for e in leaving if plan[away][e] == 1.0]
        others = [e for e in self._experts[target] if e in here and plan[to].get(e) == 1.0]
        if not ones or not others:
            return
        times = self._times
        first = {engine: np.array([times[engine][e] for e in ones])[:, None] for engine in (away, to)}
        second = {engine: np.array([times[engine][e] for e in others]) for engine in (away, to)}
        both_ns = np.maximum(ends[source] - first[away] + second[away], ends[target] + first[to] - second[to])
        for index in np.argsort(both_ns, axis=None, kind="stable")[:_BEST_SWAPS].tolist():
            expert, partner = ones[index // len(others)], others[index % len(others)]
            yield float(both_ns.flat[index]), ((expert, away, to, 1.0), (partner, to, away, 1.0))

    def _after(self, plan: Plan, steps: Sequence[_Step]) -> Plan:
        for step in steps:
            plan = self._shifted(plan, *step)
        return plan

    def _shifted(self, plan: Plan, expert: int, away: str, to: str, share: float) -> Plan:
        """A share of an expert on another engine: as the last, or before copies if the GPU has the expert."""
        changed = {engine: dict(parts) for engine, parts in plan.items()}
        left = changed[away][expert] - share
        if left > self._least_share / 2:
            changed[away][expert] = left
        else:
            del changed[away][expert]
            share = plan[away][expert]
        total = changed[to].get(expert, 0.0) + share
        if to == "gpu" and self._here[expert] and expert not in changed[to]:
            changed[to] = {expert: total} | changed[to]
        else:
            changed[to][expert] = total
        return changed


def _last(ends: _Ends) -> _Resource:
    """The resource that ends last."""
    return max(ends, key=lambda resource: (ends[resource], resource))
