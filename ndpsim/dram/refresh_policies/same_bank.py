"""One bank of every bank group of each rank after the other, all of them over tREFI (JESD79-5)."""

from __future__ import annotations

from ndpsim.dram.refresh_policies import Turn
from ndpsim.spec.standard import REFSB

__all__ = ["turns"]


def turns(ranks: int, banks_per_group: int, interval: int) -> list[Turn]:
    """See `refresh_policies`."""
    banks = banks_per_group
    return [Turn((bank + 1) * interval // banks, REFSB, bank=bank) for bank in range(banks)]
