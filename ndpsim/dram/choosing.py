"""The choice of the next command."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined, overridable
from ndpsim.dram.queues import remove
from ndpsim.dram.spec.lower import (
    CLOCKS,
    CLOSES,
    CLOSES_FIRST,
    COMPLETED_BY,
    COUNTED,
    INTERVAL,
    IS_REFRESH,
    LENGTH,
    NO_RULE,
    SCOPE,
)
from ndpsim.dram.spec.standard import ACTIVATE, BANK_PAIR, ONE_BANK, PRECHARGE, READ, WRITE
from ndpsim.dram.state import (
    ACTIVE,
    ACTIVE_COUNT,
    ARRIVED,
    AWAITS_REFRESH,
    BANK,
    BUS_TAKEN,
    FAR,
    FINAL,
    GROUP,
    HELD_BY_OTHER,
    HOST_WAITS,
    NOT_BEFORE,
    OPEN_ROW,
    PRIORITY,
    RANK,
    READS,
    ROW,
    WRITE_MODE,
    WRITES,
)
from ndpsim.dram.timing import bank_ready_at, banks_of, first_bank, ready_at


@inlined
def holds_bank(rows, size, bank):
    """Whether an active request keeps a bank from being closed.

    An auto-precharge may close the bank of an active request. The request then activates the bank again and
    counts twice. As in the reference, such a count lasts only while a request is active.
    """
    return (size[ACTIVE] > 0 and rows[bank, ACTIVE_COUNT] > 0) or rows[bank, HELD_BY_OTHER] > 0


@inlined
def is_activated_write(entry, size, bank):
    """Whether a write has activated a bank and not yet been issued."""
    for slot in range(size[ACTIVE]):
        if entry[ACTIVE, BANK, slot] == bank and entry[ACTIVE, FINAL, slot] == WRITE:
            return True
    return False


@inlined
def must_wait(entry, rows, size, first, last, stride, has_room, other_has_room):
    """Whether an active request keeps maintenance from closing one of several banks.

    A read does so only while the sink has room for its data: it might wait long for room, but a refresh
    must not. `other_has_room`: whether the sink of another controller of these banks has room.
    """
    for bank in range(first, last, stride):
        if rows[bank, HELD_BY_OTHER] > 0 and other_has_room:
            return True
        is_held = size[ACTIVE] > 0 and rows[bank, ACTIVE_COUNT] > 0
        if is_held and (has_room or is_activated_write(entry, size, bank)):
            return True
    return False


@inlined
def all_closed(rows, first, last, stride):
    """Whether several banks are all closed."""
    for bank in range(first, last, stride):
        if rows[bank, OPEN_ROW] >= 0:
            return False
    return True


@inlined
def prospect(entry, ready, rows, size, credit, queue, slot):
    """A request's next command, and the first clock at which it may issue, FAR while its bank is held.

    `credit`: the clock from which the sink has room for a read.
    """
    bank = entry[queue, BANK, slot]
    row = rows[bank, OPEN_ROW]
    if row == entry[queue, ROW, slot]:
        command = entry[queue, FINAL, slot]
    elif row < 0:
        command = ACTIVATE
    else:
        command = PRECHARGE
        if queue != ACTIVE and holds_bank(rows, size, bank):
            return command, FAR
    earliest = bank_ready_at(ready, command, entry[queue, RANK, slot], entry[queue, GROUP, slot], bank)
    if command == READ:
        earliest = max(earliest, credit)
    return command, earliest


@inlined
def forget_bank(entry, size, bound, bank):
    """A bank's row or its active request has changed: stored ready clocks of its requests are not valid."""
    for queue in (ACTIVE, READS, WRITES):
        for slot in range(size[queue]):
            if entry[queue, BANK, slot] == bank:
                entry[queue, NOT_BEFORE, slot] = 0
                bound[queue] = 0


@inlined
def forget_all(entry, size, bound):
    """Stored ready clocks of all queued requests are not valid any more."""
    for queue in (ACTIVE, READS, WRITES):
        bound[queue] = 0
        for slot in range(size[queue]):
            entry[queue, NOT_BEFORE, slot] = 0


# ---- The scheduler's functions; the module of a scheduler overrides some of them


@overridable
def only_clocks_delay(scheduler):
    """Whether only clocks delay requests: then a queue is not examined before the first ready clock."""
    return False


@overridable
def look_over(scheduler, state, queue):
    """An integer that the scheduler computes from a queue before it examines single requests."""
    return 0


