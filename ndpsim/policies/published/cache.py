"""CPU and GPU with a cache of experts: N indexes of M ways, misses on the CPU, fetched afterwards.

Huang et al., "Efficient CPU-GPU Collaborative Inference for MoE-based LLMs on Memory-Limited Systems",
section III. Released code: elsa-lab/MoE-CPU-GPU-Collaborative-Inference, src/main.py and src/model.py;
[code] marks decisions that follow it.

The paper does not give the initial contents of the cache: here M random experts for each index. With
`replacement=random` they never change. An expert whose copy has not ended is not replaced; the code would
overwrite such a way during the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ndpsim.policies.interface import Assignment, Migration, PolicyParameters
from ndpsim.policies.offloading import Offloading
from ndpsim.policies.views import BackgroundView, LayerView, OfflineView, Placement

Replacement = Literal["lru", "fifo", "random", "counter"]


class CacheParameters(PolicyParameters):
    """Parameters of the policy."""

    ways: int = Field(4, ge=1, le=1024)
    """M, room of the cache in experts of a layer; N = floor(S / M) layers, the first ones, have an index,
    with S experts in the GPU's memory (III-B; 4 in its example). At most the experts of a layer"""

    replacement: Replacement = "lru"
    """victim of a fetch. lru (the default, III-B), fifo, random: a static set, nothing is fetched (IV-D);
    counter: what [code] calls LRU: each expert has a number; a hit adds 1 to it, a new expert gets the
    largest number of its index plus 1, and the expert with the smallest number is the victim"""

    in_flight: Literal["hit", "miss"] = "hit"
    """an expert that is on its way. hit: computed on the GPU, which waits for it [code]; miss: computed on
    the CPU"""

    quota: int | None = Field(64, ge=0, le=1 << 20)
    """maximum number of misses a token that are considered for a fetch: 64 allow 63 fetches a token
    [code]; none: all are fetched (the paper knows no limit)"""

    protect: bool = True
    """an expert that the token has just used in the layer is no victim. false: as in [code], which then
    computes with the wrong weights; here they are right, and the next token misses the expert"""

    execution: Literal["overlapped", "sequential"] = "overlapped"
    """GPU and CPU in a layer. overlapped: at the same time, as kernels and copies run on while the CPU
    computes; sequential: one after the other ([code] starts them in Python's order, so that a CPU expert
    delays the start of a GPU expert after it)"""

    multi_row: Literal["cpu", "cache"] = "cpu"
    """prefill, and decode steps of several sequences. cpu: the CPU computes missing experts, and the cache
    does not change [code]; cache: as a decode step of one sequence"""

    seed: int = Field(0, ge=0, le=1 << 31)
    """seed of the first contents of the cache (the paper does not give them)"""


class _Index:
    """The ways of a layer.

    `keys`: for each way its last use (lru), its arrival (fifo), or its counter; the way with the smallest key
    is replaced.
    """

    def __init__(self, experts: Iterable[int], replacement: Replacement) -> None:
        self.experts = list(experts)
        self.keys = [0] * len(self.experts)
        self.replacement = replacement

    def hit(self, expert: int, now: int) -> None:
        """An expert is used."""
        way = self.experts.index(expert)
        if self.replacement == "lru":
            self.keys[way] = now
        elif self.replacement == "counter":
            self.keys[way] += 1

    def replace(self, expert: int, now: int, spared: Iterable[int]) -> int | None:
        """An expert replaces the victim; returns the victim, or None if no expert may be replaced."""
        spared = set(spared)
        ways = [way for way, held in enumerate(self.experts) if held not in spared]
        if not ways:
            return None
        way = min(ways, key=lambda way: self.keys[way])
        victim, self.experts[way] = self.experts[way], expert
        self.keys[way] = max(self.keys) + 1 if self.replacement == "counter" else now
        return victim


