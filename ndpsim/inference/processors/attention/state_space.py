"""State-space layers and lightning attention: a state S with a decay a that the token, or the head, gives.

A head has a state S of d_v x d_k numbers, and for every token S <- a S + v k^T, o = S q (in Mamba-2, arXiv
2405.21060, k is B, q is C and v is X with its time step).

- One new token: a S, the outer product, the sum, and S q are 5 d_k d_v operations a head.
- More new tokens in chunks of c, the last one filled up: q k^T of a group, 2 c^2 d_k; of a head its decays,
  c^2, their product with v, 2 c^2 d_v, the chunk's state and its use, 4 c d_k d_v, and 2 d_k d_v from chunk
  to chunk. Mamba-2 takes five kernels (mamba_chunk_scan_combined of mamba-ssm: sums, states, their passing,
  products, scan), lightning attention four (lightning_attention of vLLM). Between them q k^T is written and
  read once, and states twice.
- Mamba (arXiv 2312.00752) has a state of d_k numbers for each channel. One kernel (selective_scan of
  mamba-ssm) makes 7 d_k operations a channel and token: dt A, dt B x (2), a S, the sum, and S C (2).

Not counted: exponentials, softplus, the skip D x.
"""

from __future__ import annotations

from ndpsim.inference.processors.operations import ACTIVATION_BYTES, AnyStep
from ndpsim.workload.models.recurrent import Lightning, SelectiveScan, StateSpace

_KERNELS = {StateSpace: 5, Lightning: 4}


def rule(attention: StateSpace | Lightning, step: AnyStep) -> tuple[int, int, int]:
    """Operations, bytes between kernels, and kernels; all sequences have one new token, or all have more."""
    keys, values, heads = attention.key_size, attention.value_size, attention.value_heads
    if step.new_tokens == 1:
        return 5 * step.tokens * attention.state_values, 0, 1
    length = attention.chunk
    of_group = 2 * length * length * keys
    of_head = length * length * (1 + 2 * values) + (4 * length + 2) * keys * values
    between = attention.key_heads * length * length + 2 * heads * keys * values
    chunks = step.chunks(length)
    flops = chunks * (attention.key_heads * of_group + heads * of_head)
    return flops, 2 * chunks * between * ACTIVATION_BYTES, _KERNELS[type(attention)]


def scan(attention: SelectiveScan, step: AnyStep) -> tuple[int, int, int]:
    """Operations, bytes between kernels, and kernels of Mamba's scan."""
    return 7 * step.tokens * attention.state_values, 0, 1
