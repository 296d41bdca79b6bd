"""Questions of the fast controller to a row policy; its module answers them with functions of these names.

What stands here is for rows that stay open.
"""

from __future__ import annotations

from ndpsim._jit import overridable
from ndpsim.dram.state import NEXT_REFRESH


@overridable
def column_class(rows, state, command, bank):
    """The class, RD or WR or that with auto-precharge, of a column command to a bank."""
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
    """The clock before which no refresh falls due and no row is to be closed."""
    return state.value[NEXT_REFRESH]


@overridable
def close_rows(rows, state, clock):
    """Ask for PRE of rows that are to be closed, where it is ready at `clock`; returns whether any is due."""
    return False


@overridable
def also_pinned(rows, shape, state, rank):
    """The banks of a rank, but those with an active request, that other rows' requests must not close."""
    return 0


@overridable
def lacks_rows(rows, shape, state):
    """Whether the row of an active request has been closed before its column command."""
    return False
