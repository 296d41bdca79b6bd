"""What a policy sees, and what it answers.

`place` is called once; then, layer by layer, `assign` when the gate has spoken and `background` when the
experts of the layer are done. Views are frozen: arrays cannot be written. Times are estimates in ns. No view
has a clock, and none has loads of what has not been routed yet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from ndpsim.moe import MoeShape
from ndpsim.routing import Routing

__all__ = [
    "STRIPED",
    "Assignment",
    "BackgroundView",
    "Estimates",
    "LayerPlacement",
    "LayerView",
    "Machine",
    "Migration",
    "OfflineView",
    "Part",
    "Placement",
    "Policy",
    "PolicyParameters",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Dimms = NDArray[np.int16]
Flags = NDArray[np.bool_]

#: `dimm` of an expert that lies striped over all DIMMs.
STRIPED = -1


@dataclass(frozen=True)
class Machine:
    """The hardware and the model, as far as a policy knows them.

    Attributes:
        model: what is run.
        layers: the model's numbers of the layers with experts that are run, in order.
        expert_bytes: of a routed expert's weights.
        dimms: DIMMs of the machine; 0: none has an NDP unit.
        channel: host channel of each DIMM.
        gpu_experts: experts that the GPU's memory has room for, over all layers of the run.
        expert_buffers: further experts that may be on their way to the GPU, or be computed behind it.
    """

    model: MoeShape
    layers: tuple[int, ...]
    expert_bytes: int
    dimms: int
    channel: tuple[int, ...]
    gpu_experts: int
    expert_buffers: int


@dataclass(frozen=True, eq=False)
class Estimates:
    """What a policy believes that things take alone, in ns: the profile that its system would have made.

    Arrays have one entry for each number of tokens, from 0 to `most_tokens`; those of NDP are interpolated
    between simulated numbers of tokens.

    Attributes:
        gpu_ns, cpu_ns: computing an expert, without its weights' way there.
        ndp_ns: a localized expert on the DIMM where it lies, its weights read there.
        ndp_error: largest relative error of the interpolation of `ndp_ns`, measured between its points.
        pcie_ns: an expert's weights over PCIe to the GPU.
        striped_read_ns, localized_read_ns: the host reads an expert's weights from all channels, from one.
        to_striped_ns, to_localized_ns, rebalance_ns: a localized expert becomes striped, a striped one
            localized, a localized one moves to another DIMM.
        window_ns: between two layers' experts, when the GPU computes attention and dense parts.
        shared_ns: the shared experts of a layer on the GPU.
        token_ns: a token's vector over PCIe, one way.
    """

    gpu_ns: Floats
    cpu_ns: Floats
    ndp_ns: Floats
    ndp_error: float
    pcie_ns: float
    striped_read_ns: float
    localized_read_ns: float
    to_striped_ns: float
    to_localized_ns: float
    rebalance_ns: float
    window_ns: float
    shared_ns: float
    token_ns: float

    @property
    def most_tokens(self) -> int:
        """The largest number of tokens that arrays have an entry for."""
        return len(self.gpu_ns) - 1


@dataclass(frozen=True, eq=False)
class LayerPlacement:
    """Where the experts of one layer lie: arrays [expert].

    Attributes:
        dimm: the DIMM, the first one of a sharded expert, or `STRIPED`.
        shards: DIMMs over which it lies, from `dimm` on: 1 for a localized expert; 1 for a striped one, too.
        resident: a copy is in the GPU's memory.
    """

    dimm: Dimms
    shards: Dimms
    resident: Flags


@dataclass(frozen=True, eq=False)
class Placement:
    """Where all experts lie: arrays [layer, expert], rows as in `Machine.layers`; see `LayerPlacement`."""

    dimm: Dimms
    shards: Dimms
    resident: Flags

    @classmethod
    def striped(cls, layers: int, experts: int) -> Placement:
        """Every expert over all DIMMs, none with the GPU; arrays can be written."""
        shape = layers, experts
        return cls(np.full(shape, STRIPED, np.int16), np.ones(shape, np.int16), np.zeros(shape, np.bool_))

    def of_layer(self, row: int) -> LayerPlacement:
        """The placement of one layer."""
        return LayerPlacement(self.dimm[row], self.shards[row], self.resident[row])


@dataclass(frozen=True, eq=False)
class OfflineView:
    """What `place` sees: an offline trace of the same kind as the run's, never the run's own."""

    machine: Machine
    estimates: Estimates
    trace: Routing
    batch: int


@dataclass(frozen=True, eq=False)
class LayerView:
    """What `assign` sees.

    Attributes:
        phase: "prefill" or "decode".
        step: decode step, from 0; 0 in the prefill.
        layer: the model's number of the layer.
        loads: tokens by expert, int64 [expert].
        tokens: of the layer.
        placement: of this layer.
        arriving: flags [expert]: on its way to the GPU's memory.
    """

    phase: str
    step: int
    layer: int
    loads: Ints
    tokens: int
    placement: LayerPlacement
    arriving: Flags


@dataclass(frozen=True, eq=False)
class BackgroundView:
    """What `background` sees when the experts of a layer are done.

    Attributes:
        phase, step: of the layer that is done.
        layer: the layer that is done.
        next_layer: the layer that comes next; after the last one, the first.
        loads: of the layer that is done, int64 [expert].
        placement: of all layers, as it is now.
        moving: flags [layer, expert]: a migration of it has been decided and is not done.
        gpu_free: experts that the GPU's memory has room for beside residents and those on their way.
        next_loads: of the next layer, for a policy that `sees_the_future`; None for all others.
    """

    phase: str
    step: int
    layer: int
    next_layer: int
    loads: Ints
    placement: Placement
    moving: Flags
    gpu_free: int
    next_loads: Ints | None = None


@dataclass(frozen=True)
class Part:
    """A share of an expert's intermediate columns; the shares of an expert add up to 1."""

    expert: int
    share: float = 1.0


