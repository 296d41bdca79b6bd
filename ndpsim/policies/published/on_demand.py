"""MoE-OnDemand: GPU only; the experts that a layer's gate has chosen are copied, and then computed.

Aminabadi et al., "DeepSpeed-Inference", SC 2022; as a baseline: Wu et al., "A Scheduling Framework for
Efficient MoE Inference on Edge GPU-NDP Systems", Section IV-A. Released code: the "DeepSpeed" mode of
ranggihwang/Pregated_MoE @6b0a666, fetcher.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from ndpsim.policies.interface import (
    Assignment,
    BackgroundView,
    Estimates,
    Ints,
    LayerView,
    Machine,
    Migration,
    Policy,
    PolicyParameters,
)


class OnDemandParameters(PolicyParameters):
    """What can be set of MoE-OnDemand."""

    cache: Literal["none", "lru"] = Field(
        "none",
        description="what the GPU's memory holds. none (the default, as the released evaluation has it): "
        "nothing, every activated expert is copied each time; lru: copies stay as long as there is room, and "
        "the one that was used longest ago makes room (an option of the code)",
    )


class OnDemand(Policy):
    """Every expert on the GPU; copies and computation take turns."""

    name = "on-demand"
    title = "MoE-OnDemand: GPU only, experts copied when their gate has chosen them, nothing overlapped"
    paper = "Aminabadi et al., SC 2022; the edge paper, section IV-A"
    engines = ("gpu",)
    Parameters = OnDemandParameters

    parameters: OnDemandParameters

    def __init__(self, machine: Machine, estimates: Estimates, parameters: OnDemandParameters) -> None:
        super().__init__(machine, estimates, parameters)
        self.copy_ns = estimates.copy_ns
        self.layers_done = 0
        #: When an expert was last used, in layers done, [layer, expert].
        self.used: Ints = np.full((len(machine.layers), machine.model.routed_experts), -1, np.int64)

    def assign(self, view: LayerView) -> Assignment:
        """All to the GPU, in the order of their numbers."""
        active = np.flatnonzero(view.loads)
        missing = np.count_nonzero(~view.placement.resident[active])
        computing = self.estimates.shared_ns + float(self.estimates.gpu_ns[view.loads[active]].sum())
        return Assignment(active.tolist(), estimated_ns=computing + missing * self.copy_ns, sequential=True)

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """With a cache: what the layer has copied stays, in place of what was used longest ago."""
        if self.parameters.cache == "none":
            return ()
        self.layers_done += 1
        row = self.row[view.layer]
        self.used[row, view.loads > 0] = self.layers_done
        copied = np.flatnonzero(view.copied)[: self.machine.gpu_experts].tolist()
        resident = np.argwhere(view.placement.resident)
        ages = self.used[tuple(resident.T)]
        victims = resident[np.argsort(ages, kind="stable")][: max(len(copied) - view.gpu_free, 0)]
        return [
            Migration("evict", self.machine.layers[place], expert) for place, expert in victims.tolist()
        ] + [Migration("keep", view.layer, expert) for expert in copied]


POLICY = OnDemand
