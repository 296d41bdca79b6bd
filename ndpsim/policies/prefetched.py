"""Experts in the GPU's memory that were prefetched for one layer, and do not stay."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ndpsim.policies.interface import BackgroundView


def to_give_up(
    prefetched: Sequence[tuple[int, int]], view: BackgroundView, stay: Collection[int]
) -> list[tuple[int, int]]:
    """Those that are there and whose layer is done: (row, expert) of each.

    stay: rows of the layer that comes, and of one that is under way.
    """
    resident, moving = view.placement.resident, view.moving
    return [place for place in prefetched if place[0] not in stay and resident[place] and not moving[place]]
