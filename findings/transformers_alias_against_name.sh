#!/usr/bin/env bash
# transformers 5.24.0: where a config.json has a key and its alias, which of them counts depends on the model type.
#
# A good guess: a class's `attribute_map` says which key an alias stands for. If a file has both with two values, the key
# itself counts (the alias is a courtesy), or the last one in the file.
# Seen: there are three rules. In most types the alias counts, in any order: DeepSeek-V3 takes `num_local_experts` over
# `n_routed_experts`, and DeepSeek-V4 takes `intermediate_size` over `moe_intermediate_size`, the expert's width, though other
# DeepSeek files have both keys with two meanings. In Qwen3-MoE and Kimi-Linear the key counts, in any order. In Zamba2
# (`head_dim`, `attention_head_dim`) the last one in the file counts. Nothing is said in any case.
# What follows: a reader of such files cannot resolve aliases by one rule. Where both keys are there and differ, it has to ask.
#
# It prints what each type reads for both orders of its two keys, and ends with 0 if that is as stated here.
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


PAIRS = {
    "deepseek_v3": ("n_routed_experts", "num_local_experts"),
    "deepseek_v4": ("moe_intermediate_size", "intermediate_size"),
    "qwen3_moe": ("num_local_experts", "num_experts"),
    "kimi_linear": ("num_experts", "num_local_experts"),
    "zamba2": ("attention_head_dim", "head_dim"),
}
EXPECTED = {
    "deepseek_v3": ["alias", "alias"], "deepseek_v4": ["alias", "alias"], "qwen3_moe": ["key", "key"],
    "kimi_linear": ["key", "key"], "zamba2": ["alias", "key"],
}
seen = {}
for model_type, (key, alias) in PAIRS.items():
    values = {key: 64, alias: 256}
    counted = [getattr(read(model_type, **{name: values[name] for name in order}), key) for order in ((key, alias), (alias, key))]
    seen[model_type] = ["key" if value == 64 else "alias" for value in counted]
    print(f"{model_type}: {key}, then {alias}: the {seen[model_type][0]} counts; the other way round: the {seen[model_type][1]}")
assert seen == EXPECTED, "what counts differs from what is stated above"
PYTHON
