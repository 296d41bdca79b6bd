"""Reads the attention of a model's layers from its `config.json`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ndpsim.base.errors import one_of, shortened, shown
from ndpsim.workload.models._config import Config
from ndpsim.workload.models._read_index import SPARSE, read_index
from ndpsim.workload.models._read_state import STATE_TYPE, layers_with_state, read_state
from ndpsim.workload.models.attention import Attention, Network
from ndpsim.workload.models.compressed import CompressedAttention
from ndpsim.workload.models.expert import MAX_HEADS, MAX_SIZE, whole_number
from ndpsim.workload.models.families import Family
from ndpsim.workload.models.indexed import Index
from ndpsim.workload.models.shape import LayerAttention, MixedAttention

# Keys of attention that is not supported: state-space, sparse, and linear attention by other rules.
_OTHER_KINDS = re.compile(
    r"linear_attn|attn_type_list|^index(er)?_|mamba|^ssm_|short_conv|conv_L_|kv_channels"
)

# Rules for a window in some layers, which older configuration classes have instead of `layer_types`.
_WINDOW_RULES = ("sliding_window_pattern", "max_window_layers")

_FULL, _SLIDING, _CHUNKED, _LINEAR = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "linear_attention",
)
_INDEXED = "indexed_attention"
_NETWORK, _NOTHING = "network", "none"  # in place of attention
_BLOCKS = {"M": _LINEAR, "*": _FULL, "-": _NETWORK, "E": _NOTHING}
_KINDS = (_FULL, _SLIDING, _CHUNKED, _LINEAR, _INDEXED)
# Names of the same kinds, where the type of the model says which state it is.
_SAME_KIND = {"attention": _FULL, "mamba": _LINEAR, "conv": _LINEAR}
# Older names of Transformers.
_INDEXED_TOO = ("deepseek_sparse_attention", "qwen_sparse_attention", "minimax_m3_sparse")
# Rules by which Transformers makes `layer_types`.
_LAYER_RULES = (
    "full_attention_interval",
    "hybrid_layer_pattern",
    "global_attn_every_n_layers",
    "layer_group_size",
    "attn_type_list",
    "prefix_dense_sliding_window_pattern",
    SPARSE,
)
# Kinds of Transformers that are not modelled.
_OTHER_NAMES = (
    "attention",
    "compressed_sparse_attention",
    "conv",
    "heavily_compressed_attention",
    "hybrid",
    "hybrid_sliding",
    "mamba",
    "moe",
    "recurrent",
    "reference_sliding_attention",
)

# Sizes of layers with a window, and of the others, where they differ.
_OF_SLIDING = {
    "num_attention_heads": ("num_sliding_attention_heads", "swa_num_attention_heads"),
    "num_key_value_heads": ("swa_num_key_value_heads",),
    "head_dim": ("swa_head_dim",),
    "v_head_dim": ("swa_v_head_dim",),
}
_OF_FULL = {"num_key_value_heads": ("num_global_key_value_heads",), "head_dim": ("global_head_dim",)}
_OF_KINDS = (
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "attention_chunk_size",
    "num_key_value_heads",
    "head_dim",
)
_BY_LAYER = (
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "v_head_dim",
    "sliding_window",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
)


def read_attention(
    config: Config, family: Family, hidden: int, layers: int, blocks: Sequence[str] = ()
) -> LayerAttention | MixedAttention | None:
    """The attention of the layers; None if the file does not describe it, or describes another kind.

    The keys are those of Hugging Face. Keys and values: `num_attention_heads`; `num_key_value_heads`, one for
    each head where it is missing; `head_dim`, `hidden_size` over the heads where it is missing; with
    `kv_lora_rank` instead `q_lora_rank` (none: queries are not compressed), `qk_nope_head_dim`,
    `qk_rope_head_dim` and `v_head_dim`; `sliding_window`, unless `use_sliding_window` is false;
    `attention_chunk_size`; `attn_output_gate`. The gated delta rule: `linear_num_key_heads` and those beside
    it. Which layers have which: `blocks`, the letters of layers of a single block; `layer_types`;
    `full_attention_interval`; `no_rope_layers` or `no_rope_layer_interval` where there is a chunk; one window
    for all otherwise.

    Raises:
        InputError: a value is out of range, numbers of heads do not divide each other, or a kind or a rule is
            unknown.
    """
    if config.find(("num_attention_heads", "n_heads")) is None:
        return None
    for key in _OF_KINDS:
        config.values.get(key)  # sizes of kinds that no layer may have
    _check_head_size(config)
    names = [_BLOCKS[letter] for letter in blocks] or _names(config, family, layers)
    changed = _changes(config, layers)
    for layer in _without_index(config, layers) if family.index else ():
        changed.setdefault(layer, {})["index_n_heads"] = None
    for layer in _without_rope(config, layers) if family.some_without_rope else ():
        changed.setdefault(layer, {}).update(_all_without_rope(config))
    known: dict[tuple[str, tuple[tuple[str, Any], ...]], LayerAttention] = {}
    of_layer = []
    for layer, name in enumerate(names):
        kind = name, tuple(sorted(changed.get(layer, {}).items(), key=lambda item: item[0]))
        if kind not in known:
            known[kind] = _of_kind(config, family, hidden, *kind)
        of_layer.append(known[kind])
    kinds = list(dict.fromkeys(of_layer))
    if len(kinds) == 1:
        return kinds[0]
    return MixedAttention(tuple(kinds), tuple(map(kinds.index, of_layer)))


def _check_head_size(config: Config) -> None:
    """Refuse a size of heads with latent vectors that is not the sum of its parts: classes differ here."""
    parts = ("qk_nope_head_dim", "qk_rope_head_dim")
    if config.find(("kv_lora_rank",)) and all(config.find((key,)) for key in (*parts, "qk_head_dim")):
        stated = config.integer(("qk_head_dim",), MAX_SIZE)
        size = sum(config.integer((key,), MAX_SIZE, low=0) for key in parts)
        if stated != size:
            problem = f"{stated} is not the sum of {parts[0]} and {parts[1]}, {size}"
            raise config.error("qk_head_dim", problem, code="conflict")


def _of_kind(
    config: Config, family: Family, hidden: int, name: str, changed: tuple[tuple[str, Any], ...]
) -> LayerAttention:
    """The attention of layers of that name, with the sizes that are changed in them."""
    for keys in (*_OF_SLIDING.values(), *_OF_FULL.values()):
        config.find(keys)
    own = dict(changed)
    equal = name == _FULL and family.equal_keys and config.flag_or(False, "attention_k_eq_v")
    others = _OF_SLIDING if name == _SLIDING else _OF_FULL if name == _FULL else {}
    for key, names in others.items():
        found = config.find(names)
        if found is not None and (key == "head_dim" or equal or not family.equal_keys):
            own.setdefault(key, config.integer((found,), MAX_SIZE))
    if name == _SLIDING and family.sliding_kv_heads > 1 and "num_key_value_heads" not in own:
        common = config.integer(("num_key_value_heads",), MAX_HEADS)
        own["num_key_value_heads"] = family.sliding_kv_heads * common
    if own:
        config = config.overlaid(own)
    if name in (_NETWORK, _NOTHING):
        return Network(config.integer(family.dense_intermediate, MAX_SIZE) if name == _NETWORK else 0)
    if family.compressed:
        return read_compressed(config, name)
    if name == _LINEAR:
        return read_state(config, family.state, hidden)
    with_keys = replace(_with_keys(config, family, hidden), values_of_keys=equal)
    if family.index and name in ((_INDEXED,) if family.index == "blocks" else (_FULL, _INDEXED)):
        with_keys = replace(with_keys, index=read_index(config, family.index, with_keys))
    return _limited(config, with_keys, name)


def _changes(config: Config, layers: int) -> dict[int, dict[str, Any]]:
    """The sizes that single layers have: `per_layer_config`, `num_attention_heads_per_layer`.

    Raises:
        InputError: a layer does not exist, or something other than attention differs.
    """
    found: dict[int, dict[str, Any]] = {}
    heads = config.list_of("num_attention_heads_per_layer")
    for layer, count in enumerate(config.list_of("num_attention_heads_per_layer", layers) if heads else ()):
        if problem := whole_number(count, 1, MAX_HEADS):
            raise config.error("num_attention_heads_per_layer", f"entry {layer}: {problem}", code="form")
        found[layer] = {"num_attention_heads": count}
    for name, values in config.object_of("per_layer_config").items():
        if not re.fullmatch("[0-9]{1,6}", name) or int(name) >= layers or not isinstance(values, dict):
            problem = f"{shortened(name)} is not one of {layers} layers, or has no JSON object"
            raise config.error("per_layer_config", problem, code="form")
        for key, value in values.items():
            if value is not None and (problem := whole_number(value, 1, MAX_SIZE)):
                raise config.error(
                    "per_layer_config", f"{shortened(key)} of layer {name}: {problem}", code="form"
                )
            if key not in _BY_LAYER:
                problem = f"{shortened(key)} of layer {name} is not understood; known: {', '.join(_BY_LAYER)}"
                raise config.error("per_layer_config", problem, code="unknown-key")
        found.setdefault(int(name), {}).update(values)
    return found


def attention_problem(config: Config, family: Family, layers: int) -> str:
    """Message for attention that is not modelled, with the key that says so; empty if there is none."""

    def of(key: str, problem: str) -> str:
        return str(config.error(key, problem, code="unsupported"))

    if family.attention_problem:
        return of("model_type", f"{config.values.get('model_type')}: {family.attention_problem}")
    for key, value in config.values.items():
        # MiniMax-M2 lists its layers, all of them with keys and values: 1.
        listed = isinstance(value, list) and all(entry == 1 for entry in value)
        plain = key == STATE_TYPE or (key == "attn_type_list" and listed)
        if value and not plain and key not in family.answered and _OTHER_KINDS.search(key):
            return of(key, "describes attention that is not modelled")
        if plain:
            config.values.get(key)
    if family.compressed:
        return ""
    if family.index == "pools" and config.find(("indexer_n_heads",)) is None:
        return of("indexer_n_heads", "missing; the sizes of the index have no default")
    sources = config.list_of("kv_source_layers") if family.some_without_rope else []
    if sources and sources != list(range(layers)):
        return of("kv_source_layers", "layers that use the cache of another are not modelled")
    if family.blocks:
        return ""
    has_state = family.state != Family.state
    if has_state and family.attention_pattern and config.find(family.attention_pattern) is None:
        first, *others = family.attention_pattern
        nor = f" (nor {', '.join(others)})" if others else ""
        return of(first, f"missing{nor}; which layers have a state is not known")
    for name in config.list_of("layer_types", layers if config.find(("layer_types",)) else None):
        indexed = _is_indexed(name) and not family.index
        if indexed or (name in _OTHER_NAMES and not (has_state and name in _SAME_KIND)):
            return of("layer_types", f"{name} is attention that is not modelled")
        if name == _LINEAR and not has_state and config.find(("linear_num_key_heads",)) is None:
            return of("layer_types", "linear_attention without linear_num_key_heads is not modelled")
    return ""


def _is_indexed(name: object) -> bool:
    return name in (_INDEXED, *_INDEXED_TOO)


def _window(config: Config) -> int:
    """Tokens of the sliding window; 0 if there is none."""
    if config.values.get("use_sliding_window") is False:
        return 0
    return config.integer_or(0, ("sliding_window", "sliding_window_size"), MAX_SIZE)


def _names(config: Config, family: Family, layers: int) -> list[str]:
    """For each layer the name of its kind, as in `layer_types`."""
    window, other = (config.values.get(key) for key in ("sliding_window", "sliding_window_size"))
    if None not in (window, other) and window != other:
        problem = f"is not the sliding_window of {shown(window)}"
        raise config.error("sliding_window_size", problem, code="conflict")
    if family.compressed:
        return compressed_names(config, layers)
    if family.attention_pattern and config.find(family.attention_pattern) is None:
        raise config.error(
            family.attention_pattern[0], "missing; the attention of each layer is not known", code="missing"
        )
    if config.find(("layer_types",)):
        names = [_INDEXED if _is_indexed(name) else name for name in config.list_of("layer_types", layers)]
        for key in _LAYER_RULES:
            config.values.get(key)  # the list has what they say
        if family.state != Family.state:
            names = [_SAME_KIND.get(name, name) if isinstance(name, str) else name for name in names]
        for layer, name in enumerate(names):
            if name not in _KINDS:
                wrong = one_of(name, _KINDS, "kind of attention")
                raise config.error("layer_types", f"entry {layer}: {wrong}", code="form")
        return names
    if with_state := layers_with_state(config, family.state, layers):
        return [_LINEAR if flag else _FULL for flag in with_state]
    if family.index == "blocks" and config.find((SPARSE,)):
        inner = config.part(SPARSE)
        if inner.find(("sparse_attention_freq",)):
            return [_INDEXED if flag else _FULL for flag in inner.flags_of("sparse_attention_freq", layers)]
    if config.find(("hybrid_layer_pattern",)):
        return [_SLIDING if flag else _FULL for flag in config.flags_of("hybrid_layer_pattern", layers)]
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


def _without_index(config: Config, layers: int) -> list[int]:
    """The layers that use the choice of the layer before.

    `indexer_types` lists "full" and "shared"; `index_topk_pattern` has a letter, F or S, for each layer;
    otherwise each `index_topk_freq`-th layer from `index_skip_topk_offset` - 1 on, and those before it,
    choose, as GlmMoeDsaConfig has it.
    """
    if config.find(("indexer_types",)):
        kinds = config.list_of("indexer_types", layers)
        for layer, kind in enumerate(kinds):
            if kind not in ("full", "shared"):
                raise config.error("indexer_types", f'entry {layer} is neither "full" nor "shared"', "form")
        return [layer for layer, kind in enumerate(kinds) if kind == "shared"]
    pattern = config.values.get("index_topk_pattern")
    if pattern is not None:
        if not isinstance(pattern, str) or len(pattern) != layers or set(pattern) - set("FS"):
            raise config.error("index_topk_pattern", f"is not a text of {layers} letters F and S", "form")
        return [layer for layer, letter in enumerate(pattern) if letter == "S"]
    every = config.integer_or(1, ("index_topk_freq",), MAX_SIZE, low=1)
    offset = config.integer_or(2, ("index_skip_topk_offset",), MAX_SIZE)
    return [layer for layer in range(layers) if max(layer - offset + 1, 0) % every]


def _chunked(config: Config, layers: int) -> list[str]:
    """Llama 4: layers that rotate queries and keys by position have chunks; the others have no limit."""
    without = _without_rope(config, layers)
    return [_FULL if layer in without else _CHUNKED for layer in range(layers)]


def _without_rope(config: Config, layers: int) -> list[int]:
    """The layers that do not rotate queries and keys: a 0 in `no_rope_layers`, or one in an interval."""
    if config.list_of("no_rope_layers"):
        flags = config.flags_of("no_rope_layers", layers)
    else:
        every = config.integer_or(4, ("no_rope_layer_interval",), MAX_SIZE, low=1)
        flags = [(layer + 1) % every != 0 for layer in range(layers)]
    return [layer for layer, flag in enumerate(flags) if not flag]


def _all_without_rope(config: Config) -> dict[str, int]:
    """The sizes of latent attention in such a layer: what would carry the position does not."""
    rope = config.integer(("qk_rope_head_dim",), MAX_SIZE, low=0)
    return {
        "qk_rope_head_dim": 0,
        "qk_nope_head_dim": config.integer(("qk_nope_head_dim",), MAX_SIZE) + rope,
    }


def _limited(config: Config, softmax: Attention, name: str) -> LayerAttention:
    """The attention of layers of that name; `softmax` has no window and no chunk."""
    if name == _SLIDING:
        return replace(softmax, window=config.integer(("sliding_window", "sliding_window_size"), MAX_SIZE))
    if name == _CHUNKED:
        return replace(softmax, chunk=config.integer(("attention_chunk_size",), MAX_SIZE))
    return softmax


def _with_keys(config: Config, family: Family, hidden: int) -> Attention:
    """Attention to all tokens, with keys and values."""
    heads = config.integer(("num_attention_heads", "n_heads"), MAX_HEADS)
    if config.find(("kv_lora_rank",)):
        for key in ("num_key_value_heads", "head_dim"):
            config.values.get(key)  # keys and values of all heads are made of one vector
        rope = config.integer(("qk_rope_head_dim",), MAX_SIZE, low=0)
        return Attention(
            heads=heads,
            kv_heads=heads,
            head_size=config.integer(("qk_nope_head_dim",), MAX_SIZE) + rope,
            value_size=config.integer(("v_head_dim",), MAX_SIZE),
            query_rank=config.integer_or(0, ("q_lora_rank",), MAX_SIZE),
            latent_rank=config.integer(("kv_lora_rank",), MAX_SIZE),
            rope_size=rope,
            gated=family.gated_attention,
            head_gated=family.head_gates,
            gate_of_queries=family.gate_of_queries,
        )
    kv_heads = config.integer_or(heads, ("num_key_value_heads", "kv_n_heads"), MAX_HEADS, low=1)
    if heads % kv_heads:
        raise config.error(
            "num_key_value_heads", f"{kv_heads} cannot be shared evenly by {heads} heads", code="conflict"
        )
    if config.find(("head_dim",)) is None and hidden % heads and not family.rounds_head_size:
        raise config.error(
            "num_attention_heads", f"{heads} do not divide the hidden size of {hidden}", code="conflict"
        )
    size = config.integer_or(hidden // heads, ("head_dim",), MAX_SIZE, low=1)
    values = config.integer_or(size, ("v_head_dim",), MAX_SIZE, low=1)
    gating = config.values.get("gating")
    by_head = family.head_gates if gating is None else gating in (True, "per-head")
    gated = config.flag_or(family.gated_attention, "attn_output_gate") or gating == "per-element"
    return Attention(heads, kv_heads, size, values, gated=gated, head_gated=by_head)


# ---- Compressed attention, of DeepSeek-V4


_WINDOW, _CHOSEN, _ALL = (
    "sliding_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
)
_COMPRESSED_KINDS = (_WINDOW, _CHOSEN, _ALL)
# Tokens of an entry by default, and the keys of published files.
_RATES = {_CHOSEN: 4, _ALL: 128}
_RATE_KEYS = {_CHOSEN: "compress_rate_csa", _ALL: "compress_rate_hca"}


def compressed_names(config: Config, layers: int) -> list[str]:
    """The kind of each layer: `layer_types`, `compress_ratios` of published files, or the rule of the class.

    Raises:
        InputError: a list is malformed.
    """
    ratios = config.list_of("compress_ratios")  # may count layers that predict further tokens
    if config.find(("layer_types",)):
        names = config.list_of("layer_types", layers)
        for layer, name in enumerate(names):
            if name not in _COMPRESSED_KINDS:
                wrong = one_of(name, _COMPRESSED_KINDS, "kind of attention")
                raise config.error("layer_types", f"entry {layer}: {wrong}", code="form")
        return names
    if ratios:
        kinds: dict[Any, str] = {0: _WINDOW, **{rate: kind for kind, rate in _RATES.items()}}
        if len(ratios) < layers:
            raise config.error(
                "compress_ratios", f"has {len(ratios)} entries for {layers} layers", "conflict"
            )
        for layer, ratio in enumerate(ratios[:layers]):
            if whole_number(ratio, 0, MAX_SIZE) or ratio not in kinds:
                problem = f"entry {layer}: {shortened(str(ratio))} is none of 0, 4 and 128"
                raise config.error("compress_ratios", problem, code="form")
        return [kinds[ratio] for ratio in ratios[:layers]]
    return [_CHOSEN if layer > 1 and layer % 2 else _ALL for layer in range(layers)]


def read_compressed(config: Config, name: str) -> CompressedAttention:
    """The attention of the layers of a kind.

    Raises:
        InputError: a value is out of range or missing, or sizes do not fit each other.
    """
    if config.integer_or(1, ("num_key_value_heads",), MAX_HEADS) != 1:
        raise config.error("num_key_value_heads", "is not 1: a token has one vector", code="conflict")
    heads, groups = (
        config.integer(("num_attention_heads",), MAX_HEADS),
        config.integer(("o_groups",), MAX_HEADS),
    )
    if heads % groups:
        raise config.error("o_groups", f"{heads} heads are not equal groups of this number", code="conflict")
    index = Index(
        config.integer(("index_topk",), MAX_SIZE),
        config.integer(("index_n_heads",), MAX_HEADS),
        config.integer(("index_head_dim",), MAX_SIZE),
    )
    return CompressedAttention(
        heads=heads,
        head_size=config.integer(("head_dim",), MAX_SIZE),
        query_rank=config.integer(("q_lora_rank",), MAX_SIZE),
        output_groups=groups,
        output_rank=config.integer(("o_lora_rank",), MAX_SIZE),
        window=config.integer(("sliding_window",), MAX_SIZE),
        rate=_rate(config, name),
        index=index if name == _CHOSEN else None,
    )


def _rate(config: Config, name: str) -> int:
    """Tokens of an entry: keys of published files, `compress_rates`, or the default; 0 without entries."""
    rates = config.part("compress_rates")
    found = {kind: config.find((key,)) for kind, key in _RATE_KEYS.items()}
    if name == _WINDOW:
        return 0
    if key := found[name]:
        return config.integer((key,), MAX_SIZE)
    return rates.integer_or(_RATES[name], (name,), MAX_SIZE, low=1)
