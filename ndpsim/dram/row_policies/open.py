"""Rows stay open until a request for another row, or a refresh, closes them."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim._jit import inlined
from ndpsim.dram.masks.banks import release_bank
from ndpsim.dram.masks.choose import choose_active, choose_maintenance
from ndpsim.dram.masks.issue import issue_active, issue_maintenance
from ndpsim.dram.state import FAR, NEXT_REFRESH

__all__ = ["OpenRows", "of"]


class OpenRows(NamedTuple):
    """There are no parameters."""

    @staticmethod
    def parts() -> str:
        """The module of the parts of kernels."""
        return __name__


def of(cap: int) -> OpenRows:
    """The parameters."""
    return OpenRows()


# ---- The general controller


@inlined
def close_due(rows, tables, channel, clock):
    """See `maintenance`."""
    return FAR


@inlined
def column_command(rows, bank_rows, command, bank):
    """See `issuing`."""
    return command


# ---- The fast controller


@inlined
def issue_first_active(rows, shape, state, latencies, source, sink, commands, credit, clock):
    """See `masks.row_points`."""
    active_queue, place = choose_active(shape, state, credit, clock)
    if active_queue >= 0:
        issue_active(shape, state, latencies, source, sink, commands, active_queue, place, clock)
    return active_queue >= 0


@inlined
def issue_first_maintenance(rows, shape, state, source, sink, commands, credit, clock):
    """See `masks.row_points`."""
    kind, at = choose_maintenance(shape, state, credit, 0, clock)
    if kind >= 0:
        issue_maintenance(shape, state, source, sink, commands, kind, clock)
    return clock if kind >= 0 else at


@inlined
def column_kind(rows, state, kind, bank):
    """See `masks.row_points`."""
    return kind


@inlined
def finish_active(rows, queues, state, kind, bank, clock):
    """See `masks.row_points`."""
    release_bank(queues, state, bank)


@inlined
def finish_queued(rows, queues, state, kind, bank, clock):
    """See `masks.row_points`."""


@inlined
def note_activated(rows, state, bank):
    """See `masks.row_points`."""


@inlined
def note_column(rows, state, kind, bank):
    """See `masks.row_points`."""


@inlined
def next_maintenance(rows, state):
    """See `masks.row_points`."""
    return state[NEXT_REFRESH]


@inlined
def close_rows(rows, state, clock):
    """See `masks.row_points`."""
    return False


@inlined
def also_held(rows, shape, state, rank):
    """See `masks.row_points`."""
    return 0


@inlined
def lacks_rows(rows, shape, state):
    """See `masks.row_points`."""
    return False
