"""The transition table of one controller: one array of integers, laid out by the constants here; and
transitions, the commands of a channel between two signatures, recorded once and applied again.

A *state signature* contains everything that decides the commands of a channel, from the step that takes the
first request of a span on, but not the rows of banks without reads. It is relative to that step's clock, to
that request and to its row. A *transition* leads from one signature to the signature at the next span, if the
banks without reads have rows as it needs them. Both are records in the array; the place of the first word is
their number, and 0 means none. Records are appended and never removed; when the array is full, no more are
added.

The clocks, ticks and requests of a transition count from its beginning, its rows from the row of the first
request.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.fast.fields import (
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    COMMANDS,
    GROUPS_PER_RANK,
    LONGEST_PERIOD,
    RANKS,
    READS_LOGGED,
    REFRESHES_PENDING,
    REQUEST_CLASSES,
    SLOTS,
    STACKS_PER_RANK,
    TIMED_CLASSES,
)
from ndpsim.dram.fast.fields import READS as QUEUE_OF_READS
from ndpsim.dram.fast.slots import bank_of
from ndpsim.dram.fast.vectors import assume_nonnegative, ones, words_differ
from ndpsim.dram.maintenance import next_refresh, turn_of
from ndpsim.dram.spec import Tables
from ndpsim.dram.state import (
    COUNTERS,
    IDLE_CREDIT,
    IDLE_REFRESH,
    IDLE_ROW,
    NEXT_REFRESH,
    OPEN_CLOCKS,
    OWN_COUNTERS,
    PLACE,
    READ_LATENCY,
    READ_QUEUE,
    READS_SERVED,
    REFRESH_FROM,
    REFRESH_UNTIL,
    REFRESHES,
    ROW_CONFLICTS,
    ROW_HITS,
    ROW_MISSES,
    ROW_SHIFT,
    SERVED,
    TAKEN,
    Commands,
    Policy,
    Source,
    schedule_of,
)

Ints = NDArray[np.int64]

#: Requests between two signatures.
SPAN = 16

#: Counters that transitions add to; OPEN_CLOCKS comes last.
SUMMED = (
    ROW_HITS,
    ROW_MISSES,
    ROW_CONFLICTS,
    READ_LATENCY,
    IDLE_REFRESH,
    IDLE_CREDIT,
    IDLE_ROW,
    READ_QUEUE,
    *range(OWN_COUNTERS, COUNTERS),
    OPEN_CLOCKS,
)

# The header.
USED = 0  # words
UNCOMMITTED = 1  # the last applied transition whose counts are not yet added; 0: none
REACH = 2  # clocks after which a command cannot delay others in its banks and groups; 0: no table
ROOM = 3  # words that the next signature and transition may need
STEPS = 4  # transitions applied so far
BANK_CLASSES = 5  # classes for which banks have times: those of requests, or of refreshes of banks, too
FIRST_FINGERPRINT = 8  # [low bits of a fingerprint]: the last that had them
FINGERPRINTS = 1 << 12
FIRST_BUCKET = FIRST_FINGERPRINT + FINGERPRINTS  # [bits of a fingerprint]: the first of a chain of signatures
BUCKETS = 1 << 12
FIRST_RECORD = FIRST_BUCKET + BUCKETS  # a multiple of LINE

# A signature.
NEXT_IN_BUCKET = 0
WITHOUT_REFRESH = 1  # the first transition from here without a refresh
WITH_REFRESH = 2  # the first of the others
STEP = 3  # transitions applied before it was last reached
LENGTH = 4  # of its words
HASH = 5  # the fingerprint of the state
WORDS = 8  # a multiple of LINE; up to the next multiple, 0 follows them

# A transition.
NEXT_TRANSITION = 0  # from the same signature
TO = 1  # a signature
CLOCKS = 2  # that it takes
DUE = 3  # the clock at which the next refresh was due
DUE_SINCE = 4  # the first clock at which it could have been due without other changes
TURN = 5  # its turn
REFRESHED = 6  # refreshes that are due in it
READS = 7
FIRST_READ = 8  # the first of SPAN reads in order; else NOTHING
LOWEST, HIGHEST = 9, 10  # of the requests that are read
REFRESHED_FROM = 11  # what REFRESH_FROM becomes, NOTHING if it does not change
REFRESHED_UNTIL = 12  # what REFRESH_UNTIL becomes, NOTHING if it does not change
TIMES = 13  # number of times that it was applied since the last commit
CLOCK_SUM = 14  # sum of the clocks at which it was applied
NEXT_UNCOMMITTED = 15
CLOSED = 16  # banks that it closes minus banks that it opens
FOLLOWING = 17  # `request_after` of its last request
FOUND = 18  # what its reads find in banks without reads, see `found_rows`; NOTHING: they go to none
MAINTAINED = 19  # 1: maintenance in it depends on all open banks
CHANGES = 20  # number of banks whose row it opens or closes
PLACES = 21  # [number]: of the requests that it takes, by row from the first
READ = PLACES + SPAN  # [field * reads + number]
FINISHED, REQUEST, LATENCY, GAINS = range(4)  # the tick at which the sink has served it; request; clocks
# GAINS follows the fields of reads: the increases of the counters in SUMMED, and the commands by kind. Then
# come the open banks of each rank when it begins, and of each change the bank and its row, NOTHING: closed.
_OPEN_BANKS = len(SUMMED) + COMMANDS

MOST_READS = 64
_TRANSITION_WORDS = READ + 3 * MOST_READS + _OPEN_BANKS

NOTHING = -(1 << 60)
LINE = 8  # words of a cache line: records begin with one

#: Measured: with less, recording ends before long periods repeat; more only uses memory.
_WORDS = 1 << 19


@inlined
def next_line(place):
    """The first place from one on where a record may begin."""
    return -(-place // LINE) * LINE


def _signature_words(tables: Tables, sink_places: int) -> int:
    """The maximum number of words of a signature of such a channel."""
    nodes = GROUPS_PER_RANK + STACKS_PER_RANK + BANKS_PER_RANK
    rank = 16 + nodes * TIMED_CLASSES + BANKS_PER_RANK * 4
    return WORDS + 32 + RANKS + tables.ranks * rank + 4 * SLOTS + 2 * REFRESHES_PENDING + sink_places


def make_table(tables: Tables, policy: Policy, sink_places: int) -> Ints:
    """An empty table for a channel whose sink has this number of places."""
    refreshes_banks = any(turn.bank >= 0 for turn in schedule_of(tables, policy).turns)
    rows = tables.ranks * (1 + 2 * BANKS_PER_RANK)
    room = _signature_words(tables, sink_places) + _TRANSITION_WORDS + rows + 2 * LINE
    words = max(_WORDS, FIRST_RECORD + 4 * room)
    table = np.empty(words + LINE, dtype=np.int64)  # records are written before they are read
    table = table[-table.ctypes.data // table.itemsize % LINE :][:words]
    table[:FIRST_RECORD] = 0
    table[USED], table[STEPS] = FIRST_RECORD, LONGEST_PERIOD
    table[REACH] = max(tables.gap[2:].max(), tables.sibling_gap[2:].max(), 1)
    table[ROOM] = room
    table[BANK_CLASSES] = TIMED_CLASSES if refreshes_banks else REQUEST_CLASSES
    return table


def can_fast_forward(source: Source, commands: Commands) -> bool:
    """Whether a run may use a table: its source repeats, is not timed, and no commands are recorded."""
    return source.period > 0 and not len(source.cycle) and not len(commands.entry)


def no_table() -> Ints:
    """A table for runs without fast-forward."""
    return np.zeros(FIRST_RECORD, dtype=np.int64)


# ---- Record


@inlined
def open_now(shape, state):
    """How many banks are open."""
    count = 0
    for rank in range(shape.ranks):
        count += ones(state.open_banks[rank])
    return count


@inlined
def found_rows(shape, state, source, first):
    """What the reads of a span find, two bits each: whether the bank is open, and with their row."""
    found = 0
    for number in range(SPAN):
        place = source.place[first + number]
        row = state.open_row[assume_nonnegative(bank_of(shape, place))]
        found |= ((row >= 0) | (row == place >> ROW_SHIFT) << 1) << 2 * number
    return found


@inlined
def reaches_quiet_banks(shape, state, source, first):
    """Whether a read of a span goes to a bank without queued reads, whose row the signature does not have."""
    is_quiet = False
    for number in range(SPAN):
        bank = assume_nonnegative(bank_of(shape, source.place[first + number]))
        is_quiet |= state.of_bank[0, QUEUE_OF_READS, bank] == 0
    return is_quiet


@inlined
def take_rows(shape, state):
    """Take a snapshot of the open rows."""
    for number in range(shape.ranks):
        rank = assume_nonnegative(number)
        state.snapshot_banks[rank] = state.open_banks[rank]
        for bank in range(rank * BANKS_PER_RANK, rank * BANKS_PER_RANK + shape.bankgroups * BANKS_PER_GROUP):
            state.snapshot_rows[bank] = state.open_row[bank]


@inlined
def start_recording(shape, state, source, signature, clock):
    """Take a snapshot from which the next transition is recorded."""
    first = assume_nonnegative(state.value[PLACE])
    if first + SPAN >= source.place.shape[0]:
        state.recording = 0
        return
    state.recording = signature
    state.snapshot_pending = state.pending_size
    state.snapshot_found = NOTHING
    if reaches_quiet_banks(shape, state, source, first):
        state.snapshot_found = found_rows(shape, state, source, first)
    take_rows(shape, state)
    state.snapshot_clock = clock
    state.snapshot_open = open_now(shape, state)
    for place in range(COUNTERS):
        state.snapshot[place] = state.value[place]
    for command in range(COMMANDS):
        state.snapshot[COUNTERS + command] = state.issued[command]


@inlined
def changed(state, place, clock):
    """The value to which a clock has changed since the snapshot; NOTHING if it has not."""
    return state.value[place] - clock if state.value[place] != state.snapshot[place] else NOTHING


@inlined
def write_gains(shape, state, table, transition, clock):
    """Write the gains of the counters; for open rows, as if the transition had begun at clock 0."""
    gain = of_reads(table, transition, GAINS)
    for number in range(len(SUMMED)):
        table[gain + number] = state.value[SUMMED[number]] - state.snapshot[SUMMED[number]]
    closed = state.snapshot_open - open_now(shape, state)
    table[transition + CLOSED] = closed
    table[gain + len(SUMMED) - 1] -= closed * clock
    for command in range(COMMANDS):
        table[gain + len(SUMMED) + command] = state.issued[command] - state.snapshot[COUNTERS + command]


@inlined
def request_after(source, request, row):
    """The row of the next request, and whether it writes: the end of a transition depends on them."""
    place = source.place[request]
    return ((place >> ROW_SHIFT) - row) * 2 + (place & 1)


@inlined
def write_places(source, table, transition, first):
    """Write the places of a transition's requests; returns whether one of them is a write."""
    row, kinds = source.place[first] >> ROW_SHIFT, 0
    for number in range(SPAN):
        place = source.place[first + number]
        table[transition + PLACES + number] = place - (row << ROW_SHIFT)
        kinds |= place
    table[transition + FOLLOWING] = request_after(source, first + SPAN, row)
    return kinds & 1 != 0


