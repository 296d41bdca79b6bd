"""KTransformers: the GPU computes the experts in its memory, the CPU the others meanwhile.

Chen et al., "KTransformers: Unleashing the Full Potential of CPU/GPU Hybrid Inference for MoE Models", SOSP
2025; kvcache-ai/ktransformers, commit 95009ea: kt-kernel/python/experts_base.py (CPU work is submitted before
and joined after the GPU's), doc/en/kt-kernel/experts-sched-Tutorial.md (which experts). As a baseline of DALI
(sections 2.2 and 6.1) it computes each layer on one device: strategy=front-loading. Deferred experts, off by
default in the code, are not modelled: no assignment extends into the next layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from ndpsim.policies.interface import Assignment, Migration, Parts, PolicyParameters
from ndpsim.policies.offline import descending, hottest, mean_loads
from ndpsim.policies.offloading import Offloading, cache_slots, places_in
from ndpsim.policies.views import BackgroundView, LayerView, OfflineView, Placement

_SEED_IN_CODE = 42


class KTransformersParameters(PolicyParameters):
    """Parameters of KTransformers."""

    strategy: Literal["frequency", "uniform", "front-loading", "random"] = "frequency"
    """which experts are on the GPU. frequency: those with most tokens in an offline trace, over all layers
    (default: the tutorial recommends it for speed); uniform: as many of each layer, the first ones (the
    code's default, which needs no statistics); front-loading: the first layers' (the split by layers that
    DALI describes); random: seed 42"""

    gpu_share: float = Field(1.0, ge=0, le=1)
    """share of all experts that is on the GPU, if it fits (--kt-gpu-experts-ratio); 1: as many as fit, so
    that all policies use the same memory; DALI, section 6.1, has what its cache takes"""

    update_tokens: int | None = Field(None, ge=1)
    """minimum number of prompt tokens from which the GPU computes the prefill; the experts of each layer with
    most tokens there then stay in its memory (--kt-enable-dynamic-expert-update with
    --kt-gpu-prefill-token-threshold, 512 in the tutorial); none: never (the code's default)"""


class KTransformers(Offloading[KTransformersParameters]):
    """KTransformers: a fixed set of experts on the GPU, the others on the CPU at the same time.

    The GPU computes the experts in its memory, the CPU all others at the same time; nothing is fetched.
    """

    name = "ktransformers"
    paper = "Chen et al., SOSP 2025; DALI, section 6.1"
    mixed_steps = "The rule for decode; only a prefill renews the experts in the GPU's memory."

    def place(self, view: OfflineView) -> Placement:
        """All experts are striped; the experts of the mask are also in the GPU's memory."""
        share = self.parameters.gpu_share
        resident = np.zeros(self.machine.shape, np.bool_)
        count = min(round(share * resident.size), self.machine.gpu_experts)
        strategy = self.parameters.strategy
        if strategy == "frequency":
            resident[:] = hottest(mean_loads(view), count)
        elif strategy == "uniform":
            for row, slots in enumerate(cache_slots(self.machine, share)):
                resident[row, :slots] = True
        elif strategy == "front-loading":
            resident.reshape(-1)[:count] = True
        else:
            order = np.random.default_rng(_SEED_IN_CODE).permutation(resident.size)
            resident.reshape(-1)[order[:count]] = True
        return self.residents(resident)

    def assign(self, view: LayerView) -> Assignment:
        """Experts in the GPU's memory go to the GPU, in a prefill that updates it all; others to the CPU."""
        order = self.by_arrival(view)
        here = view.placement.resident[order] | self._renews(view.phase, view.tokens)
        gpu, cpu = order[here], order[~here]
        return Assignment(Parts(gpu), Parts(cpu), estimated_ns=max(self.times_ns(view, gpu, cpu)))

    def _renews(self, phase: str, tokens: int) -> bool:
        least = self.parameters.update_tokens
        enough = least is not None and tokens >= least
        return phase == "prefill" and enough and self.machine.expert_buffers > 0

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """After a layer of such a prefill, keep its copies of the experts with most tokens; evict others."""
        if not self._renews(view.phase, len(view.ids)):
            return ()
        row = self.row[view.layer]
        resident = view.placement.resident[row]
        wanted, others = np.split(descending(view.loads), [int(resident.sum())])
        comes = places_in(row, wanted[(view.copied & ~resident)[wanted]])
        goes = places_in(row, others[resident[others]][::-1])
        return [*self.moves("evict", goes[: len(comes)]), *self.moves("keep", comes)]


POLICY = KTransformers
