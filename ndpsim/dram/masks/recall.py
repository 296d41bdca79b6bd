"""Exact fast-forward: what goes on as it went before is not stepped through again.

At every step that takes the first request of a span, `describe` writes down the channel's situation. When
the same was known, and the requests to come and the next refresh stand as they stood when a passage from
it was seen, then all goes as it went, shifted: `follow` adds what that passage added, and stands before
the next. Only where no passage is known does the channel step, and `learn` adds the one that it finds.
Whatever a controller decides is in the words of a situation, so nothing else has to be proved.
"""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram import sink as sinks
from ndpsim.dram.maintenance import next_refresh
from ndpsim.dram.masks.known import (
    BUCKETS,
    CLOCK_SUM,
    CLOCKS,
    CLOSED,
    COMING,
    DUE,
    FINISHED,
    FIRST_BUCKET,
    FIRST_READ,
    GAINS,
    LAST_SEEN,
    LATENCY,
    LENGTH,
    LINE,
    MOST_READS,
    NEXT_IN_BUCKET,
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
    ROOM,
    SEEN,
    SEEN_BEFORE,
    SPAN,
    STEP,
    STEPS,
    SUM,
    SUMMED,
    TIMES,
    TO,
    TURN,
    USED,
    WORDS,
)
from ndpsim.dram.masks.rows import rows_differ
from ndpsim.dram.masks.situations import at_offset, can_describe, describe, offset_of, resume
from ndpsim.dram.masks.state import (
    IN_VAIN,
    ISSUED,
    KINDS,
    LAST_REST,
    LEARNING,
    LONGEST_ROUND,
    MARK,
    OPEN_BANKS,
    READ_LOG,
    READ_LOG_FIELDS,
    READS_LOGGED,
    RECALLED,
    ROUND,
    ROUND_CLOCK,
    SNAPSHOT,
    SNAPSHOT_CLOCK,
    SNAPSHOT_OPEN,
)
from ndpsim.dram.masks.words import natural, ones, ranks_of
from ndpsim.dram.state import (
    ALL_BANK,
    COUNTED_UNTIL,
    COUNTERS,
    NEXT_REFRESH,
    OPEN_CLOCKS,
    PAUSE,
    PLACE,
    READS_SERVED,
    REFRESH_FROM,
    REFRESH_UNTIL,
    REFRESHES,
    ROW_SHIFT,
    SERVED,
    TAKEN,
)

__all__ = ["next_mark", "recall", "settle"]

# In spans: how long learning goes on in vain, and how long it rests then.
_PATIENCE = 256
_SHORTEST_REST, _LONGEST_REST = 64, 4096


@inlined
def next_mark(state):
    """The number of the next request that begins a span."""
    return state[TAKEN] + SPAN - state[PLACE] % SPAN


