"""Locations of the weights of an expert, as text."""

from __future__ import annotations

from ndpsim.layout import MATRICES
from ndpsim.report.printing import print_table
from ndpsim.report.words import counted
from ndpsim.simulate import PlacedExpert
from ndpsim.units import format_bytes


def layout_title(placed: PlacedExpert) -> str:
    """The locations in a line."""
    layout, of = placed.layout, placed.described
    name = of["model"] or f"{of['hidden']} x {of['intermediate']}"
    bits = {str(of_matrix): None for of_matrix in layout.weights.format.matrices}
    written = (
        next(iter(bits))
        if len(bits) == 1
        else ", ".join(
            f"{matrix} {of_matrix}"
            for matrix, of_matrix in zip(MATRICES, layout.weights.format.matrices, strict=True)
        )
    )
    return (
        f"One expert of {name} on {placed.hardware}, {layout.name}: {format_bytes(layout.bytes)}, {written}"
    )


def print_layout(placed: PlacedExpert) -> None:
    """Bytes of every matrix on every DIMM, and how evenly a DIMM's lanes share them."""
    layout = placed.layout
    held = layout.lane_bits() / 8
    rows = []
    for dimm in layout.dimms:
        lanes = held[dimm].sum(axis=1)
        rows.append(
            (
                str(dimm),
                str(dimm % layout.geometry.channels),
                *(format_bytes(size) for size in held[dimm].sum(axis=0)),
                format_bytes(lanes.sum()),
                f"{format_bytes(lanes.min())} to {format_bytes(lanes.max())}",
            )
        )
    total = held.sum(axis=(0, 1))
    rows.append(("all", "", *(format_bytes(size) for size in total), format_bytes(total.sum()), ""))
    columns = (
        "DIMM",
        "channel",
        *MATRICES,
        "together",
        f"on each of {counted(layout.geometry.lanes, 'lane')}",
    )
    print_table(f"{layout_title(placed)} in {counted(layout.bursts, 'burst')}", columns, rows)
