"""One bank of every bank group of each rank after the other, all of them over tREFI (JESD79-5)."""

from __future__ import annotations

from ndpsim.dram.refresh_policies import Refreshed, Turn
from ndpsim.dram.spec.standard import SAME_BANKS

ANY_ORDER = True


def turns(channel: Refreshed) -> list[Turn]:
    banks, interval = channel.banks_per_group, channel.interval(SAME_BANKS)
    return [Turn((bank + 1) * interval // banks, SAME_BANKS, bank=bank) for bank in range(banks)]
