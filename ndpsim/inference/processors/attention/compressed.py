"""Compressed attention of DeepSeek-V4 (`ndpsim.workload.models.compressed`).

- A query meets p vectors of tokens and entries, each of which is key and value for all heads: 4 p heads
  head_size operations. Each one that some query meets is read once.
- A compressor adds position biases, makes a softmax over the tokens of an entry, and sums them with these
  weights: it reads the vectors and weights of new tokens and what it has kept of earlier ones, and writes
  entries and what it keeps.
- The result of heads is projected by groups, then together.

Not counted: the exponentials of weights, and rotations.
"""

from __future__ import annotations

from fractions import Fraction

from ndpsim.inference.processors.attention import index
from ndpsim.inference.processors.operations import ACTIVATION_BYTES, AnyStep, Operation, product
from ndpsim.workload.models import CompressedAttention


def operations(
    attention: CompressedAttention, hidden: int, step: AnyStep, bits: int | Fraction
) -> list[Operation]:
    """The projections, the cache's new entries, the compressors, the index, and queries with entries."""
    down, up, vector, *_, first, last = attention.matrices(hidden)
    tokens, results = step.tokens, attention.heads * attention.head_size
    made = attention.compressor_matrices(hidden)
    done = [
        product("attention", down.name, [down], tokens, bits),
        product("attention", up.name, [up], tokens, bits),
        product("attention", "kv_proj", [vector, *made], tokens, bits),
    ]
    if attention.index:
        matrices = attention.index_matrices(hidden)
        done += index.of_entries(attention, attention.index, matrices, step, bits)
    flops, read = 4 * step.pairs(attention) * results, _attended_bytes(attention, step)
    activations = 2 * tokens * results * ACTIVATION_BYTES
    return [
        *done,
        _entries(attention, step),
        Operation(
            "attention",
            "attend",
            flops,
            0,
            activations,
            read,
            attends=True,
            exponentials=step.pairs(attention) * attention.heads,
        ),
        # Each group of heads has its own columns: the product reads all results.
        product("attention", first.name, [first], tokens, bits)._replace(
            activation_bytes=tokens * (results + first.rows) * ACTIVATION_BYTES
        ),
        product("attention", last.name, [last], tokens, bits),
    ]


def _entries(attention: CompressedAttention, step: AnyStep) -> Operation:
    """The compressors, and what is written to the cache."""
    projected = 2 * attention.series * attention.entry_values if attention.rate else 0
    kept = sum(
        count * (attention.waiting_values(context - new) + attention.waiting_values(context))
        for count, new, context in step.groups
    )
    entries = sum(
        count * (attention.entries(context) - attention.entries(context - new))
        for count, new, context in step.groups
    )
    # A bias, a product and a sum for each of the tokens of an entry.
    flops = 3 * entries * attention.rate * attention.series * attention.entry_values
    cached = -(-(step.tokens * attention.head_size + entries * attention.entry_values) * step.kv_bits // 8)
    activations = step.tokens * (projected + attention.head_size) * ACTIVATION_BYTES
    return Operation("attention", "cache_entries", flops, 0, activations, cached + kept * ACTIVATION_BYTES)


def _attended_bytes(attention: CompressedAttention, step: AnyStep) -> int:
    """Bytes of the vectors and entries that queries meet."""
    values = sum(count * attention.attended_values(context, new) for count, new, context in step.groups)
    return -(-values * step.kv_bits // 8)
