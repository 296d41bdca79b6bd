"""Opens and closes rows, and updates the requests that wait for them."""

from __future__ import annotations

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.fast.fields import (
    ACT,
    BANKS,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    PRE,
    QUEUES,
    RANKS,
    RD,
    RDA,
    READS,
    REFSB,
    SLOTS,
)
from ndpsim.dram.fast.points import chunks_with
from ndpsim.dram.fast.slots import join_after_command, leave, push_maintenance, requeue_read, wait_row
from ndpsim.dram.fast.timing import bank_ready_at
from ndpsim.dram.fast.vectors import (
    assume_nonnegative,
    filled,
    lowest,
    ones,
    set_element,
    set_vector,
    smaller,
    vector_at,
    with_element,
)
from ndpsim.dram.state import FAR, OPEN_CLOCKS, READ_QUEUE, ROW_SHIFT


@inlined
def bank_bit(bank):
    """The bank's bit in masks of its rank."""
    return 1 << bank % BANKS_PER_RANK


@inlined
def same_banks(shape, first):
    """The mask of a bank and of the banks of its rank that are refreshed with it."""
    if shape.pair > 0:
        return (1 | 1 << shape.pair) << first % BANKS_PER_RANK % shape.pair
    mask = 0
    for group in range(shape.groups_at_once):
        mask |= 1 << group * BANKS_PER_GROUP
    return mask << first % BANKS_PER_RANK