@overridable
def may_issue(scheduler, state, queue, slot, command, overview):
    """Whether a request may issue its next command now, if clocks allow it; `overview`: of `look_over`."""
    return True


@overridable
def held_until(scheduler, state, queue, slot, command, earliest):
    """The first clock at which a request may issue its next command; distances allow `earliest`."""
    return earliest


@overridable
def takes(scheduler, tables, state, slot, command):
    """Whether the next command of waiting maintenance may issue now, if clocks allow it."""
    return True


@overridable
def comes_before(scheduler, state, queue, slot, rival, overview):
    """Whether a request comes before another ready one: the older request comes first."""
    return state.entry[queue, ARRIVED, slot] < state.entry[queue, ARRIVED, rival]


# ---- Shared ranks


class RankClaims(NamedTuple):
    """Claims of other masters on a controller's ranks; None if it does not share them."""

    wanted: NDArray[np.int64]  # [node]: the last clock at which a master that comes first waited for a bank
    direction: NDArray[np.int64]  # [rank]: see `state.BUS_TAKEN`


@inlined
def is_bus_taken(blocking, rank):
    """Whether another has the command bus of a rank node."""
    if blocking is None:
        return False
    return blocking.direction[rank - 1] & BUS_TAKEN != 0


@inlined
def is_blocked(blocking, entry, queue, slot, clock):
    """Whether a request has to wait for the master that comes first on its rank, or for a command bus."""
    if blocking is None:
        return False
    direction = blocking.direction[entry[queue, RANK, slot] - 1]
    if direction & BUS_TAKEN or (queue != ACTIVE and direction & HOST_WAITS):
        return True
    asked_for = blocking.wanted[entry[queue, BANK, slot]] == clock
    turns = direction & (1 if entry[queue, FINAL, slot] == WRITE else 2) != 0
    if queue == ACTIVE:
        return turns and not asked_for
    return turns or asked_for


# ---- The choice


@inlined
def choose_from(policy, state, credit, queue, blocking, stalled_ranks, clock):
    """The ready request of a queue that comes first and is not blocked: (slot or -1, its command).

    `stalled_ranks`: mask of the rank nodes on which activations stall, see `delays_refresh`.

    Requests of the queues wait for the refresh of their bank. Of the active ones, those whose bank waits for
    its refresh come first, so that it can be closed.

    Distances only delay commands. Therefore a request that is not ready is not examined again before the
    clock found here, unless its bank changes. If only clocks delay requests, the whole queue is not examined
    before the first of these clocks. All other conditions change only with a command or a new request, and a
    step follows either. For blocked requests no such clock is known or needed.
    """
    entry, size, ready, rows, bound = state.entry, state.size, state.ready, state.rows, state.bound
    scheduler = policy.scheduler
    if blocking is None and only_clocks_delay(scheduler) and bound[queue] > clock:
        return -1, -1
    overview = look_over(scheduler, state, queue)
    best, best_command, best_awaited, first = -1, -1, False, FAR
    for slot in range(size[queue]):
        not_before = entry[queue, NOT_BEFORE, slot]
        if not_before > clock:
            first = min(first, not_before)
            continue
        if is_blocked(blocking, entry, queue, slot, clock):
            continue
        if queue != ACTIVE and rows[entry[queue, BANK, slot], AWAITS_REFRESH] > 0:
            continue  # until the refresh has issued, see `end_refresh`
        command, earliest = prospect(entry, ready, rows, size, credit, queue, slot)
        earliest = held_until(scheduler, state, queue, slot, command, earliest)
        entry[queue, NOT_BEFORE, slot] = earliest
        if earliest > clock:
            first = min(first, earliest)
        elif command == ACTIVATE and stalled_ranks >> entry[queue, RANK, slot] & 1:
            first = clock
        elif may_issue(scheduler, state, queue, slot, command, overview):
            if best >= 0:
                first = clock  # the other request is ready, too
            awaited = (
                queue == ACTIVE and command >= READ and rows[entry[queue, BANK, slot], AWAITS_REFRESH] > 0
            )
            goes_first = (
                awaited
                if awaited != best_awaited
                else (best < 0 or comes_before(scheduler, state, queue, slot, best, overview))
            )
            if goes_first:
                best, best_command, best_awaited = slot, command, awaited
    bound[queue] = first
    return best, best_command


# ---- Waiting maintenance


