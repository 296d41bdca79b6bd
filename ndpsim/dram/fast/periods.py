"""Periods: transitions that lead back to the signature where they began, repeated many times at once."""

from __future__ import annotations

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.fast.serving import clock_at, serve, transition_at
from ndpsim.dram.fast.transition_table import CLOCK_SUM, SPAN, TIMES
from ndpsim.dram.fast.transitions import record_uncommitted, span_differs
from ndpsim.dram.fast.words import assume_nonnegative
from ndpsim.dram.state import NEXT_REFRESH, PAUSE, PLACE, READS_SERVED, SERVED, TAKEN


@inlined
def equal_requests(source, start, before, most):
    """How many requests from `start` on, at most `most`, have the place of those `before` earlier."""
    count, start = 0, assume_nonnegative(start)
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
    repeats = min(
        min(state.value[NEXT_REFRESH] - clock, state.value[PAUSE] - 1 - clock) // clocks, most // requests
    )
    if repeats <= 0:
        return 0
    first = state.value[PLACE]
    ahead = min(repeats * requests + 1, source.place.shape[0] - first)
    return max(equal_requests(source, first, requests, ahead) - 1, 0) // requests


@outlined
def repeat(state, sink, table, first, length, repeats, clocks, last):
    """Take the transitions of `length` steps from step `first` on, `clocks` long, so many times more.

    last, and what is returned: see `serving.serve`.
    """
    last = serve(state, sink, table, first, length, repeats, clocks, clocks, last)
    for step in range(first, first + length):
        transition, clock = transition_at(state, step), clock_at(state, step) + clocks
        record_uncommitted(table, transition)
        table[transition + TIMES] += repeats
        table[transition + CLOCK_SUM] += repeats * clock + repeats * (repeats - 1) // 2 * clocks
    for total in (TAKEN, PLACE, SERVED, READS_SERVED):
        state.value[total] += repeats * length * SPAN
    state.fast_forwarded += repeats * length * SPAN
    return last
