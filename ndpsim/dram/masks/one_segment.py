"""Queues of one segment."""

from __future__ import annotations

from ndpsim._jit import inlined
from ndpsim.dram.masks.slots import compact, is_write_of, wait_place, waits_of
from ndpsim.dram.masks.state import MAYBE_READY, PRE, SLOTS, TAIL, USED, WAITING

__all__: list[str] = []


@inlined
def segment_of(queues, slot):
    """See `segment_points`."""
    return 0


@inlined
def segments_in_use(queues, state, queue):
    """See `segment_points`."""
    return 1


@inlined
def segment_at(queues, state, queue, number):
    """See `segment_points`."""
    return 0


@inlined
def segments_with(queues, state, queue, bank):
    """See `segment_points`."""
    return 1


@inlined
def segment_for(queues, state, queue):
    """See `segment_points`."""
    if state[USED + queue] >> (state[TAIL + queue] & SLOTS - 1) & 1:
        compact(state, queue, 0)
    return 0


@inlined
def segment_of_age(queues, state, queue, arrived):
    """See `segment_points`."""
    return 0


@inlined
def note_added(queues, state, queue, segment, bank):
    """See `segment_points`."""


@inlined
def note_removed(queues, state, queue, segment, bank):
    """See `segment_points`."""


@inlined
def is_among_writes(queues, state, source, address):
    """See `segment_points`."""
    return is_write_of(state, 0, source, address)


@inlined
def sum_waits(queues, state, queue, until):
    """See `segment_points`."""
    return waits_of(state, queue, 0, until)


@inlined
def recheck_conflicts(queues, state, queue, rank):
    """See `segment_points`."""
    state[MAYBE_READY + queue] |= state[WAITING + wait_place(queue, PRE, rank)]