@inlined
def of_reads(table, transition, field):
    """The place in the table where a field of a transition's reads begins."""
    return transition + READ + field * table[transition + READS]


@inlined
def write_reads(state, sink, table, transition, first, clock):
    """The reads since the snapshot."""
    reads, before = table[transition + READS], state.snapshot[READS_SERVED]
    finished, request = of_reads(table, transition, FINISHED), of_reads(table, transition, REQUEST)
    latency, in_order = of_reads(table, transition, LATENCY), reads == SPAN
    lowest, highest = -NOTHING, NOTHING
    for number in range(reads):
        log = state.read_log[assume_nonnegative(before + number & READS_LOGGED - 1)]
        table[request + number] = log[0] - first
        table[latency + number] = log[1]
        table[finished + number] = log[2] - clock * sink.dram_ticks
        lowest, highest = min(lowest, log[0] - first), max(highest, log[0] - first)
        in_order = in_order and table[request + number] == table[request] + number
    table[transition + LOWEST] = lowest
    table[transition + HIGHEST] = highest
    table[transition + FIRST_READ] = table[request] if in_order else NOTHING


@inlined
def write_changes(shape, state, table, transition, row):
    """Write the open banks of the snapshot and the rows opened and closed since; returns the end."""
    at = of_reads(table, transition, GAINS) + _OPEN_BANKS
    changes = at + shape.ranks
    for number in range(shape.ranks):
        rank = assume_nonnegative(number)
        table[at + number] = state.snapshot_banks[rank]
        for bank in range(rank * BANKS_PER_RANK, rank * BANKS_PER_RANK + shape.bankgroups * BANKS_PER_GROUP):
            if state.open_row[bank] != state.snapshot_rows[bank]:
                table[changes] = bank
                table[changes + 1] = state.open_row[bank] - row if state.open_row[bank] >= 0 else NOTHING
                changes += 2
    table[transition + CHANGES] = (changes - at - shape.ranks) // 2
    return changes


