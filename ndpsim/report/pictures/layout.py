"""A picture of where the weights of an expert lie."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from ndpsim.layout import MATRICES, Layout
from ndpsim.report.layouts import layout_title
from ndpsim.report.pictures.canvas import BLUE, PINK, SKY, check_format, save, set_title
from ndpsim.simulate import PlacedExpert

__all__ = ["draw_layout"]

_COLOURS = {"gate": BLUE, "up": SKY, "down": PINK}
_EMPTY = "#E6E6E6"
_ROWS = 2  # of every bank, in a look at them
_LABELS = 32  # of DIMMs, as many as can be read side by side


def draw_layout(path: str, placed: PlacedExpert) -> None:
    """How much of which matrix lies on every lane, and a look into the first rows of one of them.

    Raises:
        InputError: the file name ends in no picture format.
    """
    check_format(path)
    layout = placed.layout
    dimm, lane, matrix = _first_lane(layout)
    rank, subchannel = divmod(lane, layout.geometry.subchannels)
    down_row = _first_row(layout, matrix, MATRICES.index("down"))
    zooms = ["first"] if down_row < _ROWS else ["first", "down"]
    mosaic: Any = [["lanes"] * len(zooms), zooms]
    figure: Figure
    figure, axes = plt.subplot_mosaic(mosaic, figsize=(11, 7.2), height_ratios=(1, 1.5), layout="constrained")
    _lanes(axes["lanes"], layout)
    where = f"DIMM {dimm}, rank {rank}, sub-channel {subchannel}"
    _rows(axes["first"], layout, matrix, 0, f"{where}: its first rows")
    if "down" in axes:
        _rows(axes["down"], layout, matrix, down_row - 1, "the same lane, where down begins")
    figure.legend(
        handles=[Patch(color=colour, label=name) for name, colour in {**_COLOURS, "empty": _EMPTY}.items()],
        ncols=4,
        fontsize=8,
        frameon=False,
        loc="outside lower center",
    )
    set_title(figure, layout_title(placed))
    save(figure, path)


def _lanes(axes: Axes, layout: Layout) -> None:
    """A bar for every lane, DIMM after DIMM."""
    geometry, held = layout.geometry, layout.lane_bits() / 8
    unit, size = ("MiB", 1 << 20) if held.sum(axis=2).max() >= 1 << 20 else ("KiB", 1 << 10)
    held /= size
    at = (
        np.arange(geometry.dimms)[:, np.newaxis] + (np.arange(geometry.lanes) + 1) / (geometry.lanes + 1)
    ).ravel()
    bottom = np.zeros_like(at)
    for number, name in enumerate(MATRICES):
        height = held[:, :, number].ravel()
        axes.bar(at, height, width=0.85 / (geometry.lanes + 1), bottom=bottom, color=_COLOURS[name])
        bottom += height
    step = -(-geometry.dimms // _LABELS)
    shown = np.arange(0, geometry.dimms, step)
    axes.set_xticks(shown + 0.5, [f"{dimm}\nch {dimm % geometry.channels}" for dimm in shown], fontsize=8)
    axes.set_xticks(np.arange(geometry.dimms + 1), minor=True)
    axes.tick_params(axis="x", which="major", length=0)
    axes.set(
        xlim=(0, geometry.dimms),
        ylim=(0, bottom.max() * 1.08),
        ylabel=f"weights ({unit})",
        xlabel=f"DIMM and its channel; {geometry.lanes} lanes in each",
    )
    for edge in range(1, geometry.dimms):
        axes.axvline(edge, color=_EMPTY, linewidth=0.8, zorder=0)


def _first_lane(layout: Layout) -> tuple[int, int, NDArray[np.int64]]:
    """DIMM and lane of the first burst, and which matrix has most of each place there; -1: nothing."""
    places = layout.places()
    dimm, lane = int(places.dimm[0]), int(places.lane[0])
    here = (places.dimm == dimm) & (places.lane == lane)
    matrix = np.full(int(places.place[here].max()) + 1, -1, dtype=np.int64)
    matrix[places.place[here]] = layout.matrix_bits()[:, here].argmax(axis=0)
    return dimm, lane, matrix


def _first_row(layout: Layout, matrix: NDArray[np.int64], which: int) -> int:
    """The first row, of any bank, that a matrix has in a lane; 0: it has none."""
    found = np.flatnonzero(matrix == which)[:1]
    rows = layout.parts[0].dealing.coordinates(found)[2]
    return int(rows[0]) if len(rows) else 0


def _rows(axes: Axes, layout: Layout, matrix: NDArray[np.int64], first: int, title: str) -> None:
    """The bursts of some rows of every bank, coloured by matrix, in the order in which they fill."""
    device, rows = layout.geometry.device, range(first, first + _ROWS)
    row, bank, bankgroup, column = np.ix_(
        rows, range(device.banks_per_group), range(device.bankgroups), range(device.bursts_per_row)
    )
    place = layout.parts[0].dealing.place(bankgroup, bank, row, column)
    held = np.where(place < len(matrix), matrix[np.minimum(place, len(matrix) - 1)], -1)
    banks = len(rows) * device.banks_per_group
    lines = banks * device.bankgroups
    axes.imshow(
        held.reshape(lines, device.bursts_per_row),
        cmap=ListedColormap([_EMPTY, *_COLOURS.values()]),
        vmin=-1,
        vmax=len(_COLOURS) - 1,
        aspect="auto",
        interpolation="nearest",
        extent=(0, device.bursts_per_row, lines, 0),
    )
    for edge in range(1, lines):
        axes.axhline(edge, color="white", linewidth=2 if edge % device.bankgroups == 0 else 0.3)
    names = [f"row {row} bank {bank}" for row in rows for bank in range(device.banks_per_group)]
    axes.set_yticks((np.arange(banks) + 0.5) * device.bankgroups, names, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"burst in the row; {device.bankgroups} lines: the bank groups", fontsize=9)
    axes.set_title(title, fontsize=9)
