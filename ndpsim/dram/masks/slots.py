"""Requests into, within and out of the slots of a queue."""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.rows import both, either, filled, row_at, set_row, smaller, with_lane
from ndpsim.dram.masks.state import (
    ACT,
    ACTIVE_REQUEST,
    ADDRESSES,
    ASLEEP,
    ASLEEP_HEAD,
    ASLEEP_SIZE,
    AWAKE,
    BANKS,
    BANKS_PER_RANK,
    BOUND,
    COUNTED,
    HELD_BANKS,
    KINDS,
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
    SEGMENT,
    SEGMENT_ORDER,
    SEGMENTS,
    SEGMENTS_OF,
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
    YOUNGER_SEGMENTS,
)
from ndpsim.dram.masks.timing import bank_ready_at
from ndpsim.dram.masks.words import lowest, natural, ones, rotate, segments_of
from ndpsim.dram.state import BANK_SHIFT, FAR, GROUP_SHIFT, RANK_SHIFT

__all__ = [
    "add_bits",
    "bank_of",
    "enqueue",
    "fall_asleep",
    "filter_place",
    "join",
    "leave",
    "next_kind",
    "push_maintenance",
    "put_back",
    "segment_at",
    "segment_of",
    "segments_in_use",
    "segments_with",
    "slot_bank",
    "take_out",
    "wait_place",
]


@inlined
def bank_of(place):
    """The bank of a request's place, numbered as in `masks.state`."""
    rank, group, bank = place >> RANK_SHIFT & 15, place >> GROUP_SHIFT & 7, place >> BANK_SHIFT & 7
    return rank << 6 | group << 3 | bank


@inlined
def wait_place(queue, kind, rank):
    """The place of what is indexed as waits, see `masks.state`."""
    return natural((queue * RANKS + rank) * WAITS + kind)


@inlined
def segment_of(shape, slot):
    """The segment of a slot: how many words its masks stand behind those of the first."""
    return 0 if segments_of(shape) == 1 else slot & -SLOTS


@inlined
def segments_in_use(shape, state, queue):
    """How many segments of a queue have requests; one has none when the queue is empty."""
    return 1 if segments_of(shape) == 1 else 1 + state[YOUNGER_SEGMENTS + queue]


@inlined
def segment_at(shape, state, queue, number):
    """A segment of a queue, the oldest first."""
    return 0 if segments_of(shape) == 1 else natural(state[SEGMENT_ORDER + queue * SEGMENTS + number])


@inlined
def segments_with(shape, state, queue, bank):
    """The segments with requests for a bank: bit n for the one that is n * SEGMENT words behind the first."""
    return 1 if segments_of(shape) == 1 else state[SEGMENTS_OF + queue * BANKS + bank]


@inlined
def slot_bank(state, queue, slot):
    """The bank of a slot's request."""
    return state[natural(SLOT_BANK + queue * SLOTS + slot)] & (BANKS - 1)


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
    """The requests that are not awake may be ready at `clock`."""
    row = BOUND + place
    set_row(state, row, smaller(row_at(state, row), with_lane(filled(FAR), kind, clock)))


