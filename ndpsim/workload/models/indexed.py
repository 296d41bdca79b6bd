"""The index of sparse attention, which chooses the tokens that a query attends to.

- An index over tokens: DeepSeek-V3.2 (arXiv 2512.02556, section 2.1), as DeepseekV32Indexer in Transformers.
- An index over pools of tokens, with the tokens behind the last whole pool always chosen: Glm5NextTextIndexer
  (a key for each pool, weighted by gates) and Qwen4ExpTextQSAIndexer (their mean).
- Pools that each head chooses for itself, by the largest score of a token, the query's own pool always among
  them: MiniMaxM3VLIndexer.
"""

from __future__ import annotations

from dataclasses import dataclass

from ndpsim.base.annotated import Annotated
from ndpsim.workload.models.expert import Matrix


@dataclass(frozen=True)
class Index(Annotated):
    """The index of a layer.

    Attributes:
        top: maximum number of tokens that it chooses, those behind the last whole pool not counted.
        heads, size: heads of its queries, and entries of a query and of its one key; 0 heads: the layer uses
            what the layer before it chose.
        pool: tokens that are chosen together.
        by_head: each head chooses for itself, and the pool of the query is always among the chosen ones.
        weighted: each head has a weight, for which there is a projection.
        gated: a pool's key is a sum of its tokens' keys, with weights by a projection that are cached, too,
            as is whether a token counts.
    """

    top: int
    heads: int = 0
    size: int = 0
    pool: int = 1
    by_head: bool = False
    weighted: bool = True
    gated: bool = False

    @property
    def title(self) -> str:
        """Its kind: "index: top of 2048"."""
        pools = f" in pools of {self.pool}" if self.pool > 1 else ""
        return f"index: top of {self.top}{pools}{'' if self.heads else ' of the layer before'}"

    @property
    def cached_values(self) -> int:
        """Values of a token that it caches."""
        if not self.heads:
            return 0
        return 2 * self.size + 1 if self.gated else self.size

    @property
    def values_in_work(self) -> int:
        """Values of a token in memory at once: queries, the weights of heads, and what is cached."""
        return self.heads * (self.size + self.weighted) + self.cached_values

    def pairs(self, tokens: int) -> int:
        """Pairs of query and chosen token of the first tokens of a sequence."""
        if self.by_head:
            return tokens + _pairs_of_pools(tokens - 1, self.top - self.pool, self.pool)
        return _pairs_of_pools(tokens, self.top, self.pool)

    def scored(self, tokens: int) -> int:
        """Pairs of query and key of the index of the first tokens of a sequence."""
        if self.by_head or self.pool == 1:
            return tokens * (tokens + 1) // 2
        return _whole_pools(tokens, self.pool)

    def ranked(self, tokens: int) -> int:
        """Scores among which the first tokens of a sequence choose: of tokens, or of pools."""
        if self.by_head:
            return self.heads * (tokens + _whole_pools(tokens - 1, self.pool))
        return _whole_pools(tokens, self.pool)

    @property
    def pair_operations(self) -> int:
        """Operations for a query and a key: products of all heads, and their sum with weights or without."""
        summed = 0 if self.by_head else 2 if self.weighted else 1
        return self.heads * (2 * self.size + summed)

    def matrices(self, queries: int, hidden: int) -> tuple[Matrix, ...]:
        """Its queries, of a vector of `queries` entries, its key, weights of its heads, and gates."""
        if not self.heads:
            return ()
        weights = (Matrix("indexer.weights_proj", self.heads, hidden),) if self.weighted else ()
        gates = (Matrix("indexer.gate_proj", self.size, hidden),) if self.gated else ()
        return (
            Matrix("indexer.wq_b", self.heads * self.size, queries),
            Matrix("indexer.wk", self.size, hidden),
            *weights,
            *gates,
        )


def _whole_pools(tokens: int, pool: int) -> int:
    """The sum of the whole pools in the first t tokens, over t from 1 to `tokens`."""
    pools, rest = divmod(tokens, pool)
    return pool * pools * (pools - 1) // 2 + pools * (rest + 1) if tokens > 0 else 0


def _pairs_of_pools(tokens: int, top: int, pool: int) -> int:
    """The sum over t from 1 to `tokens` of the chosen ones: `top` in whole pools, and those behind them."""
    whole = min(tokens, top + pool - 1)
    pools, rest = divmod(tokens - whole, pool)
    behind = (pools * pool * (pool - 1) + rest * (rest - 1)) // 2
    return whole * (whole + 1) // 2 + (tokens - whole) * top + behind if tokens > 0 else 0
