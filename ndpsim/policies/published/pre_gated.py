"""Pre-gated MoE: the gate of a layer selects the experts of the next one, which are fetched meanwhile.

Hwang et al., "Pre-gated MoE: An Algorithm-System Co-Design for Fast and Scalable Mixture-of-Expert
Inference", ISCA 2024; as a baseline: Huang et al., sections II-A and IV. Released code:
ranggihwang/Pregated_MoE (fetcher.cc, moe_kernels.cu, arena.cc); [code] marks decisions that follow it.

The fetch for the next layer begins when this layer is routed, beside its experts [code]: experts of two
layers are in the GPU's memory at a time. Experts that do not fit are loaded on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ndpsim.policies.interface import Assignment, GivesRoom, Migration, Parts, PolicyParameters
from ndpsim.policies.offline import descending
from ndpsim.policies.offloading import Offloading, places, places_in
from ndpsim.policies.views import BackgroundView, Ints, LayerView, Placement


class PregatedParameters(PolicyParameters):
    """Parameters of Pre-gated MoE."""

    cache: Literal["none", "lfu", "lru"] = "none"
    """what stays in the GPU's memory after its layer. none (the default: off in the released evaluation
    script, and in Huang et al.): nothing; lfu (the default of the released settings file), lru: everything,
    until what was least frequently or least recently used makes room. A hit costs nothing, where [code]
    copies within the GPU's memory; counts of lfu begin anew after the prefill [code]"""


class Pregated(Offloading[PregatedParameters], GivesRoom):
    """Pre-gated MoE: GPU only, each layer's gate selects and fetches the next layer's experts.

    It gets the next layer's loads: its model is retrained so that the gate of a layer makes the selection of
    the next one. Here the routing of the original model replaces that of the retrained one.
    """

    name = "pre-gated"
    paper = "Hwang et al., ISCA 2024; Huang et al., section IV"
    engines = ("gpu",)
    mixed_steps = "Experts load on demand, as in a prefill; uses are counted anew at each change of phase."
    sees_the_future = True

    def setup(self) -> None:
        """Uses of experts."""
        self.caches = self.parameters.cache != "none"
        self.moments = ("gate", "end") if self.caches else ("gate",)
        #: Uses, or the last use, [layer, expert]; the smallest is evicted first.
        self.worth = np.zeros(self.machine.shape, np.int64)
        self.visits, self.phase = 0, ""

    def assign(self, view: LayerView) -> Assignment:
        """All experts go to the GPU: present, arriving, and then missing ones."""
        order = self.by_arrival(view)
        self._use(view, order)
        return Assignment(gpu=Parts(order), estimated_ns=max(self.times_ns(view, order)))

    def _use(self, view: LayerView, active: Ints) -> None:
        self.visits += 1
        if self.parameters.cache == "lru":
            self.worth[self.row[view.layer], active] = self.visits
            return
        if view.phase != self.phase:
            self.phase, self.worth[:] = view.phase, 0
        self.worth[self.row[view.layer], active] += 1

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """Evict experts of finished layers, or by the rule of the cache, and fetch for the next layer.

        The prefill and the first layer of a step load on demand [code]. With a cache, experts that were
        loaded on demand stay after their layer, and experts that the next layer needs are not evicted.
        """
        row, resident, free = self.row[view.layer], view.placement.resident.copy(), view.gpu_free
        gate, answer, spared = view.moment == "gate", list[Migration](), view.moving.copy()
        spared[row] |= view.in_use
        if gate and not self.caches:
            done = resident & ~view.moving
            done[row] = False
            answer += self.moves("evict", places(done))
            resident[done] = False
            free += len(answer)
        wanted = [] if gate else places_in(row, np.flatnonzero(view.copied))
        if view.phase == "decode" and view.layer != self.machine.layers[-1]:
            assert view.next_loads is not None
            selected = descending(view.next_loads, np.flatnonzero(view.next_loads))
            spared[row + 1, selected] = True
            if gate:
                wanted = places_in(row + 1, selected[~(resident | view.moving)[row + 1, selected]])
        victims = self.least_first(resident & ~spared, self.worth, len(wanted))
        return answer + self.replacing("prefetch" if gate else "keep", wanted, victims, free)

    def resident_worth(self, placement: Placement) -> Ints:
        """Victims as in `background`."""
        return self.worth


POLICY = Pregated
