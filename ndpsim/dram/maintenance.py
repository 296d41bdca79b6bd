"""Refresh, and rows that have had their accesses."""

from __future__ import annotations

from ndpsim._jit import inlined
from ndpsim.dram.queues import push_priority
from ndpsim.dram.state import (
    ACCESSES,
    ALL_BANK,
    CLOSING,
    FAR,
    NEXT_REFRESH,
    NO_REFRESH,
    PRIORITY,
    REFRESH_FROM,
    REFRESHES,
    SAME_BANK,
    STAGGERED,
)
from ndpsim.dram.timing import bank_ready_at, banks_per_rank, first_bank
from ndpsim.spec.standard import PREPB, REFAB, REFSB

__all__ = ["close_capped_rows", "next_refresh", "refresh"]


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


@inlined
def close_capped_rows(tables, policy, channel, clock):
    """Ask for a PREpb, once, of every bank whose row has had its accesses, when it would be ready.

    Returns the first later clock at which another such bank becomes ready.
    """
    wake = FAR
    ready, rows = channel.ready, channel.rows
    start = first_bank(tables, 1)
    for bank in range(start, rows.shape[0]):
        if rows[bank, ACCESSES] < policy.row_cap or rows[bank, CLOSING]:
            continue
        group = 1 + tables.ranks + (bank - start) // tables.banks_per_group
        rank = 1 + (bank - start) // banks_per_rank(tables)
        at = bank_ready_at(ready, PREPB, rank, group, bank)
        if at <= clock:
            if channel.size[PRIORITY] < channel.entry.shape[2]:
                push_priority(channel.entry, channel.size, PREPB, rank, group, bank)
                rows[bank, CLOSING] = 1
        else:
            wake = min(wake, at)
    return wake
