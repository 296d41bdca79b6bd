"""An expert's weights as the stream a GEMV unit wants: rows in the order in which it needs them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Region", "expert_regions"]


@dataclass(frozen=True)
class Region:
    """Rows of weights packed without gaps, beginning on a burst of their own.

    Attributes:
        name: what the rows are: "gate-up" or "down".
        rows: output rows of the matrices in the region.
        columns: weights in a row.
        bits: bits in a weight.
        burst_bytes: bytes in a burst.
    """

    name: str
    rows: int
    columns: int
    bits: int
    burst_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes of weights, the last one possibly in part."""
        return -(-self.rows * self.columns * self.bits // 8)

    @property
    def bursts(self) -> int:
        """Bursts that hold them."""
        return -(-self.bytes // self.burst_bytes)

    def burst_rows(self, bursts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each of some bursts the first and the last row that it holds weights of."""
        row_bits, burst_bits = self.columns * self.bits, self.burst_bytes * 8
        last = ((bursts + 1) * burst_bits - 1) // row_bits
        return bursts * burst_bits // row_bits, np.minimum(last, self.rows - 1)


def expert_regions(hidden: int, intermediate: int, bits: int, burst_bytes: int) -> tuple[Region, Region]:
    """The two regions of a gated expert.

    Gate and up lie row by row in turn, so that a value of the hidden layer is complete, and can be
    activated, as soon as its two rows have been read; down follows.
    """
    return (
        Region("gate-up", 2 * intermediate, hidden, bits, burst_bytes),
        Region("down", hidden, intermediate, bits, burst_bytes),
    )
