"""Functions that the fast controller calls; the module of a row policy overrides them.

The functions here are for rows that stay open.
"""

from __future__ import annotations

from ndpsim.base.jit import overridable
from ndpsim.dram.state import NEXT_REFRESH


@overridable
def column_class(rows, state, command, bank):
    """The class of a column command to a bank: RD or WR, or the class with auto-precharge."""
    return command


@overridable
def finish_queued(rows, queues, state, command, bank, clock):
    """A queued request has had its column command, of this class."""


@overridable
def record_activated(rows, state, bank):
    """A row of a bank is opened."""


@overridable
def record_column(rows, state, command, bank):
    """A column command of this class has gone to a bank."""


@overridable
def next_maintenance(rows, state):
    """The clock before which no refresh is due and no row is due to close."""
    return state.value[NEXT_REFRESH]


@overridable
def close_rows(rows, state, clock):
    """Request PRE for rows that are due to close and ready at `clock`; returns whether any row is due."""
    return False


@overridable
def also_pinned(rows, shape, state, rank):
    """Banks of a rank without an active request that requests for other rows must not close."""
    return 0


@overridable
def lacks_rows(rows, shape, state):
    """Whether the row of an active request has been closed before its column command."""
    return False