@inlined
def turn_to_open(tables, entry, rows, slot):
    """Of a pair of banks to refresh, put the open one into waiting maintenance, else the first."""
    rank, bank = entry[PRIORITY, RANK, slot], entry[PRIORITY, BANK, slot]
    first, _, half = banks_of(tables, BANK_PAIR, rank, bank)
    chosen = first + half if rows[first, OPEN_ROW] < 0 and rows[first + half, OPEN_ROW] >= 0 else first
    in_channel = chosen - first_bank(tables, 1)
    entry[PRIORITY, GROUP, slot] = 1 + tables.ranks + in_channel // tables.banks_per_group
    entry[PRIORITY, BANK, slot] = chosen


@inlined
def bars_queues(entry, rows, slot):
    """Whether maintenance holds back all queued requests: all does but a refresh of single banks under the
    refresh control own-bank, which has marked its banks.
    """
    return rows[entry[PRIORITY, BANK, slot], AWAITS_REFRESH] == 0 or entry[PRIORITY, FINAL, slot] == PRECHARGE


@inlined
def is_barred(entry, rows, size):
    """Whether any waiting maintenance holds back all queued requests."""
    for slot in range(size[PRIORITY]):
        if bars_queues(entry, rows, slot):
            return True
    return False


@inlined
def end_refresh(tables, entry, size, bound, rows, slot):
    """Waiting maintenance leaves its queue: requests for banks whose refresh it is need not wait any more."""
    command = entry[PRIORITY, FINAL, slot]
    if tables.commands[command, IS_REFRESH] and not bars_queues(entry, rows, slot):
        scope, rank, bank = (
            tables.commands[command, SCOPE],
            entry[PRIORITY, RANK, slot],
            entry[PRIORITY, BANK, slot],
        )
        first, end, stride = banks_of(tables, scope, rank, bank)
        for addressed in range(first, end, stride):
            rows[addressed, AWAITS_REFRESH] -= 1
            forget_bank(entry, size, bound, addressed)
    remove(entry, size, PRIORITY, slot)


@inlined
def drop_precharges(entry, size, rows):
    """Drop waiting PRECHARGEs of banks that another command has closed."""
    slot = 0
    while slot < size[PRIORITY]:
        if entry[PRIORITY, FINAL, slot] == PRECHARGE and rows[entry[PRIORITY, BANK, slot], OPEN_ROW] < 0:
            remove(entry, size, PRIORITY, slot)
        else:
            slot += 1


@inlined
def maintenance_prospect(tables, state, credit, other_credit, slot, clock):
    """The next command of waiting maintenance, and the first clock at which it may issue, FAR while an active
    request keeps it from closing a bank.

    `credit`: the clock from which the sink has room for a read; `other_credit`: see `must_wait`.
    """
    entry, rows = state.entry, state.rows
    final = entry[PRIORITY, FINAL, slot]
    if tables.commands[final, SCOPE] == BANK_PAIR:
        turn_to_open(tables, entry, rows, slot)
    rank, bank = entry[PRIORITY, RANK, slot], entry[PRIORITY, BANK, slot]
    first, end, stride = banks_of(tables, tables.commands[final, SCOPE], rank, bank)
    command, closes_first = final, tables.commands[final, CLOSES_FIRST]
    if closes_first >= 0 and not all_closed(rows, first, end, stride):
        command = closes_first
    earliest = ready_at(tables, state.ready, command, rank, entry[PRIORITY, GROUP, slot], bank)
    if tables.commands[command, CLOSES]:
        has_room, other_has_room = credit <= clock, other_credit <= clock
        if tables.commands[command, SCOPE] == ONE_BANK:
            first, end = bank, bank + 1
        if must_wait(entry, rows, state.size, first, end, stride, has_room, other_has_room):
            return command, FAR
    return command, earliest


@inlined
def delays_refresh(tables, command, due, clock):
    """Whether an activation now would delay a refresh of banks of its rank, which is ready at `due`: a
    stream of activations could delay it for ever.
    """
    second, gap = tables.commands[ACTIVATE, COMPLETED_BY], tables.gap
    spacing = max(gap[0, ACTIVATE, command], gap[1, ACTIVATE, command])
    if second >= 0:
        spacing = max(spacing, max(gap[0, second, command], gap[1, second, command]))
    return due < clock + spacing


