"""One bank of each rank after the other, one each time that the refresh of a bank falls due (tREFIpb)."""

from __future__ import annotations

from ndpsim.dram.refresh_policies import Refreshed, Turn
from ndpsim.spec.standard import ONE_BANK

__all__ = ["turns"]


def turns(channel: Refreshed) -> list[Turn]:
    """See `refresh_policies`."""
    interval = channel.interval(ONE_BANK)
    banks = channel.bankgroups * channel.banks_per_group
    return [Turn((bank + 1) * interval, ONE_BANK, bank=bank) for bank in range(banks)]
