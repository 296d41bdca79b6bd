"""Events of a layer, as plain data: for logs, timelines, pictures and checks.

Times are in ns from the beginning of the run. Engines are "gpu", "cpu" and "ndp".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware
from ndpsim.policies.interface import Assignment
from ndpsim.policies.views import LayerPlacement, Machine, Placement


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
