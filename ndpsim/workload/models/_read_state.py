"""Reads which layers have a state in place of keys and values, and the state, by the kind of a family."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ndpsim.base.errors import one_of
from ndpsim.workload.models._config import Config
from ndpsim.workload.models.attention import LinearAttention
from ndpsim.workload.models.expert import MAX_HEADS, MAX_SIZE, whole_number
from ndpsim.workload.models.recurrent import (
    KimiDelta,
    Lightning,
    SelectiveScan,
    ShortConvolution,
    StateSpace,
)

#: The key of the type of a state.
STATE_TYPE = "mamba_ssm_dtype"
_GROUPS = ("n_groups", "mamba_n_groups")
_STATE_BITS = {"float32": 32, "bfloat16": 16, "float16": 16}


def read_state(config: Config, kind: str, hidden: int) -> LinearAttention:
    """The layers of a kind: a key of `_KINDS`.

    Raises:
        InputError: a value is out of range or missing, or sizes do not fit each other.
    """
    return _KINDS[kind](config, hidden)


def _state_bits(config: Config, key: str) -> int:
    """The bits of a number of a state, by the name of their type; float32 by default."""
    named = config.string_or("float32", key)
    if named not in _STATE_BITS:
        raise config.error(key, one_of(named, _STATE_BITS, "type of the state"), code="unknown-name")
    return _STATE_BITS[named]


def _gated_delta(config: Config, hidden: int) -> LinearAttention:
    key_heads = config.integer(("linear_num_key_heads",), MAX_HEADS)
    value_heads = config.integer(("linear_num_value_heads",), MAX_HEADS)
    if value_heads % key_heads:
        problem = f"{value_heads} cannot share {key_heads} heads of keys evenly"
        raise config.error("linear_num_value_heads", problem, code="conflict")
    state_bits = _state_bits(config, STATE_TYPE)
    return LinearAttention(
        key_heads,
        value_heads,
        config.integer(("linear_key_head_dim",), MAX_SIZE),
        config.integer(("linear_value_head_dim",), MAX_SIZE),
        config.integer(("linear_conv_kernel_dim",), MAX_SIZE),
        state_bits,
    )


def _kimi_low_rank(config: Config, hidden: int) -> LinearAttention:
    """Kimi Linear; as published its sizes are in `linear_attn_config`."""
    inner = config.part("linear_attn_config")
    for key in ("full_attn_layers", "kda_layers"):
        inner.values.get(key)  # layer_types, if it is there, has what they say

    def size(of_file: str, saved: str, most: int) -> int:
        return inner.integer((of_file,), most) if inner.find((of_file,)) else config.integer((saved,), most)

    heads = size("num_heads", "linear_num_heads", MAX_HEADS)
    width = size("head_dim", "linear_head_dim", MAX_SIZE)
    taps = size("short_conv_kernel_size", "linear_conv_kernel_dim", MAX_SIZE)
    return KimiDelta(heads, heads, width, width, taps, gate_rank=width)


def _kimi_full(config: Config, hidden: int) -> LinearAttention:
    """Bailing; saved files have the head size as `linear_head_dim`, published ones as `head_dim`."""
    heads = config.integer(("linear_num_heads", "num_attention_heads"), MAX_HEADS)
    width = config.integer(("linear_head_dim", "head_dim"), MAX_SIZE)
    taps = config.integer(("short_conv_kernel_size", "linear_conv_kernel_dim"), MAX_SIZE)
    return KimiDelta(heads, heads, width, width, taps)


def _mamba_2(config: Config, hidden: int) -> LinearAttention:
    heads = config.integer(("mamba_n_heads",), MAX_HEADS)
    inner = config.integer_or(2, ("mamba_expand",), MAX_SIZE, low=1) * hidden
    groups = config.integer(("mamba_n_groups",), MAX_HEADS)
    width = config.values.get("mamba_d_head")
    size = inner // heads if width in (None, "auto") else config.integer(("mamba_d_head",), MAX_SIZE)
    if size * heads != inner or heads % groups:
        problem = f"{heads} of {size} entries in {groups} groups are not mamba_expand x hidden_size, {inner}"
        raise config.error("mamba_n_heads", problem, code="conflict")
    return StateSpace(
        key_heads=groups,
        value_heads=heads,
        key_size=config.integer(("mamba_d_state",), MAX_SIZE),
        value_size=size,
        convolution=config.integer(("mamba_d_conv",), MAX_SIZE),
        chunk=config.integer_or(256, ("mamba_chunk_size",), MAX_SIZE, low=1),
    )


def _mamba_2_of_blocks(config: Config, hidden: int) -> LinearAttention:
    """Nemotron-H: its heads, and not `expand`, give the inner size."""
    heads, groups = config.integer(("mamba_num_heads",), MAX_HEADS), config.integer(_GROUPS, MAX_HEADS)
    if heads % groups:
        problem = f"{heads} heads cannot share {groups} groups evenly"
        raise config.error("mamba_num_heads", problem, code="conflict")
    state_bits = _state_bits(config, "mamba_ssm_cache_dtype")
    return StateSpace(
        key_heads=groups,
        value_heads=heads,
        key_size=config.integer(("ssm_state_size",), MAX_SIZE),
        value_size=config.integer(("mamba_head_dim",), MAX_SIZE),
        convolution=config.integer(("conv_kernel", "mamba_d_conv"), MAX_SIZE),
        state_bits=state_bits,
        chunk=config.integer_or(128, ("chunk_size", "mamba_chunk_size"), MAX_SIZE, low=1),
    )


def _mamba(config: Config, hidden: int) -> LinearAttention:
    rank = config.values.get("mamba_dt_rank")
    return SelectiveScan(
        key_heads=1,
        value_heads=config.integer(("mamba_expand",), MAX_SIZE) * hidden,
        key_size=config.integer(("mamba_d_state",), MAX_SIZE),
        value_size=1,
        convolution=config.integer(("mamba_d_conv",), MAX_SIZE),
        rank=-(-hidden // 16) if rank in (None, "auto") else config.integer(("mamba_dt_rank",), MAX_SIZE),
    )


def _lightning(config: Config, hidden: int) -> LinearAttention:
    heads = config.integer(("num_attention_heads",), MAX_HEADS)
    size = config.integer_or(hidden // heads, ("head_dim",), MAX_SIZE, low=1)
    chunk = config.integer_or(256, ("block_size",), MAX_SIZE, low=1)
    return Lightning(heads, heads, size, size, 1, chunk=chunk)


def _short_convolution(config: Config, hidden: int) -> LinearAttention:
    for key in ("conv_dim", "conv_dim_out"):
        if config.integer_or(hidden, (key,), MAX_SIZE, low=1) != hidden:
            raise config.error(key, f"is not the hidden size of {hidden}", code="unsupported")
    return ShortConvolution(0, 1, 0, hidden, config.integer(("conv_L_cache",), MAX_SIZE))


_KINDS: Mapping[str, Callable[[Config, int], LinearAttention]] = {
    "gated-delta": _gated_delta,
    "kimi-delta": _kimi_full,
    "kimi-delta-low-rank": _kimi_low_rank,
    "mamba-2": _mamba_2,
    "mamba-2-of-blocks": _mamba_2_of_blocks,
    "mamba": _mamba,
    "lightning": _lightning,
    "short-convolution": _short_convolution,
}


# ---- Which layers have a state, by the rules of single families


def layers_with_state(config: Config, kind: str, layers: int) -> list[bool]:
    """Whether each layer has a state, by the rule of a kind; empty if the file or the kind has none.

    Raises:
        InputError: the rule is malformed.
    """
    rule = _LAYERS.get(kind)
    return [] if rule is None else rule(config, layers)


def _by_period(config: Config, layers: int) -> list[bool]:
    """Jamba: all but one of a period."""
    period = config.integer_or(8, ("attn_layer_period",), MAX_SIZE, low=1)
    offset = config.integer_or(4, ("attn_layer_offset",), MAX_SIZE)
    return [layer % period != offset for layer in range(layers)]


def _by_groups(config: Config, layers: int) -> list[bool]:
    """Bailing: all but the last of a group."""
    if not config.find(("layer_group_size",)):
        return []
    size = config.integer(("layer_group_size",), MAX_SIZE)
    return [(layer + 1) % size != 0 for layer in range(layers)]


def _by_lists(config: Config, layers: int) -> list[bool]:
    """Kimi Linear: one list for each kind, both of which count from 1."""
    if not config.find(("linear_attn_config",)):
        return []
    of_kinds = config.part("linear_attn_config")
    full, others = (_numbered(of_kinds, key, 1, layers) for key in ("full_attn_layers", "kda_layers"))
    if full & others or len(full | others) != layers:
        problem = f"and full_attn_layers are not the {layers} layers"
        raise of_kinds.error("kda_layers", problem, "conflict")
    return [layer not in full for layer in range(layers)]


def _by_flags(config: Config, layers: int) -> list[bool]:
    """MiniMax: a flag for each layer with keys and values."""
    if not config.find(("attn_type_list",)):
        return []
    return [not flag for flag in config.flags_of("attn_type_list", layers)]


def _by_indexes(config: Config, layers: int) -> list[bool]:
    """LFM2: the layers with keys and values."""
    if not config.find(("full_attn_idxs",)):
        return []
    full = _numbered(config, "full_attn_idxs", 0, layers)
    return [layer not in full for layer in range(layers)]


def _numbered(config: Config, key: str, first: int, layers: int) -> set[int]:
    """Indexes from 0 of the layers under `key`, which counts from `first`."""
    listed = config.list_of(key)
    for layer in listed:
        if problem := whole_number(layer, first, layers - 1 + first):
            raise config.error(key, problem)
    return {layer - first for layer in listed}


_LAYERS: Mapping[str, Callable[[Config, int], list[bool]]] = {
    "mamba": _by_period,
    "kimi-delta": _by_groups,
    "kimi-delta-low-rank": _by_lists,
    "lightning": _by_flags,
    "short-convolution": _by_indexes,
    "mamba-2": lambda config, layers: [True] * layers,
}
