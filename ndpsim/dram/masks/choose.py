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
from ndpsim.dram.masks.segment_points import segment_at, segments_in_use, segments_with
from ndpsim.dram.masks.slots import add_not_ready, next_kind, slot_bank, wait_place
from ndpsim.dram.masks.state import (
    ACT,
    ACTIVE_ARRIVED,
    ACTIVE_BOUND,
    ACTIVE_SIZE,
    BANK_READY,
    BANKS,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    BOUND,
    HELD_BANKS,
    HELD_BY_OTHER,
    KINDS,
    MAYBE_READY,
    NOT_READY,
    NOT_READY_HEAD,
    NOT_READY_SIZE,
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
    SEGMENT,
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
from ndpsim.dram.masks.words import assume_nonnegative, lowest, ranks_of, rotate
from ndpsim.dram.state import FAR, WRITE_MODE

__all__ = [
    "active_quiet_until",
    "banks_that_wait",
    "choose_active",
    "choose_maintenance",
    "choose_queued",
    "due_active_queues",
    "mode_changes",
    "oldest_active",
    "oldest_candidates",
    "quiet_until",
    "quiet_until_of",
    "recheck_reads",
    "room_at",
    "set_not_ready",
    "waiting_for",
]


@inlined
def room_at(credit):
    """`credit` as a row of kinds: the sink takes no RD before it."""
    return with_lane(filled(0), RD, credit)


@inlined
def rank_ready_at(state, rank, room):
    """The first clocks, by kind, as far as the channel, the rank and the room in the sink go."""
    return larger(row_at(state, RANK_READY + assume_nonnegative(rank) * KINDS), room)


@inlined
def active_from(state, rank, room):
    """The clocks, by kind, before which no active request of a rank can issue."""
    return larger(
        rank_ready_at(state, rank, room), row_at(state, ACTIVE_BOUND + assume_nonnegative(rank) * WAITS)
    )


@inlined
def issue_from(shape, state, queue, rank, room, without):
    """The clocks, by kind, before which no active request of a rank, nor one of a queue, can issue."""
    place, maybe_ready = wait_place(queue, ACT, rank), filled(0)
    for number in range(segments_in_use(shape.queues, state, queue)):
        segment = segment_at(shape.queues, state, queue, number)
        of_segment = filled(state[MAYBE_READY + queue + segment] & ~without)
        maybe_ready = either(maybe_ready, both(row_at(state, WAITING + place + segment), of_segment))
    queued = both(row_at(state, BOUND + place), where_none(maybe_ready))
    waiting = smaller(row_at(state, ACTIVE_BOUND + assume_nonnegative(rank) * WAITS), queued)
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
    return quiet_until_of(shape, state, queue, credit, 0)


@inlined
def quiet_until_of(shape, state, queue, credit, without):
    """As `quiet_until`, of all requests of a queue of one segment but those of a mask."""
    queue, room = assume_nonnegative(queue), room_at(credit)
    quiet = issue_from(shape, state, queue, 0, room, without)
    for rank in range(1, ranks_of(shape)):
        quiet = smaller(quiet, issue_from(shape, state, queue, rank, room, without))
    return least(quiet)


@inlined
def recheck_reads(shape, state):
    """All reads may be ready: for which commands their banks are is to be found out again."""
    state[MAYBE_READY + READS] = -1


@inlined
def oldest_active(state, active_queue, kind, clock):
    """The first place of an active queue whose request's bank is ready, or its size if none is.

    Then the queue is not asked again before the first clock at which one can be ready.
    """
    active_queue, kind = assume_nonnegative(active_queue), assume_nonnegative(kind)
    size, first = state[ACTIVE_SIZE + active_queue], FAR
    for place in range(size):
        ready_at = bank_ready_at(state, kind, active_bank(state, active_queue, place))
        if ready_at <= clock:
            return place
        first = min(first, ready_at)
    set_lane(state, ACTIVE_BOUND + active_queue // 2 * WAITS, kind, first)
    return size


@inlined
def due_active_queues(shape, state, credit, clock):
    """The active queues to ask: bit rank * WAITS + kind."""
    due = 0
    for number in range(ranks_of(shape)):
        rank = assume_nonnegative(number)
        ready, bound = RANK_READY + rank * KINDS, ACTIVE_BOUND + rank * WAITS
        reads = max(max(state[ready + RD], state[bound + RD]), credit) <= clock
        writes = max(state[ready + WR], state[bound + WR]) <= clock
        due |= (reads << RD | writes << WR) << rank * WAITS
    return due


@inlined
def choose_active(shape, state, credit, clock):
    """The oldest ready active request: (its active queue or -1, its place there)."""
    best, best_place, best_arrived = -1, 0, FAR
    due = due_active_queues(shape, state, credit, clock)
    while due != 0:
        bit = assume_nonnegative(lowest(due))
        due &= due - 1
        active_queue, kind = bit // WAITS * 2 + bit % WAITS - RD, bit % WAITS
        place = oldest_active(state, active_queue, kind, clock)
        if place < state[ACTIVE_SIZE + active_queue]:
            arrived = state[ACTIVE_ARRIVED + active_bank(state, active_queue, place)]
            if arrived < best_arrived:
                best, best_place, best_arrived = active_queue, place, arrived
    return best, best_place


@inlined
def waiting_for(state, queue, segment, wait, bank):
    """The requests of a segment for a bank that wait for the kind of command at a place of waits."""
    return state[WAITING + wait + segment] & state[OF_BANK + queue * BANKS + bank + segment]


@inlined
def recheck(queues, state, queue, kind, rank, clock):
    """The requests that wait for a kind and whose bank has become ready are no longer not ready."""
    place = wait_place(queue, ACT, rank)
    wait = assume_nonnegative(place + kind)
    head, size, first = state[NOT_READY_HEAD + wait], state[NOT_READY_SIZE + wait], FAR
    while size > 0:
        entry = state[NOT_READY + wait * SLOTS + (head & SLOTS - 1)]
        if entry // BANKS > clock:
            first = entry // BANKS
            break
        segments = segments_with(queues, state, queue, entry & BANKS - 1)
        while segments != 0:
            segment = assume_nonnegative(lowest(segments) * SEGMENT)
            segments &= segments - 1
            state[MAYBE_READY + queue + segment] |= waiting_for(
                state, queue, segment, wait, entry & BANKS - 1
            )
        head += 1
        size -= 1
    state[NOT_READY_HEAD + wait] = head
    state[NOT_READY_SIZE + wait] = size
    set_lane(state, BOUND + place, kind, first)


@inlined
def oldest_candidates(policy, shape, state, queue, room, clock):
    """The requests of the oldest segment that may be ready and whose rank is; all segments are rechecked."""
    oldest, found, due = segment_at(shape.queues, state, queue, 0), filled(0), 0
    for rank in range(ranks_of(shape)):
        place, ready = wait_place(queue, ACT, rank), rank_ready_at(state, rank, room)
        found = either(found, both(up_to(ready, clock), row_at(state, WAITING + place + oldest)))
        due |= bits(up_to(larger(ready, row_at(state, BOUND + place)), clock)) << rank * WAITS
    while due != 0:  # kinds of ranks for which a bank may have become ready: bit rank * WAITS + kind
        bit = assume_nonnegative(lowest(due))
        due &= due - 1
        recheck(shape.queues, state, queue, bit % WAITS, bit // WAITS, clock)
    if policy.scheduler.row_hit_first:
        filter_row_hits(shape, state, queue)
    return merged(found) & state[MAYBE_READY + queue + oldest]


@inlined
def candidates(shape, state, queue, segment, room, clock):
    """As `oldest_candidates`, of another segment after it."""
    found = filled(0)
    for rank in range(ranks_of(shape)):
        waiting = row_at(state, WAITING + wait_place(queue, ACT, rank) + segment)
        found = either(found, both(up_to(rank_ready_at(state, rank, room), clock), waiting))
    return merged(found) & state[MAYBE_READY + queue + segment]


@inlined
def set_not_ready(queues, state, queue, segment, kind, bank, ready_at):
    """A bank is not ready for a kind before `ready_at`; returns a segment's requests that wait for that."""
    place = wait_place(queue, ACT, bank // BANKS_PER_RANK)
    waiting = waiting_for(state, queue, segment, place + kind, bank)
    if add_not_ready(state, place, kind, bank, ready_at):
        segments = segments_with(queues, state, queue, bank)
        while segments != 0:
            each = assume_nonnegative(lowest(segments) * SEGMENT)
            segments &= segments - 1
            state[MAYBE_READY + queue + each] &= ~waiting_for(state, queue, each, place + kind, bank)
    return waiting


@inlined
def older_hit(shape, state, queue, bank, number):
    """Whether a segment before the one of this number has a hit for a bank."""
    hits = 0
    for older in range(number):
        segment = segment_at(shape.queues, state, queue, older)
        hits |= waiting_for(
            state, queue, segment, wait_place(queue, RD + queue, bank // BANKS_PER_RANK), bank
        )
    return hits != 0


@outlined
def filter_row_hits(shape, state, queue):
    """FRFCFS-RowHit: what would close a row on an older hit is not ready until a hit is served."""
    for number in range(segments_in_use(shape.queues, state, queue)):
        segment = segment_at(shape.queues, state, queue, number)
        tail, younger = state[TAIL + queue + segment], 0
        for rank in range(assume_nonnegative(ranks_of(shape))):
            place = wait_place(queue, ACT, rank) + segment
            waiting = state[WAITING + place + PRE]
            conflicts, hits = rotate(waiting, tail), rotate(state[WAITING + place + RD + queue], tail)
            while conflicts != 0:
                bit = conflicts & -conflicts
                slot = segment + (lowest(conflicts) + tail & SLOTS - 1)
                bank = slot_bank(state, queue, slot)
                same = state[OF_BANK + queue * BANKS + bank + segment]
                conflicts &= ~rotate(same, tail)
                if rotate(same, tail) & hits & (bit - 1) != 0 or older_hit(shape, state, queue, bank, number):
                    younger |= same & waiting
        state[MAYBE_READY + queue + segment] &= ~younger


@inlined
def choose_queued(policy, shape, state, queue, credit, clock):
    """The oldest ready request of a queue: (its slot or -1, the kind of its next command)."""
    queue, room = assume_nonnegative(queue), room_at(credit)
    maybe_ready = oldest_candidates(policy, shape, state, queue, room, clock)
    for number in range(segments_in_use(shape.queues, state, queue)):
        segment = segment_at(shape.queues, state, queue, number)
        if number > 0:
            maybe_ready = candidates(shape, state, queue, segment, room, clock)
        tail = state[TAIL + queue + segment]
        maybe_ready = rotate(maybe_ready, tail)
        while maybe_ready != 0:
            slot = assume_nonnegative(segment + (lowest(maybe_ready) + tail & SLOTS - 1))
            bank = assume_nonnegative(slot_bank(state, queue, slot))
            kind = assume_nonnegative(next_kind(state, queue, bank, state[SLOT_ROW + queue * SLOTS + slot]))
            ready_at, rank = bank_ready_at(state, kind, bank), bank // BANKS_PER_RANK
            held = kind == PRE and also_held(shape.rows, shape, state, rank) >> bank % BANKS_PER_RANK & 1
            if ready_at <= clock and not held:
                return slot, kind
            if ready_at > clock:
                passed = set_not_ready(shape.queues, state, queue, segment, kind, bank, ready_at)
            else:
                passed = waiting_for(state, queue, segment, wait_place(queue, kind, rank), bank)
            maybe_ready &= ~rotate(passed, tail)
    return -1, ACT


@inlined
def activated_writes(state, rank):
    """The banks of a rank with an active write."""
    banks, active_queue = 0, rank * 2 + WRITES
    for place in range(state[ACTIVE_SIZE + active_queue]):
        banks |= 1 << active_bank(state, active_queue, place) % BANKS_PER_RANK
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
