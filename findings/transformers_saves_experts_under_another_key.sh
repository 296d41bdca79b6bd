#!/usr/bin/env bash
# transformers 5.24.0: reading a published MoE config.json and saving it changes the key of the number of experts, in some types.
#
# A good guess: `from_pretrained` then `save_pretrained` keeps the keys of the published file, as it keeps their values.
# Seen: a Qwen3-MoE file (published with `num_experts`) comes out with `num_local_experts` and without `num_experts`; so does
# Qwen3-VL-MoE's text part. Qwen2-MoE, Qwen3-Next and Qwen3.5-MoE, published with the same key, keep it; DeepSeek-V3 keeps
# `n_routed_experts`. The class answers to both names, a reader of the file does not.
# What follows: a tool that takes `num_experts` alone reads a published Qwen3-30B-A3B as a mixture of experts, and the same
# model, after fine-tuning or quantization saved it again, as a dense one.
#
# It prints the keys that name experts before and after, and ends with 0 if they are as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.24.0 huggingface_hub==2.4.0 tokenizers==0.23.3 numpy==2.4.6
TRANSFORMERS_VERBOSITY=error "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import json
import pathlib
import tempfile

from transformers import AutoConfig


def read(model_type, **keys):
    """The configuration that a config.json with these keys, in this order, is read as."""
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, **keys}))
    return AutoConfig.from_pretrained(folder)


PUBLISHED = {
    "qwen2_moe": "num_experts", "qwen3_moe": "num_experts", "qwen3_vl_moe_text": "num_experts",
    "qwen3_next": "num_experts", "qwen3_5_moe_text": "num_experts", "deepseek_v3": "n_routed_experts",
}
saved = {}
for model_type, key in PUBLISHED.items():
    folder = pathlib.Path(tempfile.mkdtemp())
    read(model_type, **{key: 32}).save_pretrained(folder)
    keys = json.loads((folder / "config.json").read_text())
    saved[model_type] = [name for name, value in keys.items() if value == 32 and "expert" in name]
    print(f"{model_type}: {key} before, {', '.join(saved[model_type])} after")
changed = {model_type for model_type, key in PUBLISHED.items() if saved[model_type] != [key]}
assert changed == {"qwen3_moe", "qwen3_vl_moe_text"}, "the types that change differ from what is stated above"
assert saved["qwen3_moe"] == saved["qwen3_vl_moe_text"] == ["num_local_experts"], "the new key differs from what is stated above"
PYTHON
