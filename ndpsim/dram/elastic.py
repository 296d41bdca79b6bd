"""Refreshes of ranks that wait for an idle rank: postponed while requests wait, or pulled in.

A rank owes the refreshes that are due and not yet requested, less those requested early. One is requested as
soon as the rank owes as many as may be postponed. Otherwise the rank must have been idle for a time: of the
duration of a refresh (tRFC), the share by which it owes less than may be postponed. The more it owes, the
sooner it is refreshed; one that owes nothing is refreshed after tRFC without a request, which promises
further idle time.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dram.choosing import all_closed, is_barred
from ndpsim.dram.queues import push_priority
from ndpsim.dram.spec.lower import BUSY, CLOSES_FIRST
from ndpsim.dram.spec.standard import WHOLE_RANK
from ndpsim.dram.state import (
    ACTIVE,
    FAR,
    IDLE_SINCE,
    OWED,
    PRIORITY,
    RANK,
    READS,
    REFRESH_FROM,
    WRITES,
)
from ndpsim.dram.timing import banks_of, ready_at


@inlined
def has_any(state, queue, rank):
    """Whether a queue has a request, or maintenance, for a rank."""
    for slot in range(state.size[queue]):
        if state.entry[queue, RANK, slot] == rank:
            return True
    return False


@inlined
def refresh_ready_at(tables, state, command, rank):
    """The first clock at which a refresh of a rank, or the precharge before it, may issue."""
    first, end, stride = banks_of(tables, WHOLE_RANK, rank, 0)
    if not all_closed(state.rows, first, end, stride):
        command = tables.commands[command, CLOSES_FIRST]
    return ready_at(tables, state.ready, command, rank, 0, 0)


@inlined
def waits_until(tables, policy, state, command, rank, clock):
    """The clock at which a refresh of a rank should be requested, as things are; FAR: not now."""
    owed, idle_since = state.rows[rank, OWED], state.rows[rank, IDLE_SINCE]
    if has_any(state, PRIORITY, rank):
        return FAR
    if owed >= policy.postpones:
        return clock
    if idle_since == FAR or owed <= -policy.pulls_in:
        return FAR
    delay = tables.commands[command, BUSY] * (policy.postpones - owed) // policy.postpones
    return max(idle_since + delay, refresh_ready_at(tables, state, command, rank))


@inlined
def request_owed(tables, policy, state, command, is_due, clock):
    """Request the refreshes whose time has come; is_due: whether a further one is due in every rank now.

    Records in the row state of the channel's node when to look again, if nothing happens before.
    """
    rows, look = state.rows, FAR
    for rank in range(1, tables.ranks + 1):
        rows[rank, OWED] += is_due
        if has_any(state, ACTIVE, rank) or has_any(state, READS, rank) or has_any(state, WRITES, rank):
            rows[rank, IDLE_SINCE] = FAR
        else:
            rows[rank, IDLE_SINCE] = min(rows[rank, IDLE_SINCE], clock)
        earliest = waits_until(tables, policy, state, command, rank, clock)
        if earliest > clock:
            look = min(look, earliest)
            continue
        if not is_barred(state.entry, rows, state.size):
            state.value[REFRESH_FROM] = clock
        push_priority(state.entry, state.size, command, rank, 0, 0)
        rows[rank, OWED] -= 1
    rows[0, IDLE_SINCE] = look
