"""Rows that open and close, and what that makes of the requests that wait for them."""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.rows import filled, row_at, set_lane, set_row, smaller, with_lane
from ndpsim.dram.masks.segment_points import segments_with
from ndpsim.dram.masks.slots import join_after_command, leave, requeue_read, wait_place
from ndpsim.dram.masks.state import (
    ACT,
    ACTIVE,
    ACTIVE_ARRIVED,
    ACTIVE_BOUND,
    ACTIVE_HEAD,
    ACTIVE_REQUEST,
    ACTIVE_SIZE,
    BANK_READY,
    BANKS,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    CLOSED_AT,
    HELD_BANKS,
    KINDS,
    OF_BANK,
    OPEN_BANKS,
    OPEN_ROW,
    PRE,
    RANK_READY,
    RD,
    RDA,
    READS,
    SAME_BANK,
    SEGMENT,
    SLOT_ROW,
    SLOTS,
    WAITING,
    WAITS,
)
from ndpsim.dram.masks.timing import bank_ready_at
from ndpsim.dram.masks.words import assume_nonnegative, lowest, ranks_of
from ndpsim.dram.state import FAR, OPEN_CLOCKS, READ_QUEUE, ROW_SHIFT

__all__ = [
    "activate_request",
    "active_bank",
    "auto_precharge",
    "close_bank",
    "close_banks",
    "leave_active_queue",
    "lower_active_bound",
    "open_bank",
    "release_bank",
    "requeue_reads",
    "same_banks",
]


@inlined
def bank_bit(bank):
    """The bank's bit in masks of its rank."""
    return 1 << bank % BANKS_PER_RANK


@inlined
def same_banks(shape, first):
    """The mask of a bank and its like in every group of its rank."""
    mask = 0
    for group in range(shape.bankgroups):
        mask |= 1 << group * BANKS_PER_GROUP
    return mask << first % BANKS_PER_RANK


@inlined
def hits_among(state, queue, segment, mask, row):
    """Of a set of requests of a segment for one bank, those for a row."""
    hits = 0
    while mask != 0:
        slot = lowest(mask) & (SLOTS - 1)
        bit = 1 << slot
        mask ^= bit
        if state[SLOT_ROW + queue * SLOTS + segment + slot] == row:
            hits |= bit
    return hits


@inlined
def open_bank(queues, state, bank, row):
    """A bank's row has been opened for a request that is now active."""
    bank = assume_nonnegative(bank)
    rank = bank // BANKS_PER_RANK
    state[OPEN_ROW + bank] = row
    state[OPEN_BANKS + rank] |= bank_bit(bank)
    state[HELD_BANKS + rank] |= bank_bit(bank)
    for queue in range(2):
        segments = segments_with(queues, state, queue, bank)
        while segments != 0:
            segment = assume_nonnegative(lowest(segments) * SEGMENT)
            segments &= segments - 1
            mask = state[OF_BANK + queue * BANKS + bank + segment]
            if mask != 0:
                leave(state, queue, segment, bank, mask)
                hits = hits_among(state, queue, segment, mask, row)
                if hits != 0:
                    join_after_command(state, queue, segment, RD + queue, bank, hits)


@inlined
def release_bank(queues, state, bank):
    """A bank's active request is gone: requests for other rows may close it."""
    bank = assume_nonnegative(bank)
    rank = bank // BANKS_PER_RANK
    state[HELD_BANKS + rank] &= ~bank_bit(bank)
    for queue in range(2):
        segments = segments_with(queues, state, queue, bank)
        while segments != 0:
            segment = assume_nonnegative(lowest(segments) * SEGMENT)
            segments &= segments - 1
            mask = state[OF_BANK + queue * BANKS + bank + segment]
            if mask != 0:
                conflicts = mask & ~state[WAITING + wait_place(queue, RD + queue, rank) + segment]
                if conflicts != 0:
                    join_after_command(state, queue, segment, PRE, bank, conflicts)


@inlined
def close_bank(queues, state, bank):
    """A bank's row has been closed."""
    bank = assume_nonnegative(bank)
    rank = bank // BANKS_PER_RANK
    state[OPEN_ROW + bank] = -1
    state[OPEN_BANKS + rank] &= ~bank_bit(bank)
    for queue in range(2):
        segments = segments_with(queues, state, queue, bank)
        while segments != 0:
            segment = assume_nonnegative(lowest(segments) * SEGMENT)
            segments &= segments - 1
            mask = state[OF_BANK + queue * BANKS + bank + segment]
            if mask != 0:
                leave(state, queue, segment, bank, mask)
                join_after_command(state, queue, segment, ACT, bank, mask)


