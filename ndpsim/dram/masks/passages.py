"""Passages: what a channel did from one situation to the next, learned once and taken again.

All in them is counted from where they begin: clocks, ticks, requests, and rows from the row of the first.
"""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram import sink as sinks
from ndpsim.dram.maintenance import next_refresh
from ndpsim.dram.masks.known import (
    CLOCK_SUM,
    CLOCKS,
    CLOSED,
    COMING,
    DUE,
    FINISHED,
    FIRST_READ,
    GAINS,
    LAST_SEEN,
    LATENCY,
    LINE,
    MOST_READS,
    NEXT_PASSAGE,
    NOTHING,
    PLACES,
    QUIET,
    READ,
    READS,
    REFRESHED,
    REFRESHED_FROM,
    REFRESHED_UNTIL,
    REFRESHING,
    REQUEST,
    SEEN,
    SEEN_BEFORE,
    SPAN,
    SUMMED,
    TIMES,
    TO,
    TURN,
    USED,
)
from ndpsim.dram.masks.rows import rows_differ
from ndpsim.dram.masks.state import (
    ISSUED,
    KINDS,
    LEARNING,
    OPEN_BANKS,
    READ_LOG,
    READ_LOG_FIELDS,
    READS_LOGGED,
    RECALLED,
    SNAPSHOT,
    SNAPSHOT_CLOCK,
    SNAPSHOT_OPEN,
)
from ndpsim.dram.masks.words import natural, ones, ranks_of
from ndpsim.dram.state import (
    ALL_BANK,
    COUNTERS,
    NEXT_REFRESH,
    OPEN_CLOCKS,
    PLACE,
    READS_SERVED,
    REFRESH_FROM,
    REFRESH_UNTIL,
    REFRESHES,
    ROW_SHIFT,
    SERVED,
    TAKEN,
)

__all__ = [
    "begin",
    "count_served",
    "find",
    "learn",
    "next_line",
    "of_reads",
    "serve_each",
    "settle",
    "span_differs",
    "take",
]


