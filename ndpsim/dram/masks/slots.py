"""Requests into, within and out of the slots of a queue."""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.rows import both, either, filled, row_at, set_row, smaller, with_lane
from ndpsim.dram.masks.segment_points import (
    note_added,
    note_removed,
    segment_for,
    segment_of,
    segment_of_age,
)
from ndpsim.dram.masks.state import (
    ACT,
    ACTIVE_REQUEST,
    ADDRESSES,
    BANKS,
    BANKS_PER_RANK,
    BOUND,
    COUNTED,
    HELD_BANKS,
    KINDS,
    MAYBE_READY,
    NOT_READY,
    NOT_READY_HEAD,
    NOT_READY_SIZE,
    OF_BANK,
    OPEN_ROW,
    PENDING,
    PENDING_BANK,
    PENDING_KIND,
    PENDING_SIZE,
    PRE,
    RANK_READY,
    RANKS,
    RD,
    READS,
    SIZE,
    SLOT_ARRIVED,
    SLOT_BANK,
    SLOT_REQUEST,
    SLOT_ROW,
    SLOTS,
    TAIL,
    USED,
    WAITING,
    WAITS,
    WRITES,
    WRITES_AT,
)
from ndpsim.dram.masks.timing import bank_ready_at
from ndpsim.dram.masks.words import assume_nonnegative, lowest, ones, rotate
from ndpsim.dram.state import BANK_SHIFT, FAR, GROUP_SHIFT, RANK_SHIFT

__all__ = [
    "add_bits",
    "add_not_ready",
    "bank_of",
    "compact",
    "enqueue",
    "filter_place",
    "is_write_of",
    "join_after_command",
    "leave",
    "move_slot",
    "next_kind",
    "oldest_slot",
    "push_maintenance",
    "requeue_read",
    "slot_bank",
    "take_out",
    "wait_place",
    "waits_of",
]


@inlined
def bank_of(place):
    """The bank of a request's place, numbered as in `masks.state`."""
    rank, group, bank = place >> RANK_SHIFT & 15, place >> GROUP_SHIFT & 7, place >> BANK_SHIFT & 7
    return rank << 6 | group << 3 | bank


@inlined
def wait_place(queue, kind, rank):
    """The place of what is indexed as waits, see `masks.state`."""
    return assume_nonnegative((queue * RANKS + rank) * WAITS + kind)


@inlined
def slot_bank(state, queue, slot):
    """The bank of a slot's request."""
    return state[assume_nonnegative(SLOT_BANK + queue * SLOTS + slot)] & (BANKS - 1)


@inlined
def next_kind(state, queue, bank, row):
    """The kind that a request for a row of a bank needs next."""
    open_row = state[OPEN_ROW + bank]
    of_open = RD + queue if open_row == row else PRE
    return ACT if open_row < 0 else of_open


@inlined
def add_bits(state, row, lane, mask):
    """Add to a mask of a row."""
    set_row(state, row, either(row_at(state, row), with_lane(filled(0), lane, mask)))


@inlined
def lower_bound(state, place, kind, clock):
    """Of the requests that are not ready one may be ready at `clock`."""
    row = BOUND + place
    set_row(state, row, smaller(row_at(state, row), with_lane(filled(FAR), kind, clock)))


