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

Kimi Delta Attention (arXiv 2510.26692) has a decay for each of the d_k entries and the same products, as
recurrent_kimi_delta_attention and chunk_kimi_delta_attention of Transformers.

Not counted: norms of queries and keys, gates a and b, and the sums of d_v entries.
"""

from __future__ import annotations

from ndpsim.inference.processors.operations import ACTIVATION_BYTES, AnyStep
from ndpsim.workload.models import LinearAttention

_CHUNK = 64
_CHUNK_KERNELS = 6


def rule(attention: LinearAttention, step: AnyStep) -> tuple[int, int, int]:
    """Operations, bytes between kernels, and kernels; all sequences have one new token, or all have more."""
    if step.new_tokens == 1:
        return 7 * step.tokens * attention.state_values, 0, 1
    length, keys, values = _CHUNK, attention.key_size, attention.value_size
    chunks = attention.value_heads * step.chunks(length)
    within = length * length * (6 * keys + 4 * values) + length * (length - 1) * (2 * length - 1) // 3
    with_state = (6 * length + 1) * keys * values
    between = length * length + length * (keys + 2 * values) + keys * values
    return chunks * (within + with_state), 2 * chunks * between * ACTIVATION_BYTES, _CHUNK_KERNELS
