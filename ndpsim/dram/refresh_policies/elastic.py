"""All banks of a rank: postponed while requests wait for the rank, and pulled in while none does.

After Stuecheli et al., "Elastic Refresh" (MICRO 2010); within what the standard allows, see `dram.elastic`.
The turns are the clocks at which refreshes are due, as of all-bank. It runs on the general controller.
"""

from __future__ import annotations

from ndpsim.dram.refresh_policies import Refreshed, Turn
from ndpsim.dram.spec.standard import WHOLE_RANK

ELASTIC = True


def turns(channel: Refreshed) -> list[Turn]:
    return [Turn(channel.interval(WHOLE_RANK), WHOLE_RANK)]
