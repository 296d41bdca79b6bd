"""The weights of a model as a file stores them: every tensor with its format."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ndpsim.base.annotated import Annotated
from ndpsim.base.arguments import choice
from ndpsim.workload.models.blocks import Block

#: Classes of tensors: a routed expert's matrices, the dense parts, and tensors that only the file has.
CLASSES = (
    "gate",
    "up",
    "down",
    "attention",
    "shared_experts",
    "dense_layers",
    "router",
    "embedding",
    "head",
    "norms",
    "mla_copies",
    "others",
)


@dataclass(frozen=True)
class Tensor:
    """Matrices of one format: `count` of `rows` x `columns`.

    `name`: the name in GGUF. `layer`: its layer; None: it belongs to no layer. `group`: one of `CLASSES`.
    """

    name: str
    layer: int | None
    group: str
    block: Block
    count: int
    rows: int
    columns: int

    @property
    def weights(self) -> int:
        """The number of weights."""
        return self.count * self.rows * self.columns

    @property
    def bytes(self) -> int:
        """The bytes in the file."""
        return self.block.size(self.count * self.rows, self.columns)


@dataclass(frozen=True)
class WeightFile(Annotated):
    """The tensors of a model in a weight file. `source`: where the recipe of the file is published."""

    name: str
    model: str
    source: str
    tensors: tuple[Tensor, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all tensors, as llama.cpp prints a model's size; without the file's metadata."""
        return sum(tensor.bytes for tensor in self.tensors)

    def of_class(self, group: str) -> tuple[Tensor, ...]:
        """The tensors of one of `CLASSES`.

        Raises:
            InputError: there is no such class.
        """
        choice(group, "group", CLASSES, "class of tensors")
        return tuple(tensor for tensor in self.tensors if tensor.group == group)

    @functools.cached_property
    def bits(self) -> Mapping[str, Fraction]:
        """Mean bits of a weight, including scales, for each class that the model has."""
        bits = {}
        for group in CLASSES:
            if tensors := self.of_class(group):
                size = sum(tensor.bytes for tensor in tensors)
                bits[group] = Fraction(8 * size, sum(tensor.weights for tensor in tensors))
        return bits

    def blocks(self, group: str) -> Counter[Block]:
        """The number of weights of a class in each format."""
        counted: Counter[Block] = Counter()
        for tensor in self.of_class(group):
            counted[tensor.block] += tensor.weights
        return counted

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.name, self.model, self.source, self.tensors))

    def __hash__(self) -> int:
        """The hash of thousands of tensors, computed once."""
        return self._hash
