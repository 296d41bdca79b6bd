"""Sweeps over a script: layer by layer, they try answers and keep those with a shorter simulated time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ndpsim.policies.interface import COPIES, Migration
from ndpsim.policies.own.oracle.moves import LayerMoves, on_gpu, plan_of
from ndpsim.policies.script import (
    Answer,
    Rehearsal,
    Rehearsed,
    Script,
    Stage,
    Visit,
    legal_assignment,
    whole_expert_ns,
)
from ndpsim.policies.views import Estimates, Flags, Ints, LayerView, Machine

_TRIALS = 8  # maximum number of changed answers of a visit
_PATIENCE = 3  # of these, consecutive ones without a gain
_LEAST_GAIN_NS = 1e-3  # smaller gains are rounding
_MOVING = (*COPIES, "relayout", "rebalance")

Answers = dict[Visit, Answer]


class Sweeps:
    """Changes of a script's answers, each judged by a simulation from its gate on.

    A run continues from gate to gate. At each gate, answers are tried on copies of the run up to the next
    gate. With current or new migrations, the copies run to the second gate, because their delays appear only
    there. The run continues with the best answer. The time of the whole run is compared at its end.

    Attributes:
        layers: number of layers tried so far.
    """

    #: Maximum number of whole runs of a sweep: two kinds of changes at each gate, up to the second gate.
    most_runs = 1 + 2 * 2 * (1 + _TRIALS)

    def __init__(self, machine: Machine, estimates: Estimates, rehearsal: Rehearsal) -> None:
        self._machine, self._estimates, self._rehearsal = machine, estimates, rehearsal
        self._visits = list(rehearsal.loads)
        self._future = Future(machine, rehearsal.loads)
        self.layers = 0

    def assignments(self, script: Script) -> Rehearsed:
        """Try other engines for experts and shares of experts."""
        return self._sweep(script, self._reassign)

    def prefetches(self, script: Script) -> Rehearsed:
        """Try to prefetch experts of the next layer instead of the expert that is needed last."""
        return self._sweep(script, self._prefetch, self._reassign)

    def _sweep(self, script: Script, *changes: Callable[[Stage, Answers, int], None]) -> Rehearsed:
        stage, answers = self._rehearsal.stage(script), dict(script.answers)
        for number, visit in enumerate(self._visits):
            for change in changes:
                change(stage, answers, number)
            self._go_on(stage, answers[visit])
        return stage.rehearsed()

    def _go_on(self, stage: Stage, answer: Answer) -> None:
        self.layers += 1
        stage.go_on(answer)

    def _judged(self, stage: Stage, answers: Answers, gates: int) -> tuple[float, Mapping[str, float]]:
        """The clock this many gates further on, and when resources were done with the layer."""
        trial = stage.copy()
        ends_ns: list[Mapping[str, float]] = []
        for _ in range(gates):
            if trial.visit is not None:
                self._go_on(trial, answers[trial.visit])
                ends_ns.append(trial.ends_ns)
        return trial.clock_ns, ends_ns[0]

    def _reassign(self, stage: Stage, answers: Answers, number: int) -> None:
        """Try other assignments at a gate."""
        visit, view = self._visits[number], stage.view
        answer = answers[visit]
        legal = legal_assignment(answer.assignment, view, self._machine, self._estimates)
        answers[visit] = answer = replace(answer, assignment=legal)
        moving = stage.moving.any() or any(move.kind in _MOVING for move in (*answer.gate, *answer.end))
        gates = 2 if moving else 1
        moves = LayerMoves(view, self._machine, self._estimates)
        best_ns, ends_ns = self._judged(stage, answers, gates)
        proposed, failed = moves.proposed(legal, ends_ns), 0
        for _ in range(_TRIALS):
            changed = next(proposed, None)
            if changed is None or failed == _PATIENCE:
                return
            tried = answers | {visit: replace(answer, assignment=changed)}
            clock_ns, ends_ns = self._judged(stage, tried, gates)
            if clock_ns >= best_ns - _LEAST_GAIN_NS:
                failed += 1
                continue
            answers[visit], best_ns, failed = tried[visit], clock_ns, 0
            proposed = moves.proposed(changed, ends_ns)

    def _prefetch(self, stage: Stage, answers: Answers, number: int) -> None:
        """Try additional prefetches for the next layer at a gate."""
        if number + 1 == len(self._visits):
            return
        visit, following = self._visits[number : number + 2]
        (best_ns, _), failed = self._judged(stage, answers, 2), 0
        for expert in self._wanted(stage, answers, following)[:_TRIALS]:
            if failed == _PATIENCE:
                return
            answer = self._with_prefetch(stage, answers[visit], number, expert)
            if answer is None:
                return
            later = answers[following]
            tried = answers | {
                visit: answer,
                following: replace(later, assignment=on_gpu(later.assignment, expert)),
            }
            clock_ns, _ = self._judged(stage, tried, 2)
            if clock_ns >= best_ns - _LEAST_GAIN_NS:
                failed += 1
                continue
            answers.update(tried)
            best_ns, failed = clock_ns, 0

    def _wanted(self, stage: Stage, answers: Answers, following: Visit) -> list[int]:
        """Experts of the layer that follows which the GPU's memory lacks, the largest gain first."""
        row, loads = self._machine.layers.index(following.layer), self._rehearsal.loads[following]
        none = np.zeros(len(loads), np.bool_)
        view = LayerView(*following, loads, 0, stage.placement.of_layer(row), none)
        times = whole_expert_ns(view, self._machine, self._estimates)
        there = stage.placement.resident[row] | stage.moving[row]
        gains: dict[int, float] = {}
        for engine, parts in plan_of(answers[following].assignment).items():
            for expert, share in parts.items():
                if not there[expert]:
                    ns = times[engine].get(expert, 0.0) - float(self._estimates.gpu_ns[loads[expert]])
                    gains[expert] = gains.get(expert, 0.0) + share * ns
        return [e for e in sorted(gains, key=lambda e: (-gains[e], e)) if gains[e] > 0]

    def _with_prefetch(self, stage: Stage, answer: Answer, number: int, expert: int) -> Answer | None:
        """The answer with another prefetch, at the gate if there is space; None: no expert can be evicted."""
        moves = (*answer.gate, *answer.end)
        copy = Migration("prefetch", self._visits[number + 1].layer, expert)
        room = stage.gpu_free + sum(
            (move.kind == "evict") - (move.kind in (*COPIES, "keep")) for move in moves
        )
        if room > 0:
            return replace(answer, gate=(*answer.gate, copy))
        leaves = stage.placement.resident & ~stage.moving
        for move in moves:
            leaves[self._machine.layers.index(move.layer), move.expert] = False
        found = self._future.needed_last(number, leaves)
        if found is None:
            return None
        row, leaving = found
        evict = Migration("evict", self._machine.layers[row], leaving)
        if row == self._machine.layers.index(self._visits[number].layer):  # in use until the layer is done
            return replace(answer, end=(*answer.end, evict, copy))
        return replace(answer, gate=(*answer.gate, evict, copy))


