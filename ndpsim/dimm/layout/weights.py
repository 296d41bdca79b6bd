"""The weights of an expert: their shape and format, and slices of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from ndpsim.base.errors import InputError
from ndpsim.dimm.layout.formats import MATRICES, ExpertFormat

_DOWN = MATRICES.index("down")


@dataclass(frozen=True)
class ExpertWeights:
    """The weights of a gated expert: gate and up (intermediate x hidden) and down (hidden x intermediate)."""

    hidden: int
    intermediate: int
    format: ExpertFormat

    def shape(self, matrix: int) -> tuple[int, int]:
        """(rows, columns) of a matrix by its number in `MATRICES`."""
        across = self.hidden, self.intermediate
        return across if matrix == _DOWN else across[::-1]

    def matrix_bits(self) -> tuple[int, ...]:
        """Bits of each matrix, scales and zero points included, in the order of `MATRICES`."""
        shapes = (self.shape(matrix) for matrix in range(len(MATRICES)))
        return tuple(
            rows * form.row_bits(columns)
            for form, (rows, columns) in zip(self.format.matrices, shapes, strict=True)
        )

    def slices(self, count: int) -> list[range]:
        """The `intermediate` dimension in `count` slices, as equal as whole groups of down allow.

        Raises:
            InputError: there are more slices than weights or groups.
        """
        unit = self.format.down.group_size or 1
        units = -(-self.intermediate // unit)
        if count > units:
            raise InputError(
                f"sharded:{count} leaves DIMMs without weights: the intermediate size makes at most "
                f"{units} slices of {unit}",
                "range",
                key="layout",
            )
        ends = [min(units * n // count * unit, self.intermediate) for n in range(count + 1)]
        return [range(first, end) for first, end in pairwise(ends)]
