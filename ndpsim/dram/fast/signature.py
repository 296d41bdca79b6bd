"""State signatures: words that contain everything that decides the next commands of a channel.

Clocks are relative to the step, rows to the row of the request that the step takes, requests to that request.
A clock that is too old to delay a command or to affect idle times is written as the latest such clock.
`restore` reads the words in the order in which `write_signature` writes them; `fields` names them.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.fast.banks import activate_request, active_bank, bars_queues, same_banks
from ndpsim.dram.fast.fields import (
    BANKS,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    GROUPS_PER_RANK,
    READS,
    REQUEST_CLASSES,
    SLOTS,
    TIMED_CLASSES,
    WRITES,
)
from ndpsim.dram.fast.one_chunk import ONE_CHUNK
from ndpsim.dram.fast.slots import fill_slot, slot_bank, wait_row
from ndpsim.dram.fast.transition_table import BANK_CLASSES, LENGTH, REACH, USED, WORDS, next_line
from ndpsim.dram.fast.vectors import read_times, write_times
from ndpsim.dram.fast.words import assume_nonnegative, lowest, rotate
from ndpsim.dram.sink import LAST_START, RELEASE, SERVER, SERVICE, SLOT
from ndpsim.dram.state import DATA_END, FAR, PLACE, REFRESH_FROM, REFRESH_UNTIL, ROW_SHIFT, WRITE_MODE

_CLOSED = -FAR  # a row
_HEAD_WORDS = 6
_QUEUED_WORDS = 3  # of a request


@inlined
def latest_request(shape, state):
    """The highest number of the reads under way, -1 if there is none."""
    latest, queued = -1, state.used[0, READS]
    while queued != 0:
        slot = lowest(queued) & (SLOTS - 1)
        queued &= queued - 1
        latest = max(latest, state.slot_request[READS, slot])
    for rank in range(shape.ranks):
        active_queue = rank * 2 + READS
        for place in range(state.active_size[active_queue]):
            latest = max(latest, state.active_request[active_bank(state, active_queue, place)])
    return latest


@inlined
def has_signature(shape, state):
    """Whether the state can have a signature: the channel has only reads, of the current repetition."""
    writes = state.queued[WRITES]
    for rank in range(shape.ranks):
        writes |= state.active_size[rank * 2 + WRITES]
    return writes == 0 and state.value[DATA_END] >= 0 and latest_request(shape, state) < state.value[PLACE]


@inlined
def expiry(shape, state, clock):
    """The clock up to which end times make no difference, because the data bus was busy."""
    return min(clock, state.value[DATA_END] - shape.read_latency + shape.burst)


@inlined
def after(place, number, size):
    """The place that is `number` places further in a ring."""
    place += number
    return place - size if place >= size else place


# ---- Ranks: times, open rows, requests between ACT and RD


@inlined
def write_ready(times, table, at, first, nodes, classes, over, clock):
    """The times of so many nodes from one on, for the first command classes."""
    at, first = assume_nonnegative(at), assume_nonnegative(first)
    for node in range(first, first + nodes):
        for command in range(0, classes, REQUEST_CLASSES):
            write_times(table, at, times, node, command, over, clock)
            at += REQUEST_CLASSES
    return at


@inlined
def read_ready(times, table, at, first, nodes, classes, clock):
    """Read the words of `write_ready`."""
    at, first = assume_nonnegative(at), assume_nonnegative(first)
    for node in range(first, first + nodes):
        for command in range(0, classes, REQUEST_CLASSES):
            read_times(table, at, times, node, command, clock)
            at += REQUEST_CLASSES
    return at


@inlined
def write_rows(state, table, at, rank, row):
    """The open rows of a rank."""
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    for bank in range(BANKS_PER_RANK):
        open_row = state.open_row[rank * BANKS_PER_RANK + bank]
        table[at + bank] = open_row - row if open_row >= 0 else _CLOSED
    return at + BANKS_PER_RANK


@inlined
def read_rows(state, table, at, rank, row):
    """Read the words of `write_rows`."""
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    for bank in range(BANKS_PER_RANK):
        word = table[at + bank]
        state.open_row[rank * BANKS_PER_RANK + bank] = word + row if word > _CLOSED else -1
    return at + BANKS_PER_RANK


@inlined
def close_rows(state, rank):
    """No row of a rank is open."""
    for bank in range(BANKS_PER_RANK):
        state.open_row[rank * BANKS_PER_RANK + bank] = -1


@inlined
def write_active(state, table, at, rank, clock):
    """The active reads of a rank."""
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    active_queue, request = rank * 2 + READS, state.value[PLACE]
    for place in range(state.active_size[active_queue]):
        bank = active_bank(state, active_queue, place)
        table[at] = bank
        table[at + 1] = state.active_arrived[bank] - clock
        table[at + 2] = state.active_request[bank] - request
        at += 3
    return at


@inlined
def read_active(state, table, at, rank, active, clock):
    """Read the words of `write_active`; returns the number of reads."""
    for _ in range(active):
        bank = table[at] & (BANKS - 1)
        request = state.value[PLACE] + table[at + 2]
        activate_request(ONE_CHUNK, state, READS, bank, state.open_row[bank], request, table[at + 1] + clock)
        at += 3
    return at


@inlined
def write_nodes(shape, state, table, at, rank, over, clock):
    """The times of a rank's groups and banks for the classes for which commands may look there."""
    first, groups, classes = rank * GROUPS_PER_RANK, shape.bankgroups, table[BANK_CLASSES]
    at = write_ready(state.group_ready, table, at, first, groups, REQUEST_CLASSES, over, clock)
    for group in range(first, first + groups):
        bank = group * BANKS_PER_GROUP
        at = write_ready(state.bank_ready, table, at, bank, shape.banks_per_group, classes, over, clock)
    return at


