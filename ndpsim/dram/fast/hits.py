"""Steps of a channel in which nothing but row hits of queued reads can issue.

Then only one command of one queue can be chosen. The clock before which no other command is ready is computed
once: reads only raise times, so no other command is ready sooner.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dram.fast.choose import active_from, free_slots_at, queued_from
from ndpsim.dram.fast.fields import RD, READS, SLOTS, WRITES
from ndpsim.dram.fast.issue import is_full, issue_queued
from ndpsim.dram.fast.points import hits_from, instead_of_queued, is_busy
from ndpsim.dram.fast.slots import bank_of, enqueue, slot_bank, wait_row
from ndpsim.dram.fast.timing import bank_ready_at
from ndpsim.dram.fast.vectors import assume_nonnegative, least, lowest, rotate, smaller, with_element
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.state import COUNTED_UNTIL, FAR, NEXT_REFRESH, PLACE, ROW_SHIFT, SERVED, TAKEN, WRITE_MODE

_FEWEST = 4  # minimum number of clocks for which this loop pays


@inlined
def only_hits(skips, shape, state, source, clock):
    """See `controller`: for some clocks nothing can issue but RD of queued reads; requests are not timed."""
    if source.cycle.shape[0] > 0 or is_busy(shape.step, state):
        return False
    if state.pending_size | state.queued[WRITES] | state.value[WRITE_MODE] != 0:
        return False
    hits = 0
    for number in range(shape.ranks):
        hits |= state.waiting[0, wait_row(READS, number), RD]
    return hits != 0 and others_from(shape, state) > clock + _FEWEST


@inlined
def others_from(shape, state):
    """The clock before which nothing can issue but RD of queued reads, while there are no queued writes."""
    slots_at, first = free_slots_at(0), FAR
    for rank in range(shape.ranks):
        queued = with_element(queued_from(shape, state, READS, rank, slots_at, 0), RD, FAR)
        first = min(first, least(smaller(queued, active_from(shape, state, rank, slots_at))))
    return first


@inlined
def rank_ready_at(shape, state):
    """The first clock at which a rank with a hit is ready for RD."""
    at = FAR
    for number in range(shape.ranks):
        rank = assume_nonnegative(number)
        if state.waiting[0, wait_row(READS, rank), RD] != 0:
            at = min(at, state.rank_ready[rank, RD])
    return at


@inlined
def oldest_hit(shape, state, clock):
    """The slot of the oldest ready hit; or -1 and the clock at which one becomes ready."""
    tail, mask, first = state.tail[0, READS], 0, FAR
    for number in range(shape.ranks):
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
def issue_hit(channel, slot, clock):
    """Issue RD of a queued read, or the command that must come before it."""
    bank = slot_bank(channel.state, READS, slot)
    if not instead_of_queued(channel.shape.step, channel, READS, slot, RD, bank, clock):
        issue_queued(channel, READS, slot, RD, clock)


@inlined
def run_hits(skips, channel, until_served, until_taken, clock, accepts):
    """Do steps as long as nothing but row hits can issue; returns the clock, and `accepts` there."""
    policy, shape, state = channel.policy, channel.shape, channel.state
    source, sink = channel.source, channel.sink
    until = min(state.value[NEXT_REFRESH], others_from(shape, state))
    ready_at = max(rank_ready_at(shape, state), credit_clock(sink))
    # The last read is not served here: the mode changes without reads, and some controllers use this at once.
    while clock < until and state.value[SERVED] < until_served and state.queued[READS] > 1:
        if is_full(channel.commands) or is_busy(shape.step, state):
            break
        if accepts:
            request = assume_nonnegative(state.value[PLACE])
            place = source.place[request]
            bank, row = bank_of(shape, place), place >> ROW_SHIFT
            if place & 1 or state.value[TAKEN] + 1 >= until_taken:
                break
            at = enqueue(shape.queues, state, source, READS, bank, row, request, clock - 1)
            state.value[TAKEN] += 1
            state.value[PLACE] = 0 if request + 1 == source.place.shape[0] else request + 1
            if state.open_row[bank] == row:
                ready_at = min(ready_at, max(at, credit_clock(sink)))
            elif at < until:
                until, accepts = at, False
                if at <= clock:
                    break
        state.value[COUNTED_UNTIL] = clock
        if clock >= ready_at and hits_from(shape.step, clock) == clock:
            slot, ready_at = oldest_hit(shape, state, clock)
            if slot >= 0:
                issue_hit(channel, slot, clock)
                if policy.scheduler.row_hit_first:  # a row that the read kept open may be closed now
                    until = min(until, others_from(shape, state))
                ready_at = max(rank_ready_at(shape, state), credit_clock(sink))
        clock += 1
        accepts = state.value[TAKEN] < source.admitted[0] and (
            state.queued[READS] < policy.read_slots
            or source.place[assume_nonnegative(state.value[PLACE])] & 1 == 1
        )
        if not accepts:
            clock = min(until, hits_from(shape.step, max(clock, ready_at)))
    return clock, accepts
