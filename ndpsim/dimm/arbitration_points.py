"""Functions that both arbiters call; the module of an arbitration overrides them by the same names.

The records of an arbitration on a bus are int64[rank, `RECORDS`], initially 0; the last row is for all
ranks together.
"""

from __future__ import annotations

from ndpsim._jit import by_type, overridable
from ndpsim.dram.state import FAR

#: Number of integers that an arbitration may record for each rank.
RECORDS = 4


@by_type
def usual_master(arbitration, records, rank, writes, clock):
    """The master that is first on a rank at a clock if no request has waited for too long: HOST or NDP.

    writes: whether the host's controller serves writes now, and not reads.
    """


@overridable
def master_changes_at(arbitration, records, rank, clock):
    """The next clock at which another master may be first without a command or request before it."""
    return FAR


@overridable
def host_waits(arbitration):
    """Whether the host waits whenever the unit is first and has requests, even if it does not delay the unit.

    Requests of the host whose rows are activated do not wait.
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
