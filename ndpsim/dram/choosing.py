"""Which command comes next."""

from __future__ import annotations

from ndpsim._jit import inlined
from ndpsim.dram.state import (
    ACTIVE,
    ACTIVE_COUNT,
    ARRIVED,
    BANK,
    FAR,
    FINAL,
    GROUP,
    HELD_BY_OTHER,
    HIT_SINCE,
    NOT_BEFORE,
    OPEN_ROW,
    PRIORITY,
    RANK,
    READS,
    ROW,
    WRITE_MODE,
    WRITES,
)
from ndpsim.dram.timing import bank_ready_at, banks_per_rank, first_bank, rank_ready_at, same_banks_ready_at
from ndpsim.spec.standard import ACT, PREAB, PREPB, PRESB, RD, REFAB, WR

__all__ = ["choose", "forget_all", "forget_bank"]


@inlined
def holds_bank(rows, size, bank):
    """Whether an active request keeps a bank from being closed.

    An auto-precharge may close a bank under its active request, which then activates it a second time
    and is counted twice; as in the reference, such a count only holds while any request is active.
    """
    return (size[ACTIVE] > 0 and rows[bank, ACTIVE_COUNT] > 0) or rows[bank, HELD_BY_OTHER] > 0


@inlined
def is_activated_write(entry, size, bank):
    """Whether a write has activated a bank and not yet been issued."""
    for slot in range(size[ACTIVE]):
        if entry[ACTIVE, BANK, slot] == bank and entry[ACTIVE, FINAL, slot] == WR:
            return True
    return False


@inlined
def must_wait(entry, rows, size, first, last, stride, has_room, other_has_room):
    """Whether an active request keeps maintenance from closing one of several banks.

    A read does so only while the sink has room for its data: it might wait long for room, and refresh
    cannot. `other_has_room`: the same of the sink of another controller of these banks.
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
def mark_hits(entry, size, rows, queue):
    """FRFCFS-RowHit: for every bank, the arrival of the oldest row hit in the queue."""
    for slot in range(size[queue]):
        rows[entry[queue, BANK, slot], HIT_SINCE] = FAR
    for slot in range(size[queue]):
        bank, arrived = entry[queue, BANK, slot], entry[queue, ARRIVED, slot]
        if rows[bank, OPEN_ROW] == entry[queue, ROW, slot]:
            rows[bank, HIT_SINCE] = min(rows[bank, HIT_SINCE], arrived)


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
        command = ACT
    else:
        command = PREPB
        if queue != ACTIVE and holds_bank(rows, size, bank):
            return command, FAR
    at = bank_ready_at(ready, command, entry[queue, RANK, slot], entry[queue, GROUP, slot], bank)
    if command == RD:
        at = max(at, credit)
    return command, at


@inlined
def forget_bank(entry, size, bound, bank):
    """A bank's row or its active request changed: the clocks noted for its requests hold no more."""
    for queue in (ACTIVE, READS, WRITES):
        for slot in range(size[queue]):
            if entry[queue, BANK, slot] == bank:
                entry[queue, NOT_BEFORE, slot] = 0
                bound[queue] = 0


@inlined
def forget_all(entry, size, bound):
    """No clock that was noted for a queued request holds any more."""
    for queue in (ACTIVE, READS, WRITES):
        bound[queue] = 0
        for slot in range(size[queue]):
            entry[queue, NOT_BEFORE, slot] = 0


@inlined
def choose_oldest(channel, credit, queue, clock):
    """FRFCFS: the oldest ready request of a queue: (slot or -1, its command).

    Distances only ever move commands back. So a request that is not ready is not looked at again before
    the clock found here, unless its bank changes, and the queue not before the first of these clocks.
    """
    entry, size, ready, rows, bound = channel.entry, channel.size, channel.ready, channel.rows, channel.bound
    best, best_command, best_arrived, first = -1, -1, FAR, FAR
    for slot in range(size[queue]):
        not_before = entry[queue, NOT_BEFORE, slot]
        if not_before > clock:
            first = min(first, not_before)
            continue
        command, at = prospect(entry, ready, rows, size, credit, queue, slot)
        entry[queue, NOT_BEFORE, slot] = at
        arrived = entry[queue, ARRIVED, slot]
        if at <= clock and arrived < best_arrived:
            first = clock if best >= 0 else first  # the one passed over is ready, too
            best, best_command, best_arrived = slot, command, arrived
        else:
            first = min(first, at)
    bound[queue] = first
    return best, best_command


