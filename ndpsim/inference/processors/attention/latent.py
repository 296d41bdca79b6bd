"""Multi-head latent attention (MLA), after section 2.1 of DeepSeek-V2 (arXiv 2405.04434).

- One new token: as with keys and values, with the latent vector in their place (kv_b_proj is applied to the
  query and to the result): 2 p heads (2 latent_rank + rope_size) operations; the cached latent vectors are
  read once.
- More new tokens: kv_b_proj makes keys and values of all of the context, which are written and read once,
  then as with keys and values.

- With an index (DeepSeek-V3.2, arXiv 2512.02556), always with latent vectors, as multi-query attention: p
  counts the chosen tokens alone, and their latent vectors are read once (of many new tokens, at most all).

In a step with sequences of both kinds each kind has its own kernels, as in vLLM
(vllm/model_executor/layers/attention/mla_attention.py).
"""

from __future__ import annotations

from fractions import Fraction

from ndpsim.inference.processors.attention import index
from ndpsim.inference.processors.operations import (
    ACTIVATION_BYTES,
    AnyStep,
    Operation,
    output_gate,
    product,
)
from ndpsim.workload.models import Attention, Matrix


def operations(
    attention: Attention, hidden: int, step: AnyStep, bits: int | Fraction, attending: AnyStep | None
) -> list[Operation]:
    """The projections, the cache's new entries, and queries with latent vectors.

    attending: `step`, or its sequences with several new tokens: others meet latent vectors elsewhere.
    """
    matrices = {matrix.name: matrix for matrix in attention.matrices(hidden)}
    output, expand = matrices.pop("o_proj"), matrices.pop("kv_b_proj")
    tokens = step.tokens
    entries, cached = tokens * attention.cached_values * ACTIVATION_BYTES, step.cached(attention, tokens)
    weights = -(-expand.rows * expand.columns * bits // 8)
    attend: list[Operation] = []
    projections = [name for name in matrices if not name.startswith("indexer.")]
    for part in step.by_kernel:
        by = _with_vectors if part.new_tokens == 1 or attention.index else _with_keys
        done = by(attention, expand, part, weights)
        elsewhere = part.new_tokens == 1 and attending is not step
        attend += [one for one in done if not (elsewhere and one.name == "attend")]
    return [
        *(product("attention", name, [matrices[name]], tokens, bits) for name in projections),
        Operation("attention", "cache_entries", 0, 0, entries, cached),
        *index.operations(attention, hidden, step, bits),
        *attend,
        *output_gate(attention, tokens),
        product("attention", "o_proj", [output], tokens, bits),
    ]


def _with_vectors(attention: Attention, expand: Matrix, step: AnyStep, weights: int) -> list[Operation]:
    """Queries with cached latent vectors; `weights`: bytes of kv_b_proj."""
    heads, rank = attention.heads, attention.latent_rank
    # The queries' part of kv_b_proj before attention, the values' part behind it, head by head.
    moved = step.tokens * (expand.rows + 2 * heads * rank) * ACTIVATION_BYTES
    flops = 2 * expand.rows * expand.columns * step.tokens
    around = heads * (2 * rank + attention.rope_size)
    activations = step.tokens * around * ACTIVATION_BYTES
    cache, pairs = step.attended_bytes(attention), step.pairs(attention)
    return [
        Operation("attention", "kv_b_proj", flops, weights, moved, kernels=2),
        Operation(
            "attention",
            "attend",
            2 * pairs * around,
            0,
            activations,
            cache,
            attends=True,
            exponentials=pairs * heads,
            latent=True,
        ),
    ]


def _with_keys(attention: Attention, expand: Matrix, step: AnyStep, weights: int) -> list[Operation]:
    """Queries with the keys and values that are made of latent vectors; `weights`: bytes of kv_b_proj."""
    all_tokens = step.attended(attention)
    flops = 2 * expand.rows * expand.columns * all_tokens
    cache, made = step.attended_bytes(attention), all_tokens * expand.rows * ACTIVATION_BYTES
    around = attention.heads * (attention.head_size + attention.value_size)
    keys = all_tokens * (expand.rows + attention.rope_size)
    activations, pairs = (step.tokens * around + keys) * ACTIVATION_BYTES, step.pairs(attention)
    return [
        Operation("attention", "kv_b_proj", flops, weights, made, cache),
        Operation(
            "attention",
            "attend",
            2 * pairs * around,
            0,
            activations,
            attends=True,
            exponentials=pairs * attention.heads,
        ),
    ]
