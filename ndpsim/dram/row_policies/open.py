"""Rows stay open until a request for another row, or a refresh, closes them."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined
from ndpsim.dram.state import FAR


class OpenRows(NamedTuple):
    """There are no parameters."""


def of(cap: int) -> OpenRows:
    """The parameters."""
    return OpenRows()


# ---- The general controller


@inlined
def close_due(rows, tables, state, clock):
    return FAR


@inlined
def column_command(rows, bank_rows, command, bank):
    return command
