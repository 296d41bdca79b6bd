"""Pre-gated MoE: the gate of a layer selects the experts of the next one, which are fetched meanwhile.

Hwang et al., "Pre-gated MoE: An Algorithm-System Co-Design for Fast and Scalable Mixture-of-Expert
Inference", ISCA 2024; as a baseline: Huang et al., sections II-A and IV. Released code:
ranggihwang/Pregated_MoE (fetcher.cc, moe_kernels.cu, arena.cc); [code] marks what follows it.

The code begins to fetch for the next layer before the experts of this one are computed, here it begins when
they are: a copy loses the time of an expert on the GPU, a hundredth of its own. What has no room in the GPU's
memory is loaded when its layer needs it.
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

__all__ = ["POLICY"]


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
    """GPU only; what the next layer needs is fetched as soon as this layer's experts are done.

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
        """Gives up this layer's experts, or what the cache has to, and fetches for the next layer.

        The prefill loads on demand, and so does the first layer of a step [code].
        """
        row, answer = self.row[view.layer], list[Migration]()
        resident, free = view.placement.resident.copy(), view.gpu_free
        spared = view.moving.copy()
        copied = np.flatnonzero(view.copied).tolist() if self.caches else []
        wanted = [("keep", row, expert) for expert in copied]
        if not self.caches:
            for expert in np.flatnonzero(resident[row] & ~view.moving[row]).tolist():
                answer.append(Migration("evict", view.layer, expert))
                resident[row, expert] = False
                free += 1
        if view.phase == "decode" and view.layer != self.machine.layers[-1]:
            assert view.next_loads is not None
            order = np.argsort(-view.next_loads, kind="stable")
            selected = order[view.next_loads[order] > 0].tolist()
            spared[row + 1, selected] = True
            missing = [one for one in selected if not (resident | view.moving)[row + 1, one]]
            wanted = [("prefetch", row + 1, expert) for expert in missing] + wanted
        layers = self.machine.layers
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
