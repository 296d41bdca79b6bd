"""Enhanced KTransformers: experts on the CPU with AMX, hot ones prefetched to or loaded by the GPU.

TriMoE, section 5.1.2: "we added prefetching and on-demand loading of hot experts on top of its processing of
all non-shared experts using AMX-CPU, making it the strongest baseline under this architecture". Below it:
Chen et al., "KTransformers: Unleashing the Full Potential of CPU/GPU Hybrid Inference for MoE Models", SOSP
2025; released code kvcache-ai/ktransformers, kt-kernel/python/experts_base.py. Details that TriMoE does not
give are from HybriMoE (PKU-SEC-Lab/HybriMoE), which adds the same two features to KTransformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from ndpsim.policies.interface import Assignment, Migration, PolicyParameters
from ndpsim.policies.offline import descending, hottest, mean_loads
from ndpsim.policies.offloading import Offloading, places_in
from ndpsim.policies.views import BackgroundView, Floats, LayerView, OfflineView, Placement


class KtransformersParameters(PolicyParameters):
    """Parameters of Enhanced KTransformers."""

    hot: Literal["balanced", "cheaper"] = "balanced"
    """which missing experts the GPU loads on demand. balanced (the default, the stronger): of those with most
    tokens as many as end the layer soonest, as HybriMoE's GPU takes from the front of the sorted list and its
    CPU from the back; cheaper: each whose loading and computing on the GPU (TriMoE, eq. 2) takes less than
    the CPU (eq. 3)"""

    residents: Literal["hot", "none"] = "hot"
    """what the GPU's memory holds at first. hot: the experts with most tokens in the offline trace over all
    layers (KTransformers' strategy 'frequency'); none: prefetched experts fill it"""

    prefetch: int | None = Field(None, ge=0, le=1024)
    """experts prefetched a layer at most; none: as many as PCIe carries in the window between layers, at
    least 1 (assumption: TriMoE gives no number)"""

    memory: float = Field(0.5, ge=0, lt=1)
    """weight of the past in the moving average of an expert's tokens that prefetches go by (HybriMoE's score:
    S = 0.5 x new + 0.5 x S)"""


class EnhancedKTransformers(Offloading[KtransformersParameters]):
    """Enhanced KTransformers: experts on the CPU with AMX, hot ones on the GPU.

    The CPU computes experts, the GPU those that are in its memory and as many more as balance the two.
    """

    name = "enhanced-ktransformers"
    paper = "TriMoE, section 5.1.2; Chen et al., SOSP 2025"
    mixed_steps = "All rules, by all tokens of the step."

    def setup(self) -> None:
        """Choose the number of prefetched experts, and begin the moving average of tokens."""
        in_window, wanted = max(1, int(self.estimates.window_ns // self.copy_ns)), self.parameters.prefetch
        self.prefetch = in_window if wanted is None else wanted
        self.scores: Floats = np.zeros(self.machine.shape)

    def place(self, view: OfflineView) -> Placement:
        """All experts are striped, which the host reads fastest; hot experts are also in the GPU's memory."""
        self.scores = mean_loads(view)
        room = self.machine.gpu_experts if self.parameters.residents == "hot" else 0
        return self.residents(hottest(self.scores, room))

    def assign(self, view: LayerView) -> Assignment:
        """Experts in the GPU's memory and hot missing ones go to the GPU, the rest to the CPU."""
        order, there = self.by_arrival(view), view.placement.resident | view.arriving
        here, missing = order[there[order]], order[~there[order]]
        gpu_ns, on_cpu_ns = self.estimates.gpu_ns, self.estimates.on_cpu_ns
        loads, by_cost = view.loads[missing], self.parameters.hot == "cheaper"
        cheaper = np.maximum(gpu_ns[loads], self.copy_ns) < on_cpu_ns[loads]
        if by_cost:
            missing = missing[np.argsort(~cheaper, kind="stable")]
            loads = view.loads[missing]
        begun = self.estimates.shared_ns + float(gpu_ns[view.loads[here]].sum())
        ends = self._ends(begun, gpu_ns[loads], on_cpu_ns[loads])
        taken = int(cheaper.sum() if by_cost else np.argmin(ends))
        return Assignment(
            gpu=[*here.tolist(), *missing[:taken].tolist()],
            cpu=missing[taken:].tolist(),
            estimated_ns=float(ends[taken]),
        )

    def _ends(self, begun: float, on_gpu: Floats, on_cpu: Floats) -> Floats:
        """The end of the layer if the GPU loads the first 0, 1, ... of the missing experts.

        Copies run beside computation, and the last expert is computed after its arrival. The host's memory is
        read once for each missing expert, by the GPU's copies or by the CPU.
        """
        count = np.arange(len(on_gpu) + 1)
        computing = begun + np.append(0.0, np.cumsum(on_gpu))
        copying = count * self.copy_ns + np.append(0.0, on_gpu)
        cpu = on_cpu.sum() - np.append(0.0, np.cumsum(on_cpu))
        reading = len(on_gpu) * self.estimates.striped_read_ns
        return np.asarray(np.maximum.reduce([computing, copying, cpu, np.full(len(count), reading)]))

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """Prefetch the experts of the next layer that are predicted to be hot.

        Without free space an expert replaces one of that layer with a lower score (HybriMoE evicts the lowest
        of a layer).
        """
        memory = self.parameters.memory
        row = self.row[view.layer]
        self.scores[row] = memory * self.scores[row] + (1 - memory) * view.loads
        row = self.row[view.next_layer]
        scores, resident = self.scores[row], view.placement.resident[row]
        still = descending(scores, np.flatnonzero(~view.moving[row]))
        wanted = places_in(row, still[~resident[still] & (scores[still] > 0)])
        victims = places_in(row, still[resident[still]][::-1])
        return self.replacing("prefetch", wanted[: self.prefetch], victims, view.gpu_free, self.scores)


POLICY = EnhancedKTransformers
