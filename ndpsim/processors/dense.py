"""What the GPU computes besides routed experts, as operations, and how long they take.

Each is a list of operations. An operation on the GPU takes

    max(operations / (efficiency x peak), bytes / (memory_efficiency x bandwidth))
    + kernels x kernel_overhead

with attention_efficiency where queries meet keys and values, and compute_efficiency elsewhere. A product of
a matrix of r rows and c columns with n tokens makes 2 r c n operations and moves r c weights, n c inputs
and n r results. Activations have 16 bits.

A step has `sequences` sequences of `new_tokens` tokens each, the last of which attends to `context` tokens,
itself among them: decode has one new token, a prefill as many as the context. A sequence so makes p =
new_tokens x context - new_tokens x (new_tokens - 1) / 2 pairs of query and key, and

- MHA, GQA, MQA: 2 p heads (head_size + value_size) operations; the cached keys and values are read once.
- MLA, one new token: the same with the latent vector in place of keys and values (kv_b_proj is applied to
  the query and to the result): 2 p heads (2 latent_rank + rope_size) operations; the cached latent vectors
  are read once.
- MLA, more new tokens: kv_b_proj makes keys and values of all of the context, which are written and read
  once, then as MHA.

Not modelled: biases, the gate of a shared expert, the embedding of a token (a copy of its row), sliding
windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from ndpsim.arguments import choice, whole_number
from ndpsim.errors import InputError
from ndpsim.moe import Attention, Matrix, MoeShape
from ndpsim.processors.devices import Gpu
from ndpsim.reported import Reported

__all__ = [
    "ACTIVATION_BYTES",
    "PARTS",
    "DenseBits",
    "DenseTime",
    "Operation",
    "OperationTime",
    "Step",
    "bits_of_part",
    "operations",
    "timed",
]

#: Bytes of an activation.
ACTIVATION_BYTES = 2

#: The parts of a layer and, last, what comes once a step.
PARTS = ("attention", "router", "shared_experts", "dense_layer", "head")

#: Bits of a weight of all dense parts, or of each by the names of `dense_weight_bytes`.
DenseBits = int | Mapping[str, Fraction]

_MAX_COUNT = 1 << 24


class Operation(NamedTuple):
    """One operation of a layer: a kernel, or `kernels` of them.

    `part`: one of `PARTS`. `flops`: products and sums. `weight_bytes`, `activation_bytes`, `cache_bytes`:
    read and written in the GPU's memory. `attends`: it is that of queries with keys and values.
    """

    part: str
    name: str
    flops: int
    weight_bytes: int
    activation_bytes: int
    cache_bytes: int = 0
    kernels: int = 1
    attends: bool = False

    @property
    def bytes(self) -> int:
        """All bytes that it moves."""
        return self.weight_bytes + self.activation_bytes + self.cache_bytes


class OperationTime(NamedTuple):
    """An operation and how long it takes; `bound` by "compute" or "memory"."""

    part: str
    name: str
    time_ns: float
    bound: str
    flops: int
    bytes: int


@dataclass(frozen=True)
class Step:
    """What a step computes on: `sequences` of `new_tokens`, the last of which attends to `context` tokens.

    `kv_bits`: of a value in the KV cache.

    Raises:
        InputError: a number is out of range, or there are more new tokens than the context has.
    """

    sequences: int
    context: int
    new_tokens: int = 1
    kv_bits: int = 16

    def __post_init__(self) -> None:
        for name, most in (("sequences", _MAX_COUNT), ("context", _MAX_COUNT), ("new_tokens", _MAX_COUNT)):
            object.__setattr__(self, name, whole_number(getattr(self, name), name, 1, most))
        object.__setattr__(self, "kv_bits", whole_number(self.kv_bits, "kv_bits", 1, 32))
        if self.new_tokens > self.context:
            raise InputError(
                f"{self.new_tokens} are more than the context of {self.context}", key="new_tokens"
            )

    @property
    def tokens(self) -> int:
        """New tokens of all sequences."""
        return self.sequences * self.new_tokens

    @property
    def pairs(self) -> int:
        """Pairs of query and key of all sequences."""
        new = self.new_tokens
        return self.sequences * (new * self.context - new * (new - 1) // 2)

    def cached(self, attention: Attention, tokens: int) -> int:
        """Bytes that a layer caches of so many tokens."""
        return -(-tokens * attention.cached_values * self.kv_bits // 8)


@dataclass(frozen=True, repr=False, eq=False)
class DenseTime(Reported):
    """How long the GPU takes for what are no routed experts.

    `attention_ns`, `router_ns`, `shared_ns`, `dense_layer_ns`: of one layer that has it, 0 where none has;
    `head_ns`: the head of the vocabulary, once a step. `kv`: where the cache lies. `kv_read_bytes` and
    `kv_write_bytes`: what a layer reads of it and adds to it; `host_read_bytes` and `host_write_bytes`: how
    much of that goes over the host's channels and PCIe, which `attention_ns` has no time for. `operations`:
    all of it.
    """

    attention_ns: float
    router_ns: float
    shared_ns: float
    dense_layer_ns: float
    head_ns: float
    kv: str
    kv_read_bytes: int
    kv_write_bytes: int
    host_read_bytes: int
    host_write_bytes: int
    operations: tuple[OperationTime, ...]


def attention_of(model: MoeShape) -> Attention:
    """The attention of a model.

    Raises:
        InputError: its file does not say enough.
    """
    if model.attention is None:
        problem = "says nothing of attention that is understood: num_attention_heads and the keys beside it"
        raise InputError(f"{model.name} {problem}", key="model")
    return model.attention


def vocabulary_of(model: MoeShape) -> int:
    """The tokens of a model's vocabulary.

    Raises:
        InputError: its file does not say.
    """
    if model.vocabulary is None:
        raise InputError(f"{model.name} says nothing of its vocabulary: vocab_size", key="model")
    return model.vocabulary


def bits_of_part(bits: DenseBits, part: str) -> int | Fraction:
    """Bits of a weight of one of the parts that `dense_weight_bytes` names.

    Raises:
        InputError: they are not from 1 to 32, or of no such part.
    """
    if not isinstance(bits, Mapping):
        return whole_number(bits, "bits", 1, 32)
    if part not in bits:
        raise InputError(f"says nothing of {part}", key="bits")
    return bits[part]


def operations(model: MoeShape, step: Step, bits: DenseBits = 16) -> tuple[Operation, ...]:
    """What the GPU does in one layer of each kind and, part "head", once a step; weights have `bits` bits.

    Raises:
        InputError: the model's file says too little, or a token attends to more than its sliding window.
    """
    attention, of_attention = attention_of(model), bits_of_part(bits, "attention")
    if attention.window and step.context > attention.window:
        problem = f"{step.context} is beyond the sliding window of {attention.window}, which is not modelled"
        raise InputError(problem, key="context")
    hidden, tokens = model.hidden, step.tokens
    done = [
        _norms("attention", "norms", hidden, tokens, 2),
        *_attention(attention, hidden, step, of_attention),
    ]
    router = Matrix("gate", model.routed_experts, hidden)
    done.append(
        _product("router", "gate_and_top_k", [router], tokens, bits_of_part(bits, "router"), kernels=2)
    )
    if model.shared_intermediate:
        of_shared = bits_of_part(bits, "shared_experts")
        done += _feed_forward("shared_experts", hidden, model.shared_intermediate, tokens, of_shared)
    if model.dense_layers:
        of_layer = bits_of_part(bits, "dense_layers")
        done += _feed_forward("dense_layer", hidden, model.dense_intermediate, tokens, of_layer)
    head = Matrix("lm_head", vocabulary_of(model), hidden)
    done.append(_norms("head", "norm", hidden, step.sequences, 1))
    done.append(_product("head", "lm_head", [head], step.sequences, bits_of_part(bits, "head")))
    return tuple(done)


def timed(gpu: Gpu, model: MoeShape, step: Step, kv: str, bits: DenseBits) -> DenseTime:
    """How long `gpu` takes for `operations`, with the cache in its memory or in the host's (`kv`).

    Raises:
        InputError: as `operations`, or `kv` is neither "gpu" nor "host".
    """
    kv = choice(kv, "kv", ("gpu", "host"), "place of the cache")
    done = tuple(_operation_time(gpu, one) for one in operations(model, step, bits))
    attention = attention_of(model)
    read = step.cached(attention, step.sequences * (step.context - step.new_tokens))
    written = step.cached(attention, step.tokens)

    def together(part: str) -> float:
        return sum((one.time_ns for one in done if one.part == part), 0.0)

    return DenseTime(
        attention_ns=together("attention"),
        router_ns=together("router"),
        shared_ns=together("shared_experts"),
        dense_layer_ns=together("dense_layer"),
        head_ns=together("head"),
        kv=kv,
        kv_read_bytes=read,
        kv_write_bytes=written,
        host_read_bytes=read if kv == "host" else 0,
        host_write_bytes=written if kv == "host" else 0,
        operations=done,
    )


def _operation_time(gpu: Gpu, one: Operation) -> OperationTime:
    compute_ns = gpu.compute_ns(one.flops, gpu.attention_efficiency if one.attends else None)
    memory_ns = gpu.read_ns(one.bytes)
    time_ns = max(compute_ns, memory_ns) + one.kernels * gpu.kernel_overhead_ns
    bound = "compute" if compute_ns >= memory_ns else "memory"
    return OperationTime(one.part, one.name, time_ns, bound, one.flops, one.bytes)


def _product(
    part: str, name: str, matrices: Iterable[Matrix], tokens: int, bits: int | Fraction, kernels: int = 1
) -> Operation:
    """Matrices of equal columns, multiplied by the same `tokens` inputs."""
    rows, columns = 0, 0
    for matrix in matrices:
        rows, columns = rows + matrix.rows, matrix.columns
    activations = tokens * (rows + columns) * ACTIVATION_BYTES
    return Operation(
        part, name, 2 * rows * columns * tokens, -(-rows * columns * bits // 8), activations, kernels=kernels
    )


def _norms(part: str, name: str, hidden: int, tokens: int, count: int) -> Operation:
    """Sums with the residual and their norms: each reads two vectors a token and writes two."""
    return Operation(part, name, 0, 0, count * tokens * 4 * hidden * ACTIVATION_BYTES, kernels=count)


def _feed_forward(
    part: str, hidden: int, intermediate: int, tokens: int, bits: int | Fraction
) -> list[Operation]:
    """A gated feed-forward network: gate and up at once, the activation, down."""
    gate, up = (Matrix(name, intermediate, hidden) for name in ("gate", "up"))
    return [
        _product(part, "gate_and_up", [gate, up], tokens, bits),
        Operation(part, "activation", 0, 0, 3 * intermediate * tokens * ACTIVATION_BYTES),
        _product(part, "down", [Matrix("down", hidden, intermediate)], tokens, bits),
    ]


def _attention(attention: Attention, hidden: int, step: Step, bits: int | Fraction) -> list[Operation]:
    """The projections, the cache's new entries, and queries with keys and values."""
    matrices = {matrix.name: matrix for matrix in attention.matrices(hidden)}
    output = matrices.pop("o_proj")
    expand = matrices.pop("kv_b_proj", None)
    tokens, done = step.tokens, []
    if expand is None:
        done.append(_product("attention", "qkv_proj", matrices.values(), tokens, bits))
    else:
        done += [_product("attention", name, [matrix], tokens, bits) for name, matrix in matrices.items()]
    entries = tokens * attention.cached_values * ACTIVATION_BYTES
    done.append(Operation("attention", "cache_entries", 0, 0, entries, step.cached(attention, tokens)))
    done += _with_keys(attention, step) if expand is None else _with_latent(attention, expand, step, bits)
    done.append(_product("attention", "o_proj", [output], tokens, bits))
    return done