@inlined
def next_line(place):
    """The first place from one on where a record may begin."""
    return -(-place // LINE) * LINE


# ---- Situations


@inlined
def write_sum(known, situation):
    """A number by which situations are told apart before their words are compared."""
    total, situation = 0, natural(situation)
    for place in range(known[situation + LENGTH]):
        total += known[situation + WORDS + place] << (place & 31)
    known[situation + SUM] = total


@inlined
def bucket_of(known, situation):
    """Where situations with such a sum are looked for."""
    total = known[situation + SUM]
    return FIRST_BUCKET + ((total ^ total >> 17) * 0x9E3779B1 >> 20 & BUCKETS - 1)


@inlined
def same_words(known, one, other):
    """Whether two situations are the same: also in LENGTH and SUM, which stand before the words."""
    differs, one, other = 0, natural(one), natural(other)
    for place in range(LENGTH, WORDS + known[one + LENGTH]):
        differs |= known[one + place] ^ known[other + place]
    return differs == 0


@outlined
def situation_now(policy, shape, state, source, sink, known, clock):
    """The channel's situation, perhaps a new one; 0 when there is none or no room for it."""
    if known[USED] + known[ROOM] > known.shape[0] or not can_describe(shape, state):
        return 0
    new = natural(known[USED])
    end = describe(policy, shape, state, source, sink, known, clock)
    write_sum(known, new)
    bucket = bucket_of(known, new)
    situation = known[bucket]
    while situation != 0:
        if known[situation + SUM] == known[new + SUM] and same_words(known, situation, new):
            return situation
        situation = natural(known[situation + NEXT_IN_BUCKET])
    known[new + NEXT_IN_BUCKET] = known[bucket]
    known[new + QUIET] = known[new + REFRESHING] = known[new + STEP] = 0
    known[bucket] = new
    known[USED] = next_line(end)
    return new


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
def write_reads(state, source, sink, known, passage, first, clock):
    """The reads since the snapshot."""
    reads, before = known[passage + READS], state[SNAPSHOT + READS_SERVED]
    finished, request = of_reads(known, passage, FINISHED), of_reads(known, passage, REQUEST)
    latency = of_reads(known, passage, LATENCY)
    in_order = reads == SPAN
    for number in range(reads):
        log = READ_LOG + (before + number & READS_LOGGED - 1) * READ_LOG_FIELDS
        known[request + number] = offset_of(source, state[log], first)
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
    write_reads(state, source, sink, known, passage, first, began)
    chain = state[LEARNING] + (REFRESHING if refreshes > 0 else QUIET)
    known[passage + NEXT_PASSAGE] = known[chain]
    known[chain] = passage
    known[USED] = next_line(of_reads(known, passage, GAINS) + len(SUMMED) + KINDS)


# ---- Follow


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
def serve_in_order(source, sink, known, passage, first, clock):
    """The bursts of reads one after the other, of each row the last."""
    request, now = first + known[passage + FIRST_READ], clock * sink.dram_ticks
    for row in range(sink.first_row[request], sink.last_row[request + SPAN - 1] + 1):
        number = min(sink.row_end[row] - request, SPAN - 1)
        if sink.last_row[request + number] < row:
            continue  # a row of other lanes
        finish = now + known[of_reads(known, passage, FINISHED) + number]
        sink.done[row] = max(sink.done[row], finish)


@inlined
def serve_each(source, sink, known, passage, first, clock):
    """The bursts of all reads."""
    now, offset = clock * sink.dram_ticks, of_reads(known, passage, REQUEST)
    finished = of_reads(known, passage, FINISHED)
    for number in range(known[passage + READS]):
        request = at_offset(source, first, known[offset + number])
        sinks.note_rows(sink, request, now + known[finished + number])


@inlined
def serve(source, sink, known, passage, first, clock):
    """The sink is given the bursts of a passage."""
    if first + known[passage + FIRST_READ] >= 0:
        serve_in_order(source, sink, known, passage, first, clock)
    else:
        serve_each(source, sink, known, passage, first, clock)


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
def take(policy, shape, state, source, sink, known, passage, clock):
    """Go where a passage leads; what it gained is added when the run ends."""
    reads = known[passage + READS]
    if sink.servers > 0:
        serve(source, sink, known, passage, state[PLACE], clock)
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


# ---- Rounds: passages that end where they began


@inlined
def alike(source, start, before, most):
    """How many requests, from one on and at most so many, have the place of those so far before them."""
    count, start = 0, natural(start)
    while count + SPAN <= most:
        if span_differs(source.place, start + count, source.place, start + count - before, 0) != 0:
            break
        count += SPAN
    while count < most and source.place[start + count] == source.place[start + count - before]:
        count += 1
    return count


@inlined
def rounds_ahead(state, source, requests, clocks, clock, most):
    """How often a round that was just made is made again before anything else comes.

    requests, clocks: of the round. most: requests that may be taken and served.
    """
    rounds = min(min(state[NEXT_REFRESH] - clock, state[PAUSE] - 1 - clock) // clocks, most // requests)
    if rounds <= 0:
        return 0
    first = state[PLACE]
    same = alike(source, first, requests, min(rounds * requests + 1, source.place.shape[0] - first))
    return max(same - 1, 0) // requests


@inlined
def passage_at(state, step):
    """One of the passages that were taken last."""
    return natural(state[ROUND + (step & LONGEST_ROUND - 1)])


@inlined
def clock_at(state, step):
    """When it was taken."""
    return state[ROUND_CLOCK + (step & LONGEST_ROUND - 1)]


@inlined
def is_in_order(state, known, first, length):
    """Whether a round reads one request after the other."""
    offset = known[passage_at(state, first) + FIRST_READ]
    in_order = state[PLACE] + offset >= 0
    for step in range(first + 1, first + length):
        in_order = in_order and known[passage_at(state, step) + FIRST_READ] == offset
    return in_order


@inlined
def serve_rounds_in_order(state, source, sink, known, first, length, rounds, clocks):
    """The bursts of rounds that read one request after the other, of each row the last."""
    request = state[PLACE] + known[passage_at(state, first) + FIRST_READ]
    last_read = rounds * length * SPAN - 1
    begun, step, later = (
        0,
        first,
        clocks,
    )  # reads before the passage, which it is, how long after the last time
    for row in range(sink.first_row[request], sink.last_row[request + last_read] + 1):
        read = min(sink.row_end[row] - request, last_read)
        if sink.last_row[request + read] < row:
            continue  # a row of other lanes
        while read >= begun + SPAN:
            begun, step = begun + SPAN, step + 1
            if step == first + length:
                step, later = first, later + clocks
        now = (clock_at(state, step) + later) * sink.dram_ticks
        finish = now + known[of_reads(known, passage_at(state, step), FINISHED) + read - begun]
        sink.done[row] = max(sink.done[row], finish)


@inlined
def serve_rounds(state, source, sink, known, first, length, rounds, clocks):
    """The sink is given the bursts of so many rounds."""
    if is_in_order(state, known, first, length):
        serve_rounds_in_order(state, source, sink, known, first, length, rounds, clocks)
    else:
        request = state[PLACE]
        for later in range(clocks, rounds * clocks + 1, clocks):
            for step in range(first, first + length):
                clock = clock_at(state, step) + later
                serve_each(source, sink, known, passage_at(state, step), request, clock)
                request += SPAN
    last = first + length - 1
    clock = clock_at(state, last) + rounds * clocks
    count_served(sink, known, passage_at(state, last), rounds * length * SPAN, clock)


@outlined
def go_round(state, source, sink, known, first, length, rounds, clocks):
    """Make the round of so many passages from a step on so many times more."""
    if sink.servers > 0:
        serve_rounds(state, source, sink, known, first, length, rounds, clocks)
    for step in range(first, first + length):
        passage, clock = passage_at(state, step), clock_at(state, step) + clocks
        known[passage + TIMES] += rounds
        known[passage + CLOCK_SUM] += rounds * clock + rounds * (rounds - 1) // 2 * clocks
    for total in (TAKEN, PLACE, SERVED, READS_SERVED, RECALLED):
        state[total] += rounds * length * SPAN


@outlined
def follow(policy, shape, state, source, sink, known, situation, clock, until_served, until_taken):
    """Take passages as long as they are known: (the situation after the last, its clock)."""
    step, quiet = known[STEPS] + 1, 0  # one that no other situation has; passages since a refresh
    known[situation + STEP] = step
    while state[PLACE] + SPAN < source.place.shape[0]:
        passage = natural(find(policy, shape, state, source, known, situation, clock))
        # At its end another request must be there, and one to be served.
        most_taken = min(until_taken, source.admitted[0]) - 1 - state[TAKEN] - SPAN
        most_served = until_served - 1 - state[SERVED] - known[passage + READS]
        if passage == 0 or min(most_taken, most_served) < 0:
            break
        if clock + known[passage + CLOCKS] >= state[PAUSE]:
            break
        take(policy, shape, state, source, sink, known, passage, clock)
        state[ROUND + (step & LONGEST_ROUND - 1)] = passage
        state[ROUND_CLOCK + (step & LONGEST_ROUND - 1)] = clock
        clock, situation, step = clock + known[passage + CLOCKS], known[passage + TO], step + 1
        quiet = 0 if known[passage + REFRESHED] > 0 else quiet + 1
        length = step - known[situation + STEP]
        known[situation + STEP] = step
        if length <= min(quiet, LONGEST_ROUND):
            first, clocks = step - length, clock - clock_at(state, step - length)
            rounds = rounds_ahead(state, source, length * SPAN, clocks, clock, min(most_taken, most_served))
            if rounds > 0:
                go_round(state, source, sink, known, first, length, rounds, clocks)
                clock += rounds * clocks
            quiet = 0
    known[STEPS] = step
    return situation, clock


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


@inlined
def set_mark(state, spans):
    """Say when to ask again, after so many spans were recalled: later and later where learning is in vain."""
    state[MARK] = next_mark(state)
    state[IN_VAIN] = max(state[IN_VAIN] + 1 - spans, 0)
    if state[IN_VAIN] == 0:
        state[LAST_REST] = 0
    elif state[IN_VAIN] > _PATIENCE:
        rest = min(max(2 * state[LAST_REST], _SHORTEST_REST), _LONGEST_REST)
        state[MARK] += rest * SPAN
        state[LEARNING], state[IN_VAIN], state[LAST_REST] = 0, _PATIENCE // 2, rest


@outlined
def recall(policy, shape, state, source, sink, known, clock, until_served, until_taken):
    """At the step that takes a request of a new span: go on as before; returns the clock of the next step."""
    situation, taken = situation_now(policy, shape, state, source, sink, known, clock), state[TAKEN]
    if situation == 0:
        state[LEARNING] = 0
        set_mark(state, 0)
        return clock
    if state[LEARNING] != 0:
        learn(policy, shape, state, source, sink, known, situation, clock)
    reached, at = follow(
        policy, shape, state, source, sink, known, situation, clock, until_served, until_taken
    )
    if at > clock:
        state[COUNTED_UNTIL] = at - 1
        resume(policy, shape, state, source, sink, known, reached, at)
    begin(shape, state, reached, at)
    set_mark(state, (state[TAKEN] - taken) // SPAN)
    return at
