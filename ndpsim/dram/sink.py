"""The receiver of read data: a finite FIFO drained by servers, or a null sink.

The controller may issue a read only after it has reserved a slot of the FIFO. When a server starts on a
burst, the burst leaves the FIFO and its slot is free. Servers take bursts in the order of their reads, and
each burst occupies its server for `service` ticks (`units.Timebase`). A server starts on the first edge of
the unit's clock at which burst and server are ready. The controller sees the free slot on the next edge of
the DRAM clock. No time is rounded twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined
from ndpsim.dram.fast.vectors import assume_nonnegative

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

# Places in `Sink.value`.
TAKEN, LAST_START, RELEASE, SERVICE, FINISHED, BUSY, SLOT, SERVER = range(8)
#: The values in which two runs of the same work must agree; slots and servers may differ.
COMPARED = [TAKEN, LAST_START, FINISHED, BUSY]


class Sink(NamedTuple):
    """The FIFO and its servers. A null sink has 0 servers and always room."""

    depth: int  # bursts the FIFO holds
    servers: int
    dram_ticks: int  # ticks in a DRAM clock
    unit_ticks: int  # ticks in a clock of the unit
    credit: Ints  # [depth]: the clock from which the slot can be reserved again, by burst modulo depth
    free: Ints  # [servers]: the tick from which a server is free, by burst modulo servers
    first_group: Narrow  # [request]: the first of the groups that its burst belongs to,
    last_group: Narrow  # [request]: and the last
    group_end: Narrow  # [group]: its last request
    done: Ints  # [group]: the tick at which the servers have finished its bursts so far
    value: Ints  # by the places above; SLOT and SERVER are those of the next burst


class Groups(NamedTuple):
    """The groups of a source's bursts, one after the other; a burst may belong to several."""

    first_group: Narrow  # [request]
    last_group: Narrow  # [request]
    group_end: Narrow  # [group]: its last request


def merge_groups(groups: Groups) -> tuple[Groups, Ints]:
    """Merge groups of the same bursts; returns them, and the new number of each group, int64[group]."""
    begins = np.searchsorted(groups.last_group, np.arange(len(groups.group_end)))
    differs = (np.diff(begins, prepend=-1) != 0) | (np.diff(groups.group_end, prepend=-1) != 0)
    number = np.cumsum(differs) - 1
    group_of_burst = np.append(number, differs.sum())  # a burst without a group comes after the last group
    first = group_of_burst[groups.first_group]
    last = np.where(groups.first_group > groups.last_group, first - 1, group_of_burst[groups.last_group])
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
    """The first clock at which the FIFO has a slot for the next read."""
    return sink.credit[assume_nonnegative(sink.value[SLOT])]


@inlined
def note_groups(sink, request, finish):
    """A burst has been served: its groups are done no sooner."""
    for group in range(sink.first_group[request], sink.last_group[request] + 1):
        sink.done[group] = max(sink.done[group], finish)


@inlined
def take_burst(sink, request, arrival_clock):
    """Schedule the service of a burst that arrives at `arrival_clock`."""
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
