"""The outcome of a layer's jobs when they have ended: the critical path, the bottleneck, and records."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import same_types
from ndpsim.inference.events.path import find_path
from ndpsim.inference.events.state import RESOURCES, WHAT, Jobs
from ndpsim.inference.layers.jobs import JobList
from ndpsim.inference.layers.record import JobRecord
from ndpsim.policies.answers import CheckedAssignment
from ndpsim.policies.views import Estimates, LayerView

Ints = NDArray[np.int64]

_find_path = same_types(find_path)  # of every `JobList`


class CriticalPath(NamedTuple):
    """Jobs of the foreground, each of which started when the one before it ended, up to the last end.

    `waited_ns`: the time of each resource on it; NDP units count as one.
    """

    jobs: Ints
    waited_ns: dict[str, float]


def critical_path(jobs: JobList, began_ns: float) -> CriticalPath:
    """The critical path of jobs that have ended; only time from `began_ns` on counts."""
    path, resources = np.empty(len(jobs), np.int64), np.empty(len(RESOURCES), np.int64)
    times_ns = np.empty(len(RESOURCES))
    count, used = _find_path(jobs.arrays, jobs.added, began_ns, path, resources, times_ns)
    waited_ns = {RESOURCES[one]: float(times_ns[one]) for one in resources[:used].tolist()}
    return CriticalPath(path[:count], waited_ns)


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
