"""Writes cpu.md and ndpsim/inference/processors/fits/cpu.csv: what the values of CPUs are fitted to.

Run in the checkout: python validation/cpu.py
"""

from __future__ import annotations

import csv
import functools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim import generate_routing
from ndpsim.dimm.layout import MATRICES
from ndpsim.inference.processors import Step, operations
from ndpsim.inference.processors.cpu import PEAK_OPERATIONS, memory_gbps
from ndpsim.inference.processors.fitted import ANY, FOLDER
from ndpsim.workload.models import load_model
from ndpsim.workload.models.weights import weight_file
from ndpsim.workload.routing import default_routing

HERE = Path(__file__).parent
# Instructions and the code that multiplies with them. ik_llama.cpp multiplies in 512 bits only with VNNI
# (HAVE_FANCY_SIMD in ggml/src/iqk/iqk_config.h), and with the code of AVX2 without.
CODE_OF = {
    "avx2": "avx2",
    "avx512": "avx2",
    "avx512-vnni": "avx512-vnni",
    "avx512-bf16": "avx512-vnni",
    "amx": "amx",
}
AMX_INT8 = 2  # products of 8 bits are twice those of BF16
EXPERT_MB = 9.00 * 2**20 / 1e6  # FreeToken's
# FreeToken pull request 18: 96.2 GB/s of experts are 91% of STREAM of one socket.
STREAM_GBPS = 96.2 / 0.91
# kekzl/imp pull requests 2062, 2063: reading 537 experts of 0.88 MiB; memtest86plus issue 557: the fabric.
MANY_EXPERTS, MANY_MIB, MANY_MS, MANY_GBPS = 537, 0.88, 8.25, 62.9
# ik_llama.cpp pull request 232: 25 layers of 6 experts, 1.298e9 weights of 4.5 bits, in 8.42 s of 640 tokens;
# 1.88 s of synchronisation and copies; 60 GB/s in dense models.
LAYERS, EXPERTS, TOKENS = 25, 6, 640
LAYERS_MB, COMPUTING_S, HANDING_S, DENSE_GBPS = 1298 * 4.5 / 8, 8.42, 1.88, 60.0

