#!/usr/bin/env bash
# llm-analysis 0.2.2 (latency and memory of transformers, Apache-2.0): FLOPs of an FFN do not depend on its width.
#
# A good guess: `ffn_embed_dim` (or `expansion_ratio`), `moe_num_experts` and `moe_top_k` decide what an FFN multiplies: with
# twice the width, or two active experts for one, twice the FLOPs.
# Seen: the FLOPs are 16 x tokens x hidden_dim^2, whatever these keys say, which is a dense FFN of two matrices and four
# times the hidden size. The keys do enter the parameters, `get_num_active_params_total` among them, so FLOPs and active
# parameters of one model contradict each other. Prefill of a model of 32 layers takes the same 98.3 ms with an expansion
# ratio of 2, 4 and 16, and with one, two and eight active experts of eight, on two A100.
# What follows: prefill that is bound by computing says nothing about the width of an FFN or the number of active experts;
# `achieved_tflops` and efficiencies made from these FLOPs share the error.
#
# It prints active parameters, FLOPs of an FFN and time of prefill, and ends with 0 if they are as stated here.
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
flops, prefill_ms = set(), set()
for ratio, experts, top_k in ((2, 1, 1), (4, 1, 1), (16, 1, 1), (4, 8, 1), (4, 8, 2), (4, 8, 8)):
    model = ModelConfig(
        name="model", num_layers=32, n_head=32, hidden_dim=4096, vocab_size=32000, max_seq_len=32768, num_key_value_heads=8,
        expansion_ratio=ratio, moe_num_experts=experts, moe_top_k=top_k,
    )
    analysis = LLMAnalysis(
        model, get_gpu_config_by_name("a100-sxm-80gb"), get_dtype_config_by_name("w16a16e16"), ParallelismConfig(tp_size=2)
    )
    of_layer = analysis.get_num_flops_fwd_per_layer_mlp(1, 4096)
    time = analysis.inference(batch_size_per_gpu=1, seq_len=4096, num_tokens_to_generate=1)["prefill_latency"]
    active = analysis.get_num_active_params_total()
    print(f"ratio {ratio}, {top_k} of {experts} experts: {active / 1e9:.1f} billion active, "
          f"{of_layer / 1e12:.2f} TFLOP an FFN, prefill {time * 1e3:.1f} ms")
    flops.add(of_layer)
    prefill_ms.add(round(time * 1e3, 1))
assert flops == {16 * 4096 * 4096**2}, "the FLOPs differ from what is stated above"
assert prefill_ms == {98.3}, "the times differ from what is stated above"
PYTHON
