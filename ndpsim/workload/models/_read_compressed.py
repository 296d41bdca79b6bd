"""Reads the compressed attention of DeepSeek-V4."""

from __future__ import annotations

from typing import Any

from ndpsim.base.errors import one_of, shortened
from ndpsim.workload.models._config import Config
from ndpsim.workload.models.compressed import CompressedAttention
from ndpsim.workload.models.expert import MAX_HEADS, MAX_SIZE, whole_number
from ndpsim.workload.models.indexed import Index

_WINDOW, _CHOSEN, _ALL = (
    "sliding_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
)
_KINDS = (_WINDOW, _CHOSEN, _ALL)
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
            if name not in _KINDS:
                shown = one_of(name, _KINDS, "kind of attention")
                raise config.error("layer_types", f"entry {layer}: {shown}", code="form")
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
