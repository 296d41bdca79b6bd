"""HOBBIT: GPU only; missing experts are loaded in full precision or in few bits, by their scores.

Tang et al., "HOBBIT: A Mixed Precision Expert Offloading System for Fast MoE Inference", 2024; as a baseline:
Fan et al., section 5.1. No code was found; [note] marks descriptions by others.

Because every pair must be computed, an expert that HOBBIT would skip is loaded in few bits. Copies in few
bits are used by one layer; no source gives their part of the cache. Its stacked gates need the model. Here a
predictor of stated accuracy replaces them: it predicts at the layer's gate, and predicted experts are
prefetched beside the layer, with the precision of their scores. Without scores in the trace, each choice of a
token has the weight 1/k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from ndpsim.policies.interface import Assignment, GivesRoom, Migration, PolicyParameters
from ndpsim.policies.offline import (
    StatedPredictor,
    descending,
    hottest,
    least_above,
    mean_loads,
    ranked_above,
)
from ndpsim.policies.offloading import Offloading, places, places_in
from ndpsim.policies.views import BackgroundView, Floats, LayerView, OfflineView, Placement

_WEIGHT = (
    "weight in the priority of a cached expert (w_lhu 0.4 in one reproduction [note]; the others share the "
)


def _weight(default: float, meaning: str) -> Any:
    return Field(default, ge=0, le=1, description=f"{_WEIGHT}rest evenly, an assumption): {meaning}")


class HobbitParameters(PolicyParameters):
    """Parameters of HOBBIT."""

    t1: float = Field(0.6, ge=0, le=1)
    """a token's choices are sorted by their scores; an expert is loaded in full precision if the experts
    ranked above it have at most this share of the scores (T1 [note])"""

    t2: float = Field(0.9, ge=0, le=1)
    """up to this share an expert is loaded in few bits, above it is skipped (T2 [note]); here it is loaded in
    few bits, too, and `details` counts it"""

    low_bits: int | None = Field(None, ge=1, le=15)
    """bits of a weight that is loaded in few; none: a quarter of the full ones (FP16 and INT4, INT8 and INT2
    [note])"""
    w_lru: float = _weight(0.2, "how lately it was used")
    w_lfu: float = _weight(0.2, "how often it was used")
    w_lhu: float = _weight(0.4, "how often it was needed in full precision")
    w_fld: float = _weight(0.2, "how soon its layer comes")
    layer_distance: Literal["ahead", "printed"] = "ahead"
    """distance in w_fld. ahead: (l_i - l_t - 1) mod l_n layers between the one that is done and the expert's,
    so that what is needed next stays; printed: (l_t - l_i + l_n) mod l_n [note], by which it goes first"""

    residents: Literal["hot", "none"] = "hot"
    """what the GPU's memory holds at first. hot: the experts with most tokens in the offline trace
    (assumption, so that all policies use the same memory); none: nothing"""

    accuracy: float = Field(0.9, ge=0, le=1)
    """how often an expert that the next layer needs is predicted (assumption: no source seen says)"""

    prefetch: int | None = Field(None, ge=0, le=1024)
    """experts of the next layer that are predicted, and prefetched where they are missing; none: as many as a
    token chooses"""

    seed: int = Field(0, ge=0, le=1 << 31)
    """seed of predictions"""

    @model_validator(mode="after")
    def _in_order(self) -> HobbitParameters:
        if self.t1 > self.t2:
            raise ValueError(f"t1={self.t1:g} is above t2={self.t2:g}")
        return self


class Hobbit(Offloading[HobbitParameters], GivesRoom):
    """HOBBIT: GPU only, less important missing experts loaded in fewer bits.

    The GPU computes all experts; unimportant missing ones are copied in few bits.
    """

    name = "hobbit"
    paper = "Tang et al., arXiv 2411.01433; Fan et al., section 5.1"
    engines = ("gpu",)
    mixed_steps = "The rules for decode: what is predicted is prefetched, and copies stay by priority."
    moments = ("gate", "end")

    def setup(self) -> None:
        """Records of experts."""
        machine, parameters = self.machine, self.parameters
        low = machine.bits // 4 if parameters.low_bits is None else parameters.low_bits
        self.low_bits = low if 1 <= low < machine.bits else None
        count = machine.model.experts_per_token if parameters.prefetch is None else parameters.prefetch
        self.stated_predictor = StatedPredictor(parameters.accuracy, count, parameters.seed, ranks=True)
        shape = machine.shape
        #: Records of each expert, in tokens: its last use, its tokens, tokens that needed full precision.
        self.last, self.uses, self.full_uses = (np.zeros(shape) for _ in range(3))
        self.tokens = 0
        self.prefetched = np.zeros(shape, np.bool_)
        #: Prefetched experts in few bits.
        self.in_few_bits = np.zeros(shape, np.bool_)

    def place(self, view: OfflineView) -> Placement:
        """All experts are striped, which the host reads fastest, in full and in few bits."""
        room = self.machine.gpu_experts if self.parameters.residents == "hot" else 0
        placement = self.residents(hottest(mean_loads(view), room))
        return replace(placement, replicas=() if self.low_bits is None else (self.low_bits,))

    def assign(self, view: LayerView) -> Assignment:
        """All experts go to the GPU: present, arriving, then missing ones, in the required precision."""
        row = self.row[view.layer]
        if row == 0:
            self.tokens += view.tokens
        chosen, ranks = ranked_above(view.ids, view.scores, len(view.loads))
        above = least_above(chosen, ranks, len(view.loads))
        active = self.by_arrival(view)
        full = above[active] <= self.parameters.t1
        self.last[row, active] = self.tokens
        self.uses[row] += view.loads
        np.add.at(self.full_uses[row], chosen, ranks <= self.parameters.t1)
        missing = ~(view.placement.resident | view.arriving)[active]
        low = active[missing & ~full].tolist() if self.low_bits is not None else []
        saved = len(low) * (1 - (self.low_bits or 0) / self.machine.bits)
        compute, copies, _ = self.times_ns(view, active)
        return Assignment(
            gpu=active.tolist(),
            bits=dict.fromkeys(low, self.low_bits or self.machine.bits),
            estimated_ns=max(compute, copies - saved * self.copy_ns),
            details={
                "skipped_in_the_paper": int((above[low] > self.parameters.t2).sum()),
                "prefetched_in_too_few_bits": int((full & self.in_few_bits[row, active] & ~missing).sum()),
            },
        )

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """At the gate, prefetch predicted experts. At the end, keep full copies instead of experts of least
        priority, and evict prefetched ones in few bits.

        Prefetched experts are not evicted before their layer is done [note]. In the prefill, which uses all
        experts of each layer, nothing is prefetched, and copies replace experts of the same layer. A copy
        does not replace an expert with equal priority (assumptions in favour of HOBBIT).
        """
        row, following = self.row[view.layer], self.row[view.next_layer]
        self.in_few_bits &= view.placement.resident | view.moving  # others have made room for a KV cache
        if view.moment == "end":
            self.prefetched[row] = False
        used = self.in_few_bits & ~self.prefetched & view.placement.resident & ~view.moving
        used[row] &= ~view.in_use  # experts that arrived after their layer was done, for the next step
        self.in_few_bits &= ~used
        priority, there = self._priority(row), view.placement.resident | view.moving
        there[row] |= view.copied
        spared = view.moving | self.prefetched | self.in_few_bits | used
        spared[row] |= view.in_use
        prefill, missing = view.phase == "prefill", dict[int, float]()
        if not prefill and view.moment == "gate":
            spared[following, list(view.predicted)] = True
            ranked = zip(view.predicted, view.predicted_above, strict=True)
            missing = {expert: above for expert, above in ranked if not there[following, expert]}
        evictable = view.placement.resident & ~spared
        if prefill:
            evictable[np.arange(len(evictable)) != row] = False
        best = places_in(row, descending(priority[row], np.flatnonzero(view.copied)))
        going = self.least_first(evictable, priority, len(missing) + len(best))
        layers, bits = self.machine.layers, self.machine.bits
        answer = self.moves("evict", places(used))
        free = view.gpu_free + len(answer)
        for expert, above in missing.items():
            if free < 1 and not going:
                break
            if free < 1:
                answer += self.moves("evict", [going.pop(0)])
                free += 1
            free -= 1
            low = None if above <= self.parameters.t1 else self.low_bits
            self.prefetched[following, expert], self.in_few_bits[following, expert] = True, low is not None
            took = self.copy_ns * (low or bits) / bits
            answer.append(Migration("prefetch", layers[following], expert, estimated_ns=took, bits=low))
        return answer + self.replacing("keep", best, going, free, priority)

    def resident_worth(self, placement: Placement) -> Floats:
        """Priorities after the last layer of a step."""
        return self._priority(len(self.machine.layers) - 1)

    def _priority(self, done: int) -> Floats:
        """Priorities [layer, expert] after the layer of row `done`; the lowest is evicted first [note]."""
        weights, tokens, layers = self.parameters, max(self.tokens, 1), len(self.machine.layers)
        rows = np.arange(layers)
        distance = done - rows if weights.layer_distance == "printed" else rows - (done + 1)
        nearness = 1 - distance % layers / layers
        return np.asarray(
            weights.w_lru * self.last / tokens
            + weights.w_lfu * self.uses / tokens
            + weights.w_lhu * self.full_uses / tokens
            + weights.w_fld * nearness[:, None]
        )

    def prediction(self) -> Mapping[str, Any] | None:
        """The share of right predictions of the stated predictor."""
        assert self.stated_predictor is not None
        predictions = self.stated_predictor.predictions
        if not predictions.made:
            return None
        return {"accuracy": predictions.share, "counted": {"experts": predictions.made}}


POLICY = Hobbit
