"""The picture of a benchmark: the time of each row for a request."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.units import format_time
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.canvas import COLOURS, Panel, Panels, compose, tint
from ndpsim.report.words import counted


def bench_figure(ns: Mapping[str, float], size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """The time of each row for a request, on a logarithmic axis.

    Args:
        ns: by row, from top to bottom.
    """

    def draw(axes: Axes) -> None:
        names = list(ns)[::-1]
        bars = axes.barh(names, [ns[name] for name in names], color=tint(COLOURS["read"], 0.4))
        axes.bar_label(bars, [format_time(ns[name]) for name in names], padding=2)
        axes.set(xscale="log", xlabel="time for a request (ns)")
        axes.set_xlim(min(ns.values()) / 2, max(ns.values()) * 8)

    title = f"Time of the simulator for a request: {counted(len(ns), 'row')} of ndpsim bench"
    return compose(title, ({"rows": Panel(draw, 2 + 1.6 * len(ns), stretches=True)},), size, panels, "bench")
