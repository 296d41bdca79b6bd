"""Rows stay open until a request for another row, or a refresh, closes them."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim._jit import inlined

__all__ = ["OPEN", "of"]


class OpenRows(NamedTuple):
    """Has no parameters."""


OPEN = OpenRows()


def of(cap: int) -> OpenRows:
    """The policy."""
    return OPEN


@inlined
def column_kind(rows, state, kind, bank):
    """See `points`."""
    return kind


@inlined
def is_closing(rows, kind):
    """See `points`."""
    return False


@inlined
def note_activated(rows, state, bank):
    """See `points`."""


@inlined
def note_column(rows, state, kind, bank):
    """See `points`."""


@inlined
def next_close(rows, state):
    """See `points`."""
    return 1 << 60


@inlined
def close_rows(rows, state, clock):
    """See `points`."""


@inlined
def also_held(rows, shape, state, rank):
    """See `points`."""
    return 0


@inlined
def lacks_rows(rows, shape, state):
    """See `points`."""
    return False
