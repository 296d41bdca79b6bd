"""Writes cpu_formats.md and ndpsim/inference/processors/fits/formats.csv: products of CPUs by weight format.

Run in the checkout: python validation/cpu_formats.py
"""

from __future__ import annotations

import csv
import statistics
from pathlib import Path
from typing import NamedTuple

from ndpsim.inference.processors import Step, operations
from ndpsim.inference.processors.cpu import PEAK_OPERATIONS
from ndpsim.inference.processors.fitted import FOLDER, fitted_values
from ndpsim.workload.models import load_model

HERE = Path(__file__).parent
MODEL, PROMPT = "llama-3.1-8b", 512
THREADS, DECODING, CLOCK_GHZ = 16, 2, 4.5  # of prompts and of decode; the data sheet's base clock
ISA = "avx512-vnni"
#: Formats whose prompts `cpu_efficiency` is the mean of: those of most rows of cpu_products.csv.
USUAL = (("ik_llama.cpp", "q4_k"), ("ik_llama.cpp", "iq4_nl"), ("ik_llama.cpp", "iq4_xs"))
#: Reading of two threads: BF16 needs no unpacking.
PLAIN = ("ik_llama.cpp", "bf16")

TEXT = """\
# CPU: products by weight format

Made by `python validation/cpu_formats.py`, which also writes `ndpsim/inference/processors/fits/formats.csv`.
Rows: `cpu_formats.csv`, Llama-3.1-8B on one Ryzen 9 7950X, two programs (ikawrakow/ik_llama.cpp, discussion
164).

An expert of w weights in W bytes takes W / read + 2 w (t + a) / (e x efficiency x peak) for t tokens
([processors](../docs/processors.md)). The efficiency of the instructions is fitted to other measurements
([cpu.md](cpu.md)), mostly of 4 bits in ik_llama.cpp; e is the prompt of a format over the mean prompt of
{usual} there. These were repacked, those of cpu.md mostly not: as repacked weights
(`ik_llama.cpp-repacked`) the formats multiply {faster:.3f} times as fast, by what these prompts take without
reading. a, in tokens, is what is left of decode on two threads: above 0 it is unpacking that a prompt
shares between its tokens; below 0, reading and the products of a single token overlap. Both threads read
{read:.1f} GB/s (BF16 in ik_llama.cpp, without the embedding).

| program | format | prompt, tokens/s | e | decode, tokens/s | a | reading alone | longer of both | sum, a = 0
|
|---|---|---|---|---|---|---|---|---|
{rows}

The last three columns are decode, tokens/s, of laws without a: reading alone, the longer of reading and one
token of a prompt, and their sum. Each format has two measurements and two fitted values, so nothing is held
out here; the machines of [machines.md](machines.md) are. A format that is not in the table takes the mean of
the formats of its program with as many whole bits.
"""


class Row(NamedTuple):
    """A row of cpu_formats.csv."""

    program: str
    format: str
    gib: float
    prefill: float
    decode: float


def rows() -> list[Row]:
    """The rows of cpu_formats.csv."""
    with (HERE / "cpu_formats.csv").open(encoding="utf-8", newline="") as file:
        table = csv.DictReader(line for line in file if not line.startswith("#"))
        return [
            Row(row["program"], row["format"], *(float(row[key]) for key in ("gib", "prefill", "decode")))
            for row in table
        ]


def row_of(key: tuple[str, str]) -> Row:
    """The row of a program and a format."""
    return next(row for row in rows() if (row.program, row.format) == key)


def weights_read() -> float:
    """Weights that a decode step multiplies: all but the embedding."""
    model = load_model(MODEL)
    read = {one.name: one.flops / 2 for one in operations(model, Step(1, 2, 1)) if not one.attends}
    head = read.pop("lm_head")
    return model.layers * sum(read.values()) + head


def read_bytes(row: Row) -> float:
    """Bytes that a decode step reads: the file without the embedding, at the mean size of a weight."""
    model = load_model(MODEL)
    embedding = model.hidden * (model.vocabulary or 0)
    weights = weights_read()
    return row.gib * 2**30 * weights / (weights + embedding)


def read_gbps() -> float:
    """What two threads read."""
    row = row_of(PLAIN)
    return read_bytes(row) * row.decode / 1e9


def efficiency(row: Row) -> float:
    """e: the prompt over the mean prompt of the usual formats."""
    return row.prefill / statistics.geometric_mean(row_of(key).prefill for key in USUAL)


def reached_gflops(threads: int) -> float:
    """What threads reach of the peak in other measurements, where reading and computing add."""
    return fitted_values("cpu", ISA)["adding_efficiency"] * PEAK_OPERATIONS[ISA] * threads * CLOCK_GHZ


def repacked() -> float:
    """What the usual formats reach here, over what other measurements give: these weights are repacked."""
    model = load_model(MODEL)
    each = operations(model, Step(1, PROMPT, PROMPT))
    flops = sum(one.flops * (1 if one.part == "head" else model.layers) for one in each)
    usual = [row_of(key) for key in USUAL]
    rates = [flops / (PROMPT / row.prefill - read_s(row)) / 1e9 for row in usual]
    return statistics.geometric_mean(rates) / reached_gflops(THREADS)


def token_s(row: Row) -> float:
    """The time of the products of one token in decode."""
    return 2 * weights_read() / (efficiency(row) * reached_gflops(DECODING) * 1e9)


def read_s(row: Row) -> float:
    """The time of reading in decode."""
    return read_bytes(row) / read_gbps() / 1e9


def added_tokens(row: Row, faster: float = 1.0) -> float:
    """a: what is left of decode after reading and one token, in tokens; no less than that one token.

    faster: factor of the rate of products.
    """
    return max(-1.0, round(faster * (1 / row.decode - read_s(row)) / token_s(row) - 1, 2))


def fits_text() -> str:
    """fits/formats.csv."""
    lines = ["program,format,efficiency,added_tokens"]
    lines += [f"{row.program},{row.format},{efficiency(row):.3f},{added_tokens(row):g}" for row in rows()]
    faster = repacked()
    lines += [
        f"{row.program}-repacked,{row.format},{faster * efficiency(row):.3f},{added_tokens(row, faster):g}"
        for row in rows()
        if row.program == PLAIN[0]
    ]
    return "\n".join(lines) + "\n"


def text() -> str:
    """cpu_formats.md."""
    lines = [
        f"| {row.program} | {row.format} | {row.prefill:g} | {efficiency(row):.3f} | {row.decode:g} | "
        f"{added_tokens(row):g} | {1 / read_s(row):.1f} | {1 / max(read_s(row), token_s(row)):.1f} | "
        f"{1 / (read_s(row) + token_s(row)):.1f} |"
        for row in rows()
    ]
    usual = ", ".join(name.upper() for _, name in USUAL)
    return TEXT.format(usual=usual, read=read_gbps(), faster=repacked(), rows="\n".join(lines))


if __name__ == "__main__":
    (FOLDER / "formats.csv").write_text(fits_text(), encoding="utf-8")
    (HERE / "cpu_formats.md").write_text(text(), encoding="utf-8")
