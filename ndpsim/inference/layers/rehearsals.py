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
from ndpsim.inference.layers.policy_run import PolicyRunner
from ndpsim.inference.layers.setup import Setup
from ndpsim.inference.layers.step_run import DoneLayer
from ndpsim.inference.layers.visits import itinerary
from ndpsim.policies.choose import ChosenPolicy
from ndpsim.policies.interface import Policy
from ndpsim.policies.rehearsal import Rehearsed
from ndpsim.policies.script import Answer, Script, Scripted, Visit
from ndpsim.policies.views import Flags, LayerView, Placement
from ndpsim.workload.routing.trace import loads_of

_log = logging.getLogger("ndpsim")

_LONG_S = 30.0


def rehearsed(runner: PolicyRunner, chosen: ChosenPolicy | None = None) -> Rehearsed:
    """A finished run."""
    return Rehearsed(runner.clock_ns, runner.script.script(), chosen)


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
        visits, _ = itinerary(trace, setup.size.layers, setup.decode, setup.prefill)
        self.loads = MappingProxyType({one.visit: loads_of(one.ids, trace.experts) for one in visits})
        self._layers, self._all_layers = 0, runs * len(visits)
        self._run_s, self._has_told = 0.0, False

    def run_policy(self, chosen: ChosenPolicy, hindsight: bool = False) -> Rehearsed | None:
        """A policy's run; None: the policy cannot run on the machine."""
        setup = replace(self._setup, offline=self._setup.known_trace) if hindsight else self._setup
        began_s = time.perf_counter()
        try:
            runner = _Uncounted(setup, chosen.start(setup.machine, setup.estimates), self._went_on)
            runner.run()
        except InputError:
            return None
        self._run_s = time.perf_counter() - began_s
        return rehearsed(runner, chosen)

    def run_script(self, script: Script) -> Rehearsed:
        """The run of a script."""
        stage = self.stage(script)
        while stage.visit is not None:
            stage.go_on(script.answers[stage.visit])
        return stage.rehearsed()

    def stage(self, script: Script) -> ScriptedRun:
        """A run with the placement of `script`, at its first gate."""
        setup = self._setup
        self._tell()
        policy = Scripted(setup.machine, setup.estimates, script.parameters)
        policy.follow(script)
        return ScriptedRun(setup, policy, self._went_on)

    def _tell(self) -> None:
        """Print once the maximum time of the remaining runs, from the time of the last policy's run."""
        runs = (self._all_layers - self._layers) // len(self.loads)
        if not self._has_told and self._run_s * runs >= _LONG_S:
            text = "%s: up to %d more whole runs, some %s in all"
            _log.warning(text, self._policy, runs, format_time(1e9 * self._run_s * runs))
        self._has_told = True

    def _went_on(self, _: float) -> None:
        self._layers += 1
        self._progress(min(self._layers / self._all_layers, 1.0))


class _Uncounted(PolicyRunner):
    """A run without totals: only its time and its answers are stored."""

    def __init__(self, setup: Setup, policy: Policy, progress: Callable[[float], None]) -> None:
        super().__init__(setup, policy, {}, None, None, progress)

    def _count(self, done: DoneLayer) -> None:
        self._progress(0.0)


class ScriptedRun(_Uncounted):
    """A run that continues gate by gate, with one answer at each; see `Stage`."""

    policy: Scripted

    def __init__(self, setup: Setup, policy: Scripted, progress: Callable[[float], None]) -> None:
        super().__init__(setup, policy, progress)
        self._place = 0
        self.ends_ns: Mapping[str, float] = {}
        self._to_gate()

    @property
    def visit(self) -> Visit | None:
        """The layer at whose gate the run is; None: the run is over."""
        return self._visits[self._place].visit if self._place < len(self._visits) else None

    @property
    def view(self) -> LayerView:
        """The view that `assign` is shown there."""
        return self._view(self._visits[self._place])

    @property
    def placement(self) -> Placement:
        """The location of every expert."""
        return self._places.now

    @property
    def moving(self) -> Flags:
        """Experts that move, by layer and expert."""
        return self._places.moving

    @property
    def gpu_free(self) -> int:
        """Experts that the GPU's memory has room for."""
        return self._places.gpu_free

    def copy(self) -> ScriptedRun:
        """An independent copy of the run from here on."""
        other = copy.copy(self)
        other._places = self._places.copy()
        other._migrations = self._migrations.copy(other._places)
        other.script = self.script.copy()
        return other

    def go_on(self, answer: Answer) -> None:
        """Go on to the next gate, or to the end of the last window."""
        visit = self._visits[self._place]
        script = self.policy.script
        self.policy.script = replace(script, answers={visit.visit: answer})
        self._layer(visit, 0.0)
        self.policy.script = script
        self._place += 1
        self._to_gate()

    def rehearsed(self) -> Rehearsed:
        """The finished run."""
        return rehearsed(self)

    def _to_gate(self) -> None:
        over = self._place == len(self._visits)
        self.reach(self._tail if over else self._visits[self._place].windows)

    def _count(self, done: DoneLayer) -> None:
        self._progress(0.0)
        arrays, count = done.jobs.arrays, len(done.jobs)
        ends_ns = np.where(arrays.background == 0, arrays.end_ns - done.began_ns, 0.0)[:count].tolist()
        latest: dict[str, float] = {}
        for resource, end_ns in zip(done.jobs.resources(), ends_ns, strict=True):
            latest[resource] = max(latest.get(resource, 0.0), end_ns)
        self.ends_ns = latest
