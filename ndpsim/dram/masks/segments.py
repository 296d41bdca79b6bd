"""Queues of several segments, each of 64 slots: the older a segment, the older its requests.

A segment whose requests have all left is free. When none is, two neighbours that fit into one are joined:
there are always two, because there may never be more requests than half of all slots.
"""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.slots import compact, is_write_of, move_slot, oldest_slot, wait_place, waits_of
from ndpsim.dram.masks.state import (
    BANKS,
    MAYBE_READY,
    OF_BANK,
    PRE,
    SEGMENT,
    SEGMENT_ORDER,
    SEGMENTS,
    SEGMENTS_OF,
    SLOT_ARRIVED,
    SLOTS,
    TAIL,
    USED,
    WAITING,
    WRITES,
    YOUNGER_SEGMENTS,
)
from ndpsim.dram.masks.words import assume_nonnegative, lowest, ones, rotate

__all__: list[str] = []


@inlined
def segment_of(queues, slot):
    """See `segment_points`."""
    return slot & -SLOTS


@inlined
def segments_in_use(queues, state, queue):
    """See `segment_points`."""
    return 1 + state[YOUNGER_SEGMENTS + queue]


@inlined
def segment_at(queues, state, queue, number):
    """See `segment_points`."""
    return assume_nonnegative(state[SEGMENT_ORDER + queue * SEGMENTS + number])


@inlined
def segments_with(queues, state, queue, bank):
    """See `segment_points`."""
    return state[SEGMENTS_OF + queue * BANKS + bank]


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
def segment_for(queues, state, queue):
    """See `segment_points`."""
    segment = segment_at(queues, state, queue, state[YOUNGER_SEGMENTS + queue])
    used = state[USED + queue + segment]
    if used >> (state[TAIL + queue + segment] & SLOTS - 1) & 1:
        if 2 * ones(used) > SLOTS:
            return assume_nonnegative(take_segment(state, queue, queues.segments))
        compact(state, queue, segment)
    return segment


@inlined
def segment_of_age(queues, state, queue, arrived):
    """See `segment_points`."""
    number = number_of_age(state, queue, segments_in_use(queues, state, queue), arrived)
    if state[USED + queue + segment_at(queues, state, queue, number)] == -1:
        split_segment(state, queue, queues.segments, arrived)
        number = number_of_age(state, queue, segments_in_use(queues, state, queue), arrived)
    return segment_at(queues, state, queue, number)


@inlined
def note_added(queues, state, queue, segment, bank):
    """See `segment_points`."""
    state[SEGMENTS_OF + queue * BANKS + bank] |= 1 << segment // SEGMENT


@inlined
def note_removed(queues, state, queue, segment, bank):
    """See `segment_points`."""
    note_segment(state, queue, segment, bank)
    if state[USED + queue + segment] == 0 and state[YOUNGER_SEGMENTS + queue] > 0:
        number = 0
        while state[SEGMENT_ORDER + queue * SEGMENTS + number] != segment:
            number += 1
        free_segment(state, queue, number)


@inlined
def is_among_writes(queues, state, source, address):
    """See `segment_points`."""
    for number in range(segments_in_use(queues, state, WRITES)):
        if is_write_of(state, segment_at(queues, state, WRITES, number), source, address):
            return True
    return False


@inlined
def sum_waits(queues, state, queue, until):
    """See `segment_points`."""
    total = 0
    for number in range(segments_in_use(queues, state, queue)):
        total += waits_of(state, queue, segment_at(queues, state, queue, number), until)
    return total


@inlined
def recheck_conflicts(queues, state, queue, rank):
    """See `segment_points`."""
    for number in range(segments_in_use(queues, state, queue)):
        segment = segment_at(queues, state, queue, number)
        state[MAYBE_READY + queue + segment] |= state[WAITING + wait_place(queue, PRE, rank) + segment]
