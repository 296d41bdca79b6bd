"""One bank of each rank after the other, one in each interval of the per-bank refresh (tREFIpb).

If the standard's per-bank refresh takes a pair of banks, it is one pair after the other.
The standard's command decides whether it is due in all ranks together, a clock later from rank to rank, or
in one rank after the other, and after how many banks there is a pause.
"""

from __future__ import annotations

from ndpsim.dram.refresh_policies import Refreshed, Turn
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK

ANY_ORDER = True


def turns(channel: Refreshed) -> list[Turn]:
    scope = BANK_PAIR if BANK_PAIR in channel.commands else ONE_BANK
    interval = channel.interval(scope)
    banks = channel.bankgroups * channel.banks_per_group // (2 if scope == BANK_PAIR else 1)
    order, banks_in_round = channel.rank_order(scope), channel.round(scope).banks
    is_last = [banks_in_round > 0 and (bank + 1) % banks_in_round == 0 for bank in range(banks)]
    if order == "together":
        return [
            Turn((bank + 1) * interval, scope, bank=bank, ends_round=is_last[bank]) for bank in range(banks)
        ]
    if order == "a clock apart":
        last = channel.ranks - 1
        return [
            Turn((bank + 1) * interval, scope, rank, bank, rank, is_last[bank] and rank == last)
            for bank in range(banks)
            for rank in range(channel.ranks)
        ]
    return [
        Turn((n + 1) * interval, scope, n // banks, n % banks, ends_round=is_last[n % banks])
        for n in range(channel.ranks * banks)
    ]
