"""The receiver of read data: a finite FIFO drained by servers, or a null sink.

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

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

# Places in `Sink.value`.
TAKEN, LAST_START, RELEASE, SERVICE, FINISHED, BUSY, SLOT, SERVER = range(8)
#: What two runs of the same work must agree in; slots and servers may have been taken otherwise.
COMPARED = [TAKEN, LAST_START, FINISHED, BUSY]


class Sink(NamedTuple):
    """The FIFO and its servers. `servers` is 0 of a null sink, whose credit is endless."""

    depth: int  # bursts the FIFO holds
    servers: int
    dram_ticks: int  # ticks in a DRAM clock
    unit_ticks: int  # ticks in a clock of the unit
    credit: Ints  # [depth]: the clock from which the slot can be promised again, by burst modulo depth
    free: Ints  # [servers]: the tick from which a server is free, by burst modulo servers
    first_group: Narrow  # [request]: the first of the groups that its burst belongs to,
    last_group: Narrow  # [request]: and the last
    group_end: Narrow  # [group]: its last request
    done: Ints  # [group]: the tick at which the servers are done with its bursts so far
    value: Ints  # by the places above; SLOT and SERVER are those of the next burst


class Groups(NamedTuple):
    """The groups of a source's bursts, one after the other; a burst may belong to several."""

    first_group: Narrow  # [request]
    last_group: Narrow  # [request]
    group_end: Narrow  # [group]: its last request


def merge_groups(groups: Groups) -> tuple[Groups, Ints]:
    """Groups of the same bursts become one; and the number that each then has, int64[group]."""
    begins = np.searchsorted(groups.last_group, np.arange(len(groups.group_end)))
    differs = (np.diff(begins, prepend=-1) != 0) | (np.diff(groups.group_end, prepend=-1) != 0)
    number = np.cumsum(differs) - 1
    of_bursts = np.append(number, differs.sum())  # a burst of no group is behind the last
    first = of_bursts[groups.first_group]
    last = np.where(groups.first_group > groups.last_group, first - 1, of_bursts[groups.last_group])
    return Groups(first.astype(np.int32), last.astype(np.int32), groups.group_end[differs]), number


def a_group_each(requests: int) -> Groups:
    """Every request is a group of its own."""
    each = np.arange(requests, dtype=np.int32)
    return Groups(each, each, each)


def make_sink(depth: int, servers: int, dram_ticks: int, unit_ticks: int, groups: Groups) -> Sink:
    """An empty FIFO for a source whose requests belong to `groups`."""

    def zeros(count: int) -> Ints:
        return np.zeros(count, dtype=np.int64)

    return Sink(
        depth,
        servers,
        dram_ticks,
        unit_ticks,
        zeros(depth),
        zeros(servers),
        *groups,
        zeros(len(groups.group_end)),
        zeros(8),
    )


def null_sink() -> Sink:
    """A sink that takes every burst at once, as the host of a memory does."""
    return make_sink(1, 0, 1, 1, a_group_each(0))


@inlined
def credit_clock(sink):
    """The first clock at which the next read may issue as far as the FIFO goes."""
    return sink.credit[sink.value[SLOT]]


@inlined
def note_groups(sink, request, finish):
    """A burst has been served: its groups are done no sooner."""
    for group in range(sink.first_group[request], sink.last_group[request] + 1):
        sink.done[group] = max(sink.done[group], finish)


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
    note_groups(sink, request, finish)
    sink.credit[slot] = (start + sink.dram_ticks - 1) // sink.dram_ticks
    value[LAST_START] = start
    value[FINISHED] = finish
    value[BUSY] += value[SERVICE]
    value[TAKEN] += 1
    value[SLOT] = 0 if slot + 1 == sink.depth else slot + 1
    value[SERVER] = 0 if server + 1 == sink.servers else server + 1
