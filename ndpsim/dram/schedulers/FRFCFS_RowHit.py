"""The oldest ready request first, but none closes a row on an older hit, as Ramulator 2.1 has it."""

from __future__ import annotations

from ndpsim.dram.schedulers.FRFCFS import FRFCFS


def of() -> FRFCFS:
    """The parameters."""
    return FRFCFS(row_hit_first=1)
