"""Where both arbiters ask an arbitration; each function is that of the arbitration's module, if it has one.

What an arbitration remembers of a bus is `notes`, int64[rank, `NOTES`], zeros at first; the row behind those
of the ranks is of all of them.
"""

from __future__ import annotations

from ndpsim._jit import by_type, overridable
from ndpsim.dram.state import FAR

__all__ = ["NOTES", "host_waits", "note_data", "note_request", "owner_changes_at", "usual_owner"]

#: Integers that an arbitration may note of a rank.
NOTES = 4


@by_type
def usual_owner(arbitration, notes, rank, writes, clock):
    """Whose turn is first on a rank at a clock when nobody starves: HOST or NDP.

    writes: whether the host's controller serves writes now, and not reads.
    """


@overridable
def owner_changes_at(arbitration, notes, rank, clock):
    """The first clock after this one at which the owner may be another if nothing happens until then."""
    return FAR


@overridable
def host_waits(arbitration):
    """Whether the host waits wherever the unit is first and has requests, not only where it is in the way.

    Its requests that have activated their rows do not.
    """
    return False


@overridable
def note_request(arbitration, notes, rank, reads, clock):
    """The host's controller has queued a request for a rank; returns whether owners may change now."""
    return False


@overridable
def note_data(arbitration, notes, rank, reads, clock):
    """The host's controller has issued the column command of a request to a rank; returns nothing of use."""
    return False
