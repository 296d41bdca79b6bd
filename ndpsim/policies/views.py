"""Views of a policy: its machine, its estimates, the location of every expert, and the routing.

Views are frozen: arrays cannot be written. Times are estimates in ns. No view has a clock, and none has loads
of what has not been routed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.dimm.layout import ExpertFormat
from ndpsim.workload.models import MoeShape
from ndpsim.workload.routing import Routing

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Shorts = NDArray[np.int16]
Flags = NDArray[np.bool_]
Scores = NDArray[np.float32]


def _no_ids() -> Shorts:
    return np.zeros((0, 0), np.int16)


def _no_flags() -> Flags:
    return np.zeros(0, np.bool_)


def _not_simulated(dimms: int) -> Any:
    raise NotImplementedError(f"no times of an expert over {dimms} DIMMs")


def _nothing(*_: float) -> float:
    return 0.0


#: `dimm` of an expert that is striped over all DIMMs.
STRIPED = -1


@dataclass(frozen=True)
class Machine:
    """The hardware and the model, as far as a policy knows them.

    Attributes:
        model: the model that runs.
        layers: the model's numbers of the simulated layers with experts, in order.
        expert_bytes: size of a routed expert's weights.
        dimms: DIMMs of the machine; 0: none has an NDP unit.
        channel: host channel of each DIMM.
        gpu_experts: experts that fit the GPU's memory, over all layers of the run.
        expert_buffers: further experts that may be copied to the GPU at once, or wait there to be computed.
        name: the name of the hardware.
        has_cpu: the host's CPU computes experts.
        has_links: experts can move between DIMMs.
        bits: bits of a weight, except in replicas; for a weight file with fractions of bits the nearest whole
            number.
        format: format of a routed expert's weights in a weight file; None: all have `bits` bits.
        attention: "gpu", or "ndp": devices with units in their banks compute that of decoded tokens, while
            the GPU and PCIe are free.
    """

    model: MoeShape
    layers: tuple[int, ...]
    expert_bytes: int
    dimms: int
    channel: tuple[int, ...]
    gpu_experts: int
    expert_buffers: int
    name: str = "machine"
    has_cpu: bool = True
    has_links: bool = True
    bits: int = 16
    format: ExpertFormat | None = None
    attention: str = "gpu"

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and experts of a layer: the shape of arrays [layer, expert]."""
        return len(self.layers), self.model.routed_experts

    @property
    def weights(self) -> int | ExpertFormat:
        """Bits or format of a routed expert's weights."""
        return self.bits if self.format is None else self.format

    @property
    def mean_bits(self) -> float:
        """Bits of a weight on average, scales included."""
        return self.bits if self.format is None else 8 * self.expert_bytes / self.model.expert.weights


@dataclass(frozen=True, eq=False)
class Estimates:
    """Times in ns that a policy expects, each for work that runs alone: the profile of a real system.

    Arrays have one entry for each number of tokens, from 0 to `most_tokens`; arrays of NDP are interpolated
    between simulated numbers of tokens.

    Attributes:
        gpu_ns, cpu_ns: computing an expert, without the transfer of its weights.
        ndp_ns: a localized expert on its DIMM, with the reading of its weights.
        ndp_error: largest relative error of the interpolation of `ndp_ns`, measured between its points.
        pcie_ns: an expert's weights over PCIe to the GPU.
        striped_read_ns, localized_read_ns: time in which the host reads an expert's weights from all
            channels, and from one channel.
        to_striped_ns, to_localized_ns, rebalance_ns: moves of an expert: from localized to striped, from
            striped to localized, and from one DIMM to another.
        window_ns: between two layers' experts: attention and dense parts on the GPU, or the transfer of the
            KV cache from the host's memory and back, whichever is longer; the mean if layers have different
            attention.
        banks_ns: the part of `window_ns` in which devices with units in their banks compute attention.
        cache_ns: the part of `window_ns` in which PCIe to the GPU or the host's channels carry the KV cache.
        shared_ns: the shared experts of a layer on the GPU, and the overhead of a fused call of the others.
        call_ns: the part of `shared_ns` that is this overhead; a layer without such experts does not have it.
        hand_over_ns: time of the CPU before its first expert of a layer.
        token_ns: time of one token's vector over PCIe in one direction, as one of many vectors.
        vector_ns: time of one token's vector over PCIe in one direction, including the link's latency.
        sharded_ns: time of an expert sharded over a number of DIMMs, as `ndp_ns`. Simulated when called.
        gpu_part_ns, cpu_part_ns, pcie_part_ns: overhead of a part of an expert beyond its share of the whole:
            twice the time of a half, minus the time of the whole, at one token.
        ndp_part_ns: the same overhead on NDP units, by a number of DIMMs.
        sharded_read_ns: time in which the host reads an expert sharded over a number of DIMMs.
        lost_ns: arguments: a number of DIMMs, the time of such a read, and the time of another read beside it
            (inf: none). The additional time of the NDP unit of each of these DIMMs because of the read, by
            the tokens of the expert that the unit computes meanwhile.
        read_delay_ns: by a number of DIMMs: the additional time of host reads on each channel while units
            compute an expert sharded over them, by its tokens: vectors have precedence on the bus.
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
    cache_ns: float = 0.0
    banks_ns: float = 0.0
    vector_ns: float = 0.0
    sharded_ns: Callable[[int], Floats] = _not_simulated
    gpu_part_ns: float = 0.0
    cpu_part_ns: float = 0.0
    pcie_part_ns: float = 0.0
    ndp_part_ns: Callable[[int], float] = _not_simulated
    sharded_read_ns: Callable[[int], float] = _not_simulated
    lost_ns: Callable[[int, float, float], Floats | float] = _nothing
    read_delay_ns: Callable[[int], Floats | float] = _nothing
    call_ns: float = 0.0
    hand_over_ns: float = 0.0

    @property
    def copy_ns(self) -> float:
        """Copy of a striped expert to the GPU: the longer of PCIe and the host's reading."""
        return max(self.pcie_ns, self.striped_read_ns)

    @property
    def copy_window_ns(self) -> float:
        """The part of a window in which copies of experts do not wait for the KV cache."""
        return max(0.0, self.window_ns - self.cache_ns)

    @cached_property
    def on_cpu_ns(self) -> Floats:
        """A striped expert on the CPU, by tokens: the longer of computing and reading it."""
        times = np.maximum(self.cpu_ns, self.striped_read_ns)
        times[:1] = 0.0
        times.flags.writeable = False
        return times

    @property
    def most_tokens(self) -> int:
        """The largest number of tokens with an entry in the arrays."""
        return len(self.gpu_ns) - 1


