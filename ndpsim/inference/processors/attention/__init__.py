"""Operations of the GPU for the attention of a layer, with a module for each kind.

`attention_operations` finds the kind of a layer: `keys` (keys and values), `latent` (MLA), `compressed`
(DeepSeek-V4) or `recurrent` (a state in their place). `index` has the choice of tokens. The sizes of caches
are in `ndpsim.workload.models`, with the shapes.
"""

from __future__ import annotations

from fractions import Fraction

from ndpsim.inference.processors.attention import compressed, keys, latent, recurrent
from ndpsim.inference.processors.operations import AnyStep, Operation, network
from ndpsim.workload.models import CompressedAttention, LayerAttention, LinearAttention, Network


def attention_operations(
    attention: LayerAttention,
    hidden: int,
    step: AnyStep,
    bits: int | Fraction,
    attending: AnyStep | None,
) -> list[Operation]:
    """The operations of a layer's attention, without norms; dense weights have `bits` bits.

    attending: the sequences of `step` whose queries meet keys or latent vectors on the GPU; it matters to
        `keys` and `latent` alone.
    """
    if isinstance(attention, Network):
        return network("attention", attention.matrices(hidden), step.tokens, bits)
    if isinstance(attention, LinearAttention):
        return recurrent.operations(attention, hidden, step, bits)
    if isinstance(attention, CompressedAttention):
        return compressed.operations(attention, hidden, step, bits)
    if attention.latent_rank:
        return latent.operations(attention, hidden, step, bits, attending)
    return keys.operations(attention, hidden, step, bits, attending)
