"""Random places of requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PLACE = ("rank", "bankgroup", "bank", "row", "column")


def drawn_places(
    rng: np.random.Generator, count: int, below: Sequence[int]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Ranks, bank groups, banks, rows and columns, each below its limit, and addresses, which are equal for equal places."""
    place = {name: rng.integers(0, most, count) for name, most in zip(PLACE, below, strict=True)}
    address = np.zeros(count, dtype=np.int64)
    for field in place.values():
        address = address * 1024 + field
    return place, address
