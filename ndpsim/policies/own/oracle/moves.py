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

_Place = tuple[str, int, int]  # an engine; for NDP with the first DIMM and the number of DIMMs
_Ends = Mapping[_Place, float]  # the end of each place
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

    A place is an engine, or the DIMMs of some experts.
    """

    def __init__(self, view: LayerView, machine: Machine, estimates: Estimates) -> None:
        self._times = whole_expert_ns(view, machine, estimates)
        self._here = view.placement.resident | view.arriving
        location = zip(view.placement.dimm.tolist(), view.placement.shards.tolist(), strict=True)
        self._location = list(location)
        self._least_share = 1 / machine.model.expert_intermediate
        self._copy_ns, self._shared_ns = estimates.copy_ns, estimates.shared_ns
        self._places: dict[_Place, list[int]] = {}
        for engine, times in self._times.items():
            for expert in times:
                self._places.setdefault(self._place(engine, expert), []).append(expert)

    def proposed(self, assignment: Assignment, ends_ns: Mapping[str, float]) -> Iterator[Assignment]:
        """Changed assignments.

        First the GPU computes its experts in the order of their arrival. Then all experts of the place that
        ends last and of another place are distributed again. Then experts, or shares of them, move away from
        it, or are exchanged: many at once, then fewer, and finally each by itself.

        ends_ns: the end of each resource.
        """
        plan = plan_of(assignment)
        ends = self._ends(ends_ns)
        if not ends:
            return
        if (order := self._in_arrival_order(plan["gpu"])) != list(plan["gpu"]):
            yield assignment_of(plan | {"gpu": {one: plan["gpu"][one] for one in order}}, assignment)
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
        here = [one for one in parts if self._here[one]]
        copied = [one for one in parts if not self._here[one]]
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

    def _place(self, engine: str, expert: int) -> _Place:
        return (engine, *self._location[expert]) if engine == "ndp" else (engine, 0, 0)

    def _ends(self, ends_ns: Mapping[str, float]) -> dict[_Place, float]:
        """The time at which each place ended."""
        return {
            place: max(ends_ns.get(f"ndp {dimm}", 0.0) for dimm in range(place[1], place[1] + place[2]))
            if place[0] == "ndp"
            else ends_ns.get(place[0], 0.0)
            for place in self._places
        }

    # Distribution of the experts of two places

    def _pooled(self, plan: Plan, ends: _Ends, source: _Place, target: _Place) -> Plan:
        """The distribution with which both places end at the same time, as early as possible.

        Experts are sorted by the ratio of their times in both places, and one expert is split. This is
        optimal if experts can be split at any point.
        """
        away, to = source[0], target[0]
        there = set(self._places[target])
        shares = {one: plan[away].get(one, 0.0) + plan[to].get(one, 0.0) for one in self._places[source]}
        pool = [one for one in self._places[source] if one in there and shares[one]]
        costs, gains = self._scaled(plan, target, ends[target]), self._scaled(plan, source, ends[source])
        pool.sort(key=lambda one: (gains[one] / costs[one], one))
        source_ns = ends[source] - sum(plan[away].get(one, 0.0) * gains[one] for one in pool)
        target_ns = ends[target] + sum(plan[away].get(one, 0.0) * costs[one] for one in pool)
        for one in pool:
            balanced = int((target_ns - source_ns) / (costs[one] + gains[one]) * _SHARES) / _SHARES
            share = min(max(balanced, 0.0), shares[one])
            source_ns += share * gains[one]
            target_ns -= share * costs[one]
            plan = self._with_share(plan, one, away, to, share)
        return plan

    def _scaled(self, plan: Plan, place: _Place, end_ns: float) -> dict[int, float]:
        """Times of experts in a place, scaled by its simulated time over the time of its experts alone."""
        times = self._times[place[0]]
        of_place = set(self._places[place])
        alone_ns = sum(share * times[one] for one, share in plan[place[0]].items() if one in of_place)
        scale = end_ns / alone_ns if alone_ns and end_ns else 1.0
        return {one: scale * times[one] for one in of_place}

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

    # Steps away from the place that ends last

    def _chained(self, plan: Plan, ends: dict[_Place, float]) -> Iterator[Plan]:
        """Plans after many steps, then after fewer; each step is the best by the estimates."""
        plans: list[Plan] = []
        while len(plans) < _MOST_STEPS:
            best = min(self._steps(plan, ends), default=None)
            if best is None:
                break
            for expert, away, to, share in best[2]:
                for engine, sign in ((away, -1), (to, 1)):
                    ends[self._place(engine, expert)] += sign * share * self._times[engine][expert]
            plan = self._after(plan, best[2])
            plans.append(plan)
        count = len(plans)
        while count > 1:
            yield plans[count - 1]
            count //= 2

    def _steps(self, plan: Plan, ends: _Ends) -> Iterator[tuple[float, float, tuple[_Step, ...]]]:
        """Steps with an estimated gain: the end of all places, the end of both places, and the steps."""
        last = _last(ends)
        for target in sorted(ends):
            if target[0] == last[0]:
                continue
            rest_ns = max((ns for place, ns in ends.items() if place not in (last, target)), default=0.0)
            there = set(self._places[target])
            leaving = [one for one in self._places[last] if one in there and one in plan[last[0]]]
            for both_ns, steps in (
                *self._single(plan, leaving, last, target, ends),
                *self._swaps(plan, leaving, last, target, ends),
            ):
                if both_ns < ends[last] * (1 - _LEAST_GAIN):
                    yield max(both_ns, rest_ns), both_ns, steps

    def _single(
        self, plan: Plan, leaving: Sequence[int], source: _Place, target: _Place, ends: _Ends
    ) -> Iterator[tuple[float, tuple[_Step, ...]]]:
        """A whole expert moves, or the share that balances both places."""
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
        self, plan: Plan, leaving: Sequence[int], source: _Place, target: _Place, ends: _Ends
    ) -> Iterator[tuple[float, tuple[_Step, ...]]]:
        """The best exchanges of two whole experts."""
        away, to, here = source[0], target[0], set(self._places[source])
        ones = [one for one in leaving if plan[away][one] == 1.0]
        others = [one for one in self._places[target] if one in here and plan[to].get(one) == 1.0]
        if not ones or not others:
            return
        times = self._times
        first = {engine: np.array([times[engine][one] for one in ones])[:, None] for engine in (away, to)}
        second = {engine: np.array([times[engine][one] for one in others]) for engine in (away, to)}
        both_ns = np.maximum(ends[source] - first[away] + second[away], ends[target] + first[to] - second[to])
        for place in np.argsort(both_ns, axis=None, kind="stable")[:_BEST_SWAPS].tolist():
            one, other = ones[place // len(others)], others[place % len(others)]
            yield float(both_ns.flat[place]), ((one, away, to, 1.0), (other, to, away, 1.0))

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


def _last(ends: _Ends) -> _Place:
    """The place that ends last."""
    return max(ends, key=lambda place: (ends[place], place))
