#!/usr/bin/env bash
# genz-llm 0.0.16 (GenZ, analytical model of LLM inference, MIT): DeepSeek-V3 has 6.2 trillion weights.
#
# A good guess: the experts of a bundled model have its `moe_intermediate_size`, which its configuration states.
# Seen: only the model of chunked prefill uses that width. Prefill and decode give every expert the width of a dense FFN,
# `intermediate_size`. DeepSeek-V3-Base has 12.4 TB of 16-bit weights (671 billion parameters are 1.34 TB),
# deepseek-moe-16b 242 GB (33), Qwen1.5-MoE-A2.7B 168 GB (29). Models whose experts are that wide are right: Mixtral 8x7B
# has 93 GB. Memory that is needed, bytes that are read and FLOPs share the factor.
# What follows: fine-grained MoE models look 6 to 9 times as large as they are, and never fit where they run.
#
# It prints the weights of four bundled models beside their published parameters, and ends with 0 if they are as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q genz-llm==0.0.16 numpy==2.4.6 pandas==3.1.1 scipy==1.17.1 matplotlib==3.11.2 \
  seaborn==0.13.2 numba==0.68.1 paretoset==1.2.5 statsmodels==0.15.0 ipython==9.18.1 ipywidgets==8.1.9 plotly==7.1.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from GenZ import decode_moddeling

DEVICE = {"Flops": 1000, "Memory_size": 20000, "Memory_BW": 3000, "ICN": 100, "ICN_LL": 1, "real_values": True}
PUBLISHED_BILLIONS = {
    "mistralai/mixtral-8x7b": 46.7, "Qwen/Qwen1.5-MoE-A2.7B": 14.3, "deepseek-ai/deepseek-moe-16b-base": 16.4,
    "deepseek-ai/DeepSeek-V3-Base": 671,
}
ratios = []
for model, billions in PUBLISHED_BILLIONS.items():
    _, summary = decode_moddeling(
        model=model, batch_size=1, input_tokens=128, output_tokens=1, Bb=1, system_name=DEVICE, bits="bf16",
        model_profilling=True,
    )
    gigabytes = summary["Total Weights (MB)"].values[0] * 2**20 / 1e9
    ratios.append(round(gigabytes / (2 * billions), 1))
    print(f"{model}: {gigabytes:.0f} GB, {billions} billion parameters are {2 * billions:.0f} GB: {ratios[-1]} times")
assert ratios == [1.0, 5.9, 7.4, 9.2], "the weights differ from what is stated above"
PYTHON
