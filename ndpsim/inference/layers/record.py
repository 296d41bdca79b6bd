"""Events of a layer, as plain data: for logs, timelines, pictures and checks.

Times are in ns from the beginning of the run. Engines are "gpu", "cpu" and "ndp".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import same_types
from ndpsim.config import Hardware
from ndpsim.inference.events.path import find_path
from ndpsim.inference.events.state import RESOURCES, WHAT, Jobs
from ndpsim.inference.layers.jobs import JobList
from ndpsim.policies.answers import CheckedAssignment
from ndpsim.policies.interface import Assignment
from ndpsim.policies.views import Estimates, LayerPlacement, LayerView, Machine, Placement


def moves_over(target: str) -> str:
    """The resource of a migration to "gpu", or to other DIMMs."""
    return "pcie-down" if target == "gpu" else "links"


@dataclass(frozen=True, eq=False)
class RunRecord:
    """A run under a policy; one object for all layers of the run.

    Attributes:
        policy, parameters: its bare name, and all of its parameters as plain data.
        machine: as the policy sees it.
        hardware: its hardware.
        batch: sequences of a decode step.
        prompt_tokens: tokens of the prefill, over all sequences; 0: there is none.
        placement: a copy of the placement before the first layer.
    """

    policy: str
    parameters: Mapping[str, Any]
    machine: Machine
    hardware: Hardware
    batch: int
    prompt_tokens: int
    placement: Placement


@dataclass(frozen=True)
class JobRecord:
    """A finished job.

    Attributes:
        resource: "gpu", "cpu", "ndp 0" (DIMM 0) and so on, "pcie-down" (a copy of an expert, or the results,
            to the GPU), "pcie-up" (activations to the host).
        kind: "expert", "copy", "shared", "activations", "results", "attention" (attention and dense parts).
        expert: its expert; -1: none.
        share: share of the expert's intermediate columns; for a sharded expert, of all its DIMMs together.
        tokens: the tokens that it computed; 0 for transfers.
        start_ns, end_ns: its begin and its end.
        bytes: bytes of weights that it read, or bytes that it transferred.
        alone_ns: its time without other jobs.
        read_limit_gbps: maximum rate at which it reads weights from the host's memory; 0: it reads none.
        pcie_part: mean share of `read_limit_gbps` that PCIe allowed; 1 without a limit.
    """

    resource: str
    kind: str
    expert: int
    share: float
    tokens: int
    start_ns: float
    end_ns: float
    bytes: int
    alone_ns: float
    read_limit_gbps: float = 0.0
    pcie_part: float = 1.0


class _Moved:
    """A move of weights."""

    target: str

    @property
    def resource(self) -> str:
        """The resource that it uses."""
        return moves_over(self.target)


@dataclass(frozen=True)
class MigrationRecord(_Moved):
    """A migration that has ended.

    Attributes:
        kind, layer, expert: as in `Migration`.
        source, target: "gpu", "striped", "localized 3" (DIMM 3), "sharded:4 8" (DIMMs 8 to 11), "none".
        bytes: moved bytes (of the replica, if a replica was moved); for an eviction the freed bytes; 0 for a
            copy that stays ("keep"), whose bytes are those of the layer's job.
        decided_ns, start_ns, end_ns: the times of the decision, the begin and the end.
        hidden_ns: the part of the time from start to end in which no layer's experts ran.
    """

    kind: str
    layer: int
    expert: int
    source: str
    target: str
    bytes: int
    decided_ns: float
    start_ns: float
    end_ns: float
    hidden_ns: float

    @property
    def exposed_ns(self) -> float:
        """The part of its time in which a layer's experts ran."""
        return self.end_ns - self.start_ns - self.hidden_ns


@dataclass(frozen=True)
class MovingRecord(_Moved):
    """The part of a migration that ran beside a layer's experts.

    Attributes:
        layer, expert, source, target: as in `MigrationRecord`.
        share: share of the expert's weights that remained to move when this part began.
        start_ns, end_ns: the time in which it ran beside the layer.
        pcie_part: as in `JobRecord`.
    """

    layer: int
    expert: int
    source: str
    target: str
    share: float
    start_ns: float
    end_ns: float
    pcie_part: float


@dataclass(frozen=True, eq=False)
class LayerRecord:
    """A layer's experts, from the gate to the return of the last result.

    Attributes:
        phase: "prefill" or "decode"; in serving "mixed" or "decode".
        step, layer: as in `LayerView`.
        start_ns, end_ns: its begin and its end.
        window_ns: the time before `start_ns` in which attention and dense parts ran.
        loads: tokens by expert, int64 [expert].
        tokens: the tokens that the layer computes.
        placement: the placement of the layer when its tokens were routed.
        assignment: the policy's answer.
        estimates: the policy's estimate of each engine's time alone for its assigned experts.
        jobs: its jobs, in order of their starts.
        migrations: migrations that ended after the end of the previous layer.
        residents: experts of all layers in the GPU's memory when the layer ended.
        under_way: migrations that had not ended when the layer ended.
        bound_ns: lower bound for every assignment of these loads; None: in serving, and if bounds were not
            requested.
        bottleneck: the resource with the most time on the critical path.
        critical_path: indexes in `jobs`, from the first to the last job.
        moving: all migrations beside the layer, ended or not.
    """

    phase: str
    step: int
    layer: int
    start_ns: float
    end_ns: float
    window_ns: float
    loads: NDArray[np.int64]
    tokens: int
    placement: LayerPlacement
    assignment: Assignment
    estimates: Mapping[str, float]
    jobs: tuple[JobRecord, ...]
    migrations: tuple[MigrationRecord, ...]
    residents: int
    under_way: int
    bound_ns: float | None
    bottleneck: str
    critical_path: tuple[int, ...]
    moving: tuple[MovingRecord, ...] = ()


#: Called with the run and each of its layers, when the layer is done.
Observer = Callable[[RunRecord, LayerRecord], None]


# ---- The outcome of a layer's jobs when they have ended: the critical path, the bottleneck, and records


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
