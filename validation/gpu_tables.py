"""Writes gpu_measured/moe_layers.csv: a part of AIConfigurator's measured mixture-of-experts layers.

Run with pandas and pyarrow: python validation/gpu_tables.py FOLDER, where FOLDER is
`aiconfigurator_core/systems/data` of the package aiconfigurator-core 0.12.0 (Apache-2.0).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

#: Card, program and version of each table that is read.
TABLES = (
    ("a100_sxm", "sglang", "0.5.10"), ("h100_sxm", "vllm", "0.24.0"), ("h200_sxm", "vllm", "0.24.0"),
    ("l40s", "vllm", "0.24.0"), ("rtx_pro_6000_server", "vllm", "0.24.0"), ("b200_sxm", "vllm", "0.24.0"),
    ("gb200", "vllm", "0.24.0"), ("h100_sxm", "sglang", "0.5.14"), ("b200_sxm", "trtllm", "1.3.0rc20"),
)  # fmt: skip
DTYPES = ("bfloat16", "fp8", "fp8_block", "nvfp4")
TOKENS = (1, 4, 16, 64, 256, 1024, 2048, 4096, 16384)
SHAPE = ["hidden_size", "inter_size", "num_experts", "topk", "moe_tp_size"]
HEADER = """\
# Time of all experts of a layer in one call, in us, by tokens: measured, experts evenly chosen.
# Source: AIConfigurator (ai-dynamo/aiconfigurator, Apache-2.0, Copyright NVIDIA CORPORATION & AFFILIATES),
# package aiconfigurator-core 0.12.0, systems/data/CARD/moe/PROGRAM/VERSION/moe_perf.parquet.
# Selected by validation/gpu_tables.py: one GPU's experts, in 1, 4 or 8 slices of a multiple of 64 columns; of
# several kernels the fastest.
"""


def table(folder: Path, card: str, program: str, version: str) -> pd.DataFrame:
    """The chosen rows of a table, a row for each shape and type of numbers."""
    rows = pd.read_parquet(folder / card / "moe" / program / version / "moe_perf.parquet")
    rows = rows[
        (rows.moe_ep_size == 1) & (rows.distribution == "balanced") & rows.moe_dtype.isin(DTYPES)
        & rows.moe_tp_size.isin((1, 4, 8)) & rows.num_tokens.isin(TOKENS)
        & (rows.inter_size // rows.moe_tp_size % 64 == 0)
    ]  # fmt: skip
    # Of other numbers than 16 bits, whole experts are enough.
    rows = rows[(rows.moe_dtype == "bfloat16") | (rows.moe_tp_size == 1)]
    rows = rows.assign(us=(rows.latency * 1e3).round(1))
    wide = rows.pivot_table(index=["moe_dtype", *SHAPE], columns="num_tokens", values="us", aggfunc="min")
    wide = wide[(wide.notna().sum(axis=1) == len(TOKENS))].reset_index()
    wide.insert(0, "program", program)
    wide.insert(0, "card", card)
    return wide.rename(
        columns={"moe_dtype": "numbers", "hidden_size": "hidden", "inter_size": "intermediate",
                 "num_experts": "experts", "topk": "top_k", "moe_tp_size": "slices"}
    )  # fmt: skip


def main(folder: Path) -> None:
    """Write the file."""
    found = pd.concat([table(folder, *one) for one in TABLES], ignore_index=True)
    path = Path(__file__).parent / "gpu_measured" / "moe_layers.csv"
    path.write_text(
        HEADER + found.to_csv(index=False, float_format="%g", lineterminator="\n"), encoding="utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
