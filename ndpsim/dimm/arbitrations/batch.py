"""The host's reads of a rank gather, and are then drained with priority, as controllers drain their writes.

Until so many reads of a rank wait, or so many of all ranks of the bus, or those of the rank have gathered for
so many clocks, the NDP unit has the rank to itself. Those that wait then go first, until as many have been
read. Writes have gathered in the controller's write queue already, and go first while it drains. A rank on
which the unit has no request is the host's.
"""

from __future__ import annotations

from typing import NamedTuple

from ndpsim._jit import inlined
from ndpsim.dimm.state import HOST, NDP
from ndpsim.dram.state import FAR

# What is recorded of a rank: reads that wait; since when they gather; those to be drained, 0: they gather.
WAITING, SINCE, LEFT = range(3)


class Batch(NamedTuple):
    """The parameters."""

    reads: int = 8  # of a rank
    most: int = 24  # reads of all ranks: three quarters of a queue of 32
    clocks: int = 1000  # the longest for which reads gather


ARBITRATION = Batch


@inlined
def begin_drain(arbitration, records, rank, clock):
    """Reads of a rank that have gathered by a clock are drained from then on."""
    record = records[rank]
    if record[LEFT] > 0 or record[WAITING] == 0:
        return
    if record[WAITING] >= arbitration.reads or clock >= record[SINCE] + arbitration.clocks:
        record[LEFT] = record[WAITING]


@inlined
def usual_master(arbitration, records, rank, writes, clock):
    """See `dimm.arbitration_points`."""
    begin_drain(arbitration, records, rank, clock)
    return HOST if writes or records[rank, LEFT] > 0 else NDP


@inlined
def master_changes_at(arbitration, records, rank, clock):
    """See `dimm.arbitration_points`."""
    record = records[rank]
    return record[SINCE] + arbitration.clocks if record[LEFT] == 0 and record[WAITING] > 0 else FAR


@inlined
def host_waits(arbitration):
    """See `dimm.arbitration_points`."""
    return True


@inlined
def record_request(arbitration, records, rank, reads, clock):
    """See `dimm.arbitration_points`."""
    if not reads:
        return False
    ranks = records.shape[0] - 1
    begin_drain(
        arbitration, records, rank, clock - 1
    )  # where nobody has asked for the master since it was time
    if records[rank, WAITING] == 0:
        records[rank, SINCE] = clock
    records[rank, WAITING] += 1
    records[ranks, WAITING] += 1
    if records[ranks, WAITING] >= arbitration.most:
        for other in range(ranks):
            begin_drain(arbitration, records, other, clock - 1)
            if records[other, LEFT] == 0:
                records[other, LEFT] = records[other, WAITING]
        return True
    return records[rank, WAITING] >= arbitration.reads


@inlined
def record_data(arbitration, records, rank, reads, clock):
    """See `dimm.arbitration_points`."""
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
