"""Collects the host's reads of a rank and then drains them with priority, as controllers drain writes.

The NDP unit has the rank to itself until `reads` reads of the rank wait, or `most` reads of all ranks of the
bus, or reads of the rank have been collected for `clocks` clocks. The waiting reads then have priority until
as many have been served. Writes collect in the controller's write queue and have priority while it drains. If
the unit has no request on a rank, the host has priority.
"""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined
from ndpsim.dimm.state import HOST, NDP
from ndpsim.dram.state import FAR

# Records of a rank: waiting reads; the clock of the first of them; reads to drain, 0: reads are collected.
WAITING, SINCE, LEFT = range(3)


class Batch(NamedTuple):
    """The parameters."""

    reads: int = 8  # of a rank
    most: int = 24  # reads of all ranks: three quarters of a queue of 32
    clocks: int = 1000  # maximum time for which reads are collected


ARBITRATION = Batch


@inlined
def begin_drain(arbitration, records, rank, clock):
    """Drain the reads of a rank that have been collected, from this clock on."""
    record = records[rank]
    if record[LEFT] > 0 or record[WAITING] == 0:
        return
    if record[WAITING] >= arbitration.reads or clock >= record[SINCE] + arbitration.clocks:
        record[LEFT] = record[WAITING]


@inlined
def usual_master(arbitration, records, rank, writes, clock):
    """The host while it writes or drains reads, else the unit."""
    begin_drain(arbitration, records, rank, clock)
    return HOST if writes or records[rank, LEFT] > 0 else NDP


@inlined
def master_changes_at(arbitration, records, rank, clock):
    """The clock from which the collected reads have waited for long enough."""
    record = records[rank]
    return record[SINCE] + arbitration.clocks if record[LEFT] == 0 and record[WAITING] > 0 else FAR


@inlined
def host_waits(arbitration):
    return True


@inlined
def record_request(arbitration, records, rank, reads, clock):
    """Collect a read, and drain when there are enough, of the rank or of all."""
    if not reads:
        return False
    ranks = records.shape[0] - 1
    begin_drain(
        arbitration, records, rank, clock - 1
    )  # if `usual_master` was not called since the time was over
    if records[rank, WAITING] == 0:
        records[rank, SINCE] = clock
    records[rank, WAITING] += 1
    records[ranks, WAITING] += 1
    if records[ranks, WAITING] >= arbitration.most:
        for drained in range(ranks):
            begin_drain(arbitration, records, drained, clock - 1)
            if records[drained, LEFT] == 0:
                records[drained, LEFT] = records[drained, WAITING]
        return True
    return records[rank, WAITING] >= arbitration.reads


@inlined
def record_data(arbitration, records, rank, reads, clock):
    """A collected read is served."""
    if not reads:
        return False
    ranks = records.shape[0] - 1
    records[rank, WAITING] -= 1
    records[ranks, WAITING] -= 1
    if records[rank, LEFT] > 0:
        records[rank, LEFT] -= 1
        if records[rank, LEFT] == 0:
            records[rank, SINCE] = clock
    return True
