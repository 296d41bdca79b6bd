"""Figures of panels, and files of figures."""

from __future__ import annotations

import io
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure, SubFigure
from matplotlib.gridspec import GridSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.transforms import Bbox

from ndpsim.base.errors import InputError
from ndpsim.base.files import replacing
from ndpsim.report.panels import DEFAULT_SIZE, Size, chosen_panels, chosen_size

#: Axes, text, limits and means.
# ---- Meanings of colours, equal in all pictures
#
# The colours of the memory and the units are Okabe and Ito's (https://jfly.uni-koeln.de/color), which
# colour-blind readers can distinguish; within a picture, the others differ in lightness as well.

INK = "#000000"

COLOURS = {
    "read": "#0072B2",
    "write": "#D55E00",
    "read or write": "#555555",
    "refresh": "#E69F00",
    "rows": "#CC79A7",
    "compute": "#009E73",
    "activation unit": "#7A3E00",
    "chip io": "#56B4E9",
    "link": "#F0E442",
    "host": "#332288",
    "idle": "#BBBBBB",
    "gate": "#882255",
    "up": "#C3B1E1",
    "down": "#999933",
    "empty": "#F0F0F0",
    "decode": "#117733",
    "prefill": "#AA4499",
    "hot": "#B2182B",
    "warm": "#F4A582",
    "cold": "#92C5DE",
    "gpu": "#CC66BB",
    "pcie": "#E67300",
    "hidden": "#99DDFF",
    "exposed": "#B01500",
    "everything": "#4477AA",
    "experts": "#CC5522",
}

#: Colours of series that only a legend explains: Okabe and Ito's, the darkest first.
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7A7A7A")

#: The meaning of each component of energy.
ENERGY = {
    "activate": "rows",
    "read": "read",
    "write": "write",
    "refresh": "refresh",
    "background": "idle",
    "I/O": "chip io",
    "NDP units": "compute",
    "link": "link",
    "host": "host",
}


def tint(colour: str, strength: float) -> tuple[float, float, float]:
    """A colour mixed with white; some formats lack transparency. Strength 1 is the colour itself."""
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(colour))
    return red, green, blue


# ---- Figures

CHARACTER = 0.6  # width of a character, as a share of the font size; no text is wider

_UNUSABLE = {"pgf", "raw", "rgba", "svgz"}  # These need LaTeX, have no reader, or contain times.
_DATED = {"pdf": "CreationDate", "svg": "Date"}
_LINE = 1.25 / 72  # inches of a line of text, for each point of its font
_TEXT = 16  # lines for ticks, labels and a legend, until they are measured
_LEGEND_PAD = 0.6  # beside a legend, as a share of the font size
_NARROWER = 0.98  # width of one of several columns, as a share of what it is before they are laid out
_LEAST = 0.5  # least share of their height that axes keep where room is short


#: The title of the pictures that are drawn, instead of their own; None: their own.
_title: ContextVar[str | None] = ContextVar("title", default=None)


@contextmanager
def titled(title: str | None) -> Iterator[None]:
    """Pictures that are drawn meanwhile have this title, and with "none" no title; None: their own."""
    token = _title.set(title)
    try:
        yield
    finally:
        _title.reset(token)


#: Names of the panels of a picture that are drawn; None: all.
Panels: TypeAlias = Sequence[str] | None


@dataclass(frozen=True)
class Panel:
    """A part of a picture.

    Attributes:
        draw: draws into axes, and labels all that the legend explains.
        lines: height of the axes, in lines of text.
        stretches: whether the axes become higher where there is room.
        axis: name of the horizontal axis; adjacent panels of the same name share it.
    """

    draw: Callable[[Axes], None]
    lines: float
    stretches: bool = False
    axis: str = ""