@inlined
def leave(state, queue, segment, bank, mask):
    """Requests for a bank no longer wait for a command."""
    row = WAITING + wait_place(queue, ACT, bank // BANKS_PER_RANK) + segment
    set_row(state, row, both(row_at(state, row), filled(~mask)))


@inlined
def fall_asleep(state, place, kind, bank, ready_at):
    """Note when a bank will be ready for the requests that wait for a kind; False if there is no room."""
    line = natural(place + kind)
    head, size = state[ASLEEP_HEAD + line], state[ASLEEP_SIZE + line]
    if size == SLOTS:
        return False
    ring, entry = ASLEEP + line * SLOTS, ready_at * BANKS + bank
    while size > 0 and state[ring + (head + size - 1 & SLOTS - 1)] > entry:
        state[ring + (head + size & SLOTS - 1)] = state[ring + (head + size - 1 & SLOTS - 1)]
        size -= 1
    state[ring + (head + size & SLOTS - 1)] = entry
    state[ASLEEP_SIZE + line] += 1
    lower_bound(state, place, kind, ready_at)
    return True


@outlined
def join(state, queue, segment, kind, bank, mask, clock):
    """Requests for a bank now wait for a kind; returns when the first can issue, at the earliest.

    They are awake if the bank is ready at `clock`. So are hits: of what keeps them from being read, most
    is between banks.
    """
    bank, kind = natural(bank), natural(kind)
    rank = bank // BANKS_PER_RANK
    place, ready_at = wait_place(queue, ACT, rank), bank_ready_at(state, kind, bank)
    add_bits(state, WAITING + place + segment, kind, mask)
    awake = kind >= RD or ready_at <= clock or not fall_asleep(state, place, kind, bank, ready_at)
    at = natural(AWAKE + queue + segment)
    state[at] = state[at] & ~mask | (mask if awake else 0)
    return max(state[RANK_READY + rank * KINDS + kind], ready_at)


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
    move_bit(state, AWAKE + queue, source, target)
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
    at, bit = natural(queue * SLOTS + segment + slot), 1 << slot
    state[SLOT_BANK + at] = bank
    state[SLOT_ROW + at] = row
    state[SLOT_ARRIVED + at] = arrived
    state[SLOT_REQUEST + at] = request
    state[USED + queue + segment] |= bit
    state[OF_BANK + queue * BANKS + bank + segment] |= bit
    state[SIZE + queue] += 1
    return classify(state, queue, segment, bit, bank, row, arrived)


# ---- Segments of a long queue


@inlined
def note_segment(state, queue, segment, bank):
    """Note whether a segment has requests for a bank."""
    place, bit = SEGMENTS_OF + queue * BANKS + bank, 1 << segment // SEGMENT
    found = state[OF_BANK + queue * BANKS + bank + segment] != 0
    state[place] = state[place] & ~bit | (bit if found else 0)


@inlined
def move_to_segment(state, queue, slot, segment):
    """Move a request behind the youngest of another segment."""
    target = state[TAIL + queue + segment] & (SLOTS - 1)
    state[TAIL + queue + segment] = target + 1
    bank = move_slot(state, queue, slot, segment + target)
    note_segment(state, queue, slot & -SLOTS, bank)
    note_segment(state, queue, segment, bank)


@inlined
def move_youngest(state, queue, source, after, target):
    """Move what a segment has, but so many of its oldest, behind the youngest of another segment."""
    tail = state[TAIL + queue + source]
    left = rotate(state[USED + queue + source], tail)
    for _ in range(after):
        left &= left - 1
    while left != 0:
        move_to_segment(state, queue, source + (lowest(left) + tail & SLOTS - 1), target)
        left &= left - 1


@inlined
def free_segment(state, queue, number):
    """A segment, by its number in the order of age, has no requests any more."""
    order, last = SEGMENT_ORDER + queue * SEGMENTS, state[YOUNGER_SEGMENTS + queue]
    segment = state[order + number]
    for place in range(number, last):
        state[order + place] = state[order + place + 1]
    state[order + last] = segment
    state[YOUNGER_SEGMENTS + queue] = last - 1


@outlined
def take_segment(state, queue, segments):
    """A free segment becomes the youngest; if none is free, two neighbours of any age become one."""
    order = SEGMENT_ORDER + queue * SEGMENTS
    if state[YOUNGER_SEGMENTS + queue] + 1 == segments:
        for number in range(1, segments):
            older, younger = state[order + number - 1], state[order + number]
            if ones(state[USED + queue + older]) + ones(state[USED + queue + younger]) <= SLOTS:
                compact(state, queue, older)
                move_youngest(state, queue, younger, 0, older)
                free_segment(state, queue, number)
                break
    state[YOUNGER_SEGMENTS + queue] += 1
    return state[order + state[YOUNGER_SEGMENTS + queue]]


@inlined
def segment_for(shape, state, queue):
    """A segment whose next slot is free, the youngest."""
    segment = segment_at(shape, state, queue, segments_in_use(shape, state, queue) - 1)
    if state[USED + queue + segment] >> (state[TAIL + queue + segment] & SLOTS - 1) & 1:
        if segments_of(shape) > 1 and 2 * ones(state[USED + queue + segment]) > SLOTS:
            return natural(take_segment(state, queue, segments_of(shape)))
        compact(state, queue, segment)
    return segment


@inlined
def number_of_age(state, queue, segments, arrived):
    """Of so many segments, the number of the last whose oldest request did not arrive after another."""
    for number in range(segments - 1, 0, -1):
        segment = state[SEGMENT_ORDER + queue * SEGMENTS + number]
        if state[oldest_slot(state, queue, segment) + SLOT_ARRIVED + queue * SLOTS] <= arrived:
            return number
    return 0


@outlined
def split_segment(state, queue, segments, arrived):
    """The younger half of the full segment in which a request of some age has its place becomes a segment."""
    taken = take_segment(state, queue, segments)
    order, place = SEGMENT_ORDER + queue * SEGMENTS, state[YOUNGER_SEGMENTS + queue]
    number = number_of_age(state, queue, place, arrived)
    while place > number + 1:
        state[order + place] = state[order + place - 1]
        place -= 1
    state[order + place] = taken
    move_youngest(state, queue, state[order + number], SLOTS // 2, taken)


@inlined
def segment_of_age(shape, state, queue, arrived):
    """The segment in which a request of some age has its place, with a free slot."""
    if segments_of(shape) == 1:
        return 0
    number = number_of_age(state, queue, segments_in_use(shape, state, queue), arrived)
    if state[USED + queue + segment_at(shape, state, queue, number)] == -1:
        split_segment(state, queue, segments_of(shape), arrived)
        number = number_of_age(state, queue, segments_in_use(shape, state, queue), arrived)
    return segment_at(shape, state, queue, number)


@inlined
def filter_place(address):
    """Where queued writes to `address`, among others, are counted, after WRITES_AT."""
    return (address ^ (address >> 6)) & (ADDRESSES - 1)


@inlined
def enqueue(shape, state, source, queue, bank, row, request, arrived):
    """Put the youngest request into its queue; returns when it can issue, at the earliest."""
    segment = segment_for(shape, state, queue)
    slot = state[TAIL + queue + segment] & (SLOTS - 1)
    if queue == WRITES:
        state[WRITES_AT + filter_place(source.address[request])] += 1
    state[TAIL + queue + segment] = slot + 1
    at = fill_slot(state, queue, segment, slot, bank, row, arrived, request)
    if segments_of(shape) > 1:
        note_segment(state, queue, segment, bank)
    return at


@outlined
def put_back(shape, state, bank, row, arrived):
    """Return an active read to the place in the read queue that its age gives it."""
    segment = segment_of_age(shape, state, READS, arrived)
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
    if segments_of(shape) > 1:
        note_segment(state, READS, segment, bank)


@inlined
def take_out(shape, state, source, queue, slot, bank):
    """Take a request out of its queue."""
    queue, slot, bank = natural(queue), natural(slot), natural(bank)
    segment = natural(segment_of(shape, slot))
    keep = ~(1 << (slot & SLOTS - 1))
    state[USED + queue + segment] &= keep
    state[COUNTED + queue + segment] &= keep
    state[OF_BANK + queue * BANKS + bank + segment] &= keep
    leave(state, queue, segment, bank, ~keep)
    state[SIZE + queue] -= 1
    if queue == WRITES:
        request = state[SLOT_REQUEST + WRITES * SLOTS + slot]
        state[WRITES_AT + filter_place(source.address[request])] -= 1
    if segments_of(shape) > 1:
        note_segment(state, queue, segment, bank)
        if state[USED + queue + segment] == 0 and state[YOUNGER_SEGMENTS + queue] > 0:
            number = 0
            while state[SEGMENT_ORDER + queue * SEGMENTS + number] != segment:
                number += 1
            free_segment(state, queue, number)


@inlined
def push_maintenance(state, kind, bank):
    """A maintenance command joins those that wait."""
    place = state[PENDING_SIZE] & (PENDING - 1)
    state[PENDING_KIND + place] = kind
    state[PENDING_BANK + place] = bank
    state[PENDING_SIZE] += 1