class Future:
    """The next layer visits that need each expert."""

    def __init__(self, machine: Machine, loads_by_visit: Mapping[Visit, Ints]) -> None:
        visits, loads = list(loads_by_visit), list(loads_by_visit.values())
        self._rows = [machine.layers.index(visit.layer) for visit in visits]
        shape = machine.shape
        #: Of each visit, when each expert is needed after it, and with how many tokens.
        self._next: list[tuple[Ints, Ints]] = []
        when, tokens = np.full(shape, len(visits)), np.zeros(shape, np.int64)
        for number in reversed(range(len(visits))):
            self._next.append((when.copy(), tokens.copy()))
            used, row = loads[number] > 0, self._rows[number]
            when[row][used], tokens[row][used] = number, loads[number][used]
        self._next.reverse()

    def needed_last(self, number: int, among: Flags) -> tuple[int, int] | None:
        """Of flags [row, expert], the expert that is needed last after a visit, with fewest tokens; or None.

        Experts that the next visit needs are excluded.
        """
        when, tokens = self._next[number]
        places = np.argwhere(among & (when > number + 1))
        if not len(places):
            return None
        rows, experts = places.T
        order = np.lexsort((experts, rows, tokens[rows, experts], -when[rows, experts]))
        return int(rows[order[0]]), int(experts[order[0]])
