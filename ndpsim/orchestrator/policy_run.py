"""A model under one policy: phase after phase on one clock."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware
from ndpsim.events.loop import DONE, run_jobs
from ndpsim.events.state import Jobs
from ndpsim.orchestrator.bounds import Bounds, RunBound
from ndpsim.orchestrator.costs import Costs
from ndpsim.orchestrator.jobs import Beside, JobList, Label, make_work
from ndpsim.orchestrator.layer import GPU, Gated, LayerJobs, first_ndp, server_names
from ndpsim.orchestrator.migrations import Migrations
from ndpsim.orchestrator.outcome import critical_path, estimates_by_engine, job_records, time_by_resource
from ndpsim.orchestrator.placement import Places
from ndpsim.orchestrator.record import LayerRecord, Observer, RunRecord
from ndpsim.orchestrator.tally import Tally
from ndpsim.orchestrator.transfers import PRIORITISED, Transfers
from ndpsim.policies.answers import (
    CheckedAssignment,
    answering,
    checked_assignment,
    checked_migrations,
    checked_placement,
)
from ndpsim.policies.interface import (
    BackgroundView,
    Estimates,
    LayerView,
    Machine,
    OfflineView,
    Policy,
)
from ndpsim.processors import AttentionTime, DenseTime, GpuMemory, Processors
from ndpsim.routing import Routing
from ndpsim.routing.trace import loads_of

__all__ = ["Given", "PolicyRunner"]

# Copies of the queue that are jobs of a phase at first; where all of them end in it, it is run with more.
_COPIES = 4

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Given:
    """What all policies of a call have in common.

    Attributes:
        layers: the model's layers that are run, dense ones among them.
        decode, prefill: times of attention and dense parts; of the prefill None where there is none.
        memory: what the GPU's memory holds beside experts.
        dimm_kv_bytes: of the KV cache on the DIMMs that compute.
    """

    hardware: Hardware
    processors: Processors
    costs: Costs
    machine: Machine
    estimates: Estimates
    transfers: Transfers
    trace: Routing
    offline: Routing
    layers: tuple[int, ...]
    decode: DenseTime
    prefill: DenseTime | None
    memory: GpuMemory
    dimm_kv_bytes: int
    bounds: Bounds


@dataclass(frozen=True)
class _Visit:
    """A layer with experts in a step.

    `last`: no other comes after it in the run.
    """

    phase: str
    step: int
    layer: int
    row: int
    ids: NDArray[np.int16]
    scores: NDArray[np.float32] | None
    last: bool


class PolicyRunner:
    """Runs a model under a policy.

    Args:
        observer: is shown each layer; None: none is recorded.
        wanted: (step, layer) of a decode layer whose record is held in `record`.
        progress: called with the share of layers that are done.

    Attributes:
        tally, busy_ns (by resource), clock_ns, prefill_ns: what the run came to.
        bound: of what it came to.

    Raises:
        InputError: the policy's answers make no sense, or what it places does not fit.
    """

    def __init__(
        self,
        given: Given,
        policy: Policy,
        parameters: dict[str, Any],
        observer: Observer | None,
        wanted: tuple[int, int] | None,
        progress: Callable[[float], None],
    ) -> None:
        self.given, self.policy, self._observer, self._progress = given, policy, observer, progress
        self._wanted, self._steps = wanted, given.trace.steps + (given.prefill is not None)
        self.record: LayerRecord | None = None
        self.tally = Tally(given.machine.mean_bits, given.machine.expert_bytes)
        self.clock_ns = self.prefill_ns = 0.0
        machine, hardware = given.machine, given.hardware
        with self._asked("place"):
            trace = given.trace
            offline = OfflineView(machine, given.estimates, given.offline, trace.batch, trace.prefill_tokens)
            placement = policy.place(offline)
        placement = checked_placement(policy.name, placement, machine)
        dimms = hardware.system.dimm.count
        self._places = Places(placement, machine, dimms, hardware.dimm_bytes, given.dimm_kv_bytes)
        at_once = hardware.relayout.concurrent_experts if machine.dimms and hardware.system.link else 1
        self._migrations = Migrations(self._places, given.transfers, given.costs, machine, at_once)
        beside: Mapping[tuple[int, int], Beside] = defaultdict(Beside)
        shards = [count for count in np.unique(placement.shards).tolist() if count > 1]
        if machine.dimms and policy.contention:
            beside = given.transfers.beside(shards)
        self._layer_jobs = LayerJobs(
            machine, given.costs, given.processors, given.transfers, beside, policy.parameters.gpu_order
        )
        self._slowdown = given.transfers.slowdown(policy.contention, shards)
        self.bound = RunBound(given.bounds, self._slowdown, placement.replicas, len(given.trace.layers))
        self._free_ns = 0.0  # time that PCIe was free for weights since the last layer with experts
        self._servers = first_ndp + len(self._slowdown.channel)
        self._names = (*server_names(len(self._slowdown.channel)), *given.transfers.shared_names)
        self._busy = np.zeros(len(self._names))
        self._run = RunRecord(
            policy.name,
            parameters,
            machine,
            hardware,
            given.trace.batch,
            given.trace.prefill_tokens,
            placement,
        )

    @property
    def busy_ns(self) -> dict[str, float]:
        """For how long each resource was used, in full."""
        return dict(zip(self._names, self._busy.tolist(), strict=True))

    def run(self) -> None:
        """The prefill, if the trace has one, and all decode steps."""
        given, trace = self.given, self.given.trace
        if given.prefill is not None:
            assert trace.prefill_ids is not None
            self._step("prefill", 0, given.prefill, trace.steps > 0)
            self.prefill_ns = self.clock_ns
        for step in range(trace.steps):
            self._step("decode", step, given.decode, step + 1 < trace.steps)

    def _step(self, phase: str, step: int, dense: DenseTime, more: bool) -> None:
        """All layers once; `more`: another step follows."""
        given = self.given
        visits = {visit.layer: visit for visit in self._visits(phase, step, more)}
        pending_ns = 0.0
        cached: list[AttentionTime] = []  # of layers since the last with experts
        for layer in given.layers:
            attention = dense.of_layer(layer)
            pending_ns += attention.time_ns
            cached.append(attention)
            if layer not in visits:
                pending_ns += dense.dense_layer_ns
                continue
            window_ns = self._window(pending_ns + dense.router_ns, cached)
            pending_ns, cached = 0.0, []
            loads, copied = self._layer(visits[layer], dense.shared_ns, window_ns)
            if "end" in self.policy.moments:
                self._background(visits[layer], loads, "end", copied=copied)
        self._window(pending_ns + dense.head_ns, cached)

    def _visits(self, phase: str, step: int, more: bool) -> Iterator[_Visit]:
        """The layers with experts of a step."""
        trace = self.given.trace
        ids, scores = trace.prefill_ids, trace.prefill_scores
        if phase == "decode":
            ids, scores = trace.ids[step], None if trace.scores is None else trace.scores[step]
        assert ids is not None
        for row, layer in enumerate(trace.layers):
            of_layer = None if scores is None else scores[row]
            last = layer == trace.layers[-1] and not more
            yield _Visit(phase, step, layer, row, ids[row], of_layer, last)

    def _window(self, ns: float, layers: list[AttentionTime]) -> float:
        """Attention and dense parts on the GPU, with the KV cache on its way where the host has it."""
        transfers, jobs = self.given.transfers, JobList()
        if ns:
            jobs.add(Label("gpu", "attention", alone_ns=ns), ns, server=GPU)
        read = sum(of_layer.host_read_bytes for of_layer in layers)
        written = sum(of_layer.host_write_bytes for of_layer in layers)
        ways: tuple[tuple[Any, int], ...] = (("down", read), ("up", written))
        for direction, size in ways:
            if size:
                alone = transfers.pcie_ns(size)
                label = Label(f"pcie-{direction}", "cache", bytes=size, alone_ns=alone)
                jobs.add(label, alone, kind=transfers.cache(size, direction), per_ns=1 / alone)
        self.tally.add_cache_read(read / self.given.machine.expert_bytes)
        began = self.clock_ns
        if len(jobs):
            self._migrations.add_jobs(jobs)
            self._run_jobs(jobs, in_window=True)
        self._free_ns += self.clock_ns - began - (transfers.wire_ns(read) if read else 0.0)
        return self.clock_ns - began

    def _run_jobs(self, jobs: JobList, in_window: bool) -> Jobs:
        began, kinds, copies = self.clock_ns, self.given.transfers.kinds(), _COPIES
        while True:
            self._migrations.add_copies(jobs, copies)
            arrays, busy = jobs.arrays(), self._busy.copy()
            work = make_work(arrays, kinds, self._slowdown, began, busy)
            if run_jobs(arrays, kinds, self._slowdown, work, PRIORITISED, self._servers) != DONE:
                raise RuntimeError(f"jobs wait for ever, after {began} ns")
            if not self._migrations.left_out(arrays):
                break
            copies *= 4
        self._busy = busy
        self.clock_ns = float(work.clock_ns[0])
        self._migrations.note(arrays, began, self.clock_ns, in_window)
        return arrays

    @contextmanager
    def _asked(self, question: str, view: LayerView | BackgroundView | None = None) -> Iterator[None]:
        """The policy's own time, and what goes wrong in it, in one line."""
        began = time.perf_counter()
        with answering(self.policy.name, question, view):
            yield
        self.tally.policy_s += time.perf_counter() - began

    def _layer(self, visit: _Visit, shared_ns: float, window_ns: float) -> tuple[Ints, Flags]:
        """The experts of a layer; returns its loads, and which it copied to the GPU in full."""
        given, places, row = self.given, self._places, visit.row
        loads, arriving = loads_of(visit.ids, given.trace.experts), places.arriving[row].copy()
        loads.flags.writeable = arriving.flags.writeable = False
        view = LayerView(
            visit.phase,
            visit.step,
            visit.layer,
            loads,
            len(visit.ids),
            places.of_layer(row),
            arriving,
            visit.ids,
            visit.scores,
        )
        answered_s = self.tally.policy_s
        with self._asked("assign", view):
            answer = self.policy.assign(view)
        planning_s = self.tally.policy_s - answered_s
        assigned = checked_assignment(self.policy.name, view, answer, given.machine, places.now.replicas)
        began = self.clock_ns
        planning_ns = planning_s * 1e9 if assigned.planning_ns is None else assigned.planning_ns
        if "gate" in self.policy.moments:
            in_use = assigned.on_gpu(len(loads))
            in_use.flags.writeable = False
            self._background(visit, loads, "gate", in_use=in_use)
        jobs, migrating = self._jobs_of(visit, view, assigned, shared_ns, planning_ns)
        own = range(migrating, len(jobs))
        arrays = self._run_jobs(jobs, in_window=False)
        path = critical_path(arrays)
        waited_ns = time_by_resource(path, arrays, jobs.labels, began)
        bound_ns, self._free_ns = self.bound.add(loads, shared_ns, self._free_ns), 0.0
        self.tally.add_layer(view, assigned, self.clock_ns - began, shared_ns, waited_ns)
        if self._observer is not None or self._is_wanted(visit):
            records, places_of_path = job_records(jobs.labels, arrays, own, path)
            self._show(
                LayerRecord(
                    visit.phase,
                    visit.step,
                    visit.layer,
                    began,
                    self.clock_ns,
                    window_ns,
                    loads,
                    len(visit.ids),
                    view.placement,
                    answer,
                    estimates_by_engine(given.estimates, assigned, view),
                    records,
                    tuple(self._migrations.done),
                    int(places.now.resident.sum()),
                    self._migrations.under_way,
                    bound_ns,
                    max(waited_ns, key=waited_ns.__getitem__),
                    places_of_path,
                    self._migrations.moved,
                ),
                self._is_wanted(visit),
            )
        self.tally.add_migrations(self._migrations.done)
        self._migrations.done = []
        self._progress(self.tally.layers / (len(given.trace.layers) * self._steps))
        copied = assigned.copied_in_full(view.placement.resident | arriving)
        copied.flags.writeable = False
        return loads, copied

    def _jobs_of(
        self,
        visit: _Visit,
        view: LayerView,
        assigned: CheckedAssignment,
        shared_ns: float,
        planning_ns: float,
    ) -> tuple[JobList, int]:
        """The jobs of a layer, after those of migrations, and how many these are."""
        jobs, loads = JobList(), view.loads.tolist()
        awaited = [*(expert for expert, _ in assigned.gpu), *assigned.awaits]
        coming = self._migrations.add_jobs(jobs, visit.row, awaited)
        migrating = len(jobs)
        dimm, shards = view.placement.dimm.tolist(), view.placement.shards.tolist()
        gated = Gated(
            loads,
            lambda expert: (dimm[expert], shards[expert]),
            view.placement.resident,
            {expert: bits for (row, expert), bits in self._places.gpu_bits.items() if row == visit.row},
            coming,
            _tokens_on(visit.ids, [*assigned.cpu, *assigned.ndp], len(loads)),
            shared_ns,
            planning_ns,
        )
        self._layer_jobs.add(jobs, assigned, gated)
        return jobs, migrating

    def _is_wanted(self, visit: _Visit) -> bool:
        return self._wanted == (visit.step, visit.layer) and visit.phase == "decode"

    def _show(self, record: LayerRecord, wanted: bool) -> None:
        if self._observer is not None:
            self._observer(self._run, record)
        if wanted:
            self.record = record

    def _background(
        self,
        visit: _Visit,
        loads: Ints,
        moment: str,
        copied: Flags | None = None,
        in_use: Flags | None = None,
    ) -> None:
        """Ask for migrations at a layer's gate, or when its experts are done: see `BackgroundView`."""
        if visit.last:
            return
        places, none = self._places, np.zeros(len(loads), np.bool_)
        next_row = (visit.row + 1) % len(self.given.trace.layers)
        next_loads, predicted, above = self._of_next(visit, next_row, moment)
        view = BackgroundView(
            visit.phase,
            visit.step,
            visit.layer,
            self.given.trace.layers[next_row],
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
        with self._asked("background", view):
            answer = self.policy.background(view)
        self._migrations.decide(
            checked_migrations(self.policy.name, view, answer, self.given.machine), self.clock_ns
        )

    def _of_next(
        self, visit: _Visit, row: int, moment: str
    ) -> tuple[Ints | None, tuple[int, ...], tuple[float, ...]]:
        """What the policy is shown of the next layer, at `row`: its loads, and predictions."""
        trace, policy = self.given.trace, self.policy
        predictor = policy.stated_predictor if moment == policy.moments[0] else None
        if not policy.sees_the_future and predictor is None:
            return None, (), ()
        step = visit.step + (row == 0 and visit.phase == "decode")
        ids, scores = trace.prefill_ids, trace.prefill_scores
        if row == 0 or visit.phase == "decode":
            ids, scores = trace.ids[step], None if trace.scores is None else trace.scores[step]
        assert ids is not None
        loads = loads_of(ids[row], trace.experts)
        loads.flags.writeable = False
        shown = loads if policy.sees_the_future else None
        if predictor is None:
            return shown, (), ()
        predicted = predictor.predict(loads, step, trace.layers[row])
        return shown, predicted, predictor.above(loads, ids[row], None if scores is None else scores[row])


def _tokens_on(ids: NDArray[np.int16], parts: Sequence[tuple[int, float]], experts: int) -> int:
    """Tokens with one of these experts."""
    chosen = np.zeros(experts, dtype=np.bool_)
    chosen[[expert for expert, _ in parts]] = True
    return int(chosen[ids].any(axis=-1).sum())
