"""Where the fast controller asks a row policy; each function is that of the policy's module."""

from __future__ import annotations

from ndpsim._jit import by_type

__all__ = [
    "also_held",
    "close_rows",
    "column_kind",
    "finish_active",
    "finish_queued",
    "issue_first_active",
    "issue_first_maintenance",
    "lacks_rows",
    "next_maintenance",
    "note_activated",
    "note_column",
]


@by_type
def issue_first_active(rows, shape, state, latencies, source, sink, commands, credit, clock):
    """Issue the command of the oldest ready active request; returns whether there is one."""


@by_type
def issue_first_maintenance(rows, shape, state, source, sink, commands, credit, clock):
    """Issue the next command of the first maintenance that waits, if it is ready.

    Returns the clock at which it issued, or before which it cannot.
    """


@by_type
def column_kind(rows, state, kind, bank):
    """The kind, RD or WR or that with auto-precharge, of a column command to a bank."""


@by_type
def finish_active(rows, queues, state, kind, bank, clock):
    """An active request has had its column command, of this kind: its bank is no longer held."""


@by_type
def finish_queued(rows, queues, state, kind, bank, clock):
    """A queued request has had its column command, of this kind."""


@by_type
def note_activated(rows, state, bank):
    """A row of a bank is opened."""


@by_type
def note_column(rows, state, kind, bank):
    """A column command of this kind has gone to a bank."""


@by_type
def next_maintenance(rows, state):
    """The clock before which no refresh falls due and no row is to be closed."""


@by_type
def close_rows(rows, state, clock):
    """Ask for PRE of rows that are to be closed, where it is ready at `clock`; returns whether any is due."""


@by_type
def also_held(rows, shape, state, rank):
    """The banks of a rank, but those with an active request, that other rows' requests must not close."""


@by_type
def lacks_rows(rows, shape, state):
    """Whether the row of an active request has been closed before its column command."""
