"""All banks of one rank after the other, evenly over tREFI."""

from __future__ import annotations

from ndpsim.dram.refresh_policies import Refreshed, Turn
from ndpsim.dram.spec.standard import WHOLE_RANK


def turns(channel: Refreshed) -> list[Turn]:
    interval = channel.interval(WHOLE_RANK)
    return [Turn((n + 1) * (interval // channel.ranks), WHOLE_RANK, rank=n) for n in range(channel.ranks)]
