"""Pareto fronts of sweeps: two metrics against each other, and the points that no other beats in both."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.path import Path
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from ndpsim.base.units import Scale
from ndpsim.report.metrics import (
    described,
    metric_label,
    name_of,
    scale_of,
    value_words,
)
from ndpsim.report.pictures.canvas import INK, SERIES, Panel, tint
from ndpsim.report.pictures.points import MARKERS, Points, figure_of, logarithmic, plain_ticks
from ndpsim.report.sweep_plot import Row, panel_keys

_LINES = 20
_LABELLED = 14  # With more points than this, only those of the front are labelled.
_MOST_LABELS = 24
_KEYS_NAMED = 2  # With more keys, labels have only values, and the legend names the keys.
_NEARER = 0.8  # A name is nearer to its point than to any other by this factor, or a line leads to it.
_AROUND = ((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1.2), (0, -1.2), (1, 2.2), (1, -2.2))
_FURTHER = (1.0, 2.5, 4.0, 6.0)  # factors by which a name may be further from its point, tried in turn
_PALE = 0.45

Point = tuple[float, float]


def front_of(rows: Sequence[Row], x: str, y: str, wants_more: Callable[[str], bool]) -> list[Row]:
    """The rows that no other beats in one metric without being worse in the other, by `x`.

    The first of equal rows represents all.
    """
    sides = [-1 if wants_more(metric) else 1 for metric in (x, y)]
    ordered = sorted(rows, key=lambda row: (sides[0] * row[x], sides[1] * row[y]))
    front: list[Row] = []
    for row in ordered:
        if not front or sides[1] * row[y] < sides[1] * front[-1][y]:
            front.append(row)
    return sorted(front, key=lambda row: float(row[x]))


def _wanted(metric: str, points: Points) -> str:
    more = points.plot.wants_more(metric)
    return f"{'more' if more else 'less'} {described(metric, points.swept.results).label}"


def _pareto(axes: Axes, points: Points, across: Scale) -> None:
    plot, series = points.plot, points.series

    def position(row: Row) -> Point:
        return row[plot.x] / across.divisor, points.scaled(row[plot.y])

    front = front_of(points.rows, plot.x, plot.y, plot.wants_more)
    chosen = {id(row) for row in front}
    label = f"Pareto front: {_wanted(plot.x, points)}, {_wanted(plot.y, points)}"
    corners = _corners([position(row) for row in front], plot.wants_more(plot.x))
    # The line of a single point cannot be seen.
    axes.plot(*zip(*corners, strict=True), color=INK, linestyle="--" if len(front) > 1 else "", label=label)
    looks = [(SERIES[n % len(SERIES)], MARKERS[n % len(MARKERS)]) for n in range(len(series))]
    for named, (colour, marker) in zip(series, looks, strict=True):
        for on_front, face in ((False, tint(colour, _PALE)), (True, colour)):
            where = [position(row) for row in points.of(named) if (id(row) in chosen) == on_front]
            axes.plot([x for x, _ in where], [y for _, y in where], marker, color=face, zorder=3)
        axes.plot([], [], marker, color=colour, label=name_of(named))
    colour, marker = (INK, "o") if any(series) else looks[0]
    axes.plot([], [], marker, color=colour, label="on the front")
    if len(front) < len(points.rows):
        axes.plot([], [], marker, color=tint(colour, _PALE), label="pale: not on the front")
    _draw_published(axes, points, across)
    axes.set_xlabel(metric_label(plot.x, across, points.baseline, points.swept.results))
    axes.set_ylabel(points.label)
    axes.margins(x=0.1, y=0.1)
    for which in "xy":
        (logarithmic if which in plot.log else plain_ticks)(axes, which)
    _name_points(axes, points, front, position, corners)


def _corners(front: Sequence[Point], upright_first: bool) -> list[Point]:
    """The points of a front, and the corners of the stairs between them."""
    corners = list(front[:1])
    for (x, y), (next_x, next_y) in pairwise(front):
        corners += [(x, next_y) if upright_first else (next_x, y), (next_x, next_y)]
    return corners


def _draw_published(axes: Axes, points: Points, across: Scale) -> None:
    """Draw hollow markers for points with both metrics in a paper."""
    others = [value for value in points.swept.published if value.metric == points.plot.x]
    for vertical, horizontal in itertools.product(points.published({}), others):
        if horizontal.where == vertical.value.where:
            axes.errorbar(
                (horizontal.low + horizontal.high) / 2 / across.divisor,
                points.scaled(vertical.middle),
                xerr=(horizontal.high - horizontal.low) / 2 / across.divisor,
                yerr=points.scaled(vertical.value.high - vertical.value.low) / 2,
                marker=vertical.marker,
                markerfacecolor="white",
                color=vertical.colour,
                label=vertical.value.source,
                zorder=4,
            )


def _name_points(
    axes: Axes,
    points: Points,
    front: Sequence[Row],
    position: Callable[[Row], Point],
    stairs: Sequence[Point],
) -> None:
    """Label points that have room: those of the front, and others if they are few."""
    keys = [
        key
        for key in panel_keys(points.swept, points.rows, points.plot.by)
        if len({value_words(row[key]) for row in points.rows}) > 1
    ]
    if not keys:
        return
    named = len(keys) <= _KEYS_NAMED
    if not named:
        words = " / ".join(key.rpartition(".")[2].replace("_", " ") for key in keys)
        axes.plot([], [], " ", label=f"at points: {words}")

    def name(row: Row) -> str:
        values = {key: row[key] for key in keys}
        return name_of(values) if named else " / ".join(map(value_words, values.values()))

    labels = _Labels(axes, [position(row) for row in points.rows], stairs)
    for row in [*front[:1], *front[:0:-1]][:_MOST_LABELS]:  # The ends of a front come first.
        labels.add(name(row), position(row), _FURTHER)
    on_front = {id(row) for row in front}
    for row in points.rows if len(points.rows) <= _LABELLED else ():
        if id(row) not in on_front:
            labels.add(name(row), position(row), _FURTHER[:1])


class _Labels:
    """Places names beside points without overlaps.

    Args:
        axes: the axes to write into.
        points: points that no name may cover, in data coordinates.
        stairs: corners of a line that no name may cover, in data coordinates.
    """

    def __init__(self, axes: Axes, points: Sequence[Point], stairs: Sequence[Point]) -> None:
        self._axes, self._font = axes, rcParams["ytick.labelsize"]
        axes.autoscale_view()  # which matplotlib would delay until after the positions are known
        self._pixels_per_pt = figure_of(axes).dpi / 72
        self._half = 0.45 * self._font * self._pixels_per_pt
        self._pixels = axes.transData.transform(points)
        self._taken = [Bbox([point - self._half, point + self._half]) for point in self._pixels]
        self._names: list[Bbox] = []
        self._stairs = Path(axes.transData.transform(stairs))
        self._leaders: list[Path] = []  # leader lines, which cross neither names nor each other

    def add(self, text: str, point: Point, further: Sequence[float]) -> None:
        """Add a name for a point, if it has room.

        Args:
            text: the name.
            point: the point, in data coordinates.
            further: distances to try, as factors; a line leads to a name that is not at 1.
        """
        how: dict[str, Any] = {"textcoords": "offset points", "fontsize": self._font, "parse_math": False}
        note, own = self._axes.annotate(text, point, (0, 0), **how), self._axes.transData.transform(point)
        for times, (dx, dy) in itertools.product(further, _AROUND):
            note.set(
                position=(0.7 * self._font * dx * times, 0.7 * self._font * dy * times),
                horizontalalignment=("right", "center", "left")[int(dx) + 1],
                verticalalignment="center" if dy == 0 else "bottom" if dy > 0 else "top",
            )
            box = note.get_window_extent().padded(self._half / 2)
            end = np.clip(own, box.min, box.max)  # the nearest point of the name
            leader = Path([own, end])
            if self._is_free(box) and (self._is_clear(leader) if times > 1 else self._is_nearest(box, own)):
                self._names.append(box)
                if times > 1:
                    self._leaders.append(leader)
                    line = {"arrowstyle": "-", "color": INK, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
                    way = tuple((end - own) / self._pixels_per_pt)  # Like names, it moves with the point.
                    self._axes.annotate("", point, way, textcoords="offset points", arrowprops=line)
                return
        note.remove()

    def _is_free(self, box: Bbox) -> bool:
        """Whether a name is within the axes and covers nothing."""
        room = self._axes.get_window_extent()
        within = room.x0 <= box.x0 and box.x1 <= room.x1 and room.y0 <= box.y0 and box.y1 <= room.y1
        lines = (self._stairs, *self._leaders)
        return (
            within
            and not any(box.overlaps(other) for other in (*self._taken, *self._names))
            and not any(line.intersects_bbox(box, filled=False) for line in lines)
        )

    def _is_clear(self, leader: Path) -> bool:
        """Whether a line to a name crosses no other such line and no name."""
        return not any(leader.intersects_bbox(name, filled=False) for name in self._names) and not any(
            leader.intersects_path(other, filled=False) for other in self._leaders
        )

    def _is_nearest(self, box: Bbox, own: NDArray[np.float64]) -> bool:
        """Whether a name is nearer to its own point than to all separate points."""
        others = [point for point in self._pixels if np.abs(point - own).max() > self._half]
        distance, *further = (math.dist(point, np.clip(point, box.min, box.max)) for point in (own, *others))
        return distance < _NEARER * min(further, default=math.inf)


def pareto_panels(points: Points) -> list[Panel]:
    """The panel of two metrics."""
    across = scale_of(points.plot.x, [row[points.plot.x] for row in points.rows], points.swept.results)
    return [Panel(lambda axes: _pareto(axes, points, across), _LINES, stretches=True)]
