"""Reads the attention of a model's layers from its `config.json`."""

from __future__ import annotations

import re
from dataclasses import replace

from ndpsim.base.errors import one_of
from ndpsim.workload.models._config import Config
from ndpsim.workload.models.attention import Attention, LinearAttention
from ndpsim.workload.models.expert import MAX_SIZE
from ndpsim.workload.models.families import Family
from ndpsim.workload.models.shape import LayerAttention, MixedAttention

_MAX_HEADS = 1 << 16

# Keys of attention that is not supported: state-space, sparse, and linear attention by other rules.
_OTHER_KINDS = re.compile(r"linear_attn|attn_type_list|^index_|mamba|^ssm_")
_STATE_TYPE = "mamba_ssm_dtype"
_STATE_BITS = {"float32": 32, "bfloat16": 16, "float16": 16}

# Rules for a window in some layers, which older configuration classes have instead of `layer_types`.
_WINDOW_RULES = ("sliding_window_pattern", "max_window_layers")

_FULL, _SLIDING, _CHUNKED, _LINEAR = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "linear_attention",
)
_KINDS = (_FULL, _SLIDING, _CHUNKED, _LINEAR)


def read_attention(
    config: Config, family: Family, hidden: int, layers: int
) -> LayerAttention | MixedAttention | None:
    """The attention of the layers; None if the file does not describe it, or describes another kind.

    The keys are those of Hugging Face. Keys and values: `num_attention_heads`; `num_key_value_heads`, one for
    each head where it is missing; `head_dim`, `hidden_size` over the heads where it is missing; with
    `kv_lora_rank` instead `q_lora_rank` (none: queries are not compressed), `qk_nope_head_dim`,
    `qk_rope_head_dim` and `v_head_dim`; `sliding_window`, unless `use_sliding_window` is false;
    `attention_chunk_size`; `attn_output_gate`. The gated delta rule: `linear_num_key_heads` and those beside
    it. Which layers have which: `layer_types`; `full_attention_interval`; `no_rope_layers` or
    `no_rope_layer_interval` where there is a chunk; one window for all otherwise.

    Raises:
        InputError: a value is out of range, numbers of heads do not divide each other, or a kind or a rule is
            unknown.
    """
    if config.find(("num_attention_heads",)) is None or attention_problem(config):
        return None
    names = _names(config, family, layers)
    softmax = _with_keys(config, family, hidden)
    known: dict[str, LayerAttention] = {
        name: _attention_named(config, softmax, name) for name in dict.fromkeys(names)
    }
    kinds = list(dict.fromkeys(known.values()))
    if len(kinds) == 1:
        return kinds[0]
    return MixedAttention(tuple(kinds), tuple(kinds.index(known[name]) for name in names))


def attention_problem(config: Config) -> str:
    """Message for a key of unsupported attention; empty if there is none."""
    for key, value in config.values.items():
        # MiniMax-M2 lists its layers, all of them with keys and values: 1.
        listed = isinstance(value, list) and all(entry == 1 for entry in value)
        plain = key == _STATE_TYPE or (key == "attn_type_list" and listed)
        if value and not plain and _OTHER_KINDS.search(key):
            return str(config.error(key, "describes attention that is not modelled", code="unsupported"))
    return ""


def _window(config: Config) -> int:
    """Tokens of the sliding window; 0 if there is none."""
    if config.values.get("use_sliding_window") is False:
        return 0
    return config.integer_or(0, ("sliding_window",), MAX_SIZE)


