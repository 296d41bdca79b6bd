"""Puts requests into slots of a queue, moves them and takes them out."""

from __future__ import annotations

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.fast.fields import (
    ACT,
    ADDRESSES,
    BANKS,
    BANKS_PER_RANK,
    PRE,
    QUEUES,
    RD,
    READS,
    REQUEST_CLASSES,
    SLOTS,
    WRITES,
)
from ndpsim.dram.fast.points import chunk_by_age, chunk_for, chunk_of, record_added, record_removed
from ndpsim.dram.fast.timing import bank_ready_at
from ndpsim.dram.fast.vectors import (
    assume_nonnegative,
    both,
    either,
    filled,
    lowest,
    ones,
    rotate,
    set_vector,
    smaller,
    vector_at,
    with_element,
)
from ndpsim.dram.state import BANK_SHIFT, FAR, GROUP_SHIFT, RANK_SHIFT


@inlined
def bank_of(shape, place):
    """The bank of a request's place, numbered as in `fast.fields`."""
    rank, group, bank = place >> RANK_SHIFT & 15, place >> GROUP_SHIFT & 15, place >> BANK_SHIFT & 63
    return rank << 6 | (group << (shape.group_shift & 3)) + bank & 63


@inlined
def wait_row(queue, rank):
    """The index of a queue and a rank in the masks of waiting requests, see `fast.fields`."""
    return assume_nonnegative(rank * QUEUES + queue)


@inlined
def slot_bank(state, queue, slot):
    """The bank of a slot's request."""
    return state.slot_bank[queue, assume_nonnegative(slot)] & (BANKS - 1)


@inlined
def next_class(state, queue, bank, row):
    """The command that a request for a row of a bank needs next."""
    open_row = state.open_row[bank]
    of_open = RD + queue if open_row == row else PRE
    return ACT if open_row < 0 else of_open


