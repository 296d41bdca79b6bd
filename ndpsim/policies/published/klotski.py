"""Klotski: GPU only; hot experts are prefetched, cold ones are loaded while hot ones compute.

Fang et al., "Klotski: Efficient Mixture-of-Expert Inference via Expert-Aware Multi-Batch Pipeline", ASPLOS
2025; as a baseline: TriMoE, section 5.1.2, "a baseline that maximizes PCIe overlap by prefetching hot experts
and loading cold expert weights during hot expert computation". A layer takes the longer of two sums: missing
experts over PCIe, and all experts on the GPU. Released code: mindspore-lab/models, research/SYSU/Klotski
(mixtral.py, pytorch_backend.py). It prefetches for the next layer when the weights of this layer's gate are
loaded; here this happens when the tokens are routed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from ndpsim.policies.interface import Assignment, Migration, Parts, PolicyParameters
from ndpsim.policies.offline import descending, following, hottest, mean_loads
from ndpsim.policies.offloading import Offloading, Place, places_in
from ndpsim.policies.views import BackgroundView, Floats, LayerView, OfflineView, Placement

_HOT_IN_CODE = 2


class KlotskiParameters(PolicyParameters):
    """Parameters of Klotski."""

    variant: Literal["paper", "code"] = "paper"
    """code: 2 hot experts a layer, those with most credit from each expert's 2 most frequent successors,
    nothing resident; paper (the default, as no baseline is to be weaker than its description): hot are those
    with most expected tokens by the same table"""

    hot_experts: int | None = Field(None, ge=0, le=1024)
    """experts prefetched a layer; none: 2 in the code, and in the paper variant as many as PCIe carries in
    the window between layers, at least 2 (assumption: the paper gives no number)"""

    residents: Literal["variant", "hot", "none"] = "variant"
    """what the rest of the GPU's memory holds. Code: nothing is retained between layers. paper: the experts
    with most tokens in the offline trace (assumption: TriMoE, 2.2, 'hot experts are kept resident on the
    GPU', so that all policies use the same memory)"""


class Klotski(Offloading[KlotskiParameters]):
    """Klotski: GPU only, hot experts prefetched, cold ones loaded behind their computation.

    The GPU computes all experts; the memory of the GPU holds hot ones and those just prefetched.
    """

    name = "klotski"
    paper = "Fang et al., ASPLOS 2025; TriMoE, section 5.1.2"
    engines = ("gpu",)
    mixed_steps = "Prefetches of decode steps; only pure decode steps update the popularity table."
    moments = ("gate",)

    def setup(self) -> None:
        """Choose the number of hot experts, and begin the tables of popularity and successors."""
        machine, hot = self.machine, self.parameters.hot_experts
        self.follows_code = self.parameters.variant == "code"
        if hot is None:
            in_window = 0 if self.follows_code else int(self.estimates.window_ns // self.copy_ns)
            hot = max(_HOT_IN_CODE, in_window)
        self.hot = min(hot, machine.gpu_experts // 2, machine.model.routed_experts)
        self.popularity = np.zeros(machine.shape)
        self.seen = np.zeros(len(machine.layers), np.int64)
        self.following = np.zeros((0, 0, 0))
        self.successors = np.zeros((0, 0, 0), np.int64)
        self.prefetched: list[Place] = []

    def place(self, view: OfflineView) -> Placement:
        """All experts are striped. The GPU's memory has hot experts, and space for prefetched experts of two
        layers, the current and the next one.
        """
        self.popularity = mean_loads(view)
        self.following = following(view)
        self.successors = np.argsort(-self.following, axis=2, kind="stable")[:, :, :_HOT_IN_CODE]
        residents = self.parameters.residents
        holds = residents == "hot" or (residents == "variant" and not self.follows_code)
        room = self.machine.gpu_experts - 2 * self.hot
        return self.residents(hottest(self.popularity, room if holds else 0))

    def assign(self, view: LayerView) -> Assignment:
        """All experts go to the GPU: first present ones, then arriving ones, then missing ones.

        The code loads missing experts in the order in which tokens first choose them. Experts with more
        tokens are chosen earlier on average, so the order by tokens replaces it; it hides most computation
        behind copies.
        """
        order = self.by_arrival(view)
        return Assignment(gpu=Parts(order), estimated_ns=max(self.times_ns(view, order)))

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """Evict prefetched experts of finished layers, and prefetch for the next one."""
        self._learn(view)
        resident, moving = view.placement.resident, view.moving
        row = self.row[view.next_layer]
        expected = self._expected(view, row)
        hottest = descending(expected)[: self.hot]
        hot = places_in(row, hottest[expected[hottest] > 0])
        done = self.done_with(self.prefetched, view, (self.row[view.layer],))
        done = [expert for expert in done if expert not in hot]
        missing = [expert for expert in hot if not resident[expert] and not moving[expert]]
        wanted = missing[: view.gpu_free + len(done)]
        self.prefetched = [expert for expert in self.prefetched if expert not in done] + wanted
        return [*self.moves("evict", done), *self.moves("prefetch", wanted)]

    def _learn(self, view: BackgroundView) -> None:
        """Update the popularity table; the offline mean counts as one step.

        The table of successors is not updated.
        """
        if view.phase == "decode":
            row = self.row[view.layer]
            self.seen[row] += 1
            self.popularity[row] += (view.loads - self.popularity[row]) / (self.seen[row] + 1)

    def _expected(self, view: BackgroundView, row: int) -> Floats:
        """Expected tokens of the next layer's experts, or their credit."""
        if row == 0:
            return np.asarray(self.popularity[row])
        if not self.follows_code:
            return np.asarray((view.loads[:, np.newaxis] * self.following[row - 1]).sum(axis=0))
        successors = self.successors[row - 1]
        weights = np.repeat(view.loads, successors.shape[1])
        return np.bincount(successors.ravel(), weights, minlength=len(view.loads)).astype(np.float64)


POLICY = Klotski