@dataclass(frozen=True)
class _Block:
    """Panels that share a horizontal axis, and the legend above them."""

    part: SubFigure
    axes: Sequence[Axes]
    height_in: float
    stretches: bool

    def legend(self, width: float) -> None:
        """Draw the legend, in as few lines as fit into a width; it explains equal labels once."""
        found: dict[str, Any] = {}
        for axes in self.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                found.setdefault(label, handle)
        for lines in range(1, len(found) + 1):
            columns = -(-len(found) // lines)
            legend = self.part.legend(found.values(), found.keys(), ncols=columns, loc="outside upper left")
            if legend.get_window_extent().width <= width:
                return
            if lines < len(found):
                legend.remove()

    def taken_in(self) -> float:
        """The height of ticks, labels and the legend, without the axes."""
        axes = sum(area.bbox.height for area in self.axes)
        return float(self.part.bbox.height - axes) / self.part.figure.dpi

    def fit_label(self, font_pt: float) -> float:
        """Break the label below the axes into lines that fit; returns by how much it becomes higher."""
        axes, dpi = self.axes[-1], self.part.figure.dpi
        before = axes.xaxis.label.get_window_extent().height
        room = 72 * axes.bbox.width / dpi / (CHARACTER * font_pt)
        axes.set_xlabel(filled(axes.get_xlabel(), int(room)), parse_math=False)
        return float(axes.xaxis.label.get_window_extent().height - before) / dpi


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
        "legend.frameon": False,
        "legend.borderpad": 0.0,
        "legend.borderaxespad": _LEGEND_PAD,
        "legend.handlelength": 1.6,
        "legend.handletextpad": 0.5,
        "legend.columnspacing": 1.2,
        "legend.labelspacing": 0.25,
        # Fonts that publishers accept, with searchable text; equal results give equal files.
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
        "svg.hashsalt": "ndpsim",
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield


def compose(
    title: str,
    groups: Sequence[Mapping[str, Panel | Sequence[Panel] | None]],
    size: str = DEFAULT_SIZE,
    panels: Panels = None,
    picture: str = "",
) -> Figure:
    """A figure with a title over panels.

    Args:
        title: the subject; further lines state the outcome.
        groups: one or several panels by name, or none. Groups are below each other, or side by side if the
            size has columns.
        size: a key of `panels.SIZES`.
        panels: names of the drawn panels; None: all.
        picture: a key of `panels.PANELS`, for the names of its panels.

    Raises:
        InputError: there is no such size, or no panel.
    """
    chosen, own = chosen_size(size), _title.get()
    title = title if own is None else "" if own == "none" else own
    names = None if panels is None else chosen_panels(panels, picture)
    columns = [
        [
            panel
            for name, found in group.items()
            if names is None or name in names
            for panel in ([found] if isinstance(found, Panel) else found or ())
        ]
        for group in groups
    ]
    columns = [column for column in columns if column]
    if not columns:
        raise InputError("these panels have no data to show", "missing", key="panels")
    if chosen.columns < len(columns):
        columns = [[panel for column in columns for panel in column]]
    with _style(chosen):
        lines = max(sum(panel.lines + _TEXT for panel in column) for column in columns)
        high, pad = lines * chosen.font_pt * _LINE, 0.5 * chosen.font_pt / 72
        engine = ConstrainedLayoutEngine(h_pad=pad, w_pad=pad)
        figure = Figure(figsize=(chosen.width_in, high), dpi=chosen.dpi, layout=engine)
        FigureCanvasAgg(figure)
        room = int(0.98 * 72 * chosen.width_in / (CHARACTER * (chosen.font_pt + 0.5)))
        heading = figure.suptitle(filled(title, room), x=0.01, ha="left", parse_math=False)
        # The first column, which has the curves, is wider.
        parts = figure.subfigures(1, len(columns), squeeze=False, width_ratios=(11, 9)[: len(columns)])[0]
        _lay_out(figure, [_drawn(*pair, chosen) for pair in zip(parts, columns, strict=True)], chosen)
        heading.set_y(round(heading.get_position()[1], 5))
    return figure


def filled(text: str, characters: int) -> str:
    """Text broken into lines of at most `characters`; a number stays beside its unit."""
    held = re.sub(r"(?<=\d) (?=[^\W\d])", "\N{NO-BREAK SPACE}", text).splitlines()
    lines = "\n".join(textwrap.fill(line, characters, break_on_hyphens=False) for line in held)
    return lines.replace("\N{NO-BREAK SPACE}", " ")


def _drawn(part: SubFigure, column: Sequence[Panel], size: Size) -> tuple[GridSpec, list[_Block]]:
    """Blocks of panels that share a horizontal axis, which the last panel of a block shows."""
    together = itertools.groupby(column, key=lambda panel: panel.axis or id(panel))
    runs = [list(panels) for _, panels in together]
    heights = [[panel.lines * size.font_pt * _LINE for panel in run] for run in runs]
    text = _TEXT * size.font_pt * _LINE
    grid = part.add_gridspec(len(runs) + 1, 1, height_ratios=[*(sum(high) + text for high in heights), 1e-3])
    blocks = []
    for index, (run, high) in enumerate(zip(runs, heights, strict=True)):
        block = part.add_subfigure(grid[index])
        where = {"left": 0.12, "right": 0.98, "bottom": 0.5 * text / (sum(high) + text), "hspace": 0}
        where["top"] = 1 - where["bottom"]  # approximate, for code that fits texts into axes
        found = block.subplots(len(run), 1, squeeze=False, height_ratios=high, gridspec_kw=where)
        all_axes = list(found[:, 0])
        for panel, axes in zip(run, all_axes, strict=True):
            panel.draw(axes)
            for axis in (axes.xaxis, axes.yaxis):
                if axis.get_scale() == "log":
                    axis.set_label_text(f"{axis.label.get_text()}, logarithmic", parse_math=False)
            axes.set_ylabel(
                filled(axes.get_ylabel(), max(14, int(1.25 * panel.lines / CHARACTER))), parse_math=False
            )
            if axes is not all_axes[-1]:
                axes.tick_params(labelbottom=False)
                axes.set_xlabel("")
        blocks.append(_Block(block, all_axes, sum(high), any(panel.stretches for panel in run)))
    return grid, blocks


def _lay_out(figure: Figure, columns: Sequence[tuple[GridSpec, list[_Block]]], size: Size) -> None:
    """Give each block the height that it needs, after its text is measured.

    If `size` has no height, the blocks determine that of the figure.
    """
    engine = figure.get_layout_engine()
    assert engine is not None
    pad = _LEGEND_PAD * size.font_pt * figure.dpi / 72
    narrower = _NARROWER if len(columns) > 1 else 1.0
    for part, (_, blocks) in zip(figure.subfigs, columns, strict=True):
        for block in blocks:
            block.legend(narrower * part.bbox.width - pad)
    engine.execute(figure)
    needed = [
        [block.height_in + block.taken_in() + block.fit_label(size.font_pt) for block in blocks]
        for _, blocks in columns
    ]
    title_in = figure.get_figheight() - sum(block.part.bbox.height for block in columns[0][1]) / figure.dpi
    figure.set_figheight(size.height_in or round(title_in + max(map(sum, needed)), 3))
    for (grid, blocks), heights in zip(columns, needed, strict=True):
        spare = figure.get_figheight() - title_in - sum(heights)
        stretching = sum(block.height_in for block in blocks if block.stretches)
        share = max(-_LEAST, spare / stretching) if stretching else 0.0
        taller = [
            high + share * block.height_in * block.stretches
            for high, block in zip(heights, blocks, strict=True)
        ]
        grid.set_height_ratios([*taller, max(1e-3, spare - share * stretching)])
    engine.execute(figure)
    figure.set_layout_engine("none")
    # The solver's last digits differ between runs, but equal results give equal files.
    for part in (*figure.subfigs, *(block.part for _, blocks in columns for block in blocks)):
        part.bbox_relative.set_points(part.bbox_relative.get_points().round(5))
    for axes in figure.axes:
        axes.set_position(Bbox(axes.get_position().get_points().round(5)))


def check_format(path: str, option: str = "--plot") -> str:
    """The picture format that a file's name asks for: "png", "svg", ...; `option` gave the name.

    Raises:
        InputError: no such format exists.
    """
    kind = Path(path).suffix.lstrip(".").lower() or "png"
    known = sorted(set(Figure().canvas.get_supported_filetypes()) - _UNUSABLE)
    if kind not in known:
        problem = f"'{kind}' is no picture format (known: {', '.join(known)})"
        raise InputError(problem, "unknown-name", key=option)
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
