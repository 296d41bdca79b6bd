"""A picture of the locations of an expert's weights."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ndpsim.dimm.layout import Layout
from ndpsim.report.bundled import bank_layout_title, layout_title
from ndpsim.report.panels import DEFAULT_SIZE, chosen_panels
from ndpsim.report.pictures.canvas import COLOURS, Panel, Panels, compose
from ndpsim.simulate import PlacedExpert
from ndpsim.simulate.bank_layout import BankLayout

_ROWS = 2  # drawn rows of every bank
_LABELS = 16  # names of DIMMs that are readable side by side in a column


def layout_figure(placed: PlacedExpert, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """The bytes of each matrix on every lane, and some rows of one lane.

    Args:
        placed: of `place_expert`.
        size, panels: see `panels.SIZES` and `panels.PANELS`; "down" is empty if the first rows hold all
            weights.

    Raises:
        InputError: there is no such size or panel.
    """
    chosen, layout = chosen_panels(panels, "layout"), placed.layout
    dimm, lane, matrix = _first_lane(layout)
    rank, subchannel = divmod(lane, layout.geometry.subchannels)
    down_row = _first_row(layout, matrix, layout.weights.down)
    where = f"DIMM {dimm}, rank {rank}, sub-channel {subchannel}"

    def rows(first: int, words: str, legend: bool) -> Panel:
        draw = partial(_rows, layout=layout, matrix=matrix, first=first, words=words, legend=legend)
        return Panel(draw, 1.2 * _ROWS * layout.geometry.device.banks_per_group, stretches=True)

    lanes = {"lanes": Panel(lambda axes: _lanes(axes, layout), 7, stretches=True)}
    lane_panels = {"first": rows(0, f"first rows of {where}", chosen[0] == "first" or size == "slide")}
    if down_row >= _ROWS:
        explains = "first" not in chosen and chosen[0] != "lanes"
        lane_panels["down"] = rows(down_row - 1, f"where down begins in {where}", explains)
    groups = lanes, lane_panels
    return compose(f"Locations of weights: {layout_title(placed)}", groups, size, panels, "layout")


def _lanes(axes: Axes, layout: Layout) -> None:
    """A bar for every lane, DIMM after DIMM."""
    geometry, held = layout.geometry, layout.lane_bits() / 8
    unit, size = ("MiB", 1 << 20) if held.sum(axis=2).max() >= 1 << 20 else ("KiB", 1 << 10)
    held /= size
    positions = (
        np.arange(geometry.dimms)[:, np.newaxis] + (np.arange(geometry.lanes) + 1) / (geometry.lanes + 1)
    ).ravel()
    bottom = np.zeros_like(positions)
    for number, name in enumerate(layout.weights.format.names):
        height = held[:, :, number].ravel()
        width = 0.85 / (geometry.lanes + 1)
        axes.bar(positions, height, width=width, bottom=bottom, color=COLOURS[name], label=name)
        bottom += height
    step = -(-geometry.dimms // _LABELS)
    shown = np.arange(0, geometry.dimms, step)
    axes.set_xticks(shown + 0.5, [f"{dimm}\n{dimm % geometry.channels}" for dimm in shown])
    axes.tick_params(axis="x", which="major", length=0)
    axes.set(
        xlim=(0, geometry.dimms),
        ylim=(0, bottom.max() * 1.05),
        ylabel=f"weights ({unit})",
        xlabel=f"DIMM, below it its channel; {geometry.lanes} lanes in each DIMM",
    )
    for edge in range(1, geometry.dimms):
        axes.axvline(edge, color=COLOURS["empty"], zorder=0)


def _first_lane(layout: Layout) -> tuple[int, int, NDArray[np.int64]]:
    """DIMM and lane of the first burst, and the matrix with most bytes of each place there; -1: none."""
    places = layout.places()
    dimm, lane = int(places.dimm[0]), int(places.lane[0])
    here = (places.dimm == dimm) & (places.lane == lane)
    matrix = np.full(int(places.place[here].max()) + 1, -1, dtype=np.int64)
    matrix[places.place[here]] = layout.matrix_bits()[:, here].argmax(axis=0)
    return dimm, lane, matrix


def _first_row(layout: Layout, matrix: NDArray[np.int64], which: int) -> int:
    """The first row of any bank with data of a matrix in a lane; 0 without data."""
    found = np.flatnonzero(matrix == which)[:1]
    rows = layout.parts[0].interleaving.coordinates(found)[3]
    return int(rows[0]) if len(rows) else 0


def _rows(
    axes: Axes, layout: Layout, matrix: NDArray[np.int64], first: int, words: str, legend: bool
) -> None:
    """The bursts of some rows of every bank, coloured by matrix, in the order in which they fill."""
    device, rows = layout.geometry.device, range(first, first + _ROWS)
    matrices = layout.weights.format.names
    row, bank, rank, bankgroup, column = np.ix_(
        rows,
        range(device.banks_per_group),
        range(device.ranks),
        range(device.bankgroups),
        range(device.bursts_per_row),
    )
    burst = layout.parts[0].interleaving.place(rank, bankgroup, bank, row, column)
    held = np.where(burst < len(matrix), matrix[np.minimum(burst, len(matrix) - 1)], -1)
    banks = len(rows) * device.banks_per_group
    groups = device.ranks * device.bankgroups
    lines = banks * groups
    axes.imshow(
        held.reshape(lines, device.bursts_per_row),
        cmap=ListedColormap([COLOURS[name] for name in ("empty", *matrices)]),
        vmin=-1,
        vmax=layout.weights.down,
        aspect="auto",
        interpolation="nearest",
        extent=(0, device.bursts_per_row, lines, 0),
    )
    thin = float(axes.spines["left"].get_linewidth())
    for edge in range(1, lines):
        axes.axhline(edge, color="white", linewidth=2 * thin if edge % groups == 0 else 0.3 * thin)
    names = [f"row {row} bank {bank}" for row in rows for bank in range(device.banks_per_group)]
    axes.set_yticks((np.arange(banks) + 0.5) * groups, names)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"burst of the row, {words}; a line for each of {groups} bank groups")
    for name in (*matrices, "empty") if legend else ():
        axes.bar(np.nan, 0, color=COLOURS[name], edgecolor="#999999", linewidth=0.4, label=name)


def bank_layout_figure(layout: BankLayout, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """The rows of each operand in the banks of the first channel.

    Args:
        layout: of `place_bank_operands`.
        size, panels: see `panels.SIZES` and `panels.PANELS`.

    Raises:
        InputError: there is no such size or panel.
    """
    drawn = {"banks": Panel(lambda axes: _banks(axes, layout), 14, stretches=True)}
    title = f"Locations of operands: {bank_layout_title(layout)}"
    return compose(title, (drawn,), size, panels, "bank-layout")


def _banks(axes: Axes, layout: BankLayout) -> None:
    """A line for every bank, a bar for the rows of an operand of which units read columns."""
    colours = [COLOURS[name] for name in ("gate", "up")]
    for number, operand in enumerate(layout.operands):
        rows = slice(operand.first_row, operand.first_row + operand.rows)
        for bank, read in enumerate(layout.columns[:, rows] > 0):
            edges = np.flatnonzero(np.diff(np.concatenate(([0], read.astype(np.int8), [0]))))
            bars = [(operand.first_row + a, b - a) for a, b in zip(edges[::2], edges[1::2], strict=True)]
            axes.broken_barh(bars, (bank, 0.9), color=colours[number], label="" if bank else operand.name)
    last = max(operand.first_row + operand.rows for operand in layout.operands)
    axes.set(xlim=(0, last * 1.02), ylim=(len(layout.columns), 0), xlabel="row", ylabel="bank of the channel")
