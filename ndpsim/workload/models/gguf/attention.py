"""The attention of the layers of a GGUF file, from the sizes of its tensors and the metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ndpsim.base.errors import InputError
from ndpsim.workload.models.attention import Attention, LinearAttention
from ndpsim.workload.models.expert import MAX_HEADS, MAX_SIZE, whole_number
from ndpsim.workload.models.gguf.header import Array, TensorInfo
from ndpsim.workload.models.shape import LayerAttention, MixedAttention

if TYPE_CHECKING:
    Layer = Mapping[str, TensorInfo]

# Every n-th layer attends to all tokens, as llama.cpp's loader says for files that do not.
_FULL_EVERY = {"gpt-oss": 2, "llama4": 4, "gemma3": 6, "cohere2": 4, "exaone4": 4, "olmo2": 4}
_CHUNKS = {"llama4": 8192}


class Metadata(Protocol):
    """The metadata of an architecture."""

    hidden: int
    architecture: str

    def value(self, key: str) -> Any:
        """The value under `key`; None without it."""

    def number(self, key: str, high: int, default: int | None = None, low: int = 1) -> int:
        """A whole number."""

    def error(self, key: str, problem: str, code: Any = "unsupported") -> InputError:
        """The error `problem` of a key."""


def read_attention(
    model: Metadata, layers: Sequence[Layer]
) -> tuple[LayerAttention | MixedAttention | None, str]:
    """The attention of the layers; None and the reason if it is not modelled."""
    try:
        kinds = [_of_layer(model, number, layer, len(layers)) for number, layer in enumerate(layers)]
    except InputError as error:
        if error.code not in ("unsupported", "missing"):
            raise
        return None, str(error)
    known = list(dict.fromkeys(kinds))
    if len(known) == 1:
        return known[0], ""
    return MixedAttention(tuple(known), tuple(map(known.index, kinds))), ""


def _of_layer(model: Metadata, number: int, layer: Layer, layers: int) -> LayerAttention:
    if any(key.startswith("indexer.") for key in layer):
        raise model.error("attention.indexer", "sparse attention with an index is not modelled")
    if "attn_kv_a_mqa" in layer:
        return _latent(model, layer)
    if "ssm_out" in layer:
        return _delta(model, layer)
    full = _with_keys(model, number, layer)
    return _limited(model, number, full)


def _per_layer(model: Metadata, key: str, number: int, high: int) -> int:
    """A number of the metadata, the same for all layers or one for each."""
    value = model.value(key)
    if isinstance(value, Array):
        entry: Any = value.values[number] if number < len(value.values) else None
        if problem := whole_number(entry, 1, high):
            raise model.error(key, f"entry {number}: {problem}", "unsupported")
        return int(entry)
    return model.number(key, high)


def _with_keys(model: Metadata, number: int, layer: Layer) -> Attention:
    heads = _per_layer(model, "attention.head_count", number, MAX_HEADS)
    has_own = model.value("attention.head_count_kv") is not None
    kv_heads = _per_layer(model, "attention.head_count_kv", number, MAX_HEADS) if has_own else heads
    if heads % kv_heads:
        problem = f"{kv_heads} cannot be shared evenly by {heads} heads"
        raise model.error("attention.head_count_kv", problem, "conflict")
    size = model.number("attention.key_length", MAX_SIZE, model.hidden // heads)
    values = model.number("attention.value_length", MAX_SIZE, size)
    if "attn_k" in layer:
        size = layer["attn_k"].rows // kv_heads
    if "attn_v" in layer:
        values = layer["attn_v"].rows // kv_heads
    queries, results = heads * size, heads * values
    if "attn_qkv" in layer:
        found, plain = layer["attn_qkv"].rows, queries + kv_heads * (size + values)
    elif "attn_q" in layer and "attn_k" in layer:
        found, plain = layer["attn_q"].rows, queries
    else:
        raise model.error("attention", f"layer {number} has no attention that is understood")
    output = layer.get("attn_output")
    if found not in (plain, plain + results) or output is None or output.columns != results:
        problem = f"the tensors of layer {number} do not have {heads} heads of {size} and {values}"
        raise model.error("attention.head_count", problem)
    return Attention(heads, kv_heads, size, values, gated=found != plain or "attn_gate" in layer)


def _limited(model: Metadata, number: int, full: Attention) -> Attention:
    """Attention with the window or the chunk of a layer."""
    name = model.architecture
    window = model.number("attention.sliding_window", MAX_SIZE, 0, low=0)
    every = _FULL_EVERY.get(name, 0)
    if name in _CHUNKS:
        chunk = model.number("attention.chunk_size", MAX_SIZE, _CHUNKS[name])
        return full if (number + 1) % every == 0 else replace(full, chunk=chunk)
    if not window:
        return full
    pattern = model.value("attention.sliding_window_pattern")
    if isinstance(pattern, Array):
        if number >= len(pattern.values):
            raise model.error("attention.sliding_window_pattern", f"has no entry for layer {number}")
        return replace(full, window=window) if pattern.values[number] else full
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 0:
        every = pattern
    if not every:
        raise model.error("attention.sliding_window", "which layers have the window is not known")
    return full if (number + 1) % every == 0 else replace(full, window=window)


def _first(model: Metadata, *keys: str) -> int:
    """The number under the first of `keys` that exists."""
    key = next((key for key in keys if model.value(key) is not None), keys[-1])
    return model.number(key, MAX_SIZE)


def _latent(model: Metadata, layer: Layer) -> Attention:
    """Multi-head latent attention; keys and values are absorbed in newer files (attn_k_b, attn_v_b)."""
    heads = _per_layer(model, "attention.head_count", 0, MAX_HEADS)
    rank = model.number("attention.kv_lora_rank", MAX_SIZE)
    rope = model.number("rope.dimension_count", MAX_SIZE)
    size = _first(model, "attention.key_length_mla", "attention.key_length")
    values = _first(model, "attention.value_length_mla", "attention.value_length")
    query = layer.get("attn_q_b") or layer.get("attn_q")
    if layer["attn_kv_a_mqa"].rows != rank + rope or query is None or query.rows != heads * size:
        raise model.error("attention.kv_lora_rank", "the tensors have other sizes of latent attention")
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_size=size,
        value_size=values,
        query_rank=query.columns if "attn_q_b" in layer else 0,
        latent_rank=rank,
        rope_size=rope,
    )


def _delta(model: Metadata, layer: Layer) -> LinearAttention:
    """The gated delta net of Qwen3-Next and Qwen3.5: one gate and one decay for a head."""
    if "attn_qkv" not in layer and "ssm_in" not in layer:
        raise model.error("ssm", "layers with this state are not modelled")
    value_heads = model.number("ssm.time_step_rank", MAX_HEADS)
    key_heads = model.number("ssm.group_count", MAX_HEADS)
    inner = model.number("ssm.inner_size", MAX_SIZE)
    if not {"ssm_alpha", "ssm_ba"} & layer.keys() or value_heads % key_heads or inner % value_heads:
        raise model.error("ssm", "layers with this state are not modelled")
    size, convolution = model.number("ssm.state_size", MAX_SIZE), model.number("ssm.conv_kernel", MAX_SIZE)
    found = LinearAttention(key_heads, value_heads, size, inner // value_heads, convolution)
    if layer["ssm_out"].sizes != (inner, model.hidden):
        raise model.error("ssm.inner_size", "the tensors have other sizes of linear attention")
    return found
