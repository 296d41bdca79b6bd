#!/usr/bin/env bash
# llm-analysis 0.2.2 (latency and memory of transformers, Apache-2.0): one decoded token reads every expert.
#
# A good guess: `moe_top_k` of `moe_num_experts` are read by one token, so that decode of one sequence with two of eight
# experts reads the weights of two.
# Seen: time of an FFN in decode is that of all its experts' weights at any batch, and `moe_top_k` changes nothing: 0.527 ms
# a layer with one, two and eight of eight experts, and with 64 sequences and two of them 0.528 ms; one dense FFN of this width takes 0.066.
# (genz-llm does the opposite: it reads top-k experts at any batch.)
# What follows: decode of few sequences is up to E/k times too slow, where a MoE model gains most; from about E/k sequences on
# the number is right.
#
# It prints the time of an FFN for several models and batches, and ends with 0 if it is as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-deps llm-analysis==0.2.2 fire==0.5.0 six==1.17.0 termcolor==3.3.0 simplejson==4.3.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import logging

from llm_analysis.analysis import LLMAnalysis
from llm_analysis.config import ModelConfig, ParallelismConfig, get_dtype_config_by_name, get_gpu_config_by_name

logging.disable(logging.CRITICAL)
ffn_ms = {}
for experts, top_k in ((1, 1), (8, 1), (8, 2), (8, 8)):
    model = ModelConfig(
        name="model", num_layers=32, n_head=32, hidden_dim=4096, vocab_size=32000, max_seq_len=32768, num_key_value_heads=8,
        expansion_ratio=4, moe_num_experts=experts, moe_top_k=top_k,
    )
    analysis = LLMAnalysis(
        model, get_gpu_config_by_name("a100-sxm-80gb"), get_dtype_config_by_name("w16a16e16"), ParallelismConfig(tp_size=2)
    )
    for batch in (1, 64):
        ffn_ms[experts, top_k, batch] = round(analysis.get_latency_fwd_per_layer_mlp(batch, 1) * 1e3, 3)
        print(f"{top_k} of {experts} experts, batch {batch}: {ffn_ms[experts, top_k, batch]} ms a layer")
assert {ffn_ms[8, k, 1] for k in (1, 2, 8)} == {0.527}, "the times of one sequence differ from what is stated above"
assert ffn_ms[8, 2, 64] == 0.528 and ffn_ms[1, 1, 1] == 0.066, "the other times differ from what is stated above"
PYTHON
