"""HybriMoE: GPU and CPU take experts from both ends of a sorted list; a cache by the router's scores.

Zhong et al., "HybriMoE: Hybrid CPU-GPU Scheduling and Cache Management for Efficient MoE Inference", DAC
2025; PKU-SEC-Lab/HybriMoE, commit 508a85b: ktransformers/operators/experts.py; as a baseline: DALI, section
6.1. The paper's prefetching by simulated layers is not in the released code, and not here. In decode steps,
prefetches are decided at a layer's gate and begin after its own copies ([code]: after the layer's own
fetches). In a prefill, preloaded experts replace those of the finished layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from ndpsim.policies.interface import Assignment, GivesRoom, Migration, PolicyParameters
from ndpsim.policies.offline import descending, hottest_of_each, mean_loads, score_sums
from ndpsim.policies.offloading import Offloading, Place, cache_slots, places_in
from ndpsim.policies.views import BackgroundView, Flags, Floats, Ints, LayerView, OfflineView, Placement

#: [code], in its own unit: an expert on the GPU, a token on the CPU, overhead on the CPU, a copy.
_CODE_GPU, _CODE_CPU, _CODE_CPU_ONCE, _CODE_COPY = 0.5, 1.0, 0.79, 0.4179

_PRELOADED_LAYERS = 2  # a prefill loads the experts of layer + 2 ([code])


class HybriMoeParameters(PolicyParameters):
    """Parameters of HybriMoE."""

    schedule: Literal["both-ends", "threshold"] = "both-ends"
    """both-ends: GPU and CPU take experts from the two ends of the sorted list ([code], the default, and the
    stronger); threshold: a missing expert with enough tokens goes to the GPU, as DALI describes HybriMoE
    (section 3.1)"""

    threshold: int | None = Field(None, ge=1)
    """minimum tokens of a missing expert that goes to the GPU, for the schedule threshold; none: where a copy
    and the GPU take less than the CPU by the estimates for this machine"""

    constants: Literal["profile", "code"] = "profile"
    """costs that the schedule assumes. profile: the estimates for this machine (default: the code's are
    marked as to be set for each machine); code: 0.5 for an expert on the GPU, 1 a token and 0.79 once on the
    CPU, 0.4179 for a copy"""

    cache_share: float = Field(1.0, ge=0, le=1)
    """share of each layer's experts that is cached, if there is room (load_size); 1: as many as fit, so that
    all policies use the same memory; DALI caches as many with both"""

    rows: Literal["first", "all"] = "first"
    """tokens whose scores count. first: of a batch, only the first row ([code]); all: their mean"""

    prefill: Literal["gpu", "schedule"] = "gpu"
    """gpu: the GPU computes all experts of a prefill, and those of the layer after the next are preloaded
    after them ([code]); schedule: as in decode steps"""

    prefetch_size: int = Field(0, ge=0, le=1024)
    """experts of the next layer with the highest scores that are fetched ahead, in decode steps ([code]: 0 in
    the README's example)"""


class HybriMoe(Offloading[HybriMoeParameters], GivesRoom):
    """HybriMoE: GPU and CPU from both ends of a sorted list, a cache by the router's scores.

    The GPU takes experts from the front of the list, the CPU from its back; copied experts stay.
    """

    name = "hybrimoe"
    paper = "Zhong et al., DAC 2025; DALI, section 6.1"
    mixed_steps = "Schedule and cache of decode; only pure decode steps prefetch at the gate."
    moments = ("gate", "end")

    def setup(self) -> None:
        """Slots of the cache, and scores."""
        self.slots = cache_slots(self.machine, self.parameters.cache_share)
        #: (row, expert) of experts that a prefill has preloaded.
        self.preloaded: list[Place] = []
        self.scores: Floats = np.zeros(self.machine.shape)

    def place(self, view: OfflineView) -> Placement:
        """All experts are striped; each layer also has its hottest experts (offline) in its slots.

        The code does not give the initial contents. By assumption, because its size is not known, the buffer
        for a prefill has room for the other experts of two layers, at most half of the GPU's memory.
        """
        if view.prefill_tokens and self.parameters.prefill == "gpu":
            others = max(self.machine.model.routed_experts - min(self.slots), 0)
            reserved = min(_PRELOADED_LAYERS * others, self.machine.gpu_experts // 2)
            self.slots = cache_slots(self.machine, self.parameters.cache_share, reserved)
        return self.residents(hottest_of_each(mean_loads(view), self.slots))

    def assign(self, view: LayerView) -> Assignment:
        """Present experts by tokens, then missing ones by tokens: the GPU takes the first, the CPU the last,
        whichever would end earlier with its next expert.
        """
        order, there = self.by_tokens(view), view.placement.resident | view.arriving
        order = order[np.argsort(~there[order], kind="stable")]
        loads, estimates = view.loads[order], self.estimates
        times = estimates.gpu_ns[loads], estimates.on_cpu_ns[loads]
        on_gpu = self._on_gpu(view, order, ~there[order], times)
        arrival = self.by_arrival(view)
        gpu = arrival[np.isin(arrival, order[on_gpu])].tolist()
        cpu = order[~on_gpu][::-1].tolist()
        return Assignment(gpu, cpu, estimated_ns=max(self.times_ns(view, gpu, cpu)))

    def _on_gpu(self, view: LayerView, order: Ints, missing: Flags, times: tuple[Floats, Floats]) -> Flags:
        """Flags of the experts that the GPU computes, in their order; `times`: on the GPU, and on the CPU."""
        wanted, loads, count = self.parameters, view.loads[order], len(order)
        if not self.machine.expert_buffers:
            return np.asarray(~missing)
        if view.phase == "prefill" and wanted.prefill == "gpu":
            return np.ones(count, np.bool_)
        if wanted.schedule == "threshold":
            above = np.maximum(times[0], self.copy_ns) < times[1]
            return np.asarray(~missing | (above if wanted.threshold is None else loads >= wanted.threshold))
        if wanted.constants == "code":
            times = np.full(count, _CODE_GPU), np.float64(_CODE_CPU) * loads
            taken = _both_ends(*times, missing, _CODE_COPY, 0.0, _CODE_CPU_ONCE)
        else:
            taken = _both_ends(*times, missing, self.copy_ns, self.estimates.shared_ns, 0.0)
        return np.arange(count) < taken

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """In a decode step, prefetch the next layer's highest scores at the gate, and at the end keep copies
        instead of the lowest scores. In a prefill, load the layer after the next at the end.
        """
        row, coming = self.row[view.layer], self.row[view.next_layer]
        if view.moment == "gate":
            return self._ahead(view, coming) if view.phase == "decode" and coming != row else ()
        answer = self._preloads(view)
        if view.phase == "prefill":
            return answer
        self._score(view)
        resident, moving, scores = view.placement.resident[row].copy(), view.moving[row], self.scores[row]
        resident[[move.expert for move in answer if move.layer == view.layer]] = False
        copied = descending(scores, np.flatnonzero(view.copied & ~resident & ~moving))
        free = min(self.slots[row] - int((resident | moving).sum()), view.gpu_free + len(answer))
        goes = descending(-scores, np.flatnonzero(resident & ~moving))[: max(len(copied) - free, 0)]
        stays = copied[: max(free, 0) + len(goes)]
        answer += self.moves("evict", places_in(row, goes))
        return answer + self.moves("keep", places_in(row, stays))

    def _preloads(self, view: BackgroundView) -> list[Migration]:
        """At the end of a prefill's layer, load experts of the layer after the next in place of its own."""
        row, resident = self.row[view.layer], view.placement.resident
        wanted, ahead = list[Place](), row + _PRELOADED_LAYERS
        gone = self.done_with(self.preloaded, view, range(row + 1, ahead) if view.phase == "prefill" else ())
        if view.phase == "prefill" and self.parameters.prefill == "gpu" and ahead < len(resident):
            missing = np.flatnonzero(~(resident[ahead] | view.moving[ahead]))
            wanted = places_in(ahead, missing[: view.gpu_free + len(gone)])
        self.preloaded = [expert for expert in self.preloaded if expert not in gone] + wanted
        return self.moves("evict", gone) + self.moves("prefetch", wanted)

    def _score(self, view: BackgroundView) -> None:
        """S = 0.5 x score + 0.5 x S of chosen experts, 0.5 x S of others.

        The code uses the 2 x k highest scores of a token. A trace has the scores of the k choices; without
        scores each choice counts 1 / k.
        """
        ids = view.ids[:1] if self.parameters.rows == "first" else view.ids
        scores = np.full(ids.shape, 1 / max(ids.shape[1], 1))
        if view.scores is not None:
            scores = view.scores[: len(ids)].astype(np.float64)
        experts = self.scores.shape[1]
        mean = score_sums(ids, scores, experts) / max(len(ids), 1)
        row = self.row[view.layer]
        self.scores[row] = 0.5 * mean + 0.5 * self.scores[row]

    def resident_worth(self, placement: Placement) -> Floats:
        """The scores: the lowest of all layers are evicted first."""
        return self.scores

    def _ahead(self, view: BackgroundView, row: int) -> list[Migration]:
        """Prefetches of missing experts with the next layer's highest scores, instead of its lowest."""
        resident, moving, scores = view.placement.resident[row], view.moving[row], self.scores[row]
        highest = descending(scores)[: self.parameters.prefetch_size]
        wanted = places_in(row, highest[~(resident | moving)[highest]])
        lowest = places_in(row, descending(-scores, np.flatnonzero(resident & ~moving)))
        free = min(self.slots[row] - int((resident | moving).sum()), view.gpu_free)
        return self.replacing("prefetch", wanted, lowest, free, self.scores)


def _both_ends(
    gpu_ns: Floats, cpu_ns: Floats, missing: Flags, copy_ns: float, gpu_begun: float, cpu_begun: float
) -> int:
    """The number of experts from the front of the list that the GPU takes.

    A missing expert begins on the GPU after its copy; copies run one after the other.
    """
    front, back = 0, len(gpu_ns)
    gpu_sum_ns, cpu_sum_ns, copied = gpu_begun, cpu_begun, 0.0
    while front < back:
        arrives = copied + copy_ns if missing[front] else 0.0
        on_gpu = max(gpu_sum_ns, arrives) + float(gpu_ns[front])
        on_cpu = cpu_sum_ns + float(cpu_ns[back - 1])
        if on_gpu <= on_cpu:
            gpu_sum_ns, copied = on_gpu, max(copied, arrives)
            front += 1
        else:
            cpu_sum_ns = on_cpu
            back -= 1
    return front


POLICY = HybriMoe
