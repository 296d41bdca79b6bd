"""Pictures of request traces: latencies, and latency against throughput."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.errors import InputError
from ndpsim.base.units import Scale, format_time, percent
from ndpsim.report.metrics import metric_label
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.bars import energy_panel
from ndpsim.report.pictures.canvas import COLOURS, INK, Panel, Panels, compose, tint
from ndpsim.report.pictures.points import logarithmic
from ndpsim.report.text import title_of
from ndpsim.report.words import counted
from ndpsim.simulate import LoadPoint, Memory, TraceResult

_MARKED = {"50": "o", "95": "s", "99": "^", "99.9": "D"}
_LATENCY = f"{metric_label('read_latency_ns', Scale('ns'), results=(TraceResult,))}, arrival to last beat"
_WIDE = 30  # If some latencies exceed the median by this factor, their axis is logarithmic.


def _no_reads() -> InputError:
    return InputError("the trace has no reads whose latency could be drawn", "missing", key="--plot")


def percentile_ns(result: TraceResult, percent: float) -> float:
    """The shortest latency that `percent`, of at most one decimal, of the reads do not exceed."""
    needed = percent / 100 * result.reads
    return next(
        point["ns"] for point in result.read_latency_distribution if point["reads"] >= needed * (1 - 1e-12)
    )


def _tail(axes: Axes, result: TraceResult) -> None:
    """The share of reads that take longer, on a logarithmic axis."""
    points = result.read_latency_distribution
    ns = np.array([point["ns"] for point in points])
    longer = 100 * (1 - np.array([point["reads"] for point in points]) / result.reads)
    lowest = 50 / result.reads  # half a read, to which the last step leads
    ends = np.append(100.0, np.maximum(longer[:-1], lowest))
    axes.step(np.append(ns, ns[-1]), np.append(ends, lowest), where="pre", color=COLOURS["read"])
    for name, marker in _MARKED.items():
        time_ns = percentile_ns(result, float(name))
        how: Any = {"color": INK, "linestyle": "none", "label": f"p{name} {format_time(time_ns)}"}
        axes.plot(time_ns, max(lowest, 100 - float(name)), marker, **how)
    assert result.read_latency_ns is not None
    mean_ns = result.read_latency_ns["mean"]
    axes.axvline(mean_ns, color=INK, linestyle=":", label=f"mean {format_time(mean_ns)}")
    if ns[-1] > _WIDE * percentile_ns(result, 50):
        logarithmic(axes, "x")
    else:
        axes.set_xlim(0, 1.02 * ns[-1])
    axes.set(xlabel=_LATENCY, ylabel="reads that take longer (%)", yscale="log")
    shown = [10.0**power for power in range(2, -7, -1) if 10.0**power >= lowest]
    axes.set_yticks(shown, [f"{share:g}" for share in shown])
    axes.set_ylim(lowest, 130)
    axes.minorticks_off()


def _histogram(axes: Axes, result: TraceResult) -> None:
    """The share of reads by latency."""
    bars = result.read_latency_histogram
    edges = [bar["from_ns"] for bar in bars] + [bars[-1]["to_ns"]]
    shares = [100 * bar["reads"] / result.reads for bar in bars]
    axes.stairs(shares, edges, fill=True, color=tint(COLOURS["read"], 0.4), linewidth=0)
    axes.stairs(shares, edges, color=COLOURS["read"])
    step = format_time(bars[0]["to_ns"] - bars[0]["from_ns"])
    label = f"reads (%)\nof each {step}"
    axes.set(xlabel=_LATENCY, ylabel=label, xlim=(0, 1.02 * edges[-1]), ylim=(0, None))


def latencies_figure(result: TraceResult, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Read latencies of a trace, as shares of longer reads and as a histogram, and parts of the energy.

    Args:
        result: of `run_trace`.

    Raises:
        InputError: the trace has no reads.
    """
    if result.read_latency_ns is None:
        raise _no_reads()
    carried = f"{result.bandwidth_gbps:.2f} GB/s, {percent(result.peak_fraction)} of peak"
    title = f"Read latencies: {title_of(result)}\n{counted(result.reads, 'read')}, {carried}"
    tail = {"tail": Panel(lambda axes: _tail(axes, result), 10, stretches=True)}
    sums = {
        "histogram": Panel(lambda axes: _histogram(axes, result), 6, stretches=True),
        "energy": energy_panel(result.energy_nj, result.time_ns),
    }
    return compose(title, (tail, sums), size, panels, "latencies")


def sweep_figure(
    points: Sequence[LoadPoint], memory: Memory, size: str = DEFAULT_SIZE, panels: Panels = None
) -> Figure:
    """Read latency against achieved bandwidth.

    Args:
        points: of `sweep_load`, for `memory`.
        size, panels: see `panels.SIZES` and `panels.PANELS`.

    Raises:
        InputError: the trace has no reads, or there is no such size or panel.
    """
    read = [(p.bandwidth_gbps, p.mean_ns, p.p99_ns) for p in points if p.mean_ns is not None]
    if not read:
        raise _no_reads()
    carried, mean_ns, p99_ns = zip(*read, strict=True)
    peak = memory.channels * memory.device.peak_gbps

    def draw(axes: Axes) -> None:
        colour = COLOURS["read"]
        axes.plot(carried, mean_ns, "o-", color=colour, label="mean")
        axes.plot(carried, p99_ns, "s--", color=colour, markerfacecolor="white", label="99th percentile")
        axes.axvline(peak, color=INK, linestyle="--", label=f"peak {peak:.1f} GB/s")
        axes.set(xlabel=metric_label("bandwidth_gbps", Scale("GB/s"), results=(TraceResult,)))
        axes.set(ylabel=metric_label("read_latency_ns", Scale("ns"), results=(TraceResult,)))
        axes.set(xlim=(0, 1.02 * peak), ylim=(0, None))

    title = f"Read latency over bandwidth: {memory.device.timing} {memory.device.org}, by offered load"
    return compose(title, ({"latency": Panel(draw, 13, stretches=True)},), size, panels, "sweep")
