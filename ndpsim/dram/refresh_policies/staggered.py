"""All banks of one rank after the other, evenly over tREFI."""

from __future__ import annotations

from ndpsim.dram.refresh_policies import Turn
from ndpsim.spec.standard import REFAB

__all__ = ["turns"]


def turns(ranks: int, banks_per_group: int, interval: int) -> list[Turn]:
    """See `refresh_policies`."""
    return [Turn((rank + 1) * (interval // ranks), REFAB, rank=rank) for rank in range(ranks)]
