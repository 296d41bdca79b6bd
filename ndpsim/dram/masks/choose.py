"""Which command comes next."""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.banks import active_bank, same_banks
from ndpsim.dram.masks.row_points import also_held
from ndpsim.dram.masks.rows import (
    bits,
    both,
    either,
    filled,
    larger,
    least,
    merged,
    row_at,
    set_lane,
    smaller,
    up_to,
    where_none,
    with_lane,
)
from ndpsim.dram.masks.slots import fall_asleep, next_kind, slot_bank, wait_place
from ndpsim.dram.masks.state import (
    ACT,
    ACTIVE_ARRIVED,
    ACTIVE_BOUND,
    ACTIVE_SIZE,
    ASLEEP,
    ASLEEP_HEAD,
    ASLEEP_SIZE,
    AWAKE,
    BANK_READY,
    BANKS,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    BOUND,
    HELD_BANKS,
    HELD_BY_OTHER,
    KINDS,
    OF_BANK,
    OPEN_BANKS,
    PENDING_BANK,
    PENDING_KIND,
    PRE,
    PREAB,
    PRESB,
    RANK_READY,
    RD,
    READS,
    REFAB,
    REFSB,
    SIZE,
    SLOT_ROW,
    SLOTS,
    TAIL,
    WAITING,
    WAITS,
    WR,
    WRITES,
)
from ndpsim.dram.masks.timing import bank_ready_at
from ndpsim.dram.masks.words import lowest, natural, ranks_of, rotate
from ndpsim.dram.state import FAR, WRITE_MODE

__all__ = [
    "active_quiet_until",
    "banks_that_wait",
    "candidates",
    "choose_active",
    "choose_maintenance",
    "choose_queued",
    "due_lines",
    "look_again",
    "mode_changes",
    "oldest_active",
    "quiet_until",
    "quiet_until_of",
    "sleep",
    "spared",
]


@inlined
def room_at(credit):
    """`credit` as a row of kinds: the sink takes no RD before it."""
    return with_lane(filled(0), RD, credit)


@inlined
def rank_ready_at(state, rank, room):
    """The first clocks, by kind, as far as the channel, the rank and the room in the sink go."""
    return larger(row_at(state, RANK_READY + natural(rank) * KINDS), room)


@inlined
def active_from(state, rank, room):
    """The clocks, by kind, before which no active request of a rank can issue."""
    return larger(rank_ready_at(state, rank, room), row_at(state, ACTIVE_BOUND + natural(rank) * WAITS))


@inlined
def issue_from(state, queue, rank, room, awake):
    """The clocks, by kind, before which no active request of a rank, nor one of a queue, can issue."""
    place = wait_place(queue, ACT, rank)
    asleep = where_none(both(row_at(state, WAITING + place), awake))
    queued = both(row_at(state, BOUND + place), asleep)
    waiting = smaller(row_at(state, ACTIVE_BOUND + natural(rank) * WAITS), queued)
    return larger(rank_ready_at(state, rank, room), waiting)


@inlined
def active_quiet_until(shape, state, credit):
    """The clock before which no active request can issue."""
    room = room_at(credit)
    quiet = active_from(state, 0, room)
    for rank in range(1, ranks_of(shape)):
        quiet = smaller(quiet, active_from(state, rank, room))
    return least(quiet)


@inlined
def quiet_until(shape, state, queue, credit):
    """The clock before which neither an active request nor one of a queue can issue.

    credit: the clock before which the sink has no room for a read.
    """
    return quiet_until_of(shape, state, queue, credit, state[AWAKE + queue])


@inlined
def quiet_until_of(shape, state, queue, credit, awake):
    """As `quiet_until`, of the awake requests in a mask and of those that are not awake."""
    room, awake = room_at(credit), filled(awake)
    quiet = issue_from(state, queue, 0, room, awake)
    for rank in range(1, ranks_of(shape)):
        quiet = smaller(quiet, issue_from(state, queue, rank, room, awake))
    return least(quiet)