@inlined
def read_nodes(shape, state, table, at, rank, clock):
    """Read the words of `write_nodes`."""
    first, groups, classes = rank * GROUPS_PER_RANK, shape.bankgroups, table[BANK_CLASSES]
    at = read_ready(state.group_ready, table, at, first, groups, REQUEST_CLASSES, clock)
    for group in range(first, first + groups):
        bank = group * BANKS_PER_GROUP
        at = read_ready(state.bank_ready, table, at, bank, shape.banks_per_group, classes, clock)
    return at


@inlined
def write_rank(shape, state, table, at, rank, over, row, clock):
    """A rank. Its banks and groups are left out if no earlier command can still delay them."""
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    touched = max(state.last_command[rank], over - table[REACH])
    table[at] = touched - clock
    table[at + 1] = state.open_banks[rank]
    table[at + 2] = state.active_size[rank * 2 + READS]
    at = write_ready(state.rank_ready, table, at + 3, rank, 1, TIMED_CLASSES, over, clock)
    for number in range(4):
        recent = state.recent_acts[rank, (state.oldest_act[rank] + number & 3)]
        table[at + number] = max(recent, over - shape.window) - clock
    at += 4
    if touched + table[REACH] > over:
        at = write_nodes(shape, state, table, at, rank, over, clock)
    if state.open_banks[rank] != 0:
        at = write_rows(state, table, at, rank, row)
    return write_active(state, table, at, rank, clock)


@inlined
def read_rank(shape, state, table, at, rank, over, row, clock):
    """Read the words of `write_rank`."""
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    touched, opened, active = table[at] + clock, table[at + 1], table[at + 2]
    state.last_command[rank] = touched
    at = read_ready(state.rank_ready, table, at + 3, rank, 1, TIMED_CLASSES, clock)
    state.oldest_act[rank] = 0
    for number in range(4):
        state.recent_acts[rank, number] = table[at + number] + clock
    at += 4
    if touched + table[REACH] > over:
        at = read_nodes(shape, state, table, at, rank, clock)
    if opened != 0:
        at = read_rows(state, table, at, rank, row)
    elif state.open_banks[rank] != 0:
        close_rows(state, rank)
    state.open_banks[rank] = opened
    return read_active(state, table, at, rank, active, clock)


# ---- Queue, waiting refreshes, sink


@inlined
def write_queue(state, table, at, row, clock):
    """The queued reads, the oldest first."""
    at = assume_nonnegative(at)
    tail = state.tail[0, READS]
    queued = rotate(state.used[0, READS], tail)
    while queued != 0:
        slot = (lowest(queued) + tail) & (SLOTS - 1)
        queued &= queued - 1
        bank, counted = slot_bank(state, READS, slot), state.counted[0, READS] >> slot & 1
        table[at] = ((state.slot_row[READS, slot] - row) * BANKS + bank) * 2 + counted
        table[at + 1] = state.slot_arrived[READS, slot] - clock
        table[at + 2] = state.slot_request[READS, slot] - state.value[PLACE]
        at += _QUEUED_WORDS
    return at


