"""All banks of every rank at each multiple of tREFI, in rank order."""

from __future__ import annotations

from ndpsim.dram.refresh_policies import Turn
from ndpsim.spec.standard import REFAB

__all__ = ["turns"]


def turns(ranks: int, banks_per_group: int, interval: int) -> list[Turn]:
    """See `refresh_policies`."""
    return [Turn(interval, REFAB)]
