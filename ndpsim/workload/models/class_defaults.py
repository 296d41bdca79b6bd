"""What a key that a `config.json` leaves out means: the default of the type's class in Transformers.

`class_defaults.json` has the types where the reader would otherwise take another value. `python
docs/model_types.py` makes it: it leaves out each key of a type's defaults in turn and compares the shapes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ndpsim.workload.models._config import Config
from ndpsim.workload.models.known_keys import ALIASES

FILE = Path(__file__).with_suffix(".json")

#: By type: `defaults`, values by key, and `lists`, keys with an entry for each layer, which have none.
CLASS_DEFAULTS: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))

# What else may say which layers have experts, and which attention.
_INSTEAD = {
    "mlp_layer_types": (
        "first_k_dense_replace", "num_dense_layers", "moe_layer_freq", "decoder_sparse_step",
        "mlp_only_layers", "moe_layers_enum", "moe_layer_start_index", "moe_layer_interval",
        "layers_block_type",
    ),
    "layer_types": (
        "full_attention_interval", "hybrid_layer_pattern", "layer_group_size", "attn_type_list",
        "prefix_dense_sliding_window_pattern", "sparse_attention_config", "linear_attn_config",
        "full_attn_idxs", "compress_ratios",
    ),
    "mlp_only_layers": ("mlp_layer_types",),
    "indexer_types": ("index_topk_freq", "index_topk_pattern"),
}  # fmt: skip


def with_defaults(config: Config, model_type: str) -> Config:
    """The configuration with the defaults of keys that it leaves out, without those whose alias it has.

    Raises:
        InputError: it leaves out a list that says which layers have experts.
    """
    found = CLASS_DEFAULTS.get(model_type, {})
    for key in found.get("lists", ()):
        if key.startswith("mlp") and _is_left_out(config, key):
            raise config.error(key, "missing; which layers have experts is not known", code="missing")
    missing = {
        key: value
        for key, value in found.get("defaults", {}).items()
        if not any(alias in config.values for alias in _aliases(key))
        and not (key == "tie_word_embeddings" and config.prefix)  # of a wrapper its own key counts
    }
    return config.overlaid(missing) if missing else config


def attention_left_out(config: Config, model_type: str) -> str:
    """The message of a list that says what attention a layer has, if the file leaves it out; else empty."""
    for key in CLASS_DEFAULTS.get(model_type, {}).get("lists", ()):
        if not key.startswith("mlp") and _is_left_out(config, key):
            return str(config.error(key, "missing; the attention of each layer is not known", code="missing"))
    return ""


def _is_left_out(config: Config, key: str) -> bool:
    return config.find((key, *_INSTEAD.get(key, ()))) is None


def _aliases(key: str) -> Mapping[str, None]:
    """The key and its other names."""
    names = (name for names in ALIASES if key in names for name in names)
    return dict.fromkeys((key, *names))
