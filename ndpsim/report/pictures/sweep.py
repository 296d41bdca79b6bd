"""Pictures of sweeps: lines, bars, heat maps and Pareto fronts, with published values beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ndpsim.base.errors import InputError
from ndpsim.base.units import significant
from ndpsim.report.metrics import is_number, key_label, name_of, value_words
from ndpsim.report.panels import DEFAULT_SIZE, chosen_size
from ndpsim.report.pictures.canvas import CHARACTER, Panel, compose
from ndpsim.report.pictures.colours import INK, SERIES
from ndpsim.report.pictures.heat import heat_panels
from ndpsim.report.pictures.pareto import pareto_panels
from ndpsim.report.pictures.points import (
    MARKERS,
    Points,
    Shown,
    key_ticks,
    lean_if_long,
    logarithmic,
    plain_ticks,
    published_legend,
    room_pt,
)
from ndpsim.report.sweep_plot import Row, SweepPlot, Swept

_LINES_ALONE, _LINES_AMONG = 15, 8  # lines of text: height of a single panel, and of one of several
_ALL_MARKED = 40  # With more values on the horizontal axis than this, lines have no markers.
_STYLES = ("-", "--", "-.", ":")
_FROM_ZERO = 0.75  # If all values are above this share of the largest, the vertical axis need not begin at 0.
_ROOM = 1.15  # above the largest value
_HOLLOW = 1.6  # markers of published values, of the size of ours
_GROUP = 0.8  # share of the room of a value on the horizontal axis that its bars take
_DIGITS = 3


def _lines(axes: Axes, points: Points, panel: Mapping[str, Any], legend: bool) -> None:
    """A line for each series, over numbers or words."""
    plot, values = points.plot, points.values(points.plot.x)
    numeric = all(is_number(value) for value in values)
    at = {value_words(value): value if numeric else n for n, value in enumerate(values)}
    for place, series in enumerate(points.series):
        rows = sorted(points.of(panel, series), key=lambda row: at[value_words(row[plot.x])])
        axes.plot(
            [at[value_words(row[plot.x])] for row in rows],
            [points.scaled(row[plot.y]) for row in rows],
            color=SERIES[place % len(SERIES)],
            linestyle=_STYLES[place % len(_STYLES)],
            marker=MARKERS[place % len(MARKERS)] if len(values) <= _ALL_MARKED else "",
            label=name_of(series) if legend and series else None,
        )
    if numeric:
        key_ticks(axes, plot.x, values, "x" in plot.log)
    else:
        _named_ticks(axes, plot.x, values)
    shown = points.published(panel)
    _published(axes, points, shown, lambda one: at.get(value_words(one.x), one.x if numeric else None))
    if legend:
        published_legend(axes, shown)
    _vertical(axes, points)


def _named_ticks(axes: Axes, key: str, values: Sequence[Any]) -> None:
    """A horizontal axis of words, which lean if they have no room side by side."""
    names = [value_words(value) for value in values]
    axes.set_xticks(range(len(names)), names)
    axes.set(xlabel=key_label(key), xlim=(-0.6, len(names) - 0.4))
    axes.tick_params(axis="x", length=0)
    lean_if_long(axes, names)


def _published(
    axes: Axes, points: Points, shown: Sequence[Shown], place: Callable[[Shown], float | None]
) -> None:
    """Draw published values or intervals, hollow; across the axes if they apply at any position."""
    size = _HOLLOW * float(rcParams["lines.markersize"])
    for one in shown:
        colour = INK if points.plot.kind == "bars" else one.colour  # which is that of the bar behind it
        low, high = points.scaled(one.value.low), points.scaled(one.value.high)
        if one.x is None:
            if high > low:
                axes.axhspan(low, high, facecolor="none", edgecolor=colour, linestyle=":", linewidth=0.8)
            else:
                axes.axhline(low, color=colour, linestyle=":")
            continue
        at, middle = place(one), points.scaled(one.middle)
        if at is None:
            continue
        axes.errorbar(
            at,
            middle,
            yerr=[[middle - low], [high - middle]] if high > low else None,
            marker=one.marker,
            markersize=size,
            markerfacecolor="white",
            color=colour,
            capsize=size / 2,
            zorder=4,
        )


def _vertical(axes: Axes, points: Points) -> None:
    """The vertical axis begins at 0, unless it is logarithmic or all values are far above 0."""
    if "y" in points.plot.log:
        logarithmic(axes, "y")
    else:
        low, high = axes.get_ylim()
        least = min(points.scaled(row[points.plot.y]) for row in points.rows)
        if least >= 0 and not least > _FROM_ZERO * high > 0:
            axes.set_ylim(0, high + 0.03 * (high - low))
        plain_ticks(axes, "y")
    if points.plot.y == "speedup":
        axes.axhline(1, color=INK, linestyle=":", linewidth=0.8)


# ---- bars ----


def _bars(axes: Axes, points: Points, panel: Mapping[str, Any], legend: bool) -> None:
    """A group of bars for each value of the horizontal axis, with their values where there is room."""
    plot, values = points.plot, points.values(points.plot.x)
    at = {value_words(value): n for n, value in enumerate(values)}
    wide = _GROUP / max(1, len(points.series))
    offsets = [(n - (len(points.series) - 1) / 2) * wide for n in range(len(points.series))]
    thin = 0.5 * float(axes.spines["left"].get_linewidth())
    _named_ticks(axes, plot.x, values)
    for place, (series, offset) in enumerate(zip(points.series, offsets, strict=True)):
        rows = list(points.of(panel, series))
        axes.bar(
            [at[value_words(row[plot.x])] + offset for row in rows],
            [points.scaled(row[plot.y]) for row in rows],
            width=wide,
            color=SERIES[place % len(SERIES)],
            edgecolor="white",
            linewidth=thin,
            label=name_of(series) if legend and series else None,
        )
    shown = points.published(panel)

    def place_of(one: Shown) -> float | None:
        middle = at.get(value_words(one.x))
        return None if middle is None else middle + (0 if one.series is None else offsets[one.series])

    _published(axes, points, shown, place_of)
    if legend:
        published_legend(axes, shown)
    _vertical(axes, points)
    if "y" not in plot.log and not shown:
        _write_values(axes, wide)


def _write_values(axes: Axes, wide: float) -> None:
    """Write the value of each bar above it, upright on narrow bars, and not at all on the narrowest."""
    font = float(axes.yaxis.get_major_ticks()[0].label1.get_fontsize())
    low, high = axes.get_xlim()
    wide_pt, height_pt = room_pt(axes)
    room = wide_pt * wide / (high - low)
    bars = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
    texts = [significant(bar.get_height(), _DIGITS) for bar in bars]
    longest = max(map(len, texts), default=0) * CHARACTER * font
    if room < 1.15 * font:
        return
    upright = longest > room
    most = max(bar.get_height() for bar in bars)
    above = ((longest if upright else font) + 0.6 * font) / height_pt
    axes.set_ylim(0, most / max(0.4, 1 - above))
    for bar, text in zip(bars, texts, strict=True):
        axes.annotate(
            text,
            (bar.get_x() + bar.get_width() / 2, bar.get_height()),
            xytext=(0, 0.25 * font),
            textcoords="offset points",
            ha="center",
            va="bottom",
            rotation=90 if upright else 0,
            fontsize=font,
        )


def _stacked(points: Points, draw: Callable[[Axes, Points, Mapping[str, Any], bool], None]) -> list[Panel]:
    """A panel for each value of the keys that are neither on the horizontal axis nor series."""
    lines = _LINES_ALONE if len(points.panels) == 1 else _LINES_AMONG
    low, high = _limits(points)

    def drawn(axes: Axes, panel: Mapping[str, Any]) -> None:
        draw(axes, points, panel, panel is points.panels[0])
        axes.set_ylabel(f"{name_of(panel)}\n{points.label}".lstrip())
        if len(points.panels) > 1:
            axes.set_ylim(min(axes.get_ylim()[0], low), max(axes.get_ylim()[1], high))

    return [Panel(partial(drawn, panel=panel), lines, stretches=True, axis="x") for panel in points.panels]


def _limits(points: Points) -> tuple[float, float]:
    """The range that the vertical axes of several panels share."""
    values = [points.scaled(row[points.plot.y]) for row in points.rows]
    if "y" in points.plot.log:
        return min(values) / _ROOM, max(values) * _ROOM
    return min(0.0, *values), _ROOM * max(0.0, *values)


_PANELS: dict[str, Callable[[Points], list[Panel]]] = {
    "lines": lambda points: _stacked(points, _lines),
    "bars": lambda points: _stacked(points, _bars),
    "heat": heat_panels,
    "pareto": pareto_panels,
}


def points_figure(rows: Sequence[Row], swept: Swept, plot: SweepPlot, size: str = DEFAULT_SIZE) -> Figure:
    """A picture of a sweep; points without the metric are omitted, and counted under the title.

    Args:
        rows: rows of the sweep's table.
        swept: the sweep.
        plot: a plot from `chosen_plot`.
        size: see `panels.SIZES`.

    Raises:
        InputError: there is no such size, or no point has the drawn metrics.
    """
    chosen_size(size)
    labelled, rows_labelled = swept.labelled(rows)
    points = Points(labelled, plot, rows_labelled)
    if not points.rows:
        raise InputError(
            f"no point has {plot.y}" + (f" and {plot.x}" if plot.kind == "pareto" else ""), "missing", key="y"
        )
    title = "\n".join([plot.title, *points.notes])
    return compose(title, ({"points": _PANELS[plot.kind](points)},), size)
