"""All banks of every rank at each multiple of tREFI, in rank order."""

from __future__ import annotations

from ndpsim.dram.refresh_policies import Refreshed, Turn
from ndpsim.dram.spec.standard import WHOLE_RANK


def turns(channel: Refreshed) -> list[Turn]:
    return [Turn(channel.interval(WHOLE_RANK), WHOLE_RANK)]
