"""Pictures of request traces: latencies, and latency against throughput."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt

from ndpsim.errors import InputError
from ndpsim.report.pictures.bars import draw_energy
from ndpsim.report.pictures.canvas import BLUE, VERMILION, save, stacked
from ndpsim.simulate import LoadPoint, Memory, TraceResult
from ndpsim.units import format_time

__all__ = ["draw_latencies", "draw_sweep"]


def draw_latencies(path: str, result: TraceResult) -> None:
    """Read latencies of a trace as a histogram, and where the energy went.

    Raises:
        InputError: the trace has no reads, or the file name ends in no picture format.
    """
    if result.read_latency_ns is None:
        raise InputError("the trace has no reads whose latency could be drawn", key="--plot")
    config = result.config
    carried = f"{result.bandwidth_gbps:.2f} GB/s, {100 * result.peak_fraction:.1f}% of peak"
    title = f"{config['timing']} {config['org']}: {carried}"
    figure, (axes, *rest) = stacked(title, (3.5,) if result.energy_nj is None else (3.5, 0.6))
    bars = result.read_latency_histogram
    edges = [bar["from_ns"] for bar in bars] + [bars[-1]["to_ns"]]
    shares = [100 * bar["reads"] / result.reads for bar in bars]
    axes.stairs(shares, edges, fill=True, color=BLUE, alpha=0.6)
    styles = {"mean": "-", "p50": ":", "p90": "--", "p99": "-."}
    for name, style in styles.items():
        ns = result.read_latency_ns[name]
        axes.axvline(ns, color="black", linewidth=1, linestyle=style, label=f"{name} {format_time(ns)}")
    axes.set(xlabel="read latency, arrival to last beat (ns)", ylabel="reads (%)")
    axes.legend(frameon=False, fontsize=8)
    if result.energy_nj is not None:
        draw_energy(rest[0], result.energy_nj, result.time_ns)
    save(figure, path)


def draw_sweep(path: str, points: Sequence[LoadPoint], memory: Memory) -> None:
    """Read latency against the bandwidth that is carried.

    Raises:
        InputError: the trace has no reads, or the file name ends in no picture format.
    """
    read = [
        (p.bandwidth_gbps, p.mean_ns, p.p99_ns)
        for p in points
        if p.mean_ns is not None and p.p99_ns is not None
    ]
    if not read:
        raise InputError("the trace has no reads whose latency could be drawn", key="--plot")
    carried, mean_ns, p99_ns = zip(*read, strict=True)
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axes.plot(carried, mean_ns, "o-", color=BLUE, label="mean")
    axes.plot(
        carried,
        p99_ns,
        "s--",
        color=VERMILION,
        label="99th percentile",
    )
    peak = memory.channels * memory.device.peak_gbps
    axes.axvline(peak, color="black", linewidth=0.8, linestyle="--", label=f"peak {peak:.1f} GB/s")
    axes.set(xlabel="bandwidth carried (GB/s)", ylabel="read latency (ns)", xlim=(0, None), ylim=(0, None))
    axes.set_title(f"{memory.device.timing} {memory.device.org}: latency against throughput", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)
