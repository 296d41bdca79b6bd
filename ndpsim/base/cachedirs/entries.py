"""Entries of a cache: files with a digest of their content.

Files, not SQLite: its write-ahead log does not work on network file systems, its locks are not reliable
there, and a writer that waits too long for a lock fails. A file that is renamed into place is complete or
absent. If two processes write an entry, both write the same content.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ndpsim.base.cachedirs.folders import (
    ENTRY,
    FOLDER,
    MARKER,
    remove_longest_unused,
    remove_old,
    remove_unfinished,
    roots,
    size_on_disk,
)
from ndpsim.base.cachedirs.own_files import problem_of, read_own, write_whole

_log = logging.getLogger("ndpsim")

_MAGIC = b"ndpsim cache entry 1\n"


@functools.cache
def _report_unused(folder: Path, problem: str) -> None:
    _log.warning("the cache in %s is not used: %s", folder, problem)


def _seal(name: str, content: bytes) -> bytes:
    """The bytes before the content of an entry."""
    return _MAGIC + hashlib.blake2b(name.encode() + b"\0" + content, digest_size=32).digest()


class Entries:
    """The entries of one kind and version, in all folders that can be used.

    `most_bytes` limits the entries of a kind in a root, over all versions. The least recently used entries
    are removed first, by the times of their files. Files are counted whenever an eighth of `most_bytes` has
    been written, and then an eighth is freed; processes that write at once may exceed the limit by an eighth
    each. An entry counts as at least 4 KiB. An entry larger than an eighth is not stored.

    Args:
        kind: one of `KINDS`.
        version: 20 hexadecimal digits: a digest of everything that the entries depend on.
        describe: returns a description of this version for readers; called when a folder is made.
        root: the folder of caches to use, an absolute path without links; None: those of `roots`.
        most_bytes: of the entries of this kind; None: no bound.
    """

    def __init__(
        self,
        kind: str,
        version: str,
        describe: Callable[[], Mapping[str, Any]],
        root: Path | None = None,
        most_bytes: int | None = None,
    ) -> None:
        self.name = f"{kind}-{version}"
        assert FOLDER.fullmatch(self.name), self.name
        self._kind, self._describe, self._root, self._most_bytes = kind, describe, root, most_bytes
        self._said_unwritable = False
        self._tidied: set[Path] = set()
        self._uncounted: dict[Path, int] = {}  # bytes written since files were counted, by root

    def folders(self) -> Iterator[Path]:
        """The folders that may be used, whether they are there or not, in order."""
        for root in roots() if self._root is None else (self._root,):
            problem = problem_of(root) or problem_of(root / self.name)
            if problem is None:
                yield root / self.name
            else:
                _report_unused(root, problem)

    def read(self, name: str) -> bytes | None:
        """The content of an entry; None: there is no undamaged one."""
        for folder in self.folders():
            file = folder / (name + ENTRY)
            with contextlib.suppress(OSError):  # it is not there, or has just been removed
                sealed = read_own(file) or b""
                content = sealed[len(_seal(name, b"")) :]
                if sealed == _seal(name, content) + content:
                    if self._most_bytes is not None:
                        with contextlib.suppress(OSError):  # a folder may be readable only
                            os.utime(file)
                    return content
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write an entry, if a folder can be used."""
        sealed = _seal(name, content) + content
        if self._most_bytes is not None and size_on_disk(len(sealed)) > self._most_bytes // 8:
            return
        first = None
        for folder in self.folders():
            try:
                self._make(folder)
                write_whole(folder / (name + ENTRY), sealed)
                self._make_room(folder.parent, len(sealed))
                return
            except OSError as error:
                first = first or f"{folder}: {error.strerror or error}"
        if not self._said_unwritable:
            self._said_unwritable = True
            _log.warning("nothing can be cached (%s)", first or "there is no folder for it")

    def _make_room(self, root: Path, written: int) -> None:
        if self._most_bytes is None:
            return
        eighth = self._most_bytes // 8
        self._uncounted[root] = self._uncounted.get(root, eighth) + size_on_disk(written)
        if self._uncounted[root] >= eighth:
            remove_longest_unused(root, self._kind, self._most_bytes - eighth)
            self._uncounted[root] = 0

    def make_folder(self) -> Path | None:
        """The folder that is written to, for another to put files into; None: there is none."""
        for folder in self.folders():
            with contextlib.suppress(OSError):
                self._make(folder)
                if os.access(folder, os.W_OK):
                    return folder
        return None

    def names(self) -> list[str]:
        """The names of all entries, damaged or not."""
        return sorted({file.stem for folder in self.folders() for file in folder.glob(f"*{ENTRY}")})

    def _make(self, folder: Path) -> None:
        """Make the folder with its marker, and room for it.

        Raises:
            OSError: it cannot be made, or is not the user's.
        """
        marker = folder / MARKER
        if os.path.lexists(marker):
            if folder not in self._tidied:  # once, because a large folder takes long
                self._tidied.add(folder)
                remove_unfinished(folder)
            return
        os.makedirs(folder.parent, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)
        if problem := problem_of(folder):
            raise OSError(problem)
        write_whole(marker, json.dumps(dict(self._describe()), indent=2).encode() + b"\n")
        remove_old(folder)
