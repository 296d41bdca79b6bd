#!/usr/bin/env bash
# aiconfigurator-core 0.12.0 (measured kernels of NVIDIA GPUs, Apache-2.0): a row of a MoE table is no key.
#
# A good guess: within systems/data/SYSTEM/moe/PROGRAM/VERSION/moe_perf.parquet, all columns but `latency` name one
# measurement; if two rows share a shape, `kernel_source` tells them apart.
# Seen: in eight of these tables a tenth to nearly three quarters of the shapes have two or three rows that are equal in
# every column, `kernel_source` and `version` included, and differ in `latency` alone. No column says which run they are
# of. Most lie within 5% of each other; the widest are a factor 1.5 apart. The table of the same card for another version
# of the same program may have none.
# What follows: a look-up by shape has to say which row it takes (the first, the last, the mean), and rows that are split at
# random into fitted and held-out ones have twins on both sides, so that the held-out error is too small.
#
# It prints, for four tables: rows, shapes, shapes with several rows, and the ratio of their latencies (median, largest).
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

EXPECTED = {
    "b300_sxm/moe/sglang/0.5.14": (260756, 109199, 1.008, 1.546),
    "gb200/moe/sglang/0.5.14": (205218, 50590, 1.008, 1.553),
    "h100_sxm/moe/sglang/0.5.10": (89019, 8505, 1.004, 1.548),
    "h100_sxm/moe/sglang/0.5.14": (99685, 0, None, None),
}
data = files("aiconfigurator_core") / "systems" / "data"
for table, expected in EXPECTED.items():
    with (data / table / "moe_perf.parquet").open("rb") as file:
        rows = pd.read_parquet(file)
    latency = rows.groupby([c for c in rows.columns if c != "latency"], dropna=False)["latency"].agg(["min", "max", "count"])
    several = latency[latency["count"] > 1]
    ratio = several["max"] / several["min"]
    widest = None if ratio.empty else round(float(ratio.max()), 3)
    median = None if ratio.empty else round(float(ratio.median()), 3)
    print(f"{table}: {len(rows)} rows, {len(latency)} shapes, {len(several)} with several rows, ratio {median}, {widest}")
    assert (len(rows), len(several), median, widest) == expected, "the tables differ from what is stated above"
PYTHON
