"""The bursts of transitions that are taken: when the sink's servers are done with them.

The transitions are those of the last steps, in the order in which they were taken; a period of them may be
repeated, `clocks` later each time, the first time after `delay` clocks.
"""

from __future__ import annotations

from ndpsim._jit import inlined
from ndpsim.dram import sink as sinks
from ndpsim.dram.masks.state import LONGEST_PERIOD, TAKEN_CLOCK, TAKEN_TRANSITION
from ndpsim.dram.masks.transition_table import FINISHED, FIRST_READ, NOTHING, READS, REQUEST, SPAN
from ndpsim.dram.masks.transitions import of_reads
from ndpsim.dram.masks.words import assume_nonnegative
from ndpsim.dram.state import PLACE

__all__ = ["clock_at", "log_step", "serve", "transition_at"]


@inlined
def log_step(state, step, transition, clock):
    """A transition is taken at a clock."""
    state[TAKEN_TRANSITION + (step & LONGEST_PERIOD - 1)] = transition
    state[TAKEN_CLOCK + (step & LONGEST_PERIOD - 1)] = clock


@inlined
def transition_at(state, step):
    """The transition of one of the last steps."""
    return assume_nonnegative(state[TAKEN_TRANSITION + (step & LONGEST_PERIOD - 1)])


@inlined
def clock_at(state, step):
    """The clock of one of the last steps."""
    return state[TAKEN_CLOCK + (step & LONGEST_PERIOD - 1)]


@inlined
def reads_in_order(state, table, first, length):
    """Whether the steps read one request after the other."""
    offset = table[transition_at(state, first) + FIRST_READ]
    in_order = offset != NOTHING
    for step in range(first + 1, first + length):
        in_order = in_order and table[transition_at(state, step) + FIRST_READ] == offset
    return in_order


@inlined
def serve_in_order(state, sink, table, first, length, repeats, clocks, delay):
    """Of reads one after the other: a row is done with its last burst."""
    request = state[PLACE] + table[transition_at(state, first) + FIRST_READ]
    last_read = repeats * length * SPAN - 1
    begun, step = 0, first  # the reads before this step
    for row in range(sink.first_row[request], sink.last_row[request + last_read] + 1):
        read = min(sink.row_end[row] - request, last_read)
        if sink.last_row[request + read] < row:
            continue  # a row of other lanes
        while read >= begun + SPAN:
            begun, step = begun + SPAN, step + 1
            if step == first + length:
                step, delay = first, delay + clocks
        now = (clock_at(state, step) + delay) * sink.dram_ticks
        finish = now + table[of_reads(table, transition_at(state, step), FINISHED) + read - begun]
        sink.done[row] = max(sink.done[row], finish)


@inlined
def serve_each(state, sink, table, first, length, repeats, clocks, delay):
    """Of reads in any order."""
    request = state[PLACE]
    for _ in range(repeats):
        for step in range(first, first + length):
            now, transition = (clock_at(state, step) + delay) * sink.dram_ticks, transition_at(state, step)
            offset = of_reads(table, transition, REQUEST)
            finished = of_reads(table, transition, FINISHED)
            for number in range(table[transition + READS]):
                sinks.note_rows(sink, request + table[offset + number], now + table[finished + number])
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
def serve(state, sink, table, first, length, repeats, clocks, delay):
    """Take the bursts of `length` steps from `first` on; the next request is the first that they take."""
    if sink.servers == 0:
        return
    if reads_in_order(state, table, first, length):
        serve_in_order(state, sink, table, first, length, repeats, clocks, delay)
    else:
        serve_each(state, sink, table, first, length, repeats, clocks, delay)
    count_served(state, sink, table, first, length, repeats, delay + (repeats - 1) * clocks)
