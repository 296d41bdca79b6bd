"""Locations of the weights of an expert, as text."""

from __future__ import annotations

from collections.abc import Iterable

from ndpsim.base.reported import label_of
from ndpsim.base.units import format_bytes
from ndpsim.dimm.layout import MATRICES
from ndpsim.report.printing import print_table
from ndpsim.report.words import counted
from ndpsim.simulate import PlacedExpert
from ndpsim.simulate.placed import DimmPart, LanePart


def layout_title(placed: PlacedExpert) -> str:
    """A title that says which weights are placed where."""
    layout, described = placed.layout, placed.described
    name = described["model"] or f"{described['hidden']} x {described['intermediate']}"
    bits = {str(values_of): None for values_of in layout.weights.format.matrices}
    written = (
        next(iter(bits))
        if len(bits) == 1
        else ", ".join(
            f"{matrix} {values_of}"
            for matrix, values_of in zip(MATRICES, layout.weights.format.matrices, strict=True)
        )
    )
    return (
        f"One expert of {name} on {placed.hardware}, {layout.name}: {format_bytes(layout.bytes)}, {written}"
    )


def print_layout(placed: PlacedExpert) -> None:
    """Print the bytes of every matrix on every DIMM, and how evenly the lanes of a DIMM share them."""
    layout = placed.layout
    columns = ("dimm", "channel", *(f"matrix_bytes.{name}" for name in MATRICES), "matrix_bytes")
    labels = [*(label_of(name, DimmPart) for name in columns), label_of("matrix_bytes", LanePart)]
    rows = []
    for dimm in placed.dimms:
        lanes = [sum(lane.matrix_bytes.values()) for lane in dimm.lanes]
        share = f"{format_bytes(min(lanes))} to {format_bytes(max(lanes))}"
        rows.append((str(dimm.dimm), str(dimm.channel), *_sizes(dimm.matrix_bytes.values()), share))
    rows.append(("all", "", *_sizes(layout.lane_bits().sum(axis=(0, 1)) / 8), ""))
    on_lanes = f"{counted(layout.geometry.lanes, 'lane')} on each DIMM"
    print_table(f"{layout_title(placed)} in {counted(layout.bursts, 'burst')}, {on_lanes}", labels, rows)


def _sizes(matrices: Iterable[float]) -> list[str]:
    """The bytes of each matrix, and their sum."""
    sizes = list(matrices)
    return list(map(format_bytes, [*sizes, sum(sizes)]))
