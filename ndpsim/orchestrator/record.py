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
        hardware: that it is a part of.
        batch: sequences of a decode step.
        prompt_tokens: of the prefill, over all sequences; 0: there is none.
        placement: before the first layer, in arrays of its own.
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
    """A job that was done.

    Attributes:
        resource: where: "gpu", "cpu", "ndp 0" (DIMM 0) and so on, "pcie-down" (a copy of an expert, or the
            results, to the GPU), "pcie-up" (activations to the host).
        kind: "expert", "copy", "shared", "activations", "results", "attention" (attention and dense parts).
        expert: which; -1: none.
        share: of its intermediate columns; of a sharded expert, that of all its DIMMs together.
        tokens: that it computed; 0 for transfers.
        start_ns, end_ns: its begin and its end.
        bytes: of weights that it read, or of what it transferred.
        alone_ns: what it would take alone.
        read_limit_gbps: the fastest that it would read weights from the host's memory; 0: it reads none.
        pcie_part: of `read_limit_gbps`, what PCIe had left for it on average; 1 where it was never short.
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
    """Weights that move."""

    target: str

    @property
    def resource(self) -> str:
        """The resource that it uses."""
        return moves_over(self.target)


@dataclass(frozen=True)
class MigrationRecord(_Moved):
    """A migration that has ended, or was evicted at once.

    Attributes:
        kind, layer, expert: as in `Migration`.
        source, target: "gpu", "striped", "localized 3" (DIMM 3), "sharded:4 8" (DIMMs 8 to 11), "none".
        bytes: that were moved, of a replica where one was; of an eviction, that were given up; 0 of a copy
            that stays ("keep"), as the layer's job has them.
        decided_ns, start_ns, end_ns: the times of the decision, the begin and the end.
        hidden_ns: of the time from start to end, when no layer's experts were under way.
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
        """The part of its time in which a layer's experts were under way."""
        return self.end_ns - self.start_ns - self.hidden_ns


@dataclass(frozen=True)
class MovingRecord(_Moved):
    """The part of a migration that ran while a layer's experts were under way.

    Attributes:
        layer, expert, source, target: as in `MigrationRecord`.
        share: of the expert's weights that was left to move when it began beside the layer.
        start_ns, end_ns: from when it was beside the layer, until it ended, or the layer.
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
        phase: "prefill" or "decode"; of serving "mixed" or "decode".
        step, layer: as in `LayerView`.
        start_ns, end_ns: its begin and its end.
        window_ns: the time before `start_ns` in which attention and dense parts ran.
        loads: tokens by expert, int64 [expert].
        tokens: the tokens that the layer computes.
        placement: the placement of the layer when its tokens were routed.
        assignment: the policy's answer.
        estimates: the policy's view of each engine's time alone, by engine, over what it assigned.
        jobs: in the order of their starts.
        migrations: those that ended since the last layer ended.
        residents: experts of all layers in the GPU's memory when the layer ended.
        under_way: migrations not done when the layer ended.
        bound_ns: no assignment of these loads is faster; None: in serving.
        bottleneck: the resource with the most time on the critical path.
        critical_path: places in `jobs`, from the first to the last.
        moving: migrations beside the layer, also those that did not end.
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


#: Called with each layer of a run when it is done, after what is run.
Observer = Callable[[RunRecord, LayerRecord], None]
