"""Queues of one chunk, see `points`."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined
from ndpsim.dram.fast.banks import requests_held
from ndpsim.dram.fast.fields import PRE, SLOTS
from ndpsim.dram.fast.slots import compact, is_write_of, wait_row, waits_of


class OneChunk(NamedTuple):
    """Queues of up to 64 requests."""


ONE_CHUNK = OneChunk()


@inlined
def chunk_of(queues, slot):
    return 0


@inlined
def chunks_in_use(queues, state, queue):
    return 1


@inlined
def chunk_at(queues, state, queue, number):
    return 0


@inlined
def chunks_with(queues, state, queue, bank):
    return 1


@inlined
def chunk_for(queues, state, queue):
    if state.used[0, queue] >> (state.tail[0, queue] & SLOTS - 1) & 1:
        compact(state, queue, 0)
    return 0


@inlined
def chunk_by_age(queues, state, queue, arrived):
    return 0


@inlined
def record_added(queues, state, queue, chunk, bank):
    """See `points`."""


@inlined
def record_removed(queues, state, queue, chunk, bank):
    """See `points`."""


@inlined
def is_among_writes(queues, state, source, address):
    return is_write_of(state, 0, source, address)


@inlined
def sum_waits(queues, state, queue, until):
    return waits_of(state, queue, 0, until)


@inlined
def recheck_conflicts(queues, state, queue, rank):
    state.maybe_ready[0, queue] |= state.waiting[0, wait_row(queue, rank), PRE]


@inlined
def held_at_first(queues, state, queue, stalled_ranks):
    return requests_held(state, queue, 0, stalled_ranks)


@inlined
def held_in(queues, state, queue, chunk, held, stalled_ranks):
    """See `points`. A call here, among vectors, would slow the steps that do not need it."""
    return held
