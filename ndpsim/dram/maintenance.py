"""Refresh, and rows that have had their accesses."""

from __future__ import annotations

from ndpsim._jit import by_type, inlined
from ndpsim.dram.queues import push_priority
from ndpsim.dram.state import (
    ALL_BANK,
    FAR,
    NEXT_REFRESH,
    NO_REFRESH,
    PRIORITY,
    REFRESH_FROM,
    REFRESHES,
    SAME_BANK,
    STAGGERED,
)
from ndpsim.dram.timing import first_bank
from ndpsim.spec.standard import REFAB, REFSB

__all__ = ["close_due", "next_refresh", "refresh"]


@inlined
def next_refresh(tables, kind, refreshes):
    """The clock at which the next refresh falls due, after `refreshes` of them."""
    interval = tables.refresh_interval
    if kind == NO_REFRESH:
        return FAR
    if kind == STAGGERED:
        return refreshes // tables.ranks * interval + (refreshes % tables.ranks + 1) * (
            interval // tables.ranks
        )
    if kind == SAME_BANK:
        return (refreshes + 1) * interval // tables.banks_per_group
    return (refreshes + 1) * interval


@inlined
def refresh(tables, policy, entry, size, value, clock):
    """Ask for the refreshes that fall due.

    All-bank: every rank at each multiple of tREFI, in rank order. Staggered: one rank after the other,
    evenly over tREFI. Same-bank: one bank of every group of each rank after the other, all over tREFI.
    False when the priority queue has no room for them: refresh can then never catch up.
    """
    if clock < value[NEXT_REFRESH]:
        return True
    if size[PRIORITY] + tables.ranks > entry.shape[2]:
        return False
    if size[PRIORITY] == 0:
        value[REFRESH_FROM] = clock
    turn = value[REFRESHES]
    for rank in range(1, tables.ranks + 1):
        if policy.refresh == SAME_BANK:
            bank = first_bank(tables, rank) + turn % tables.banks_per_group
            push_priority(entry, size, REFSB, rank, 0, bank)
        elif policy.refresh == ALL_BANK or rank - 1 == turn % tables.ranks:
            push_priority(entry, size, REFAB, rank, 0, 0)
    value[REFRESHES] = turn + 1
    value[NEXT_REFRESH] = next_refresh(tables, policy.refresh, turn + 1)
    return True


@by_type
def close_due(rows, tables, channel, clock):
    """Ask for the PREpb of rows that the policy closes, where it is ready.

    Returns the first later clock at which it can be for another.
    """