@inlined
def leave(state, queue, chunk, bank, mask):
    """Requests for a bank no longer wait for a command."""
    waiting, row = state.waiting[chunk], wait_row(queue, bank // BANKS_PER_RANK)
    set_vector(waiting, row, both(vector_at(waiting, row), filled(~mask)))


@inlined
def add_not_ready(state, row, command, bank, ready_at):
    """Note when a bank will be ready for the requests that wait for a command; False if there is no room."""
    row, command = assume_nonnegative(row), assume_nonnegative(command)
    head, size, entry = (
        state.not_ready_head[row, command],
        state.not_ready_size[row, command],
        ready_at * BANKS + bank,
    )
    if size == SLOTS:
        return False
    ring = state.not_ready[row, command]
    while size > 0 and ring[head + size - 1 & SLOTS - 1] > entry:
        ring[head + size & SLOTS - 1] = ring[head + size - 1 & SLOTS - 1]
        size -= 1
    ring[head + size & SLOTS - 1] = entry
    state.not_ready_size[row, command] += 1
    until = vector_at(state.not_ready_until, row)
    set_vector(state.not_ready_until, row, smaller(until, with_element(filled(FAR), command, ready_at)))
    return True


@inlined
def join(state, queue, chunk, command, bank, mask, clock):
    """Requests for a bank now wait for a command; returns when the first can issue, at the earliest.

    They may be ready if the bank is ready at `clock`. Hits may be ready in any case, because they are mostly
    delayed by commands to other banks.
    """
    bank, command = assume_nonnegative(bank), assume_nonnegative(command)
    rank, waiting = bank // BANKS_PER_RANK, state.waiting[chunk]
    row, ready_at = wait_row(queue, rank), bank_ready_at(state, command, bank)
    set_vector(waiting, row, either(vector_at(waiting, row), with_element(filled(0), command, mask)))
    maybe_ready = command >= RD or ready_at <= clock or not add_not_ready(state, row, command, bank, ready_at)
    state.maybe_ready[chunk, queue] = state.maybe_ready[chunk, queue] & ~mask | (mask if maybe_ready else 0)
    return max(state.rank_ready[rank, command], ready_at)


@inlined
def join_after_command(state, queue, chunk, command, bank, mask):
    """`join` for a bank that has just had a command: it is not ready for another."""
    join(state, queue, chunk, command, bank, mask, -1)


@inlined
def classify(state, queue, chunk, bit, bank, row, clock):
    """A new request begins to wait; returns when it can issue, at the earliest.

    It does not wait for a command while its bank is pinned for another row.
    """
    command = next_class(state, queue, bank, row)
    if command == PRE and state.pinned_banks[bank // BANKS_PER_RANK] >> bank % BANKS_PER_RANK & 1:
        return FAR
    return join(state, queue, chunk, command, bank, bit, clock)


@inlined
def oldest_slot(state, queue, chunk):
    """The slot of the oldest request of a chunk that has one."""
    tail = state.tail[chunk, queue]
    return chunk * SLOTS + (lowest(rotate(state.used[chunk, queue], tail)) + tail & SLOTS - 1)


@inlined
def move_bit(masks, source, target):
    """Move a slot's bit in the masks of a queue, [chunk], to another slot."""
    mask = masks[source // SLOTS]
    masks[source // SLOTS] = mask & ~(1 << (source & SLOTS - 1))
    masks[target // SLOTS] |= (mask >> (source & SLOTS - 1) & 1) << (target & SLOTS - 1)


@inlined
def move_slot(state, queue, source, target):
    """Move a request to a free slot; returns its bank."""
    bank = slot_bank(state, queue, source)
    state.slot_bank[queue, target] = bank
    state.slot_row[queue, target] = state.slot_row[queue, source]
    state.slot_arrived[queue, target] = state.slot_arrived[queue, source]
    state.slot_request[queue, target] = state.slot_request[queue, source]
    move_bit(state.used[:, queue], source, target)
    move_bit(state.counted[:, queue], source, target)
    move_bit(state.maybe_ready[:, queue], source, target)
    move_bit(state.of_bank[:, queue, bank], source, target)
    row = wait_row(queue, bank // BANKS_PER_RANK)
    for command in range(REQUEST_CLASSES):
        move_bit(state.waiting[:, row, command], source, target)
    return bank


@outlined
def compact(state, queue, chunk):
    """Close gaps, so that the slots after the youngest request of a chunk are free again."""
    tail = state.tail[chunk, queue]
    target = tail
    for back in range(1, SLOTS + 1):
        slot = (tail - back) & (SLOTS - 1)
        if state.used[chunk, queue] >> slot & 1:
            target = (target - 1) & (SLOTS - 1)
            if slot != target:
                move_slot(state, queue, chunk * SLOTS + slot, chunk * SLOTS + target)


@inlined
def fill_slot(state, queue, chunk, slot, bank, row, arrived, request):
    """Put a request into a free slot of a chunk; returns when it can issue, at the earliest."""
    at, bit = assume_nonnegative(chunk * SLOTS + slot), 1 << slot
    state.slot_bank[queue, at] = bank
    state.slot_row[queue, at] = row
    state.slot_arrived[queue, at] = arrived
    state.slot_request[queue, at] = request
    state.used[chunk, queue] |= bit
    state.of_bank[chunk, queue, bank] |= bit
    state.queued[queue] += 1
    return classify(state, queue, chunk, bit, bank, row, arrived)


@inlined
def filter_place(address):
    """The place in `writes_at` that counts queued writes to `address`, among others."""
    return (address ^ (address >> 6)) & (ADDRESSES - 1)


@inlined
def enqueue(queues, state, source, queue, bank, row, request, arrived):
    """Put the youngest request into its queue; returns when it can issue, at the earliest."""
    chunk = chunk_for(queues, state, queue)
    slot = state.tail[chunk, queue] & (SLOTS - 1)
    if queue == WRITES:
        state.writes_at[filter_place(source.address[request])] += 1
    state.tail[chunk, queue] = slot + 1
    at = fill_slot(state, queue, chunk, slot, bank, row, arrived, request)
    record_added(queues, state, queue, chunk, bank)
    return at


@outlined
def requeue_read(queues, state, bank, row, arrived):
    """Return an active read to the place in the read queue that its age gives it."""
    chunk = chunk_by_age(queues, state, READS, arrived)
    compact(state, READS, chunk)
    size = ones(state.used[chunk, READS])
    free = (state.tail[chunk, READS] - size - 1) & (SLOTS - 1)
    for _ in range(size):
        after = (free + 1) & (SLOTS - 1)
        if state.slot_arrived[READS, chunk * SLOTS + after] > arrived:
            break
        move_slot(state, READS, chunk * SLOTS + after, chunk * SLOTS + free)
        free = after
    fill_slot(state, READS, chunk, free, bank, row, arrived, state.active_request[bank])
    state.counted[chunk, READS] |= 1 << free
    record_added(queues, state, READS, chunk, bank)


@inlined
def take_out(queues, state, source, queue, slot, bank):
    """Take a request out of its queue."""
    queue, slot, bank = assume_nonnegative(queue), assume_nonnegative(slot), assume_nonnegative(bank)
    chunk = assume_nonnegative(chunk_of(queues, slot))
    keep = ~(1 << (slot & SLOTS - 1))
    state.used[chunk, queue] &= keep
    state.counted[chunk, queue] &= keep
    state.of_bank[chunk, queue, bank] &= keep
    leave(state, queue, chunk, bank, ~keep)
    state.queued[queue] -= 1
    if queue == WRITES:
        request = state.slot_request[WRITES, slot]
        state.writes_at[filter_place(source.address[request])] -= 1
    record_removed(queues, state, queue, chunk, bank)


@inlined
def is_write_of(state, chunk, source, address):
    """Whether a write to `address` is in a chunk of the write queue."""
    mask = state.used[chunk, WRITES]
    while mask != 0:
        slot = chunk * SLOTS + (lowest(mask) & (SLOTS - 1))
        if source.address[assume_nonnegative(state.slot_request[WRITES, slot])] == address:
            return True
        mask &= mask - 1
    return False


@inlined
def waits_of(state, queue, chunk, until):
    """How long the requests of a chunk have waited, summed."""
    total, mask = 0, state.used[chunk, queue]
    while mask != 0:
        total += until - state.slot_arrived[queue, chunk * SLOTS + (lowest(mask) & (SLOTS - 1))]
        mask &= mask - 1
    return total


@inlined
def push_maintenance(state, command, bank):
    """Add a maintenance command to the waiting ones."""
    place = state.pending_size & (state.pending_bank.shape[0] - 1)
    state.pending_class[place] = command
    state.pending_bank[place] = bank
    state.pending_size += 1
