"""MoE-Lightning: the GPU computes all experts; a fixed part of the weights streams through two buffers.

Cao et al., "MoE-Lightning: High-Throughput MoE Inference on Memory-Constrained GPUs", ASPLOS 2025; as a
baseline: DALI, section 6.1, "searches the optimal model deployment strategy before inference based on its
proposed performance analysis model"; a layer takes the longest of link, CPU and GPU. Released code:
caoshiyi/FastMoE, caoshiyi/artifacts, commit a8a8d90. Its attention on the CPU and its micro-batches are not
modelled: attention is the same for all policies. Weights of the next layer stream beside this layer's
experts, as in the code's model of a layer's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from ndpsim.policies.interface import Assignment, Migration, PolicyParameters
from ndpsim.policies.offline import descending, hottest_of_each, mean_loads
from ndpsim.policies.offloading import Offloading, cache_slots, places, places_in
from ndpsim.policies.views import BackgroundView, Flags, Floats, LayerView, OfflineView, Placement


class MoeLightningParameters(PolicyParameters):
    """Parameters of MoE-Lightning."""

    variant: Literal["stream", "placement"] = "stream"
    """stream: a fixed part of each layer's weights is in the GPU's memory, all others are streamed through
    two buffers of a layer, whether tokens choose them or not; the CPU computes no expert ([code]); placement:
    each expert has an engine, GPU or CPU, found before the run (as DALI, section 6.2, describes this
    baseline)"""

    gpu_share: float = Field(1.0, ge=0, le=1)
    """share of each layer's experts in the GPU's memory, if it fits; 1: as many as fit, so that all
    policies use the same memory; DALI, section 6.1, has what its cache takes"""


class MoeLightning(Offloading[MoeLightningParameters]):
    """MoE-Lightning: GPU only, a fixed part of every layer's weights streamed.

    All weights of a layer stream to the GPU, or each expert has a fixed engine.
    """

    name = "moe-lightning"
    paper = "Cao et al., ASPLOS 2025; DALI, section 6.1"
    mixed_steps = "All rules, by all tokens of the step."
    moments = ("gate",)

    def setup(self) -> None:
        """Expected shares of experts and earlier searches, empty before `place`."""
        self.streams = self.parameters.variant == "stream"
        shape = self.machine.shape
        self.resident: Flags = np.zeros(shape, np.bool_)
        #: Expected share of each expert in the choices of a layer.
        self.shares: Floats = np.zeros(shape)
        self.searched: dict[tuple[int, int], Flags] = {}

    def place(self, view: OfflineView) -> Placement:
        """All experts are striped; the hottest experts of each layer are also in the GPU's memory."""
        loads = mean_loads(view)
        sums, model = loads.sum(axis=1, keepdims=True), self.machine.model
        if model.zero_experts:  # which have their share of a token's choices
            sums[:] = view.batch * model.experts_per_token
        self.shares = loads / np.maximum(sums, 1e-9)
        self.resident = hottest_of_each(loads, self._slots())
        return self.residents(self.resident)

    def _slots(self) -> list[int]:
        """Experts of each layer in the GPU's memory; streaming needs two buffers of a layer's others."""
        slots = cache_slots(self.machine, self.parameters.gpu_share)
        if not self.streams:
            return slots
        layers, experts = len(slots), self.machine.model.routed_experts
        fits = [
            count
            for count in range(min(slots) + 1)
            if count * layers + min(2, layers) * (experts - count) <= self.machine.gpu_experts
        ]
        return [max(fits, default=0)] * layers

    def assign(self, view: LayerView) -> Assignment:
        """Each expert on the engine of the search; with streaming, the layer waits for all of its weights."""
        order, there = self.by_arrival(view), view.placement.resident | view.arriving
        on_gpu = (there | self._on_gpu(self.row[view.layer], view.tokens))[order]
        gpu, cpu = order[on_gpu], order[~on_gpu]
        return Assignment(
            gpu=gpu.tolist(),
            cpu=cpu.tolist(),
            estimated_ns=max(self.times_ns(view, gpu, cpu)),
            awaits=np.flatnonzero(view.arriving).tolist() if self.streams else (),
        )

    def _on_gpu(self, row: int, tokens: int) -> Flags:
        """Flags [expert] of experts that the GPU computes with this number of tokens in the layer."""
        if self.streams:
            return np.ones(self.shares.shape[1], np.bool_)
        if (row, tokens) not in self.searched:
            self.searched[row, tokens] = self._search(row, tokens)
        return self.searched[row, tokens]

    def _search(self, row: int, tokens: int) -> Flags:
        """The experts with most expected tokens, as many as give the minimum of the longest of three sums.

        An expert with less than one expected token counts with that part of a token's time.
        """
        estimates, resident = self.estimates, self.resident[row]
        if not self.machine.expert_buffers:
            return np.asarray(resident)
        points = np.arange(estimates.most_tokens + 1)
        loads = self.shares[row] * tokens * self.machine.model.experts_per_token
        gpu_ns = np.interp(loads, points, estimates.gpu_ns)
        cpu_ns = np.interp(loads, points, estimates.on_cpu_ns)
        missing = descending(loads, np.flatnonzero(~resident))
        link = np.append(0.0, np.cumsum(np.minimum(loads[missing], 1) * self.copy_ns))
        gpu = estimates.shared_ns + gpu_ns[resident].sum() + np.append(0.0, np.cumsum(gpu_ns[missing]))
        cpu = np.append(np.cumsum(cpu_ns[missing][::-1])[::-1], 0.0)
        count = int(np.argmin(np.maximum.reduce([link, gpu, cpu])))
        chosen = np.array(resident)
        chosen[missing[:count]] = True
        return chosen

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """Stream the next layer's other experts beside this layer, if weights are streamed."""
        if not self.streams:
            return ()
        coming = self.row[view.next_layer]
        there, moving = view.placement.resident, view.moving
        used = there & ~self.resident & ~moving
        used[[self.row[view.layer], coming]] = False
        done = self.moves("evict", places(used))
        missing = descending(self.shares[coming], np.flatnonzero(~there[coming] & ~moving[coming]))
        room = max(view.gpu_free + len(done), 0)
        return done + self.moves("prefetch", places_in(coming, missing[:room]))


POLICY = MoeLightning
