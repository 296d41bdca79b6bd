"""Nothing is refreshed."""

from __future__ import annotations

from ndpsim.dram.refresh_policies import Refreshed, Turn


def turns(channel: Refreshed) -> list[Turn]:
    return []