@inlined
def choose_row_hit_first(channel, credit, queue, clock):
    """FRFCFS-RowHit: as FRFCFS, but no request closes a row on an older hit. Each hit bears on the others
    of its bank, so all requests are looked at every time.
    """
    entry, size, rows = channel.entry, channel.size, channel.rows
    mark_hits(entry, size, rows, queue)
    best, best_command, best_arrived, first = -1, -1, FAR, FAR
    for slot in range(size[queue]):
        command, at = prospect(entry, channel.ready, rows, size, credit, queue, slot)
        arrived = entry[queue, ARRIVED, slot]
        if command == PREPB and rows[entry[queue, BANK, slot], HIT_SINCE] <= arrived:
            continue
        if at > clock:
            first = min(first, at)
        elif arrived < best_arrived:
            best, best_command, best_arrived = slot, command, arrived
    channel.bound[queue] = first
    return best, best_command


@inlined
def choose_from(policy, channel, credit, queue, clock):
    """The request of a queue that comes next: (slot or -1, its command)."""
    if policy.row_hit_first:
        return choose_row_hit_first(channel, credit, queue, clock)
    if channel.bound[queue] > clock:
        return -1, -1
    return choose_oldest(channel, credit, queue, clock)


@inlined
def choose_priority(tables, entry, size, ready, rows, credit, other_credit, clock):
    """The head of the priority queue: (0 or -1, its command, when it becomes ready).

    `credit`: the clock from which the sink has room for a read; `other_credit`: see `must_wait`.
    """
    final = entry[PRIORITY, FINAL, 0]
    rank, bank = entry[PRIORITY, RANK, 0], entry[PRIORITY, BANK, 0]
    if final == PREPB:
        first, last, stride, command = bank, bank + 1, 1, PREPB
        at = bank_ready_at(ready, PREPB, rank, entry[PRIORITY, GROUP, 0], bank)
    elif final == REFAB:
        first, stride = first_bank(tables, rank), 1
        last = first + banks_per_rank(tables)
        command = final if all_closed(rows, first, last, stride) else PREAB
        at = rank_ready_at(ready, command, rank)
    else:
        first, stride = bank, tables.banks_per_group
        last = first + banks_per_rank(tables)
        command = final if all_closed(rows, first, last, stride) else PRESB
        at = same_banks_ready_at(tables, ready, command, rank, bank)
    has_room, other_has_room = credit <= clock, other_credit <= clock
    if command == final != PREPB:
        return (0, command, FAR) if at <= clock else (-1, command, at)
    if must_wait(entry, rows, size, first, last, stride, has_room, other_has_room):
        return -1, command, FAR
    return (0, command, FAR) if at <= clock else (-1, command, at)


@inlined
def set_write_mode(policy, size, value):
    """Enter or leave write mode by the watermarks."""
    if value[WRITE_MODE]:
        if size[WRITES] < policy.write_mode_below and size[READS] > 0:
            value[WRITE_MODE] = 0
    elif size[WRITES] > policy.write_mode_from or size[READS] == 0:
        value[WRITE_MODE] = 1


@inlined
def choose(tables, policy, channel, credit, clock):
    """Active list, else head of the priority queue, else reads or writes: (queue, slot, command, wake).

    `wake`: with slot -1, when one of them may become ready.
    """
    size, bound = channel.size, channel.bound
    slot, command = choose_from(policy, channel, credit, ACTIVE, clock)
    if slot >= 0:
        return ACTIVE, slot, command, FAR
    if size[PRIORITY] > 0:
        slot, command, wake = choose_priority(
            tables, channel.entry, size, channel.ready, channel.rows, credit, 0, clock
        )
        return PRIORITY, slot, command, min(wake, bound[ACTIVE])
    set_write_mode(policy, size, channel.value)
    queue = WRITES if channel.value[WRITE_MODE] else READS
    slot, command = choose_from(policy, channel, credit, queue, clock)
    return queue, slot, command, min(bound[ACTIVE], bound[queue])
