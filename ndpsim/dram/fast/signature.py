"""State signatures: words that contain everything that decides the next commands of a channel.

Only the rows of banks without reads are not among them: transitions check these (`transition_table`).

Clocks are relative to the step, rows to the row of the request that the step takes, requests to that request.
A clock that is too old to delay a command or to affect idle times is written as the latest such clock.

Each part of the state has one function, which writes its words (`writes`), or sets it from them. `fields` has
the role of each field.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.fast.banks import activate_request, active_bank, bank_bit, bars_queues, same_banks
from ndpsim.dram.fast.fields import (
    ACT,
    BANKS,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    GROUPS_PER_RANK,
    GROUPS_PER_STACK,
    PRE,
    RD,
    READS,
    REQUEST_CLASSES,
    SLOTS,
    STACKS_PER_RANK,
    TIMED_CLASSES,
    WRITES,
)
from ndpsim.dram.fast.one_chunk import ONE_CHUNK
from ndpsim.dram.fast.points import carry_controller, latest_opening
from ndpsim.dram.fast.slots import fill_slot, slot_bank, wait_row
from ndpsim.dram.fast.timing import has_stacks
from ndpsim.dram.fast.transition_table import BANK_CLASSES, LENGTH, REACH, USED, WORDS, next_line
from ndpsim.dram.fast.vectors import (
    assume_nonnegative,
    bits,
    lowest,
    read_times,
    rotate,
    up_to,
    vector_at,
    write_times,
)
from ndpsim.dram.sink import LAST_START, RELEASE, SERVER, SERVICE, SLOT
from ndpsim.dram.state import DATA_END, FAR, PLACE, REFRESH_FROM, REFRESH_UNTIL, ROW_SHIFT, WRITE_MODE

_HEAD_WORDS = 6
_QUEUED_WORDS = 3  # of a request
_MULTIPLIER = 0x2545F491  # of fingerprints


@inlined
def latest_request(shape, state):
    """The highest number of the reads under way, -1 if there is none."""
    latest, queued = latest_opening(shape.step, state), state.used[0, READS]
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


@inlined
def carry(table, at, word, writes):
    """Write a word of a signature, or read it; returns the word there."""
    if writes:
        table[at] = word
    return table[at]


# ---- Ranks: times, open rows, requests between ACT and RD


@inlined
def carry_ready(times, table, at, node, classes, base, writes):
    """The times of a node for the first command classes; base: see `carry_rank`."""
    over, clock = base
    at, node = assume_nonnegative(at), assume_nonnegative(node)
    for command in range(0, classes, REQUEST_CLASSES):
        if writes:
            write_times(table, at + command, times, node, command, over, clock)
        else:
            read_times(table, at + command, times, node, command, clock)
    return at + classes


@inlined
def late_nodes(times, first, nodes, classes, over):
    """The mask of the nodes from `first` on that may still delay a command."""
    late, in_time = 0, (1 << REQUEST_CLASSES) - 1
    for node in range(assume_nonnegative(nodes)):
        is_late = bits(up_to(vector_at(times, assume_nonnegative(first + node)), over)) != in_time
        for command in range(REQUEST_CLASSES, classes):
            is_late |= times[assume_nonnegative(first + node), command] > over
        late |= is_late << node
    return late


@inlined
def carry_late(times, table, at, first, nodes, classes, base, writes):
    """The times of those of so many nodes from `first` on that may still delay a command, after their mask.

    The others have the times that they had: nothing lowers times.
    """
    at = assume_nonnegative(at)
    late = carry(table, at, late_nodes(times, first, nodes, classes, base[0]) if writes else 0, writes)
    at += 1
    while late != 0:
        at = carry_ready(times, table, at, first + lowest(late), classes, base, writes)
        late &= late - 1
    return at


@inlined
def carry_nodes(shape, state, table, at, rank, base, writes):
    """The times of a rank's groups, banks and stacks for the classes for which commands may look there."""
    # Nothing is late where no command was.
    groups = shape.bankgroups if state.last_command[rank] + table[REACH] > base[0] else 0
    begin, first, classes = at, rank * GROUPS_PER_RANK, table[BANK_CLASSES]
    at = carry_late(state.group_ready, table, at, first, groups, REQUEST_CLASSES, base, writes)
    first, banks = rank * BANKS_PER_RANK, groups * BANKS_PER_GROUP
    at = carry_late(state.bank_ready, table, at, first, banks, classes, base, writes)
    if has_stacks(state):
        first, stacks = rank * STACKS_PER_RANK, groups // GROUPS_PER_STACK
        at = carry_late(state.stack_ready, table, at, first, stacks, TIMED_CLASSES, base, writes)
    if not writes and at > begin + 2 + has_stacks(state):
        state.last_command[rank] = base[1]
    return at


