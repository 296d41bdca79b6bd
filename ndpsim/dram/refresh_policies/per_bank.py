"""One bank of each rank after the other, one in each interval of the per-bank refresh (tREFIpb).

The standard's command decides whether it is due in all ranks together, a clock later from rank to rank, or
in one rank after the other, and after how many banks there is a pause.
"""

from __future__ import annotations

from ndpsim.dram.refresh_policies import Refreshed, Turn
from ndpsim.spec.standard import ONE_BANK


def turns(channel: Refreshed) -> list[Turn]:
    """See `refresh_policies`."""
    interval = channel.interval(ONE_BANK)
    banks = channel.bankgroups * channel.banks_per_group
    order, of_round = channel.rank_order(ONE_BANK), channel.round(ONE_BANK).banks
    is_last = [of_round > 0 and (bank + 1) % of_round == 0 for bank in range(banks)]
    if order == "together":
        return [
            Turn((bank + 1) * interval, ONE_BANK, bank=bank, ends_round=is_last[bank])
            for bank in range(banks)
        ]
    if order == "a clock apart":
        last = channel.ranks - 1
        return [
            Turn((bank + 1) * interval, ONE_BANK, rank, bank, rank, is_last[bank] and rank == last)
            for bank in range(banks)
            for rank in range(channel.ranks)
        ]
    return [
        Turn((n + 1) * interval, ONE_BANK, n // banks, n % banks, ends_round=is_last[n % banks])
        for n in range(channel.ranks * banks)
    ]
