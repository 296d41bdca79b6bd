"""Pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.errors import InputError
from ndpsim.files import replacing
from ndpsim.simulate import ExpertResult, LoadPoint, Memory, TraceResult
from ndpsim.spec.standard import RD, RDA
from ndpsim.units import format_energy, format_power, format_time

__all__ = ["check_format", "draw_energy", "draw_expert", "draw_latencies", "draw_sweep"]

_BINS = 1500
_REFRESHES_SHOWN = 150  # one by one; more are averaged over whole intervals
# Colours of Okabe and Ito, told apart by colour-blind readers as well.
_COLOURS = {
    "data": "#0072B2",
    "refresh": "#E69F00",
    "rows": "#CC79A7",
    "fifo full": "#D55E00",
    "nothing to read": "#BBBBBB",
}
_PHASES = {
    "activations-in": "#56B4E9",
    "gate-up": "#0072B2",
    "activation": "#009E73",
    "down": "#CC79A7",
    "result-out": "#E69F00",
}


def _bin_edges_us(result: ExpertResult) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Fine enough to show every refresh; where they are too many for that, whole refresh intervals."""
    interval_ns = result.config["hardware"]["timings"]["nREFI"] * result.clock_ns
    width_ns = result.time_ns / _BINS
    if result.time_ns > _REFRESHES_SHOWN * interval_ns:
        width_ns = np.ceil(result.time_ns / interval_ns / _REFRESHES_SHOWN) * interval_ns
    return np.arange(0, result.time_ns + width_ns, width_ns) / 1000


def _bandwidth(axes: Axes, result: ExpertResult) -> None:
    """Bytes that reach the buffer chip in each of many equal times, as GB/s."""
    edges_us = _bin_edges_us(result)
    bursts = np.zeros(len(edges_us) - 1)
    for trace in result.command_traces:
        reads_us = trace.clock[np.isin(trace.command, (RD, RDA))] * result.clock_ns / 1000
        bursts += np.histogram(reads_us, edges_us)[0]
    gbps = bursts * result.config["hardware"]["derived"]["burst_bytes"] / (edges_us[1] * 1000)
    peak, mean = result.peak_bandwidth_gbps, result.bandwidth_gbps
    axes.stairs(gbps, edges_us, fill=True, color=_COLOURS["data"], alpha=0.6)
    axes.axhline(peak, color="black", linewidth=0.8, linestyle="--", label=f"peak {peak:.1f} GB/s")
    label = f"mean {mean:.1f} GB/s, {100 * result.peak_fraction:.1f}% of peak"
    axes.axhline(mean, color=_COLOURS["fifo full"], linewidth=1.2, linestyle=":", label=label)
    axes.set(ylabel="weights read (GB/s)", ylim=(0, peak * 1.05), xlim=(0, result.time_ns / 1000))
    axes.legend(
        ncols=2, fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1
    )
    axes.tick_params(labelbottom=False)


def _phases(axes: Axes, result: ExpertResult) -> None:
    """What the buffer chip does, one row a phase."""
    names = list(_PHASES)
    for phase in result.phases:
        start, length = phase.start_ns / 1000, max(phase.end_ns - phase.start_ns, result.time_ns / 500) / 1000
        axes.barh(names.index(phase.name), length, left=start, color=_PHASES[phase.name], height=0.7)
    axes.set(yticks=range(len(names)), yticklabels=names, xlabel="time (us)", ylim=(len(names) - 0.4, -0.6))
    axes.tick_params(axis="y", labelsize=8)


def _where(axes: Axes, result: ExpertResult) -> None:
    """The time of a lane's data bus, mean over the lanes."""
    device = result.config["hardware"]
    reads = result.weight_bursts * result.weight_reads / result.lanes
    parts = {
        "data": reads * device["timings"]["nBL"] * result.clock_ns,
        "refresh": result.idle_ns["refresh"],
        "rows": result.idle_ns["rows"],
        "fifo full": result.idle_ns["fifo"],
    }
    parts["nothing to read"] = max(0.0, result.time_ns - sum(parts.values()))
    left = 0.0
    for name, ns in parts.items():
        share = 100 * ns / result.time_ns
        axes.barh(
            0,
            share,
            left=left,
            color=_COLOURS[name],
            height=0.6,
            label=f"{name} {share:.1f}% ({format_time(ns)})",
        )
        left += share
    axes.set(yticks=[], xlim=(0, 100), xlabel="where the time of a lane's data bus went (%)")
    axes.legend(
        ncols=5, fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.2
    )


_ENERGIES = {
    "activate": "#CC79A7",
    "read": "#0072B2",
    "write": "#56B4E9",
    "refresh": "#E69F00",
    "background": "#BBBBBB",
    "io": "#009E73",
    "ndp": "#D55E00",
    "link": "#F0E442",
    "host": "#000000",
}


