"""The state of a device with units in its banks, and the parts that both controllers use."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, inlined, outlined
from ndpsim.dram.banks.lower import NO_COMMAND, BankTables

Ints = NDArray[np.int64]

FAR = 1 << 60
MOST_QUEUED = 33  # a queue takes a request while it holds 32
CAPACITY = 160  # of the active queue, which has no limit of its own: one request a bank and more
PIM, READS, WRITES, ACTIVE = range(4)

# Places in `BankState.value`.
CLOCK, LINE, POSITION, LOGGED, STAMPS, BLOCKED, ENDED, PROGRESS = range(8)
# Places in `BankState.channel[c]`.
(
    REFRESH_DUE,
    REFRESHED,
    MODE,
    WRITE_MODE,
    VERSION,
    LAST_PIM,
    WAKE,
    ON_WAY,
    STAMP,
    ANSWERS,
    FIRST_ANSWER,
    LEFT,
    KNOWN_LINE,
    KNOWN_VERSION,
    KNOWN_NEXT,
    MASTER,
    SEEN_VERSION,
    SEEN_TO,
    SEEN_UNTIL,
    SEEN_LIMITED,
    SEEN_WHILE,
    SEEN_COMMANDS,
) = range(22)
CHANNEL_VALUES = 22
# Whose commands come first in a channel. Alone, a program has its own accesses of the host, in its order.
ALONE, UNIT_FIRST, UNIT_ALONE, HOST_FIRST = range(4)
LINES_FOLLOW, RESTS = 1, 2  # of `BankProgram.more`
_STILL = 1 << 20  # clocks without progress
_LONG_AGO = -(1 << 40)
_FEW_ANSWERS = 64  # at least as many are on their way at most


@by_reference
class BankProgram(NamedTuple):
    """The lines of a program that are in use; arrays are indexed by line."""

    lines: int
    more: int  # LINES_FOLLOW: that are not here yet; RESTS: the device goes on behind the last
    ends: int  # 1: the answers of the last line end the run, whatever is left
    command: Ints  # that serves it, or NO_COMMAND, BARRIER, WAITS
    host: Ints
    blocks: Ints
    size: Ints  # requests of a line in each channel
    place: Ints  # [line, level]
    row: Ints
    column: Ints
    listed: Ints  # the list of channels of a line
    first: Ints  # [list]: where its channels start in the next
    channel: Ints
    code: Ints  # equal for lines that differ in their row and column alone


@by_reference
class BankState(NamedTuple):
    """All that changes. The first index is the channel, of those that differ."""

    value: Ints
    channel: Ints
    after: Ints  # [channel, node, command]: the first clock at which it may come
    window: Ints  # [channel, rule, node, n]: clocks of the last activations
    latest: Ints  # [channel, bank]: number of its last activation
    closed: Ints  # [channel, bank]: number of its last precharge
    row: Ints  # [channel, bank]
    half: Ints  # [channel, bank]: 1: an activation is half done
    several: Ints  # [channel, bank]: 1: a row was opened beside another
    sets: NDArray[
        np.int32
    ]  # [channel, bank, row]: number of the row's last activation, if rows may be several
    begin: Ints  # [channel, queue]: the slot of the first request
    size: Ints  # [channel, queue]
    line: Ints  # [channel, queue, slot]
    arrived: Ints  # [channel, queue, slot]
    column: Ints  # [channel, queue, slot]
    next: Ints  # [channel, queue, slot]: the next command for it
    known: Ints  # [channel, queue, slot]: the version of the rows for which `next` holds
    noted: Ints  # [channel, bank]
    answer: Ints  # [channel, n, 2]: clock and line of what comes back, a ring
    synced: Ints  # [channel]: the last clock of a running data clock
    issued: Ints  # [channel, command]: how many
    log: Ints  # [n, 5]: clock, channel, command, line (-1 - part of a refresh), column


def make_state(tables: BankTables, program: BankProgram, channels: int, log: int) -> BankState:
    """The state before the first clock; `log`: commands of the log."""

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    commands, rules = len(tables.bus), len(tables.window_size)
    sizes = [tables.nodes, *tables.window_size.tolist()]
    rows = tables.rows if tables.row_sets else 1
    state = BankState(
        value=zeros(8),
        channel=zeros(channels, CHANNEL_VALUES),
        after=zeros(channels, tables.nodes, commands),
        window=np.full((channels, rules, tables.nodes, max(sizes[1:], default=1)), _LONG_AGO),
        latest=zeros(channels, tables.banks),
        closed=zeros(channels, tables.banks),
        row=np.full((channels, tables.banks), -1),
        half=zeros(channels, tables.banks),
        several=zeros(channels, tables.banks),
        sets=np.zeros((channels, tables.banks, rows), dtype=np.int32),
        begin=zeros(channels, 4),
        size=zeros(channels, 4),
        line=zeros(channels, 4, CAPACITY),
        arrived=zeros(channels, 4, CAPACITY),
        column=zeros(channels, 4, CAPACITY),
        next=zeros(channels, 4, CAPACITY),
        known=zeros(channels, 4, CAPACITY),
        noted=zeros(channels, tables.banks),
        # Reads that queued writes answer may all be on their way at once.
        answer=zeros(channels, int(program.host.sum()) + _FEW_ANSWERS, 2),
        synced=np.full(channels, -1),
        issued=zeros(channels, commands),
        log=zeros(log, 5),
    )
    state.channel[:, VERSION] = 1
    state.channel[:, MODE] = 1
    state.channel[:, KNOWN_LINE] = -1
    return state


@inlined
def node(tables, family, pseudochannel, rank, group, bank):
    """The node of a family at a place."""
    stride = tables.stride
    return (
        tables.base[family]
        + pseudochannel * stride[family, 0]
        + rank * stride[family, 1]
        + group * stride[family, 2]
        + bank * stride[family, 3]
    )


@inlined
def bank_of(tables, pseudochannel, rank, group, bank):
    """The number of a bank in its channel."""
    shape = tables.shape
    return ((pseudochannel * shape[1] + rank) * shape[2] + group) * shape[3] + bank


@inlined
def bounds(tables, command, level, coordinate):
    """The first coordinate of a level on which a command to this one acts, and the end of these."""
    return (coordinate, coordinate + 1) if tables.fixed[command, level] else (0, tables.shape[level])


@outlined
def window_ready(tables, state, channel, command, pseudochannel, rank, group, bank):
    """The first clock at which windows allow an activation."""
    ready = 0
    for rule in range(len(tables.window_size)):
        weight = tables.window_binds[rule, command]
        if weight == 0:
            continue
        family = tables.window_family[rule]
        for p in range(*bounds(tables, command, 0, pseudochannel)):
            for r in range(*bounds(tables, command, 1, rank)):
                for g in range(*bounds(tables, command, 2, group)):
                    number = node(tables, family, p, r, g, bank)
                    last = state.window[channel, rule, number, weight - 1]
                    ready = max(ready, last + tables.window_clocks[rule])
    return ready


@outlined
def note_window(tables, state, channel, command, clock, pseudochannel, rank, group, bank):
    """Note the activations of a command in the windows of all nodes in which it opens banks."""
    for rule in range(len(tables.window_size)):
        weight = tables.window_weight[rule, command]
        if weight == 0:
            continue
        family, size = tables.window_family[rule], tables.window_size[rule]
        for p in range(*bounds(tables, command, 0, pseudochannel)):
            for r in range(*bounds(tables, command, 1, rank)):
                for g in range(*bounds(tables, command, 2, group)):
                    times = state.window[channel, rule, node(tables, family, p, r, g, bank)]
                    if times[size - 1] == clock:
                        continue  # another bank group of the node
                    for n in range(size - weight):
                        times[n] = times[n + weight]
                    for n in range(size - weight, size):
                        times[n] = clock
    return 0


@inlined
def ready_at(tables, state, channel, command, pseudochannel, rank, group, bank):
    """The first clock at which all rules allow a command at a place."""
    ready = 0
    for index in range(tables.need_first[command], tables.need_first[command + 1]):
        number = node(tables, tables.need_family[index], pseudochannel, rank, group, bank)
        ready = max(ready, state.after[channel, number, command])
    if tables.opens[command] and len(tables.window_size) > 0:
        ready = max(ready, window_ready(tables, state, channel, command, pseudochannel, rank, group, bank))
    return ready


@outlined
def note_rules(tables, state, channel, command, clock, pseudochannel, rank, group, bank):
    """Note the clocks at which rules allow later commands."""
    after = state.after
    for index in range(tables.mark_first[command], tables.mark_first[command + 1]):
        family, following = tables.mark_family[index], tables.mark_next[index]
        until = clock + tables.mark_clocks[index]
        if tables.mark_misplaced[index]:
            # Meant for the bank in all pseudo-channels: its coordinates are read one level too low.
            if pseudochannel < tables.shape[1] and rank < tables.shape[2]:
                for p in range(tables.shape[0]):
                    number = node(tables, family, p, pseudochannel, rank, bank)
                    after[channel, number, following] = max(after[channel, number, following], until)
        else:
            number = node(tables, family, pseudochannel, rank, group, bank)
            after[channel, number, following] = max(after[channel, number, following], until)
    if tables.opens[command] and len(tables.window_size) > 0:
        note_window(tables, state, channel, command, clock, pseudochannel, rank, group, bank)
    return 0


@inlined
def is_open(state, channel, bank):
    """Whether a bank has an open row."""
    return state.latest[channel, bank] > state.closed[channel, bank]


@inlined
def has_row(tables, state, channel, bank, row):
    """Whether an open bank has this row open."""
    if state.row[channel, bank] == row:
        return True
    return (
        tables.row_sets == 1
        and row < tables.rows
        and state.sets[channel, bank, row] > state.closed[channel, bank]
    )


@outlined
def next_command(tables, state, channel, final, row, pseudochannel, rank, group, bank):
    """The command that brings a request nearer to its `final` command, or that command."""
    opening = tables.opened_by[final]
    if opening == NO_COMMAND:
        return final
    closed = half = hit = False
    for p in range(*bounds(tables, final, 0, pseudochannel)):
        for r in range(*bounds(tables, final, 1, rank)):
            for g in range(*bounds(tables, final, 2, group)):
                for b in range(*bounds(tables, final, 3, bank)):
                    number = bank_of(tables, p, r, g, b)
                    if state.half[channel, number]:
                        half = True
                    elif is_open(state, channel, number):
                        if not has_row(tables, state, channel, number, row):
                            return tables.closed_by[final]
                        hit = True
                    else:
                        if tables.row_sets:
                            return opening
                        closed = True
    if half:
        return tables.completed_by[opening]
    if closed:
        return tables.closed_by[final] if hit and tables.reopens == 0 else opening
    return final


@outlined
def all_closed(tables, state, channel):
    """Whether no bank of a channel has an open row, or half of one."""
    for number in range(tables.banks):
        if is_open(state, channel, number) or state.half[channel, number]:
            return False
    return True


@outlined
def note_rows(tables, state, channel, command, row, pseudochannel, rank, group, bank):
    """Open or close the banks on which a command acts."""
    facts = state.channel[channel]
    facts[STAMP] += 1
    facts[VERSION] += 1
    for p in range(*bounds(tables, command, 0, pseudochannel)):
        for r in range(*bounds(tables, command, 1, rank)):
            for g in range(*bounds(tables, command, 2, group)):
                for b in range(*bounds(tables, command, 3, bank)):
                    number = bank_of(tables, p, r, g, b)
                    if tables.closes[command]:
                        state.closed[channel, number] = facts[STAMP]
                        state.half[channel, number] = state.several[channel, number] = 0
                    elif tables.completed_by[command] != NO_COMMAND:
                        state.half[channel, number] = 1
                    else:
                        if is_open(state, channel, number):
                            state.several[channel, number] = 1
                        state.half[channel, number] = 0
                        state.latest[channel, number] = facts[STAMP]
                        state.row[channel, number] = row
                        if tables.row_sets and row < tables.rows:
                            state.sets[channel, number, row] = facts[STAMP]
    return 0


@inlined
def remove(state, channel, queue, slot):
    """Take a request out of a queue, which keeps its order."""
    first, size = state.begin[channel, queue], state.size[channel, queue] - 1
    if slot != first or size == 0:
        state.channel[channel, SEEN_VERSION] = 0
    if slot == first:
        state.begin[channel, queue] = first + 1 if size > 0 else 0
    else:
        for n in range(slot, first + size):
            copy(state, channel, queue, n, n + 1)
    state.size[channel, queue] = size


@inlined
def copy(state, channel, queue, to, slot):
    """Copy a request of a queue from one slot to another."""
    state.line[channel, queue, to] = state.line[channel, queue, slot]
    state.arrived[channel, queue, to] = state.arrived[channel, queue, slot]
    state.column[channel, queue, to] = state.column[channel, queue, slot]
    state.next[channel, queue, to] = state.next[channel, queue, slot]
    state.known[channel, queue, to] = state.known[channel, queue, slot]


@inlined
def append(state, channel, queue, line, column, arrived):
    """Put a request into a queue."""
    first, size = state.begin[channel, queue], state.size[channel, queue]
    if first + size == CAPACITY:
        for n in range(size):
            copy(state, channel, queue, n, first + n)
        first = state.begin[channel, queue] = 0
        state.channel[channel, SEEN_VERSION] = 0
    slot = first + size
    state.line[channel, queue, slot] = line
    state.column[channel, queue, slot] = column
    state.arrived[channel, queue, slot] = arrived
    state.known[channel, queue, slot] = 0
    state.size[channel, queue] = size + 1


@inlined
def log(state, clock, channel, command, line, column):
    """Count a command, and log it if commands are logged."""
    state.issued[channel, command] += 1
    if len(state.log) > 0:
        entry = state.log[state.value[LOGGED]]
        entry[0], entry[1], entry[2], entry[3], entry[4] = clock, channel, command, line, column
        state.value[LOGGED] += 1


@inlined
def review_write_mode(state, channel):
    """Writes go first from 26 on or without reads, until there are fewer than 7 and a read."""
    reads, writes = state.size[channel, READS], state.size[channel, WRITES]
    facts = state.channel[channel]
    if facts[WRITE_MODE] == 0:
        if writes > 25 or reads == 0:
            facts[WRITE_MODE] = 1
            return 1
    elif writes < 7 and reads > 0:
        facts[WRITE_MODE] = 0
        return 1
    return 0


@inlined
def answer_later(state, channel, clock, line):
    """Queue an answer that is there from `clock` on."""
    facts = state.channel[channel]
    slot = (facts[FIRST_ANSWER] + facts[ANSWERS]) % state.answer.shape[1]
    state.answer[channel, slot, 0] = clock
    state.answer[channel, slot, 1] = line
    facts[ANSWERS] += 1


@inlined
def stands_still(tables, state, clock):
    """Whether no request has left its queue for so long that none will."""
    return clock - state.value[PROGRESS] > max(_STILL, 64 * tables.refresh_clocks)


@inlined
def due_refresh(tables, state, channel, clock):
    """Queue refreshes at multiples of their interval; returns the next of these."""
    if tables.refresh_clocks == 0:
        return FAR
    if clock % tables.refresh_clocks == 0:
        state.channel[channel, REFRESH_DUE] += tables.refresh_parts
    return (clock // tables.refresh_clocks + 1) * tables.refresh_clocks
