"""Makes the records of a run's layers, for its observers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.inference.events.state import WHAT, Jobs
from ndpsim.inference.layers.bounds import RunBound
from ndpsim.inference.layers.jobs import JobList
from ndpsim.inference.layers.layer_run import LayerRun
from ndpsim.inference.layers.record import JobRecord, LayerRecord, Observer, RunRecord
from ndpsim.inference.layers.run_state import DoneLayer, Listener
from ndpsim.policies.answers import CheckedAssignment
from ndpsim.policies.views import Estimates, LayerView

Ints = NDArray[np.int64]


class Recorder(Listener):
    """Shows an observer the layers of a run.

    Args:
        parameters: of the policy, as plain data.
        bound: the bound of the run, which listens before.
        only: (step, layer) of the only decode layer that is shown; None: all layers are.
    """

    def __init__(
        self,
        run: LayerRun,
        parameters: Mapping[str, Any],
        observer: Observer,
        bound: RunBound | None = None,
        only: tuple[int, int] | None = None,
    ) -> None:
        setup, self._observer, self._bound, self._only = run.setup, observer, bound, only
        size, self._estimates = setup.size, setup.estimates
        self._run = RunRecord(
            run.policy.name,
            parameters,
            setup.machine,
            setup.hardware,
            size.batch,
            size.prefill_tokens,
            run.placed,
        )

    def layer_done(self, done: DoneLayer) -> None:
        """Show the layer."""
        view = done.view
        if self._only is None or (view.phase == "decode" and self._only == (view.step, view.layer)):
            self._observer(self._run, self._record(done))

    def _record(self, done: DoneLayer) -> LayerRecord:
        view, path, state = done.view, done.path, done.state
        records, places_of_path = job_records(done.jobs, done.own, path.jobs)
        return LayerRecord(
            view.phase,
            view.step,
            view.layer,
            done.began_ns,
            done.end_ns,
            done.window_ns,
            view.loads,
            view.tokens,
            view.placement,
            done.answer,
            estimates_by_engine(self._estimates, done.assigned, view),
            records,
            done.migrations,
            int(state.places.now.resident.sum()),
            state.migrations.under_way,
            self._bound.last_ns() if self._bound else None,
            max(path.waited_ns, key=path.waited_ns.__getitem__),
            places_of_path,
            state.migrations.moved,
        )


def _pcie_part(jobs: Jobs, job: int) -> float:
    """The share of PCIe that a transfer could have had on average, of what it wanted."""
    time_ns = float(jobs.end_ns[job] - jobs.start_ns[job])
    return min(float(jobs.allowed_ns[job]) / time_ns, 1.0) if time_ns > 0 else 1.0


def job_records(jobs: JobList, own: range, path: Ints) -> tuple[tuple[JobRecord, ...], tuple[int, ...]]:
    """Records of a layer's own jobs in the order of their starts, and the places of the critical path there.

    own: the others are migrations and have records of their own.
    """
    arrays, added, resources = jobs.arrays, jobs.added, jobs.resources()
    order = sorted(own, key=lambda job: (arrays.start_ns[job], job))
    records = tuple(
        JobRecord(
            resource=resources[job],
            kind=WHAT[added.what[job]],
            expert=int(added.expert[job]),
            share=float(added.share[job]),
            tokens=int(added.tokens[job]),
            start_ns=float(arrays.start_ns[job]),
            end_ns=float(arrays.end_ns[job]),
            bytes=int(added.bytes[job]),
            alone_ns=float(added.alone_ns[job]),
            read_limit_gbps=float(added.read_limit_gbps[job]),
            pcie_part=_pcie_part(arrays, job) if added.read_limit_gbps[job] else 1.0,
        )
        for job in order
    )
    place = {job: number for number, job in enumerate(order)}
    return records, tuple(place[job] for job in path.tolist() if job in place)


def estimates_by_engine(
    estimates: Estimates, assigned: CheckedAssignment, view: LayerView
) -> dict[str, float]:
    """Time assigned to each engine by the profile that policies are shown, one expert after the other."""
    loads, there = view.loads.tolist(), view.placement.resident | view.arriving
    gpu = sum(
        share * max(float(estimates.gpu_ns[loads[expert]]), 0.0 if there[expert] else estimates.pcie_ns)
        for expert, share in assigned.gpu.listed()
    )
    cpu, ndp = (
        sum(share * float(times[loads[expert]]) for expert, share in parts.listed())
        for times, parts in ((estimates.cpu_ns, assigned.cpu), (estimates.ndp_ns, assigned.ndp))
    )
    return {"gpu": gpu, "cpu": cpu, "ndp": ndp}
