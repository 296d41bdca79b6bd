"""A picture of an expert beside the host: both bandwidths over time, both slowdowns, phases and energy."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from ndpsim.report.contention import contention_title
from ndpsim.report.pictures.bars import draw_energy
from ndpsim.report.pictures.canvas import BLUE, GREY, VERMILION, legend_above, save, stacked
from ndpsim.report.pictures.curves import draw_phases
from ndpsim.simulate import ContentionResult
from ndpsim.units import format_time

__all__ = ["draw_contention"]

_SIGHT = 5  # limits further above all curves than so many times stand in the legend only


def _over_time(axes: Axes, result: ContentionResult) -> None:
    """What both sides move, and the limits of the lanes and of the buses to the host."""
    edges_us = np.append(0.0, result.curve_ns) / 1000
    sides = (
        ("NDP", BLUE, result.ndp_curve_gbps, result.ndp_gbps, result.ndp_alone_gbps),
        ("host", VERMILION, result.host_curve_gbps, result.host_gbps, result.host_alone_gbps),
    )
    limits = (("lanes", "--", result.lanes_peak_gbps), ("host bus", ":", result.bus_peak_gbps))
    for name, colour, gbps, mean, alone in sides:
        label = f"{name}: mean {mean:.1f} GB/s, alone {alone:.1f} GB/s"
        axes.stairs(gbps, edges_us, fill=True, color=colour, alpha=0.25)
        axes.stairs(gbps, edges_us, color=colour, linewidth=1.2, label=label)
    for name, style, peak in limits:
        axes.axhline(
            peak, color="black", linewidth=0.8, linestyle=style, label=f"peak of the {name} {peak:.1f} GB/s"
        )
    most = max(*result.ndp_curve_gbps, *result.host_curve_gbps)
    in_sight = [peak for *_, peak in limits if peak < _SIGHT * most]
    axes.set(ylabel="data moved (GB/s)", xlim=(0, edges_us[-1]), ylim=(0, 1.1 * max(most, *in_sight, 0.0)))
    axes.tick_params(labelbottom=False)  # the axis of the phases serves both
    legend_above(axes, 2)


def _slowdowns(axes: Axes, result: ContentionResult) -> None:
    """How long each side takes for its own, alone and beside the other."""
    sides = (
        ("NDP", BLUE, result.ndp_time_ns, result.ndp_alone_ns, result.ndp_slowdown),
        ("host", VERMILION, result.host_time_ns, result.host_alone_ns, result.host_slowdown),
    )
    for row, (_, colour, beside, alone, slowdown) in enumerate(sides):
        axes.barh(row - 0.2, alone / 1000, height=0.36, color=GREY)
        axes.barh(row + 0.2, beside / 1000, height=0.36, color=colour)
        words = "nothing asked for" if slowdown is None else f"{slowdown:.3f}x, {format_time(beside)}"
        axes.text(beside / 1000, row + 0.2, f" {words}", va="center", fontsize=8)
        axes.text(alone / 1000, row - 0.2, f" alone {format_time(alone)}", va="center", fontsize=8)
    most = max(max(beside, alone) for _, _, beside, alone, _ in sides)
    axes.set_yticks(range(len(sides)), [name for name, *_ in sides], fontsize=8)
    axes.set(xlabel="time for the same work (us)", xlim=(0, 1.2 * most / 1000), ylim=(1.6, -0.6))


def draw_contention(path: str, result: ContentionResult) -> None:
    """What both sides moved over time, the expert's phases, both slowdowns, and where the energy went.

    Raises:
        InputError: the file name ends in no picture format.
    """
    host = "" if result.host_slowdown is None else f", host {result.host_slowdown:.3f}x"
    title = f"{contention_title(result)}\nslowdown: NDP {result.ndp_slowdown:.3f}x{host}"
    heights = (3, 1.5, 1.2) if result.energy_nj is None else (3, 1.5, 1.2, 0.6)
    figure, (top, middle, bottom, *rest) = stacked(title, heights)
    _over_time(top, result)
    draw_phases(middle, result.phases, result.ndp_time_ns, result.config["hardware"])
    _slowdowns(bottom, result)
    if result.energy_nj is not None:
        draw_energy(rest[0], result.energy_nj, max(result.ndp_time_ns, result.host_time_ns))
    save(figure, path)