@inlined
def record(shape, state, source, sink, table, to, clock):
    """Add the transition since the snapshot, unless it has writes or more reads than fit."""
    began, first = state.snapshot_clock, state.snapshot[PLACE]
    reads = state.value[READS_SERVED] - state.snapshot[READS_SERVED]
    refreshes = state.value[REFRESHES] - state.snapshot[REFRESHES]
    if reads > MOST_READS or state.value[PLACE] != first + SPAN:
        return
    transition = assume_nonnegative(table[USED])
    if write_places(source, table, transition, first):
        return
    table[transition + TO] = to
    table[transition + CLOCKS] = clock - began
    table[transition + DUE] = state.snapshot[NEXT_REFRESH] - began
    # The next refresh is due earlier by this, and must not be due before the end.
    earlier = min(state.snapshot[NEXT_REFRESH] - state.due_since, state.value[NEXT_REFRESH] - clock)
    table[transition + DUE_SINCE] = table[transition + DUE] - (earlier if refreshes == 1 else 0)
    table[transition + TURN] = turn_of(state.value, state.snapshot[REFRESHES])
    table[transition + READS] = reads
    table[transition + REFRESHED] = refreshes
    table[transition + REFRESHED_FROM] = changed(state, REFRESH_FROM, began)
    table[transition + REFRESHED_UNTIL] = changed(state, REFRESH_UNTIL, began)
    table[transition + TIMES] = table[transition + CLOCK_SUM] = 0
    write_gains(shape, state, table, transition, began)
    write_reads(state, sink, table, transition, first, began)
    chain = state.recording + (WITH_REFRESH if refreshes > 0 else WITHOUT_REFRESH)
    table[transition + NEXT_TRANSITION] = table[chain]
    table[chain] = transition
    table[transition + FOUND] = state.snapshot_found
    table[transition + MAINTAINED] = refreshes + state.snapshot_pending
    table[USED] = next_line(write_changes(shape, state, table, transition, source.place[first] >> ROW_SHIFT))


