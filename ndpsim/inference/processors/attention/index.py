"""The index that chooses tokens, or entries of compressed attention (`ndpsim.workload.models.indexed`).

It has its projections. Each of its queries meets the keys up to it, those of pools where it makes them of its
tokens' keys, with 2 heads index_size operations and the sum over heads. What it caches is read once. Scores
of 4 bytes are written, and read by the choice, which writes numbers of 4 bytes.
"""

from __future__ import annotations

from fractions import Fraction

from ndpsim.inference.processors.operations import ACTIVATION_BYTES, AnyStep, Operation, product
from ndpsim.workload.models import Attention, CompressedAttention, Index, Matrix

_SCORE_BYTES = _NUMBER_BYTES = 4


def operations(attention: Attention, hidden: int, step: AnyStep, bits: int | Fraction) -> list[Operation]:
    """The projections, the scores and the choice of attention over tokens; none without heads of an index."""
    index = attention.index
    if index is None or not index.heads:
        return []
    matrices = index.matrices(attention.query_rank or hidden, hidden)
    ranked = sum(
        count * (index.ranked(context) - index.ranked(context - new)) for count, new, context in step.groups
    )
    chosen = -(-step.pairs(attention) // index.pool) * (index.heads if index.by_head else 1)
    return [*_projections(matrices, step, bits), *_choice(attention, index, step, ranked, chosen)]


def of_entries(
    attention: CompressedAttention,
    index: Index,
    matrices: tuple[Matrix, ...],
    step: AnyStep,
    bits: int | Fraction,
) -> list[Operation]:
    """The projections, the scores and the choice of compressed attention."""
    chosen = sum(
        count * min(new * index.top, attention.index_pairs(context, new))
        for count, new, context in step.groups
    )
    ranked = step.index_pairs(attention)
    return [*_projections(matrices, step, bits), *_choice(attention, index, step, ranked, chosen)]


def _projections(matrices: tuple[Matrix, ...], step: AnyStep, bits: int | Fraction) -> list[Operation]:
    return [product("attention", matrix.name, [matrix], step.tokens, bits) for matrix in matrices]


def _choice(
    attention: Attention | CompressedAttention, index: Index, step: AnyStep, ranked: int, chosen: int
) -> tuple[Operation, Operation]:
    """The scores, and the choice of `chosen` among `ranked` of them."""
    queries = step.tokens * index.heads * (index.size + index.weighted) * ACTIVATION_BYTES
    scores = ranked * _SCORE_BYTES
    flops = step.index_pairs(attention) * index.pair_operations
    read = step.index_bytes(attention)
    return (
        Operation("attention", "indexer.scores", flops, 0, queries + scores, read, attends=True),
        Operation("attention", "indexer.choice", 0, 0, scores + chosen * _NUMBER_BYTES),
    )
