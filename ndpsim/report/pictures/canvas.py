"""Figures of panels, and files of figures."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ndpsim.errors import InputError
from ndpsim.files import replacing
from ndpsim.report.panels import Size, chosen_size
from ndpsim.report.pictures.arrange import Cell, arrange

_UNUSABLE = {
    "pgf",
    "raw",
    "rgba",
    "svgz",
}  # these need LaTeX, are no files that anything opens, or hold times
_DATED = {"pdf": "CreationDate", "svg": "Date"}
_LINE = 1.25 / 72  # inches of a line of text, for each point of its font


@dataclass(frozen=True)
class Panel:
    """A part of a picture.

    Attributes:
        draw: draws into axes, with a label for whatever the legend explains.
        lines: how high the axes are, in lines of text.
        stretches: whether they become higher where there is room.
        over_time: whether the horizontal axis is the time, which panels below each other share.
        ends_axis: whether a panel below has a horizontal axis of its own all the same.
    """

    draw: Callable[[Axes], None]
    lines: float
    stretches: bool = False
    over_time: bool = False
    ends_axis: bool = False


@contextmanager
def _style(size: Size) -> Iterator[None]:
    """matplotlib's own settings instead of the user's, with the fonts and lines of a size."""
    settings: Any = {
        "font.size": size.font_pt,
        "axes.labelsize": size.font_pt,
        "legend.fontsize": size.font_pt,
        "figure.titlesize": size.font_pt + 0.5,
        "xtick.labelsize": size.font_pt - 0.5,
        "ytick.labelsize": size.font_pt - 0.5,
        "lines.linewidth": size.line_pt,
        "lines.markersize": 4 * size.line_pt,
        "axes.linewidth": 0.6 * size.line_pt,
        "patch.linewidth": size.line_pt,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.labelpad": 0.3 * size.font_pt,
        **{f"{axis}tick.major.width": 0.6 * size.line_pt for axis in "xy"},
        **{f"{axis}tick.minor.width": 0.4 * size.line_pt for axis in "xy"},
        **{f"{axis}tick.major.size": 0.35 * size.font_pt for axis in "xy"},
        **{f"{axis}tick.minor.size": 0.2 * size.font_pt for axis in "xy"},
        **{f"{axis}tick.major.pad": 0.3 * size.font_pt for axis in "xy"},
        # Fonts that publishers accept, as text that can be searched; the same file from the same result.
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
        "svg.hashsalt": "ndpsim",
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield


def compose(
    title: str, groups: Sequence[Mapping[str, Sequence[Panel]]], size: str, names: Sequence[str]
) -> Figure:
    """A figure with a title over panels.

    Args:
        title: lines; where one is too long it is broken between phrases.
        groups: panels by name. Groups follow each other, or stand side by side where the size has columns.
        size: a name of `panels.SIZES`.
        names: of the panels that are drawn.

    Raises:
        InputError: there is no such size, or no panel.
    """
    chosen = chosen_size(size)
    columns = [
        [panel for name, panels in group.items() if name in names for panel in panels] for group in groups
    ]
    columns = [column for column in columns if column]
    if not columns:
        raise InputError("nothing is known that these panels could show", "missing", key="panels")
    if chosen.columns < len(columns):
        columns = [[panel for column in columns for panel in column]]
    with _style(chosen):
        figure = Figure(figsize=(chosen.width_in, chosen.height_in or chosen.width_in), dpi=chosen.dpi)
        FigureCanvasAgg(figure)
        arrange(
            figure,
            title,
            [_cells(figure, column, chosen, len(columns)) for column in columns],
            chosen,
        )
    return figure


def _cells(figure: Figure, column: Sequence[Panel], size: Size, columns: int) -> list[Cell]:
    cells = []
    for number, panel in enumerate(column):
        height = panel.lines * size.font_pt * _LINE
        share = height / figure.get_figheight()
        axes = figure.add_axes((0.2, 0.1, 0.75 / columns, min(share, 0.8)))
        shares = panel.over_time and not panel.ends_axis
        joined = shares and number + 1 < len(column) and column[number + 1].over_time
        panel.draw(axes)
        if joined:
            axes.tick_params(labelbottom=False)
            axes.set_xlabel("")
        cells.append(Cell(axes, height, panel.stretches, joined))
    return cells


def _formats() -> list[str]:
    return sorted(set(Figure().canvas.get_supported_filetypes()) - _UNUSABLE)


def check_format(path: str) -> str:
    """The picture format that a file's name asks for: "png", "svg", ...

    Raises:
        InputError: there is no such format.
    """
    kind, known = Path(path).suffix.lstrip(".").lower() or "png", _formats()
    if kind not in known:
        raise InputError(
            f"'{kind}' is no picture format (known: {', '.join(known)})", "unknown-name", key="--plot"
        )
    return kind


def rendered(figure: Figure, kind: str, size: str) -> bytes:
    """A figure of `compose` in a format of `check_format`; the same figure is always the same bytes."""
    drawn = io.BytesIO()
    with _style(chosen_size(size)):
        metadata = {_DATED[kind]: None} if kind in _DATED else None
        figure.savefig(drawn, format=kind, dpi=figure.dpi, metadata=metadata)
    content = drawn.getvalue()
    if kind in ("eps", "ps"):
        content = re.sub(rb"(?m)^%%CreationDate: .*\n", b"", content, count=1)
    return content


def save(figure: Figure, path: str, size: str) -> None:
    """Write a figure of `compose` to a file, whole or not at all; the same figure is always the same bytes.

    Raises:
        InputError: the file name ends in no picture format, or the file cannot be written.
    """
    content = rendered(figure, check_format(path), size)
    with replacing(path) as file:
        file.write(content)
