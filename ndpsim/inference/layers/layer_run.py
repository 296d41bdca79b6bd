"""The run of a model under one policy: windows and layers, one after the other on one clock."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import same_types
from ndpsim.inference.events.loop import DONE, run_jobs
from ndpsim.inference.events.state import FIRST_NDP, GPU, Work
from ndpsim.inference.layers.jobs import Beside, JobList, Label, make_work
from ndpsim.inference.layers.layer import Gated, LayerJobs, NdpPart, server_names
from ndpsim.inference.layers.migrations import Migrations
from ndpsim.inference.layers.placement import Places
from ndpsim.inference.layers.run_state import DoneLayer, Listener, RunState
from ndpsim.inference.layers.setup import Setup
from ndpsim.inference.layers.transfers import PRIORITISED
from ndpsim.inference.layers.visits import GatedVisit, InBanks, Window
from ndpsim.policies.answers import (
    Answering,
    CheckedAssignment,
    checked_assignment,
    checked_migrations,
    checked_placement,
)
from ndpsim.policies.interface import Policy
from ndpsim.policies.views import BackgroundView, LayerView, OfflineView

# Copies of the queue that are jobs of a phase at first; where all of them end in it, it is run with more.
_COPIES = 4

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class LayerRun:
    """Runs windows and layers as they are given to it, with experts where a policy wants them.

    Attributes:
        placed: where experts lie before the first step.
        slowdown: of NDP units and others.
        state: everything that changes during the run.
        listeners: are told what happens.

    Raises:
        InputError: the policy's answers make no sense, or what it places does not fit.
    """

    def __init__(self, setup: Setup, policy: Policy) -> None:
        self.setup, self.policy = setup, policy
        self.listeners: list[Listener] = []
        machine, hardware = setup.machine, setup.hardware
        # A policy without a `background` of its own asks for no migrations.
        self._moments = policy.moments if type(policy).background is not Policy.background else ()
        self._no_flags = np.zeros(machine.model.routed_experts, np.bool_)
        self._no_flags.flags.writeable = False
        with Answering(policy.name, "place") as asked:
            sizes = setup.size.batch, setup.size.prefill_tokens
            placement = policy.place(OfflineView(machine, setup.estimates, setup.offline, *sizes))
        self.placed = placement = checked_placement(policy.name, placement, machine)
        dimms = hardware.system.dimm.count
        places = Places(placement, machine, dimms, hardware.dimm_bytes, setup.dimm_kv_bytes)
        at_once = hardware.relayout.concurrent_experts if machine.dimms and hardware.system.link else 1
        migrations = Migrations(places, setup.transfers, setup.costs, machine, at_once)
        beside: Mapping[tuple[int, int], Beside] = defaultdict(Beside)
        shards = [count for count in np.unique(placement.shards).tolist() if count > 1]
        if setup.transfers.meets_units and policy.contention:
            beside = setup.transfers.beside(shards)
        self._layer_jobs = LayerJobs(
            machine, setup.costs, setup.processors, setup.transfers, beside, policy.parameters.gpu_order
        )
        self.slowdown = setup.transfers.slowdown(policy.contention, shards)
        self._servers = FIRST_NDP + dimms
        self._names = (*server_names(dimms), *setup.transfers.shared_names)
        self._jobs, self._work = JobList(), make_work(0, 0, 0, 0)
        self._run_to_end = same_types(run_jobs)
        self.state = RunState(places, migrations, np.zeros(len(self._names)), policy_s=asked.took_s)

    def copy(self, listeners: list[Listener]) -> LayerRun:
        """An independent copy of the run from here on, which tells these listeners."""
        other = copy.copy(self)
        other.state, other.listeners = self.state.copy(), listeners
        return other

    @property
    def clock_ns(self) -> float:
        """The time now."""
        return self.state.clock_ns

    @property
    def busy_ns(self) -> dict[str, float]:
        """For how long each resource was used, in full."""
        return {**dict(zip(self._names, self.state.busy_ns.tolist(), strict=True)), **self.state.banks_ns}

    @property
    def ndp_parts(self) -> list[NdpPart]:
        """All kinds of parts on NDP units until now, in the order of their numbers."""
        return self._layer_jobs.ndp_parts

    def run_step(self, visits: Sequence[GatedVisit], last: Sequence[Window]) -> None:
        """The layers of a step, and the windows behind them."""
        for visit in visits:
            self.run_layer(visit)
        self.run_windows(last)

    def run_layer(self, visit: GatedVisit) -> None:
        """The windows before a layer, and its experts."""
        self.run_windows(visit.windows)
        self.run_experts(visit)

    def wait_until(self, time_ns: float) -> None:
        """Nothing is computed until then; what is on its way moves on."""
        state = self.state
        if state.migrations.under_way and time_ns > state.clock_ns:
            jobs, idle_ns = self._no_jobs(), time_ns - state.clock_ns
            jobs.add(Label("none", "idle", alone_ns=idle_ns), idle_ns)
            state.migrations.add_jobs(jobs)
            self._run_jobs(in_window=True)
            migrations = state.migrations.take_done()
            for listener in self.listeners:
                listener.migrated(migrations)
        state.clock_ns = max(state.clock_ns, time_ns)

    def run_windows(self, windows: Sequence[Window]) -> None:
        """Attention and dense parts on the GPU, with the KV cache on its way where the host has it."""
        state = self.state
        for window in windows:
            began, read, written = state.clock_ns, window.host_read_bytes, window.host_write_bytes
            if read or written or window.in_banks or state.migrations.under_way:
                self._run_window(window)
            else:  # what the event loop makes of one job
                state.clock_ns += window.gpu_ns
                state.busy_ns[GPU] += window.gpu_ns
            state.window_ns = state.clock_ns - began
            state.free_ns += state.window_ns - (self.setup.transfers.wire_ns(read) if read else 0.0)
            for listener in self.listeners:
                listener.window_done(window, state.clock_ns)

    def _run_window(self, window: Window) -> None:
        """A window, and the bytes of the KV cache that the GPU reads and writes."""
        jobs, gpu_ns = self._no_jobs(), window.gpu_ns
        before: tuple[int, ...] = ()
        for layer in window.in_banks:
            gpu_ns -= layer.gpu_ns + layer.attention.beside_ns
            before = self._add_in_banks(jobs, layer, before)
        if gpu_ns > 0:
            jobs.add(Label("gpu", "attention", alone_ns=gpu_ns), gpu_ns, before)
        self._add_cache(jobs, window.host_read_bytes, window.host_write_bytes)
        if len(jobs):
            self.state.migrations.add_jobs(jobs)
            self._run_jobs(in_window=True)

    def _add_in_banks(self, jobs: JobList, layer: InBanks, after: tuple[int, ...]) -> tuple[int, ...]:
        """Add a layer's attention on devices; returns the jobs that the GPU waits for."""
        attention = layer.attention
        begun = jobs.add(Label("gpu", "attention", alone_ns=layer.gpu_ns), layer.gpu_ns, after)
        last = self._add_bank_transfer(jobs, attention.in_bytes, "up", begun)
        if attention.time_ns:
            self._in_banks("banks", attention.time_ns)
            label = Label("banks", "attention", alone_ns=attention.time_ns)
            last = jobs.add(label, attention.time_ns, (last,))
        last = self._add_bank_transfer(jobs, attention.out_bytes, "down", last)
        if not attention.beside_ns:
            return (last,)
        beside = Label("gpu", "attention", alone_ns=attention.beside_ns)
        return last, jobs.add(beside, attention.beside_ns, (begun,))

    def _add_bank_transfer(
        self, jobs: JobList, size: int, direction: Literal["up", "down"], after: int
    ) -> int:
        """Add a transfer to the devices, or from them; returns the job that ends it."""
        if not size:
            return after
        transfers, what = self.setup.transfers, "activations" if direction == "up" else "results"
        ns = transfers.bank_ns(size)
        if transfers.has_bank_link:
            resource = "banks-in" if direction == "up" else "banks-out"
            self._in_banks(resource, ns)
            return jobs.add(Label(resource, what, bytes=size, alone_ns=ns), ns, (after,))
        label = Label(f"pcie-{direction}", what, bytes=size, alone_ns=ns)
        return jobs.add(label, ns, (after,), kind=transfers.vectors(direction), per_ns=1.0)

    def _in_banks(self, resource: str, ns: float) -> None:
        times = self.state.banks_ns
        times[resource] = times.get(resource, 0.0) + ns

    def move_cache(self, to_gpu: int, to_host: int) -> None:
        """Bytes of the KV cache are moved over PCIe, both ways at once, and nothing is computed meanwhile."""
        jobs = self._no_jobs()
        self._add_cache(jobs, to_gpu, to_host)
        self.state.migrations.add_jobs(jobs)
        self._run_jobs(in_window=True)

    def _add_cache(self, jobs: JobList, to_gpu: int, to_host: int) -> None:
        """Add transfers of the KV cache, in bytes, between the host's memory and the GPU."""
        transfers = self.setup.transfers
        ways: tuple[tuple[Any, int], ...] = (("down", to_gpu), ("up", to_host))
        for direction, size in ways:
            if size:
                alone = transfers.pcie_ns(size)
                label = Label(f"pcie-{direction}", "cache", bytes=transfers.gpus * size, alone_ns=alone)
                jobs.add(label, alone, kind=transfers.cache(size, direction), per_ns=1 / alone)
        for listener in self.listeners:
            listener.cache_read(transfers.gpus * to_gpu)

    def _no_jobs(self) -> JobList:
        """The jobs of a phase that begins."""
        self._jobs.clear()
        return self._jobs

    def _run_jobs(self, in_window: bool) -> None:
        state, jobs, kinds, copies = self.state, self._jobs, self.setup.transfers.kinds(), _COPIES
        began = state.clock_ns
        while True:
            state.migrations.add_copies(jobs, copies)
            arrays, work = jobs.ready(), self._work_for(len(jobs))
            work.clock_ns[0], work.busy_ns[:] = began, state.busy_ns
            if self._run_to_end(arrays, kinds, self.slowdown, work, PRIORITISED, self._servers) != DONE:
                raise RuntimeError(f"jobs wait for ever, after {began} ns")
            if not state.migrations.left_out(arrays):
                break
            copies *= 4
        state.busy_ns[:] = work.busy_ns
        state.clock_ns = float(work.clock_ns[0])
        state.migrations.note(arrays, began, state.clock_ns, in_window)

    def _work_for(self, jobs: int) -> Work:
        """Working arrays of the loop, made anew where there are more jobs than ever."""
        if jobs > len(self._work.active):
            shared = len(self._names) - self._servers
            self._work = make_work(2 * jobs, self._servers, shared, self._servers - FIRST_NDP)
        return self._work

    def view(self, visit: GatedVisit) -> LayerView:
        """The view of a layer that `assign` is shown."""
        placement, arriving = self.state.places.layer(visit.row)
        chosen = visit.ids, visit.scores, visit.prompt_tokens
        return LayerView(*visit.visit, visit.loads, len(visit.ids), placement, arriving, *chosen)

    def run_experts(self, visit: GatedVisit) -> DoneLayer:
        """The experts of a layer, and what is asked for beside them and after them."""
        state, view = self.state, self.view(visit)
        with Answering(self.policy.name, "assign", view) as asked:
            answer = self.policy.assign(view)
        state.policy_s += asked.took_s
        replicas = state.places.now.replicas
        assigned = checked_assignment(self.policy.name, view, answer, self.setup.machine, replicas)
        began = state.clock_ns
        planning_ns = asked.took_s * 1e9 if assigned.planning_ns is None else assigned.planning_ns
        if "gate" in self._moments:
            self._background(visit, view, "gate", in_use=assigned.on_gpu(len(view.loads)))
        own, on_ndp = self._add_jobs(visit, view, assigned, planning_ns)
        self._run_jobs(in_window=False)
        done = DoneLayer(
            visit,
            view,
            answer,
            assigned,
            planning_ns,
            began,
            state.clock_ns,
            state.window_ns,
            state.free_ns,
            self._jobs,
            own,
            on_ndp,
            state.migrations.take_done(),
            state,
        )
        state.free_ns = 0.0
        for listener in self.listeners:
            listener.layer_done(done)
            listener.migrated(done.migrations)
        if "end" in self._moments:
            there = view.placement.resident | view.arriving
            self._background(visit, view, "end", copied=assigned.copied_in_full(there))
        return done

    def _add_jobs(
        self, visit: GatedVisit, view: LayerView, assigned: CheckedAssignment, planning_ns: float
    ) -> tuple[range, Ints]:
        """Make the jobs of a layer, after those of migrations.

        Returns:
            The layer's own jobs, and the numbers of the parts of experts on NDP units.
        """
        jobs, migrations = self._no_jobs(), self.state.migrations
        coming: Mapping[int, int] = {}
        if migrations.under_way:
            awaited = [*assigned.gpu.experts.tolist(), *assigned.awaits]
            coming = migrations.add_jobs(jobs, visit.row, awaited)
        migrating = len(jobs)
        gpu_bits = self.state.places.gpu_bits
        gated = Gated(
            view.loads,
            visit.ids,
            view.placement,
            {expert: bits for (row, expert), bits in gpu_bits.items() if row == visit.row},
            coming,
            visit.shared_ns,
            planning_ns,
        )
        on_ndp = self._layer_jobs.add(jobs, assigned, gated)
        return range(migrating, len(jobs)), on_ndp

    def _background(
        self,
        visit: GatedVisit,
        layer: LayerView,
        moment: str,
        copied: Flags | None = None,
        in_use: Flags | None = None,
    ) -> None:
        """Ask for migrations at a layer's gate, or when its experts are done: see `BackgroundView`."""
        if visit.last:
            return
        places, none, layers = self.state.places, self._no_flags, self.setup.machine.layers
        for flags in (copied, in_use):
            if flags is not None:
                flags.flags.writeable = False
        next_loads, predicted, above = self._of_next(visit, moment)
        view = BackgroundView(
            *visit.visit,
            layers[(visit.row + 1) % len(layers)],
            layer.loads,
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
        self.state.policy_s += asked.took_s
        checked = checked_migrations(self.policy.name, view, answer, self.setup.machine)
        for listener in self.listeners:
            listener.decided(visit.visit, moment, checked)
        if checked:
            self.state.migrations.decide(checked, self.clock_ns)

    def _of_next(
        self, visit: GatedVisit, moment: str
    ) -> tuple[Ints | None, tuple[int, ...], tuple[float, ...]]:
        """The next layer as the policy is shown it: its loads, and predictions."""
        policy, following = self.policy, visit.following
        predictor = policy.stated_predictor if moment == policy.moments[0] else None
        if following is None or (not policy.sees_the_future and predictor is None):
            return None, (), ()
        loads = following.loads
        shown = loads if policy.sees_the_future else None
        if predictor is None:
            return shown, (), ()
        predicted = predictor.predict(loads, following.visit.step, following.visit.layer)
        return shown, predicted, predictor.above(loads, following.ids, following.scores)
