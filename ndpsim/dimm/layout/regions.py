"""An expert's weights as a stream for a GEMV unit: rows in the order in which the unit needs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ndpsim.dimm.layout.formats import ExpertFormat, WeightFormat, expert_format

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Region:
    """Rows of weights without gaps, beginning at the start of a burst.

    Attributes:
        name: "gate-up" or "down".
        rows: output rows of the matrices in the region.
        columns: weights in a row.
        formats: the formats of the rows, which alternate; `rows` is a multiple of their number.
        burst_bytes: bytes in a burst.
    """

    name: str
    rows: int
    columns: int
    formats: tuple[WeightFormat, ...]
    burst_bytes: int

    @cached_property
    def _begins(self) -> tuple[int, ...]:
        """The bit at which each row of a turn begins, and the end of the turn."""
        begins = [0]
        for form in self.formats:
            begins.append(begins[-1] + form.row_bits(self.columns))
        return tuple(begins)

    @property
    def bits(self) -> int:
        """Bits of weights, scales and zero points."""
        return self.rows // len(self.formats) * self._begins[-1]

    @property
    def bytes(self) -> int:
        """Bytes for these bits; the last one may be partly used."""
        return -(-self.bits // 8)

    @property
    def bursts(self) -> int:
        """Bursts that hold them."""
        return -(-self.bytes // self.burst_bytes)

    def row_at(self, row: Ints) -> Ints:
        """The bit at which rows begin."""
        turn, in_turn = np.divmod(row, len(self.formats))
        begins: Ints = turn * self._begins[-1] + np.array(self._begins)[in_turn]
        return begins

    def bit_at(self, row: Ints, within: Ints) -> Ints:
        """Locations of bits of rows; `within`: the bit's place in its row."""
        return self.row_at(row) + within

    def holds(self, bit: Ints) -> NDArray[np.bool_]:
        """Whether bits are used; bits may be after the last row."""
        held: NDArray[np.bool_] = bit < self.bits
        return held

    def burst_bits(self) -> Ints:
        """Number of bits of rows of each format in every burst: int64[formats, bursts]."""
        return np.diff(self.bits_before(np.arange(self.bursts + 1) * (self.burst_bytes * 8)))

    def row_of(self, bit: Ints) -> tuple[Ints, Ints]:
        """The row of each bit, and its place in the row."""
        turn, rest = np.divmod(bit, self._begins[-1])
        in_turn = np.searchsorted(self._begins, rest, "right") - 1
        return turn * len(self.formats) + in_turn, rest - np.array(self._begins)[in_turn]

    def bits_before(self, bit: Ints) -> Ints:
        """Number of bits before each bit that belong to rows of each format: int64[formats, n]."""
        turn, rest = np.divmod(np.minimum(bit, self.bits), self._begins[-1])
        begins = np.array(self._begins)[:, np.newaxis]
        length = np.diff(begins, axis=0)
        before: Ints = turn * length + np.clip(rest - begins[:-1], 0, length)
        return before

    def burst_rows(self, bursts: Ints) -> tuple[Ints, Ints]:
        """The first and the last row with weights in each of some bursts."""
        burst_bits = self.burst_bytes * 8
        first, last = (self.row_of(bit)[0] for bit in (bursts * burst_bits, (bursts + 1) * burst_bits - 1))
        return first, np.minimum(last, self.rows - 1)


def expert_regions(
    hidden: int, intermediate: int, bits: int | ExpertFormat, burst_bytes: int
) -> tuple[Region, Region]:
    """The two regions of a gated expert.

    Rows of gate and up alternate: a value of the hidden layer is complete, and can be activated, after its
    two rows have been read. Down follows.
    """
    written = expert_format(bits)
    return (
        Region("gate-up", 2 * intermediate, hidden, (written.gate, written.up), burst_bytes),
        Region("down", hidden, intermediate, (written.down,), burst_bytes),
    )
