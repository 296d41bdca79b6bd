"""Experts in the GPU's memory that were prefetched for one layer, and do not stay."""

from __future__ import annotations

from collections.abc import Sequence

from ndpsim.policies.interface import BackgroundView

__all__ = ["to_give_up"]


def to_give_up(
    prefetched: Sequence[tuple[int, int]], view: BackgroundView, coming: int
) -> list[tuple[int, int]]:
    """Those that are there and are not of the layer that comes: (row, expert) of each.

    coming: row of the layer that comes.
    """
    resident, moving = view.placement.resident, view.moving
    return [place for place in prefetched if place[0] != coming and resident[place] and not moving[place]]
