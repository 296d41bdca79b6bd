"""Operations of a step on the GPU: their computations and bytes."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Self

from ndpsim.base.arguments import whole_number
from ndpsim.base.errors import InputError
from ndpsim.workload.models import Attention, CompressedAttention, LayerAttention, Matrix

#: Bytes of an activation.
ACTIVATION_BYTES = 2

#: The parts of a layer and, last, the part that occurs once a step.
PARTS = ("attention", "router", "shared_experts", "dense_layer", "head")

#: Bits of a weight of all dense parts, or of each by the names of `dense_weight_bytes`.
DenseBits = int | Mapping[str, Fraction]

#: Equal sequences: their number, their new tokens, and the tokens that the last one attends to, with itself.
Groups = tuple[tuple[int, int, int], ...]

_MAX_COUNT = 1 << 24


class Operation(NamedTuple):
    """One operation of a layer: a kernel, or `kernels` of them.

    `part`: one of `PARTS`. `flops`: products and sums. `weight_bytes`, `activation_bytes`, `cache_bytes`:
    bytes read and written in the GPU's memory. `attends`: whether it is the operation of queries with keys
    and values. `kind`: index of its kind of attention; 0 for the other parts. `exponentials`: of its softmax,
    one for each query, key and head. `latent`: whether the queries meet cached latent vectors.
    """

    part: str
    name: str
    flops: int
    weight_bytes: int
    activation_bytes: int
    cache_bytes: int = 0
    kernels: int = 1
    attends: bool = False
    kind: int = 0
    exponentials: int = 0
    latent: bool = False

    @property
    def bytes(self) -> int:
        """All bytes that it moves."""
        return self.weight_bytes + self.activation_bytes + self.cache_bytes


class OperationTime(NamedTuple):
    """An operation and its time; `bound`: "compute", "memory" or "link"; `kind` as in `Operation`."""

    part: str
    name: str
    time_ns: float
    bound: str
    flops: int
    bytes: int
    kind: int = 0


class _Sizes(ABC):
    """Sizes that follow from the sequences of a step; `kv_bits`: bits of a value in the KV cache."""

    kv_bits: int

    @property
    @abstractmethod
    def groups(self) -> Groups:
        """The sequences, equal ones together."""

    @property
    def by_kernel(self) -> tuple[Self, ...]:
        """Sequences with one new token and sequences with more, since some kernels are for one kind."""
        return (self,)

    @functools.cached_property
    def tokens(self) -> int:
        """New tokens of all sequences."""
        return sum(count * new for count, new, _ in self.groups)

    def chunks(self, length: int) -> int:
        """Chunks of this many tokens, the last one of a sequence filled up, of all sequences."""
        return sum(count * -(-new // length) for count, new, _ in self.groups)

    @property
    def state_moves(self) -> int:
        """How often the state of a sequence is read or written: it is read if the sequence has one."""
        return sum(count * (2 if context > new else 1) for count, new, context in self.groups)

    def pairs(self, attention: Attention | CompressedAttention) -> int:
        """Pairs of query and key of all sequences."""
        of_one = attention.pairs
        return sum([count * of_one(context, new) for count, new, context in self.groups])

    def attended(self, attention: Attention) -> int:
        """Tokens whose keys or latent vectors are read, of all sequences."""
        of_one = attention.attended
        return sum([count * of_one(context, new) for count, new, context in self.groups])

    def attended_bytes(self, attention: Attention) -> int:
        """Bytes of these keys and values, or latent vectors."""
        return -(-self.attended(attention) * attention.attended_values * self.kv_bits // 8)

    def index_pairs(self, attention: Attention | CompressedAttention) -> int:
        """Pairs of query and key of the index, of all sequences."""
        of_one = attention.index_pairs
        return sum([count * of_one(context, new) for count, new, context in self.groups])

    def index_bytes(self, attention: Attention | CompressedAttention) -> int:
        """Bytes of the keys of the index."""
        values = sum([count * attention.index_values(context) for count, _, context in self.groups])
        return -(-values * self.kv_bits // 8)

    def cached(self, attention: Attention, tokens: int) -> int:
        """Bytes that a layer caches of this many tokens."""
        return -(-tokens * attention.cached_values * self.kv_bits // 8)

    def kept_bytes(self, attention: LayerAttention) -> int:
        """Bytes of the cache of a layer."""
        bits, kv_bits = attention.kept_bits, self.kv_bits
        return -(-sum([count * bits(context, kv_bits) for count, _, context in self.groups]) // 8)

    def read_bytes(self, attention: LayerAttention) -> int:
        """Bytes that a layer reads of what is in the cache before the step."""
        bits, kv_bits = attention.read_bits, self.kv_bits
        return -(-sum([count * bits(context, new, kv_bits) for count, new, context in self.groups]) // 8)

    def written_bytes(self, attention: LayerAttention) -> int:
        """Bytes that a layer adds to the cache, or replaces there."""
        bits, kv_bits = attention.written_bits, self.kv_bits
        return -(-sum([count * bits(context, new, kv_bits) for count, new, context in self.groups]) // 8)


@dataclass(frozen=True)
class Step(_Sizes):
    """Sizes of a step: `sequences` with `new_tokens` each; the last one attends to `context` tokens.

    Raises:
        InputError: a number is out of range, or there are more new tokens than the context has.
    """

    sequences: int
    context: int
    new_tokens: int = 1
    kv_bits: int = 16

    def __post_init__(self) -> None:
        most = {"sequences": _MAX_COUNT, "context": _MAX_COUNT, "new_tokens": _MAX_COUNT, "kv_bits": 32}
        for name, largest in most.items():
            object.__setattr__(self, name, whole_number(getattr(self, name), name, 1, largest))
        if self.new_tokens > self.context:
            problem = f"{self.new_tokens} are more than the context of {self.context}"
            raise InputError(problem, "conflict", key="new_tokens")

    @property
    def groups(self) -> Groups:
        """All sequences, which are equal."""
        return ((self.sequences, self.new_tokens, self.context),)


@dataclass(frozen=True)
class MixedStep(_Sizes):
    """Sizes of a step whose sequences differ.

    `lengths`: for each sequence its new tokens, and the tokens that the last one attends to, including
    itself. `numbers`: of the sequences; empty: from 0 on.
    """

    lengths: tuple[tuple[int, int], ...]
    kv_bits: int = 16
    numbers: tuple[int, ...] = ()

    @property
    def sequences(self) -> int:
        """The number of sequences."""
        return len(self.lengths)

    @property
    def new_tokens(self) -> int:
        """Most new tokens of a sequence."""
        return max(new for new, _ in self.lengths)

    @functools.cached_property
    def groups(self) -> Groups:
        """Each sequence by itself."""
        return tuple([(1, new, context) for new, context in self.lengths])

    @property
    def by_kernel(self) -> tuple[MixedStep, ...]:
        """Sequences with one new token, and sequences with more."""
        one = tuple(of for of in self.lengths if of[0] == 1)
        if len(one) in (0, len(self.lengths)):
            return (self,)
        more = tuple(of for of in self.lengths if of[0] > 1)
        return MixedStep(one, self.kv_bits), MixedStep(more, self.kv_bits)


#: A step of equal sequences, or of any.
AnyStep = Step | MixedStep


def bits_of_part(bits: DenseBits, part: str) -> int | Fraction:
    """Bits of a weight of a part in `dense_weight_bytes`.

    Raises:
        InputError: they are not from 1 to 32, or of no such part.
    """
    if not isinstance(bits, Mapping):
        return whole_number(bits, "bits", 1, 32)
    if part not in bits:
        raise InputError(f"has no sizes of {part}", "missing", key="bits")
    return bits[part]


def output_gate(attention: Attention, tokens: int) -> list[Operation]:
    """The gate of the whole result, if any: the result and the gate are read, and the product is written."""
    if not attention.gated:
        return []
    results = attention.heads * attention.value_size
    return [Operation("attention", "output_gate", 0, 0, 3 * tokens * results * ACTIVATION_BYTES)]


def product(
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


def norms(part: str, name: str, hidden: int, tokens: int, count: int) -> Operation:
    """Sums with the residual and their norms: each reads two vectors a token and writes two."""
    return Operation(part, name, 0, 0, count * tokens * 4 * hidden * ACTIVATION_BYTES, kernels=count)


def network(part: str, matrices: Sequence[Matrix], tokens: int, bits: int | Fraction) -> list[Operation]:
    """A feed-forward network: what leads inward together, the activation, down; nothing without matrices.

    matrices: gate, if there is one, up and down.
    """
    if not matrices:
        return []
    *inward, down = matrices
    vectors = (len(inward) + 1) * inward[0].rows * tokens * ACTIVATION_BYTES
    return [
        product(part, "gate_and_up" if len(inward) > 1 else "up", inward, tokens, bits),
        Operation(part, "activation", 0, 0, vectors),
        product(part, "down", [down], tokens, bits),
    ]
