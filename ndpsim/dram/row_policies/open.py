"""Rows stay open until a request for another row, or a refresh, closes them."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim._jit import inlined
from ndpsim.dram.masks.banks import release_bank
from ndpsim.dram.state import FAR

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
def next_close(rows, state):
    """See `masks.row_points`."""
    return FAR


@inlined
def close_rows(rows, state, clock):
    """See `masks.row_points`."""


@inlined
def also_held(rows, shape, state, rank):
    """See `masks.row_points`."""
    return 0


@inlined
def lacks_rows(rows, shape, state):
    """See `masks.row_points`."""
    return False
