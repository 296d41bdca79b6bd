"""Heat maps of sweeps: a metric over two keys, with its value in each cell."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from matplotlib import colormaps, rcParams
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from numpy.typing import NDArray

from ndpsim.base.units import significant
from ndpsim.report.metrics import is_number, name_of, value_words
from ndpsim.report.pictures.canvas import CHARACTER, Panel
from ndpsim.report.pictures.colours import INK
from ndpsim.report.pictures.points import Points, figure_of, logarithmic, named_ticks, plain_ticks, room_pt
from ndpsim.report.sweep_plot import PublishedValue

_MAP = "viridis"  # of uniform lightness, so that it also works in grey and for colour-blind readers
_NOTHING = "\N{EN DASH}"  # in a cell without a value, and between two values
_DIGITS = 3
_MOST_NAMES = 24  # at an axis
_EDGED_PT = 5  # Edges would hide narrower cells.
_LEAST_PT = 4.5  # Smaller text is not readable.
_LINES_A_ROW = 2.2
_MOST_LINES, _FEWEST_LINES = 26, 6
_BAR_LINES = 0.8

_Texts: TypeAlias = Mapping[tuple[int, int], str]  # by column and row


def _norm(points: Points) -> Normalize:
    values = [points.scaled(row[points.plot.y]) for row in points.rows]
    low, high = min(values), max(values)
    if low == high:
        low, high = (low - 1, high + 1) if low <= 0 else (0.5 * low, 1.5 * high)
    return LogNorm(low, high) if "y" in points.plot.log and low > 0 else Normalize(low, high)


def _heat(axes: Axes, points: Points, panel: Mapping[str, Any], norm: Normalize) -> None:
    plot, (key,) = points.plot, points.plot.by
    columns, rows = points.values(plot.x), points.values(key)
    across, down = ({value_words(value): n for n, value in enumerate(values)} for values in (columns, rows))
    cells = np.full((len(rows), len(columns)), np.nan)
    for row in points.of(panel):
        cells[down[value_words(row[key])], across[value_words(row[plot.x])]] = points.scaled(row[plot.y])
    narrow = min(side / count for side, count in zip(room_pt(axes), reversed(cells.shape), strict=True))
    edge = rcParams["axes.linewidth"] if narrow > _EDGED_PT else 0.0
    edges = [np.arange(len(values) + 1) - 0.5 for values in (columns, rows)]
    colours = colormaps[_MAP].with_extremes(bad="#FFFFFF")
    masked = np.ma.masked_invalid(cells)
    axes.pcolormesh(*edges, masked, cmap=colours, norm=norm, edgecolors="white", linewidth=edge)
    if not all(map(is_number, rows)):
        axes.invert_yaxis()
    axes.spines[:].set_visible(False)
    named_ticks(axes, "x", plot.x, columns, _MOST_NAMES)
    named_ticks(axes, "y", key, rows, _MOST_NAMES)
    axes.set_ylabel(f"{name_of(panel)}\n{axes.get_ylabel()}".lstrip())
    ours = {
        (column, line): _NOTHING if np.isnan(value) else significant(float(value), _DIGITS)
        for (line, column), value in np.ndenumerate(cells)
    }
    shown = {
        cell: mark.value
        for mark in points.published(panel)
        if (cell := (across.get(value_words(mark.x)), down.get(value_words(mark.value.where.get(key)))))
        in ours
    }
    both = {
        cell: f"{text}\n{_interval(points, shown[cell])}" if cell in shown and text != _NOTHING else text
        for cell, text in ours.items()
    }
    fit = _write(axes, cells, norm, both)
    if not fit and shown:
        _write(axes, cells, norm, ours)
    for mark in shown.values():
        words = f"in brackets: {mark.source}" if fit else f"no room in the cells: {mark.source}"
        axes.plot([], [], " ", label=f"({words})")


def _interval(points: Points, mark: PublishedValue) -> str:
    ends = dict.fromkeys(significant(points.scaled(end), _DIGITS) for end in (mark.low, mark.high))
    return f"({_NOTHING.join(ends)})"


def _write(axes: Axes, cells: NDArray[np.float64], norm: Normalize, texts: _Texts) -> bool:
    """Write the texts of cells; whether they fit."""
    wide, high = (side / count for side, count in zip(room_pt(axes), reversed(cells.shape), strict=True))
    longest = max((len(part) for text in texts.values() for part in text.split("\n")), default=1)
    most = max((text.count("\n") + 1 for text in texts.values()), default=1)
    font = min(rcParams["ytick.labelsize"], 0.95 * wide / (CHARACTER * longest), 0.8 * high / (1.25 * most))
    for (column, line), text in texts.items() if font >= _LEAST_PT else ():
        red, green, blue, _ = colormaps[_MAP](norm(cells[line, column]))
        dark = text != _NOTHING and 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
        axes.text(column, line, text, ha="center", va="center", fontsize=font, color="white" if dark else INK)
    return bool(font >= _LEAST_PT)


def _colour_bar(axes: Axes, points: Points, norm: Normalize) -> None:
    """A strip with an axis that explains the colours."""
    bar = figure_of(axes).colorbar(ScalarMappable(norm, _MAP), cax=axes, orientation="horizontal")
    bar.outline.set_visible(False)
    axes.set_xlabel(points.label)
    (logarithmic if isinstance(norm, LogNorm) else plain_ticks)(axes, "x")


def heat_panels(points: Points) -> list[Panel]:
    """A map for each value of the keys that are on neither axis, then the shared scale of colours."""
    norm, rows = _norm(points), len(points.values(points.plot.by[0]))
    lines = max(_FEWEST_LINES, min(_MOST_LINES / len(points.panels), _LINES_A_ROW * rows))
    draws = [partial(_heat, points=points, norm=norm, panel=panel) for panel in points.panels]
    maps = [Panel(draw, lines, stretches=True, axis="x") for draw in draws]
    return [*maps, Panel(lambda axes: _colour_bar(axes, points, norm), _BAR_LINES)]
