"""Changes of a layer's assignment that may shorten it, those with the largest gain by the estimates first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ndpsim.policies.interface import Assignment, Estimates, LayerView, Machine, Part
from ndpsim.policies.script import parts_of, whole_expert_ns

__all__ = ["LayerMoves", "Plan", "on_gpu"]

#: By engine, the share of each expert, in the order in which the engine takes them.
Plan = dict[str, dict[int, float]]

_Place = tuple[str, int, int]  # an engine; for NDP with the first DIMM and the number of DIMMs
_Step = tuple[int, str, str, float]  # an expert, from which engine to which, and the share that goes

_SHARES = 16  # an expert is split in so many equal parts
_BEST_SWAPS = 4


def plan_of(assignment: Assignment) -> Plan:
    """The shares of an assignment."""
    return {engine: dict(parts_of(getattr(assignment, engine))) for engine in ("gpu", "cpu", "ndp")}


def assignment_of(plan: Plan, like: Assignment) -> Assignment:
    """An assignment of these shares that is `like` another in all else, its estimate left out."""
    lists = {engine: tuple(Part(*part) for part in parts.items()) for engine, parts in plan.items()}
    return replace(like, **lists, estimated_ns=None)


def on_gpu(assignment: Assignment, expert: int) -> Assignment:
    """The assignment with an expert on the GPU, in full, last of all."""
    plan = plan_of(assignment)
    for parts in plan.values():
        parts.pop(expert, None)
    plan["gpu"][expert] = 1.0
    return assignment_of(plan, assignment)


class LayerMoves:
    """Of one layer, when its tokens are routed."""

    def __init__(self, view: LayerView, machine: Machine, estimates: Estimates) -> None:
        self._times = whole_expert_ns(view, machine, estimates)
        self._here = view.placement.resident | view.arriving
        self._lies = list(
            zip(view.placement.dimm.tolist(), view.placement.shards.tolist(), strict=True)
        )
        self._columns = machine.model.expert_intermediate
        self._copy_ns, self._shared_ns = estimates.copy_ns, estimates.shared_ns

    def proposed(self, assignment: Assignment, ends_ns: Mapping[str, float]) -> Iterator[Assignment]:
        """Changed assignments.

        First the GPU's experts in the order in which they are there. Then an expert, or a share of it, goes
        from the engine that ends last to another one, or changes places with an expert there.

        ends_ns: by resource, when it was done.
        """
        plan = plan_of(assignment)
        if (order := self._as_they_arrive(plan["gpu"])) != list(plan["gpu"]):
            yield assignment_of(plan | {"gpu": {one: plan["gpu"][one] for one in order}}, assignment)
        for changed in self._moved(plan, ends_ns):
            yield assignment_of(changed, assignment)

    def _as_they_arrive(self, parts: Mapping[int, float]) -> list[int]:
        """Those that are copied each as soon as it is there by the estimates, residents meanwhile."""
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
        return (engine, *self._lies[expert]) if engine == "ndp" else (engine, 0, 0)

    def _moved(self, plan: Plan, ends_ns: Mapping[str, float]) -> Iterator[Plan]:
        """Plans that end sooner by the estimates, the soonest first."""
        ends = self._ends(ends_ns)
        last = max(ends, key=lambda place: (ends[place], place))
        found: list[tuple[float, float, tuple[_Step, ...]]] = []
        for target in sorted(ends):
            if target[0] == last[0]:
                continue
            rest_ns = max((ns for place, ns in ends.items() if place not in (last, target)), default=0.0)
            for both_ns, steps in self._between(plan, last, target, ends[last], ends[target]):
                if both_ns < ends[last]:
                    found.append((max(both_ns, rest_ns), both_ns, steps))
        for _, _, steps in sorted(found):
            changed = plan
            for step in steps:
                changed = self._shifted(changed, *step)
            yield changed

    def _ends(self, ends_ns: Mapping[str, float]) -> dict[_Place, float]:
        """When each place that could take an expert was done."""
        places = {self._place(engine, expert) for engine, times in self._times.items() for expert in times}
        return {
            place: max(ends_ns.get(f"ndp {dimm}", 0.0) for dimm in range(place[1], place[1] + place[2]))
            if place[0] == "ndp"
            else ends_ns.get(place[0], 0.0)
            for place in places
        }

    def _between(
        self, plan: Plan, source: _Place, target: _Place, source_ns: float, target_ns: float
    ) -> Iterator[tuple[float, tuple[_Step, ...]]]:
        """Shares from one place to another, and swaps, each with when the later of both is done then."""
        away, to = source[0], target[0]
        leaving = [
            expert
            for expert in plan[away]
            if self._place(away, expert) == source
            and expert in self._times[to]
            and self._place(to, expert) == target
        ]
        for expert in leaving:
            costs, gains = self._times[to][expert], self._times[away][expert]
            whole = plan[away][expert]
            balanced = int((source_ns - target_ns) / (costs + gains) * _SHARES) / _SHARES
            for share in {whole, balanced if balanced < whole else whole}:
                if share * self._columns >= 1 and (share == whole or (whole - share) * self._columns >= 1):
                    both_ns = max(source_ns - share * gains, target_ns + share * costs)
                    yield both_ns, ((expert, away, to, share),)
        yield from self._swaps(plan, leaving, source, target, source_ns, target_ns)

    def _shifted(self, plan: Plan, expert: int, away: str, to: str, share: float) -> Plan:
        """A share of an expert on another engine: last there, but in front of copies if the GPU has it."""
        changed = {engine: dict(parts) for engine, parts in plan.items()}
        left = changed[away].pop(expert) - share
        if left > 0:
            changed[away] = {
                one: left if one == expert else plan[away][one] for one in plan[away]
            }
        total = changed[to].get(expert, 0.0) + share
        if to == "gpu" and self._here[expert] and expert not in changed[to]:
            changed[to] = {expert: total} | changed[to]
        else:
            changed[to][expert] = total
        return changed

    def _swaps(
        self,
        plan: Plan,
        leaving: Sequence[int],
        source: _Place,
        target: _Place,
        source_ns: float,
        target_ns: float,
    ) -> Iterator[tuple[float, tuple[_Step, ...]]]:
        """The best exchanges of two whole experts."""
        away, to = source[0], target[0]
        times = self._times
        ones = [one for one in leaving if plan[away][one] == 1.0]
        others = [
            other
            for other, share in plan[to].items()
            if share == 1.0
            and self._place(to, other) == target
            and other in times[away]
            and self._place(away, other) == source
        ]
        if not ones or not others:
            return
        first = {engine: np.array([times[engine][one] for one in ones])[:, None] for engine in (away, to)}
        second = {engine: np.array([times[engine][one] for one in others]) for engine in (away, to)}
        both_ns = np.maximum(
            source_ns - first[away] + second[away], target_ns + first[to] - second[to]
        )
        for place in np.argsort(both_ns, axis=None, kind="stable")[:_BEST_SWAPS].tolist():
            one, other = ones[place // len(others)], others[place % len(others)]
            yield float(both_ns.flat[place]), ((one, away, to, 1.0), (other, to, away, 1.0))