@inlined
def find_busy_banks(shape, state):
    """Set the masks of the banks with a read that is queued or active."""
    for number in range(shape.ranks):
        rank = assume_nonnegative(number)
        state.busy_banks[rank] = 0
        for place in range(state.active_size[rank * 2 + READS]):
            state.busy_banks[rank] |= bank_bit(active_bank(state, rank * 2 + READS, place))
    queued = state.used[0, READS]
    while queued != 0:
        bank = slot_bank(state, READS, lowest(queued) & (SLOTS - 1))
        state.busy_banks[bank // BANKS_PER_RANK] |= bank_bit(bank)
        queued &= queued - 1


@inlined
def carry_rows(state, table, at, rank, row, writes):
    """The open rows of a rank's busy banks; those of the others are checked by transitions (`found_rows`)."""
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    busy = carry(table, at, state.busy_banks[rank], writes)
    opened = carry(table, at + 1, state.open_banks[rank] & busy, writes)
    closed = state.open_banks[rank] & busy & ~opened
    state.open_banks[rank] = state.open_banks[rank] & ~busy | opened
    while closed != 0:
        state.open_row[assume_nonnegative(rank * BANKS_PER_RANK + lowest(closed))] = -1
        closed &= closed - 1
    at += 2
    while opened != 0:
        bank = assume_nonnegative(rank * BANKS_PER_RANK + lowest(opened))
        state.open_row[bank] = row + carry(table, at, state.open_row[bank] - row, writes)
        opened &= opened - 1
        at += 1
    return at


@inlined
def carry_active(state, table, at, rank, active, clock, writes):
    """The active reads of a rank."""
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    for place in range(active):
        bank = carry(table, at, active_bank(state, rank * 2 + READS, place), writes) & (BANKS - 1)
        arrived = clock + carry(table, at + 1, state.active_arrived[bank] - clock, writes)
        first = state.value[PLACE]
        request = first + carry(table, at + 2, state.active_request[bank] - first, writes)
        if not writes:
            activate_request(ONE_CHUNK, state, READS, bank, state.open_row[bank], request, arrived)
        at += 3
    return at


@inlined
def carry_rank(shape, state, table, at, rank, row, base, writes):
    """A rank; base: the clock of `expiry`, and that of the step."""
    over, clock = base
    at, rank = assume_nonnegative(at), assume_nonnegative(rank)
    active = carry(table, at, state.active_size[rank * 2 + READS], writes)
    at = carry_ready(state.rank_ready, table, at + 1, rank, TIMED_CLASSES, base, writes)
    for number in range(4):
        recent = max(state.recent_acts[rank, (state.oldest_act[rank] + number & 3)], over - shape.window)
        recent = clock + carry(table, at + number, recent - clock, writes)
        if not writes:
            state.recent_acts[rank, number] = recent
    if not writes:
        state.oldest_act[rank] = 0
    at = carry_nodes(shape, state, table, at + 4, rank, base, writes)
    at = carry_rows(state, table, at, rank, row, writes)
    return carry_active(state, table, at, rank, active, clock, writes)


# ---- Queue, waiting refreshes, sink


@inlined
def carry_queue(state, table, at, size, row, clock, writes):
    """The queued reads, the oldest first."""
    at, tail, first = assume_nonnegative(at), state.tail[0, READS], state.value[PLACE]
    queued = rotate(state.used[0, READS], tail)
    for number in range(size):
        slot = (lowest(queued) + tail if writes else number) & (SLOTS - 1)
        queued &= queued - 1
        bank, counted = slot_bank(state, READS, slot), state.counted[0, READS] >> slot & 1
        place = ((state.slot_row[READS, slot] - row) * BANKS + bank) * 2 + counted
        place = carry(table, at, place, writes)
        arrived = clock + carry(table, at + 1, state.slot_arrived[READS, slot] - clock, writes)
        request = first + carry(table, at + 2, state.slot_request[READS, slot] - first, writes)
        if not writes:
            bank, of_row = place >> 1 & BANKS - 1, (place >> 1) // BANKS + row
            fill_slot(state, READS, 0, slot, bank, of_row, arrived, request)
            state.counted[0, READS] |= (place & 1) << slot
        at += _QUEUED_WORDS
    if not writes:
        state.tail[0, READS] = size
    return at


@inlined
def carry_pending(shape, state, table, at, size, writes):
    """The refreshes that wait."""
    for place in range(size):
        word = carry(table, at, state.pending_class[place] * 2 + bars_queues(state, place), writes)
        bank = assume_nonnegative(carry(table, at + 1, state.pending_bank[place], writes))
        if not writes:
            state.pending_class[place], state.pending_bank[place] = word // 2, bank
            if word % 2 == 0:
                state.awaits_refresh[bank // BANKS_PER_RANK] |= same_banks(shape, bank)
        at += 2
    return at


@inlined
def carry_sink(sink, table, at, over, clock, writes):
    """The bursts in the sink, and its clock."""
    at, value, now = assume_nonnegative(at), sink.value, clock * sink.dram_ticks
    slot, server = value[SLOT] if writes else 0, value[SERVER] if writes else 0
    carry(table, at, now % sink.unit_ticks, writes)
    carry(table, at + 1, value[SERVICE], writes)
    last_start = carry(table, at + 2, max(value[LAST_START] - now, 0), writes)
    carry(table, at + 3, max(value[RELEASE] - now, 0), writes)
    at += 4
    for number in range(sink.depth):
        credit = max(sink.credit[after(slot, number, sink.depth)], over) - clock
        credit = carry(table, at + number, credit, writes)
        if not writes:
            sink.credit[number] = credit + clock
    at += sink.depth
    for number in range(sink.servers):
        free = max(sink.free[after(server, number, sink.servers)] - now, 0)
        free = carry(table, at + number, free, writes)
        if not writes:
            sink.free[number] = free + now
    if not writes:
        value[LAST_START], value[SLOT], value[SERVER] = last_start + now, 0, 0
    return at + sink.servers


# ---- The whole state


@outlined
def write_signature(shape, state, source, sink, table, clock):
    """Write the state's signature behind all that the table has; returns the end of its words."""
    signature, over = assume_nonnegative(table[USED]), expiry(shape, state, clock)
    row = source.place[state.value[PLACE]] >> ROW_SHIFT
    find_busy_banks(shape, state)
    at = signature + WORDS
    table[at] = state.value[WRITE_MODE]
    table[at + 1] = state.queued[READS]
    table[at + 2] = state.pending_size
    table[at + 3] = state.value[DATA_END] - clock
    table[at + 4] = max(state.value[REFRESH_FROM], over) - clock
    table[at + 5] = max(state.value[REFRESH_UNTIL], over) - clock
    at = carry_queue(state, table, at + _HEAD_WORDS, state.queued[READS], row, clock, True)
    if sink.servers > 0:
        at = carry_sink(sink, table, at, over, clock, True)
    at = carry_pending(shape, state, table, at, state.pending_size, True)
    at = carry_controller(shape.step, state, table, at, row, clock, True)
    for rank in range(shape.ranks):
        at = carry_rank(shape, state, table, at, rank, row, (over, clock), True)
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
        at = carry_sink(sink, table, at, over, clock, False)
    state.pending_size = pending
    at = carry_pending(shape, state, table, at, pending, False)
    at = carry_controller(shape.step, state, table, at, row, clock, False)
    for rank in range(shape.ranks):
        at = carry_rank(shape, state, table, at, rank, row, (over, clock), False)
    carry_queue(state, table, queue, size, row, clock, False)


# ---- Fingerprints: a quick test whether a state may have occurred before


@inlined
def arrivals(state, clock):
    """The ages of the queued reads, summed."""
    total, queued = 0, state.used[0, READS]
    while queued != 0:
        total += clock - state.slot_arrived[READS, (lowest(queued) & (SLOTS - 1))]
        queued &= queued - 1
    return total


@inlined
def sink_fingerprint(sink, over, clock):
    """A number that sums up the sink."""
    value, now = sink.value, clock * sink.dram_ticks
    total = now % sink.unit_ticks
    for word in (value[LAST_START] - now, value[RELEASE] - now, value[SERVICE]):
        total = total * _MULTIPLIER + max(word, 0)
    credits, busy = 0, 0
    for number in range(sink.depth):
        credits += max(sink.credit[number] - over, 0)
    for number in range(sink.servers):
        busy += max(sink.free[number] - now, 0)
    return (total * _MULTIPLIER + credits) * _MULTIPLIER + busy


@inlined
def fingerprint(shape, state, source, sink, clock):
    """A number that is quick to compute, equal for equal signatures and seldom equal for others."""
    over, tail = expiry(shape, state, clock), state.tail[0, READS]
    total = source.place[state.value[PLACE]] & (1 << ROW_SHIFT) - 1
    total = total * _MULTIPLIER + (state.value[DATA_END] - clock)
    total = total * _MULTIPLIER + arrivals(state, clock)
    for number in range(shape.ranks):
        rank = assume_nonnegative(number)
        for command in (ACT, PRE, RD):
            waiting = rotate(state.waiting[0, wait_row(READS, rank), command], tail)
            ready = max(state.rank_ready[rank, command] - over, 0)
            total = (total * _MULTIPLIER + waiting) * _MULTIPLIER + ready
    if sink.servers > 0:
        total = total * _MULTIPLIER + sink_fingerprint(sink, over, clock)
    return total * _MULTIPLIER
