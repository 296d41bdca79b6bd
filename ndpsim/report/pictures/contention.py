"""A picture of an expert beside the host: both bandwidths over time, both slowdowns, phases and energy."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.units import Scale, format_time, times
from ndpsim.report.dram import refresh_interval_ns
from ndpsim.report.metrics import metric_label, scale_of
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.bars import draw_bar, energy_panels, name_rows
from ndpsim.report.pictures.canvas import Panel, Panels, compose
from ndpsim.report.pictures.colours import COLOURS, INK, tint
from ndpsim.report.pictures.curves import draw_means, phase_panels
from ndpsim.report.text import title_of
from ndpsim.simulate import ContentionResult, ExpertResult

_SIGHT = 5  # limits above all curves by more than this factor are only in the legend
_NDP, _HOST = COLOURS["compute"], COLOURS["host"]


def _over_time(axes: Axes, result: ContentionResult) -> None:
    """Traffic of both sides, and the limits of the lanes and of the buses to the host."""
    interval_ns = refresh_interval_ns(result.config["hardware"])
    sides = (
        ("NDP", _NDP, result.ndp_curve_gbps, result.ndp_gbps, result.ndp_alone_gbps),
        ("host", _HOST, result.host_curve_gbps, result.host_gbps, result.host_alone_gbps),
    )
    limits = (("lanes", "--", result.lanes_peak_gbps), ("host bus", ":", result.bus_peak_gbps))
    scale = scale_of("time_ns", [result.ndp_time_ns])
    for name, colour, gbps, mean, alone in sides:
        label = f"{name}: mean {mean:.1f} GB/s, alone {alone:.1f} GB/s"
        draw_means(axes, result.curve_ns, gbps, interval_ns, scale, color=colour, label=label)
    most = max(*result.ndp_curve_gbps, *result.host_curve_gbps)
    for name, style, peak in limits:
        axes.axhline(peak, color=INK, linestyle=style, label=f"peak of the {name} {peak:.1f} GB/s")
    in_sight = [peak for *_, peak in limits if peak < _SIGHT * most]
    axes.set(
        xlabel=metric_label("time_ns", scale),
        ylabel=metric_label("bandwidth_gbps", Scale("GB/s"), results=(ExpertResult,)),
        xlim=(0, result.ndp_time_ns / scale.divisor),
        ylim=(0, 1.08 * max(most, *in_sight, 0.0)),
    )


def _times(axes: Axes, result: ContentionResult) -> None:
    """The time of each side, alone and beside the other."""
    sides = (
        (_NDP, result.ndp_time_ns, result.ndp_alone_ns, result.ndp_slowdown),
        (_HOST, result.host_time_ns, result.host_alone_ns, result.host_slowdown),
    )
    scale = scale_of("time_ns", [result.ndp_time_ns, result.host_time_ns])
    for row, (colour, both_ns, alone_ns, slowdown) in enumerate(sides):
        words = "nothing asked for" if slowdown is None else f"{format_time(both_ns)}, {times(slowdown)}"
        draw_bar(axes, 2 * row, alone_ns / scale.divisor, format_time(alone_ns), color=tint(colour, 0.35))
        draw_bar(axes, 2 * row + 1, both_ns / scale.divisor, words, color=colour)
    name_rows(axes, ["NDP alone", "NDP beside host", "host alone", "host beside NDP"])
    axes.set(xlabel=f"{metric_label('time_ns', scale)}, for the same work", xlim=(0, None))
    axes.margins(x=0)


def contention_figure(result: ContentionResult, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Traffic of both sides over time, the expert's phases, both times, and the energy by part.

    Args:
        result: of `simulate_contention`.
    """
    host = "" if result.host_slowdown is None else f", host {times(result.host_slowdown)}"
    title = f"{title_of(result)}\nslowdown: NDP {times(result.ndp_slowdown)}{host}"
    both_ns = max(result.ndp_time_ns, result.host_time_ns)
    over_time = {
        "bandwidth": [Panel(lambda axes: _over_time(axes, result), 8, stretches=True, axis="time")],
        "phases": phase_panels(result.phases, result.ndp_time_ns, result.config["hardware"]),
    }
    sums = {
        "time": [Panel(lambda axes: _times(axes, result), 5.2)],
        "energy": energy_panels(result.energy_nj, both_ns),
    }
    return compose(title, (over_time, sums), size, panels, "contention")