@dataclass(frozen=True, eq=False)
class LayerPlacement:
    """Location of the experts of one layer: arrays [expert].

    Attributes:
        dimm: the DIMM, the first one of a sharded expert, or `STRIPED`.
        shards: DIMMs over which it is sharded, from `dimm` on; 1 for a localized and for a striped expert.
        resident: a copy is in the GPU's memory.
    """

    dimm: Shorts
    shards: Shorts
    resident: Flags


@dataclass(frozen=True, eq=False)
class Placement:
    """Location of all experts: arrays [layer, expert], rows as in `Machine.layers`; see `LayerPlacement`.

    `replicas`: bits of a weight of further copies of every expert, in the same locations.
    """

    dimm: Shorts
    shards: Shorts
    resident: Flags
    replicas: tuple[int, ...] = ()

    @classmethod
    def striped(cls, layers: int, experts: int) -> Placement:
        """All experts are striped, and none is in the GPU's memory; arrays can be written."""
        shape = layers, experts
        return cls(np.full(shape, STRIPED, np.int16), np.ones(shape, np.int16), np.zeros(shape, np.bool_))

    def of_layer(self, row: int) -> LayerPlacement:
        """The placement of one layer."""
        return LayerPlacement(self.dimm[row], self.shards[row], self.resident[row])


@dataclass(frozen=True, eq=False)
class OfflineView:
    """The run, as an argument of `place`.

    Attributes:
        trace: an offline trace of the same kind as the run's, never the run's own.
        batch: sequences that the run decodes together.
        prefill_tokens: tokens of the run's prefill; 0: it has none.
    """

    machine: Machine
    estimates: Estimates
    trace: Routing
    batch: int
    prefill_tokens: int = 0


@dataclass(frozen=True, eq=False)
class LayerView:
    """The layer, as an argument of `assign`.

    Attributes:
        phase: "prefill", "decode", or "mixed": some of its tokens are of prompts, others are decoded.
        step: decode step, from 0; 0 in the prefill.
        layer: the model's number of the layer.
        loads: tokens by expert, int64 [expert].
        tokens: tokens of the layer.
        placement: the placement of this layer.
        arriving: flags [expert]: on its way to the GPU's memory.
        ids: the experts that each token chose, int16 [token, k]; those from `len(loads)` on have no weights
            (`MoeShape.zero_experts`).
        scores: the router's weights of these choices, float32 [token, k]; None: the trace has none.
        prompt_tokens: number of tokens of prompts, which are the last tokens.
    """

    phase: str
    step: int
    layer: int
    loads: Ints
    tokens: int
    placement: LayerPlacement
    arriving: Flags
    ids: Shorts = field(default_factory=_no_ids)
    scores: Scores | None = None
    prompt_tokens: int = 0


@dataclass(frozen=True, eq=False)
class BackgroundView:
    """The layer as `background` sees it: after routing, when its experts are assigned, or when they are done.

    Attributes:
        phase, step: the phase and the decode step of the layer.
        layer: the model's number of the layer.
        next_layer: the next layer; after the last one, the first.
        loads: tokens by expert in the layer, int64 [expert].
        placement: the placement of all layers, as it is now.
        moving: flags [layer, expert]: a migration of the expert has been decided and has not ended.
        gpu_free: free space in the GPU's memory, in experts, besides residents and experts that are being
            copied.
        ids, scores: as in `LayerView`.
        copied: flags [expert]: the finished layer has copied the whole expert to the GPU, where it can stay;
            at the gate no flag is set.
        next_loads: loads of the next layer, for a policy that `sees_the_future`; None for all others, and
            where the next step is not known yet.
        predicted: experts of the next layer, predicted by the policy's `stated_predictor`, experts with most
            tokens first; empty without a predictor, and at the later of two moments.
        predicted_above: for each predicted expert, the share of a token's scores that rank above it, minimum
            over tokens; for a wrong prediction, the share of the expert that it replaces; empty without
            `ranks`.
        moment: one of the policy's `moments`.
        in_use: flags [expert]: after routing, experts that the GPU computes in this layer; they stay until it
            is done.
    """

    phase: str
    step: int
    layer: int
    next_layer: int
    loads: Ints
    placement: Placement
    moving: Flags
    gpu_free: int
    ids: Shorts = field(default_factory=_no_ids)
    scores: Scores | None = None
    copied: Flags = field(default_factory=_no_flags)
    next_loads: Ints | None = None
    predicted: tuple[int, ...] = ()
    predicted_above: tuple[float, ...] = ()
    moment: str = "end"
    in_use: Flags = field(default_factory=_no_flags)