def _with_keys(attention: Attention, step: Step) -> list[Operation]:
    """Queries with cached keys and values."""
    around = attention.heads * (attention.head_size + attention.value_size)
    cache = step.cached(attention, step.sequences * step.context)
    activations = step.tokens * around * ACTIVATION_BYTES
    return [Operation("attention", "attend", 2 * step.pairs * around, 0, activations, cache, attends=True)]


def _with_latent(attention: Attention, expand: Matrix, step: Step, bits: int | Fraction) -> list[Operation]:
    """Queries with cached latent vectors, or with the keys and values that are made of them."""
    heads, rank = attention.heads, attention.latent_rank
    all_tokens = step.sequences * step.context
    weights = -(-expand.rows * expand.columns * bits // 8)
    if step.new_tokens == 1:
        # The queries' part of kv_b_proj before attention, the values' part behind it, head by head.
        moved = step.tokens * (expand.rows + 2 * heads * rank) * ACTIVATION_BYTES
        flops = 2 * expand.rows * expand.columns * step.tokens
        around = heads * (2 * rank + attention.rope_size)
        activations = step.tokens * around * ACTIVATION_BYTES
        cache = step.cached(attention, all_tokens)
        return [
            Operation("attention", "kv_b_proj", flops, weights, moved, kernels=2),
            Operation("attention", "attend", 2 * step.pairs * around, 0, activations, cache, attends=True),
        ]
    flops = 2 * expand.rows * expand.columns * all_tokens
    cache, made = step.cached(attention, all_tokens), all_tokens * expand.rows * ACTIVATION_BYTES
    around = heads * (attention.head_size + attention.value_size)
    activations = (step.tokens * around + all_tokens * (expand.rows + attention.rope_size)) * ACTIVATION_BYTES
    return [
        Operation("attention", "kv_b_proj", flops, weights, made, cache),
        Operation("attention", "attend", 2 * step.pairs * around, 0, activations, attends=True),
    ]