def draw_energy(axes: Axes, energy_nj: Mapping[str, float | None], time_ns: float) -> None:
    """Energies in nJ by component as one bar, those of the NDP units together, with the power of each."""
    parts = dict.fromkeys(_ENERGIES, 0.0)
    for name, nj in energy_nj.items():
        if name != "total":
            parts["ndp" if name.startswith("ndp_") else name] += nj or 0.0
    total, left = sum(parts.values()), 0.0
    for name, nj in parts.items():
        if nj > 0:
            label = f"{name} {100 * nj / total:.1f}% ({format_power(nj / time_ns)})"
            axes.barh(0, 100 * nj / total, left=left, color=_ENERGIES[name], height=0.6, label=label)
            left += 100 * nj / total
    words = f"where {format_energy(total)}, {format_power(total / time_ns)}, went (%)"
    axes.set(yticks=[], xlim=(0, 100), xlabel=words)
    axes.legend(
        ncols=4, fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.2
    )


def draw_latencies(path: str, result: TraceResult) -> None:
    """Read latencies of a trace as a histogram.

    Raises:
        InputError: the trace has no reads, or the file name ends in no picture format.
    """
    if result.read_latency_ns is None:
        raise InputError("the trace has no reads whose latency could be drawn", key="--plot")
    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    bars = result.read_latency_histogram
    edges = [bar["from_ns"] for bar in bars] + [bars[-1]["to_ns"]]
    shares = [100 * bar["reads"] / result.reads for bar in bars]
    axes.stairs(shares, edges, fill=True, color=_COLOURS["data"], alpha=0.6)
    styles = {"mean": "-", "p50": ":", "p90": "--", "p99": "-."}
    for name, style in styles.items():
        ns = result.read_latency_ns[name]
        axes.axvline(ns, color="black", linewidth=1, linestyle=style, label=f"{name} {format_time(ns)}")
    axes.set(xlabel="read latency, arrival to last beat (ns)", ylabel="reads (%)")
    axes.legend(frameon=False, fontsize=8)
    carried = f"{result.bandwidth_gbps:.2f} GB/s, {100 * result.peak_fraction:.1f}% of peak"
    axes.set_title(f"{result.config['timing']} {result.config['org']}: {carried}", fontsize=10)
    _save(figure, path)


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
    axes.plot(carried, mean_ns, "o-", color=_COLOURS["data"], label="mean")
    axes.plot(
        carried,
        p99_ns,
        "s--",
        color=_COLOURS["fifo full"],
        label="99th percentile",
    )
    peak = memory.channels * memory.device.peak_gbps
    axes.axvline(peak, color="black", linewidth=0.8, linestyle="--", label=f"peak {peak:.1f} GB/s")
    axes.set(xlabel="bandwidth carried (GB/s)", ylabel="read latency (ns)", xlim=(0, None), ylim=(0, None))
    axes.set_title(f"{memory.device.timing} {memory.device.org}: latency against throughput", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def check_format(path: str) -> str:
    """The picture format that a file's name asks for: "png", "svg", ...

    Raises:
        InputError: there is no such format.
    """
    kind = Path(path).suffix.lstrip(".").lower() or "png"
    known = Figure().canvas.get_supported_filetypes()
    if kind not in known:
        raise InputError(f"'{kind}' is no picture format (known: {', '.join(sorted(known))})", key="--plot")
    return kind


def draw_expert(path: str, result: ExpertResult) -> None:
    """Bandwidth over time, the phases under it, and where the time of the data buses and the energy went.

    Raises:
        InputError: the file name ends in no picture format.
    """
    config = result.config
    figure: Figure
    heights = (3, 1.5, 0.6) if result.energy_nj is None else (3, 1.5, 0.6, 0.6)
    figure, (top, middle, bottom, *rest) = plt.subplots(
        len(heights), 1, figsize=(10, 4.3 + 0.7 * len(heights)), height_ratios=heights, layout="constrained"
    )
    middle.sharex(top)
    _bandwidth(top, result)
    _phases(middle, result)
    _where(bottom, result)
    if result.energy_nj is not None:
        draw_energy(rest[0], result.energy_nj, result.time_ns)
    name = config["model"] or f"{config['hidden']} x {config['intermediate']}"
    tokens = "1 token" if result.tokens == 1 else f"{result.tokens} tokens"
    figure.suptitle(
        f"One expert of {name} on {config['hardware']['name']}, {tokens}: {format_time(result.time_ns)}, "
        f"bound by {result.bound}",
        fontsize=11,
        parse_math=False,
    )
    _save(figure, path)


def _save(figure: Figure, path: str) -> None:
    kind = check_format(path)
    try:
        with replacing(path) as file:
            figure.savefig(file, format=kind, dpi=150)
    finally:
        plt.close(figure)