# ---- Apply


@inlined
def span_differs(places, at, others, other, shift):
    """0 when the places of a span are the others, shifted."""
    differs, at, other = 0, assume_nonnegative(at), assume_nonnegative(other)
    for row in range(0, SPAN, TIMED_CLASSES):
        last = places[at + row + TIMED_CLASSES - 1] + others[other + row + TIMED_CLASSES - 1]
        differs |= words_differ(places, at + row, others, other + row, shift, last)
    return differs


@inlined
def expects(source, table, transition, first):
    """Whether the next requests are those of a transition."""
    row = source.place[first] >> ROW_SHIFT
    differs = request_after(source, first + SPAN, row) ^ table[transition + FOLLOWING]
    return differs | span_differs(source.place, first, table, transition + PLACES, row << ROW_SHIFT) == 0


@inlined
def finds(shape, state, source, table, transition, first):
    """Whether the rows of banks without reads are as a transition needs them.

    The queue of `state` is not that of the transition's signature: `follow` sets it after its last.
    """
    found = table[transition + FOUND]
    if found != NOTHING and found_rows(shape, state, source, first) != found:
        return False
    differs, at = 0, of_reads(table, transition, GAINS) + _OPEN_BANKS
    if table[transition + MAINTAINED] > 0:
        for rank in range(shape.ranks):
            differs |= table[at + rank] ^ state.open_banks[rank]
    return differs == 0


@inlined
def goes_on(shape, state, source, table, transition, first):
    """Whether the next requests, and the rows that they find, are those of a transition."""
    if not expects(source, table, transition, first):
        return False
    return finds(shape, state, source, table, transition, first)


