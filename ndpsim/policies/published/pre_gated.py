"""Pre-gated MoE: the gate of a layer selects the experts of the next one, which are fetched meanwhile.

Hwang et al., "Pre-gated MoE: An Algorithm-System Co-Design for Fast and Scalable Mixture-of-Expert
Inference", ISCA 2024; as a baseline: Huang et al., sections II-A and IV. Released code:
ranggihwang/Pregated_MoE (fetcher.cc, moe_kernels.cu, arena.cc); [code] marks what follows it.

The fetch for the next layer begins when this layer is routed, beside its experts [code]: experts
of two layers are in the GPU's memory at a time. What has no room is loaded when its layer needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ndpsim.policies.interface import Assignment, GivesRoom, Migration, PolicyParameters
from ndpsim.policies.offloading import Offloading, places
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

    It sees the next layer's loads, because its model says them: it is retrained so that the
    gate of a layer makes the selection of the next one. Routing of a model as it was trained stands for that.
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
        #: What goes first has the smallest: uses, or the last use; [layer, expert].
        self.worth = np.zeros(self.machine.shape, np.int64)
        self.visits, self.phase = 0, ""

    def assign(self, view: LayerView) -> Assignment:
        """All to the GPU: what is there, what is on its way, and then what was not fetched before."""
        order = self.by_arrival(view)
        self._use(view, order)
        return Assignment(gpu=order.tolist(), estimated_ns=max(self.times_ns(view, order)))

    def _use(self, view: LayerView, active: Ints) -> None:
        self.visits += 1
        if self.parameters.cache == "lru":
            self.worth[self.row[view.layer], active] = self.visits
            return
        if view.phase != self.phase:
            self.phase, self.worth[:] = view.phase, 0
        self.worth[self.row[view.layer], active] += 1

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """Gives up experts of layers that are done, or what the cache has to, and fetches for the next layer.

        The prefill loads on demand, and so does the first layer of a step [code]. With a cache, what was
        loaded on demand stays when its layer is done, and nothing makes room that the next layer needs.
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
        wanted = [] if gate else [(row, expert) for expert in np.flatnonzero(view.copied).tolist()]
        if view.phase == "decode" and view.layer != self.machine.layers[-1]:
            assert view.next_loads is not None
            order = np.argsort(-view.next_loads, kind="stable")
            selected = order[view.next_loads[order] > 0].tolist()
            spared[row + 1, selected] = True
            missing = [one for one in selected if not (resident | view.moving)[row + 1, one]]
            wanted += [(row + 1, expert) for expert in missing if gate]
        victims = sorted(places(resident & ~spared), key=lambda place: self.worth[place])
        return answer + self.replacing("prefetch" if gate else "keep", wanted, victims, free)

    def resident_worth(self, placement: Placement) -> Ints:
        """Victims as in `background`."""
        return self.worth


POLICY = Pregated
