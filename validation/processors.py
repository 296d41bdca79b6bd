"""Writes processors.md: what the efficiencies of GPU and CPU in the hardware files are fitted to.

Run in the checkout: python validation/processors.py
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ndpsim.inference.processors import ExpertTable, Gpu, Processors, load_processors, read_table
from ndpsim.workload.models import load_model

MODELS = ("deepseek-v2", "qwen3-235b-a22b", "glm-4.5-air")
TABLE = "h100_mixtral-8x7b"
# NVIDIA's figures of the H100 with 132 SMs, BF16 without sparsity. The expert is read at 2.73 TB/s, which the
# card for PCIe cannot do.
H100_TFLOPS, H100_GBPS = 989.4, 3350.0
MANY_TOKENS = 1024
UTILIZATION, AT_TOKENS = 0.30, 256  # Section 3.1 of the TriMoE paper
CPU_TFLOPS = 10  # the least of Section 3.2
PAPER_WINDOW_MS = 0.68  # Section 5.5
BATCH, CONTEXT = 512, 512

TEXT = """\
# GPU and CPU: fits of the efficiencies

Made by `python validation/processors.py`. The values that `hwconfigs/trimoe.yaml` marks as fitted come
from here. Nothing here was fitted to the speed-ups of a paper.

## GPU: shares of the peaks

One expert of Mixtral-8x7B on an H100, as LLMServingSim measured it
(`{table}`), against {tflops} TFLOPS and {gbps:g} GB/s:

| | measured | in the file |
|---|---|---|
| `gpu.memory_efficiency`: its bytes over the time of one token | {memory:.3f} | {file_memory} |
| `gpu.compute_efficiency`: least squares from {many} tokens on | {compute:.3f} | {file_compute} |

The roofline with all values of the file is then {below:+.0%} ({below_at} tokens) to {above:+.0%}
({above_at}) from what was measured. It is too fast where memory and compute take about equally long, and
too slow with few tokens, where the fitted efficiency already includes the overhead.

## GPU: overhead of an expert

Section 3.1 of the TriMoE paper: an H100 needs at least 256 tokens an expert for 30% of its peak.

| model | overhead that makes {utilization:.0%} at {at} tokens | with {file_overhead:g} us |
|---|---|---|
{overheads}

The overhead is for an expert with a launch of its own, as in the paper's equation 1. One call for all
experts of a layer has the overhead once: [gpu.md](gpu.md) has such calls, also on other cards.

## CPU

21 TFLOPS for many tokens (kvcache-ai/ktransformers, `doc/en/AMX.md`); Section 3.2 of the TriMoE paper: 10 to
40 TFLOPS for tens to hundreds of tokens. With `host.cpu_added_tokens` {added}, an expert reaches
{cpu_tflops} TFLOPS at {cpu_tokens} tokens, {rates}.

## Attention and shared experts

Not fitted. In the paper, experts migrate during "~0.68 ms" of GPU computation (Section 5.5); it names
neither model nor context. A decode step of {batch} sequences, {context} tokens each, the cache in the
GPU's memory:

| model | attention | router | shared experts | together | of 0.68 ms |
|---|---|---|---|---|---|
{windows}
"""


def memory_efficiency(table: ExpertTable) -> float:
    """The share of the memory's peak at one token: all of the time is counted as reading."""
    assert table.tokens[0] == 1
    return table.expert.weight_bytes(table.bits) / table.times_ns[0] / H100_GBPS


def compute_efficiency(table: ExpertTable) -> float:
    """The share of the peak that, over all counts of many tokens, leaves the least squares of time."""
    pairs = [pair for pair in zip(table.tokens, table.times_ns, strict=True) if pair[0] >= MANY_TOKENS]
    peak_ns = [2 * table.expert.weights * tokens / (H100_TFLOPS * 1e3) for tokens, _ in pairs]
    return sum(ns * ns for ns in peak_ns) / sum(
        ns * time for ns, (_, time) in zip(peak_ns, pairs, strict=True)
    )


def errors(table: ExpertTable, gpu: Gpu) -> list[tuple[float, int]]:
    """How far the roofline is from what was measured, as a share of it, with the tokens; the least first."""
    h100 = dataclasses.replace(gpu, peak_tflops=H100_TFLOPS, memory_gbps=H100_GBPS, tables=())
    measured = zip(table.tokens, table.times_ns, strict=True)
    return sorted((h100.expert_time(table.expert, n).time_ns / time_ns - 1, n) for n, time_ns in measured)


def overhead_us(processors: Processors, model: str) -> float:
    """The time that an expert lacks to reach the published share of the peak."""
    time = processors.gpu.expert_time(load_model(model).expert, AT_TOKENS)
    assert time.overhead_ns is not None
    flops = 2.0 * load_model(model).expert.weights * AT_TOKENS
    wanted_ns = flops / (UTILIZATION * processors.gpu.peak_tflops * 1e3)
    return (wanted_ns - (time.time_ns - time.overhead_ns)) / 1e3


def cpu_tokens(processors: Processors) -> int:
    """The fewest tokens with which an expert reaches the least published rate."""
    expert = load_model(MODELS[0]).expert
    return next(n for n in range(1, 1000) if processors.cpu.expert_time(expert, n).tflops >= CPU_TFLOPS)


def window_row(processors: Processors, model: str) -> str:
    """Attention, router and shared experts of a layer in decode."""
    time = processors.dense_time(model, BATCH, CONTEXT)
    parts = (time.attention_ns, time.router_ns, time.shared_ns)
    whole = sum(parts) / 1e6
    cells = [f"{ns / 1e6:.3f} ms" for ns in parts] + [f"{whole:.3f} ms", f"{whole / PAPER_WINDOW_MS:.2f}"]
    return f"| {model} | {' | '.join(cells)} |"


def text() -> str:
    """The text of processors.md."""
    table, processors = read_table(TABLE, Path()), load_processors("trimoe")
    gpu, cpu = processors.gpu, processors.cpu
    (below, below_at), *_, (above, above_at) = errors(table, gpu)
    overheads = [
        f"| {model} | {overhead_us(processors, model):.1f} us "
        f"| {gpu.expert_time(load_model(model).expert, AT_TOKENS).peak_fraction:.1%} |"
        for model in MODELS
    ]
    expert = load_model(MODELS[0]).expert
    rates = ", ".join(f"{cpu.expert_time(expert, n).tflops:.1f} at {n}" for n in (32, 64, 128, 256, 512))
    return TEXT.format(
        table=f"ndpsim/inference/processors/tables/{TABLE}.csv",
        tflops=H100_TFLOPS,
        gbps=H100_GBPS,
        memory=memory_efficiency(table),
        compute=compute_efficiency(table),
        file_memory=gpu.memory_efficiency,
        file_compute=gpu.compute_efficiency,
        many=MANY_TOKENS,
        below=below,
        below_at=below_at,
        above=above,
        above_at=above_at,
        utilization=UTILIZATION,
        at=AT_TOKENS,
        file_overhead=gpu.expert_overhead_ns / 1e3,
        overheads="\n".join(overheads),
        added=f"{cpu.added_tokens:g}",
        cpu_tflops=CPU_TFLOPS,
        cpu_tokens=cpu_tokens(processors),
        rates=rates,
        batch=BATCH,
        context=CONTEXT,
        windows="\n".join(window_row(processors, model) for model in MODELS),
    )


if __name__ == "__main__":
    Path(__file__).with_name("processors.md").write_text(text(), encoding="utf-8")