def _names(config: Config, family: Family, layers: int) -> list[str]:
    """For each layer the name of its kind, as in `layer_types`."""
    if family.attention_pattern and config.find(family.attention_pattern) is None:
        raise config.error(
            family.attention_pattern[0], "missing; the attention of each layer is not known", code="missing"
        )
    if config.find(("layer_types",)):
        names = config.list_of("layer_types", layers)
        for layer, name in enumerate(names):
            if name not in _KINDS:
                shown = one_of(str(name)[:40], _KINDS, "kind of attention")
                raise config.error("layer_types", f"entry {layer}: {shown}", code="form")
        return names
    if config.find(("full_attention_interval",)):
        every = config.integer(("full_attention_interval",), layers)
        return [_LINEAR if (layer + 1) % every else _FULL for layer in range(layers)]
    if config.find(("attention_chunk_size",)):
        return _chunked(config, layers)
    if not _window(config):
        return [_FULL] * layers
    if rule := config.find(_WINDOW_RULES):
        raise config.error(
            rule,
            "is not understood: layer_types says which layers have the sliding window",
            code="unsupported",
        )
    return [_SLIDING] * layers


def _chunked(config: Config, layers: int) -> list[str]:
    """Llama 4: layers that rotate queries and keys by position have chunks; the others have no limit."""
    if config.list_of("no_rope_layers"):
        flags = config.flags_of("no_rope_layers", layers)
    else:
        every = config.integer_or(4, ("no_rope_layer_interval",), MAX_SIZE, low=1)
        flags = [(layer + 1) % every != 0 for layer in range(layers)]
    return [_CHUNKED if flag else _FULL for flag in flags]


def _attention_named(config: Config, softmax: Attention, name: str) -> LayerAttention:
    """The attention of layers of that name; `softmax` has no window and no chunk."""
    if name == _LINEAR:
        return _linear(config)
    if name == _SLIDING:
        return replace(softmax, window=config.integer(("sliding_window",), MAX_SIZE))
    if name == _CHUNKED:
        return replace(softmax, chunk=config.integer(("attention_chunk_size",), MAX_SIZE))
    return softmax


def _linear(config: Config) -> LinearAttention:
    """The gated delta net of layers of linear attention."""
    key_heads = config.integer(("linear_num_key_heads",), _MAX_HEADS)
    value_heads = config.integer(("linear_num_value_heads",), _MAX_HEADS)
    if value_heads % key_heads:
        problem = f"{value_heads} cannot share {key_heads} heads of keys evenly"
        raise config.error("linear_num_value_heads", problem, code="conflict")
    named = config.string_or("float32", _STATE_TYPE)
    if named not in _STATE_BITS:
        raise config.error(
            _STATE_TYPE, one_of(named[:40], _STATE_BITS, "type of the state"), code="unknown-name"
        )
    return LinearAttention(
        key_heads,
        value_heads,
        config.integer(("linear_key_head_dim",), MAX_SIZE),
        config.integer(("linear_value_head_dim",), MAX_SIZE),
        config.integer(("linear_conv_kernel_dim",), MAX_SIZE),
        _STATE_BITS[named],
    )


def _with_keys(config: Config, family: Family, hidden: int) -> Attention:
    """Attention to all tokens, with keys and values."""
    heads = config.integer(("num_attention_heads",), _MAX_HEADS)
    if config.find(("kv_lora_rank",)):
        rope = config.integer(("qk_rope_head_dim",), MAX_SIZE)
        return Attention(
            heads=heads,
            kv_heads=heads,
            head_size=config.integer(("qk_nope_head_dim",), MAX_SIZE) + rope,
            value_size=config.integer(("v_head_dim",), MAX_SIZE),
            query_rank=config.integer_or(0, ("q_lora_rank",), MAX_SIZE),
            latent_rank=config.integer(("kv_lora_rank",), MAX_SIZE),
            rope_size=rope,
        )
    kv_heads = config.integer_or(heads, ("num_key_value_heads",), _MAX_HEADS, low=1)
    if heads % kv_heads:
        raise config.error(
            "num_key_value_heads", f"{kv_heads} cannot be shared evenly by {heads} heads", code="conflict"
        )
    if config.find(("head_dim",)) is None and hidden % heads:
        raise config.error(
            "num_attention_heads", f"{heads} do not divide the hidden size of {hidden}", code="conflict"
        )
    size = config.integer_or(hidden // heads, ("head_dim",), MAX_SIZE, low=1)
    gated = config.flag_or(family.gated_attention, "attn_output_gate")
    return Attention(heads, kv_heads, size, size, gated=gated)
