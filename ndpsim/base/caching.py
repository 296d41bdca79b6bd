"""Caches of results in memory: by the identity of an argument, or while files do not change."""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar, TypeVarTuple, Unpack

from ndpsim.base.run_files import note_input

A = TypeVarTuple("A")
R = TypeVar("R")

_Stamp = tuple[int, ...]
_STABLE_NS = 2_000_000_000  # longer than the resolution of the time stamps of any file system


def _evict(cache: dict[Any, Any], most: int) -> None:
    """Leave the `most` entries that were stored last."""
    for oldest in list(cache)[: max(len(cache) - most, 0)]:
        cache.pop(oldest, None)  # another thread may have


def cached_by_identity(most: int) -> Callable[[Callable[[Unpack[A]], R]], Callable[[Unpack[A]], R]]:
    """Cache the results of a function for its last `most` arguments, which need not be hashable."""

    def decorate(function: Callable[[Unpack[A]], R]) -> Callable[[Unpack[A]], R]:
        cache: dict[
            tuple[int, ...], tuple[Any, R]
        ] = {}  # an entry holds the arguments: no other has their id

        signature = inspect.signature(function)

        @functools.wraps(function)
        def cached(*arguments: *A, **named: Any) -> R:
            if named:
                arguments = signature.bind(*arguments, **named).args
            key = tuple(map(id, arguments))
            entry = cache.get(key)
            if entry is None:
                entry = cache[key] = arguments, function(*arguments)
                _evict(cache, most)
            return entry[1]

        return cached

    return decorate


def _stamp(file: str) -> _Stamp:
    """A stamp that changes when a file or folder changes; empty if it does not exist."""
    try:
        status = os.stat(file)
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


class FileCache(Generic[R]):
    """Objects made from files, for the last `most` keys, while the files do not change."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[Hashable, tuple[dict[str, _Stamp], R]] = {}

    def find(self, key: Hashable) -> R | None:
        """The object made for `key`; None: there is none, or a file has changed since."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        stamps, made = entry
        for file, stamp in stamps.items():
            if _stamp(file) != stamp:
                return None
        for file in stamps:  # they are inputs of this call, too
            note_input(file)
        return made

    def store(self, key: Hashable, files: Iterable[str | Path], made: R) -> R:
        """Store the object that was just `made` from `files`, which may include folders.

        If a file changed a moment ago, nothing is stored: the file may have changed after it was read, or may
        change again under the same stamp.
        """
        stamps = {str(file): _stamp(str(file)) for file in files}
        self._entries.pop(key, None)
        if all(max(stamp[:2], default=0) < time.time_ns() - _STABLE_NS for stamp in stamps.values()):
            self._entries[key] = stamps, made
            _evict(self._entries, self._most)
        return made