@outlined
def close_banks(queues, state, rank, mask, clock):
    """Banks of a rank have been closed at `clock`; those that were not open remain as they are."""
    mask &= state[OPEN_BANKS + rank]
    while mask != 0:
        state[OPEN_CLOCKS] += clock
        close_bank(queues, state, rank * BANKS_PER_RANK + lowest(mask))
        mask &= mask - 1


@outlined
def auto_precharge(queues, state, kind, bank, clock):
    """RDA or WRA at `clock` closes its bank as soon as a PRE could have followed RD or WR."""
    bank = assume_nonnegative(bank)
    after_column = clock + state[SAME_BANK + assume_nonnegative(kind - RDA + RD) * KINDS + PRE]
    closed_at = max(state[BANK_READY + bank * KINDS + PRE], after_column)
    state[OPEN_CLOCKS] += closed_at
    state[CLOSED_AT + bank] = closed_at
    close_bank(queues, state, bank)


@inlined
def active_bank(state, active_queue, place):
    """The bank of the request at a place of an active queue."""
    active_queue = assume_nonnegative(active_queue)
    at = active_queue * SLOTS + (state[ACTIVE_HEAD + active_queue] + place & SLOTS - 1)
    return state[ACTIVE + at] & (BANKS - 1)


@inlined
def set_active_bank(state, active_queue, place, bank):
    """Put a bank's active request at a place of an active queue."""
    active_queue = assume_nonnegative(active_queue)
    state[ACTIVE + active_queue * SLOTS + (state[ACTIVE_HEAD + active_queue] + place & SLOTS - 1)] = bank


@inlined
def lower_active_bound(state, kind, bank):
    """An active request of a bank waits for a kind, too."""
    bounds = ACTIVE_BOUND + bank // BANKS_PER_RANK * WAITS
    bound = with_lane(filled(FAR), kind, bank_ready_at(state, kind, bank))
    set_row(state, bounds, smaller(row_at(state, bounds), bound))


@inlined
def activate_request(queues, state, queue, bank, row, request, arrived):
    """After its ACT a request stands in the rank's active queue, in order of arrival, and holds its bank."""
    bank = assume_nonnegative(bank)
    rank = bank // BANKS_PER_RANK
    active_queue = rank * 2 + queue
    place = state[ACTIVE_SIZE + active_queue]
    while place > 0 and state[ACTIVE_ARRIVED + active_bank(state, active_queue, place - 1)] > arrived:
        set_active_bank(state, active_queue, place, active_bank(state, active_queue, place - 1))
        place -= 1
    set_active_bank(state, active_queue, place, bank)
    state[ACTIVE_SIZE + active_queue] += 1
    state[ACTIVE_ARRIVED + bank] = arrived
    state[ACTIVE_REQUEST + bank] = request
    lower_active_bound(state, RD + queue, bank)
    open_bank(queues, state, bank, row)


@inlined
def leave_active_queue(state, active_queue, place):
    """Take the request at a place out of its active queue."""
    active_queue = assume_nonnegative(active_queue)
    for older in range(place, 0, -1):
        set_active_bank(state, active_queue, older, active_bank(state, active_queue, older - 1))
    state[ACTIVE_HEAD + active_queue] = state[ACTIVE_HEAD + active_queue] + 1 & SLOTS - 1
    state[ACTIVE_SIZE + active_queue] -= 1
    rank, kind, first = active_queue // 2, RD + active_queue % 2, FAR
    rank_ready_at = state[RANK_READY + rank * KINDS + kind]
    for other in range(state[ACTIVE_SIZE + active_queue]):
        first = min(first, bank_ready_at(state, kind, active_bank(state, active_queue, other)))
        if first <= rank_ready_at:
            break
    set_lane(state, ACTIVE_BOUND + rank * WAITS, kind, first)


@outlined
def requeue_reads(shape, state, source, clock):
    """Return to the read queue the active requests whose row was closed while the sink had no room."""
    for rank in range(ranks_of(shape)):
        active_queue, place = rank * 2 + READS, 0
        while place < state[ACTIVE_SIZE + active_queue]:
            bank = active_bank(state, active_queue, place)
            if state[OPEN_ROW + bank] >= 0:
                place += 1
                continue
            leave_active_queue(state, active_queue, place)
            state[HELD_BANKS + rank] &= ~bank_bit(bank)
            arrived = state[ACTIVE_ARRIVED + bank]
            state[READ_QUEUE] -= clock - arrived  # its wait until now is counted, see `leave_queue`
            row = source.place[state[ACTIVE_REQUEST + bank]] >> ROW_SHIFT
            requeue_read(shape.queues, state, bank, row, arrived)
