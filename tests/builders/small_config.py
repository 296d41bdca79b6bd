"""The config.json of a small model, and a DIMM with other memory."""

from __future__ import annotations

import json
from pathlib import Path

CONFIG = {
    "model_type": "mixtral",
    "hidden_size": 256,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": 100,
    "hidden_act": "silu",
}

#: A DIMM of TriMoE with DDR4.
DDR4 = (
    "dram.standard=DDR4",
    "dram.org=DDR4_8Gb_x8",
    "dram.timing=DDR4_3200AA",
    "dram.overrides={}",
    "dimm.subchannels=1",
)


def write_config(folder: Path) -> str:
    """Write the file, and return its path."""
    file = folder / "config.json"
    file.write_text(json.dumps(CONFIG))
    return str(file)
