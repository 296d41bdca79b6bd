"""What was made in the last few calls, kept for the next."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["drop_oldest", "kept_by_identity"]

A = TypeVar("A")
R = TypeVar("R")


def drop_oldest(kept: dict[Any, Any], most: int) -> None:
    """Leave the last `most` entries."""
    for oldest in list(kept)[:-most]:
        del kept[oldest]


def kept_by_identity(most: int) -> Callable[[Callable[[A], R]], Callable[[A], R]]:
    """Keep what a function made of its last `most` arguments, for arguments that cannot be hashed."""

    def keep(make: Callable[[A], R]) -> Callable[[A], R]:
        kept: dict[int, tuple[A, R]] = {}  # the entry keeps its argument, and so its identity, alive

        @functools.wraps(make)
        def find(argument: A) -> R:
            if id(argument) not in kept:
                kept[id(argument)] = argument, make(argument)
                drop_oldest(kept, most)
            return kept[id(argument)][1]

        return find

    return keep
