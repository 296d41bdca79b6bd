"""Requests refreshes, and closes rows that have reached the row policy's cap.

Refreshes of ranks that wait for an idle rank are postponed while requests wait, or pulled in. A rank owes the
refreshes that are due and not yet requested, less those requested early. One is requested as soon as the rank
owes as many as may be postponed. Otherwise the rank must have been idle for a time: of the duration of a
refresh (tRFC), the share by which it owes less than may be postponed. The more it owes, the sooner it is
refreshed; one that owes nothing is refreshed after tRFC without a request, which promises further idle time.
"""

from __future__ import annotations

from ndpsim.base.jit import by_type, inlined
from ndpsim.dram.choosing import all_closed, is_barred
from ndpsim.dram.queues import push_priority
from ndpsim.dram.spec.lower import BUSY, CLOSES_FIRST, INTERVAL, IS_REFRESH, SCOPE
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK, WHOLE_RANK
from ndpsim.dram.state import (
    ACTIVE,
    AWAITS_REFRESH,
    BANK,
    FAR,
    FINAL,
    IDLE_SINCE,
    NEXT_REFRESH,
    OWED,
    PAUSED_UNTIL,
    PRIORITY,
    RANK,
    READS,
    REFRESH_FROM,
    REFRESH_PERIOD,
    REFRESH_SHIFT,
    REFRESH_TURNS,
    REFRESHES,
    TURN_BANK,
    TURN_CLOCK,
    TURN_COMMAND,
    TURN_FIELDS,
    TURN_PAUSE,
    TURN_RANK,
    TURNS,
    WRITES,
)
from ndpsim.dram.timing import banks_of, first_bank, ready_at


@inlined
def own_place(value):
    """The place after the turns, where a controller class has its own state."""
    return TURNS + value[REFRESH_TURNS] * TURN_FIELDS


@inlined
def turn_of(value, refreshes):
    """The place, after the counters, of the turn after this number of refreshes."""
    return TURNS + refreshes % max(value[REFRESH_TURNS], 1) * TURN_FIELDS


@inlined
def next_refresh(value):
    """The clock at which the next refresh is due."""
    if value[REFRESH_TURNS] == 0:
        return FAR
    periods = value[REFRESHES] // value[REFRESH_TURNS]
    due = periods * value[REFRESH_PERIOD] + value[turn_of(value, value[REFRESHES]) + TURN_CLOCK]
    return max(due - value[REFRESH_SHIFT], value[PAUSED_UNTIL])


@inlined
def pause_refreshes(value, turn):
    """After a turn: a pause may begin when all refreshes that are due have been issued."""
    if value[turn + TURN_PAUSE] > 0:
        value[PAUSED_UNTIL] = FAR
    value[NEXT_REFRESH] = next_refresh(value)


@inlined
def end_pause(value, clock):
    """The last refresh of a round issues at `clock`: only the time of the pause remains."""
    turn = turn_of(value, value[REFRESHES] - 1)
    value[PAUSED_UNTIL] = clock + value[turn + TURN_PAUSE]
    value[NEXT_REFRESH] = next_refresh(value)


@inlined
def end_round(tables, entry, size, value, clock):
    """A refresh has issued and has left the priority queue; it may be the last of a round."""
    if value[PAUSED_UNTIL] < FAR:
        return
    for slot in range(size[PRIORITY]):
        final = entry[PRIORITY, FINAL, slot]
        if tables.commands[final, IS_REFRESH] and tables.commands[final, INTERVAL] > 0:
            return
    end_pause(value, clock)


@inlined
def turn_after(value, turn, last):
    """The next turn after `last` of the same rank and round as `turn`; -1: there is none."""
    end = TURNS + value[REFRESH_TURNS] * TURN_FIELDS
    while value[last + TURN_PAUSE] == 0 and last + TURN_FIELDS < end:
        last += TURN_FIELDS
        if value[last + TURN_RANK] == value[turn + TURN_RANK]:
            return last
    return -1


