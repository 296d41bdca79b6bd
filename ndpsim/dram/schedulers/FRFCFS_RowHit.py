"""The oldest ready request first, but no request closes the row of an older hit, as in Ramulator 2.1."""

from __future__ import annotations

from ndpsim.dram.schedulers.FRFCFS import FRFCFS


def of() -> FRFCFS:
    """The parameters."""
    return FRFCFS(row_hit_first=1)
