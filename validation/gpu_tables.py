"""Writes tables of gpu_measured, parts of what AIConfigurator has measured: layers, uneven ones, attention.

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


def table(folder: Path, card: str, program: str, version: str, loads: str = "balanced") -> pd.DataFrame:
    """The chosen rows of a table, a row for each shape and type of numbers."""
    rows = pd.read_parquet(folder / card / "moe" / program / version / "moe_perf.parquet")
    rows = rows[
        (rows.moe_ep_size == 1) & (rows.distribution == loads) & rows.moe_dtype.isin(DTYPES)
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


#: The steeper of the two power laws by which tokens choose experts.
UNEVEN = "power_law_1.2"
UNEVEN_HEADER = """\
# As moe_layers.csv, of vLLM in 16 bits, with experts that get tokens by a power law: the mean of five draws.
# An expert's share is drawn from a density of x^-1.2, from 1 to 0.8 times the tokens, or from 0.01 to 2
# if there are no more pairs than experts. Source: as there.
"""


def uneven(folder: Path, card: str, program: str, version: str) -> pd.DataFrame:
    """The chosen rows with uneven loads."""
    rows = table(folder, card, program, version, UNEVEN)
    return rows[rows.numbers == "bfloat16"].drop(columns=["program", "numbers"])


#: Card, program and version of each table of attention.
ATTENTION = (
    ("a100_sxm", "vllm", "0.14.0"), ("h100_sxm", "vllm", "0.24.0"), ("h200_sxm", "vllm", "0.24.0"),
    ("l40s", "vllm", "0.24.0"), ("rtx_pro_6000_server", "vllm", "0.24.0"), ("b200_sxm", "vllm", "0.24.0"),
    ("gb200", "vllm", "0.24.0"), ("l40s", "sglang", "0.5.14"), ("rtx_pro_6000_server", "sglang", "0.5.14"),
)  # fmt: skip
#: Heads of queries, heads of keys, and size of a head.
SHAPES = (
    (32, 8, 128), (64, 8, 128), (64, 4, 128), (32, 4, 128), (96, 8, 128), (40, 8, 128), (48, 8, 128),
    (16, 2, 128), (8, 1, 128), (32, 32, 128), (64, 8, 64), (32, 8, 64), (16, 2, 256), (32, 2, 256),
)  # fmt: skip
SEQUENCES, LENGTHS, LATENT_HEADS = (1, 8, 64), (64, 256, 1024, 4096, 16384), (16, 128)
LATENT_SIZE = 576
ATTENTION_HEADER = """\
# Time of the attention of a layer, in us, by tokens: of a prompt (prefill), or of the context of a new token
# (decode; latent: of MLA's cached vectors). 16 bits.
# Source: AIConfigurator (ai-dynamo/aiconfigurator, Apache-2.0, Copyright NVIDIA CORPORATION & AFFILIATES),
# package aiconfigurator-core 0.12.0, systems/data/CARD/attention and mla/PROGRAM/VERSION.
# Selected by validation/gpu_tables.py; of several kernels the fastest.
"""


def attention(folder: Path, card: str, program: str, version: str) -> pd.DataFrame:
    """The chosen rows of attention: SGLang's are those with latent vectors."""
    latent, found = program == "sglang", []
    name = "mla" if latent else "attention"
    for step in ("latent",) if latent else ("prefill", "decode"):
        phase = "context" if step == "prefill" else "generation"
        rows = pd.read_parquet(folder / card / name / program / version / f"{phase}_{name}_perf.parquet")
        if latent:
            rows = rows.assign(num_key_value_heads=1, head_dim=LATENT_SIZE)
            rows = rows[rows.num_heads.isin(LATENT_HEADS)]
        else:
            shapes = zip(rows.num_heads, rows.num_key_value_heads, rows.head_dim, strict=True)
            rows = rows[[shape in SHAPES for shape in shapes]]
        if "window_size" in rows:
            rows = rows[rows.window_size == 0]
        rows = rows.assign(tokens=rows.isl if step == "prefill" else rows.step + 1, us=rows.latency * 1e3)
        rows = rows[
            (rows.kv_cache_dtype == "bfloat16") & rows.batch_size.isin(SEQUENCES) & rows.tokens.isin(LENGTHS)
        ]
        index = ["num_heads", "num_key_value_heads", "head_dim", "batch_size"]
        wide = rows.pivot_table(index=index, columns="tokens", values="us", aggfunc="min").round(1)
        found.append(wide.reset_index().assign(card=card, program=program, step=step))
    return pd.concat(found)


def write(file: str, header: str, found: pd.DataFrame) -> None:
    """Write a table of gpu_measured."""
    text = found.to_csv(index=False, float_format="%g", lineterminator="\n")
    (Path(__file__).parent / "gpu_measured" / file).write_text(header + text, encoding="utf-8")


def main(folder: Path) -> None:
    """Write the files."""
    layers = pd.concat([table(folder, *one) for one in TABLES], ignore_index=True)
    write("moe_layers.csv", HEADER, layers)
    of_vllm = [uneven(folder, *one) for one in TABLES if one[1] == "vllm"]
    write("moe_layers_uneven.csv", UNEVEN_HEADER, pd.concat(of_vllm, ignore_index=True))
    found = pd.concat([attention(folder, *one) for one in ATTENTION], ignore_index=True)
    found = found.rename(
        columns={"num_heads": "heads", "num_key_value_heads": "key_heads", "head_dim": "head_size",
                 "batch_size": "sequences"}
    )  # fmt: skip
    kept = ["card", "program", "step", "heads", "key_heads", "head_size", "sequences", *LENGTHS]
    write("attention.csv", ATTENTION_HEADER, found[kept])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
