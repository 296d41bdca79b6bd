"""Serves the bursts of applied transitions: the times at which the sink's servers finish them.

The transitions are those of the last steps, in the order in which they were taken; a period of them may be
repeated, `clocks` later each time.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dram import sink as sinks
from ndpsim.dram.fast.fields import LONGEST_PERIOD
from ndpsim.dram.fast.transition_table import (
    FINISHED,
    FIRST_READ,
    HIGHEST,
    LOWEST,
    NOTHING,
    READS,
    REQUEST,
    SPAN,
    of_reads,
)
from ndpsim.dram.fast.vectors import assume_nonnegative
from ndpsim.dram.state import PLACE


@inlined
def log_step(state, step, transition, clock):
    """Log a transition that is applied at a clock."""
    state.taken_transition[step & LONGEST_PERIOD - 1] = transition
    state.taken_clock[step & LONGEST_PERIOD - 1] = clock


@inlined
def transition_at(state, step):
    """The transition of one of the last steps."""
    return assume_nonnegative(state.taken_transition[step & LONGEST_PERIOD - 1])


@inlined
def clock_at(state, step):
    """The clock of one of the last steps."""
    return state.taken_clock[step & LONGEST_PERIOD - 1]


@inlined
def reads_in_order(state, table, first, length):
    """Whether the steps read one request after the other."""
    offset = table[transition_at(state, first) + FIRST_READ]
    in_order = offset != NOTHING
    for step in range(first + 1, first + length):
        in_order = in_order and table[transition_at(state, step) + FIRST_READ] == offset
    return in_order


@inlined
def has_group(sink, group, last):
    """Whether `last`, the last request that may hold bursts of a group, does; else other lanes have it."""
    return sink.last_group[last] >= group


@inlined
def serve_span(state, sink, table, step, group, end, delay):
    """Note the groups that end with one of the SPAN requests before `end`; returns the next group."""
    first, transition = assume_nonnegative(end - SPAN), transition_at(state, step)
    now = (clock_at(state, step) + delay) * sink.dram_ticks
    finished = of_reads(table, transition, FINISHED)
    while group < sink.group_end.shape[0] and sink.group_end[assume_nonnegative(group)] < end:
        last = assume_nonnegative(sink.group_end[assume_nonnegative(group)])
        if has_group(sink, group, last):
            finish = now + table[assume_nonnegative(finished + last - first)]
            sink.done[assume_nonnegative(group)] = max(sink.done[assume_nonnegative(group)], finish)
        group += 1
    return group


@inlined
def serve_repeats(sink, group, groups, end, requests, ticks):
    """Groups before request `end` that end so many requests after those `groups` before them, and so are done
    so many ticks later; returns the first that does not.
    """
    while group < sink.group_end.shape[0] and sink.group_end[assume_nonnegative(group)] < end:
        before = assume_nonnegative(group - groups)
        last, last_before = (
            assume_nonnegative(sink.group_end[assume_nonnegative(group)]),
            assume_nonnegative(sink.group_end[before]),
        )
        if last - last_before != requests:
            break
        if not (has_group(sink, group, last) and has_group(sink, before, last_before)):
            break
        sink.done[assume_nonnegative(group)] = max(
            sink.done[assume_nonnegative(group)], sink.done[before] + ticks
        )
        group += 1
    return group


@inlined
def serve_in_order(state, sink, table, first, length, repeats, clocks):
    """Serve reads one after the other: a group is done with its last burst.

    Groups of the last read that go on are left to `note_last`.
    """
    begin = state.value[PLACE] + table[transition_at(state, first) + FIRST_READ]
    begin_group, requests, delay = assume_nonnegative(sink.first_group[begin]), length * SPAN, clocks
    group, end, all_ = begin_group, begin, begin + repeats * requests
    while end < all_:
        for step in range(first, first + length):
            end += SPAN
            group = serve_span(state, sink, table, step, group, end, delay)
        delay += clocks
        if end == begin + requests:
            if group > begin_group:
                group = serve_repeats(
                    sink, group, group - begin_group, all_, requests, clocks * sink.dram_ticks
                )
            if group == sink.group_end.shape[0] or sink.group_end[assume_nonnegative(group)] >= all_:
                break


@inlined
def is_one_group(sink, request, table, transition):
    """Whether the reads of a transition, counted from a request, are all of the same group."""
    lowest = assume_nonnegative(request + table[transition + LOWEST])
    highest = assume_nonnegative(request + table[transition + HIGHEST])
    return sink.first_group[lowest] == sink.last_group[highest]


@inlined
def serve_each(state, sink, table, first, length, repeats, clocks):
    """Serve reads in any order."""
    request, delay = state.value[PLACE], clocks
    for _ in range(repeats):
        for step in range(first, first + length):
            now, transition = (clock_at(state, step) + delay) * sink.dram_ticks, transition_at(state, step)
            offset, reads = of_reads(table, transition, REQUEST), table[transition + READS]
            finished = of_reads(table, transition, FINISHED)
            if reads > 0 and is_one_group(sink, request, table, transition):
                offset, finished, reads = offset + reads - 1, finished + reads - 1, 1  # only the last one
            for number in range(reads):
                sinks.note_groups(sink, request + table[offset + number], now + table[finished + number])
            request += SPAN
        delay += clocks


@inlined
def count_served(state, sink, table, first, length, repeats, delay):
    """Count the bursts; `delay`: clocks by which the last repetition is later."""
    reads, last = 0, first
    for step in range(first, first + length):
        if table[transition_at(state, step) + READS] > 0:
            reads, last = reads + table[transition_at(state, step) + READS], step
    if reads > 0:
        transition, now = transition_at(state, last), (clock_at(state, last) + delay) * sink.dram_ticks
        end = of_reads(table, transition, FINISHED) + table[transition + READS] - 1
        sink.value[sinks.FINISHED] = now + table[end]
    sink.value[sinks.BUSY] += repeats * reads * sink.value[sinks.SERVICE]
    sink.value[sinks.TAKEN] += repeats * reads


@inlined
def note_last(sink, last):
    """Note the groups of the read that was served last, if its number is not -1."""
    if last >= 0:
        sinks.note_groups(sink, last, sink.value[sinks.FINISHED])


@inlined
def serve(state, sink, table, first, length, repeats, clocks, last):
    """Take the bursts of `length` steps from `first` on; the next request is the first that they take.

    last: what the serving before returned, -1: it is the first. Returns the number of the last read if its
    groups are yet to be noted: of reads that go on where these end, the last has them, or they end before.
    """
    if sink.servers == 0:
        return -1
    in_order = reads_in_order(state, table, first, length)
    begin = state.value[PLACE] + table[transition_at(state, first) + FIRST_READ]
    if not in_order or begin != last + 1:
        note_last(sink, last)
    if in_order:
        serve_in_order(state, sink, table, first, length, repeats, clocks)
    else:
        serve_each(state, sink, table, first, length, repeats, clocks)
    count_served(state, sink, table, first, length, repeats, repeats * clocks)
    return begin + repeats * length * SPAN - 1 if in_order else -1
