"""Shared parts of pictures of a sweep: drawn points, by panel and series, and published values."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib import colormaps, rcParams
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from ndpsim.base.units import Scale, significant
from ndpsim.report.metrics import is_number, key_label, metric_label, name_of, scale_of, value_words
from ndpsim.report.pictures.canvas import CHARACTER, INK, SERIES, Panel
from ndpsim.report.sweep_plot import PublishedValue, Row, SweepPlot, Swept, ordered_values, panel_keys

# ---- Heat maps of sweeps: a metric over two keys, with its value in each cell

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


# ---- Points, by panel and series

MARKERS = "os^DvPX*"
_LONG = 24  # Names of more characters are broken before they are turned.
_PUBLISHED = "DsoP^v"
_MOST_TICKS = 12
_APART = 1 / 14  # share of the axis: numbers of closer ticks would overlap
_MOST_DECADES = 2.5  # decades up to which 2 and 5 have numbers, too

Named = Mapping[str, Any]


def _same(some: Named, others: Named) -> bool:
    """Whether two choices of values agree in their common keys."""
    return all(value_words(value) == value_words(others[key]) for key, value in some.items() if key in others)


@dataclass(frozen=True)
class Mark:
    """A published value in a panel.

    Attributes:
        value: the published value.
        x: position on the horizontal axis; None: anywhere.
        series: index of its series; None: no single one.
        marker: the marker of its source.
    """

    value: PublishedValue
    x: Any
    series: int | None
    marker: str

    @property
    def middle(self) -> float:
        """The value, or the middle of the interval."""
        return (self.value.low + self.value.high) / 2

    @property
    def colour(self) -> str:
        """Colour of the series; black without a series."""
        return INK if self.series is None else SERIES[self.series % len(SERIES)]


@dataclass(frozen=True, eq=False)
class Points:
    """The points of a sweep, arranged for a picture."""

    swept: Swept
    plot: SweepPlot
    everything: Sequence[Row]

    @property
    def drawn(self) -> tuple[str, ...]:
        """The drawn metrics."""
        return (self.plot.y, self.plot.x) if self.plot.kind == "pareto" else (self.plot.y,)

    @cached_property
    def rows(self) -> list[Row]:
        """The rows that have values of the drawn metrics."""
        return [row for row in self.everything if all(is_number(row.get(name)) for name in self.drawn)]

    @property
    def notes(self) -> list[str]:
        """The number of points that are not drawn, with reasons."""
        failed = sum(row.get("status") == "failed" for row in self.everything)
        without = len(self.everything) - len(self.rows) - failed
        share = f"of {len(self.everything):,} points"
        notes = [f"{failed:,} {share} failed and {'is' if failed == 1 else 'are'} left out"] if failed else []
        notes += [f"{without:,} {share} {'has' if without == 1 else 'have'} no value"] if without else []
        meant = [value for value in self.swept.published if value.metric == self.plot.y]
        shown = {id(mark.value) for panel in self.panels for mark in self.published(panel)}
        absent = sum(id(value) not in shown for value in meant)
        return notes + (
            [f"{absent:,} of {len(meant):,} published values are of other points"] if absent else []
        )

    @property
    def _between(self) -> tuple[str, ...]:
        """The keys whose published values may be between ours: numbers along which lines are drawn."""
        x = self.plot.x
        return (x,) if self.plot.kind == "lines" and all(is_number(value) for value in self.values(x)) else ()

    def values(self, key: str) -> list[Any]:
        """Values of a key, in order."""
        return ordered_values(key, self.swept, self.rows)

    def _combinations(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """The combinations of values that occur, where the first key changes slowest."""
        places = {key: {value_words(value): n for n, value in enumerate(self.values(key))} for key in keys}
        found = {
            tuple(places[key][value_words(row[key])] for key in keys): {key: row[key] for key in keys}
            for row in self.rows
        }
        return [found[index] for index in sorted(found)]

    @cached_property
    def series(self) -> list[dict[str, Any]]:
        """The values of the keys of each series."""
        return self._combinations(self.plot.by)

    @cached_property
    def panels(self) -> list[dict[str, Any]]:
        """The values of the keys of each panel."""
        if self.plot.kind == "pareto":
            return [{}]
        return self._combinations(panel_keys(self.swept, self.rows, (self.plot.x, *self.plot.by)))

    @cached_property
    def scale(self) -> Scale:
        """Scale of the drawn metric."""
        published = [p.high for p in self.swept.published if p.metric == self.plot.y]
        return scale_of(
            self.plot.y, [*(row[self.plot.y] for row in self.rows), *published], self.swept.results
        )

    @property
    def label(self) -> str:
        """Label of the metric."""
        return metric_label(self.plot.y, self.scale, self.baseline, self.swept.results)

    @property
    def baseline(self) -> str:
        """The baseline of speed-ups; a long description is cut before its settings."""
        words = name_of(self.swept.baseline)
        return words if len(words) <= _LONG else words.partition(":")[0][:_LONG]

    def of(self, *chosen: Named) -> Iterator[Row]:
        """The rows with these values."""
        return (row for row in self.rows if all(_same(values, row) for values in chosen))

    def scaled(self, value: float) -> float:
        """A value of the metric in the unit of its axis."""
        return value / self.scale.divisor

    def published(self, panel: Named) -> list[Mark]:
        """The published values that belong into a panel."""
        found: list[Mark] = []
        markers: dict[str, str] = {}
        for value in self.swept.published:
            if value.metric != self.plot.y:
                continue
            marker = markers.setdefault(value.source, _PUBLISHED[len(markers) % len(_PUBLISHED)])
            told = {key: wanted for key, wanted in value.where.items() if key not in self._between}
            if any(_same(told, row) for row in self.of(panel)):
                fitting = [n for n, named in enumerate(self.series) if _same(named, value.where)]
                series = fitting[0] if len(fitting) == 1 else None
                found.append(Mark(value, value.where.get(self.plot.x), series, marker))
        return found


def figure_of(axes: Axes) -> Figure:
    """The whole figure that axes are in."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def room_pt(axes: Axes) -> tuple[float, float]:
    """Approximate final width and height of axes, in points."""
    extent, dpi = axes.get_window_extent(), figure_of(axes).dpi
    return 72 * float(extent.width) / dpi, 72 * float(extent.height) / dpi


