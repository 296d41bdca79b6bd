"""Runs a model under one policy on a trace, phase by phase and layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ndpsim.inference.layers.bounds import RunBound
from ndpsim.inference.layers.record import LayerRecord, Observer
from ndpsim.inference.layers.setup import Setup
from ndpsim.inference.layers.step_run import DoneLayer, StepRunner
from ndpsim.inference.layers.visits import GatedVisit, Window, itinerary
from ndpsim.policies.answers import CheckedAssignment
from ndpsim.policies.interface import Migration, Policy
from ndpsim.policies.script import ScriptWriter


class PolicyRunner(StepRunner):
    """Runs a model under a policy on a trace.

    Args:
        parameters, observer: as for `StepRunner`.
        wanted: (step, layer) of a decode layer whose record is stored in `record`.
        progress: called with the share of layers that are done.

    Attributes:
        trace: the routing of the run.
        prefill_ns: the end of the prefill.
        bound: the bound of the run; None if it was not requested.
    """

    def __init__(
        self,
        setup: Setup,
        policy: Policy,
        parameters: dict[str, Any],
        observer: Observer | None,
        wanted: tuple[int, int] | None,
        progress: Callable[[float], None],
    ) -> None:
        super().__init__(setup, policy, parameters, observer)
        self._progress, self._wanted = progress, wanted
        self.trace = setup.known_trace
        self._visits, self._tail = itinerary(self.trace, setup.size.layers, setup.decode, setup.prefill)
        self.record: LayerRecord | None = None
        self.prefill_ns = 0.0
        self.script = ScriptWriter(policy, self.placed)
        self.bound: RunBound | None = None
        if setup.bounds is not None:
            layers = len(self.trace.layers)
            self.bound = RunBound(setup.bounds, self._slowdown, self.placed.replicas, layers)

    def run(self) -> None:
        """The prefill, if the trace has one, and all decode steps."""
        for visit in self._visits:
            self.run_layer(visit)
        self.reach(self._tail)

    def reach(self, windows: Sequence[Window]) -> float:
        """Run windows, and record the end of the prefill's windows; see `StepRunner`."""
        time_ns = 0.0
        for window in windows:
            time_ns = super().reach((window,))
            if window.phase == "prefill":
                self.prefill_ns = self.clock_ns
        return time_ns

    def _assigned(self, visit: GatedVisit, assigned: CheckedAssignment, planning_ns: float) -> None:
        self.script.assigned(visit.visit, assigned, planning_ns)

    def _moved(self, visit: GatedVisit, moment: str, migrations: Sequence[Migration]) -> None:
        self.script.moved(visit.visit, moment, migrations)

    def _count(self, done: DoneLayer) -> None:
        """Add a layer to the totals, and call the observer."""
        path, view = self._add(done), done.view
        if self.bound:
            self.bound.add(view.loads, done.visit.shared_ns, self._free_ns)
        self._free_ns = 0.0
        wanted = self._wanted == (view.step, view.layer) and view.phase == "decode"
        if self._observer is not None or wanted:
            bound_ns = self.bound.last_ns() if self.bound else None
            self._show(self._record(done, path, bound_ns), wanted)
        self.totals.add_migrations(self._migrations.done)
        self._progress(self.totals.layers / len(self._visits))

    def _show(self, record: LayerRecord, wanted: bool) -> None:
        if self._observer is not None:
            self._observer(self._run, record)
        if wanted:
            self.record = record
