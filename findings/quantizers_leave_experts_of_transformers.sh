#!/usr/bin/env bash
# torchao 0.18.0 and optimum-quanto 0.2.7 on MoE models of transformers 5.24.0: 8-bit weights, but for the experts.
#
# A good guess: `quantize_(model, Int8WeightOnlyConfig())` and `quantize(model, weights=qint8)` halve the bytes of a model in
# 16 bits, of which nine tenths and more are experts.
# Seen: both replace `torch.nn.Linear`. transformers 5 keeps all experts of a layer in two parameters of three dimensions,
# which are no Linear, so they stay as they are: of a small Mixtral 13.4 MB become 13.0 MB, and the experts' 12.6 MB are
# unchanged. Neither warns.
# What follows: memory and bandwidth of a "quantized" MoE model are those of 16 bits. Count bytes, not calls.
#
# The environment takes 5 GB. It prints bytes of experts and of the rest, and ends with 0 if they are as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.14.1 transformers==5.24.0 huggingface_hub==2.4.0 tokenizers==0.23.3 numpy==2.4.6 \
  torchao==0.18.0 optimum-quanto==0.2.7
cd "$folder"
TRANSFORMERS_VERBOSITY=error "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import logging

import torch
from optimum.quanto import freeze, qint8, quantize
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from transformers import MixtralConfig, MixtralForCausalLM

logging.disable(logging.CRITICAL)


def with_quanto(model):
    quantize(model, weights=qint8)
    freeze(model)


def bytes_of(tensor):
    if hasattr(tensor, "__tensor_flatten__"):
        return sum(bytes_of(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])
    return tensor.numel() * tensor.element_size()


sizes = {}
for name, convert in {
    "16 bits": lambda model: None,
    "torchao": lambda model: quantize_(model, Int8WeightOnlyConfig()),
    "quanto": with_quanto,
}.items():
    torch.manual_seed(0)
    model = MixtralForCausalLM(MixtralConfig(
        vocab_size=64, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2,
    )).eval().bfloat16()
    convert(model)
    tensors = [*model.named_parameters(), *model.named_buffers()]
    sizes[name] = tuple(sum(bytes_of(t) for key, t in tensors if ("experts" in key) == wanted) for wanted in (True, False))
    print(f"{name}: experts {sizes[name][0] / 1e6:.2f} MB, rest {sizes[name][1] / 1e6:.2f} MB")
assert {experts for experts, _ in sizes.values()} == {2 * 8 * 3 * 256 * 512 * 2}, "the experts differ"
assert max(sizes["torchao"][1], sizes["quanto"][1]) < 0.6 * sizes["16 bits"][1], "the rest differs"
PYTHON
