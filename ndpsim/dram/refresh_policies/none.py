"""Nothing is refreshed."""

from __future__ import annotations

from ndpsim.dram.refresh_policies import Turn

__all__ = ["turns"]


def turns(ranks: int, banks_per_group: int, interval: int) -> list[Turn]:
    """See `refresh_policies`."""
    return []
