"""Whole runs that a policy tries before its own run, on the same trace, if needed layer by layer."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.base.units import format_time
from ndpsim.inference.layers.layer_run import LayerRun
from ndpsim.inference.layers.run_state import DoneLayer, Listener
from ndpsim.inference.layers.setup import Setup
from ndpsim.inference.layers.visits import itinerary
from ndpsim.policies.answers import CheckedAssignment
from ndpsim.policies.choose import ChosenPolicy
from ndpsim.policies.interface import Assignment, Migration, experts_and_parts
from ndpsim.policies.script import Answer, Rehearsed, Script, Scripted, Visit, common_parameters
from ndpsim.policies.views import Flags, LayerView, Placement

_log = logging.getLogger("ndpsim")

_LONG_S = 30.0


class ScriptWriter(Listener):
    """Records the answers of a run's policy."""

    def __init__(self, run: LayerRun) -> None:
        self._policy, self._placement = run.policy, run.placed
        self._assigned: dict[Visit, tuple[CheckedAssignment, float]] = {}
        self._decided: dict[tuple[Visit, str], tuple[Migration, ...]] = {}

    def copy(self) -> ScriptWriter:
        """An independent copy."""
        other = copy.copy(self)
        other._assigned, other._decided = dict(self._assigned), dict(self._decided)
        return other

    def decided(self, visit: Visit, moment: str, migrations: Sequence[Migration]) -> None:
        """Record the migrations that were decided at a moment."""
        self._decided[visit, moment] = tuple(migrations)

    def layer_done(self, done: DoneLayer) -> None:
        """Record an assignment with its planning time."""
        self._assigned[done.visit.visit] = done.assigned, done.planning_ns

    def script(self) -> Script:
        """The answers so far."""
        answers = {
            visit: Answer(
                _listed(*assigned),
                self._decided.get((visit, "gate"), ()),
                self._decided.get((visit, "end"), ()),
            )
            for visit, assigned in self._assigned.items()
        }
        policy = self._policy
        return Script(self._placement, answers, common_parameters(policy.parameters), policy.contention)


def _listed(checked: CheckedAssignment, planning_ns: float) -> Assignment:
    gpu, cpu, ndp = (experts_and_parts(parts.listed()) for parts in checked[:3])
    return Assignment(
        gpu,
        cpu,
        ndp,
        checked.estimated_ns,
        bits=checked.bits,
        sequential=checked.sequential,
        planning=planning_ns,
        awaits=checked.awaits,
    )


class Rehearsals:
    """Runs on the trace of a call; see `Rehearsal`.

    If the runs take long, their time is printed after the first ones.

    Args:
        policy: the name of the policy that rehearses.
        others: runs of the other policies of the call.
        progress: called with the share of the work that is done.
        runs: number of whole runs of all the work.
    """

    def __init__(
        self,
        setup: Setup,
        policy: str,
        others: Sequence[Rehearsed],
        progress: Callable[[float], None],
        runs: int,
    ) -> None:
        self._policy, self.others = policy, others
        self._setup, self._progress = setup, progress
        trace = setup.known_trace
        experts = setup.machine.model.routed_experts
        self.visits, self.tail = itinerary(trace, experts, setup.size.layers, setup.decode, setup.prefill)
        self.loads = MappingProxyType({one.visit: one.loads for one in self.visits})
        self._layers, self._all_layers = 0, runs * len(self.visits)
        self._run_s, self._has_told = 0.0, False

    def run_policy(self, chosen: ChosenPolicy, hindsight: bool = False) -> Rehearsed | None:
        """A policy's run; None: the policy cannot run on the machine."""
        setup = replace(self._setup, offline=self._setup.known_trace) if hindsight else self._setup
        began_s = time.perf_counter()
        try:
            run = LayerRun(setup, chosen.start(setup.machine, setup.estimates))
            script = ScriptWriter(run)
            run.listeners = [script]
            for visit in self.visits:
                run.run_layer(visit)
                self.went_on()
            run.run_windows(self.tail)
        except InputError:
            return None
        self._run_s = time.perf_counter() - began_s
        return Rehearsed(run.clock_ns, script.script(), chosen)

    def run_script(self, script: Script) -> Rehearsed:
        """The run of a script."""
        stage = self.stage(script)
        while stage.visit is not None:
            stage.go_on(script.answers[stage.visit])
        return stage.rehearsed()

    def stage(self, script: Script) -> StagedRun:
        """A run with the placement of `script`, at its first gate."""
        setup = self._setup
        self._tell()
        policy = Scripted(setup.machine, setup.estimates, script.parameters)
        policy.follow(script)
        return StagedRun(self, policy, LayerRun(setup, policy))

    def _tell(self) -> None:
        """Print once the maximum time of the remaining runs, from the time of the last policy's run."""
        runs = (self._all_layers - self._layers) // len(self.loads)
        if not self._has_told and self._run_s * runs >= _LONG_S:
            text = "%s: up to %d more whole runs, some %s in all"
            _log.warning(text, self._policy, runs, format_time(1e9 * self._run_s * runs))
        self._has_told = True

    def went_on(self) -> None:
        """Tell the progress after a layer."""
        self._layers += 1
        self._progress(min(self._layers / self._all_layers, 1.0))