class ExpertCache(Offloading[CacheParameters]):
    """CPU-GPU expert cache: N indexes of M ways, misses on the CPU and fetched afterwards.

    Cached experts on the GPU, all others on the CPU; a miss is fetched when it has been computed.
    """

    name = "cache"
    paper = "Huang et al., Efficient CPU-GPU Collaborative Inference for MoE-based LLMs"
    mixed_steps = "All rules; more than one token is a case of multi_row, as in a prefill."

    def setup(self) -> None:
        """The indexes, filled at random, and counters."""
        experts, layers, wanted = self.machine.model.routed_experts, len(self.machine.layers), self.parameters
        ways = min(wanted.ways, experts)
        covered = min(self.machine.gpu_experts // ways, layers)
        random = np.random.default_rng(wanted.seed)
        #: Of layers 0 to N - 1 (III-A).
        self.indexes = [
            _Index(random.choice(experts, ways, replace=False).tolist(), wanted.replacement)
            for _ in range(covered)
        ]
        self.missed: list[int] = []
        self.now = 0
        self.step = ("", 0)
        self.left = 0  # of the step's quota
        self.hits = self.misses = self.visits = self.visits_with_hit = self.visits_of_hits = 0

    def place(self, view: OfflineView) -> Placement:
        """Striped, as the host reads fastest; each index with M experts."""
        placement = super().place(view)
        for row, index in enumerate(self.indexes):
            placement.resident[row, index.experts] = True
        return placement

    def assign(self, view: LayerView) -> Assignment:
        """Hits to the GPU, misses and layers without an index to the CPU."""
        row = self.row[view.layer]
        selected = list(dict.fromkeys(view.ids[view.ids < len(view.loads)].tolist()))
        self.missed = []
        several = view.phase == "prefill" or view.tokens > 1
        if row >= len(self.indexes) or (several and self.parameters.multi_row == "cpu"):
            return self._assigned(view, [], selected)
        there = view.placement.resident
        if self.parameters.in_flight == "hit":
            there = there | view.arriving
        hits = [expert for expert in selected if there[expert]]
        self.missed = [expert for expert in selected if not there[expert]]
        self.now += 1
        for expert in hits:
            self.indexes[row].hit(expert, self.now)
            self.now += 1
        self._count(len(hits), len(self.missed))
        return self._assigned(view, hits, self.missed)

    def _assigned(self, view: LayerView, gpu: list[int], cpu: list[int]) -> Assignment:
        sequential = self.parameters.execution == "sequential"
        times_ns = self.times_ns(view, gpu, cpu)
        estimated = sum(times_ns) if sequential else max(times_ns)
        return Assignment(gpu=gpu, cpu=cpu, estimated_ns=estimated, sequential=sequential)

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """Post-fetch (III-A): misses, in the order of their selection, take the ways of victims."""
        if self.parameters.replacement == "random":
            return ()
        row, answer = self.row[view.layer], list[Migration]()
        moving = np.flatnonzero(view.moving[row]).tolist()
        used = view.ids.ravel().tolist() if self.parameters.protect else ()
        fetched: list[int] = []
        for expert in self.missed:
            is_cached = expert in self.indexes[row].experts  # or is being copied there
            if not self._within_quota(view) or is_cached:
                continue
            victim = self.indexes[row].replace(expert, self.now, {*moving, *used, *fetched})
            if victim is None:
                continue
            self.now += 1
            fetched.append(expert)
            answer += self.moves("evict", [(row, victim)]) + self.moves("fetch", [(row, expert)])
        return answer

    def _within_quota(self, view: BackgroundView) -> bool:
        """Count a miss; whether it may be fetched."""
        if self.parameters.quota is None:
            return True
        if self.step != (view.phase, view.step):
            self.step, self.left = (view.phase, view.step), self.parameters.quota
        self.left -= 1
        return self.left > 0

    def _count(self, hits: int, misses: int) -> None:
        self.hits += hits
        self.misses += misses
        self.visits += 1
        self.visits_with_hit += hits > 0
        self.visits_of_hits += not misses

    def cache_counts(self) -> Mapping[str, Any]:
        """Hits and misses of layers with an index only [code], and the shares of Figure 6: visits with a hit
        ("expert(s) hit") and visits with hits only ("2 experts hit").
        """
        seen, visits = max(self.hits + self.misses, 1), max(self.visits, 1)
        return {
            "hits": self.hits,
            "misses": self.misses,
            "hit_rate": self.hits / seen,
            "any_hit_rate": self.visits_with_hit / visits,
            "all_hit_rate": self.visits_of_hits / visits,
        }


POLICY = ExpertCache
