#!/usr/bin/env bash
# torch 2.14.1 (FlopCounterMode) and calflops 0.3.2 on MoE models of transformers 5.24.0: experts count no FLOPs.
#
# A good guess: a counter of FLOPs counts a model's matrix products, and the experts are nearly all of them.
# Seen: transformers runs experts as one `grouped_mm` by default, which is not among the operators that FlopCounterMode knows.
# It counts 1.08 MFLOP of a small Mixtral layer; the experts alone, two a token, are 3.15 MFLOP. With
# `set_experts_implementation("eager")` or "batched_mm" it counts both, 4.23 MFLOP, for equal logits. calflops, which counts
# calls of Python functions, misses the experts of "batched_mm", too. Neither warns.
# What follows: FLOPs and utilization of a MoE model are those of attention and router, unless experts run as "eager" while
# they are counted.
#
# The environment takes 5 GB. It prints what both count with each implementation, and ends with 0 if it is as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.14.1 transformers==5.24.0 huggingface_hub==2.4.0 tokenizers==0.23.3 numpy==2.4.6 \
  calflops==0.3.2 accelerate==1.15.0
cd "$folder"
TRANSFORMERS_VERBOSITY=error "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import logging

import torch
from calflops import calculate_flops
from torch.utils.flop_counter import FlopCounterMode
from transformers import MixtralConfig, MixtralForCausalLM

logging.disable(logging.CRITICAL)
TOKENS, TOP_K, HIDDEN, WIDTH = 32, 2, 64, 128
ids = torch.arange(TOKENS)[None]
of_experts = TOKENS * TOP_K * 3 * 2 * HIDDEN * WIDTH
print(f"experts: {of_experts / 1e6:.2f} MFLOP")
by_torch, by_calflops, logits = {}, {}, {}
for implementation in ("default", "eager", "batched_mm"):
    torch.manual_seed(0)
    model = MixtralForCausalLM(MixtralConfig(
        vocab_size=64, hidden_size=HIDDEN, intermediate_size=WIDTH, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=TOP_K,
    )).eval()
    if implementation != "default":
        model.set_experts_implementation(implementation)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        logits[implementation] = model(input_ids=ids).logits
    by_torch[implementation] = counter.get_total_flops()
    by_calflops[implementation] = calculate_flops(
        model, kwargs={"input_ids": ids}, print_results=False, output_as_string=False, print_detailed=False
    )[0]
    print(f"{implementation}: torch {by_torch[implementation] / 1e6:.2f}, calflops {by_calflops[implementation] / 1e6:.2f} MFLOP")
assert all(torch.allclose(logits["eager"], other, atol=1e-5) for other in logits.values()), "the models differ"
assert by_torch["eager"] == by_torch["batched_mm"] == by_torch["default"] + of_experts, "torch counts otherwise"
assert by_calflops["default"] == by_calflops["batched_mm"] == by_calflops["eager"] - of_experts, "calflops counts otherwise"
PYTHON
