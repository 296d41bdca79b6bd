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
from pydantic import Field

from ndpsim.policies.interface import (
    Assignment,
    BackgroundView,
    Estimates,
    LayerView,
    Machine,
    Migration,
    Policy,
    PolicyParameters,
)


class PregatedParameters(PolicyParameters):
    """What can be set of Pre-gated MoE."""

    cache: Literal["none", "lfu", "lru"] = Field(
        "none",
        description="what stays in the GPU's memory after its layer. none (the default: off in the released "
        "evaluation script, and in Huang et al.): nothing; lfu (the default of the released "
        "settings file), lru: everything, until what was least frequently or least recently "
        "used makes room. A hit costs nothing, where [code] copies within the GPU's memory; "
        "counts of lfu begin anew after the prefill [code]",
    )


class Pregated(Policy):
    """GPU only; what the next layer needs is fetched beside this layer's experts.

    It sees the next layer's loads, because its model says them: it is retrained so that the
    gate of a layer makes the selection of the next one. Routing of a model as it was trained stands for that.
    """

    name = "pre-gated"
    title = "Pre-gated MoE: GPU only, each layer's gate selects and fetches the next layer's experts"
    paper = "Hwang et al., ISCA 2024; Huang et al., section IV"
    engines = ("gpu",)
    sees_the_future = True
    Parameters = PregatedParameters

    parameters: PregatedParameters

    def __init__(self, machine: Machine, estimates: Estimates, parameters: PregatedParameters) -> None:
        super().__init__(machine, estimates, parameters)
        self.copy_ns = estimates.copy_ns
        self.caches = parameters.cache != "none"
        self.moments = ("gate", "end") if self.caches else ("gate",)
        #: What goes first has the smallest: uses, or the last use; [layer, expert].
        self.worth = np.zeros((len(machine.layers), machine.model.routed_experts), np.int64)
        self.visits, self.phase = 0, ""

    def assign(self, view: LayerView) -> Assignment:
        """All to the GPU: what is there, what is on its way, and then what was not fetched before."""
        active = np.flatnonzero(view.loads)
        self._use(view, active)
        here = np.where(view.placement.resident[active], 0, np.where(view.arriving[active], 1, 2))
        order = active[np.lexsort((active, -view.loads[active], here))]
        compute = self.estimates.shared_ns + self.estimates.gpu_ns[view.loads[active]].sum()
        copies = np.count_nonzero(here == 2) * self.copy_ns
        return Assignment(gpu=order.tolist(), estimated_ns=float(max(compute, copies)))

    def _use(self, view: LayerView, active: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
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
        row, answer, layers = self.row[view.layer], list[Migration](), self.machine.layers
        resident, free, gate = view.placement.resident.copy(), view.gpu_free, view.moment == "gate"
        spared, wanted = view.moving.copy(), list[tuple[str, int, int]]()
        spared[row] |= view.in_use
        if not gate:
            wanted = [("keep", row, expert) for expert in np.flatnonzero(view.copied).tolist()]
        elif not self.caches:
            done = resident & ~view.moving
            done[row] = False
            answer += [Migration("evict", layers[at], expert) for at, expert in np.argwhere(done).tolist()]
            resident[done] = False
            free += len(answer)
        if view.phase == "decode" and view.layer != layers[-1]:
            assert view.next_loads is not None
            order = np.argsort(-view.next_loads, kind="stable")
            selected = order[view.next_loads[order] > 0].tolist()
            spared[row + 1, selected] = True
            missing = [one for one in selected if not (resident | view.moving)[row + 1, one]]
            wanted += [("prefetch", row + 1, expert) for expert in missing if gate]
        for kind, at, expert in wanted:
            if free < 1:
                victim = self._victim(resident & ~spared)
                if victim is None:
                    break
                answer.append(Migration("evict", layers[victim[0]], victim[1]))
                resident[victim] = False
                free += 1
            took = self.copy_ns if kind == "prefetch" else 0.0
            answer.append(Migration(kind, layers[at], expert, estimated_ns=took))
            free -= 1
        return answer

    def _victim(self, flags: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> tuple[int, int] | None:
        """Of these (layer, expert) the one of least worth, of equals the first; None: there are none."""
        places = np.argwhere(flags)
        if not len(places):
            return None
        layer, expert = places[np.argmin(self.worth[flags])].tolist()
        return layer, expert


POLICY = Pregated
