"""Colours, figures and files of pictures."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.errors import InputError
from ndpsim.files import replacing

__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PINK",
    "SKY",
    "VERMILION",
    "YELLOW",
    "check_format",
    "legend_above",
    "save",
    "set_title",
    "stacked",
]

# Colours of Okabe and Ito, told apart by colour-blind readers as well; and a grey.
BLACK, ORANGE, SKY, GREEN, YELLOW = "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PINK, GREY = "#0072B2", "#D55E00", "#CC79A7", "#BBBBBB"

_TITLE_CHARACTERS = 11  # that fit into an inch


def check_format(path: str) -> str:
    """The picture format that a file's name asks for: "png", "svg", ...

    Raises:
        InputError: there is no such format.
    """
    kind = Path(path).suffix.lstrip(".").lower() or "png"
    known = Figure().canvas.get_supported_filetypes()
    if kind not in known:
        raise InputError(f"'{kind}' is no picture format (known: {', '.join(sorted(known))})", key="--plot")
    return kind


def save(figure: Figure, path: str) -> None:
    """Write a figure to a file, whole or not at all, and close it.

    Raises:
        InputError: the file name ends in no picture format, or the file cannot be written.
    """
    try:
        kind = check_format(path)
        with replacing(path) as file:
            figure.savefig(file, format=kind, dpi=150)
    finally:
        plt.close(figure)


def set_title(figure: Figure, title: str) -> None:
    """A title over a whole figure; lines that are too long for it are broken."""
    most = int(_TITLE_CHARACTERS * figure.get_figwidth())
    lines = [part for line in title.splitlines() for part in textwrap.wrap(line, most)]
    figure.suptitle("\n".join(lines), fontsize=11, parse_math=False)


def stacked(title: str, heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """A figure with a title and axes below each other, with these relative heights."""
    figure, axes = plt.subplots(
        len(heights),
        1,
        figsize=(10, 2.2 + 0.4 * len(heights) + 0.85 * sum(heights)),
        height_ratios=heights,
        layout="constrained",
        squeeze=False,
    )
    set_title(figure, title)
    return figure, list(axes[:, 0])


def legend_above(axes: Axes, columns: int) -> None:
    """A legend over the axes, out of the way of what they show."""
    axes.legend(
        ncols=columns,
        fontsize=8,
        frameon=False,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        borderaxespad=0.2,
        columnspacing=1.2,
    )