@inlined
def leave(state, queue, segment, bank, mask):
    """Requests for a bank no longer wait for a command."""
    row = WAITING + wait_place(queue, ACT, bank // BANKS_PER_RANK) + segment
    set_row(state, row, both(row_at(state, row), filled(~mask)))


@inlined
def add_not_ready(state, place, kind, bank, ready_at):
    """Note when a bank will be ready for the requests that wait for a kind; False if there is no room."""
    wait = assume_nonnegative(place + kind)
    head, size = state[NOT_READY_HEAD + wait], state[NOT_READY_SIZE + wait]
    if size == SLOTS:
        return False
    ring, entry = NOT_READY + wait * SLOTS, ready_at * BANKS + bank
    while size > 0 and state[ring + (head + size - 1 & SLOTS - 1)] > entry:
        state[ring + (head + size & SLOTS - 1)] = state[ring + (head + size - 1 & SLOTS - 1)]
        size -= 1
    state[ring + (head + size & SLOTS - 1)] = entry
    state[NOT_READY_SIZE + wait] += 1
    lower_bound(state, place, kind, ready_at)
    return True


@inlined
def join(state, queue, segment, kind, bank, mask, clock):
    """Requests for a bank now wait for a kind; returns when the first can issue, at the earliest.

    They may be ready if the bank is at `clock`. So may hits: of what keeps them from being read, most
    is between banks.
    """
    bank, kind = assume_nonnegative(bank), assume_nonnegative(kind)
    rank = bank // BANKS_PER_RANK
    place, ready_at = wait_place(queue, ACT, rank), bank_ready_at(state, kind, bank)
    add_bits(state, WAITING + place + segment, kind, mask)
    maybe_ready = kind >= RD or ready_at <= clock or not add_not_ready(state, place, kind, bank, ready_at)
    at = assume_nonnegative(MAYBE_READY + queue + segment)
    state[at] = state[at] & ~mask | (mask if maybe_ready else 0)
    return max(state[RANK_READY + rank * KINDS + kind], ready_at)


@inlined
def join_after_command(state, queue, segment, kind, bank, mask):
    """As `join`, of a bank that has just had a command: it is not ready for another."""
    join(state, queue, segment, kind, bank, mask, -1)


@inlined
def classify(state, queue, segment, bit, bank, row, clock):
    """A new request begins to wait; returns when it can issue, at the earliest.

    It waits for nothing, yet, while its bank is held for another row.
    """
    kind = next_kind(state, queue, bank, row)
    if kind == PRE and state[HELD_BANKS + bank // BANKS_PER_RANK] >> bank % BANKS_PER_RANK & 1:
        return FAR
    return join(state, queue, segment, kind, bank, bit, clock)


@inlined
def oldest_slot(state, queue, segment):
    """The slot of the oldest request of a segment that has one."""
    tail = state[TAIL + queue + segment]
    return segment + (lowest(rotate(state[USED + queue + segment], tail)) + tail & SLOTS - 1)


@inlined
def move_bit(state, place, source, target):
    """What the masks of a place say of one slot they now say of another."""
    at, to = place + (source & -SLOTS), place + (target & -SLOTS)
    mask = state[at]
    state[at] = mask & ~(1 << (source & SLOTS - 1))
    state[to] |= (mask >> (source & SLOTS - 1) & 1) << (target & SLOTS - 1)


@inlined
def move_slot(state, queue, source, target):
    """Move a request to a free slot; returns its bank."""
    a, b = queue * SLOTS + source, queue * SLOTS + target
    bank = slot_bank(state, queue, source)
    for field in (SLOT_BANK, SLOT_ROW, SLOT_ARRIVED, SLOT_REQUEST):
        state[field + b] = state[field + a]
    move_bit(state, USED + queue, source, target)
    move_bit(state, COUNTED + queue, source, target)
    move_bit(state, MAYBE_READY + queue, source, target)
    move_bit(state, OF_BANK + queue * BANKS + bank, source, target)
    for kind in range(WAITS):
        place = wait_place(queue, kind, bank // BANKS_PER_RANK)
        move_bit(state, WAITING + place, source, target)
    return bank


@outlined
def compact(state, queue, segment):
    """Close the holes, so that the slots behind the youngest request of a segment are free again."""
    tail = state[TAIL + queue + segment]
    target = tail
    for back in range(1, SLOTS + 1):
        slot = (tail - back) & (SLOTS - 1)
        if state[USED + queue + segment] >> slot & 1:
            target = (target - 1) & (SLOTS - 1)
            if slot != target:
                move_slot(state, queue, segment + slot, segment + target)


@inlined
def fill_slot(state, queue, segment, slot, bank, row, arrived, request):
    """Put a request into a free slot of a segment; returns when it can issue, at the earliest."""
    at, bit = assume_nonnegative(queue * SLOTS + segment + slot), 1 << slot
    state[SLOT_BANK + at] = bank
    state[SLOT_ROW + at] = row
    state[SLOT_ARRIVED + at] = arrived
    state[SLOT_REQUEST + at] = request
    state[USED + queue + segment] |= bit
    state[OF_BANK + queue * BANKS + bank + segment] |= bit
    state[SIZE + queue] += 1
    return classify(state, queue, segment, bit, bank, row, arrived)


@inlined
def filter_place(address):
    """Where queued writes to `address`, among others, are counted, after WRITES_AT."""
    return (address ^ (address >> 6)) & (ADDRESSES - 1)


@inlined
def enqueue(queues, state, source, queue, bank, row, request, arrived):
    """Put the youngest request into its queue; returns when it can issue, at the earliest."""
    segment = segment_for(queues, state, queue)
    slot = state[TAIL + queue + segment] & (SLOTS - 1)
    if queue == WRITES:
        state[WRITES_AT + filter_place(source.address[request])] += 1
    state[TAIL + queue + segment] = slot + 1
    at = fill_slot(state, queue, segment, slot, bank, row, arrived, request)
    note_added(queues, state, queue, segment, bank)
    return at


@outlined
def requeue_read(queues, state, bank, row, arrived):
    """Return an active read to the place in the read queue that its age gives it."""
    segment = segment_of_age(queues, state, READS, arrived)
    compact(state, READS, segment)
    size = ones(state[USED + READS + segment])
    free = (state[TAIL + READS + segment] - size - 1) & (SLOTS - 1)
    for _ in range(size):
        after = (free + 1) & (SLOTS - 1)
        if state[SLOT_ARRIVED + READS * SLOTS + segment + after] > arrived:
            break
        move_slot(state, READS, segment + after, segment + free)
        free = after
    fill_slot(state, READS, segment, free, bank, row, arrived, state[ACTIVE_REQUEST + bank])
    state[COUNTED + READS + segment] |= 1 << free
    note_added(queues, state, READS, segment, bank)


@inlined
def take_out(queues, state, source, queue, slot, bank):
    """Take a request out of its queue."""
    queue, slot, bank = assume_nonnegative(queue), assume_nonnegative(slot), assume_nonnegative(bank)
    segment = assume_nonnegative(segment_of(queues, slot))
    keep = ~(1 << (slot & SLOTS - 1))
    state[USED + queue + segment] &= keep
    state[COUNTED + queue + segment] &= keep
    state[OF_BANK + queue * BANKS + bank + segment] &= keep
    leave(state, queue, segment, bank, ~keep)
    state[SIZE + queue] -= 1
    if queue == WRITES:
        request = state[SLOT_REQUEST + WRITES * SLOTS + slot]
        state[WRITES_AT + filter_place(source.address[request])] -= 1
    note_removed(queues, state, queue, segment, bank)


@inlined
def is_write_of(state, segment, source, address):
    """Whether a write to `address` is in a segment of the write queue."""
    mask = state[USED + WRITES + segment]
    while mask != 0:
        slot = segment + (lowest(mask) & (SLOTS - 1))
        if source.address[assume_nonnegative(state[SLOT_REQUEST + WRITES * SLOTS + slot])] == address:
            return True
        mask &= mask - 1
    return False


@inlined
def waits_of(state, queue, segment, until):
    """How long the requests of a segment have waited, summed."""
    total, mask = 0, state[USED + queue + segment]
    while mask != 0:
        total += until - state[SLOT_ARRIVED + queue * SLOTS + segment + (lowest(mask) & (SLOTS - 1))]
        mask &= mask - 1
    return total


@inlined
def push_maintenance(state, kind, bank):
    """A maintenance command joins those that wait."""
    place = state[PENDING_SIZE] & (PENDING - 1)
    state[PENDING_KIND + place] = kind
    state[PENDING_BANK + place] = bank
    state[PENDING_SIZE] += 1
