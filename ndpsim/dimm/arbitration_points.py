"""Questions of both arbiters to an arbitration; its module answers them with functions of these names.

What an arbitration records of a bus is int64[rank, `RECORDS`], zeros at first; the row behind those
of the ranks is of all of them.
"""

from __future__ import annotations

from ndpsim._jit import by_type, overridable
from ndpsim.dram.state import FAR

#: Integers that an arbitration may record of a rank.
RECORDS = 4


@by_type
def usual_master(arbitration, records, rank, writes, clock):
    """The master that is first on a rank at a clock when nobody starves: HOST or NDP.

    writes: whether the host's controller serves writes now, and not reads.
    """


@overridable
def master_changes_at(arbitration, records, rank, clock):
    """The first clock after this one at which another master may be first if nothing happens until then."""
    return FAR


@overridable
def host_waits(arbitration):
    """Whether the host waits wherever the unit is first and has requests, not only where it is in the way.

    Its requests that have activated their rows do not.
    """
    return False


@overridable
def record_request(arbitration, records, rank, reads, clock):
    """The host's controller has queued a request for a rank; returns whether masters may change now."""
    return False


@overridable
def record_data(arbitration, records, rank, reads, clock):
    """The host's controller has issued a column command to a rank; the returned value has no meaning."""
    return False
