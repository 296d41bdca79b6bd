"""Entries of a cache: files whose digest says that they are whole."""

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

from ndpsim.cachedirs.folders import (
    ENTRY,
    FOLDER,
    MARKER,
    remove_longest_unused,
    remove_old,
    remove_unfinished,
    roots,
    size_on_disk,
)
from ndpsim.cachedirs.own_files import problem_of, read_own, write_whole

_log = logging.getLogger("ndpsim")

_MAGIC = b"ndpsim cache entry 1\n"
_DIGEST_BYTES = 32


@functools.cache
def _report_unused(folder: Path, problem: str) -> None:
    _log.warning("the cache in %s is not used: %s", folder, problem)


def _sealed(name: str, content: bytes) -> bytes:
    return _MAGIC + _digest(name, content) + content


def _digest(name: str, content: bytes) -> bytes:
    digest = hashlib.blake2b(name.encode() + b"\0", digest_size=_DIGEST_BYTES)
    digest.update(content)
    return digest.digest()


def _opened(name: str, sealed: bytes) -> bytes | None:
    """The content of an entry; None: it is damaged."""
    begin = len(_MAGIC) + _DIGEST_BYTES
    if not sealed.startswith(_MAGIC):
        return None
    content = sealed[begin:]
    return content if _digest(name, content) == sealed[len(_MAGIC) : begin] else None


class Entries:
    """The entries of one kind and version, in whichever folders can be used.

    Args:
        kind: one of `KINDS`.
        version: 20 hexadecimal digits, of all that the entries depend on.
        describe: says what this version is, for those who look; called when a folder is made.
        root: the folder of caches to use, an absolute path without links; None: those of `roots`.
    """

    def __init__(
        self,
        kind: str,
        version: str,
        describe: Callable[[], Mapping[str, Any]],
        root: Path | None = None,
    ) -> None:
        self.name = f"{kind}-{version}"
        assert FOLDER.fullmatch(self.name), self.name
        self._describe, self._root = describe, root
        self._said_unwritable = False
        self._tidied: set[Path] = set()

    def folders(self) -> Iterator[Path]:
        """The folders that may be used, whether they are there or not, in order."""
        for root in roots() if self._root is None else (self._root,):
            problem = problem_of(root) or problem_of(root / self.name)
            if problem is None:
                yield root / self.name
            else:
                _report_unused(root, problem)

    def read(self, name: str) -> bytes | None:
        """The content of an entry; None: there is none that is whole."""
        for folder in self.folders():
            with contextlib.suppress(OSError):  # it is not there, or has just been removed
                content = self._read_in(folder, name)
                if content is not None:
                    return content
        return None

    def _read_in(self, folder: Path, name: str) -> bytes | None:
        sealed = read_own(folder / f"{name}.entry")
        return None if sealed is None else _opened(name, sealed)

    def write(self, name: str, content: bytes) -> None:
        """Keep an entry where that is possible."""
        first = None
        for folder in self.folders():
            try:
                self._write_in(folder, name, content)
                return
            except OSError as error:
                first = first or f"{folder}: {error.strerror or error}"
        if not self._said_unwritable:
            self._said_unwritable = True
            _log.warning("nothing can be cached (%s)", first or "there is no folder for it")

    def make_folder(self) -> Path | None:
        """The folder that is written to, for another to put files into; None: there is none."""
        for folder in self.folders():
            with contextlib.suppress(OSError):
                self._make(folder)
                if os.access(folder, os.W_OK):
                    return folder
        return None

    def _write_in(self, folder: Path, name: str, content: bytes) -> None:
        self._make(folder)
        write_whole(folder / f"{name}.entry", _sealed(name, content))

    def names(self) -> list[str]:
        """The entries that are there and whole."""
        found: set[str] = set()
        for folder in self.folders():
            with contextlib.suppress(OSError):
                found |= set(filter(ENTRY.fullmatch, os.listdir(folder)))
        names = sorted(name.removesuffix(".entry") for name in found)
        return [name for name in names if self.read(name) is not None]

    def _make(self, folder: Path) -> None:
        """Make the folder with its marker, and room for it.

        Raises:
            OSError: it cannot be made, or is not the user's.
        """
        marker = folder / MARKER
        if os.path.lexists(marker):
            if folder not in self._tidied:  # once, for a large folder takes its time
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


class BoundedEntries(Entries):
    """Entries that take `most_bytes` of a root at most, over all versions: the longest unused go first.

    The time of its file says when an entry was last used. Files are counted after every eighth of
    `most_bytes` that was written, and then an eighth is made free: processes that write at once may exceed
    the bound by an eighth each. An entry counts for at least 4 KiB; one of more than an eighth is not stored.
    """

    def __init__(
        self,
        kind: str,
        version: str,
        describe: Callable[[], Mapping[str, Any]],
        root: Path | None,
        most_bytes: int,
    ) -> None:
        super().__init__(kind, version, describe, root)
        self.kind, self._most_bytes = kind, most_bytes
        self._uncounted: dict[Path, int] = {}  # bytes written since files were counted, by root

    def _read_in(self, folder: Path, name: str) -> bytes | None:
        content = super()._read_in(folder, name)
        if content is not None:
            with contextlib.suppress(OSError):  # a folder that can only be read is read all the same
                os.utime(folder / f"{name}.entry")
        return content

    def _write_in(self, folder: Path, name: str, content: bytes) -> None:
        eighth, size = self._most_bytes // 8, size_on_disk(len(content) + len(_MAGIC) + _DIGEST_BYTES)
        if size > eighth:
            return
        super()._write_in(folder, name, content)
        uncounted = self._uncounted.get(folder.parent, eighth) + size
        if uncounted >= eighth:
            remove_longest_unused(folder.parent, self.kind, self._most_bytes - eighth)
            uncounted = 0
        self._uncounted[folder.parent] = uncounted
