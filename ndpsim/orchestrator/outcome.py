"""The outcome of a layer's jobs when they have ended: the critical path, the bottleneck, and records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ndpsim.events.state import Jobs
from ndpsim.orchestrator.jobs import Label
from ndpsim.orchestrator.record import JobRecord
from ndpsim.policies.answers import CheckedAssignment
from ndpsim.policies.views import Estimates, LayerView


def critical_path(jobs: Jobs) -> list[int]:
    """Jobs of the foreground, each of which started when the one before it ended, up to the last end."""
    end_ns = np.where(jobs.background == 0, jobs.end_ns, -1.0)
    path, causes = [int(np.argmax(end_ns))], jobs.cause.tolist()
    while (cause := causes[path[-1]]) >= 0:
        path.append(cause)
    return path[::-1]


def time_by_resource(
    path: Sequence[int], jobs: Jobs, servers: Sequence[str], label: Callable[[int], Label], began_ns: float
) -> dict[str, float]:
    """The time of each resource on a path, in ns; NDP units count as one.

    servers: names of the exclusive resources. label: of a job, for those that take none.
    """
    times: dict[str, float] = {}
    on_path = np.array(path)
    each_ns = jobs.end_ns[on_path] - np.maximum(jobs.start_ns[on_path], began_ns)
    for job, server, ns in zip(path, jobs.server[on_path].tolist(), each_ns.tolist(), strict=True):
        resource = (servers[server] if server >= 0 else label(job).resource).partition(" ")[0]
        times[resource] = times.get(resource, 0.0) + ns
    return times


def _pcie_part(jobs: Jobs, job: int) -> float:
    """The share of PCIe that a transfer could have had on average, of what it wanted."""
    time_ns = float(jobs.end_ns[job] - jobs.start_ns[job])
    return min(float(jobs.allowed_ns[job]) / time_ns, 1.0) if time_ns > 0 else 1.0


def job_records(
    labels: Sequence[Label], jobs: Jobs, own: range, path: Sequence[int]
) -> tuple[tuple[JobRecord, ...], tuple[int, ...]]:
    """Records of a layer's own jobs in the order of their starts, and the places of the critical path there.

    own: the others are migrations and have records of their own.
    """
    start_ns, end_ns = jobs.start_ns.tolist(), jobs.end_ns.tolist()
    order = sorted(own, key=lambda job: (start_ns[job], job))
    records = tuple(
        JobRecord(
            resource=label.resource,
            kind=label.kind,
            expert=label.expert,
            share=label.share,
            tokens=label.tokens,
            start_ns=start_ns[job],
            end_ns=end_ns[job],
            bytes=label.bytes,
            alone_ns=label.alone_ns,
            read_limit_gbps=label.read_limit_gbps,
            pcie_part=_pcie_part(jobs, job) if label.read_limit_gbps else 1.0,
        )
        for job in order
        for label in (labels[job],)
    )
    place = {job: number for number, job in enumerate(order)}
    return records, tuple(place[job] for job in path if job in place)


def estimates_by_engine(
    estimates: Estimates, assigned: CheckedAssignment, view: LayerView
) -> dict[str, float]:
    """Time assigned to each engine by the profile that policies are shown, one expert after the other."""
    loads, there = view.loads.tolist(), view.placement.resident | view.arriving
    gpu = sum(
        share * max(float(estimates.gpu_ns[loads[expert]]), 0.0 if there[expert] else estimates.pcie_ns)
        for expert, share in assigned.gpu
    )
    cpu, ndp = (
        sum(share * float(times[loads[expert]]) for expert, share in parts)
        for times, parts in ((estimates.cpu_ns, assigned.cpu), (estimates.ndp_ns, assigned.ndp))
    )
    return {"gpu": gpu, "cpu": cpu, "ndp": ndp}
