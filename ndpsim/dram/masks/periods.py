"""Periods: transitions that lead back to the signature where they began, repeated many times at once."""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.state import FAST_FORWARDED, LONGEST_PERIOD, TAKEN_CLOCK, TAKEN_TRANSITION
from ndpsim.dram.masks.transition_table import CLOCK_SUM, READS, SPAN, TIMES
from ndpsim.dram.masks.transitions import count_served, note_uncommitted, serve_reads, span_differs
from ndpsim.dram.masks.words import natural
from ndpsim.dram.state import NEXT_REFRESH, PAUSE, PLACE, READS_SERVED, SERVED, TAKEN

__all__ = ["clock_at", "log_step", "repeat", "repeats_ahead"]


@inlined
def equal_requests(source, start, before, most):
    """How many requests from `start` on, at most `most`, have the place of those `before` earlier."""
    count, start = 0, natural(start)
    while count + SPAN <= most:
        if span_differs(source.place, start + count, source.place, start + count - before, 0) != 0:
            break
        count += SPAN
    while count < most and source.place[start + count] == source.place[start + count - before]:
        count += 1
    return count


@inlined
def repeats_ahead(state, source, requests, clocks, clock, most):
    """How often the period that just ended repeats before a refresh, a pause or another request comes.

    requests, clocks: of the period. most: requests that may be taken and served.
    """
    repeats = min(min(state[NEXT_REFRESH] - clock, state[PAUSE] - 1 - clock) // clocks, most // requests)
    if repeats <= 0:
        return 0
    first = state[PLACE]
    ahead = min(repeats * requests + 1, source.place.shape[0] - first)
    return max(equal_requests(source, first, requests, ahead) - 1, 0) // requests


@inlined
def log_step(state, step, transition, clock):
    """A transition is taken at a clock."""
    state[TAKEN_TRANSITION + (step & LONGEST_PERIOD - 1)] = transition
    state[TAKEN_CLOCK + (step & LONGEST_PERIOD - 1)] = clock


@inlined
def transition_at(state, step):
    """The transition of one of the last steps."""
    return natural(state[TAKEN_TRANSITION + (step & LONGEST_PERIOD - 1)])


@inlined
def clock_at(state, step):
    """The clock of one of the last steps."""
    return state[TAKEN_CLOCK + (step & LONGEST_PERIOD - 1)]


@inlined
def serve_repeats(state, sink, table, first, length, repeats, clocks):
    """Note when the bursts of the repeated period are served."""
    request, last = state[PLACE], first + length - 1
    for later in range(clocks, repeats * clocks + 1, clocks):
        for step in range(first, first + length):
            serve_reads(sink, table, transition_at(state, step), request, clock_at(state, step) + later)
            request += SPAN
    while table[transition_at(state, last) + READS] == 0:
        last -= 1
    clock = clock_at(state, last) + repeats * clocks
    count_served(sink, table, transition_at(state, last), repeats * length * SPAN, clock)


@outlined
def repeat(state, sink, table, first, length, repeats, clocks):
    """Take the transitions of `length` steps from step `first` on, `clocks` long, so many times more."""
    if sink.servers > 0:
        serve_repeats(state, sink, table, first, length, repeats, clocks)
    for step in range(first, first + length):
        transition, clock = transition_at(state, step), clock_at(state, step) + clocks
        note_uncommitted(table, transition)
        table[transition + TIMES] += repeats
        table[transition + CLOCK_SUM] += repeats * clock + repeats * (repeats - 1) // 2 * clocks
    for total in (TAKEN, PLACE, SERVED, READS_SERVED, FAST_FORWARDED):
        state[total] += repeats * length * SPAN
