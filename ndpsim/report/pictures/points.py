"""Shared parts of pictures of a sweep: drawn points, by panel and series, and published values."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ndpsim.base.units import Scale
from ndpsim.report.metrics import is_number, key_label, metric_label, name_of, scale_of, value_words
from ndpsim.report.pictures.canvas import CHARACTER
from ndpsim.report.pictures.colours import INK, SERIES
from ndpsim.report.sweep_plot import PublishedValue, Row, SweepPlot, Swept, ordered_values, panel_keys

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
