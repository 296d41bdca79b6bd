"""Exact fast-forward: commands that repeat earlier commands of the same run are not simulated again.

At a step that takes the first request of a span, the controller computes its state signature. If the table
has the same signature, with a transition whose requests and refreshes are the next ones, the same commands
follow as before, only later: the transition's counts are added, and the controller has the state of the next
signature. Otherwise the controller steps, and its transition is recorded.

The signature, and what a transition finds in banks without reads, are everything that decides commands, so
commands are equal where both are. To save time, a signature is computed only if the state's fingerprint
occurred before, and lookups pause while they cost more than they save.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.fast.fields import LONGEST_PERIOD
from ndpsim.dram.fast.hits import only_hits, run_hits
from ndpsim.dram.fast.serving import clock_at, log_step, note_last, serve, transition_at
from ndpsim.dram.fast.signature import fingerprint, has_signature, restore, write_signature
from ndpsim.dram.fast.transition_table import (
    BUCKETS,
    CHANGES,
    CLOCK_SUM,
    CLOCKS,
    FINGERPRINTS,
    FIRST_BUCKET,
    FIRST_FINGERPRINT,
    FIRST_RECORD,
    FOUND,
    HASH,
    LENGTH,
    LINE,
    MAINTAINED,
    NEXT_IN_BUCKET,
    NOTHING,
    REACH,
    READS,
    ROOM,
    SPAN,
    STEP,
    STEPS,
    TIMES,
    TO,
    USED,
    WITH_REFRESH,
    WITHOUT_REFRESH,
    WORDS,
    find,
    next_line,
    record,
    record_uncommitted,
    span_differs,
    start_recording,
    take,
)
from ndpsim.dram.fast.vectors import assume_nonnegative, words_differ
from ndpsim.dram.state import COUNTED_UNTIL, FAR, NEXT_REFRESH, PAUSE, PLACE, READS_SERVED, SERVED, TAKEN

__all__ = ["FastForward", "fast_forward", "first_lookup", "only_hits", "run_hits"]


class FastForward(NamedTuple):
    """A run with a transition table, for open rows and queues of one chunk."""

    table: NDArray[np.int64]


# Measured times in units of about 0.1 microseconds. A span takes the least time if the multipliers are the
# bottleneck.
_LOOKUP, _SIGNATURE, _JUMP, _STEPPING = 1, 5, 6, 5
# The loss at which lookups pause, and the loss after a pause at which the next, longer pause begins.
_MOST_LOSS, _TRIAL = 500, 150
_SHORTEST_PAUSE, _LONGEST_PAUSE = 128, 4096  # spans


@inlined
def has_room(table):
    """Whether a signature and a transition fit, and after them the next signature."""
    return table[USED] + 2 * table[ROOM] <= table.shape[0]


@inlined
def next_span(state):
    """The number of the next request that begins a span."""
    return state.value[TAKEN] + SPAN - state.value[PLACE] % SPAN


@inlined
def first_lookup(state, table):
    """The first lookup of a run, if there is a table; a full table is emptied."""
    state.next_lookup = next_span(state) if table[REACH] > 0 else FAR
    state.recording = 0
    if table[REACH] > 0 and not has_room(table):
        table[USED] = FIRST_RECORD
        table[FIRST_FINGERPRINT:FIRST_RECORD] = 0


# ---- Signatures


@inlined
def bucket_of(hash_):
    """The bucket of signatures with such a hash, their fingerprint."""
    return FIRST_BUCKET + (hash_ >> 20 & BUCKETS - 1)


@inlined
def same_words(table, one, other):
    """Whether two signatures of the same length are equal, by lines."""
    differs, one, other = 0, assume_nonnegative(one), assume_nonnegative(other)
    for place in range(WORDS, WORDS + table[one + LENGTH], LINE):
        last = table[one + place + LINE - 1] + table[other + place + LINE - 1]
        differs |= words_differ(table, one + place, table, other + place, 0, last)
    return differs == 0


@inlined
def came_before(table, now):
    """Whether this fingerprint occurred before and has not been overwritten."""
    entry = FIRST_FINGERPRINT + (now >> 20 & FINGERPRINTS - 1)
    before, table[entry] = table[entry], now
    return before == now


@outlined
def current_signature(shape, state, source, sink, table, now, clock):
    """The state's signature, a new one if the table has room; else 0. now: the state's fingerprint."""
    new = assume_nonnegative(table[USED])
    end = write_signature(shape, state, source, sink, table, clock)
    table[new + HASH] = now
    bucket = bucket_of(now)
    signature = table[bucket]
    while signature != 0:
        same = table[signature + HASH] == now and table[signature + LENGTH] == table[new + LENGTH]
        if same and same_words(table, signature, new):
            return signature
        signature = assume_nonnegative(table[signature + NEXT_IN_BUCKET])
    if not has_room(table):
        return 0
    table[new + NEXT_IN_BUCKET] = table[bucket]
    table[new + WITHOUT_REFRESH] = table[new + WITH_REFRESH] = table[new + STEP] = 0
    table[bucket] = new
    table[USED] = next_line(end)
    return new


# ---- Periods: transitions that lead back to the signature where they began, repeated many times at once


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
    last = serve(state, sink, table, first, length, repeats, clocks, last)
    for step in range(first, first + length):
        transition, clock = transition_at(state, step), clock_at(state, step) + clocks
        record_uncommitted(table, transition)
        table[transition + TIMES] += repeats
        table[transition + CLOCK_SUM] += repeats * clock + repeats * (repeats - 1) // 2 * clocks
    for total in (TAKEN, PLACE, SERVED, READS_SERVED):
        state.value[total] += repeats * length * SPAN
    state.fast_forwarded += repeats * length * SPAN
    return last


# ---- Transitions


@inlined
def changes_rows(table, transition):
    """Whether a transition opens or closes rows, or depends on some that the signature does not have."""
    return (
        table[transition + CHANGES] + table[transition + MAINTAINED] > 0
        or table[transition + FOUND] != NOTHING
    )


@outlined
def follow(shape, state, source, sink, table, signature, clock, until_served, until_taken):
    """Apply transitions as long as the table has them: (the signature after the last, its clock)."""
    step, since_change, last = table[STEPS] + 1, 0, -1  # a step number that no signature has
    table[signature + STEP] = step
    while state.value[PLACE] + SPAN < source.place.shape[0]:
        transition = assume_nonnegative(find(shape, state, source, table, signature, clock))
        # After it there must be a further request, and one to be served.
        most_taken = min(until_taken, source.admitted[0]) - 1 - state.value[TAKEN] - SPAN
        most_served = until_served - 1 - state.value[SERVED] - table[transition + READS]
        if transition == 0 or min(most_taken, most_served) < 0:
            break
        if clock + table[transition + CLOCKS] >= state.value[PAUSE]:
            break
        log_step(state, step, transition, clock)
        last = serve(state, sink, table, step, 1, 1, 0, last)
        take(shape, state, source, table, transition, clock)
        clock, signature, step = clock + table[transition + CLOCKS], table[transition + TO], step + 1
        since_change = 0 if changes_rows(table, transition) else since_change + 1
        length = step - table[signature + STEP]
        table[signature + STEP] = step
        if length <= min(since_change, LONGEST_PERIOD):
            first, clocks = step - length, clock - clock_at(state, step - length)
            most = min(most_taken, most_served)
            repeats = repeats_ahead(state, source, length * SPAN, clocks, clock, most)
            if repeats > 0:
                last = repeat(state, sink, table, first, length, repeats, clocks, last)
                clock += repeats * clocks
            since_change = 0
    table[STEPS] = step
    note_last(sink, last)
    return signature, clock


@inlined
def schedule_lookup(state, cost, spans):
    """Schedule the next lookup: at the next span, or after a pause if lookups cost more than they save."""
    state.next_lookup = next_span(state)
    loss = max(state.loss + cost - _STEPPING * spans, 0)
    if loss == 0:
        state.pause_spans = 0
    elif loss > _MOST_LOSS:
        pause = min(max(2 * state.pause_spans, _SHORTEST_PAUSE), _LONGEST_PAUSE)
        state.next_lookup += pause * SPAN
        state.recording, state.pause_spans = 0, pause
        loss = _MOST_LOSS - _TRIAL
    state.loss = loss


@inlined
def fast_forward(skips, channel, clock, until_served, until_taken):
    shape, state, source, sink = channel.shape, channel.state, channel.source, channel.sink
    return look_up(shape, state, source, sink, skips.table, clock, until_served, until_taken)


@outlined
def look_up(shape, state, source, sink, table, clock, until_served, until_taken):
    """`fast_forward` with the table as its argument: a call with the whole tuple is slower."""
    now = fingerprint(shape, state, source, sink, clock)
    if not came_before(table, now) or not has_signature(shape, state):
        state.recording = 0
        schedule_lookup(state, _LOOKUP, 0)
        return clock
    taken = state.value[TAKEN]
    signature = current_signature(shape, state, source, sink, table, now, clock)
    if signature == 0:
        state.recording = 0
        schedule_lookup(state, _SIGNATURE, 0)
        return clock
    if state.recording != 0 and has_room(table):
        record(shape, state, source, sink, table, signature, clock)
    reached, at = follow(shape, state, source, sink, table, signature, clock, until_served, until_taken)
    if at > clock:
        state.value[COUNTED_UNTIL] = at - 1
        restore(shape, state, source, sink, table, reached, at)
    start_recording(shape, state, source, reached, at)
    schedule_lookup(state, _SIGNATURE + _JUMP * (at > clock), (state.value[TAKEN] - taken) // SPAN)
    return at