TEXT = """\
# CPU: fits of its values

Made by `python validation/cpu.py`, which also writes `ndpsim/inference/processors/fits/cpu.csv`. The fits use
measurements of memory and of kernels, and prompts computed by a CPU alone; they do not use tokens/s of
machines with a GPU. Sources are in `validation/cpu_reads.csv`, `cpu_products.csv` and `cpu_steps.csv`.
Means are geometric. An error is the model minus the measurement, as a share of the measurement. "Left
out" is the error of a prediction from all other measurements.

## Reading: share of the channels' peak

`host.cpu_read_share` by `host.cpu_family`: from measurements of the family, or of all families if there
is none.

| CPU | family | of peak | model | error | left out |
|---|---|---|---|---|---|
{shares}

Of all families: {any_share:.3f}; a family without measurements of its own would be {share_worst:+.0%}
off at worst. The benchmarks differ: MLC and OCCT read, STREAM and memcpy also write. The Xeon 8358 is
far below other Xeons, and its page does not give power settings; the fit includes it. For Sapphire
Rapids and Granite Rapids, no measurement that names the memory was found.

A fabric may be slower than the channels: it transfers 32 B a clock for each chiplet of eight cores, at
1.8 GHz (Threadripper) or 2.0 GHz. These values are not fitted:

| CPU | measured GB/s | model | error |
|---|---|---|---|
{fabrics}

Programs that compute experts of one token reach a share of these limits, on average
{expert_share:.3f}. It applies if the file gives neither `host.cpu_read_share` nor `host.cpu_read_gbps`:

| CPU | measured GB/s | limit | share of it | left out |
|---|---|---|---|---|
{experts}

A program that unpacks weights value by value is slower and is not part of the fit: {scalar}.

## Reading: a core

The table has the rates of some threads. c is the rate of one, by family as above, from the row of a CPU with
the fewest threads. n of N threads read no more than n c, and R g(n) / g(N) with g(n) = (1 + (R / n
c)^2)^(-1/2) and the rate R of all: some threads wait for the same channels before all channels are busy. The
form is from the rows of the EPYC 7773X, which a limit at which threads stop to add (g = min(n c / R, 1))
misses by {sharp:+.0%} at worst.

| CPU | threads | measured GB/s | model | error | left out |
|---|---|---|---|---|---|
{threads}

Of all families: {any_core:.1f} GB/s. "Left out" is the error of c. The rows of the EPYC 7773X, the Xeon 6980P
and the Threadripper 7960X are rates of programs, over {expert_share:.3f}. The Threadripper's program has many
small kernels, in which more than reading does not scale.

## Products of many tokens

The figures are operations in a clock on one core. With this number the model takes as long as the measured
prompt. An expert takes at least the time to read its weights; the last columns of the second table have it
take the sum of both, as `ndpsim predict` does (`host.cpu_roofline_power` of 1), by formats
[cpu_formats.md](cpu_formats.md). Its tokens come from the trace that `ndpsim moe` makes for the model. If a
CPU's memory is not known, the time to read is ignored. Routed experts are a little more than half of the
operations. Attention and dense parts are assumed to run at the same rate, in the same code; their operations
are computed from the model's shape. Clocks are the data sheets' base clocks (`host.cpu_clock_ghz`). CPUs
exceed them under load by an unknown amount.

| CPU | code | model | experts' share | tokens an expert | operations | model | error | left out |
|---|---|---|---|---|---|---|---|---|
{products}

`host.cpu_compute_efficiency` by `host.cpu_isa` is the mean, as a share of the operations that the
instructions could start. There is no trend between 16 and 48 tokens an expert, so
`host.cpu_added_tokens` stays 0. Without VNNI the program uses its AVX2 code. AMX is one unnamed Xeon,
assumed to be a 6454S; its rate at 8 bits is compared with twice the operations of BF16.

| isa | operations a clock | reached | efficiency | if both add | efficiency | worst left out |
|---|---|---|---|---|---|---|
{isas}

## Overheads

Steps of FreeToken, fitted with a cost a layer and a cost an expert (least squares of relative errors):
{layer_us:.0f} us a layer and {expert_us:.1f} us an expert, its {expert_mb:.2f} MB at {expert_gbps:.0f}
GB/s.

| experts | measured | model | error | left out |
|---|---|---|---|---|
{steps}

A line is a poor model of it: without the shortest step, the others do not determine the cost of a layer.
The same program reports 96.2 GB/s as 91% of STREAM, so STREAM is {stream:.0f} GB/s. At that rate reading
alone takes all of the time of an expert, and no cost of an expert is left. Small experts agree: {many} of
{many_mib} MiB on a Ryzen 7 9800X3D take {many_us:.2f} us each more than at the {many_gbps} GB/s of a memory
test with the same fabric.

In ik_llama.cpp on a Ryzen 9 7950X with an RTX 4080, the experts of DeepSeek-V2-Lite take {extra_us:.0f} us a
layer more than at the {dense_gbps:.0f} GB/s of dense models, and synchronisation and copies between CPU and
GPU {handing_us:.0f} us. A hardware file that includes them has

- `host.cpu_expert_overhead_us`: {many_us:.1f}
- `host.cpu_layer_overhead_us`: {both_us:.0f}, of which {handing_us:.0f} are synchronisation and copies

The {layer_us:.0f} us of FreeToken's two sockets are {both_error:+.0%} from that. The least possible is
2.2 us, for a flag that is written and answered (gdrcopy_pplat on a B200). Without these keys nothing is
counted.
"""


class Read(NamedTuple):
    """A row of cpu_reads.csv."""

    cpu: str
    family: str
    test: str
    threads: int
    peak_gbps: float
    fabric_gbps: float | None
    gbps: float
    all_threads: int | None
    memory_gbps: float | None

    @property
    def share(self) -> float:
        """The rate of reading, as a share of the peak."""
        return self.gbps / self.peak_gbps