@inlined
def bars_queues(state, place):
    """Whether waiting maintenance holds back all queued requests, and not only those for its banks."""
    bank = assume_nonnegative(state.pending_bank[place] & BANKS - 1)
    return (
        state.pending_class[place] != REFSB
        or state.awaits_refresh[bank // BANKS_PER_RANK] & bank_bit(bank) == 0
    )


@inlined
def is_barred(state):
    """Whether any waiting maintenance holds back all queued requests."""
    barred = False
    for place in range(state.pending_size):
        barred |= bars_queues(state, place)
    return barred


@inlined
def push_refresh(own_bank, shape, state, command, first):
    """Add a refresh, or RFM, to the waiting maintenance; that of banks may hold back only their requests.

    own_bank: see `dram.state.Policy`; first: see `pending_bank`.
    """
    push_maintenance(state, command, first)
    if own_bank and command == REFSB:
        bank = assume_nonnegative(first & BANKS - 1)
        state.awaits_refresh[bank // BANKS_PER_RANK] |= same_banks(shape, bank)


@outlined
def drop_pending(shape, state, dropped):
    """Waiting maintenance leaves its queue: requests for the banks of a refresh need not wait any more."""
    state.pending_size -= 1
    rank = assume_nonnegative(state.pending_bank[dropped] & BANKS - 1) // BANKS_PER_RANK
    for place in range(dropped, state.pending_size):
        state.pending_class[place] = state.pending_class[place + 1]
        state.pending_bank[place] = state.pending_bank[place + 1]
    if state.awaits_refresh[rank] != 0:
        state.awaits_refresh[rank] = 0
        for place in range(state.pending_size):
            first = assume_nonnegative(state.pending_bank[place] & BANKS - 1)
            if state.pending_class[place] == REFSB and first // BANKS_PER_RANK == rank:
                state.awaits_refresh[rank] |= same_banks(shape, first)


@inlined
def requests_for_banks(shape, state, rank, banks):
    """The number of queued requests for some banks of a rank, which are bits of `awaits_refresh`."""
    found = 0
    while banks != 0:
        bank = assume_nonnegative(rank * BANKS_PER_RANK + lowest(banks))
        banks &= banks - 1
        for queue in range(QUEUES):
            chunks = chunks_with(shape.queues, state, queue, bank)
            while chunks != 0:
                found += ones(state.of_bank[assume_nonnegative(lowest(chunks)), queue, bank])
                chunks &= chunks - 1
    return found


@outlined
def requests_held(state, queue, chunk, stalled_ranks):
    """The requests of a chunk that wait for the refresh of their bank, and activations on `stalled_ranks`."""
    held = 0
    for rank in range(RANKS):
        if stalled_ranks >> rank & 1:
            held |= state.waiting[chunk, wait_row(queue, rank), ACT]
        banks = state.awaits_refresh[rank]
        while banks != 0:
            held |= state.of_bank[chunk, queue, assume_nonnegative(rank * BANKS_PER_RANK + lowest(banks))]
            banks &= banks - 1
    return held


@inlined
def hits_among(state, queue, chunk, mask, row):
    """The requests for a row, among requests of a chunk for one bank."""
    hits = 0
    while mask != 0:
        slot = lowest(mask) & (SLOTS - 1)
        bit = 1 << slot
        mask ^= bit
        if state.slot_row[queue, chunk * SLOTS + slot] == row:
            hits |= bit
    return hits


@inlined
def open_bank(queues, state, bank, row):
    """A bank's row has been opened for a request that is now active."""
    bank = assume_nonnegative(bank)
    rank = bank // BANKS_PER_RANK
    state.open_row[bank] = row
    state.open_banks[rank] |= bank_bit(bank)
    state.pinned_banks[rank] |= bank_bit(bank)
    for queue in range(2):
        chunks = chunks_with(queues, state, queue, bank)
        while chunks != 0:
            chunk = assume_nonnegative(lowest(chunks))
            chunks &= chunks - 1
            mask = state.of_bank[chunk, queue, bank]
            if mask != 0:
                leave(state, queue, chunk, bank, mask)
                hits = hits_among(state, queue, chunk, mask, row)
                if hits != 0:
                    join_after_command(state, queue, chunk, RD + queue, bank, hits)


@inlined
def release_bank(queues, state, bank):
    """A bank's active request is gone: requests for other rows may close it."""
    bank = assume_nonnegative(bank)
    rank = bank // BANKS_PER_RANK
    state.pinned_banks[rank] &= ~bank_bit(bank)
    for queue in range(2):
        chunks = chunks_with(queues, state, queue, bank)
        while chunks != 0:
            chunk = assume_nonnegative(lowest(chunks))
            chunks &= chunks - 1
            mask = state.of_bank[chunk, queue, bank]
            if mask != 0:
                conflicts = mask & ~state.waiting[chunk, wait_row(queue, rank), RD + queue]
                if conflicts != 0:
                    join_after_command(state, queue, chunk, PRE, bank, conflicts)


@inlined
def close_bank(queues, state, bank):
    """A bank's row has been closed."""
    bank = assume_nonnegative(bank)
    rank = bank // BANKS_PER_RANK
    state.open_row[bank] = -1
    state.open_banks[rank] &= ~bank_bit(bank)
    for queue in range(2):
        chunks = chunks_with(queues, state, queue, bank)
        while chunks != 0:
            chunk = assume_nonnegative(lowest(chunks))
            chunks &= chunks - 1
            mask = state.of_bank[chunk, queue, bank]
            if mask != 0:
                leave(state, queue, chunk, bank, mask)
                join_after_command(state, queue, chunk, ACT, bank, mask)


@outlined
def close_banks(queues, state, rank, mask, clock):
    """Banks of a rank have been closed at `clock`; those that were not open remain as they are."""
    mask &= state.open_banks[rank]
    while mask != 0:
        state.value[OPEN_CLOCKS] += clock
        close_bank(queues, state, rank * BANKS_PER_RANK + lowest(mask))
        mask &= mask - 1


@outlined
def auto_precharge(queues, state, command, bank, clock):
    """RDA or WRA at `clock` closes its bank as soon as a PRE could have followed RD or WR."""
    bank = assume_nonnegative(bank)
    after_column = clock + state.same_bank[assume_nonnegative(command - RDA + RD), PRE]
    closed_at = max(state.bank_ready[bank, PRE], after_column)
    state.value[OPEN_CLOCKS] += closed_at
    state.closed_at[bank] = closed_at
    close_bank(queues, state, bank)


@inlined
def active_bank(state, active_queue, place):
    """The bank of the request at a place of an active queue."""
    active_queue = assume_nonnegative(active_queue)
    at = assume_nonnegative(state.active_head[active_queue] + place & SLOTS - 1)
    return state.active[active_queue, at] & (BANKS - 1)


@inlined
def set_active_bank(state, active_queue, place, bank):
    """Put a bank's active request at a place of an active queue."""
    active_queue = assume_nonnegative(active_queue)
    at = assume_nonnegative(state.active_head[active_queue] + place & SLOTS - 1)
    state.active[active_queue, at] = bank


@inlined
def lower_active_not_ready_until(state, command, bank):
    """An active request of a bank now waits for a command as well."""
    rank, until = bank // BANKS_PER_RANK, state.active_not_ready_until
    ready = with_element(filled(FAR), command, bank_ready_at(state, command, bank))
    set_vector(until, rank, smaller(vector_at(until, rank), ready))


@inlined
def activate_request(queues, state, queue, bank, row, request, arrived):
    """After its ACT a request stands in the rank's active queue, in order of arrival, and pins its bank."""
    bank = assume_nonnegative(bank)
    rank = bank // BANKS_PER_RANK
    active_queue = rank * 2 + queue
    place = state.active_size[active_queue]
    while place > 0 and state.active_arrived[active_bank(state, active_queue, place - 1)] > arrived:
        set_active_bank(state, active_queue, place, active_bank(state, active_queue, place - 1))
        place -= 1
    set_active_bank(state, active_queue, place, bank)
    state.active_size[active_queue] += 1
    state.active_arrived[bank] = arrived
    state.active_request[bank] = request
    lower_active_not_ready_until(state, RD + queue, bank)
    open_bank(queues, state, bank, row)


@inlined
def leave_active_queue(state, active_queue, place):
    """Take the request at a place out of its active queue."""
    active_queue = assume_nonnegative(active_queue)
    for older in range(place, 0, -1):
        set_active_bank(state, active_queue, older, active_bank(state, active_queue, older - 1))
    state.active_head[active_queue] = state.active_head[active_queue] + 1 & SLOTS - 1
    state.active_size[active_queue] -= 1
    rank, command, first = active_queue // 2, RD + active_queue % 2, FAR
    rank_ready_at = state.rank_ready[rank, command]
    for other in range(state.active_size[active_queue]):
        first = min(first, bank_ready_at(state, command, active_bank(state, active_queue, other)))
        if first <= rank_ready_at:
            break
    set_element(state.active_not_ready_until, rank, command, first)


@outlined
def requeue_reads(shape, state, source, clock):
    """Return to the read queue the active requests whose row was closed while the sink had no room."""
    for rank in range(shape.ranks):
        active_queue, place = rank * 2 + READS, 0
        while place < state.active_size[active_queue]:
            bank = active_bank(state, active_queue, place)
            if state.open_row[bank] >= 0:
                place += 1
                continue
            leave_active_queue(state, active_queue, place)
            state.pinned_banks[rank] &= ~bank_bit(bank)
            arrived = state.active_arrived[bank]
            state.value[READ_QUEUE] -= clock - arrived  # its wait so far is counted, see `leave_queue`
            row = source.place[state.active_request[bank]] >> ROW_SHIFT
            requeue_read(shape.queues, state, bank, row, arrived)
