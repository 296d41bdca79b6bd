"""Checks the decisions of a policy on a small trace, without a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import instance
from ndpsim.base.errors import InputError, shown
from ndpsim.base.reported import Reported
from ndpsim.policies.answers import Answering, checked_assignment, checked_migrations, checked_placement
from ndpsim.policies.choose import ChosenPolicy, choose_policy
from ndpsim.policies.example import BATCH, ESTIMATES, MACHINE, PROMPT
from ndpsim.policies.interface import COPIES, Migration, Policy
from ndpsim.policies.views import (
    BackgroundView,
    Estimates,
    Ints,
    LayerView,
    Machine,
    OfflineView,
    Placement,
    Scores,
    Shorts,
)
from ndpsim.workload.routing import Routing, generate_routing
from ndpsim.workload.routing.trace import loads_of

_STEPS = 4

_LEGAL = "every answer is legal"
_SAME = "the same inputs get the same answers"
_BLIND = "what comes later changes no answer"
_NO_ROOM = "a GPU without room for experts is no obstacle"


@dataclass(frozen=True, repr=False, eq=False)
class PolicyCheck(Reported):
    """Checks that `check_policy` has made without finding a mistake.

    Attributes:
        policy, parameters: the policy that was checked.
        layers: answers of `assign` that were checked.
        migrations: migrations in answers of `background`, by kind.
        checks: the checks that passed, in words.
    """

    policy: str
    parameters: Mapping[str, Any]
    layers: int
    migrations: Mapping[str, int]
    checks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Moment:
    """A layer of the trace."""

    phase: str
    step: int
    layer: int
    loads: Ints
    ids: Shorts
    scores: Scores | None

    def question(self, call: str) -> str:
        """A call of the policy in this layer, in words."""
        when = "prefill" if self.phase == "prefill" else f"step {self.step}"
        return f"{when}, layer {self.layer}: {call}"


def check_policy(
    policy: str | type[Policy] | ChosenPolicy,
    machine: Machine | None = None,
    estimates: Estimates | None = None,
    seed: int = 1,
) -> PolicyCheck:
    """Run a policy on a small trace, and check every decision against the rules.

    The trace has a prefill and decode steps. It is replayed twice unchanged, once with its second half
    scrambled, and once with a GPU that has no room for experts. Migrations take as long as one layer or two.
    Views are read-only; writing to one is an error.

    >>> ndpsim.check_policy("my_policy.py:MyPolicy")  # doctest: +SKIP

    Args:
        policy: ``NAME[:KEY=VALUE,...]``, ``path/to/file.py:ClassName``, or a class.
        machine, estimates: the machine that the policy sees; None: a small one with plain numbers.
        seed: the seed of the trace.

    Raises:
        InputError: the policy broke a rule; the message names the rule, step, layer and expert.
    """
    chosen = choose_policy(policy)
    machine = MACHINE if machine is None else instance(machine, "machine", Machine)
    estimates = ESTIMATES if estimates is None else instance(estimates, "estimates", Estimates)
    trace, offline = (
        generate_routing("skewed", machine.model, BATCH, _STEPS, PROMPT, seed, offline)
        for offline in (False, True)
    )
    moments = _moments(trace, machine)
    first = _Replay(chosen, machine, estimates, offline).run(moments)
    again = _Replay(chosen, machine, estimates, offline).run(moments)
    _compare(chosen, first, again, "given again with the same inputs")
    checks = [_LEGAL, _SAME]
    started = chosen.start(machine, estimates)
    if not started.sees_the_future and started.stated_predictor is None:
        half, calls = len(moments) // 2, 1 + len(started.moments)
        scrambled = _Replay(chosen, machine, estimates, offline).run(_scrambled(moments, half, seed))
        # `background` at the half does not get the layer after it either.
        same = first[: 1 + calls * (half + 1)]
        _compare(chosen, same, scrambled, "given when only what comes later differs")
        checks.append(_BLIND)
    _Replay(chosen, replace(machine, gpu_experts=0), estimates, offline).run(moments)
    checks.append(_NO_ROOM)
    kinds = [move.kind for _, answer in first if isinstance(answer, list) for move in answer]
    counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    parameters = chosen.parameters.model_dump()
    return PolicyCheck(chosen.name, parameters, len(moments), counts, tuple(checks))


def _compare(
    chosen: ChosenPolicy, first: Sequence[tuple[str, Any]], second: Sequence[tuple[str, Any]], when: str
) -> None:
    for (question, answer), (_, otherwise) in zip(first, second, strict=False):
        if answer != otherwise:
            problem, key = f"the answer is another one, {when}", f"policy {chosen.name}: {question}"
            raise InputError(problem, "policy", key=key)


def _moments(trace: Routing, machine: Machine) -> list[_Moment]:
    """The layers in order: those of the prefill, then those of each step."""
    assert trace.prefill_ids is not None
    steps = [("prefill", 0, trace.prefill_ids, trace.prefill_scores)]
    for step, ids in enumerate(trace.ids):
        steps.append(("decode", step, ids, None if trace.scores is None else trace.scores[step]))
    rows = [(layer, trace.row(layer)) for layer in machine.layers]
    return [
        _Moment(
            phase,
            step,
            layer,
            loads_of(ids[row], trace.experts),
            ids[row],
            None if scores is None else scores[row],
        )
        for phase, step, ids, scores in steps
        for layer, row in rows
    ]


def _scrambled(moments: list[_Moment], last: int, seed: int) -> list[_Moment]:
    """The moments up to `last` unchanged; in later ones, the tokens of experts are permuted."""
    random = np.random.default_rng(seed)
    changed = []
    for moment in moments[last + 1 :]:
        renumbered = random.permutation(len(moment.loads)).astype(np.int16)  # the new number of each expert
        ids = renumbered[moment.ids]
        changed.append(replace(moment, ids=ids, loads=loads_of(ids, len(moment.loads))))
    return moments[: last + 1] + changed


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that cannot be made writable again."""
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


