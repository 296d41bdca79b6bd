"""Command traces written out, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ndpsim.audit import Report, check
from ndpsim.dram.spec import Device, standards
from ndpsim.dram.traces import CommandTrace

NAMES = standards()["DDR5"].names  # DDR4 has the first of them
NUMBER = {name: number for number, name in enumerate(NAMES)}
COLUMN = ("RD", "RDA", "WR", "WRA")
WHOLE_RANK, SAME_BANK = ("PREab", "REFab", "RFMab"), ("PREsb", "REFsb", "RFMsb")

Spot = tuple[int, int, int]  # rank, bank group, bank
Line = tuple[int, ...]  # clock, number of a command, rank, bank group, bank, row, column


def line(clock: int, name: str, spot: Spot = (0, 0, 0), row: int = 7, column: int = 3) -> Line:
    """A well-formed command, where coordinates that it does not address are -1."""
    rank, group, bank = spot
    group = -1 if name in WHOLE_RANK + SAME_BANK else group
    bank = -1 if name in WHOLE_RANK else bank
    has_row, has_column = name in ("ACT", *COLUMN), name in COLUMN
    return clock, NUMBER[name], rank, group, bank, row if has_row else -1, column if has_column else -1


def trace_of(lines: Iterable[Line]) -> CommandTrace:
    return CommandTrace.of(np.array(list(lines), dtype=np.int64).reshape(-1, 7).T)


def named(*lines: tuple[Any, ...], names: Sequence[str] = NAMES) -> CommandTrace:
    """A trace of (clock, name, then rank, bank group, bank, row and column as far as not 0)."""
    rows = [(clock, names.index(name), *place, *[0] * (5 - len(place))) for clock, name, *place in lines]
    return CommandTrace.of(np.array(rows, dtype=np.int64).T, names)


def verdict(lines: Iterable[Line], device: Device, **options: Any) -> Report:
    """A check without refreshes."""
    return check(trace_of(lines), device, **{"refresh": "none", "limit": 1000, **options})
