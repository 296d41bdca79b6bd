"""What was made in the last few calls, kept for the next."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

__all__ = ["MadeOfFiles", "drop_oldest", "kept_by_identity"]

A = TypeVar("A")
R = TypeVar("R")

_Stamp = tuple[int, ...]
_SETTLED_NS = 2_000_000_000  # longer than a tick of any clock by which files are stamped


def drop_oldest(kept: dict[Any, Any], most: int) -> None:
    """Leave the last `most` entries."""
    if len(kept) > most:
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


def _stamp(file: str) -> _Stamp:
    """What tells a file or folder from a changed one; empty where there is nothing."""
    try:
        status = os.stat(file)
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


class MadeOfFiles(Generic[R]):
    """What was made of files for the last `most` keys, for as long as the files stay as they are."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Hashable, tuple[dict[str, _Stamp], R]] = {}

    def find(self, key: Hashable) -> R | None:
        """What was made for `key`; None: nothing, or a file has changed since."""
        known = self._kept.get(key)
        if known is None:
            return None
        stamps, made = known
        for file, stamp in stamps.items():
            if _stamp(file) != stamp:
                return None
        for file in stamps:  # as good as read again, for who watches what is read
            sys.audit("open", file, "r", os.O_RDONLY)
        return made

    def keep(self, key: Hashable, files: Iterable[str | Path], made: R) -> R:
        """Keep what was just `made` of `files`. A folder is one of them where it matters what lies in it.

        A file that changed a moment ago may have changed since it was read, or may change once more under
        the same stamp: then nothing is kept.
        """
        stamps = {str(file): _stamp(str(file)) for file in files}
        self._kept.pop(key, None)
        if all(max(stamp[:2], default=0) < time.time_ns() - _SETTLED_NS for stamp in stamps.values()):
            self._kept[key] = stamps, made
            drop_oldest(self._kept, self._most)
        return made
