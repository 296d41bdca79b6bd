"""Rows stay open until a request for another row, or a refresh, closes them."""

from __future__ import annotations

from ndpsim._jit import inlined
from ndpsim.dram.masks.banks import release_bank
from ndpsim.dram.state import FAR

__all__: list[str] = []


@inlined
def column_kind(rows, state, kind, bank):
    """See `points`."""
    return kind


@inlined
def finish_active(rows, queues, state, kind, bank, clock):
    """See `points`."""
    release_bank(queues, state, bank)


@inlined
def finish_queued(rows, queues, state, kind, bank, clock):
    """See `points`."""


@inlined
def note_activated(rows, state, bank):
    """See `points`."""


@inlined
def note_column(rows, state, kind, bank):
    """See `points`."""


@inlined
def next_close(rows, state):
    """See `points`."""
    return FAR


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