@inlined
def waits_until(tables, state, command, slot, clock):
    """The clock until which a refresh of banks that is ready at `clock` waits for a better one; 0: it goes.

    The refresh counts in the window of activations (tFAW), and holds them back (tRREFD). It costs the fewest
    of them as the last command that the window allows: the window then holds them back nearly as long. A
    refresh waits for this for half of the window at most, from the clock at which its bank is ready, and
    only where four commands can follow each other fast enough.
    """
    spacing, held = tables.gap[1, ACTIVATE, ACTIVATE], tables.gap[1, command, ACTIVATE]
    before = spacing + tables.gap[1, ACTIVATE, command]
    for window in range(tables.windows.shape[0]):
        rule = tables.windows[window]
        length = rule[CLOCKS + ACTIVATE] + rule[COUNTED + ACTIVATE] - 1
        counts = rule[COUNTED + command] > 0 and rule[CLOCKS + ACTIVATE] > NO_RULE
        if counts and held > NO_RULE and length - before >= held:
            recent = state.recent[window, state.entry[PRIORITY, RANK, slot]]
            third_last = recent[recent[0] % rule[LENGTH] + 1]
            if third_last + rule[CLOCKS + ACTIVATE] < clock + held - spacing:
                until = state.ready[state.entry[PRIORITY, BANK, slot], command] + length // 2
                return until if until > clock else 0
    return 0


@inlined
def is_behind(entry, slot):
    """Whether earlier maintenance waits for the rank of this one."""
    for earlier in range(slot):
        if entry[PRIORITY, RANK, earlier] == entry[PRIORITY, RANK, slot]:
            return True
    return False


@inlined
def choose_priority(tables, policy, state, credit, other_credit, blocking, clock):
    """The first waiting maintenance that can issue: (slot or -1, its command, when one becomes ready, whether
    queued requests have to wait, mask of the rank nodes on which activations have to).

    Only the first may issue, and those behind others that hold back only requests for their banks. Refreshes
    of a rank stay in order. On shared ranks, `other_credit` is that of the first one's rank, and those of
    other ranks wait.
    """
    entry, size, rows = state.entry, state.size, state.rows
    wake, stalled_ranks, first_rank = FAR, 0, entry[PRIORITY, RANK, 0]
    for slot in range(size[PRIORITY]):
        bars, rank = bars_queues(entry, rows, slot), entry[PRIORITY, RANK, slot]
        if not (is_bus_taken(blocking, rank) or (blocking is not None and rank != first_rank)):
            command, earliest = maintenance_prospect(tables, state, credit, other_credit, slot, clock)
            refreshes = tables.commands[command, IS_REFRESH]
            in_order = not (refreshes and is_behind(entry, slot))
            if tables.commands[command, INTERVAL] > 0 and in_order and not bars and earliest < FAR:
                until = waits_until(tables, state, command, slot, max(earliest, clock))
                if until > 0:
                    wake = min(wake, until)
                    continue
            if in_order and earliest <= clock and takes(policy.scheduler, tables, state, slot, command):
                return slot, command, FAR, bars, 0
            if earliest > clock:
                wake = min(wake, earliest)
            if refreshes and in_order and delays_refresh(tables, command, earliest, clock):
                stalled_ranks |= 1 << rank
        if bars:
            return -1, -1, wake, True, 0
    return -1, -1, wake, False, stalled_ranks


@inlined
def set_write_mode(policy, size, value):
    """Enter or leave write mode by the watermarks."""
    if value[WRITE_MODE]:
        if size[WRITES] < policy.write_mode_below and size[READS] > 0:
            value[WRITE_MODE] = 0
    elif size[WRITES] > policy.write_mode_from or size[READS] == 0:
        value[WRITE_MODE] = 1


@inlined
def choose(channel, credit, other_credit, blocking, clock):
    """Active list, else priority queue, else reads or writes: (queue, slot, command, wake).

    Args:
        credit: the clock from which the sink has room for a read; other_credit: see `must_wait`.
        blocking: see `RankClaims`.

    Returns:
        `wake`: if slot is -1 and nothing blocks, the clock at which a request may become ready.
    """
    tables, policy, state = channel.shape, channel.policy, channel.state
    size, bound = state.size, state.bound
    slot, command = choose_from(policy, state, credit, ACTIVE, blocking, 0, clock)
    if slot >= 0:
        return ACTIVE, slot, command, FAR
    wake, stalled_ranks = bound[ACTIVE], 0
    if policy.drops_precharges:
        drop_precharges(state.entry, size, state.rows)
    if size[PRIORITY] > 0:
        slot, command, earliest, bars, stalled_ranks = choose_priority(
            tables, policy, state, credit, other_credit, blocking, clock
        )
        wake = min(wake, earliest)
        if slot >= 0 or bars:
            return PRIORITY, slot, command, wake
    set_write_mode(policy, size, state.value)
    queue = WRITES if state.value[WRITE_MODE] else READS
    slot, command = choose_from(policy, state, credit, queue, blocking, stalled_ranks, clock)
    return queue, slot, command, min(wake, bound[queue])