@inlined
def find(shape, state, source, table, signature, clock):
    """The transition that comes next; 0 if none was recorded."""
    due, first = state.value[NEXT_REFRESH] - clock, state.value[PLACE]
    transition = table[signature + WITHOUT_REFRESH]
    while transition != 0:
        if due >= table[transition + CLOCKS] and goes_on(shape, state, source, table, transition, first):
            return transition
        transition = table[transition + NEXT_TRANSITION]
    turn = turn_of(state.value, state.value[REFRESHES])
    transition = table[signature + WITH_REFRESH]
    while transition != 0:
        same_due = table[transition + DUE_SINCE] <= due <= table[transition + DUE]
        same_refreshes = same_due and table[transition + TURN] == turn
        if same_refreshes and goes_on(shape, state, source, table, transition, first):
            return transition
        transition = table[transition + NEXT_TRANSITION]
    return 0


@inlined
def record_refresh(state, table, transition, clock):
    """The refreshes that fall due in a transition."""
    if table[transition + REFRESHED_FROM] != NOTHING:
        since_due = table[transition + REFRESHED_FROM] - table[transition + DUE]
        state.value[REFRESH_FROM] = state.value[NEXT_REFRESH] + since_due
    if table[transition + REFRESHED_UNTIL] != NOTHING:
        state.value[REFRESH_UNTIL] = clock + table[transition + REFRESHED_UNTIL]
    if table[transition + REFRESHED] > 0:
        state.value[REFRESHES] += table[transition + REFRESHED]
        state.value[NEXT_REFRESH] = next_refresh(state.value)


@inlined
def record_uncommitted(table, transition):
    """Record that the next commit must add the counts of an applied transition."""
    if table[transition + TIMES] == 0:
        table[transition + NEXT_UNCOMMITTED] = table[UNCOMMITTED]
        table[UNCOMMITTED] = transition


@inlined
def change_rows(shape, state, table, transition, row):
    """Open and close the rows that a transition opens and closes."""
    at = of_reads(table, transition, GAINS) + _OPEN_BANKS + shape.ranks
    for change in range(at, at + 2 * table[transition + CHANGES], 2):
        bank, opened = assume_nonnegative(table[change]), table[change + 1] != NOTHING
        rank, bit = bank // BANKS_PER_RANK, 1 << bank % BANKS_PER_RANK
        state.open_row[bank] = row + table[change + 1] if opened else -1
        state.open_banks[rank] = state.open_banks[rank] & ~bit | (bit if opened else 0)


@inlined
def take(shape, state, source, table, transition, clock):
    """Apply a transition, except for its bursts (`serve`) and its counts (`commit`)."""
    reads = table[transition + READS]
    change_rows(shape, state, table, transition, source.place[state.value[PLACE]] >> ROW_SHIFT)
    record_uncommitted(table, transition)
    table[transition + TIMES] += 1
    table[transition + CLOCK_SUM] += clock
    state.fast_forwarded += reads
    state.value[TAKEN] += SPAN
    state.value[PLACE] += SPAN
    state.value[SERVED] += reads
    state.value[READS_SERVED] += reads
    record_refresh(state, table, transition, clock)


@inlined
def count_latencies(latencies, table, transition, times):
    """Count the latencies of a transition's reads, times the number of its applications."""
    last = latencies.shape[0] - 1
    if last == 0:
        latencies[0] += times * table[transition + READS]
        return
    latency = of_reads(table, transition, LATENCY)
    for number in range(table[transition + READS]):
        latencies[min(table[latency + number], last)] += times


@outlined
def commit(state, latencies, table):
    """Add the counts of the transitions that were applied since the last commit."""
    transition = table[UNCOMMITTED]
    while transition != 0:
        times, gain = table[transition + TIMES], of_reads(table, transition, GAINS)
        for number in range(len(SUMMED)):
            state.value[SUMMED[number]] += times * table[gain + number]
        state.value[OPEN_CLOCKS] += table[transition + CLOSED] * table[transition + CLOCK_SUM]
        for command in range(COMMANDS):
            state.issued[command] += times * table[gain + len(SUMMED) + command]
        count_latencies(latencies, table, transition, times)
        table[transition + TIMES] = table[transition + CLOCK_SUM] = 0
        transition = table[transition + NEXT_UNCOMMITTED]
    table[UNCOMMITTED] = 0
