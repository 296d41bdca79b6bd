"""A picture of an expert beside the host: both bandwidths over time, both slowdowns, phases and energy."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.report.contention import contention_title
from ndpsim.report.dram import refresh_interval_ns
from ndpsim.report.panels import DEFAULT_SIZE, chosen_panels
from ndpsim.report.pictures.bars import energy_panels
from ndpsim.report.pictures.canvas import Panel, compose, save
from ndpsim.report.pictures.colours import COLOURS, INK, tint
from ndpsim.report.pictures.curves import draw_means, phase_panels
from ndpsim.simulate import ContentionResult
from ndpsim.units import TIMES, format_time

_SIGHT = 5  # limits further above all curves than so many times stand in the legend only
_NDP, _HOST = COLOURS["compute"], COLOURS["host"]


def _over_time(axes: Axes, result: ContentionResult) -> None:
    """What both sides move, and the limits of the lanes and of the buses to the host."""
    interval_ns = refresh_interval_ns(result.config["hardware"])
    sides = (
        ("NDP", _NDP, result.ndp_curve_gbps, result.ndp_gbps, result.ndp_alone_gbps),
        ("host", _HOST, result.host_curve_gbps, result.host_gbps, result.host_alone_gbps),
    )
    limits = (("lanes", "--", result.lanes_peak_gbps), ("host bus", ":", result.bus_peak_gbps))
    for name, colour, gbps, mean, alone in sides:
        label = f"{name}: mean {mean:.1f} GB/s, alone {alone:.1f} GB/s"
        draw_means(axes, result.curve_ns, gbps, interval_ns, color=colour, label=label)
    most = max(*result.ndp_curve_gbps, *result.host_curve_gbps)
    for name, style, peak in limits:
        label = f"peak of the {name} {peak:.1f} GB/s"
        axes.axhline(peak, color=INK, linestyle=style, label=label)
    in_sight = [peak for *_, peak in limits if peak < _SIGHT * most]
    axes.set(
        xlabel="time (µs)",
        ylabel="data moved (GB/s)",
        xlim=(0, result.ndp_time_ns / 1000),
        ylim=(0, 1.08 * max(most, *in_sight, 0.0)),
    )


def _times(axes: Axes, result: ContentionResult) -> None:
    """How long each side takes for its own, alone and beside the other."""
    sides = (
        ("NDP", _NDP, result.ndp_time_ns, result.ndp_alone_ns, result.ndp_slowdown),
        ("host", _HOST, result.host_time_ns, result.host_alone_ns, result.host_slowdown),
    )
    names = []
    for row, (name, colour, beside, alone, slowdown) in enumerate(sides):
        words = "nothing asked for" if slowdown is None else f"{format_time(beside)}, {slowdown:.3f}{TIMES}"
        for place, ns, light, said in (
            (2 * row, alone, 0.35, format_time(alone)),
            (2 * row + 1, beside, 1.0, words),
        ):
            axes.barh(place, ns / 1000, height=0.8, color=tint(colour, light))
            axes.text(ns / 1000, place, f" {said}", va="center", color=INK)
        names += [f"{name} alone", f"{name} beside"]
    axes.set_yticks(range(4), names)
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="time for the same work (µs)", ylim=(3.6, -0.6), xlim=(0, None))
    axes.margins(x=0)


def contention_figure(
    result: ContentionResult, size: str = DEFAULT_SIZE, panels: Sequence[str] | None = None
) -> Figure:
    """What both sides moved over time, the expert's phases, both times, and where the energy went.

    Args:
        result: of `simulate_contention`.
        size, panels: see `panels.SIZES` and `panels.PANELS`.

    Raises:
        InputError: there is no such size or panel.
    """
    chosen = chosen_panels(panels, "contention")
    host = "" if result.host_slowdown is None else f", host {result.host_slowdown:.3f}{TIMES}"
    title = f"{contention_title(result)}\nslowdown: NDP {result.ndp_slowdown:.3f}{TIMES}{host}"
    both_ns = max(result.ndp_time_ns, result.host_time_ns)
    over_time = {
        "bandwidth": [Panel(lambda axes: _over_time(axes, result), 8, stretches=True, over_time=True)],
        "phases": phase_panels(result.phases, result.ndp_time_ns, result.config["hardware"]),
    }
    sums = {
        "time": [Panel(lambda axes: _times(axes, result), 5.2)],
        "energy": energy_panels(result.energy_nj, both_ns),
    }
    return compose(title, (over_time, sums), size, chosen)


def draw_contention(
    path: str, result: ContentionResult, size: str = DEFAULT_SIZE, panels: Sequence[str] | None = None
) -> None:
    """`contention_figure` in a file.

    Raises:
        InputError: there is no such size or panel, or the file name ends in no picture format.
    """
    save(contention_figure(result, size, panels), path, size)
