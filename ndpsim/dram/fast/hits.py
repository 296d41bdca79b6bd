"""Steps of a channel in which nothing but row hits of reads wait.

Then there is one command of command to choose, and no other needs to be asked for.
"""

from __future__ import annotations

from ndpsim._jit import inlined
from ndpsim.dram.fast.choose import recheck_reads
from ndpsim.dram.fast.fields import ACT, PRE, RD, READS, SLOTS, WRITES
from ndpsim.dram.fast.issue import is_full, issue_queued
from ndpsim.dram.fast.slots import bank_of, enqueue, slot_bank, wait_row
from ndpsim.dram.fast.timing import bank_ready_at
from ndpsim.dram.fast.words import assume_nonnegative, lowest, ranks_of, rotate
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.state import COUNTED_UNTIL, FAR, NEXT_REFRESH, PLACE, ROW_SHIFT, SERVED, TAKEN, WRITE_MODE

__all__ = ["only_hits", "run_hits"]


@inlined
def only_hits(skips, shape, state, source):
    """See `controller`: nothing can issue but RD of queued reads, and requests are not timed."""
    if source.cycle.shape[0] > 0:
        return False
    if state.pending_size | state.queued[WRITES] | state.value[WRITE_MODE] != 0:
        return False
    for number in range(ranks_of(shape)):
        rank = assume_nonnegative(number)
        row = wait_row(READS, rank)
        active = state.active_size[rank * 2 + READS] | state.active_size[rank * 2 + WRITES]
        if state.waiting[0, row, ACT] | state.waiting[0, row, PRE] | active != 0:
            return False
    return True


@inlined
def rank_ready_at(shape, state):
    """The first clock at which a rank with a hit is ready for RD."""
    at = FAR
    for number in range(ranks_of(shape)):
        rank = assume_nonnegative(number)
        if state.waiting[0, wait_row(READS, rank), RD] != 0:
            at = min(at, state.rank_ready[rank, RD])
    return at


@inlined
def oldest_hit(shape, state, clock):
    """The slot of the oldest hit that is ready, -1 if none is; and else when one becomes ready."""
    tail, mask, first = state.tail[0, READS], 0, FAR
    for number in range(ranks_of(shape)):
        rank = assume_nonnegative(number)
        at = state.rank_ready[rank, RD]
        hits = state.waiting[0, wait_row(READS, rank), RD]
        if at <= clock:
            mask |= hits
        elif hits != 0:
            first = min(first, at)
    mask = rotate(mask, tail)
    while mask != 0:
        slot = (lowest(mask) + tail) & (SLOTS - 1)
        bank = slot_bank(state, READS, slot)
        at = bank_ready_at(state, RD, bank)
        if at <= clock:
            return slot, at
        first = min(first, at)
        mask &= ~rotate(state.of_bank[0, READS, bank], tail)
    return -1, first


@inlined
def run_hits(
    skips, policy, shape, state, latencies, source, sink, commands, until_served, until_taken, clock, accepts
):
    """See `controller`."""
    until = state.value[NEXT_REFRESH]
    ready_at = max(rank_ready_at(shape, state), credit_clock(sink))
    while clock < until and state.value[SERVED] < until_served and state.queued[READS] > 0:
        if is_full(commands):
            break
        if accepts:
            request = assume_nonnegative(state.value[PLACE])
            place = source.place[request]
            bank, row = bank_of(place), place >> ROW_SHIFT
            if place & 1 or state.open_row[bank] != row or state.value[TAKEN] + 1 >= until_taken:
                break
            at = enqueue(shape.queues, state, source, READS, bank, row, request, clock - 1)
            ready_at = min(ready_at, max(at, credit_clock(sink)))
            state.value[TAKEN] += 1
            state.value[PLACE] = 0 if request + 1 == source.place.shape[0] else request + 1
        state.value[COUNTED_UNTIL] = clock
        if clock >= ready_at:
            slot, ready_at = oldest_hit(shape, state, clock)
            if slot >= 0:
                issue_queued(policy, shape, state, latencies, source, sink, commands, READS, slot, RD, clock)
                ready_at = max(rank_ready_at(shape, state), credit_clock(sink))
        clock += 1
        accepts = state.value[TAKEN] < source.admitted[0] and (
            state.queued[READS] < policy.read_slots
            or source.place[assume_nonnegative(state.value[PLACE])] & 1 == 1
        )
        if not accepts:
            clock = min(until, max(clock, ready_at))
    recheck_reads(shape, state)
    return clock, accepts
