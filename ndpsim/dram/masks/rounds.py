"""Rounds: passages that end in the situation where they began, made many times at once."""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.known import (
    CLOCK_SUM,
    FINISHED,
    FIRST_READ,
    NOTHING,
    READS,
    SPAN,
    TIMES,
)
from ndpsim.dram.masks.passages import count_served, of_reads, serve_each, span_differs
from ndpsim.dram.masks.state import (
    LONGEST_ROUND,
    RECALLED,
    ROUND,
    ROUND_CLOCK,
)
from ndpsim.dram.masks.words import natural
from ndpsim.dram.state import (
    NEXT_REFRESH,
    PAUSE,
    PLACE,
    READS_SERVED,
    SERVED,
    TAKEN,
)

__all__ = ["clock_at", "go_round", "note_step", "rounds_ahead"]


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
def note_step(state, step, passage, clock):
    """A passage is taken at a clock."""
    state[ROUND + (step & LONGEST_ROUND - 1)] = passage
    state[ROUND_CLOCK + (step & LONGEST_ROUND - 1)] = clock


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
    in_order = offset != NOTHING
    for step in range(first + 1, first + length):
        in_order = in_order and known[passage_at(state, step) + FIRST_READ] == offset
    return in_order


@inlined
def serve_rounds_in_order(state, sink, known, first, length, rounds, clocks):
    """The bursts of rounds that read one request after the other, of each row the last."""
    request = state[PLACE] + known[passage_at(state, first) + FIRST_READ]
    last_read = rounds * length * SPAN - 1
    begun, step, later = 0, first, clocks  # reads before a passage, which it is, clocks since its last time
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
def serve_rounds(state, sink, known, first, length, rounds, clocks):
    """The sink is given the bursts of so many rounds."""
    if is_in_order(state, known, first, length):
        serve_rounds_in_order(state, sink, known, first, length, rounds, clocks)
    else:
        request = state[PLACE]
        for later in range(clocks, rounds * clocks + 1, clocks):
            for step in range(first, first + length):
                clock = clock_at(state, step) + later
                serve_each(sink, known, passage_at(state, step), request, clock)
                request += SPAN
    last = first + length - 1
    while known[passage_at(state, last) + READS] == 0:
        last -= 1
    clock = clock_at(state, last) + rounds * clocks
    count_served(sink, known, passage_at(state, last), rounds * length * SPAN, clock)


@outlined
def go_round(state, sink, known, first, length, rounds, clocks):
    """Make the round of so many passages from a step on so many times more."""
    if sink.servers > 0:
        serve_rounds(state, sink, known, first, length, rounds, clocks)
    for step in range(first, first + length):
        passage, clock = passage_at(state, step), clock_at(state, step) + clocks
        known[passage + TIMES] += rounds
        known[passage + CLOCK_SUM] += rounds * clock + rounds * (rounds - 1) // 2 * clocks
    for total in (TAKEN, PLACE, SERVED, READS_SERVED, RECALLED):
        state[total] += rounds * length * SPAN
