"""MoE-OnDemand: GPU only; the chosen experts of a layer are copied after routing, and then computed.

Aminabadi et al., "DeepSpeed-Inference", SC 2022; as a baseline: Wu et al., "A Scheduling Framework for
Efficient MoE Inference on Edge GPU-NDP Systems", Section IV-A. Released code: the "DeepSpeed" mode of
ranggihwang/Pregated_MoE @6b0a666, fetcher.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ndpsim.policies.interface import Assignment, GivesRoom, Migration, Parts, PolicyParameters
from ndpsim.policies.offloading import Offloading, places_in
from ndpsim.policies.views import BackgroundView, Ints, LayerView, Placement


class OnDemandParameters(PolicyParameters):
    """Parameters of MoE-OnDemand."""

    cache: Literal["none", "lru"] = "none"
    """what the GPU's memory holds. none (the default, as the released evaluation has it): nothing, every
    activated expert is copied each time; lru: copies stay as long as there is room, and the one that was used
    longest ago makes room (an option of the code)"""


class OnDemand(Offloading[OnDemandParameters], GivesRoom):
    """MoE-OnDemand: GPU only, experts copied when their gate has chosen them, nothing overlapped.

    Every expert on the GPU; copies and computation take turns.
    """

    name = "on-demand"
    paper = "Aminabadi et al., SC 2022; the edge paper, section IV-A"
    engines = ("gpu",)
    mixed_steps = "All rules, by all tokens of the step."

    def setup(self) -> None:
        """Ages of experts."""
        self.layers_done = 0
        #: Last use of each expert, as the number of finished layers, [layer, expert].
        self.used: Ints = np.full(self.machine.shape, -1, np.int64)

    def assign(self, view: LayerView) -> Assignment:
        """All experts go to the GPU, in the order of their numbers."""
        active = np.flatnonzero(view.loads)
        return Assignment(Parts(active), estimated_ns=sum(self.times_ns(view, active)), sequential=True)

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """With a cache, keep the layer's copies instead of the least recently used experts."""
        if self.parameters.cache == "none":
            return ()
        self.layers_done += 1
        row = self.row[view.layer]
        self.used[row, view.loads > 0] = self.layers_done
        resident = view.placement.resident
        most = np.count_nonzero(resident) + view.gpu_free
        copied = places_in(row, np.flatnonzero(view.copied)[:most])
        victims = self.least_first(resident, self.used, len(copied) - view.gpu_free)
        return [*self.moves("evict", victims), *self.moves("keep", copied)]

    def resident_worth(self, placement: Placement) -> Ints:
        """The least recently used experts are evicted first."""
        return self.used


POLICY = OnDemand