@inlined
def next_line(place):
    """The first place from one on where a record may begin."""
    return -(-place // LINE) * LINE


# ---- Learn


@inlined
def turn_of(shape, policy, refreshes):
    """What is refreshed next, among what is refreshed in turn: it says when those after it fall due, too."""
    return 0 if policy.refresh == ALL_BANK else refreshes % (ranks_of(shape) * shape.banks_per_group)


@inlined
def open_now(shape, state):
    """How many banks are open."""
    count = 0
    for rank in range(ranks_of(shape)):
        count += ones(state[OPEN_BANKS + rank])
    return count


@inlined
def begin(shape, state, situation, clock):
    """What happens from now on is to become known."""
    state[LEARNING] = situation
    state[SNAPSHOT_CLOCK] = clock
    state[SNAPSHOT_OPEN] = open_now(shape, state)
    for place in range(COUNTERS):
        state[SNAPSHOT + place] = state[place]
    for kind in range(KINDS):
        state[SNAPSHOT + COUNTERS + kind] = state[ISSUED + kind]


@inlined
def changed(state, place, clock):
    """What a clock has changed to since the snapshot; NOTHING if it has not."""
    return state[place] - clock if state[place] != state[SNAPSHOT + place] else NOTHING


@inlined
def write_gains(shape, state, known, passage, clock):
    """What the counters have gained; rows that were opened and closed, as if it had begun at clock 0."""
    gain = of_reads(known, passage, GAINS)
    for number in range(len(SUMMED)):
        known[gain + number] = state[SUMMED[number]] - state[SNAPSHOT + SUMMED[number]]
    closed = state[SNAPSHOT_OPEN] - open_now(shape, state)
    known[passage + CLOSED] = closed
    known[gain + len(SUMMED) - 1] -= closed * clock
    for kind in range(KINDS):
        known[gain + len(SUMMED) + kind] = state[ISSUED + kind] - state[SNAPSHOT + COUNTERS + kind]


@inlined
def coming(source, request, row):
    """What the end of a passage depends on of the next request: its row, and whether it writes."""
    place = source.place[request]
    return ((place >> ROW_SHIFT) - row) * 2 + (place & 1)


@inlined
def write_places(source, known, passage, first):
    """The requests that a passage takes; returns whether a write is among them."""
    row, kinds = source.place[first] >> ROW_SHIFT, 0
    for number in range(SPAN):
        place = source.place[first + number]
        known[passage + PLACES + number] = place - (row << ROW_SHIFT)
        kinds |= place
    known[passage + COMING] = coming(source, first + SPAN, row)
    return kinds & 1 != 0


@inlined
def of_reads(known, passage, field):
    """Where a field of a passage's reads begins."""
    return passage + READ + field * known[passage + READS]


@inlined
def write_reads(state, sink, known, passage, first, clock):
    """The reads since the snapshot."""
    reads, before = known[passage + READS], state[SNAPSHOT + READS_SERVED]
    finished, request = of_reads(known, passage, FINISHED), of_reads(known, passage, REQUEST)
    latency = of_reads(known, passage, LATENCY)
    in_order = reads == SPAN
    for number in range(reads):
        log = READ_LOG + (before + number & READS_LOGGED - 1) * READ_LOG_FIELDS
        known[request + number] = state[log] - first
        known[latency + number] = state[log + 1]
        known[finished + number] = state[log + 2] - clock * sink.dram_ticks
        in_order = in_order and known[request + number] == known[request] + number
    known[passage + FIRST_READ] = known[request] if in_order else NOTHING


@inlined
def see(known, passage):
    """A passage has come for the first time in this run."""
    known[passage + SEEN] = 1
    known[passage + SEEN_BEFORE] = known[LAST_SEEN]
    known[LAST_SEEN] = passage


@inlined
def learn(policy, shape, state, source, sink, known, to, clock):
    """Note the passage since the snapshot."""
    began, first = state[SNAPSHOT_CLOCK], state[SNAPSHOT + PLACE]
    reads = state[READS_SERVED] - state[SNAPSHOT + READS_SERVED]
    refreshes = state[REFRESHES] - state[SNAPSHOT + REFRESHES]
    if reads > MOST_READS or state[PLACE] != first + SPAN:
        return
    passage = natural(known[USED])
    if write_places(source, known, passage, first):
        return
    known[passage + TO] = to
    known[passage + CLOCKS] = clock - began
    known[passage + DUE] = state[SNAPSHOT + NEXT_REFRESH] - began
    known[passage + TURN] = turn_of(shape, policy, state[SNAPSHOT + REFRESHES])
    known[passage + READS] = reads
    known[passage + REFRESHED] = refreshes
    known[passage + REFRESHED_FROM] = changed(state, REFRESH_FROM, began)
    known[passage + REFRESHED_UNTIL] = changed(state, REFRESH_UNTIL, began)
    known[passage + TIMES] = known[passage + CLOCK_SUM] = 0
    see(known, passage)
    write_gains(shape, state, known, passage, began)
    write_reads(state, sink, known, passage, first, began)
    chain = state[LEARNING] + (REFRESHING if refreshes > 0 else QUIET)
    known[passage + NEXT_PASSAGE] = known[chain]
    known[chain] = passage
    known[USED] = next_line(of_reads(known, passage, GAINS) + len(SUMMED) + KINDS)


# ---- Take


@inlined
def span_differs(places, at, others, other, shift):
    """0 when the places of a span are the others, shifted."""
    differs, at, other = 0, natural(at), natural(other)
    for row in range(0, SPAN, KINDS):
        last = places[at + row + KINDS - 1] + others[other + row + KINDS - 1]
        differs |= rows_differ(places, at + row, others, other + row, shift, last)
    return differs


@inlined
def expects(source, known, passage, first):
    """Whether the requests to come are those of a passage."""
    row = source.place[first] >> ROW_SHIFT
    differs = coming(source, first + SPAN, row) ^ known[passage + COMING]
    return differs | span_differs(source.place, first, known, passage + PLACES, row << ROW_SHIFT) == 0


@inlined
def find(policy, shape, state, source, known, situation, clock):
    """The passage that comes next; 0 if it is not known."""
    due, first = state[NEXT_REFRESH] - clock, state[PLACE]
    passage = known[situation + QUIET]
    while passage != 0:
        if due >= known[passage + CLOCKS] and expects(source, known, passage, first):
            return passage
        passage = known[passage + NEXT_PASSAGE]
    turn = turn_of(shape, policy, state[REFRESHES])
    passage = known[situation + REFRESHING]
    while passage != 0:
        refreshed_alike = known[passage + DUE] == due and known[passage + TURN] == turn
        if refreshed_alike and expects(source, known, passage, first):
            return passage
        passage = known[passage + NEXT_PASSAGE]
    return 0


@inlined
def serve_in_order(sink, known, passage, first, clock):
    """The bursts of reads one after the other, of each row the last."""
    request, now = first + known[passage + FIRST_READ], clock * sink.dram_ticks
    for row in range(sink.first_row[request], sink.last_row[request + SPAN - 1] + 1):
        number = min(sink.row_end[row] - request, SPAN - 1)
        if sink.last_row[request + number] < row:
            continue  # a row of other lanes
        finish = now + known[of_reads(known, passage, FINISHED) + number]
        sink.done[row] = max(sink.done[row], finish)


@inlined
def serve_each(sink, known, passage, first, clock):
    """The bursts of all reads."""
    now, offset = clock * sink.dram_ticks, of_reads(known, passage, REQUEST)
    finished = of_reads(known, passage, FINISHED)
    for number in range(known[passage + READS]):
        sinks.note_rows(sink, first + known[offset + number], now + known[finished + number])


@inlined
def serve(sink, known, passage, first, clock):
    """The sink is given the bursts of a passage."""
    if known[passage + FIRST_READ] != NOTHING:
        serve_in_order(sink, known, passage, first, clock)
    else:
        serve_each(sink, known, passage, first, clock)


@inlined
def count_served(sink, known, passage, reads, clock):
    """So many bursts have been served, the last of them in a passage from a clock on."""
    last = of_reads(known, passage, FINISHED) + known[passage + READS] - 1
    if reads > 0:
        sink.value[sinks.FINISHED] = clock * sink.dram_ticks + known[last]
    sink.value[sinks.BUSY] += reads * sink.value[sinks.SERVICE]
    sink.value[sinks.TAKEN] += reads


@inlined
def note_refresh(policy, shape, state, known, passage, clock):
    """What a passage leaves behind of refreshes."""
    if known[passage + REFRESHED_FROM] != NOTHING:
        state[REFRESH_FROM] = clock + known[passage + REFRESHED_FROM]
    if known[passage + REFRESHED_UNTIL] != NOTHING:
        state[REFRESH_UNTIL] = clock + known[passage + REFRESHED_UNTIL]
    if known[passage + REFRESHED] > 0:
        state[REFRESHES] += known[passage + REFRESHED]
        state[NEXT_REFRESH] = next_refresh(shape, policy.refresh, state[REFRESHES])


@inlined
def take(policy, shape, state, sink, known, passage, clock):
    """Go where a passage leads; what it gained is added when the run ends."""
    reads = known[passage + READS]
    if sink.servers > 0:
        serve(sink, known, passage, state[PLACE], clock)
        count_served(sink, known, passage, reads, clock)
    # What was seen in an earlier run only is not counted as recalled: counts do not depend on earlier runs.
    if known[passage + SEEN]:
        state[RECALLED] += reads
    else:
        see(known, passage)
    known[passage + TIMES] += 1
    known[passage + CLOCK_SUM] += clock
    state[TAKEN] += SPAN
    state[PLACE] += SPAN
    state[SERVED] += reads
    state[READS_SERVED] += reads
    note_refresh(policy, shape, state, known, passage, clock)


@inlined
def count_latencies(latencies, known, passage, times):
    """Count the reads of a passage that was taken so many times."""
    last = latencies.shape[0] - 1
    if last == 0:
        latencies[0] += times * known[passage + READS]
        return
    latency = of_reads(known, passage, LATENCY)
    for number in range(known[passage + READS]):
        latencies[min(known[latency + number], last)] += times


@outlined
def settle(state, latencies, known):
    """Add what the passages gained that were taken in this run, and begin anew."""
    passage = known[LAST_SEEN]
    while passage != 0:
        times, gain = known[passage + TIMES], of_reads(known, passage, GAINS)
        for number in range(len(SUMMED)):
            state[SUMMED[number]] += times * known[gain + number]
        state[OPEN_CLOCKS] += known[passage + CLOSED] * known[passage + CLOCK_SUM]
        for kind in range(KINDS):
            state[ISSUED + kind] += times * known[gain + len(SUMMED) + kind]
        count_latencies(latencies, known, passage, times)
        known[passage + TIMES] = known[passage + CLOCK_SUM] = known[passage + SEEN] = 0
        passage = known[passage + SEEN_BEFORE]
    known[LAST_SEEN] = 0
