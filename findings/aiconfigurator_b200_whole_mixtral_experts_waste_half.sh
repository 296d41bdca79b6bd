#!/usr/bin/env bash
# aiconfigurator-core 0.12.0 (measured kernels of NVIDIA GPUs, Apache-2.0): on a B200, an eighth of an expert is no eighth.
#
# A good guess: with thousands of tokens an expert, a layer of experts is bound by multiplication; on one card that has
# an eighth of each expert's columns it takes an eighth of the time (or more, as small slices are less efficient), on a
# B200 it takes less than half of what it takes on an H100, and newer releases of a program are not slower.
# Seen, in vLLM's tables in 16 bits with even loads and 16,384 tokens: whole experts of Mixtral-8x7B and 8x22B take 15
# times as long as eighths of them on the B200 and 14 to 15 times on the GB200 (7 to 9 times on H100 and H200); a whole layer
# of 8x22B takes the B200 37.0 ms and the H100 38.2 ms; and with the release before, 0.22.0, whose rows have another
# kernel, the B200 takes 25.6 ms, and 8 times as long as eighths.
# What follows: a rate fitted to whole experts of large models understates a B200 by two, and one of slices overstates it;
# tensor parallelism over two cards looks more than twice as fast.
#
# It prints, for each table and model: ms of whole experts and of eighths, their ratio, and the kernel.
# It ends with 0 if all that is as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-deps aiconfigurator-core==0.12.0 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6 \
  python-dateutil==2.9.0.post0 six==1.17.0
"$folder/venv/bin/python" - <<'PYTHON'
from importlib.resources import files

import pandas as pd

MODELS = {"Mixtral-8x7B": (4096, 14336), "Mixtral-8x22B": (6144, 16384)}
EXPECTED = {
    "h100_sxm 0.24.0": ((22.6, 8.9), (38.2, 9.0)),
    "h200_sxm 0.24.0": ((17.4, 7.1), (34.5, 8.8)),
    "b200_sxm 0.22.0": ((15.3, 8.0), (25.6, 8.4)),
    "b200_sxm 0.24.0": ((21.8, 15.4), (37.0, 15.5)),
    "gb200 0.24.0": ((19.9, 14.4), (34.1, 14.7)),
}
data = files("aiconfigurator_core") / "systems" / "data"
for table, expected in EXPECTED.items():
    card, version = table.split()
    with (data / card / "moe" / "vllm" / version / "moe_perf.parquet").open("rb") as file:
        rows = pd.read_parquet(file)
    rows = rows[
        (rows.moe_dtype == "bfloat16") & (rows.distribution == "balanced") & (rows.moe_ep_size == 1)
        & (rows.num_tokens == 16384) & (rows.num_experts == 8) & (rows.topk == 2)
    ]
    for (model, (hidden, columns)), (whole_ms, ratio) in zip(MODELS.items(), expected):
        of_model = rows[(rows.hidden_size == hidden) & (rows.inter_size == columns)]
        ms = of_model.groupby("moe_tp_size").latency.min()
        seen = round(float(ms[1]), 1), round(float(ms[1] / ms[8]), 1)
        print(f"{table} {model}: whole {ms[1]:.1f} ms, eighths {ms[8]:.2f} ms, {seen[1]} times; {of_model.kernel_source.iloc[0]}")
        assert seen == (whole_ms, ratio), "the tables differ from what is stated above"
PYTHON
