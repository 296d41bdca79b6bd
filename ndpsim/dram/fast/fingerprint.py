"""Fingerprints of states: a quick test whether a state may have occurred before."""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dram.fast.fields import ACT, PRE, RD, READS, SLOTS
from ndpsim.dram.fast.signature import expiry
from ndpsim.dram.fast.slots import wait_row
from ndpsim.dram.fast.words import assume_nonnegative, lowest, rotate
from ndpsim.dram.sink import LAST_START, RELEASE, SERVICE
from ndpsim.dram.state import DATA_END, PLACE, ROW_SHIFT

_MULTIPLIER = 0x2545F491


@inlined
def arrivals(state, clock):
    """The ages of the queued reads, summed."""
    total, queued = 0, state.used[0, READS]
    while queued != 0:
        total += clock - state.slot_arrived[READS, (lowest(queued) & (SLOTS - 1))]
        queued &= queued - 1
    return total


@inlined
def sink_fingerprint(sink, over, clock):
    """A number that sums up the sink."""
    value, now = sink.value, clock * sink.dram_ticks
    total = now % sink.unit_ticks
    for word in (value[LAST_START] - now, value[RELEASE] - now, value[SERVICE]):
        total = total * _MULTIPLIER + max(word, 0)
    credits, busy = 0, 0
    for number in range(sink.depth):
        credits += max(sink.credit[number] - over, 0)
    for number in range(sink.servers):
        busy += max(sink.free[number] - now, 0)
    return (total * _MULTIPLIER + credits) * _MULTIPLIER + busy


@inlined
def fingerprint(shape, state, source, sink, clock):
    """A number that is quick to compute, equal for equal signatures and seldom equal for others."""
    over, tail = expiry(shape, state, clock), state.tail[0, READS]
    total = source.place[state.value[PLACE]] & (1 << ROW_SHIFT) - 1
    total = total * _MULTIPLIER + (state.value[DATA_END] - clock)
    total = total * _MULTIPLIER + arrivals(state, clock)
    for number in range(shape.ranks):
        rank = assume_nonnegative(number)
        total = total * _MULTIPLIER + state.open_banks[rank]
        for command in (ACT, PRE, RD):
            waiting = rotate(state.waiting[0, wait_row(READS, rank), command], tail)
            ready = max(state.rank_ready[rank, command] - over, 0)
            total = (total * _MULTIPLIER + waiting) * _MULTIPLIER + ready
    if sink.servers > 0:
        total = total * _MULTIPLIER + sink_fingerprint(sink, over, clock)
    return total * _MULTIPLIER
