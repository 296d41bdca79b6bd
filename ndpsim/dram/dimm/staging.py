"""The weights of a lane on their way: admitted step by step, staged, given to the multipliers."""

from __future__ import annotations

from ndpsim._jit import inlined
from ndpsim.dram.dimm.state import (
    ARRIVAL,
    BURST,
    BURSTS_LEFT,
    END_ROW,
    FIRST_ROW,
    HEAD,
    JOB_LATENCY,
    JOB_ROWS,
    JOBS,
    NEXT_ROW,
    ROWS_SUMMED,
    STAGED,
    STEP,
)
from ndpsim.dram.sink import RELEASE, SERVICE, SLOT, Sink, take_burst
from ndpsim.dram.state import FAR, SERVED, Source

__all__ = ["give_to_multipliers", "lane_credit", "lane_source", "next_step", "stage"]


@inlined
def lane_source(weights, lane):
    """The reads of a lane, as a source."""
    place = weights.place[lane, : weights.length[lane]]
    return Source(place, weights.column[lane], place, place[:0], weights.admitted[lane], 0)


@inlined
def lane_credit(setup, weights, lane, ahead):
    """The clock from which a read of a lane has a place in its FIFO, `ahead` reads after the next.

    FAR while the staged bursts take so many places that it is undecided.
    """
    taken = weights.staged[lane, STAGED] + ahead
    if taken >= setup.fifo_bursts:
        return FAR
    slot = weights.sink[lane, SLOT] + taken
    return weights.credit[lane, slot - setup.fifo_bursts if slot >= setup.fifo_bursts else slot]


@inlined
def next_step(weights, lane, value):
    """Admit the reads of the next step when those of the last have all issued."""
    step = weights.step[lane]
    while step + 1 < weights.ends.shape[1] and value[SERVED] == weights.ends[lane, step]:
        step += 1
    weights.step[lane] = step
    weights.admitted[lane, 0] = weights.ends[lane, step]


@inlined
def stage(weights, lane, burst, arrival):
    """A burst of weights is read and will have arrived at a clock."""
    staging, staged = weights.staging[lane], weights.staged[lane]
    slot = staged[HEAD] + staged[STAGED]
    slot = slot - staging.shape[0] if slot >= staging.shape[0] else slot
    staging[slot, BURST] = burst
    staging[slot, ARRIVAL] = arrival
    staging[slot, STEP] = weights.step[lane]
    staged[STAGED] += 1


@inlined
def note_rows(weights, transfers, lane, burst):
    """A burst was given to the multipliers: rows that need no other are summed, results become jobs."""
    left, value = weights.left, weights.value
    for row in range(weights.first_row[lane, burst], weights.last_row[lane, burst] + 1):
        left[row] -= 1
    value[BURSTS_LEFT] -= 1
    while value[NEXT_ROW] < value[END_ROW] and left[value[NEXT_ROW]] == 0:
        value[ROWS_SUMMED] = max(value[ROWS_SUMMED], weights.done[value[NEXT_ROW]])
        value[NEXT_ROW] += 1
        of_result = value[NEXT_ROW] - value[FIRST_ROW]
        if of_result % transfers.value[JOB_ROWS] == 0 or value[NEXT_ROW] == value[END_ROW]:
            transfers.ready[transfers.value[JOBS]] = value[ROWS_SUMMED] + transfers.value[JOB_LATENCY]
            transfers.value[JOBS] += 1


@inlined
def give_to_multipliers(setup, weights, transfers, lane):
    """Give the multipliers of a lane the staged bursts of every step that they may start on.

    Returns whether there were any.
    """
    staging, staged = weights.staging[lane], weights.staged[lane]
    before = staged[STAGED]
    while staged[STAGED] > 0:
        head = staged[HEAD]
        step = staging[head, STEP]
        if weights.release[step] == FAR:
            break
        value = weights.sink[lane]
        value[RELEASE] = weights.release[step]
        value[SERVICE] = weights.service[step]
        rows = weights.first_row[lane]
        fifo = Sink(
            setup.fifo_bursts,
            setup.servers,
            setup.dram_ticks,
            setup.unit_ticks,
            weights.credit[lane],
            weights.free[lane],
            rows,
            weights.last_row[lane],
            rows,
            weights.done,
            value,
        )
        take_burst(fifo, staging[head, BURST], staging[head, ARRIVAL])
        staged[HEAD] = 0 if head + 1 == staging.shape[0] else head + 1
        staged[STAGED] -= 1
        note_rows(weights, transfers, lane, staging[head, BURST])
    return staged[STAGED] < before
