"""The waiting time of a controller that shares ranks, and the direction of its next data."""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dram.fast.banks import active_bank, is_barred, requests_held
from ndpsim.dram.fast.fields import BANKS_PER_RANK, RD, SLOTS
from ndpsim.dram.fast.slots import slot_bank, wait_row
from ndpsim.dram.fast.words import lowest, rotate
from ndpsim.dram.state import FAR, WRITE_MODE


@inlined
def oldest_arrival(shape, state):
    """The arrival of the oldest active or queued request that is served now, FAR without any."""
    oldest = FAR
    for active_queue in range(2 * shape.ranks):
        if state.active_size[active_queue] > 0:
            oldest = min(oldest, state.active_arrived[active_bank(state, active_queue, 0)])
    queue = state.value[WRITE_MODE] & 1
    tail, queued = state.tail[0, queue], state.used[0, queue]
    if queued != 0:
        slot = lowest(rotate(queued, tail)) + tail & SLOTS - 1
        oldest = min(oldest, state.slot_arrived[queue, slot])
    return oldest


@inlined
def next_column(shape, state):
    """The oldest active or queued request whose row is open: (its rank, -1 if there is none; 1 if it reads,
    2 if it writes).
    """
    oldest, rank, direction = FAR, -1, 0
    for active_queue in range(2 * shape.ranks):
        if state.active_size[active_queue] > 0:
            arrived = state.active_arrived[active_bank(state, active_queue, 0)]
            if arrived < oldest:
                oldest, rank, direction = arrived, active_queue // 2, 1 + active_queue % 2
    if is_barred(state):
        return rank, direction
    queue, hits = state.value[WRITE_MODE] & 1, 0
    for number in range(shape.ranks):
        hits |= state.waiting[0, wait_row(queue, number), RD + queue]
    if state.pending_size > 0:
        hits &= ~requests_held(state, queue, 0, 0)
    if hits != 0:
        tail = state.tail[0, queue]
        slot = lowest(rotate(hits, tail)) + tail & SLOTS - 1
        if state.slot_arrived[queue, slot] < oldest:
            rank, direction = slot_bank(state, queue, slot) // BANKS_PER_RANK, 1 + queue
    return rank, direction
