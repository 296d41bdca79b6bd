"""Pictures of sweeps: lines and bars with published values beside ours, other kinds, and searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from ndpsim.base.errors import InputError
from ndpsim.base.units import significant
from ndpsim.report.metrics import is_number, metric_label, name_of, scale_of, value_words
from ndpsim.report.panels import DEFAULT_SIZE, chosen_size
from ndpsim.report.pictures.bars import white_edges
from ndpsim.report.pictures.canvas import CHARACTER, INK, SERIES, Panel, compose, tint
from ndpsim.report.pictures.pareto import pareto_panels
from ndpsim.report.pictures.points import (
    MARKERS,
    Mark,
    Points,
    heat_panels,
    key_ticks,
    logarithmic,
    named_ticks,
    plain_ticks,
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


def _draw(axes: Axes, points: Points, panel: Mapping[str, Any]) -> None:
    """A line for each series over numbers or words, or a bar of each at each value."""
    plot, values, bars = points.plot, points.values(points.plot.x), points.plot.kind == "bars"
    numeric = not bars and all(map(is_number, values))
    positions = {value_words(value): value if numeric else n for n, value in enumerate(values)}
    wide = _GROUP / max(1, len(points.series)) if bars else 0.0
    offsets = [(n - (len(points.series) - 1) / 2) * wide for n in range(len(points.series))]
    for n, (series, offset) in enumerate(zip(points.series, offsets, strict=True)):
        rows = sorted(points.of(panel, series), key=lambda row: positions[value_words(row[plot.x])])
        xs = [positions[value_words(row[plot.x])] + offset for row in rows]
        ys = [points.scaled(row[plot.y]) for row in rows]
        how: dict[str, Any] = {"color": SERIES[n % len(SERIES)], "label": name_of(series)}
        if bars:
            axes.bar(xs, ys, wide, **how, **white_edges())
        else:
            marker = MARKERS[n % len(MARKERS)] if len(values) <= _ALL_MARKED else ""
            axes.plot(xs, ys, linestyle=_STYLES[n % len(_STYLES)], marker=marker, **how)
    if numeric:
        key_ticks(axes, plot.x, values, "x" in plot.log)
    else:
        named_ticks(axes, "x", plot.x, values)
        axes.set_xlim(-0.6, len(values) - 0.4)
    shown = points.published(panel)
    for mark in shown:
        middle = positions.get(value_words(mark.x), mark.x if numeric else None)
        beside = 0.0 if mark.series is None else offsets[mark.series]
        _draw_published(axes, points, mark, None if middle is None else middle + beside)
    _vertical(axes, points)
    if bars and "y" not in plot.log and not shown:
        _write_values(axes, wide)


def _draw_published(axes: Axes, points: Points, mark: Mark, x: float | None) -> None:
    """Draw a published value or interval, hollow; across the axes if it applies at any position."""
    colour = INK if points.plot.kind == "bars" else mark.colour  # which is that of the bar behind it
    size = _HOLLOW * rcParams["lines.markersize"]
    low, high, middle = (points.scaled(value) for value in (mark.value.low, mark.value.high, mark.middle))
    how: dict[str, Any] = {"marker": mark.marker, "markerfacecolor": "white"}
    if mark.x is None and high > low:
        axes.axhspan(low, high, facecolor="none", edgecolor=colour, linestyle=":", linewidth=0.8)
    elif mark.x is None:
        axes.axhline(low, color=colour, linestyle=":")
    elif x is not None:
        error = [[middle - low], [high - middle]] if high > low else None
        axes.errorbar(x, middle, error, color=colour, markersize=size, capsize=size / 2, zorder=4, **how)
    axes.errorbar([], [], color=INK, linestyle="none", label=mark.value.source, **how)


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


def _write_values(axes: Axes, wide: float) -> None:
    """Write the value of each bar above it, upright on narrow bars, and not at all on the narrowest."""
    font = rcParams["ytick.labelsize"]
    low, high = axes.get_xlim()
    wide_pt, height_pt = room_pt(axes)
    room = wide_pt * wide / (high - low)
    bars = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
    texts = [significant(bar.get_height(), _DIGITS) for bar in bars]
    longest = max(map(len, texts), default=0) * CHARACTER * font
    if room < 1.15 * font:
        return
    upright = longest > room
    above = ((longest if upright else font) + 0.6 * font) / height_pt
    axes.set_ylim(0, max(bar.get_height() for bar in bars) / max(0.4, 1 - above))
    for bar, text in zip(bars, texts, strict=True):
        position = bar.get_x() + bar.get_width() / 2, bar.get_height()
        how: dict[str, Any] = {"ha": "center", "va": "bottom", "rotation": 90 if upright else 0}
        axes.annotate(text, position, (0, 0.25 * font), textcoords="offset points", fontsize=font, **how)


def _series_panels(points: Points) -> list[Panel]:
    """A panel for each value of the keys that are neither on the horizontal axis nor series."""
    values = [points.scaled(row[points.plot.y]) for row in points.rows]
    low, high = min(0.0, *values), _ROOM * max(0.0, *values)
    if "y" in points.plot.log:
        low, high = min(values) / _ROOM, max(values) * _ROOM

    def draw(axes: Axes, panel: Mapping[str, Any]) -> None:
        _draw(axes, points, panel)
        axes.set_ylabel(f"{name_of(panel)}\n{points.label}".lstrip())
        if len(points.panels) > 1:  # which share a range
            axes.set_ylim(min(axes.get_ylim()[0], low), max(axes.get_ylim()[1], high))

    lines = _LINES_ALONE if len(points.panels) == 1 else _LINES_AMONG
    return [Panel(partial(draw, panel=panel), lines, stretches=True, axis="x") for panel in points.panels]


_PANELS: dict[str, Callable[[Points], list[Panel]]] = {
    "lines": _series_panels,
    "bars": _series_panels,
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
        raise InputError(f"no point has {' and '.join(points.drawn)}", "missing", key="y")
    title = "\n".join([plot.title, *points.notes])
    return compose(title, ({"points": _PANELS[plot.kind](points)},), size)


# ---- searches ----


def approach_figure(
    title: str,
    metric: str,
    results: Sequence[type],
    feasible: Sequence[Row],
    approach: Sequence[Row],
    size: str = DEFAULT_SIZE,
) -> Figure:
    """Every feasible run, and the best value after each run, of one objective.

    Args:
        title: title of the picture.
        metric: the objective.
        results: classes of results that may have the metric.
        feasible: rows of feasible runs, with their number `run`.
        approach: the rows that were better than all before.
        size: see `panels.SIZES`.

    Raises:
        InputError: there is no such size.
    """
    scale = scale_of(metric, [row[metric] for row in feasible], results)
    found, best = (
        ([row["run"] for row in rows], [row[metric] / scale.divisor for row in rows])
        for rows in (feasible, (*approach, {**approach[-1], "run": feasible[-1]["run"]}))
    )

    def draw(axes: Axes) -> None:
        axes.plot(*found, "o", color=tint(SERIES[0], 0.45), label="feasible points")
        axes.plot(*best, color=INK, drawstyle="steps-post", label="best so far")
        axes.set(xlabel="run", ylabel=metric_label(metric, scale, results=results))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        plain_ticks(axes, "x")
        plain_ticks(axes, "y")

    return compose(title, ({"approach": Panel(draw, 16, stretches=True)},), size)
