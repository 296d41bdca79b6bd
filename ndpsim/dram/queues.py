"""Takes requests: a request is offered, then absorbed by a queued write or put into a queue."""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dram.spec.standard import READ, WRITE
from ndpsim.dram.state import (
    ARRIVED,
    BANK,
    BANK_SHIFT,
    COALESCED,
    COLUMN,
    COUNTED,
    COUNTED_UNTIL,
    FIELDS,
    FINAL,
    FORWARDED,
    GROUP,
    GROUP_SHIFT,
    INDEX,
    NOT_BEFORE,
    PLACE,
    PRIORITY,
    RANK,
    RANK_SHIFT,
    READ_LATENCY,
    READ_QUEUE,
    READS,
    READS_SERVED,
    ROW,
    ROW_SHIFT,
    SERVED,
    TAKEN,
    WRITE_QUEUE,
    WRITES,
)
from ndpsim.dram.timing import first_bank


@inlined
def copy_entry(entry, to_queue, to_slot, queue, slot):
    """Copy a request from one slot to another."""
    for field in range(FIELDS):
        entry[to_queue, field, to_slot] = entry[queue, field, slot]


@inlined
def remove(entry, size, queue, slot):
    """Take a request out of a queue; only the priority queue keeps its order."""
    last = size[queue] - 1
    if queue == PRIORITY:
        for index in range(slot, last):
            copy_entry(entry, queue, index, queue, index + 1)
    elif slot != last:
        copy_entry(entry, queue, slot, queue, last)
    size[queue] = last


@inlined
def push_priority(entry, size, final, rank, group, bank):
    """Append a maintenance command to the priority queue."""
    slot = size[PRIORITY]
    entry[PRIORITY, FINAL, slot] = final
    entry[PRIORITY, RANK, slot] = rank
    entry[PRIORITY, GROUP, slot] = group
    entry[PRIORITY, BANK, slot] = bank
    entry[PRIORITY, COUNTED, slot] = 1
    size[PRIORITY] = slot + 1


@inlined
def is_queued_write(entry, size, addresses, address):
    """Whether a write to `address` waits in the write queue."""
    for slot in range(size[WRITES]):
        if addresses[entry[WRITES, INDEX, slot]] == address:
            return True
    return False


@inlined
def absorb(value, latencies, write):
    """Serve a read from a queued write, or coalesce a write with it; neither needs a slot."""
    value[SERVED] += 1
    if write:
        value[COALESCED] += 1
    else:
        value[FORWARDED] += 1
        value[READS_SERVED] += 1
        value[READ_LATENCY] += 1
        latencies[1] += 1


@inlined
def is_due(source, value, clock):
    """Whether there is a next request that may be offered at `clock`."""
    if value[TAKEN] >= source.admitted[0]:
        return False
    return source.cycle.shape[0] == 0 or clock > source.cycle[value[PLACE]]


@inlined
def has_slot(policy, size, write):
    """Whether the queue for reads or writes has a free slot."""
    if write:
        return size[WRITES] < policy.write_slots
    return size[READS] < policy.read_slots


@inlined
def would_accept(policy, source, entry, size, value, clock):
    """Whether the next request will be taken at `clock`, if nothing happens before."""
    if not is_due(source, value, clock):
        return False
    request = value[PLACE]
    if has_slot(policy, size, source.place[request] & 1):
        return True
    return is_queued_write(entry, size, source.address, source.address[request])


@inlined
def enqueue(tables, source, entry, size, bound, request, clock):
    """Put a request into its queue. Its arrival is the clock before this step."""
    location = source.place[request]
    queue = WRITES if location & 1 else READS
    rank = 1 + (location >> RANK_SHIFT & 255)
    group = location >> GROUP_SHIFT & 255
    slot = size[queue]
    entry[queue, RANK, slot] = rank
    entry[queue, GROUP, slot] = 1 + tables.ranks + (rank - 1) * tables.bankgroups + group
    entry[queue, BANK, slot] = (
        first_bank(tables, rank) + group * tables.banks_per_group + (location >> BANK_SHIFT & 255)
    )
    entry[queue, ROW, slot] = location >> ROW_SHIFT
    entry[queue, COLUMN, slot] = source.column[request]
    entry[queue, ARRIVED, slot] = clock - 1
    entry[queue, INDEX, slot] = request
    entry[queue, COUNTED, slot] = 0
    entry[queue, FINAL, slot] = WRITE if queue == WRITES else READ
    entry[queue, NOT_BEFORE, slot] = 0
    bound[queue] = 0
    size[queue] = slot + 1


@inlined
def move_past(source, value):
    """Advance the source: the next request was taken."""
    value[TAKEN] += 1
    value[PLACE] += 1
    if value[PLACE] == source.place.shape[0]:
        value[PLACE] = 0


@inlined
def accept(tables, policy, source, state, latencies, clock):
    """Offer the next request, if it is due: it is absorbed, queued, or refused until later."""
    entry, size, value = state.entry, state.size, state.value
    if not is_due(source, value, clock):
        return
    request = value[PLACE]
    if is_queued_write(entry, size, source.address, source.address[request]):
        absorb(value, latencies, source.place[request] & 1)
        move_past(source, value)
    elif has_slot(policy, size, source.place[request] & 1):
        enqueue(tables, source, entry, size, state.bound, request, clock)
        move_past(source, value)


@inlined
def sum_queues(size, value, clock):
    """Add up the queues' lengths over the clocks since they last changed."""
    clocks = clock - value[COUNTED_UNTIL]
    value[READ_QUEUE] += clocks * size[READS]
    value[WRITE_QUEUE] += clocks * size[WRITES]
    value[COUNTED_UNTIL] = clock
