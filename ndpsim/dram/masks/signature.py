"""State signatures: all that decides what a channel does next, in words that are equal when it is the same.

Clocks are relative to the step, rows to the row of the request that the step takes, requests to that request.
Clocks that are too long past to delay a command or to count as idle are written as the last that could not.
`write_signature` writes what `restore` reads, in the same order; `fields` names the words of the state.
"""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.banks import activate_request, active_bank
from ndpsim.dram.masks.rows import read_row, write_row
from ndpsim.dram.masks.slots import fill_slot, slot_bank, wait_place
from ndpsim.dram.masks.state import (
    ACTIVE_ARRIVED,
    ACTIVE_BOUND,
    ACTIVE_HEAD,
    ACTIVE_REQUEST,
    ACTIVE_SIZE,
    BANK_READY,
    BANKS,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    BOUND,
    COUNTED,
    GROUP_READY,
    GROUPS_PER_RANK,
    HELD_BANKS,
    KINDS,
    NOT_READY_SIZE,
    OF_BANK,
    OLDEST_ACT,
    ONE_SEGMENT,
    OPEN_BANKS,
    OPEN_ROW,
    PENDING_BANK,
    PENDING_KIND,
    PENDING_SIZE,
    RANK_READY,
    READS,
    RECENT_ACTS,
    SIZE,
    SLOT_ARRIVED,
    SLOT_REQUEST,
    SLOT_ROW,
    SLOTS,
    TAIL,
    TOUCHED,
    WAITING,
    WAITS,
    WRITES,
)
from ndpsim.dram.masks.state import USED as USED_SLOTS
from ndpsim.dram.masks.transition_table import BANK_KINDS, LENGTH, REACH, USED, WORDS
from ndpsim.dram.masks.words import assume_nonnegative, lowest, ranks_of, rotate
from ndpsim.dram.sink import LAST_START, RELEASE, SERVER, SERVICE, SLOT
from ndpsim.dram.state import (
    DATA_END,
    FAR,
    PLACE,
    REFRESH_FROM,
    REFRESH_UNTIL,
    ROW_SHIFT,
    WRITE_MODE,
)

__all__ = ["expiry", "has_signature", "restore", "write_signature"]

_CLOSED = -FAR  # a row
_HEAD_WORDS = 6
_QUEUED_WORDS = 3  # of a request


@inlined
def latest_request(shape, state):
    """The highest number of the reads under way, -1 if there is none."""
    latest, queued = -1, state[USED_SLOTS + READS]
    while queued != 0:
        slot = lowest(queued) & (SLOTS - 1)
        queued &= queued - 1
        latest = max(latest, state[SLOT_REQUEST + READS * SLOTS + slot])
    for rank in range(ranks_of(shape)):
        active_queue = rank * 2 + READS
        for place in range(state[ACTIVE_SIZE + active_queue]):
            latest = max(latest, state[ACTIVE_REQUEST + active_bank(state, active_queue, place)])
    return latest


@inlined
def has_signature(shape, state):
    """Whether data flow, and nothing but reads is under way, all since the source began (again)."""
    writes = state[SIZE + WRITES]
    for rank in range(ranks_of(shape)):
        writes |= state[ACTIVE_SIZE + rank * 2 + WRITES]
    return writes == 0 and state[DATA_END] >= 0 and latest_request(shape, state) < state[PLACE]


@inlined
def expiry(shape, state, clock):
    """The clock up to which it makes no difference when something ended: the data bus was busy until then."""
    return min(clock, state[DATA_END] - shape.read_latency + shape.burst)


@inlined
def after(place, number, size):
    """A place so many further on in a ring."""
    place += number
    return place - size if place >= size else place


# ---- Ranks: times, open rows, requests between ACT and RD


