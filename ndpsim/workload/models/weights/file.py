"""A model's weights in a named file: every tensor with its format."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from os import PathLike
from typing import NamedTuple

from ndpsim.base.arguments import text
from ndpsim.base.errors import InputError, unknown
from ndpsim.base.units import format_bytes
from ndpsim.workload.models.attention import Attention
from ndpsim.workload.models.blocks import BLOCKS, Block
from ndpsim.workload.models.expert import Expert, Matrix
from ndpsim.workload.models.quantization import Quantization
from ndpsim.workload.models.reader import load_model
from ndpsim.workload.models.shape import LayerAttention, MoeShape
from ndpsim.workload.models.stored import Tensor, WeightFile
from ndpsim.workload.models.weights.recipes import RECIPES, Recipe

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
_UNSAID = ("norms", "mla_copies", "others")
_TOLERANCE = 0.02  # of a model's size: norms, biases and layers that predict further tokens

#: The name of the weights as the model's own file stores them.
OWN = "own"

_log = logging.getLogger(__name__)


def weight_names() -> list[str]:
    """The names of all known weight files, sorted.

    >>> "q4_k_m" in ndpsim.weight_names()
    True
    """
    return sorted(RECIPES)


def weight_name(weights: str) -> str:
    """The name in `weight_names`: in lower case, without "_r4" and "_r8" of repacked variants.

    Raises:
        InputError: there is no such file.
    """
    name = text(weights, "weights").strip().lower().replace("ud_", "ud-")
    if name == OWN:
        return name
    for suffix in _REPACKED:
        if name not in RECIPES:
            name = name.removesuffix(suffix)
    if name not in RECIPES:
        raise unknown(name, RECIPES, "weight file", key="weights")
    return name


def weight_file(weights: str, model: str | PathLike[str] | MoeShape) -> WeightFile:
    """The tensors of a model in a weight file such as "q4_k_m"; "own": as its own file stores them.

    >>> ndpsim.weight_file("q4_k_m", ndpsim.load_model("mixtral-8x7b")).name
    'q4_k_m'

    Raises:
        InputError: the file or model does not exist, the model's file lacks values for attention or
            vocabulary, or does not say how it stores the weights.
    """
    shape = load_model(model)
    name = weight_name(weights)
    if name != OWN:
        return _made(name, shape)
    found = own_weight_file(shape)
    if found is None:
        problem = f"{shape.name} does not say how its weights are stored; name a weight file"
        raise InputError(problem, "missing", key="weights")
    return found


def own_weight_file(model: MoeShape) -> WeightFile | None:
    """The tensors of a model as its own file stores them; None: in the plain type of the model.

    A notice says what is taken, and the size of the files if it differs by more than 2%.

    Raises:
        InputError: the scheme is not understood.
    """
    if model.stored is None:
        return None
    file = _own(model)
    _say_once(model.stored, file)
    return file if isinstance(model.stored, WeightFile) or model.stored.method else None


@functools.lru_cache(maxsize=64)
def _own(model: MoeShape) -> WeightFile:
    stored = model.stored
    if isinstance(stored, WeightFile):
        return stored
    assert stored is not None
    if stored.problem:
        problem = f"{stored.problem}; give bits or a weight file"
        raise InputError(problem, "unsupported", key="weights")
    tensors = _tensors(model, lambda name, layer, columns: stored.block_of(name, layer), mla_copies=False)
    return WeightFile(stored.method or "plain", model.name, stored.source, tuple(tensors))


@functools.lru_cache(maxsize=64)
def _say_once(stored: Quantization | WeightFile, file: WeightFile) -> None:
    """Say what is taken from a file, once for any number of points of a sweep."""
    said = {"notice": True}
    if isinstance(stored, WeightFile) or stored.method:
        parts = {name: float(bits) for name, bits in file.bits.items() if name not in _UNSAID}
        words = ", ".join(f"{name.replace('_', ' ')} {bits:.4g}" for name, bits in parts.items())
        _log.info("weights as %s says (%s), bits with scales: %s", file.source, file.name, words, extra=said)
    if isinstance(stored, Quantization) and stored.total_bytes:
        ratio = file.bytes / stored.total_bytes
        if file.of_class("attention") and file.of_class("embedding") and abs(ratio - 1) > _TOLERANCE:
            _log.warning(
                "%s: weights by these formats are %s, and those of its index %s: %+.1f%%",
                file.model,
                format_bytes(file.bytes),
                format_bytes(stored.total_bytes),
                100 * (ratio - 1),
            )


@functools.lru_cache(maxsize=64)
def _made(name: str, model: MoeShape) -> WeightFile:
    recipe = RECIPES[name]
    if model.attention is None or model.vocabulary is None:
        what = "attention" if model.attention is None else "its vocabulary"
        problem = model.attention_problem or f"{model.name} does not describe {what}"
        raise InputError(f"{problem}, which a weight file needs", "missing", key="weights")

    def block_of(tensor: str, layer: int | None, columns: int) -> Block:
        return _block(recipe, tensor, layer or 0, columns, model)

    return WeightFile(name, model.name, recipe.source, tuple(_tensors(model, block_of, recipe.mla_copies)))


def _block(recipe: Recipe, tensor: str, layer: int, columns: int, model: MoeShape) -> Block:
    """The format of a tensor, or the fallback if its rows are not whole blocks."""
    fits = (rule.block for rule in recipe.rules if rule.fits(tensor, layer, model))
    block = BLOCKS[next(fits, recipe.block)]
    while columns % block.weights:
        block = BLOCKS[block.fallback or "f16"]
    return block


def _tensors(
    model: MoeShape, block_of: Callable[[str, int | None, int], Block], mla_copies: bool
) -> Iterator[Tensor]:
    """The tensors that the shape describes; `block_of`: the format by name, layer and length of a row."""

    def made(layer: int | None, stored: _Stored) -> Tensor:
        block = block_of(stored.name, layer, stored.columns)
        return Tensor(stored.name, layer, stored.group, block, stored.times, stored.rows, stored.columns)

    # A tied embedding is stored once, in the format of the head.
    embedding = "output" if model.tied_embeddings else "token_embd"
    if model.vocabulary is not None:
        yield made(None, _Stored(embedding, "embedding", model.vocabulary, model.hidden))
        if not model.tied_embeddings:
            yield made(None, _Stored("output", "head", model.vocabulary, model.hidden))
    yield made(None, _Stored("output_norm", "norms", 1, model.hidden))
    for layer in range(model.layers):
        network = _dense(model) if layer in model.dense_layers else _experts(model)
        attention = (model.attention_kinds[model.kind_of_layer[layer]],) if model.attention else ()
        for kind in attention:
            yield from (made(layer, stored) for stored in _attention(model, kind, mla_copies))
        yield from (made(layer, stored) for stored in network)


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
