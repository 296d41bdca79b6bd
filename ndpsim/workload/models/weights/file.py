"""A model's weights in a named file: every tensor with its format."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from typing import NamedTuple

from ndpsim.base.arguments import text
from ndpsim.base.errors import InputError, unknown
from ndpsim.workload.models.attention import Attention
from ndpsim.workload.models.expert import Expert, Matrix
from ndpsim.workload.models.reader import load_moe_model
from ndpsim.workload.models.shape import LayerAttention, MoeShape
from ndpsim.workload.models.weights.blocks import BLOCKS, Block
from ndpsim.workload.models.weights.recipes import RECIPES, Recipe

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
)

_ATTENTION = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "q_a_proj": "attn_q_a",
    "q_b_proj": "attn_q_b",
    "kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "kv_b_proj": "attn_kv_b",
}
_REPACKED = ("_r4", "_r8")


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
        return self.count * self.rows * self.block.row_size(self.columns)


@dataclass(frozen=True)
class WeightFile:
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
        """The tensors of one of `CLASSES`."""
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

    def blocks(self, group: str) -> Counter[str]:
        """The number of weights of a class in each format, by its name."""
        counted: Counter[str] = Counter()
        for tensor in self.of_class(group):
            counted[tensor.block.name] += tensor.weights
        return counted


def weight_names() -> list[str]:
    """The names of all known weight files, sorted."""
    return sorted(RECIPES)


def weight_name(weights: str) -> str:
    """The name in `weight_names`: in lower case, without "_r4" and "_r8" of repacked variants.

    Raises:
        InputError: there is no such file.
    """
    name = text(weights, "weights").strip().lower().replace("ud_", "ud-")
    for suffix in _REPACKED:
        if name not in RECIPES:
            name = name.removesuffix(suffix)
    if name not in RECIPES:
        raise unknown(name, RECIPES, "weight file", key="weights")
    return name


def weight_file(weights: str, model: str | PathLike[str] | MoeShape) -> WeightFile:
    """The tensors of a model in a weight file such as "q4_k_m".

    Raises:
        InputError: the file or model does not exist, or the model's file lacks values for attention or
            vocabulary.
    """
    return _made(weight_name(weights), load_moe_model(model))


@functools.lru_cache(maxsize=64)
def _made(name: str, model: MoeShape) -> WeightFile:
    recipe = RECIPES[name]
    return WeightFile(name, model.name, recipe.source, tuple(_tensors(recipe, model)))


def _block(recipe: Recipe, tensor: str, layer: int, columns: int, model: MoeShape) -> Block:
    """The format of a tensor, or the fallback if its rows are not whole blocks."""
    fits = (rule.block for rule in recipe.rules if rule.fits(tensor, layer, model))
    block = BLOCKS[next(fits, recipe.block)]
    while columns % block.weights:
        block = BLOCKS[block.fallback or "f16"]
    return block


def _tensors(recipe: Recipe, model: MoeShape) -> Iterator[Tensor]:
    if model.attention is None or model.vocabulary is None:
        what = "attention" if model.attention is None else "its vocabulary"
        problem = f"{model.name} does not describe {what}, which a weight file needs"
        raise InputError(problem, "missing", key="weights")

    def made(layer: int | None, stored: _Stored) -> Tensor:
        block = _block(recipe, stored.name, layer or 0, stored.columns, model)
        return Tensor(stored.name, layer, stored.group, block, stored.times, stored.rows, stored.columns)

    # A tied embedding is stored once, in the format of the head.
    embedding = "output" if model.tied_embeddings else "token_embd"
    yield made(None, _Stored(embedding, "embedding", model.vocabulary, model.hidden))
    if not model.tied_embeddings:
        yield made(None, _Stored("output", "head", model.vocabulary, model.hidden))
    yield made(None, _Stored("output_norm", "norms", 1, model.hidden))
    for layer in range(model.layers):
        network = _dense(model) if layer in model.dense_layers else _experts(model)
        kind = model.attention_kinds[model.kind_of_layer[layer]]
        for stored in (*_attention(model, kind, recipe.mla_copies), *network):
            yield made(layer, stored)


class _Stored(NamedTuple):
    """A tensor without its format."""

    name: str
    group: str
    rows: int
    columns: int
    times: int = 1


def _attention(model: MoeShape, attention: LayerAttention, mla_copies: bool) -> Iterator[_Stored]:
    """The tensors of a layer's attention, and the norms before it and the feed-forward network."""
    for matrix in attention.matrices(model.hidden):
        name = _ATTENTION.get(matrix.name, f"attn_{matrix.name}")
        yield _Stored(name, "attention", matrix.rows, matrix.columns)
    if mla_copies and isinstance(attention, Attention) and attention.latent_rank:
        keys, rank = attention.head_size - attention.rope_size, attention.latent_rank
        yield _Stored("attn_k_b", "mla_copies", attention.heads * rank, keys)
        yield _Stored("attn_v_b", "mla_copies", attention.heads * attention.value_size, rank)
    yield _Stored("attn_norm", "norms", 2, model.hidden)


def _gated(model: MoeShape, intermediate: int) -> tuple[Matrix, ...]:
    return Expert(model.hidden, intermediate).matrices()


def _dense(model: MoeShape) -> Iterator[_Stored]:
    for matrix in _gated(model, model.dense_intermediate):
        yield _Stored(f"ffn_{matrix.name}", "dense_layers", matrix.rows, matrix.columns)


def _experts(model: MoeShape) -> Iterator[_Stored]:
    yield _Stored("ffn_gate_inp", "router", model.routed_experts, model.hidden)
    for matrix in model.expert.matrices():
        name = f"ffn_{matrix.name}_exps"
        yield _Stored(name, matrix.name, matrix.rows, matrix.columns, model.routed_experts)
    if model.shared_intermediate:
        for matrix in _gated(model, model.shared_intermediate):
            yield _Stored(f"ffn_{matrix.name}_shexp", "shared_experts", matrix.rows, matrix.columns)
