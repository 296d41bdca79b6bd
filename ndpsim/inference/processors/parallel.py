"""Several GPUs that have equal parts of each matrix, of the heads and of each expert (tensor parallel).

They compute at the same time, as in Megatron-LM (arXiv 1909.08053, Section 3): they add up their results
after the embedding and after attention and the feed-forward network of each layer, and collect the logits of
the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ndpsim.base.errors import InputError
from ndpsim.inference.processors.dense import DenseTime
from ndpsim.inference.processors.operations import ACTIVATION_BYTES, AnyStep, OperationTime
from ndpsim.workload.models import (
    CompressedAttention,
    LayerAttention,
    LinearAttention,
    MixedAttention,
    MoeShape,
    Network,
)


@dataclass(frozen=True)
class Exchange:
    """Exchanges between GPUs.

    Attributes:
        gpus: the number of GPUs.
        gbps: the bandwidth of a GPU's link in each direction.
        latency_ns: the time of an exchange besides that of its bytes.
    """

    gpus: int
    gbps: float
    latency_ns: float

    def reduce_ns(self, size: float) -> float:
        """The time of adding up `size` bytes of each GPU in a ring."""
        return self._ns(2 * (self.gpus - 1) / self.gpus * size)

    def gather_ns(self, sizes: Sequence[float]) -> float:
        """The time in which each GPU gets the data of the others, or adds up their parts of its data."""
        return self._ns(sum(sizes) - min(sizes))

    def sum_ns(self, model: MoeShape, step: AnyStep) -> float:
        """The time of adding up a vector for each token of a step; `model`: a GPU's part."""
        return self.reduce_ns(step.tokens * model.hidden * ACTIVATION_BYTES)

    def ends_ns(self, model: MoeShape, step: AnyStep) -> float:
        """The time of adding up embeddings and of collecting logits; `model`: a GPU's part."""
        logits = step.sequences * (model.vocabulary or 0) * ACTIVATION_BYTES
        return self.sum_ns(model, step) + self.gather_ns([logits] * self.gpus)

    def _ns(self, size: float) -> float:
        return 0.0 if self.gpus == 1 else self.latency_ns + size / self.gbps


def tensor_part(model: MoeShape, gpus: int) -> MoeShape:
    """A GPU's part of a model whose matrices are cut into equal parts.

    Raises:
        InputError: heads or sizes cannot be divided into equal parts.
    """

    def part(size: int, what: str) -> int:
        if size % gpus:
            problem = f"{gpus} GPUs cannot share the {size} {what} of {model.name} evenly"
            raise InputError(problem, "unsupported", key="gpu.count")
        return size // gpus

    def of_attention(kind: LayerAttention) -> LayerAttention:
        if isinstance(kind, Network):
            return replace(kind, intermediate=part(kind.intermediate, "columns of a network"))
        if isinstance(kind, LinearAttention):
            key_heads = part(kind.key_heads, "heads of keys")
            return replace(kind, key_heads=key_heads, value_heads=part(kind.value_heads, "heads of values"))
        heads = part(kind.heads, "heads")
        if isinstance(kind, CompressedAttention):
            return replace(kind, heads=heads, output_groups=part(kind.output_groups, "groups of heads"))
        # With fewer heads of keys than GPUs, several GPUs have the same head.
        is_shared = kind.kv_heads < gpus and gpus % kind.kv_heads == 0
        kv_heads = 1 if is_shared else part(kind.kv_heads, "heads of keys")
        return replace(kind, heads=heads, kv_heads=kv_heads)

    attention = model.attention
    if isinstance(attention, MixedAttention):
        attention = replace(attention, kinds=tuple(map(of_attention, attention.kinds)))
    elif attention is not None:
        attention = of_attention(attention)
    return replace(
        model,
        attention=attention,
        expert_intermediate=part(model.expert_intermediate, "columns of an expert"),
        shared_intermediate=part(model.shared_intermediate, "columns of the shared experts"),
        dense_intermediate=part(model.dense_intermediate, "columns of a dense layer"),
        vocabulary=None if model.vocabulary is None else -(-model.vocabulary // gpus),
    )


def with_exchanges(part: DenseTime, model: MoeShape, step: AnyStep, exchange: Exchange) -> DenseTime:
    """Times of a GPU's part of a model (`model`), with the exchanges of a step.

    A layer's attention has both of its exchanges: what follows waits for them.
    """
    if exchange.gpus == 1:
        return part
    sum_ns, ends_ns = exchange.sum_ns(model, step), exchange.ends_ns(model, step)
    size = step.tokens * model.hidden * ACTIVATION_BYTES
    sums = [
        OperationTime("attention", "sums_of_gpus", 2 * sum_ns, "link", 0, 2 * size, kind)
        for kind in range(len(part.attention))
    ]
    attention = tuple(replace(one, time_ns=one.time_ns + 2 * sum_ns) for one in part.attention)
    return replace(
        part,
        attention_ns=part.attention_ns + 2 * sum_ns,
        head_ns=part.head_ns + ends_ns,
        operations=(
            *part.operations,
            *sums,
            OperationTime("head", "sums_of_gpus", ends_ns, "link", 0, size, 0),
        ),
        attention=attention,
    )