class Product(NamedTuple):
    """A row of cpu_products.csv as operations a clock and core; `experts`: of these, by routed experts."""

    cpu: str
    code: str
    model: str
    experts: float | None
    tokens: float | None
    operations: float


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a file beside this script."""
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def reads(test: str) -> list[Read]:
    """Measured rates of reading."""
    return [
        Read(row["cpu"], row["family"], test, int(row["threads"]), float(row["peak_gbps"]),
             float(row["fabric_gbps"]) if row["fabric_gbps"] else None, float(row["gbps"]),
             int(row["all_threads"]) if row["all_threads"] else None,
             float(row["memory_gbps"]) if row["memory_gbps"] else None)
        for row in rows("cpu_reads.csv")
        if row["test"] == test
    ]  # fmt: skip


def flops(name: str, tokens: int) -> tuple[float, float]:
    """Operations of routed experts, and of all, in a prompt of so many tokens."""
    model, dense = load_model(name), 0.0
    times = {"router": model.moe_layers, "shared_experts": model.moe_layers, "head": 1}
    times |= {"attention": model.layers, "dense_layer": len(model.dense_layers)}
    for one in operations(model, Step(1, tokens, tokens)):
        dense += times[one.part] * one.flops
    experts = 2.0 * model.experts_per_token * model.expert.weights * model.moe_layers * tokens
    return experts, experts + dense


def limit_gbps(row: Mapping[str, str]) -> float | None:
    """The read rate of a program on the CPU of a row of cpu_products.csv; None: its memory is not known."""
    if not row["family"]:
        return None
    limit = of(by_group(share_pairs()), row["family"]) * float(row["peak_gbps"])
    if row["fabric_gbps"]:
        limit = min(limit, float(row["fabric_gbps"]))
    return limit * by_group(expert_pairs())[ANY]


@functools.cache
def prompt_loads(name: str, tokens: int) -> NDArray[np.int64]:
    """Tokens of each layer's experts in a prompt: int64[layer, expert]."""
    model = load_model(name)
    trace = generate_routing(default_routing(model), model, 1, 1, tokens)
    assert trace.prefill_ids is not None
    return np.array([np.bincount(ids.ravel(), minlength=trace.experts) for ids in trace.prefill_ids])


def prompt_s(row: Mapping[str, str], rate: float, adds: bool) -> float:
    """The time of a prompt with so many operations a second: an expert takes its reading and its products.

    adds: the sum of both (host.cpu_roofline_power of 1), else the longer one.
    """
    model, prompt, gbps = load_model(row["model"]), int(row["tokens"]), limit_gbps(row)
    experts, of_all = flops(row["model"], prompt)
    if gbps is None:
        return of_all / rate
    bits = weight_file(row["weights"], model).bits
    size = sum(float(bits[one]) for one in MATRICES) / 3 / 8 * model.expert.weights
    loads = prompt_loads(row["model"], prompt)
    together = np.add if adds else np.maximum
    times = together(2.0 * model.expert.weights * loads / rate, (loads > 0) * size / gbps / 1e9)
    return (of_all - experts) / rate + float(times.sum())


def reached_rate(row: Mapping[str, str], adds: bool) -> float:
    """Operations a second with which the model takes as long as was measured."""
    measured = int(row["tokens"]) / float(row["rate"])
    low, high = 1e9, 1e16
    while high / low > 1.0001:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if prompt_s(row, middle, adds) > measured else (low, middle)
    return low


def product(row: Mapping[str, str], adds: bool) -> Product:
    """A row of cpu_products.csv."""
    share, tokens, rate = None, None, float(row["rate"]) * 1e12
    if row["model"]:
        prompt, model = int(row["tokens"]), load_model(row["model"])
        experts, of_all = flops(row["model"], prompt)
        share, tokens = experts / of_all, prompt * model.experts_per_token / model.routed_experts
        rate = reached_rate(row, adds)
    if row["weights"] == "INT8":
        rate /= AMX_INT8
    name = f"{row['model'] or 'experts'}, {row['weights']}"
    reached = rate / (int(row["cores"]) * float(row["clock_ghz"]) * 1e9)
    return Product(row["cpu"], row["code"], name, share, tokens, reached)


