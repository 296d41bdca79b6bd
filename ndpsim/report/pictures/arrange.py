"""Where the parts of a picture stand: measured, so that nothing overlaps and nothing is cut."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.transforms import Bbox

from ndpsim.report.panels import Size

_LINE = 1.25  # height of a line of text, of its font size
_BREAKS = (
    re.compile(r"(?<=[,;]) "),
    re.compile(r" (?=(?:on|reads|beside|over) )"),
    re.compile(r"(?<![\d\u00d7>+]) (?![\u00d7\d(+])"),
)
_LEAST = 0.5  # of their height is left to axes that become lower where room is short
_PASSES = 3  # ticks, legends and sizes depend on each other


@dataclass
class Cell:
    """Axes of a picture. All lengths are inches.

    Attributes:
        axes: they.
        height: of the axes alone, without their labels.
        stretches: whether they become higher where there is room.
        joined: whether the next axes below have the same axis of time.
        legend_widths: of a legend, by the columns that it has; empty until they are measured.
    """

    axes: Axes
    height: float
    stretches: bool = False
    joined: bool = False
    legend_widths: dict[int, float] = field(default_factory=dict)


def _renderer(figure: Figure) -> Any:
    return figure.canvas.get_renderer()  # type: ignore[attr-defined]


def _width_of(text: str, font: FontProperties, figure: Figure) -> float:
    width, _, _ = _renderer(figure).get_text_width_height_descent(text, font, False)
    return float(width) / figure.dpi


def broken(text: str, width: float, font: FontProperties, figure: Figure) -> str:
    """Text in lines of at most `width` inches: broken between phrases, which end in a comma or a semicolon.

    A phrase that is wider is broken before what it says of places; what is still wider between words, though
    not before a unit; a word that is wider, anywhere.
    """
    lines = []
    for line in text.splitlines():
        held = ""
        for piece, joint in _pieces(line, width, font, figure):
            longer = f"{held}{joint if held else ''}{piece}"
            if held and _width_of(longer, font, figure) > width:
                lines.append(held)
                held = piece
            else:
                held = longer
        lines.append(held)
    return "\n".join(lines)


def _pieces(
    text: str, width: float, font: FontProperties, figure: Figure, depth: int = 0
) -> list[tuple[str, str]]:
    """What a text may be broken between, with what stands before it in an unbroken line."""
    found: list[tuple[str, str]] = []
    for part in _BREAKS[depth].split(text):
        if _width_of(part, font, figure) <= width:
            found.append((part, " "))
        elif depth + 1 < len(_BREAKS):
            found += _pieces(part, width, font, figure, depth + 1)
        else:
            found += _cut(part, width, font, figure)
    return found


def _cut(word: str, width: float, font: FontProperties, figure: Figure) -> list[tuple[str, str]]:
    """A word in pieces that fit."""
    found: list[tuple[str, str]] = []
    while word:
        fits = next(
            n for n in range(len(word), 0, -1) if n == 1 or _width_of(word[:n], font, figure) <= width
        )
        found.append((word[:fits], "" if found else " "))
        word = word[fits:]
    return found


def _legend(axes: Axes, columns: int) -> float:
    """A legend above the axes, out of the way of the data; returns its width."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    legend = axes.legend(
        ncols=columns,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderpad=0.2,
        borderaxespad=0.0,
        handlelength=1.4,
        handletextpad=0.5,
        columnspacing=1.2,
        labelspacing=0.25,
    )
    legend.set_in_layout(False)  # what it takes is measured apart from ticks and labels
    return float(legend.get_window_extent(_renderer(figure)).width) / figure.dpi


