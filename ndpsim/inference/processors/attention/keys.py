"""Attention with keys and values (MHA, GQA, MQA), to all tokens, in a sliding window or in chunks.

A step whose queries meet p keys makes 2 p heads (head_size + value_size) operations, as softmax(Q K^T) V has
it (arXiv 1706.03762), and reads each key and value that some query meets once. A token at position i, from 0,
meets the i + 1 keys up to its own; in a window of w (arXiv 2310.06825) the last w of them; in chunks of c
(create_chunked_causal_mask in Transformers) those since the last multiple of c. The new tokens' keys and
values are all written; those that no later token needs are then dropped. With an index p
counts the chosen tokens alone.
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
from ndpsim.workload.models import Attention


def operations(
    attention: Attention, hidden: int, step: AnyStep, bits: int | Fraction, attending: AnyStep | None
) -> list[Operation]:
    """The projections, the cache's new entries, queries with keys and values, and the gate, if any.

    attending: the sequences whose queries meet keys here; None: there are none.
    """
    *projections, output = (m for m in attention.matrices(hidden) if not m.name.startswith("indexer."))
    tokens, results = step.tokens, attention.heads * attention.value_size
    around = attention.heads * attention.head_size + results
    entries, cached = tokens * attention.cached_values * ACTIVATION_BYTES, step.cached(attention, tokens)
    done = [
        product("attention", "qkv_proj", projections, tokens, bits),
        Operation("attention", "cache_entries", 0, 0, entries, cached),
        *index.operations(attention, hidden, step, bits),
    ]
    if attending is not None:
        flops, activations = (
            2 * attending.pairs(attention) * around,
            attending.tokens * around * ACTIVATION_BYTES,
        )
        read = attending.attended_bytes(attention)
        exponentials = attending.pairs(attention) * attention.heads
        done.append(
            Operation(
                "attention", "attend", flops, 0, activations, read, attends=True, exponentials=exponentials
            )
        )
    return [*done, *output_gate(attention, tokens), product("attention", "o_proj", [output], tokens, bits)]