@functools.cache
def products(adds: bool) -> tuple[Product, ...]:
    """Measured products; adds: as in `prompt_s`."""
    return tuple(product(row, adds) for row in rows("cpu_products.csv"))


def by_group(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The mean of each group, and the mean of these means."""
    groups: dict[str, list[float]] = {}
    for group, value in pairs:
        groups.setdefault(group, []).append(value)
    means = {group: statistics.geometric_mean(values) for group, values in groups.items()}
    return means | {ANY: statistics.geometric_mean(means.values())}


def left_out(pairs: Sequence[tuple[str, float]]) -> list[float]:
    """The error of predicting each from all others: from its group, or from all where it has no other."""
    errors = []
    for place, (group, value) in enumerate(pairs):
        means = by_group([*pairs[:place], *pairs[place + 1 :]])
        errors.append(means.get(group, means[ANY]) / value - 1)
    return errors


def share_pairs() -> list[tuple[str, float]]:
    """Family and share of the peak."""
    return [(read.family, read.share) for read in reads("share")]


def core_gbps(read: Read) -> float:
    """What a core reads by the model, from a row with few threads: the inverse of `memory_gbps`."""
    low, high = read.gbps / read.threads, 1e3
    while high / low > 1.00001:
        middle = (low * high) ** 0.5
        rate = memory_gbps([read.peak_gbps], read.threads, read.all_threads, middle)
        low, high = (middle, high) if (rate or 0) < read.gbps else (low, middle)
    return low


@functools.cache
def of_threads() -> tuple[Read, ...]:
    """Rates of some threads; those of programs over the share that programs read of what the memory gives."""
    share = by_group(expert_pairs())[ANY]
    of_programs = [
        read._replace(gbps=read.gbps / share, peak_gbps=read.peak_gbps / share) for read in reads("program")
    ]
    return *reads("threads"), *of_programs


def fewest_threads() -> list[Read]:
    """Of each CPU in the table of threads, the row with the fewest."""
    found: dict[str, Read] = {}
    for read in of_threads():
        found.setdefault(read.cpu, read)
    return list(found.values())


def core_pairs() -> list[tuple[str, float]]:
    """Family and what one thread reads."""
    return [(read.family, core_gbps(read)) for read in fewest_threads()]


def expert_pairs() -> list[tuple[str, float]]:
    """Of programs that compute experts, what they read over what the limits leave; of all families."""
    return [("all", read.gbps / model_gbps(read)) for read in reads("experts")]


def product_pairs(adds: bool = False) -> list[tuple[str, float]]:
    """Code and operations a clock and core."""
    return [(one.code, one.operations) for one in products(adds)]


def of(means: Mapping[str, float], group: str) -> float:
    """The mean of a group, or of all."""
    return means.get(group, means[ANY])


def sharpest() -> float:
    """The worst error of the EPYC 7773X if threads add up to the rate of all."""
    rows_of = [read for read in of_threads() if read.cpu == "EPYC 7773X"]
    core = rows_of[0].gbps / rows_of[0].threads
    return max((min(read.threads * core, read.peak_gbps) / read.gbps - 1 for read in rows_of), key=abs)


def memory_limit(read: Read) -> float:
    """What the memory gives to all threads: measured on the same machine, or by the family."""
    share = of(by_group(share_pairs()), read.family)
    memory = share * read.peak_gbps if read.memory_gbps is None else read.memory_gbps
    return memory if read.fabric_gbps is None else min(memory, read.fabric_gbps)


def model_gbps(read: Read) -> float:
    """The rate of this many threads by the model."""
    if read.test not in ("threads", "program"):
        return memory_limit(read)
    core = of(by_group(core_pairs()), read.family)
    return memory_gbps([read.peak_gbps], read.threads, read.all_threads, core) or 0.0


def steps() -> tuple[list[int], list[float]]:
    """Experts of FreeToken's steps, and how long these take, in us."""
    table = rows("cpu_steps.csv")
    return [int(row["experts"]) for row in table], [1e3 * float(row["ms"]) for row in table]


def line(experts: Sequence[int], times_us: Sequence[float]) -> tuple[float, float]:
    """The times of a layer and of an expert, by least squares of relative errors."""
    weights = 1 / np.array(times_us)
    table = np.stack([weights, np.array(experts) * weights], axis=1)
    layer_us, expert_us = np.linalg.lstsq(table, np.ones(len(weights)), rcond=None)[0]
    return float(layer_us), float(expert_us)


def overheads_us() -> tuple[float, float, float]:
    """On top of an expert, on top of a layer's experts, and for the hand-over of a layer."""
    many_us = 1e3 * MANY_MS / MANY_EXPERTS - MANY_MIB * 2**20 / MANY_GBPS / 1e3
    extra_us = (1e6 * COMPUTING_S / TOKENS - 1e3 * LAYERS_MB / DENSE_GBPS) / LAYERS
    return many_us, extra_us, 1e6 * HANDING_S / TOKENS / LAYERS


def table_lines(table: Iterable[list[str]]) -> str:
    """The rows of a table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in table)


def share_cells() -> list[list[str]]:
    """Shares of the peak."""
    means, outside = by_group(share_pairs()), left_out(share_pairs())
    return [
        [read.cpu, read.family, f"{read.share:.3f}", f"{of(means, read.family):.3f}",
         f"{of(means, read.family) / read.share - 1:+.0%}", f"{error:+.0%}"]
        for read, error in zip(reads("share"), outside, strict=True)
    ]  # fmt: skip


def plain_cells(test: str) -> list[list[str]]:
    """Measurements to which nothing is fitted."""
    return [
        [read.cpu, f"{read.gbps:g}", f"{model_gbps(read):.1f}", f"{model_gbps(read) / read.gbps - 1:+.0%}"]
        for read in reads(test)
    ]


def expert_cells() -> list[list[str]]:
    """Programs that compute experts of one token."""
    return [
        [read.cpu, f"{read.gbps:g}", f"{model_gbps(read):.1f}", f"{share:.2f}", f"{error:+.0%}"]
        for read, (_, share), error in zip(
            reads("experts"), expert_pairs(), left_out(expert_pairs()), strict=True
        )
    ]


def thread_cells() -> list[list[str]]:
    """The rate of a few threads."""
    outside, cells = iter(left_out(core_pairs())), []
    for read in of_threads():
        error = f"{next(outside):+.0%}" if read in fewest_threads() else "not fitted"
        model = model_gbps(read)
        cells.append([read.cpu, str(read.threads), f"{read.gbps:.1f}", f"{model:.1f}",
                      f"{model / read.gbps - 1:+.0%}", error])  # fmt: skip
    return cells


def product_cells() -> list[list[str]]:
    """Operations a clock and core."""
    means, cells = by_group(product_pairs()), []
    for one, error in zip(products(adds=False), left_out(product_pairs()), strict=True):
        share = "" if one.experts is None else f"{one.experts:.0%}"
        tokens = "not stated" if one.tokens is None else f"{one.tokens:g}"
        model = means[one.code]
        cells.append([one.cpu, one.code, one.model, share, tokens, f"{one.operations:.1f}", f"{model:.1f}",
                      f"{model / one.operations - 1:+.0%}", f"{error:+.0%}"])  # fmt: skip
    return cells


def worst(code: str) -> float:
    """The worst error of a row that is left out, if reading and products add."""
    pairs = product_pairs(adds=True)
    return max(
        (error for (of_row, _), error in zip(pairs, left_out(pairs), strict=True) if of_row == code), key=abs
    )


def isa_cells() -> list[list[str]]:
    """Efficiencies."""
    longer, both = by_group(product_pairs()), by_group(product_pairs(adds=True))
    return [
        [isa, str(PEAK_OPERATIONS[isa]), f"{longer[code]:.1f}", f"{longer[code] / PEAK_OPERATIONS[isa]:.4f}",
         f"{both[code]:.1f}", f"{both[code] / PEAK_OPERATIONS[isa]:.4f}", f"{worst(code):+.0%}"]
        for isa, code in CODE_OF.items()
    ]  # fmt: skip


def step_cells() -> list[list[str]]:
    """FreeToken's steps."""
    experts, times_us = steps()
    cells, (layer_us, expert_us) = [], line(experts, times_us)
    for place, (count, time_us) in enumerate(zip(experts, times_us, strict=True)):
        apart = [[*values[:place], *values[place + 1 :]] for values in (experts, times_us)]
        without = line(*apart)
        model = layer_us + count * expert_us
        error, apart_us = model / time_us - 1, without[0] + count * without[1]
        times = f"{time_us / 1e3:.2f} ms", f"{model / 1e3:.2f} ms"
        cells.append([str(count), *times, f"{error:+.0%}", f"{apart_us / time_us - 1:+.0%}"])
    return cells


def fits() -> str:
    """The text of fits/cpu.csv."""
    lines = ["family,key,value,unit,measurements,worst_left_out"]
    shares, cores = share_pairs(), core_pairs()
    for quantity, unit, names, pairs in (
        ("compute_efficiency", "share", CODE_OF, product_pairs()),
        ("adding_efficiency", "share", CODE_OF, product_pairs(adds=True)),
        ("read_share", "share", {family: family for family in by_group(shares)}, shares),
        ("expert_read_share", "share", {ANY: ANY}, expert_pairs()),
        ("core_read_gbps", "GB/s", {family: family for family in by_group(cores)}, cores),
    ):
        means, errors = by_group(pairs), left_out(pairs)
        for name, group in names.items():
            if name == "other":  # computers of no known family
                continue
            of_group = [error for (one, _), error in zip(pairs, errors, strict=True) if group in (one, ANY)]
            value = means[group] / (PEAK_OPERATIONS[name] if names is CODE_OF else 1)
            worst = max(of_group, key=abs)
            lines.append(f"{name},{quantity},{value:.4g},{unit},{len(of_group)},{worst:+.2f}")
    return "\n".join(lines) + "\n"


def text() -> str:
    """The text of cpu.md."""
    layer_us, expert_us = line(*steps())
    many_us, extra_us, handing_us = overheads_us()
    both_us = handing_us + extra_us - EXPERTS * many_us
    pairs = by_group(share_pairs())
    worst = max(left_out([pair for pair in pairs.items() if pair[0] != ANY]), key=abs)
    return TEXT.format(
        shares=table_lines(share_cells()), any_share=pairs[ANY], share_worst=worst,
        fabrics=table_lines(plain_cells("fabric")), experts=table_lines(expert_cells()),
        expert_share=by_group(expert_pairs())[ANY],
        scalar=", ".join(f"{cpu}, {gbps} GB/s of {limit}" for cpu, gbps, limit, _ in plain_cells("scalar")),
        threads=table_lines(thread_cells()),
        any_core=by_group(core_pairs())[ANY],
        sharp=sharpest(),
        products=table_lines(product_cells()), isas=table_lines(isa_cells()), layer_us=layer_us,
        expert_us=expert_us, expert_mb=EXPERT_MB, expert_gbps=EXPERT_MB * 1e3 / expert_us,
        steps=table_lines(step_cells()), stream=STREAM_GBPS, many=MANY_EXPERTS, many_mib=MANY_MIB,
        many_us=many_us, many_gbps=MANY_GBPS, extra_us=extra_us, dense_gbps=DENSE_GBPS,
        handing_us=handing_us, both_us=both_us, both_error=both_us / layer_us - 1,
    )  # fmt: skip


if __name__ == "__main__":
    (FOLDER / "cpu.csv").write_text(fits(), encoding="utf-8")
    (HERE / "cpu.md").write_text(text(), encoding="utf-8")
