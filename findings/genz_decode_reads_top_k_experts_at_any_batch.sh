#!/usr/bin/env bash
# genz-llm 0.0.16 (GenZ, analytical model of LLM inference, MIT): decode reads the weights of top-k experts, at any batch.
#
# A good guess: a decode step of 64 sequences activates the union of what 64 tokens choose, which is all eight experts of
# Mixtral, so that their weights are read once each: four times the bytes of one sequence.
# Seen: `decode_moddeling` sets the number of active experts to top-k, and multiplies these with the tokens of the batch. The
# time of the FFNs of Mixtral 8x7B, on a device of 3,000 GB/s, is 7.00 ms with one sequence and 7.03 ms with 64, and the
# throughput grows 61 times. All weights of the experts (90.2 GB) take 30 ms there. Nothing warns of it.
# What follows: from a batch of E/k sequences on, a MoE model looks up to E/k times as fast as its weights allow (4 for
# Mixtral, 32 for 256 experts of which 8 are active). Its dense twins and its prefill have no such gap.
#
# It prints time of the FFNs, of a step, and throughput for three batches, and ends with 0 if they are as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q genz-llm==0.0.16 numpy==2.4.6 pandas==3.1.1 scipy==1.17.1 matplotlib==3.11.2 \
  seaborn==0.13.2 numba==0.68.1 paretoset==1.2.5 statsmodels==0.15.0 ipython==9.18.1 ipywidgets==8.1.9 plotly==7.1.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from GenZ import decode_moddeling

DEVICE = {"Flops": 1000, "Memory_size": 2000, "Memory_BW": 3000, "ICN": 100, "ICN_LL": 1, "real_values": True}
EXPERT_BYTES = 32 * 8 * 3 * 4096 * 14336 * 2
ffn_ms, throughput = {}, {}
for batch in (1, 8, 64):
    step = decode_moddeling(
        model="mistralai/mixtral-8x7b", batch_size=batch, input_tokens=128, output_tokens=1, Bb=1, system_name=DEVICE,
        bits="bf16",
    )
    ffn_ms[batch], throughput[batch] = round(step["Runtime_breakdown"].FFN, 2), step["Throughput"]
    print(f"batch {batch}: FFNs {ffn_ms[batch]} ms, step {step['Latency']:.2f} ms, {step['Throughput']:.0f} tokens/s")
print(f"all experts are {EXPERT_BYTES / 1e9:.1f} GB: {EXPERT_BYTES / 3e9:.1f} ms at 3,000 GB/s")
assert ffn_ms == {1: 7.0, 8: 7.0, 64: 7.03}, "the times of the FFNs differ from what is stated above"
assert 61 < throughput[64] / throughput[1] < 62, "the throughputs differ from what is stated above"
PYTHON