@inlined
def swap_banks(value, turn, second):
    """Exchange the banks of two turns; every bank still has one in each round."""
    bank = value[turn + TURN_BANK]
    value[turn + TURN_BANK], value[second + TURN_BANK] = value[second + TURN_BANK], bank


@inlined
def requests_for(tables, state, scope, rank, number):
    """Queued requests for the banks of a refresh of this bank number of a rank."""
    entry, size, found = state.entry, state.size, 0
    first, end, stride = banks_of(tables, scope, rank, first_bank(tables, rank) + number)
    for queue in (READS, WRITES):
        for slot in range(size[queue]):
            bank = entry[queue, BANK, slot]
            found += first <= bank < end and (bank - first) % stride == 0
    return found


@inlined
def choose_bank(tables, state, turn):
    """Give a turn that bank, of those still due in the round, for which the fewest requests wait.

    After Chang et al., "Improving DRAM Performance by Parallelizing Refreshes with Accesses" (HPCA 2014),
    section 4.2: refreshes of banks out of order.
    """
    value = state.value
    scope, only = tables.commands[value[turn + TURN_COMMAND], SCOPE], value[turn + TURN_RANK]
    best, fewest, candidate = turn, FAR, turn
    while candidate >= 0 and fewest > 0:
        waiting = 0
        for rank in range(tables.ranks):
            if only < 0 or rank == only:
                waiting += requests_for(tables, state, scope, rank + 1, value[candidate + TURN_BANK])
        if waiting < fewest:
            best, fewest = candidate, waiting
        candidate = turn_after(value, turn, candidate)
    swap_banks(value, turn, best)


@inlined
def push_refresh(tables, own_bank, state, command, rank, group, bank):
    """Append a refresh, or RFM, to the priority queue; that of banks may hold back only their requests."""
    scope = tables.commands[command, SCOPE]
    push_priority(state.entry, state.size, command, rank, group, bank)
    if own_bank and scope != WHOLE_RANK:
        first, end, stride = banks_of(tables, scope, rank, bank)
        for addressed in range(first, end, stride):
            state.rows[addressed, AWAITS_REFRESH] += 1


@inlined
def refresh(tables, policy, state, clock):
    """Request the refreshes that are due.

    False if the priority queue has no room for them: refresh can then never catch up.
    """
    size, value = state.size, state.value
    turn, is_due = turn_of(value, value[REFRESHES]), clock >= value[NEXT_REFRESH]
    if policy.postpones > 0:
        request_owed(tables, policy, state, value[turn + TURN_COMMAND], int(is_due), clock)
    if not is_due:
        return True
    if size[PRIORITY] + tables.ranks > state.entry.shape[2]:
        return False
    if policy.any_order:
        choose_bank(tables, state, turn)
    command, only, number = value[turn + TURN_COMMAND], value[turn + TURN_RANK], value[turn + TURN_BANK]
    bars = policy.own_bank == 0 or tables.commands[command, SCOPE] == WHOLE_RANK
    if bars and policy.postpones == 0 and not is_barred(state.entry, state.rows, size):
        value[REFRESH_FROM] = clock
    for rank in range(1, tables.ranks + 1):
        if policy.postpones == 0 and (only < 0 or rank - 1 == only):
            group, bank = 0, 0
            if number >= 0:
                bank = first_bank(tables, rank) + number
            if tables.commands[command, SCOPE] == ONE_BANK or tables.commands[command, SCOPE] == BANK_PAIR:
                in_rank = number // tables.banks_per_group
                group = 1 + tables.ranks + (rank - 1) * tables.bankgroups + in_rank
            push_refresh(tables, policy.own_bank, state, command, rank, group, bank)
    value[REFRESHES] += 1
    pause_refreshes(value, turn)
    return True


@by_type
def close_due(rows, tables, state, clock):
    """Request PRECHARGE for rows that the policy closes, if it is ready.

    Returns the first later clock at which it can be ready for another row.
    """


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
