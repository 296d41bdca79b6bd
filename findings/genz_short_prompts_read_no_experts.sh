#!/usr/bin/env bash
# genz-llm 0.0.16 (GenZ, analytical model of LLM inference, MIT): prompts shorter than E/k tokens need no experts.
#
# A good guess: prefill of 64 prompts of 8 tokens sends 512 tokens to the experts. All 64 experts of deepseek-moe-16b are
# active, each with 48 tokens in the mean.
# Seen: `prefill_moddeling` divides the tokens of *one* prompt by the experts, in whole numbers (tokens x k // E), and scales
# the result by the batch. Below E/k tokens that is 0: no weight is read, nothing is multiplied, and the FFNs of 28 layers
# take 0.03 ms. One token more, and they take 77 ms. From there time grows in steps of E/k tokens.
# What follows: short prompts, and short chunks of a chunked prefill, are free on a MoE model. Prompts have to be whole
# multiples of E/k tokens for the count to be right.
#
# It prints the time of the FFNs of prefill over the length of 64 prompts, and ends with 0 if it is as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q genz-llm==0.0.16 numpy==2.4.6 pandas==3.1.1 scipy==1.17.1 matplotlib==3.11.2 \
  seaborn==0.13.2 numba==0.68.1 paretoset==1.2.5 statsmodels==0.15.0 ipython==9.18.1 ipywidgets==8.1.9 plotly==7.1.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from GenZ import prefill_moddeling

DEVICE = {"Flops": 1000, "Memory_size": 2000, "Memory_BW": 3000, "ICN": 100, "ICN_LL": 1, "real_values": True}
EXPERTS, TOP_K = 64, 6
ffn_ms = {}
for tokens in (8, 10, 11, 21, 22):
    step = prefill_moddeling(
        model="deepseek-ai/deepseek-moe-16b-base", batch_size=64, input_tokens=tokens, system_name=DEVICE, bits="bf16"
    )
    ffn_ms[tokens] = step["Runtime_breakdown"].FFN
    print(f"64 prompts of {tokens} tokens ({tokens * TOP_K / EXPERTS:.2f} an expert): FFNs {ffn_ms[tokens]:.2f} ms")
assert ffn_ms[10] < 0.05 and 77 < ffn_ms[11] < 78, "the first step differs from what is stated above"
assert ffn_ms[21] - ffn_ms[11] < 0.05 and ffn_ms[22] - ffn_ms[21] > 2, "the second step differs from what is stated above"
PYTHON
