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

__all__ = ["ARBITRATION"]

# What is noted of a rank: reads that wait; since when they gather; those still to be drained, 0: they gather.
WAITING, SINCE, LEFT = range(3)


class Batch(NamedTuple):
    """The parameters."""

    reads: int = 8  # of a rank
    most: int = 24  # reads of all ranks: three quarters of a queue of 32
    clocks: int = 1000  # the longest for which reads gather

    @staticmethod
    def parts() -> str:
        """The module of the parts of kernels."""
        return __name__


ARBITRATION = Batch


@inlined
def begin_drain(arbitration, notes, rank, clock):
    """Reads of a rank that have gathered by a clock are drained from then on."""
    note = notes[rank]
    if note[LEFT] > 0 or note[WAITING] == 0:
        return
    if note[WAITING] >= arbitration.reads or clock >= note[SINCE] + arbitration.clocks:
        note[LEFT] = note[WAITING]


@inlined
def usual_owner(arbitration, notes, rank, writes, clock):
    """See `dimm.turns`."""
    begin_drain(arbitration, notes, rank, clock)
    return HOST if writes or notes[rank, LEFT] > 0 else NDP


@inlined
def owner_changes_at(arbitration, notes, rank, clock):
    """See `dimm.turns`."""
    note = notes[rank]
    return note[SINCE] + arbitration.clocks if note[LEFT] == 0 and note[WAITING] > 0 else FAR


@inlined
def host_waits(arbitration):
    """See `dimm.turns`."""
    return True


@inlined
def note_request(arbitration, notes, rank, reads, clock):
    """See `dimm.turns`."""
    if not reads:
        return False
    ranks = notes.shape[0] - 1
    begin_drain(arbitration, notes, rank, clock - 1)  # where nobody has asked for the owner since it was time
    if notes[rank, WAITING] == 0:
        notes[rank, SINCE] = clock
    notes[rank, WAITING] += 1
    notes[ranks, WAITING] += 1
    if notes[ranks, WAITING] >= arbitration.most:
        for other in range(ranks):
            begin_drain(arbitration, notes, other, clock - 1)
            if notes[other, LEFT] == 0:
                notes[other, LEFT] = notes[other, WAITING]
        return True
    return notes[rank, WAITING] >= arbitration.reads


@inlined
def note_data(arbitration, notes, rank, reads, clock):
    """See `dimm.turns`."""
    if not reads:
        return False
    ranks = notes.shape[0] - 1
    notes[rank, WAITING] -= 1
    notes[ranks, WAITING] -= 1
    if notes[rank, LEFT] > 0:
        notes[rank, LEFT] -= 1
        if notes[rank, LEFT] == 0:
            notes[rank, SINCE] = clock
    return True
