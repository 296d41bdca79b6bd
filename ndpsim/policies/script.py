"""The recorded answers of a run, and the policy that repeats them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ndpsim.policies import views
from ndpsim.policies.answers import legal_migrations
from ndpsim.policies.choose import ChosenPolicy
from ndpsim.policies.interface import (
    Assignment,
    Migration,
    Parameters_co,
    Part,
    Policy,
    PolicyParameters,
    parts_of,
)
from ndpsim.policies.views import Flags, Ints, LayerView, Placement

ENGINES = ("gpu", "cpu", "ndp")
_ROUNDING = 1e-9  # rounding of the sum of an expert's shares


class Visit(NamedTuple):
    """A layer in a phase ("prefill" or "decode") and step."""

    phase: str
    step: int
    layer: int


@dataclass(frozen=True)
class Answer:
    """The answer of a policy in a visit.

    Attributes:
        gate, end: migrations that were decided at the gate, and when the experts were done.
    """

    assignment: Assignment = field(default_factory=Assignment)
    gate: tuple[Migration, ...] = ()
    end: tuple[Migration, ...] = ()


@dataclass(frozen=True, eq=False)
class Script:
    """All answers of a run.

    Attributes:
        placement: the placement before the first step.
        parameters: values of the parameters that every policy has.
        contention: as in `Policy`.
    """

    placement: views.Placement
    answers: Mapping[Visit, Answer]
    parameters: PolicyParameters = field(default_factory=lambda: PolicyParameters.model_validate({}))
    contention: bool = True

    @property
    def comparable(self) -> bool:
        """Whether the run reads the full weights of every expert, with contention."""
        lossy = any(
            answer.assignment.bits or any(move.bits is not None for move in (*answer.gate, *answer.end))
            for answer in self.answers.values()
        )
        return self.contention and not lossy


def common_parameters(parameters: PolicyParameters) -> PolicyParameters:
    """The values of those parameters that every policy has."""
    values = {name: getattr(parameters, name) for name in PolicyParameters.model_fields}
    return PolicyParameters.model_validate(values)


class Scripted(Policy[Parameters_co]):
    """Gives the answers of `script`.

    Answers may be illegal if experts have moved differently. Illegal migrations are left out. Illegal parts
    of experts go to the engine that computes them soonest by the estimates.
    """

    name = "scripted"
    moments = ("gate", "end")

    script: Script

    def setup(self) -> None:
        """Begin without answers."""
        self.follow(Script(super().place(None), {}))  # type: ignore[arg-type]

    def follow(self, script: Script) -> None:
        """Answer with `script` from now on."""
        self.script, self.contention = script, script.contention
        common = common_parameters(script.parameters)
        self.parameters = self.parameters.model_copy(update=common.model_dump())

    def place(self, view: views.OfflineView) -> views.Placement:
        """The recorded placement."""
        return self.script.placement

    def _answer(self, view: views.LayerView | views.BackgroundView) -> Answer:
        return self.script.answers.get(Visit(view.phase, view.step, view.layer), Answer())

    def assign(self, view: views.LayerView) -> Assignment:
        """The recorded assignment, with illegal parts replaced."""
        return legal_assignment(self._answer(view).assignment, view, self.machine, self.estimates)

    def background(self, view: views.BackgroundView) -> Sequence[Migration]:
        """The recorded migrations that are legal."""
        answer = self._answer(view)
        recorded = answer.gate if view.moment == "gate" else answer.end
        return legal_migrations(self.name, view, recorded, self.machine)


def whole_expert_ns(
    view: views.LayerView, machine: views.Machine, estimates: views.Estimates
) -> dict[str, dict[int, float]]:
    """The estimated time of each active expert alone, on each engine that can compute it.

    On the GPU it is the longer of computing and copy, on the CPU of computing and reading.
    """
    loads, location = view.loads.tolist(), view.placement.dimm.tolist()
    shards, there = view.placement.shards.tolist(), view.placement.resident | view.arriving
    times: dict[str, dict[int, float]] = {engine: {} for engine in ENGINES}
    for expert, tokens in enumerate(loads):
        if not tokens:
            continue
        alone = location[expert] != views.STRIPED and shards[expert] == 1
        read_ns = estimates.localized_read_ns if alone else estimates.striped_read_ns
        gpu_ns = float(estimates.gpu_ns[tokens])
        if there[expert]:
            times["gpu"][expert] = gpu_ns
        elif machine.expert_buffers:
            times["gpu"][expert] = max(gpu_ns, estimates.pcie_ns, read_ns)
        if machine.has_cpu:
            times["cpu"][expert] = max(float(estimates.cpu_ns[tokens]), read_ns)
        if location[expert] != views.STRIPED:
            times_ns = estimates.ndp_ns if shards[expert] == 1 else estimates.sharded_ns(shards[expert])
            times["ndp"][expert] = float(times_ns[tokens])
    return times


def legal_assignment(
    assignment: Assignment, view: views.LayerView, machine: views.Machine, estimates: views.Estimates
) -> Assignment:
    """The assignment if it is legal, else the nearest legal one; see `Scripted`."""
    times = whole_expert_ns(view, machine, estimates)
    lists = {engine: parts_of(getattr(assignment, engine)) for engine in ENGINES}
    kept = {
        engine: [(expert, share) for expert, share in parts if expert in times[engine]]
        for engine, parts in lists.items()
    }
    missing = dict.fromkeys(view.loads.nonzero()[0].tolist(), 1.0)
    for parts in kept.values():
        for expert, share in parts:
            missing[expert] -= share
    missing = {expert: share for expert, share in missing.items() if abs(share) > _ROUNDING}
    awaits = [expert for expert in assignment.awaits if view.arriving[expert]]
    if kept == lists and not missing and len(awaits) == len(assignment.awaits):
        return assignment
    for expert, share in missing.items():
        soonest = min(ENGINES, key=lambda engine: times[engine].get(expert, float("inf")))
        _add(kept[soonest], expert, share)
    gpu, cpu, ndp = (tuple(Part(*part) for part in kept[engine]) for engine in ENGINES)
    return Assignment(
        gpu,
        cpu,
        ndp,
        sequential=assignment.sequential,
        planning=assignment.planning,
        awaits=awaits,
    )


def _add(parts: list[tuple[int, float]], expert: int, share: float) -> None:
    """Add a share of an expert to its existing share."""
    for index, (present, there) in enumerate(parts):
        if present == expert:
            total = there + share
            parts[index] = expert, 1.0 if abs(total - 1) <= _ROUNDING else total
            return
    parts.append((expert, share))


# ---- The interface for whole runs that a policy tries before its own run


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """A whole run.

    Attributes:
        time_ns: the time of the whole run.
        script: the answers of its policy, which repeat the run.
        chosen: the policy of the run; None: it was the run of a script.
    """

    time_ns: float
    script: Script
    chosen: ChosenPolicy | None = None


class Stage(Protocol):
    """A run that is stopped at a layer's gate, or at its end."""

    @property
    def clock_ns(self) -> float:
        """The time."""

    @property
    def visit(self) -> Visit | None:
        """The layer; None: the run is over."""

    @property
    def view(self) -> LayerView:
        """The view for `assign` at the gate."""

    @property
    def placement(self) -> Placement:
        """The location of every expert."""

    @property
    def moving(self) -> Flags:
        """Flags [layer, expert]: a migration of the expert has not ended."""

    @property
    def gpu_free(self) -> int:
        """Free space in the GPU's memory, in experts."""

    @property
    def ends_ns(self) -> Mapping[str, float]:
        """Time from the gate of the previous layer to the end of its work on each `JobRecord.resource`."""

    def copy(self) -> Stage:
        """An independent copy of the run from here on."""

    def go_on(self, answer: Answer) -> None:
        """Continue to the next gate; illegal parts of an answer are changed as in `Scripted`."""

    def rehearsed(self) -> Rehearsed:
        """The finished run."""


class Rehearsal(Protocol):
    """Runs on the trace of the coming run.

    Attributes:
        others: runs of policies of the same call.
        loads: tokens by expert of every layer visit, in order.
    """

    @property
    def others(self) -> Sequence[Rehearsed]: ...

    @property
    def loads(self) -> Mapping[Visit, Ints]: ...

    def run_policy(self, chosen: ChosenPolicy, hindsight: bool = False) -> Rehearsed | None:
        """A policy's run; None: the policy cannot run on the machine.

        hindsight: whether `place` gets the trace of the run instead of the offline trace.
        """

    def run_script(self, script: Script) -> Rehearsed:
        """The run of a script."""

    def stage(self, script: Script) -> Stage:
        """A run with the placement of `script`, at its first gate.

        Raises:
            InputError: the placement does not fit.
        """