@inlined
def look_again(shape, state):
    """Wake all reads: what their banks are ready for is no longer known."""
    state[AWAKE + READS] = -1


@inlined
def oldest_active(state, line, kind, clock):
    """The first place of a line whose request's bank is ready, or its size if none is.

    Then the line is not asked again before the first clock at which one can be ready.
    """
    line, kind = natural(line), natural(kind)
    size, first = state[ACTIVE_SIZE + line], FAR
    for place in range(size):
        ready_at = bank_ready_at(state, kind, active_bank(state, line, place))
        if ready_at <= clock:
            return place
        first = min(first, ready_at)
    set_lane(state, ACTIVE_BOUND + line // 2 * WAITS, kind, first)
    return size


@inlined
def due_lines(shape, state, credit, clock):
    """The lines to ask: bit rank * WAITS + kind."""
    due = 0
    for number in range(ranks_of(shape)):
        rank = natural(number)
        ready, bound = RANK_READY + rank * KINDS, ACTIVE_BOUND + rank * WAITS
        reads = max(max(state[ready + RD], state[bound + RD]), credit) <= clock
        writes = max(state[ready + WR], state[bound + WR]) <= clock
        due |= (reads << RD | writes << WR) << rank * WAITS
    return due


@inlined
def choose_active(shape, state, credit, clock):
    """The oldest ready active request: (its line or -1, its place in the line)."""
    best, best_place, best_arrived = -1, 0, FAR
    due = due_lines(shape, state, credit, clock)
    while due != 0:
        bit = natural(lowest(due))
        due &= due - 1
        line, kind = bit // WAITS * 2 + bit % WAITS - RD, bit % WAITS
        place = oldest_active(state, line, kind, clock)
        if place < state[ACTIVE_SIZE + line]:
            arrived = state[ACTIVE_ARRIVED + active_bank(state, line, place)]
            if arrived < best_arrived:
                best, best_place, best_arrived = line, place, arrived
    return best, best_place


@outlined
def wake(state, queue, kind, rank, clock):
    """Wake the requests that wait for a kind and whose bank is ready; returns them."""
    place, woken = wait_place(queue, ACT, rank), 0
    line = natural(place + kind)
    head, size = state[ASLEEP_HEAD + line], state[ASLEEP_SIZE + line]
    first = FAR
    while size > 0:
        entry = state[ASLEEP + line * SLOTS + (head & SLOTS - 1)]
        if entry // BANKS > clock:
            first = entry // BANKS
            break
        woken |= state[OF_BANK + queue * BANKS + (entry & BANKS - 1)]
        head += 1
        size -= 1
    state[ASLEEP_HEAD + line] = head
    state[ASLEEP_SIZE + line] = size
    woken &= state[WAITING + line]
    state[AWAKE + queue] |= woken
    set_lane(state, BOUND + place, kind, first)
    return woken


@inlined
def candidates(shape, state, queue, credit, clock):
    """The requests that are awake and whose rank is ready."""
    room, found, due = room_at(credit), filled(0), 0
    for rank in range(ranks_of(shape)):
        place, ready = wait_place(queue, ACT, rank), rank_ready_at(state, rank, room)
        found = either(found, both(up_to(ready, clock), row_at(state, WAITING + place)))
        due |= bits(up_to(larger(ready, row_at(state, BOUND + place)), clock)) << rank * WAITS
    awake = merged(found) & state[AWAKE + queue]
    while due != 0:  # kinds of ranks for which a bank may have become ready: bit rank * WAITS + kind
        bit = natural(lowest(due))
        due &= due - 1
        awake |= wake(state, queue, bit % WAITS, bit // WAITS, clock)
    return awake


@outlined
def sleep(state, queue, kind, bank, ready_at):
    """A bank is not ready for a kind before `ready_at`; returns the requests that wait for it."""
    place = wait_place(queue, ACT, bank // BANKS_PER_RANK)
    same = state[WAITING + place + kind] & state[OF_BANK + queue * BANKS + bank]
    if fall_asleep(state, place, kind, bank, ready_at):
        state[AWAKE + queue] &= ~same
    return same


@outlined
def spared(shape, state, queue):
    """FRFCFS-RowHit: what would close a row on an older hit; it sleeps until a hit is served."""
    tail, younger = state[TAIL + queue], 0
    for rank in range(ranks_of(shape)):
        place = wait_place(queue, ACT, rank)
        waiting = state[WAITING + place + PRE]
        conflicts = rotate(waiting, tail)
        hits = rotate(state[WAITING + place + RD + queue], tail)
        while conflicts != 0:
            bit = conflicts & -conflicts
            bank = slot_bank(state, queue, (lowest(conflicts) + tail) & (SLOTS - 1))
            same = state[OF_BANK + queue * BANKS + bank]
            conflicts &= ~rotate(same, tail)
            if rotate(same, tail) & hits & (bit - 1) != 0:
                younger |= same & waiting
    state[AWAKE + queue] &= ~younger
    return younger


@inlined
def choose_queued(policy, shape, state, queue, credit, clock):
    """The oldest ready request of a queue: (its slot or -1, the kind of its next command)."""
    queue = natural(queue)
    tail, awake = state[TAIL + queue], candidates(shape, state, queue, credit, clock)
    if policy.row_hit_first:
        awake &= ~spared(shape, state, queue)
    awake = rotate(awake, tail)
    while awake != 0:
        slot = natural(lowest(awake) + tail & SLOTS - 1)
        bank = natural(slot_bank(state, queue, slot))
        kind = natural(next_kind(state, queue, bank, state[SLOT_ROW + queue * SLOTS + slot]))
        ready_at = bank_ready_at(state, kind, bank)
        if ready_at <= clock:
            return slot, kind
        awake &= ~rotate(sleep(state, queue, kind, bank, ready_at), tail)
    return -1, ACT


@inlined
def activated_writes(state, rank):
    """The banks of a rank with an active write."""
    banks, line = 0, rank * 2 + WRITES
    for place in range(state[ACTIVE_SIZE + line]):
        banks |= 1 << active_bank(state, line, place) % BANKS_PER_RANK
    return banks


@inlined
def banks_that_wait(shape, state, rank, has_room, other_has_room):
    """The banks that maintenance must not close yet.

    An active read holds its bank only while the sink has room for its data: it might wait long for room,
    and refresh cannot. `other_has_room`: the same of the sink of another controller of these banks.
    """
    others = state[HELD_BY_OTHER + rank]
    own = state[HELD_BANKS + rank] & ~others | also_held(shape.rows, shape, state, rank)
    if not has_room:
        own &= activated_writes(state, rank)
    return own | others if other_has_room else own


@outlined
def choose_maintenance(shape, state, credit, other_credit, clock):
    """The next command of the first refresh that waits: (its kind or -1, when it becomes ready).

    credit, other_credit: the clocks from which the sinks have room, see `banks_that_wait`.
    """
    final, first = state[PENDING_KIND], state[PENDING_BANK] & (BANKS - 1)
    rank = first // BANKS_PER_RANK
    banks = -1 if final == REFAB else same_banks(shape, first)
    to_close = state[OPEN_BANKS + rank] & banks != 0
    if to_close and banks_that_wait(shape, state, rank, credit <= clock, other_credit <= clock) & banks != 0:
        return -1, FAR
    kind = final
    if to_close:
        kind = PREAB if final == REFAB else PRESB
    at = state[RANK_READY + rank * KINDS + kind]
    if final == REFSB:
        for group in range(shape.bankgroups):
            at = max(at, state[BANK_READY + (first + group * BANKS_PER_GROUP) * KINDS + kind])
    return (kind, at) if at <= clock else (-1, at)


@inlined
def mode_changes(policy, state):
    """Whether the watermarks end or begin write mode."""
    reads, writes = state[SIZE + READS], state[SIZE + WRITES]
    if state[WRITE_MODE]:
        return writes < policy.write_mode_below and reads > 0
    return writes > policy.write_mode_from or reads == 0
