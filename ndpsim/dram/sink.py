"""Who takes the data of a read: a finite FIFO drained by servers, or nobody.

The controller may issue a read only when a slot of the FIFO is promised to it. A burst leaves the FIFO,
and its slot is free again, when a server starts on it; servers take bursts in the order of their reads
and hold each for `service` ticks. Times are ticks (see `units.Timebase`); a server starts on an edge of the
unit's clock, the first at or after the moment everything is there, and the controller sees the free
slot on the first edge of the DRAM clock at or after that. Nothing is rounded twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._jit import inlined

__all__ = [
    "COMPARED",
    "Rows",
    "Sink",
    "a_row_each",
    "credit_clock",
    "make_sink",
    "nobody",
    "note_rows",
    "take_burst",
]

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

# Places in `Sink.value`.
TAKEN, LAST_START, RELEASE, SERVICE, FINISHED, BUSY, SLOT, SERVER = range(8)
#: What two runs of the same work must agree in; slots and servers may have been dealt out otherwise.
COMPARED = [TAKEN, LAST_START, FINISHED, BUSY]


class Sink(NamedTuple):
    """The FIFO and its servers. `servers` is 0 when nobody takes the data: then credit is endless."""

    depth: int  # bursts the FIFO holds
    servers: int
    dram_ticks: int  # ticks in a DRAM clock
    unit_ticks: int  # ticks in a clock of the unit
    credit: Ints  # [depth]: the clock from which the slot can be promised again, by burst modulo depth
    free: Ints  # [servers]: the tick from which a server is free, by burst modulo servers
    first_row: Narrow  # [request]: the first of the rows that a request's burst holds weights of,
    last_row: Narrow  # [request]: and the last
    row_end: Narrow  # [row]: the last request of a row
    done: Ints  # [row]: the tick at which the servers are done with the bursts of a row so far
    value: Ints  # by the places above; SLOT and SERVER are those of the next burst


class Rows(NamedTuple):
    """Which rows of weights the bursts of a source belong to; a burst may hold the end of one and more."""

    first_row: Narrow  # [request]
    last_row: Narrow  # [request]
    row_end: Narrow  # [row]: its last request


def a_row_each(requests: int) -> Rows:
    """Every request is a row of its own."""
    each = np.arange(requests, dtype=np.int32)
    return Rows(each, each, each)


def make_sink(depth: int, servers: int, dram_ticks: int, unit_ticks: int, rows: Rows) -> Sink:
    """An empty FIFO for a source whose requests belong to `rows`."""

    def zeros(count: int) -> Ints:
        return np.zeros(count, dtype=np.int64)

    return Sink(
        depth,
        servers,
        dram_ticks,
        unit_ticks,
        zeros(depth),
        zeros(servers),
        *rows,
        zeros(len(rows.row_end)),
        zeros(8),
    )


def nobody() -> Sink:
    """The sink of a plain memory: takes every burst at once."""
    return make_sink(1, 0, 1, 1, a_row_each(0))


@inlined
def credit_clock(sink):
    """The first clock at which the next read may issue as far as the FIFO goes."""
    return sink.credit[sink.value[SLOT]]


@inlined
def note_rows(sink, request, finish):
    """A burst has been served: the rows that it holds weights of are done no sooner."""
    for row in range(sink.first_row[request], sink.last_row[request] + 1):
        sink.done[row] = max(sink.done[row], finish)


@inlined
def take_burst(sink, request, arrival_clock):
    """A burst is on its way and will have arrived at `arrival_clock`: say when it is served."""
    if sink.servers == 0:
        return
    value, unit = sink.value, sink.unit_ticks
    slot, server = value[SLOT], value[SERVER]
    start = max(value[LAST_START], sink.free[server])  # edges of the unit's clock
    there = max(arrival_clock * sink.dram_ticks, value[RELEASE])
    if there > start:
        start = (there + unit - 1) // unit * unit
    finish = start + value[SERVICE]
    sink.free[server] = finish
    note_rows(sink, request, finish)
    sink.credit[slot] = (start + sink.dram_ticks - 1) // sink.dram_ticks
    value[LAST_START] = start
    value[FINISHED] = finish
    value[BUSY] += value[SERVICE]
    value[TAKEN] += 1
    value[SLOT] = 0 if slot + 1 == sink.depth else slot + 1
    value[SERVER] = 0 if server + 1 == sink.servers else server + 1