@inlined
def write_times(state, table, at, first, nodes, kinds, over, clock):
    """The times of so many nodes, from a place of the state on, for the first kinds of commands."""
    at, first = assume_nonnegative(at), assume_nonnegative(first)
    for node in range(first, first + nodes * KINDS, KINDS):
        for there in range(node, node + kinds, WAITS):
            write_row(table, at, state, there, over, clock, table[at + WAITS - 1] + state[there + WAITS - 1])
            at += WAITS
    return at


@inlined
def read_times(state, table, at, first, nodes, kinds, clock):
    """What `write_times` wrote."""
    at, first = assume_nonnegative(at), assume_nonnegative(first)
    for node in range(first, first + nodes * KINDS, KINDS):
        for there in range(node, node + kinds, WAITS):
            read_row(table, at, state, there, clock, table[at + WAITS - 1] + state[there + WAITS - 1])
            at += WAITS
    return at


@inlined
def write_rows(state, table, at, rank, row):
    """The open rows of a rank."""
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    for bank in range(BANKS_PER_RANK):
        open_row = state[OPEN_ROW + rank * BANKS_PER_RANK + bank]
        table[at + bank] = open_row - row if open_row >= 0 else _CLOSED
    return at + BANKS_PER_RANK


@inlined
def read_rows(state, table, at, rank, row):
    """What `write_rows` wrote."""
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    for bank in range(BANKS_PER_RANK):
        word = table[at + bank]
        state[OPEN_ROW + rank * BANKS_PER_RANK + bank] = word + row if word > _CLOSED else -1
    return at + BANKS_PER_RANK


@inlined
def close_rows(state, rank):
    """No row of a rank is open."""
    for bank in range(BANKS_PER_RANK):
        state[OPEN_ROW + rank * BANKS_PER_RANK + bank] = -1


@inlined
def write_active(state, table, at, rank, clock):
    """The active reads of a rank."""
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    active_queue, request = rank * 2 + READS, state[PLACE]
    for place in range(state[ACTIVE_SIZE + active_queue]):
        bank = active_bank(state, active_queue, place)
        table[at] = bank
        table[at + 1] = state[ACTIVE_ARRIVED + bank] - clock
        table[at + 2] = state[ACTIVE_REQUEST + bank] - request
        at += 3
    return at


@inlined
def read_active(state, table, at, rank, active, clock):
    """What `write_active` wrote: so many reads."""
    for _ in range(active):
        bank = table[at] & (BANKS - 1)
        request = state[PLACE] + table[at + 2]
        activate_request(
            ONE_SEGMENT, state, READS, bank, state[OPEN_ROW + bank], request, table[at + 1] + clock
        )
        at += 3
    return at


@inlined
def write_nodes(shape, state, table, at, rank, over, clock):
    """The times of a rank's groups and banks for the kinds for which commands may look there."""
    first, groups = rank * GROUPS_PER_RANK, shape.bankgroups
    at = write_times(state, table, at, GROUP_READY + first * KINDS, groups, WAITS, over, clock)
    for group in range(first, first + groups):
        place, banks = BANK_READY + group * BANKS_PER_GROUP * KINDS, shape.banks_per_group
        at = write_times(state, table, at, place, banks, table[BANK_KINDS], over, clock)
    return at


@inlined
def read_nodes(shape, state, table, at, rank, clock):
    """What `write_nodes` wrote."""
    first, groups = rank * GROUPS_PER_RANK, shape.bankgroups
    at = read_times(state, table, at, GROUP_READY + first * KINDS, groups, WAITS, clock)
    for group in range(first, first + groups):
        place, banks = BANK_READY + group * BANKS_PER_GROUP * KINDS, shape.banks_per_group
        at = read_times(state, table, at, place, banks, table[BANK_KINDS], clock)
    return at


