"""Linear attention by the gated delta rule (Yang et al., "Gated Delta Networks", arXiv 2412.06464).

A head has a state S of d_v x d_k numbers, and for every token, with a decay a and a share b,

    S <- a S (I - b k k^T) + b v k^T,    o = S q.

- One new token, as torch_recurrent_gated_delta_rule of Transformers has it: a S, S k, the sum with the outer
  product, and S q are 7 d_k d_v operations a head. The state is read and written once.
- More new tokens, as torch_chunk_gated_delta_rule has it, in chunks of c = 64 tokens, the last one filled up.
  A chunk takes of each head c^2 (6 d_k + 4 d_v) operations within the chunk (k k^T, q k^T, and three products
  with c x c matrices), c (c - 1) (2 c - 1) / 3 to solve for the triangular one, and 6 c d_k d_v + d_k d_v
  with the state. Six kernels (chunk_gated_delta_rule of flash-linear-attention) write and read once what the
  next one needs: the c x c matrix, three vectors a token (d_k, d_v, d_v) and each chunk's state.

The convolution makes 2 operations for each token, channel and tap. Not counted: norms of queries and keys,
gates a and b, and the sums of d_v entries.
"""

from __future__ import annotations

from fractions import Fraction

from ndpsim.inference.processors.operations import ACTIVATION_BYTES, AnyStep, Operation, product
from ndpsim.workload.models import LinearAttention

_CHUNK = 64
_CHUNK_KERNELS = 6


def operations(
    attention: LinearAttention, hidden: int, step: AnyStep, bits: int | Fraction
) -> list[Operation]:
    """The projections, the convolution, the delta rule, and the gated norm of the result."""
    *projections, convolution, output = attention.matrices(hidden)
    tokens, results = step.tokens, attention.value_heads * attention.value_size
    # The last tokens, if there are any, are read before the step and written after it.
    kept = -(-step.state_moves * attention.convolution_bits // 8)
    convolved = Operation(
        "attention",
        "conv1d",
        2 * convolution.rows * convolution.columns * tokens,
        -(-convolution.rows * convolution.columns * bits // 8),
        2 * tokens * attention.channels * ACTIVATION_BYTES,
        kept,
    )
    return [
        *(product("attention", matrix.name, [matrix], tokens, bits) for matrix in projections),
        convolved,
        *(_rule(attention, part) for part in step.by_kernel),
        # The result and the gate are read, and the product of its norm is written.
        Operation("attention", "norm_and_gate", 0, 0, 3 * tokens * results * ACTIVATION_BYTES),
        product("attention", "out_proj", [output], tokens, bits),
    ]


def _rule(attention: LinearAttention, step: AnyStep) -> Operation:
    """The delta rule on sequences that all have one new token, or all have more."""
    # Queries, keys, values and results; the numbers a and b of each head.
    results = attention.value_heads * attention.value_size
    vectors = step.tokens * (attention.channels + results + 2 * attention.value_heads) * ACTIVATION_BYTES
    state = -(-step.state_moves * attention.state_values * attention.state_bits // 8)
    flops, between, kernels = (_recurrent if step.new_tokens == 1 else _chunked)(attention, step)
    return Operation("attention", "delta_rule", flops, 0, vectors + between, state, kernels, attends=True)


def _recurrent(attention: LinearAttention, step: AnyStep) -> tuple[int, int, int]:
    """Operations, bytes between kernels, and kernels, for one new token of each sequence."""
    return 7 * step.tokens * attention.state_values, 0, 1


def _chunked(attention: LinearAttention, step: AnyStep) -> tuple[int, int, int]:
    """Operations, bytes between kernels, and kernels, for more than one new token of each sequence."""
    length, keys, values = _CHUNK, attention.key_size, attention.value_size
    chunks = attention.value_heads * step.chunks(length)
    within = length * length * (6 * keys + 4 * values) + length * (length - 1) * (2 * length - 1) // 3
    with_state = (6 * length + 1) * keys * values
    between = length * length + length * (keys + 2 * values) + keys * values
    return chunks * (within + with_state), 2 * chunks * between * ACTIVATION_BYTES, _CHUNK_KERNELS