class StagedRun:
    """A run that continues gate by gate, with one answer at each; see `Stage`."""

    def __init__(self, rehearsals: Rehearsals, policy: Scripted, run: LayerRun) -> None:
        self._rehearsals, self._policy, self._run = rehearsals, policy, run
        self._script = ScriptWriter(run)
        run.listeners = [self._script]
        self._place = 0
        self.ends_ns: Mapping[str, float] = {}
        self._to_gate()

    @property
    def clock_ns(self) -> float:
        """The time now."""
        return self._run.clock_ns

    @property
    def visit(self) -> Visit | None:
        """The layer at whose gate the run is; None: the run is over."""
        visits = self._rehearsals.visits
        return visits[self._place].visit if self._place < len(visits) else None

    @property
    def view(self) -> LayerView:
        """The view that `assign` is shown there."""
        return self._run.view(self._rehearsals.visits[self._place])

    @property
    def placement(self) -> Placement:
        """The location of every expert."""
        return self._run.state.places.now

    @property
    def moving(self) -> Flags:
        """Experts that move, by layer and expert."""
        return self._run.state.places.moving

    @property
    def gpu_free(self) -> int:
        """Experts that the GPU's memory has room for."""
        return self._run.state.places.gpu_free

    def copy(self) -> StagedRun:
        """An independent copy of the run from here on."""
        other = copy.copy(self)
        other._script = self._script.copy()
        other._run = self._run.copy([other._script])
        return other

    def go_on(self, answer: Answer) -> None:
        """Go on to the next gate, or to the end of the last window."""
        visit, policy = self._rehearsals.visits[self._place], self._policy
        script, policy.script = policy.script, replace(policy.script, answers={visit.visit: answer})
        self.ends_ns = _ends(self._run.run_experts(visit))
        policy.script = script
        self._rehearsals.went_on()
        self._place += 1
        self._to_gate()

    def rehearsed(self) -> Rehearsed:
        """The finished run."""
        return Rehearsed(self.clock_ns, self._script.script())

    def _to_gate(self) -> None:
        visits = self._rehearsals.visits
        over = self._place == len(visits)
        self._run.run_windows(self._rehearsals.tail if over else visits[self._place].windows)


def _ends(done: DoneLayer) -> Mapping[str, float]:
    """When the layer's last job of the foreground ended on each resource, from the gate on."""
    arrays, count = done.jobs.arrays, len(done.jobs)
    ends_ns = np.where(arrays.background == 0, arrays.end_ns - done.began_ns, 0.0)[:count].tolist()
    latest: dict[str, float] = {}
    for resource, end_ns in zip(done.jobs.resources(), ends_ns, strict=True):
        latest[resource] = max(latest.get(resource, 0.0), end_ns)
    return latest