class _Replay:
    """A machine without time: migrations end one or two layers after the decision."""

    def __init__(
        self, chosen: ChosenPolicy, machine: Machine, estimates: Estimates, offline: Routing
    ) -> None:
        self.name, self.machine = chosen.name, machine
        self.policy = chosen.start(machine, estimates)
        with Answering(chosen.name, "place"):
            view = OfflineView(machine, estimates, offline, offline.batch, BATCH * PROMPT)
            placement = self.policy.place(view)
        placement = checked_placement(chosen.name, placement, machine)
        self.dimm, self.shards = placement.dimm.copy(), placement.shards
        self.resident, self.replicas = placement.resident.copy(), placement.replicas
        self.copied, self.in_use = np.zeros((2, self.resident.shape[1]), np.bool_)
        #: Flags [layer, expert] of all current migrations, and of those to the GPU.
        self.moving, self.arriving = np.zeros((2, *self.resident.shape), np.bool_)
        self.under_way: list[tuple[int, Migration]] = []
        location = placement.dimm.tobytes(), placement.shards.tobytes(), placement.resident.tobytes()
        self.answers: list[tuple[str, Any]] = [("place", location)]

    def run(self, moments: Sequence[_Moment]) -> list[tuple[str, Any]]:
        """Every call of the policy with its answer, in order."""
        for index, moment in enumerate(moments):
            self._arrive(index)
            self._assign(moment)
            for when in self.policy.moments:
                self._background(index, moment, moments[(index + 1) % len(moments)], when)
        with Answering(self.name, "prediction"):
            predicted = self.policy.prediction()
        if predicted is not None and not isinstance(predicted, Mapping):
            problem = f"gives {shown(predicted)}, neither a mapping nor None"
            raise InputError(problem, "policy", key=f"policy {self.name}: prediction")
        return self.answers

    def _placement(self) -> Placement:
        return Placement(_frozen(self.dimm), _frozen(self.shards), _frozen(self.resident), self.replicas)

    def _cell(self, migration: Migration) -> tuple[int, int]:
        return self.machine.layers.index(migration.layer), migration.expert

    def _assign(self, moment: _Moment) -> None:
        row = self.machine.layers.index(moment.layer)
        location, arriving = self._placement().of_layer(row), _frozen(self.arriving[row])
        view = LayerView(
            moment.phase,
            moment.step,
            moment.layer,
            _frozen(moment.loads),
            len(moment.ids),
            location,
            arriving,
            _frozen(moment.ids),
            None if moment.scores is None else _frozen(moment.scores),
        )
        with Answering(self.name, "assign", view):
            answer = self.policy.assign(view)
        checked = checked_assignment(self.name, view, answer, self.machine, self.replicas)
        self.copied = checked.copied_in_full(location.resident | arriving)
        self.in_use = checked.on_gpu(len(moment.loads))
        lists = [parts.listed() for parts in checked[:3]]
        self.answers.append((moment.question("assign"), (*lists, *checked[3:], dict(answer.details))))

    def _background(self, index: int, moment: _Moment, following: _Moment, when: str) -> None:
        free = self.machine.gpu_experts - int(self.resident.sum()) - int(self.arriving.sum())
        predictor = self.policy.stated_predictor if when == self.policy.moments[0] else None
        predicted, above = tuple[int, ...](), tuple[float, ...]()
        if predictor is not None:
            predicted = predictor.predict(following.loads, following.step, following.layer)
            above = predictor.above(following.loads, following.ids, following.scores)
        nothing = np.zeros_like(self.in_use)
        view = BackgroundView(
            moment.phase,
            moment.step,
            moment.layer,
            following.layer,
            _frozen(moment.loads),
            self._placement(),
            _frozen(self.moving),
            free,
            _frozen(moment.ids),
            None if moment.scores is None else _frozen(moment.scores),
            _frozen(self.copied if when == "end" else nothing),
            _frozen(following.loads) if self.policy.sees_the_future else None,
            predicted,
            above,
            when,
            _frozen(nothing if when == "end" else self.in_use),
        )
        with Answering(self.name, "background", view):
            answer = self.policy.background(view)
        migrations = checked_migrations(self.name, view, answer, self.machine)
        for number, move in enumerate(migrations):
            cell = self._cell(move)
            if move.kind in ("evict", "keep"):
                self.resident[cell] = move.kind == "keep"
            else:
                self.moving[cell], self.arriving[cell] = True, move.kind in COPIES
                self.under_way.append((index + 1 + number % 2, move))
        self.answers.append((moment.question(f"background at its {when}"), migrations))

    def _arrive(self, index: int) -> None:
        """Ends the migrations that are done before the layer at `index`."""
        for cell, move in [(self._cell(move), move) for due, move in self.under_way if due <= index]:
            if self.arriving[cell]:
                self.resident[cell] = True
            else:
                self.dimm[cell] = move.to
            self.moving[cell] = self.arriving[cell] = False
        self.under_way = [(due, move) for due, move in self.under_way if due > index]