@dataclass(frozen=True)
class Assignment:
    """Which engine computes which expert, in which order.

    Attributes:
        gpu, cpu, ndp: experts, or parts of them, in the order in which the engine takes them. Those of `ndp`
            run on the DIMMs where they lie, each DIMM in this order.
        estimated_ns: what the policy believes that the layer takes; None: it does not say.
        details: further numbers for the log, such as the estimate before a refinement.
    """

    gpu: Sequence[int | Part] = ()
    cpu: Sequence[int | Part] = ()
    ndp: Sequence[int | Part] = ()
    estimated_ns: float | None = None
    details: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Migration:
    """An expert is to move.

    Attributes:
        kind: "prefetch" or "fetch" (a copy into the GPU's memory), "evict" (the copy is given up),
            "relayout" (between striped and localized) or "rebalance" (to another DIMM).
        layer, expert: which.
        to: the DIMM of a relayout or a rebalance, or `STRIPED`; of no meaning for the others.
        estimated_ns: what the policy believes that it takes.
    """

    kind: str
    layer: int
    expert: int
    to: int = STRIPED
    estimated_ns: float = 0.0


class PolicyParameters(BaseModel):
    """Parameters of a policy: typed fields with defaults, limits, and a description that cites its source."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Policy(ABC):
    """A policy under way, for one run.

    A class says its `name`, what it is (`title`, `paper`), and what can be set (`Parameters`).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    Parameters: ClassVar[type[PolicyParameters]] = PolicyParameters
    #: `background` is shown the loads of the next layer, which no real system knows.
    sees_the_future: ClassVar[bool] = False

    def __init__(self, machine: Machine, estimates: Estimates, parameters: Any) -> None:
        self.machine = machine
        self.estimates = estimates
        self.parameters = parameters
        self.row = {layer: row for row, layer in enumerate(machine.layers)}

    def place(self, view: OfflineView) -> Placement:
        """Where experts lie before the first step. All striped, unless a policy says otherwise."""
        return Placement.striped(len(self.machine.layers), self.machine.model.routed_experts)

    @abstractmethod
    def assign(self, view: LayerView) -> Assignment:
        """Every expert with tokens, and no other, to engines."""

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """What is to move, the most urgent first. Nothing, unless a policy says otherwise."""
        return ()

    def prediction(self) -> Mapping[str, Any] | None:
        """How often its predictions were right, and what was counted; None: it predicts nothing."""
        return None