@inlined
def write_rank(shape, state, table, at, rank, over, row, clock):
    """A rank. When no command can have left its banks and groups a distance, they are left out."""
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    touched = max(state[TOUCHED + rank], over - table[REACH])
    table[at] = touched - clock
    table[at + 1] = state[OPEN_BANKS + rank]
    table[at + 2] = state[ACTIVE_SIZE + rank * 2 + READS]
    at = write_times(state, table, at + 3, RANK_READY + rank * KINDS, 1, KINDS, over, clock)
    for number in range(4):
        recent = state[RECENT_ACTS + rank * 4 + (state[OLDEST_ACT + rank] + number & 3)]
        table[at + number] = max(recent, over - shape.activate_window) - clock
    at += 4
    if touched + table[REACH] > over:
        at = write_nodes(shape, state, table, at, rank, over, clock)
    if state[OPEN_BANKS + rank] != 0:
        at = write_rows(state, table, at, rank, row)
    return write_active(state, table, at, rank, clock)


@inlined
def read_rank(shape, state, table, at, rank, over, row, clock):
    """What `write_rank` wrote."""
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    touched, opened, active = table[at] + clock, table[at + 1], table[at + 2]
    state[TOUCHED + rank] = touched
    at = read_times(state, table, at + 3, RANK_READY + rank * KINDS, 1, KINDS, clock)
    state[OLDEST_ACT + rank] = 0
    for number in range(4):
        state[RECENT_ACTS + rank * 4 + number] = table[at + number] + clock
    at += 4
    if touched + table[REACH] > over:
        at = read_nodes(shape, state, table, at, rank, clock)
    if opened != 0:
        at = read_rows(state, table, at, rank, row)
    elif state[OPEN_BANKS + rank] != 0:
        close_rows(state, rank)
    state[OPEN_BANKS + rank] = opened
    return read_active(state, table, at, rank, active, clock)


# ---- Queue, refreshes that wait, sink


@inlined
def write_queue(state, table, at, row, clock):
    """The queued reads, the oldest first."""
    at = assume_nonnegative(at)
    tail = state[TAIL + READS]
    queued = rotate(state[USED_SLOTS + READS], tail)
    while queued != 0:
        slot = (lowest(queued) + tail) & (SLOTS - 1)
        queued &= queued - 1
        bank, counted = slot_bank(state, READS, slot), state[COUNTED + READS] >> slot & 1
        table[at] = ((state[SLOT_ROW + READS * SLOTS + slot] - row) * BANKS + bank) * 2 + counted
        table[at + 1] = state[SLOT_ARRIVED + READS * SLOTS + slot] - clock
        table[at + 2] = state[SLOT_REQUEST + READS * SLOTS + slot] - state[PLACE]
        at += _QUEUED_WORDS
    return at