# ---- axes ----


def named_ticks(
    axes: Axes, which: Literal["x", "y"], key: str, values: Sequence[Any], most: int = sys.maxsize
) -> None:
    """Ticks at the places of values, or of some of more than `most`.

    Names at a horizontal axis are broken or turned if they have no room side by side.
    """
    places = range(0, len(values), max(1, -(-len(values) // most)))
    names = [value_words(values[index]) for index in places]
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(places, names, parse_math=False)
    axis.set_label_text(key_label(key))
    axes.tick_params(axis=which, length=0)
    letters = room_pt(axes)[0] / len(names) / (CHARACTER * rcParams["xtick.labelsize"])
    if which == "y" or max(map(len, names)) <= letters:
        return
    in_lines = [re.sub("(?<=[:,])(?=.)", "\n", name) for name in names]
    broken = max(len(line) for name in in_lines for line in name.split("\n")) <= letters
    axis.set_ticks(places, in_lines if broken or max(map(len, names)) > _LONG else names, parse_math=False)
    if not broken:
        for label in axis.get_ticklabels():
            label.set(rotation=30, horizontalalignment="right", rotation_mode="anchor")


def _plain(value: float, position: object = None) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 and value == round(value) else f"{value:.6g}"


def logarithmic(axes: Axes, which: str) -> None:
    """Make an axis ("x" or "y") logarithmic, with plain numbers."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log"})
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    few = high < low * 10**_MOST_DECADES
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(FuncFormatter(_plain))
    axis.set_minor_formatter(NullFormatter())


def plain_ticks(axes: Axes, which: str) -> None:
    """Use plain numbers at ticks, without exponents."""
    (axes.xaxis if which == "x" else axes.yaxis).set_major_formatter(FuncFormatter(_plain))


def key_ticks(axes: Axes, key: str, values: Sequence[Any], log: bool) -> None:
    """A horizontal axis for a key with numbers; a few values are themselves the ticks."""
    axes.set_xlabel(key_label(key))
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
        if len(values) > _MOST_TICKS:
            logarithmic(axes, "x")
            return
    span = values[-1] - values[0]
    gaps = [high - low for low, high in itertools.pairwise(values)]
    if len(values) <= _MOST_TICKS and (log or all(gap >= _APART * span for gap in gaps)):
        axes.set_xticks(values, [_plain(value) for value in values])
        return
    whole = all(value == int(value) for value in values)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=whole))
    plain_ticks(axes, "x")