def _fit_legend(cell: Cell, inner: float, outer: float, right: float) -> None:
    """A legend in as few lines as fit above the axes, which are `inner` inches wide.

    Where that saves several lines it takes up to `outer` inches, which end `right` of the axes.
    """
    count = len(cell.axes.get_legend_handles_labels()[0])
    if not count:
        return
    lines_of = {-(-count // lines): lines for lines in range(count, 0, -1)}
    if not cell.legend_widths:
        cell.legend_widths = {
            columns: _legend(cell.axes, columns) for columns in sorted(lines_of, reverse=True)
        }
    widths = cell.legend_widths
    within, beyond = (
        next((columns for columns, width in widths.items() if width <= room), 1) for room in (inner, outer)
    )
    columns = beyond if lines_of[within] - lines_of[beyond] > 1 else within
    _legend(cell.axes, columns)
    legend = cell.axes.get_legend()
    assert legend is not None
    legend.set_bbox_to_anchor((min(0.0, (inner + right - widths[columns]) / inner), 1.0), cell.axes.transAxes)


def _margins(axes: Axes, figure: Figure) -> tuple[float, float, float, float]:
    """Left, right, below and above the axes: what their labels, ticks and legend take."""
    renderer, legend, inner = _renderer(figure), axes.get_legend(), axes.get_window_extent()
    parts = [axis.get_tightbbox(renderer) for axis in (axes.xaxis, axes.yaxis)]
    parts += [text.get_window_extent(renderer) for text in axes.texts]
    outer = Bbox.union([inner, *(part for part in parts if part is not None)])
    sides = (inner.x0 - outer.x0, outer.x1 - inner.x1, inner.y0 - outer.y0, outer.y1 - inner.y1)
    left, right, below, above = (float(side) / figure.dpi for side in sides)
    if legend is not None:
        above = max(above, legend.get_window_extent(renderer).height / figure.dpi)
    return left, right, below, above


def _aligned(cells: Sequence[Cell], margins: Sequence[tuple[float, ...]], side: int) -> list[float]:
    """The margin of each of the axes on a side; those with one axis of time have that of the widest."""
    found: list[float] = []
    first = 0
    for number, cell in enumerate(cells):
        if not cell.joined:
            run = range(first, number + 1)
            found += [max(margins[of][side] for of in run)] * len(run)
            first = number + 1
    return found


def _heights(
    cells: Sequence[Cell], taken: float, room: float | None, gap: float
) -> tuple[list[float], float]:
    """The height of each of the axes, and of the gaps, in a column with `taken` beside them of `room`."""
    heights = [cell.height for cell in cells]
    if room is None:
        return heights, gap
    spare = room - taken - sum(heights)
    stretching = sum(cell.height for cell in cells if cell.stretches)
    if stretching:
        share = max(-_LEAST, spare / stretching)
        spare -= share * stretching
        heights = [height * (1 + share * cell.stretches) for height, cell in zip(heights, cells, strict=True)]
    if spare < 0:
        return [height * max(0.2, 1 + spare / sum(heights)) for height in heights], gap
    if stretching:
        return heights, gap
    taller = min(1.0, 0.5 * spare / sum(heights))
    spare -= taller * sum(heights)
    return [height * (1 + taller) for height in heights], gap + min(2 * gap, spare / max(1, len(cells) - 1))


def arrange(figure: Figure, title: str, columns: Sequence[Sequence[Cell]], size: Size) -> None:
    """Put the title over the axes, the axes below each other in columns, and legends above their axes.

    Without a height of `size`, the figure becomes as high as that takes.
    """
    line = size.font_pt * _LINE / 72
    edge, gap = 0.5 * line, 0.8 * line
    widths = _widths(size.width_in - 2 * edge, 2 * gap, len(columns))
    heading = figure.suptitle("", x=edge / size.width_in, ha="left", va="top", parse_math=False)
    font = heading.get_fontproperties()
    heading.set_text(broken(title, size.width_in - 2 * edge, font, figure))
    top = edge + heading.get_window_extent(_renderer(figure)).height / figure.dpi + 0.4 * line
    labels = {cell.axes: cell.axes.get_xlabel() for column in columns for cell in column}
    for _ in range(_PASSES):
        high, placed = size.height_in or 0.0, []
        for column in columns:
            margins = [_margins(cell.axes, figure) for cell in column]
            gaps = sum(0.5 * gap if cell.joined else gap for cell in column[:-1])
            taken = gaps + sum(below + above for *_, below, above in margins)
            room = None if size.height_in is None else size.height_in - top - edge
            heights, wide = _heights(column, taken, room, gap)
            placed.append((column, margins, heights, wide))
            if size.height_in is None:
                high = max(high, top + edge + taken + sum(heights))
        figure.set_size_inches(size.width_in, high)
        start = edge
        for width, (column, margins, heights, wide) in zip(widths, placed, strict=True):
            at, lefts, rights = high - top, *(_aligned(column, margins, side) for side in (0, 1))
            for number, cell in enumerate(column):
                _, _, below, above = margins[number]
                left, inner = lefts[number], max(0.1, width - lefts[number] - rights[number])
                at -= above + heights[number]
                place = (start + left, at, inner, heights[number])
                cell.axes.set_position(
                    (place[0] / size.width_in, place[1] / high, inner / size.width_in, place[3] / high)
                )
                at -= below + (0.5 * gap if cell.joined else wide)
                label = cell.axes.xaxis.label
                words = broken(labels[cell.axes], inner, label.get_fontproperties(), figure)
                cell.axes.set_xlabel(words, parse_math=False)
                _fit_legend(cell, inner, width, rights[number])
            start += width + 2 * gap
        heading.set_y(1 - edge / high)


def _widths(room: float, gap: float, columns: int) -> list[float]:
    """The width of one column, or of two: the first, which has the curves, is wider."""
    return [room] if columns == 1 else [0.55 * (room - gap), 0.45 * (room - gap)]