@inlined
def read_queue(state, table, at, size, row, clock):
    """What `write_queue` wrote: so many reads."""
    at = assume_nonnegative(at)
    for slot in range(size):
        word, arrived = table[at], table[at + 1] + clock
        request = state[PLACE] + table[at + 2]
        fill_slot(state, READS, 0, slot, word >> 1 & BANKS - 1, (word >> 1) // BANKS + row, arrived, request)
        state[COUNTED + READS] |= (word & 1) << slot
        at += _QUEUED_WORDS
    state[TAIL + READS] = size
    return at


@inlined
def write_pending(state, table, at):
    """The refreshes that wait."""
    for place in range(state[PENDING_SIZE]):
        table[at] = state[PENDING_KIND + place]
        table[at + 1] = state[PENDING_BANK + place]
        at += 2
    return at


@inlined
def read_pending(state, table, at, size):
    """What `write_pending` wrote: so many refreshes."""
    state[PENDING_SIZE] = size
    for place in range(size):
        state[PENDING_KIND + place] = table[at]
        state[PENDING_BANK + place] = table[at + 1]
        at += 2
    return at


@inlined
def write_sink(sink, table, at, over, clock):
    """The bursts that the sink holds and serves, and where its clock stands."""
    at, value, now = assume_nonnegative(at), sink.value, clock * sink.dram_ticks
    table[at] = now % sink.unit_ticks
    table[at + 1] = value[SERVICE]
    table[at + 2] = max(value[LAST_START] - now, 0)
    table[at + 3] = max(value[RELEASE] - now, 0)
    at += 4
    for number in range(sink.depth):
        credit = sink.credit[after(value[SLOT], number, sink.depth)]
        table[at + number] = max(credit, over) - clock
    at += sink.depth
    for number in range(sink.servers):
        free = sink.free[after(value[SERVER], number, sink.servers)]
        table[at + number] = max(free - now, 0)
    return at + sink.servers


@inlined
def read_sink(sink, table, at, clock):
    """What `write_sink` wrote."""
    value, now = sink.value, clock * sink.dram_ticks
    value[LAST_START] = table[at + 2] + now
    at += 4
    value[SLOT] = value[SERVER] = 0
    for number in range(sink.depth):
        sink.credit[number] = table[at + number] + clock
    at += sink.depth
    for number in range(sink.servers):
        sink.free[number] = table[at + number] + now
    return at + sink.servers


# ---- All of it


@outlined
def write_signature(shape, state, source, sink, table, clock):
    """Write the state's signature behind all that the table has; returns the end of its words."""
    signature, over = assume_nonnegative(table[USED]), expiry(shape, state, clock)
    row = source.place[state[PLACE]] >> ROW_SHIFT
    at = signature + WORDS
    table[at] = state[WRITE_MODE]
    table[at + 1] = state[SIZE + READS]
    table[at + 2] = state[PENDING_SIZE]
    table[at + 3] = state[DATA_END] - clock
    table[at + 4] = max(state[REFRESH_FROM], over) - clock
    table[at + 5] = max(state[REFRESH_UNTIL], over) - clock
    at = write_queue(state, table, at + _HEAD_WORDS, row, clock)
    if sink.servers > 0:
        at = write_sink(sink, table, at, over, clock)
    at = write_pending(state, table, at)
    for rank in range(ranks_of(shape)):
        at = write_rank(shape, state, table, at, rank, over, row, clock)
    table[signature + LENGTH] = at - signature - WORDS
    return at


@inlined
def clear(shape, state):
    """Empty the read queue and the lists of active reads."""
    state[USED_SLOTS + READS] = state[COUNTED + READS] = state[SIZE + READS] = 0
    state[OF_BANK + READS * BANKS : OF_BANK + READS * BANKS + ranks_of(shape) * BANKS_PER_RANK] = 0
    for rank in range(ranks_of(shape)):
        state[HELD_BANKS + rank] = 0
        state[ACTIVE_SIZE + rank * 2 + READS] = state[ACTIVE_HEAD + rank * 2 + READS] = 0
        for kind in range(WAITS):
            state[WAITING + wait_place(READS, kind, rank)] = 0
            state[NOT_READY_SIZE + wait_place(READS, kind, rank)] = 0
            state[BOUND + wait_place(READS, kind, rank)] = FAR
            state[ACTIVE_BOUND + rank * WAITS + kind] = FAR


@outlined
def restore(shape, state, source, sink, table, signature, clock):
    """Set the channel and its sink to a signature, at a clock and at the request that comes next.

    Refreshes that have fallen due and counters stay as they are, those of the sink too.
    """
    row = source.place[state[PLACE]] >> ROW_SHIFT
    clear(shape, state)
    at = signature + WORDS
    state[WRITE_MODE], size, pending = table[at], table[at + 1], table[at + 2]
    state[DATA_END] = table[at + 3] + clock
    over = expiry(shape, state, clock)
    queue, at = at + _HEAD_WORDS, at + _HEAD_WORDS + size * _QUEUED_WORDS
    if sink.servers > 0:
        at = read_sink(sink, table, at, clock)
    at = read_pending(state, table, at, pending)
    for rank in range(ranks_of(shape)):
        at = read_rank(shape, state, table, at, rank, over, row, clock)
    read_queue(state, table, queue, size, row, clock)
