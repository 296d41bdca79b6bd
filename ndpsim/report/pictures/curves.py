"""What happens over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ndpsim.report.pictures.canvas import BLUE, GREEN, ORANGE, PINK, SKY, VERMILION
from ndpsim.report.words import unit_of_phase
from ndpsim.simulate import ExpertResult, HostReadResult, Phase
from ndpsim.spec.standard import RD, RDA

__all__ = ["draw_phases", "draw_reads", "reads_over_time"]

Floats = NDArray[np.float64]

_BINS = 1500
_REFRESHES_SHOWN = 150  # one by one; more are averaged over whole intervals
_PHASES = {
    "activations-in": SKY,
    "gate-up": BLUE,
    "activation": GREEN,
    "down": PINK,
    "result-out": ORANGE,
}


def _bin_clocks(result: ExpertResult | HostReadResult) -> int:
    """Clocks of a bin: fine enough to show every refresh; where they are too many, whole intervals of them.

    Fine ones are whole bursts long, so that a full bus fills each of them equally.
    """
    timings = result.config["hardware"]["timings"]
    interval, burst = timings["nREFI"], timings["nBL"]
    if result.cycles > _REFRESHES_SHOWN * interval:
        return int(-(-result.cycles // (interval * _REFRESHES_SHOWN)) * interval)
    return int(-(-result.cycles // (burst * _BINS)) * burst)


def reads_over_time(result: ExpertResult | HostReadResult) -> tuple[Floats, Floats]:
    """Edges of equal times in us, and the GB/s that were read in each: from the recorded commands."""
    width = _bin_clocks(result)
    edges = np.arange(0, result.cycles + width, width) + 1  # the first command has clock 1
    bursts = np.zeros(len(edges) - 1)
    for trace in result.command_traces:
        bursts += np.histogram(trace.clock[np.isin(trace.command, (RD, RDA))], edges)[0]
    gbps = bursts * result.config["hardware"]["derived"]["burst_bytes"] / (width * result.clock_ns)
    return (edges - 1) * result.clock_ns / 1000, gbps


def draw_reads(axes: Axes, result: ExpertResult | HostReadResult) -> None:
    """What is read over time, with its mean and the peak."""
    edges_us, gbps = reads_over_time(result)
    peak, mean = result.peak_bandwidth_gbps, result.bandwidth_gbps
    axes.stairs(gbps, edges_us, fill=True, color=BLUE, alpha=0.6)
    axes.axhline(peak, color="black", linewidth=0.8, linestyle="--", label=f"peak {peak:.1f} GB/s")
    label = f"mean {mean:.1f} GB/s, {100 * result.peak_fraction:.1f}% of peak"
    axes.axhline(mean, color=VERMILION, linewidth=1.2, linestyle=":", label=label)
    axes.set(ylabel="weights read (GB/s)", ylim=(0, peak * 1.05), xlim=(0, result.time_ns / 1000))
    axes.legend(
        ncols=2, fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1
    )


def draw_phases(axes: Axes, phases: Sequence[Phase], time_ns: float, hardware: Mapping[str, Any]) -> None:
    """What the units do that the expert program runs on, a row for each phase."""
    rows = {name: row for row, name in enumerate(_PHASES)}
    for phase in phases:
        start, length = phase.start_ns / 1000, max(phase.end_ns - phase.start_ns, time_ns / 500) / 1000
        axes.barh(rows[phase.name], length, left=start, color=_PHASES[phase.name], height=0.7)
    names = [f"{name} ({unit})" for name, unit in unit_of_phase(hardware).items()]
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set(xlabel="time (us)", ylim=(len(names) - 0.4, -0.6), xlim=(0, time_ns / 1000))
