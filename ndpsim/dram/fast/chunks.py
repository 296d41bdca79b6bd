"""Queues of several chunks, each of 64 slots: the older a chunk, the older its requests.

A chunk whose requests have all left is free. When none is, two neighbours that fit into one are joined:
there are always two, because there may never be more requests than half of all slots.
"""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.fast.banks import requests_held
from ndpsim.dram.fast.fields import PRE, SLOTS, WRITES
from ndpsim.dram.fast.slots import compact, is_write_of, move_slot, oldest_slot, wait_row, waits_of
from ndpsim.dram.fast.vectors import assume_nonnegative, lowest, ones, rotate


class Chunks(NamedTuple):
    """Longer queues."""

    chunks: int  # of each queue


@inlined
def chunk_of(queues, slot):
    return slot // SLOTS


@inlined
def chunks_in_use(queues, state, queue):
    return 1 + state.younger_chunks[queue]


@inlined
def chunk_at(queues, state, queue, number):
    return assume_nonnegative(state.chunk_order[queue, number])


@inlined
def chunks_with(queues, state, queue, bank):
    return state.chunks_of_bank[queue, bank]


@inlined
def update_bank_chunks(state, queue, chunk, bank):
    """A chunk may have its first request for a bank, or none any more."""
    bit, found = 1 << chunk, state.of_bank[chunk, queue, bank] != 0
    state.chunks_of_bank[queue, bank] = state.chunks_of_bank[queue, bank] & ~bit | (bit if found else 0)


@inlined
def move_to_chunk(state, queue, slot, chunk):
    """Move a request behind the youngest of another chunk."""
    target = state.tail[chunk, queue] & (SLOTS - 1)
    state.tail[chunk, queue] = target + 1
    bank = move_slot(state, queue, slot, chunk * SLOTS + target)
    update_bank_chunks(state, queue, slot // SLOTS, bank)
    update_bank_chunks(state, queue, chunk, bank)


@inlined
def move_youngest(state, queue, source, after, target):
    """Move all requests of a chunk except its oldest ones behind the youngest of another chunk."""
    tail = state.tail[source, queue]
    left = rotate(state.used[source, queue], tail)
    for _ in range(after):
        left &= left - 1
    while left != 0:
        move_to_chunk(state, queue, source * SLOTS + (lowest(left) + tail & SLOTS - 1), target)
        left &= left - 1


@inlined
def free_chunk(state, queue, number):
    """Free a chunk without requests, by its number in the order of age."""
    order, last = state.chunk_order[queue], state.younger_chunks[queue]
    chunk = order[number]
    for place in range(number, last):
        order[place] = order[place + 1]
    order[last] = chunk
    state.younger_chunks[queue] = last - 1


@outlined
def take_chunk(state, queue, chunks):
    """A free chunk becomes the youngest; if none is free, two neighbours of any age become one."""
    order = state.chunk_order[queue]
    if state.younger_chunks[queue] + 1 == chunks:
        for number in range(1, chunks):
            older, younger = order[number - 1], order[number]
            if ones(state.used[older, queue]) + ones(state.used[younger, queue]) <= SLOTS:
                compact(state, queue, older)
                move_youngest(state, queue, younger, 0, older)
                free_chunk(state, queue, number)
                break
    state.younger_chunks[queue] += 1
    return order[state.younger_chunks[queue]]


@inlined
def number_by_age(state, queue, chunks, arrived):
    """The number of the youngest chunk whose oldest request arrived no later than `arrived`."""
    for number in range(chunks - 1, 0, -1):
        chunk = state.chunk_order[queue, number]
        if state.slot_arrived[queue, oldest_slot(state, queue, chunk)] <= arrived:
            return number
    return 0


@outlined
def split_chunk(state, queue, chunks, arrived):
    """The younger half of the full chunk in which a request of some age has its place becomes a chunk."""
    taken = take_chunk(state, queue, chunks)
    order, place = state.chunk_order[queue], state.younger_chunks[queue]
    number = number_by_age(state, queue, place, arrived)
    while place > number + 1:
        order[place] = order[place - 1]
        place -= 1
    order[place] = taken
    move_youngest(state, queue, order[number], SLOTS // 2, taken)


@inlined
def chunk_for(queues, state, queue):
    chunk = chunk_at(queues, state, queue, state.younger_chunks[queue])
    used = state.used[chunk, queue]
    if used >> (state.tail[chunk, queue] & SLOTS - 1) & 1:
        if 2 * ones(used) > SLOTS:
            return assume_nonnegative(take_chunk(state, queue, queues.chunks))
        compact(state, queue, chunk)
    return chunk


@inlined
def chunk_by_age(queues, state, queue, arrived):
    number = number_by_age(state, queue, chunks_in_use(queues, state, queue), arrived)
    if state.used[chunk_at(queues, state, queue, number), queue] == -1:
        split_chunk(state, queue, queues.chunks, arrived)
        number = number_by_age(state, queue, chunks_in_use(queues, state, queue), arrived)
    return chunk_at(queues, state, queue, number)


@inlined
def record_added(queues, state, queue, chunk, bank):
    state.chunks_of_bank[queue, bank] |= 1 << chunk


@inlined
def record_removed(queues, state, queue, chunk, bank):
    update_bank_chunks(state, queue, chunk, bank)
    if state.used[chunk, queue] == 0 and state.younger_chunks[queue] > 0:
        number = 0
        while state.chunk_order[queue, number] != chunk:
            number += 1
        free_chunk(state, queue, number)


@inlined
def is_among_writes(queues, state, source, address):
    for number in range(chunks_in_use(queues, state, WRITES)):
        if is_write_of(state, chunk_at(queues, state, WRITES, number), source, address):
            return True
    return False


@inlined
def sum_waits(queues, state, queue, until):
    total = 0
    for number in range(chunks_in_use(queues, state, queue)):
        total += waits_of(state, queue, chunk_at(queues, state, queue, number), until)
    return total


@inlined
def recheck_conflicts(queues, state, queue, rank):
    for number in range(chunks_in_use(queues, state, queue)):
        chunk = chunk_at(queues, state, queue, number)
        state.maybe_ready[chunk, queue] |= state.waiting[chunk, wait_row(queue, rank), PRE]


@inlined
def held_at_first(queues, state, queue, stalled_ranks):
    if chunks_in_use(queues, state, queue) > 1:
        return 0
    return requests_held(state, queue, chunk_at(queues, state, queue, 0), stalled_ranks)


@inlined
def held_in(queues, state, queue, chunk, held, stalled_ranks):
    if state.pending_size == 0 or chunks_in_use(queues, state, queue) == 1:
        return held
    return requests_held(state, queue, chunk, stalled_ranks)
