"""Heat maps of sweeps: a metric over two keys, with its value in each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize

from ndpsim.base.units import significant
from ndpsim.report.metrics import is_number, key_label, name_of, value_words
from ndpsim.report.pictures.canvas import CHARACTER, Panel
from ndpsim.report.pictures.colours import INK
from ndpsim.report.pictures.points import (
    Points,
    lean_if_long,
    logarithmic,
    plain_ticks,
    room_pt,
)

_MAP = "viridis"  # of uniform lightness, so that it also works in grey and for colour-blind readers
_NOTHING = "\N{EN DASH}"  # in a cell without a value
_DIGITS = 3
_EDGED_PT = 5  # Edges would hide narrower cells.
_LEAST_PT = 4.5  # Smaller text is not readable.
_LINES_A_ROW = 2.2
_MOST_LINES, _FEWEST_LINES = 26, 6
_BAR_LINES = 0.8


def _norm(points: Points) -> Normalize:
    values = [points.scaled(row[points.plot.y]) for row in points.rows]
    low, high = min(values), max(values)
    if low == high:
        low, high = (low - 1, high + 1) if low <= 0 else (0.5 * low, 1.5 * high)
    return LogNorm(low, high) if "y" in points.plot.log and low > 0 else Normalize(low, high)


def _ticks(axes: Axes, which: Literal["x", "y"], key: str, values: Sequence[Any]) -> None:
    """A tick for each value, or for some of many values."""
    step = max(1, -(-len(values) // 24))
    places = range(0, len(values), step)
    names = [value_words(values[place]) for place in places]
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(list(places), names)
    axes.tick_params(axis=which, length=0)
    if which == "x":
        axes.set_xlabel(key_label(key))
        lean_if_long(axes, names)


def _heat(axes: Axes, points: Points, panel: Mapping[str, Any], norm: Normalize, legend: bool) -> None:
    plot, (key,) = points.plot, points.plot.by
    columns, rows = points.values(plot.x), points.values(key)
    across = {value_words(value): n for n, value in enumerate(columns)}
    down = {value_words(value): n for n, value in enumerate(rows)}
    cells = np.full((len(rows), len(columns)), np.nan)
    for row in points.of(panel):
        cells[down[value_words(row[key])], across[value_words(row[plot.x])]] = points.scaled(row[plot.y])
    colours = colormaps[_MAP].with_extremes(bad="#FFFFFF")
    edges = [np.arange(count + 1) - 0.5 for count in (len(columns), len(rows))]
    narrow = min(side / count for side, count in zip(room_pt(axes), reversed(cells.shape), strict=True))
    line = float(axes.spines["left"].get_linewidth()) if narrow > _EDGED_PT else 0.0
    axes.pcolormesh(
        *edges, np.ma.masked_invalid(cells), cmap=colours, norm=norm, edgecolors="white", linewidth=line
    )
    if not all(is_number(value) for value in rows):
        axes.invert_yaxis()
    for spine in axes.spines.values():
        spine.set_visible(False)
    _ticks(axes, "x", plot.x, columns)
    _ticks(axes, "y", key, rows)
    axes.set_ylabel(f"{name_of(panel)}\n{key_label(key)}".lstrip())
    beside = {}
    for one in points.published(panel):
        at = across.get(value_words(one.x)), down.get(value_words(one.value.where.get(key)))
        if None not in at:
            beside[at] = _interval(points.scaled(one.value.low), points.scaled(one.value.high))
    _write(axes, cells, norm, beside)
    if legend:
        for source in dict.fromkeys(one.value.source for one in points.published(panel)):
            axes.plot([], [], " ", label=f"(in brackets: {source})")


def _interval(low: float, high: float) -> str:
    if low == high:
        return f"({significant(low, _DIGITS)})"
    return f"({significant(low, _DIGITS)}\N{EN DASH}{significant(high, _DIGITS)})"


def _write(
    axes: Axes, cells: Any, norm: Normalize, beside: Mapping[tuple[int | None, int | None], str]
) -> None:
    """Write the value of each cell and below it published ones in brackets, if all fit."""
    texts = {}
    for (line, column), value in np.ndenumerate(cells):
        text = _NOTHING if np.isnan(value) else significant(float(value), _DIGITS)
        published = beside.get((column, line))
        texts[column, line] = f"{text}\n{published}" if published and text != _NOTHING else text
    wide, high = (points / count for points, count in zip(room_pt(axes), reversed(cells.shape), strict=True))
    longest = max((len(part) for text in texts.values() for part in text.split("\n")), default=1)
    most = max((text.count("\n") + 1 for text in texts.values()), default=1)
    font = float(axes.yaxis.get_major_ticks()[0].label1.get_fontsize())
    font = min(font, 0.95 * wide / (CHARACTER * longest), 0.8 * high / (1.25 * most))
    if font < _LEAST_PT:
        return
    for (column, line), text in texts.items():
        red, green, blue, _ = colormaps[_MAP](norm(cells[line, column]))
        dark = text != _NOTHING and 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
        axes.text(column, line, text, ha="center", va="center", fontsize=font, color="white" if dark else INK)


def _colour_bar(axes: Axes, points: Points, norm: Normalize) -> None:
    """A strip with an axis that explains the colours."""
    low, high = float(norm.vmin or 0), float(norm.vmax or 1)
    logarithmically = isinstance(norm, LogNorm)
    edges = np.geomspace(low, high, 129) if logarithmically else np.linspace(low, high, 129)
    middles = (edges[:-1] + edges[1:]) / 2
    axes.pcolormesh(edges, [0, 1], middles[np.newaxis], cmap=_MAP, norm=norm, rasterized=True)
    axes.set(xlim=(low, high), yticks=[], xlabel=points.label)
    axes.spines["left"].set_visible(False)
    if logarithmically:
        logarithmic(axes, "x")
    else:
        plain_ticks(axes, "x")


def heat_panels(points: Points) -> list[Panel]:
    """A map for each value of the keys that are on neither axis, then the shared scale of colours."""
    norm = _norm(points)
    rows = len(points.values(points.plot.by[0]))
    lines = max(_FEWEST_LINES, min(_MOST_LINES / len(points.panels), _LINES_A_ROW * rows))

    draw = partial(_heat, points=points, norm=norm)
    maps = [
        Panel(partial(draw, panel=panel, legend=number == 0), lines, stretches=True, axis="x")
        for number, panel in enumerate(points.panels)
    ]
    return [*maps, Panel(lambda axes: _colour_bar(axes, points, norm), _BAR_LINES)]