@inlined
def read_queue(state, table, at, size, row, clock):
    """Read the words of `write_queue`; returns the number of reads."""
    at = assume_nonnegative(at)
    for slot in range(size):
        word, arrived = table[at], table[at + 1] + clock
        request = state.value[PLACE] + table[at + 2]
        fill_slot(state, READS, 0, slot, word >> 1 & BANKS - 1, (word >> 1) // BANKS + row, arrived, request)
        state.counted[0, READS] |= (word & 1) << slot
        at += _QUEUED_WORDS
    state.tail[0, READS] = size
    return at


@inlined
def write_pending(state, table, at):
    """The refreshes that wait."""
    for place in range(state.pending_size):
        table[at] = state.pending_class[place] * 2 + bars_queues(state, place)
        table[at + 1] = state.pending_bank[place]
        at += 2
    return at


@inlined
def read_pending(shape, state, table, at, size):
    """Read the words of `write_pending`; returns the number of refreshes."""
    state.pending_size = size
    for place in range(size):
        state.pending_class[place] = table[at] // 2
        state.pending_bank[place] = table[at + 1]
        if table[at] % 2 == 0:
            first = assume_nonnegative(table[at + 1])
            state.awaits_refresh[first // BANKS_PER_RANK] |= same_banks(shape, first)
        at += 2
    return at


@inlined
def write_sink(sink, table, at, over, clock):
    """The bursts in the sink, and its clock."""
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
    """Read the words of `write_sink`."""
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


# ---- The whole state


@outlined
def write_signature(shape, state, source, sink, table, clock):
    """Write the state's signature behind all that the table has; returns the end of its words."""
    signature, over = assume_nonnegative(table[USED]), expiry(shape, state, clock)
    row = source.place[state.value[PLACE]] >> ROW_SHIFT
    at = signature + WORDS
    table[at] = state.value[WRITE_MODE]
    table[at + 1] = state.queued[READS]
    table[at + 2] = state.pending_size
    table[at + 3] = state.value[DATA_END] - clock
    table[at + 4] = max(state.value[REFRESH_FROM], over) - clock
    table[at + 5] = max(state.value[REFRESH_UNTIL], over) - clock
    at = write_queue(state, table, at + _HEAD_WORDS, row, clock)
    if sink.servers > 0:
        at = write_sink(sink, table, at, over, clock)
    at = write_pending(state, table, at)
    for rank in range(shape.ranks):
        at = write_rank(shape, state, table, at, rank, over, row, clock)
    table[signature + LENGTH] = at - signature - WORDS
    for place in range(at, next_line(at)):
        table[place] = 0
    return at


@inlined
def clear(shape, state):
    """Empty the read queue and the lists of active reads."""
    state.used[0, READS] = state.counted[0, READS] = state.queued[READS] = 0
    for bank in range(shape.ranks * BANKS_PER_RANK):
        state.of_bank[0, READS, bank] = 0
    for number in range(shape.ranks):
        rank = assume_nonnegative(number)
        row = wait_row(READS, rank)
        state.pinned_banks[rank] = state.awaits_refresh[rank] = 0
        state.active_size[rank * 2 + READS] = state.active_head[rank * 2 + READS] = 0
        for command in range(REQUEST_CLASSES):
            state.waiting[0, row, command] = 0
            state.not_ready_size[row, command] = 0
            state.not_ready_until[row, command] = FAR
            state.active_not_ready_until[rank, command] = FAR


@outlined
def restore(shape, state, source, sink, table, signature, clock):
    """Set the channel and its sink to a signature, at a clock and at the request that comes next.

    Refreshes that have fallen due and counters stay as they are, those of the sink too.
    """
    row = source.place[state.value[PLACE]] >> ROW_SHIFT
    clear(shape, state)
    at = signature + WORDS
    state.value[WRITE_MODE], size, pending = table[at], table[at + 1], table[at + 2]
    state.value[DATA_END] = table[at + 3] + clock
    over = expiry(shape, state, clock)
    queue, at = at + _HEAD_WORDS, at + _HEAD_WORDS + size * _QUEUED_WORDS
    if sink.servers > 0:
        at = read_sink(sink, table, at, clock)
    at = read_pending(shape, state, table, at, pending)
    for rank in range(shape.ranks):
        at = read_rank(shape, state, table, at, rank, over, row, clock)
    read_queue(state, table, queue, size, row, clock)
