"""Writes weights.md: sizes of weight files as computed from their recipes, beside published ones.

Run in the checkout: python validation/weights.py
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from ndpsim.inference.processors.devices import weight_bytes
from ndpsim.inference.processors.weights import expert_format_of
from ndpsim.workload.models import load_model
from ndpsim.workload.models.weights import WeightFile, weight_file, weight_names

UNITS = {"GiB": 1 << 30, "GB": 10**9}

TEXT = """\
# Weight files: their sizes beside published ones

Made by `python validation/weights.py` from `validation/weights.csv`, which has the sources. A size is the
number of weights times the bits of their format, summed over all tensors, in GiB as llama.cpp prints it.
Nothing is fitted. Most errors are rounding errors of the published figure.

| model | file | published, GiB | computed, GiB | error |
|---|---|---|---|---|
{rows}

Largest error: {largest:+.2%}. Known causes of errors above 0.1%:

- iq4_nl and iq4_xs of mixtral-8x22b were made without an importance matrix, which gives `ffn_down` of
  the first eighth of the layers Q5_K. The recipe here is that with a matrix.
- deepseek-v2-lite of 9.78 GiB and kimi-k2 hold `attn_kv_b` a second time, as `attn_k_b` and `attn_v_b`.
- - Sizes in GB include the tokenizer and other metadata.

For ud-q2_k_xl, mix-iq6_k and mix-iq3_k, only llama.cpp's output is known: the number of tensors in each
format, and the size. The recipes here agree with both, but another assignment with the same counts and
size is possible. The recipe that ubergarm quotes for mix-iq3_k has attn_q and attn_output in IQ4_K, and
the printed counts have all attention in IQ6_K.

## Routed experts in the simulation

Layers with different formats get the mean format, and scales of whole rows are spread over the row; both
are rounded to whole bits a group. The largest departure of an expert's bytes from its mean in the file,
over all {files} files and the models above, is {departure:+.3%} ({departs}).

## Left out

- Files without a published recipe: Unsloth's UD files, except UD-Q2_K_XL of DeepSeek-R1. UD-Q4_K_XL of
  DeepSeek-V3-0324 (357.62 GiB) has four formats over 725 tensors, and their layers are not published.
- A Q4_K_M of Qwen3-30B-A3B with 16.49 GiB (ik discussions/201), whose recipe is not stated; llama.cpp's is
  17.28 GiB.
- Mixtral-8x7B of December 2023 (26.44 GB as Q4_K_M): its `ffn_down` of experts was not in the mixture of
  formats then.
"""


class Published(NamedTuple):
    """A published size in bytes, and the file as its recipe has it."""

    size: float
    file: WeightFile

    @property
    def error(self) -> float:
        """Of the computed size, as a share of the published one."""
        return self.file.bytes / self.size - 1


def published() -> list[Published]:
    """All rows of weights.csv."""
    with Path(__file__).with_name("weights.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [
        Published(float(row["size"]) * UNITS[row["unit"]], weight_file(row["weights"], row["model"]))
        for row in rows
    ]


def departure(model: str, name: str) -> float:
    """How far bytes of an expert as simulated are from their mean in the file."""
    shape = load_model(model)
    file = weight_file(name, shape)
    mean = sum(tensor.bytes for group in ("gate", "up", "down") for tensor in file.of_class(group))
    mean /= shape.moe_layers * shape.routed_experts
    return weight_bytes(shape.expert, expert_format_of(file)) / mean - 1


def text() -> str:
    """The text of weights.md."""
    known = published()
    rows = [
        f"| {one.file.model} | {one.file.name} | {one.size / 2**30:.2f} | {one.file.bytes / 2**30:.2f} "
        f"| {one.error:+.2%} |"
        for one in known
    ]
    models = sorted({one.file.model for one in known})
    names = [name for name in weight_names() if name != "f32"]  # experts of 32 bits are not simulated
    departures = {(model, name): departure(model, name) for model in models for name in names}
    (model, name), most = max(departures.items(), key=lambda item: abs(item[1]))
    return TEXT.format(
        rows="\n".join(rows),
        largest=max((one.error for one in known), key=abs),
        files=len(names),
        departure=most,
        departs=f"{name} of {model}",
    )


if __name__ == "__main__":
    Path(__file__).with_name("weights.md").write_text(text(), encoding="utf-8")
