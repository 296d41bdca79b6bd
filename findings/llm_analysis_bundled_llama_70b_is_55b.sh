#!/usr/bin/env bash
# llm-analysis 0.2.2 (latency and memory of transformers, Apache-2.0): its Llama 2 70B has 55 billion parameters.
#
# A good guess: a bundled model has the shape of the model it is named after.
# Seen: every FFN has two matrices, and the bundled models have four times the hidden size as its width. Llama's FFNs have
# three (gate, up, down). For Llama 2 7B and 65B this ends within 2% of the published counts by chance (8 h^2 for 8.06 h^2).
# Llama 2 70B has a width of 28,672 (3.5 h, 10.5 h^2): 55.3 billion parameters for 69.0. Its own width cannot be given:
# `ffn_embed_dim` has to be a multiple of `hidden_dim`, unless `expansion_ratio` is given beside it.
# What follows: weights that do not fit seem to fit, and decode is a fifth too fast. A gated model needs 1.5 times its width,
# with both keys stated.
#
# It prints the parameters of three bundled models, and of Llama 2 70B with its own width stated so, and ends with 0 if they
# are as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-deps llm-analysis==0.2.2 fire==0.5.0 six==1.17.0 termcolor==3.3.0 simplejson==4.3.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import dataclasses
import logging

from llm_analysis.analysis import LLMAnalysis
from llm_analysis.config import (
    ParallelismConfig, get_dtype_config_by_name, get_gpu_config_by_name, get_model_config_by_name
)

logging.disable(logging.CRITICAL)


def billions(model):
    return round(LLMAnalysis(
        model, get_gpu_config_by_name("a100-sxm-80gb"), get_dtype_config_by_name("w16a16e16"), ParallelismConfig()
    ).get_num_params_total() / 1e9, 2)


def of_llama(hidden, width, layers, kv_share):
    return round((layers * (2 * hidden**2 * (1 + kv_share) + 3 * hidden * width) + 2 * 32000 * hidden) / 1e9, 2)


counts = {}
for name, shape in {
    "NousResearch_Llama-2-7b-hf": (4096, 11008, 32, 1),
    "decapoda-research_llama-65b-hf": (8192, 22016, 80, 1),
    "upstage_Llama-2-70b-instruct-v2": (8192, 28672, 80, 1 / 8),
}.items():
    counts[name] = billions(get_model_config_by_name(name)), of_llama(*shape)
    print(f"{name}: {counts[name][0]} billion, by the shape of the model {counts[name][1]} billion (norms aside)")
gated = dataclasses.replace(
    get_model_config_by_name("upstage_Llama-2-70b-instruct-v2"), ffn_embed_dim=43008, expansion_ratio=5.25
)
print(f"with 1.5 times its width: {billions(gated)} billion")
assert counts["upstage_Llama-2-70b-instruct-v2"] == (55.29, 68.98), "the counts differ from what is stated above"
assert all(abs(ours / real - 1) < 0.03 for ours, real in list(counts.values())[:2]), "the smaller models differ"
PYTHON
