"""The oldest ready request first (FR-FCFS), as in Ramulator 2.1.

FRFCFS-RowHit has the same type, so the kernels of the fast controller, which supports both, are compiled
once.
"""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined
from ndpsim.dram.spec.standard import PRECHARGE
from ndpsim.dram.state import ARRIVED, BANK, FAR, HIT_SINCE, OPEN_ROW, ROW


class FRFCFS(NamedTuple):
    """`row_hit_first`: 1 if no request may close the row of an older hit."""

    row_hit_first: int = 0


def of() -> FRFCFS:
    """The parameters."""
    return FRFCFS()


@inlined
def only_clocks_delay(scheduler):
    return scheduler.row_hit_first == 0


@inlined
def look_over(scheduler, state, queue):
    """Note for every bank the arrival of the oldest row hit in the queue."""
    if scheduler.row_hit_first:
        entry, size, rows = state.entry, state.size, state.rows
        for slot in range(size[queue]):
            rows[entry[queue, BANK, slot], HIT_SINCE] = FAR
        for slot in range(size[queue]):
            bank, arrived = entry[queue, BANK, slot], entry[queue, ARRIVED, slot]
            if rows[bank, OPEN_ROW] == entry[queue, ROW, slot]:
                rows[bank, HIT_SINCE] = min(rows[bank, HIT_SINCE], arrived)
    return 0


@inlined
def may_issue(scheduler, state, queue, slot, command, overview):
    """No precharge of the row of an older hit."""
    if command != PRECHARGE or scheduler.row_hit_first == 0:
        return True
    return state.rows[state.entry[queue, BANK, slot], HIT_SINCE] > state.entry[queue, ARRIVED, slot]
