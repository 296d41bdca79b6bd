"""Steps of a model under one policy: windows and layers, one after the other on one clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import same_types
from ndpsim.inference.events.loop import DONE, run_jobs
from ndpsim.inference.events.state import FIRST_NDP, GPU, Work
from ndpsim.inference.layers.jobs import Beside, JobList, Label, make_work
from ndpsim.inference.layers.layer import Gated, LayerJobs, server_names
from ndpsim.inference.layers.migrations import Migrations
from ndpsim.inference.layers.placement import Places
from ndpsim.inference.layers.record import (
    CriticalPath,
    LayerRecord,
    Observer,
    RunRecord,
    critical_path,
    estimates_by_engine,
    job_records,
)
from ndpsim.inference.layers.residents import Residents
from ndpsim.inference.layers.setup import Setup
from ndpsim.inference.layers.totals import Totals
from ndpsim.inference.layers.transfers import PRIORITISED
from ndpsim.inference.layers.visits import GatedVisit, Window
from ndpsim.inference.processors import AttentionTime
from ndpsim.policies.answers import (
    Answering,
    CheckedAssignment,
    checked_assignment,
    checked_migrations,
    checked_placement,
)
from ndpsim.policies.interface import Assignment, Migration, Policy
from ndpsim.policies.views import BackgroundView, LayerView, OfflineView
from ndpsim.workload.routing.trace import loads_of

# Copies of the queue that are jobs of a phase at first; where all of them end in it, it is run with more.
_COPIES = 4

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class DoneLayer(NamedTuple):
    """A layer whose experts are done.

    Attributes:
        began_ns, window_ns: when its experts began, and the time of the window before them.
        own: those of the jobs that are no migrations.
        on_ndp: numbers of the parts of experts on NDP units.
    """

    visit: GatedVisit
    view: LayerView
    answer: Assignment
    assigned: CheckedAssignment
    began_ns: float
    window_ns: float
    jobs: JobList
    own: range
    on_ndp: Ints


class StepRunner:
    """Runs windows and layers as it is given them, with experts where a policy wants them.

    Args:
        parameters: of the policy, as plain data.
        observer: is shown each layer; None: none is recorded.

    Attributes:
        placed: where experts lie before the first step.
        residents: experts in the GPU's memory, between two steps.
        totals, busy_ns (by resource), clock_ns: what the run came to until now.

    Raises:
        InputError: the policy's answers make no sense, or what it places does not fit.
    """

    def __init__(
        self, setup: Setup, policy: Policy, parameters: Mapping[str, Any], observer: Observer | None = None
    ) -> None:
        self.setup, self.policy = setup, policy
        machine, hardware = setup.machine, setup.hardware
        self.totals = Totals(
            machine.mean_bits, machine.expert_bytes, machine.model.routed_experts, hardware.system.dimm.count
        )
        self.clock_ns = 0.0
        # A policy without a `background` of its own asks for no migrations.
        self._moments = policy.moments if type(policy).background is not Policy.background else ()
        self._experts = machine.model.routed_experts
        with Answering(policy.name, "place") as asked:
            sizes = setup.size.batch, setup.size.prefill_tokens
            placement = policy.place(OfflineView(machine, setup.estimates, setup.offline, *sizes))
        self.totals.policy_s += asked.took_s
        self.placed = placement = checked_placement(policy.name, placement, machine)
        dimms = hardware.system.dimm.count
        self._places = Places(placement, machine, dimms, hardware.dimm_bytes, setup.dimm_kv_bytes)
        at_once = hardware.relayout.concurrent_experts if machine.dimms and hardware.system.link else 1
        self._migrations = Migrations(self._places, setup.transfers, setup.costs, machine, at_once)
        self.residents = Residents(policy, self._places, self._migrations, machine)
        beside: Mapping[tuple[int, int], Beside] = defaultdict(Beside)
        shards = [count for count in np.unique(placement.shards).tolist() if count > 1]
        if setup.transfers.meets_units and policy.contention:
            beside = setup.transfers.beside(shards)
        self._layer_jobs = LayerJobs(
            machine, setup.costs, setup.processors, setup.transfers, beside, policy.parameters.gpu_order
        )
        self._slowdown = setup.transfers.slowdown(policy.contention, shards)
        self._free_ns = 0.0  # time that PCIe was free for weights since the last layer with experts
        self._servers = FIRST_NDP + dimms
        self._names = (*server_names(dimms), *setup.transfers.shared_names)
        self._busy = np.zeros(len(self._names))
        self._jobs, self._work = JobList(), make_work(0, 0, 0, 0)
        self._run_to_end = same_types(run_jobs)
        self._observer = observer
        self._run = RunRecord(
            policy.name, parameters, machine, hardware, setup.size.batch, setup.size.prefill_tokens, placement
        )

    @property
    def busy_ns(self) -> dict[str, float]:
        """For how long each resource was used, in full."""
        return dict(zip(self._names, self._busy.tolist(), strict=True))

    def energy(self, time_ns: float) -> tuple[dict[str, float | None], str]:
        """Energy over a time: see `Totals.energy`."""
        setup = self.setup
        power_w = setup.processors.power_w(setup.machine.model)
        return self.totals.energy(setup.costs, power_w, time_ns, self._layer_jobs.ndp_parts)

    def run_step(self, visits: Sequence[GatedVisit], last: Sequence[Window]) -> None:
        """The layers of a step, and the windows behind them."""
        for visit in visits:
            self.run_layer(visit)
        self.reach(last)

    def wait_until(self, time_ns: float) -> None:
        """Nothing is computed until then; what is on its way moves on."""
        if self._migrations.under_way and time_ns > self.clock_ns:
            jobs, idle_ns = self._no_jobs(), time_ns - self.clock_ns
            jobs.add(Label("none", "idle", alone_ns=idle_ns), idle_ns)
            self._migrations.add_jobs(jobs)
            self._run_jobs(in_window=True)
            self.totals.add_migrations(self._migrations.done)
            self._migrations.done = []
        self.clock_ns = max(self.clock_ns, time_ns)

    def run_layer(self, visit: GatedVisit) -> None:
        """The windows before a layer, and its experts."""
        self._layer(visit, self.reach(visit.windows))

    def reach(self, windows: Sequence[Window]) -> float:
        """Go through windows; returns the time of the last one, in ns."""
        time_ns = 0.0
        for window in windows:
            time_ns = self._window(window.gpu_ns, window.attention)
        return time_ns

    def _window(self, ns: float, layers: Sequence[AttentionTime]) -> float:
        """Attention and dense parts on the GPU, with the KV cache on its way where the host has it."""
        read = sum(of_layer.host_read_bytes for of_layer in layers)
        written = sum(of_layer.host_write_bytes for of_layer in layers)
        if not read and not written and not self._migrations.under_way:
            return self._compute(ns)
        transfers, jobs = self.setup.transfers, self._no_jobs()
        if ns:
            jobs.add(Label("gpu", "attention", alone_ns=ns), ns)
        self._add_cache(jobs, read, written)
        began = self.clock_ns
        if len(jobs):
            self._migrations.add_jobs(jobs)
            self._run_jobs(in_window=True)
        self._free_ns += self.clock_ns - began - (transfers.wire_ns(read) if read else 0.0)
        return self.clock_ns - began

    def move_cache(self, to_gpu: int, to_host: int) -> None:
        """Bytes of the KV cache are moved over PCIe, both ways at once, and nothing is computed meanwhile."""
        jobs = self._no_jobs()
        self._add_cache(jobs, to_gpu, to_host)
        self._migrations.add_jobs(jobs)
        self._run_jobs(in_window=True)

    def _add_cache(self, jobs: JobList, to_gpu: int, to_host: int) -> None:
        """Add transfers of the KV cache, in bytes, between the host's memory and the GPU."""
        transfers = self.setup.transfers
        ways: tuple[tuple[Any, int], ...] = (("down", to_gpu), ("up", to_host))
        for direction, size in ways:
            if size:
                alone = transfers.pcie_ns(size)
                label = Label(f"pcie-{direction}", "cache", bytes=size, alone_ns=alone)
                jobs.add(label, alone, kind=transfers.cache(size, direction), per_ns=1 / alone)
        self.totals.add_cache_read(to_gpu / self.setup.machine.expert_bytes)

    def _compute(self, ns: float) -> float:
        """The GPU alone for a time, which it returns: what the event loop makes of one job."""
        began = self.clock_ns
        self.clock_ns += ns
        self._busy[GPU] += ns
        self._free_ns += self.clock_ns - began
        return self.clock_ns - began

    def _no_jobs(self) -> JobList:
        """The jobs of a phase that begins."""
        self._jobs.clear()
        return self._jobs

    def _run_jobs(self, in_window: bool) -> None:
        jobs, began, kinds, copies = self._jobs, self.clock_ns, self.setup.transfers.kinds(), _COPIES
        while True:
            self._migrations.add_copies(jobs, copies)
            arrays, work = jobs.ready(), self._work_for(len(jobs))
            work.clock_ns[0], work.busy_ns[:] = began, self._busy
            if self._run_to_end(arrays, kinds, self._slowdown, work, PRIORITISED, self._servers) != DONE:
                raise RuntimeError(f"jobs wait for ever, after {began} ns")
            if not self._migrations.left_out(arrays):
                break
            copies *= 4
        self._busy = work.busy_ns.copy()
        self.clock_ns = float(work.clock_ns[0])
        self._migrations.note(arrays, began, self.clock_ns, in_window)

    def _work_for(self, jobs: int) -> Work:
        """Working arrays of the loop, made anew where there are more jobs than ever."""
        if jobs > len(self._work.active):
            shared = len(self._names) - self._servers
            self._work = make_work(2 * jobs, self._servers, shared, self._servers - FIRST_NDP)
        return self._work

    def _view(self, visit: GatedVisit) -> LayerView:
        """The view of a layer that `assign` is shown."""
        loads = loads_of(visit.ids, self._experts)
        loads.flags.writeable = False
        placement, arriving = self._places.layer(visit.row)
        chosen = visit.ids, visit.scores, visit.prompt_tokens
        return LayerView(*visit.visit, loads, len(visit.ids), placement, arriving, *chosen)

    def _layer(self, visit: GatedVisit, window_ns: float) -> None:
        """The experts of a layer, and what is asked for beside them and after them."""
        places, view = self._places, self._view(visit)
        with Answering(self.policy.name, "assign", view) as asked:
            answer = self.policy.assign(view)
        self.totals.policy_s += asked.took_s
        machine = self.setup.machine
        assigned = checked_assignment(self.policy.name, view, answer, machine, places.now.replicas)
        began = self.clock_ns
        planning_ns = asked.took_s * 1e9 if assigned.planning_ns is None else assigned.planning_ns
        self._assigned(visit, assigned, planning_ns)
        if "gate" in self._moments:
            in_use = assigned.on_gpu(len(view.loads))
            in_use.flags.writeable = False
            self._background(visit, view.loads, "gate", in_use=in_use)
        own, on_ndp = self._add_jobs(visit, view, assigned, planning_ns)
        self._run_jobs(in_window=False)
        self._count(DoneLayer(visit, view, answer, assigned, began, window_ns, self._jobs, own, on_ndp))
        self._migrations.done = []
        if "end" in self._moments:
            copied = assigned.copied_in_full(view.placement.resident | view.arriving)
            copied.flags.writeable = False
            self._background(visit, view.loads, "end", copied=copied)

    def _assigned(self, visit: GatedVisit, assigned: CheckedAssignment, planning_ns: float) -> None:
        """Called with the assignment of the policy, and the time that is charged for it."""

    def _moved(self, visit: GatedVisit, moment: str, migrations: Sequence[Migration]) -> None:
        """Called with the migrations for which the policy has asked at a moment."""

    def _count(self, done: DoneLayer) -> None:
        """Add a layer to what is told of the run, and show it."""
        path = self._add(done)
        if self._observer is not None:
            self._observer(self._run, self._record(done, path, None))
        self.totals.add_migrations(self._migrations.done)

    def _record(self, done: DoneLayer, path: CriticalPath, bound_ns: float | None) -> LayerRecord:
        """The record of a layer."""
        visit, view = done.visit, done.view
        records, places_of_path = job_records(done.jobs, done.own, path.jobs)
        return LayerRecord(
            *visit.visit,
            done.began_ns,
            self.clock_ns,
            done.window_ns,
            view.loads,
            len(visit.ids),
            view.placement,
            done.answer,
            estimates_by_engine(self.setup.estimates, done.assigned, view),
            records,
            tuple(self._migrations.done),
            int(self._places.now.resident.sum()),
            self._migrations.under_way,
            bound_ns,
            max(path.waited_ns, key=path.waited_ns.__getitem__),
            places_of_path,
            self._migrations.moved,
        )

    def _add(self, done: DoneLayer) -> CriticalPath:
        """Add a layer's experts to the totals; returns its critical path."""
        path, time_ns = critical_path(done.jobs, done.began_ns), self.clock_ns - done.began_ns
        shared_ns = done.visit.shared_ns
        self.totals.add_layer(done.view, done.assigned, time_ns, shared_ns, path.waited_ns, done.on_ndp)
        return path

    def _add_jobs(
        self,
        visit: GatedVisit,
        view: LayerView,
        assigned: CheckedAssignment,
        planning_ns: float,
    ) -> tuple[range, Ints]:
        """Make the jobs of a layer, after those of migrations.

        Returns:
            The layer's own jobs, and the numbers of the parts of experts on NDP units.
        """
        jobs = self._no_jobs()
        coming: Mapping[int, int] = {}
        if self._migrations.under_way:
            awaited = [*assigned.gpu.experts.tolist(), *assigned.awaits]
            coming = self._migrations.add_jobs(jobs, visit.row, awaited)
        migrating = len(jobs)
        gated = Gated(
            view.loads,
            visit.ids,
            view.placement,
            {expert: bits for (row, expert), bits in self._places.gpu_bits.items() if row == visit.row},
            coming,
            visit.shared_ns,
            planning_ns,
        )
        on_ndp = self._layer_jobs.add(jobs, assigned, gated)
        return range(migrating, len(jobs)), on_ndp

    def _background(
        self,
        visit: GatedVisit,
        loads: Ints,
        moment: str,
        copied: Flags | None = None,
        in_use: Flags | None = None,
    ) -> None:
        """Ask for migrations at a layer's gate, or when its experts are done: see `BackgroundView`."""
        if visit.last:
            return
        places, none = self._places, np.zeros(len(loads), np.bool_)
        layers = self.setup.machine.layers
        next_loads, predicted, above = self._of_next(visit, moment)
        view = BackgroundView(
            *visit.visit,
            layers[(visit.row + 1) % len(layers)],
            loads,
            places.now,
            places.moving,
            places.gpu_free,
            visit.ids,
            visit.scores,
            none if copied is None else copied,
            next_loads,
            predicted,
            above,
            moment,
            none if in_use is None else in_use,
        )
        with Answering(self.policy.name, "background", view) as asked:
            answer = self.policy.background(view)
        self.totals.policy_s += asked.took_s
        checked = checked_migrations(self.policy.name, view, answer, self.setup.machine)
        self._moved(visit, moment, checked)
        self._migrations.decide(checked, self.clock_ns)

    def _of_next(
        self, visit: GatedVisit, moment: str
    ) -> tuple[Ints | None, tuple[int, ...], tuple[float, ...]]:
        """The next layer as the policy is shown it: its loads, and predictions."""
        policy, following = self.policy, visit.following
        predictor = policy.stated_predictor if moment == policy.moments[0] else None
        if following is None or (not policy.sees_the_future and predictor is None):
            return None, (), ()
        loads = loads_of(following.ids, self._experts)
        loads.flags.writeable = False
        shown = loads if policy.sees_the_future else None
        if predictor is None:
            return shown, (), ()
        predicted = predictor.predict(loads, following.visit.step, following.visit.layer)
        return shown, predicted, predictor.above(loads, following.ids, following.scores)
