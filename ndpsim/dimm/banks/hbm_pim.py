"""The layout of HBM-PIM's GEMV: tiles of 8 outputs in each unit.

A row of the two banks of a unit has 8 columns of inputs of each output.
Results stay in registers for a tile and are then written to the banks. What does not fill a tile is padded.
"""

from __future__ import annotations

from collections.abc import Iterator

from ndpsim.dimm.banks.shapes import Gemv, Units, refuse_rows, up
from ndpsim.dram.banks.programs import Line, Program

#: Places of units.
PLACES = ("bank",)

_UNITS = 8  # of a channel, each with two banks
_MODE_COLUMNS = 2  # writes of the instruction buffer: a MAC loop and the move of its results


def _pieces(shape: Gemv, units: Units) -> int:
    """Rows of a tile: a row of the two banks of a unit has as many columns of inputs for each output."""
    return up(up(shape.inputs, units.elements), 2 * units.columns // units.accumulators)


def _tiles(shape: Gemv, units: Units) -> int:
    return up(shape.outputs, units.accumulators * _UNITS * units.channels)


def rows_of(shape: Gemv, units: Units) -> int:
    """Rows of each bank that a matrix and its results take."""
    return _tiles(shape, units) * _pieces(shape, units) + 1


def gemv(shape: Gemv, units: Units, first_row: int = 0) -> Program:
    """A GEMV on all channels.

    Raises:
        InputError: the matrix does not fit its banks.
    """
    refuse_rows(first_row + rows_of(shape, units), units, "the weights")
    words = ("WR_CRF", "WR_REG", "MAC", "WR_ALL", "END")
    return Program(lambda: _gemv(shape, units, first_row), words)


def _gemv(shape: Gemv, units: Units, first_row: int) -> Iterator[Line]:
    channels, tiles, pieces = tuple(range(units.channels)), _tiles(shape, units), _pieces(shape, units)

    def line(word: str, size: int, row: int = -1) -> Line:
        return Line(word, channels, row=row, column=0, size=size)

    yield line("WR_CRF", _MODE_COLUMNS)
    for tile in range(tiles):
        for piece in range(pieces):
            row = first_row + tile * pieces + piece
            yield line("WR_REG", 2 * units.columns // units.accumulators)
            # The columns of the even banks, then those of the odd ones.
            yield line("MAC", units.columns, row)
            yield line("MAC", units.columns, row)
        yield line("WR_ALL", units.accumulators, first_row + tiles * pieces)
    yield Line("END", channels)
