"""Entries of a cache: files with a digest of their content.

Files, not SQLite: its locks are not reliable on network file systems. A file that is renamed into place is
complete or absent. If two processes write an entry, both write the same content.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ndpsim.base.cachedirs.folders import (
    ENTRY,
    FOLDER,
    MARKER,
    remove_longest_unused,
    roots,
    size_on_disk,
)
from ndpsim.base.cachedirs.own_files import problem_of, read_own
from ndpsim.base.temporaries import remove_leftovers, temporary_file

_log = logging.getLogger("ndpsim")

_MAGIC = b"ndpsim cache entry 1\n"
_MOST_BYTES = 1 << 28  # some ten versions of all kernels


@functools.cache
def _warn_once(line: str) -> None:
    _log.warning("%s", line)


def _sealed(name: str, content: bytes) -> bytes:
    """The bytes of an entry: a digest of its name and content, and the content."""
    return _MAGIC + hashlib.blake2b(name.encode() + b"\0" + content, digest_size=32).digest() + content


_SEAL_BYTES = len(_sealed("", b""))


def _write_whole(path: Path, content: bytes) -> None:
    with temporary_file(path.parent) as file:
        os.fchmod(file.fileno(), 0o600)  # whatever the user's mask lets others write, `read_own` refuses
        file.write(content)
        file.flush()
        os.replace(file.name, path)


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
        most_bytes: of the entries of this kind.
    """

    def __init__(
        self,
        kind: str,
        version: str,
        describe: Callable[[], Mapping[str, Any]],
        root: Path | None = None,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self.name = f"{kind}-{version}"
        assert FOLDER.fullmatch(self.name), self.name
        self._kind, self._describe, self._root, self._most_bytes = kind, describe, root, most_bytes
        self._tidied: set[Path] = set()
        self._uncounted: dict[Path, int] = {}  # bytes written since files were counted, by root

    def folders(self) -> Iterator[Path]:
        """The folders that may be used, whether they are there or not, in order."""
        for root in roots() if self._root is None else (self._root,):
            problem = problem_of(root) or problem_of(root / self.name)
            if problem is None:
                yield root / self.name
            else:
                _warn_once(f"the cache in {root} is not used: {problem}")

    def read(self, name: str) -> bytes | None:
        """The content of an entry; None: there is no undamaged one."""
        for folder in self.folders():
            file = folder / (name + ENTRY)
            with suppress(OSError):  # it is not there, or has just been removed
                found = read_own(file)
                content = found[_SEAL_BYTES:]
                if found == _sealed(name, content):
                    with suppress(OSError):  # a folder may be readable only
                        os.utime(file)
                    return content
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write an entry, if a folder can be used."""
        sealed = _sealed(name, content)
        if size_on_disk(len(sealed)) > self._most_bytes // 8:
            return
        problems = []
        for folder in self.folders():
            try:
                self._make(folder)
                _write_whole(folder / (name + ENTRY), sealed)
                self._make_room(folder.parent, len(sealed))
                return
            except OSError as error:
                problems.append(f"{folder}: {error.strerror or error}")
        _warn_once(f"nothing can be cached ({(problems or ['there is no folder for it'])[0]})")

    def _make_room(self, root: Path, written: int) -> None:
        eighth = self._most_bytes // 8
        self._uncounted[root] = self._uncounted.get(root, eighth) + size_on_disk(written)
        if self._uncounted[root] >= eighth:
            remove_longest_unused(root, self._kind, self._most_bytes - eighth)
            self._uncounted[root] = 0

    def make_folder(self) -> Path | None:
        """The folder that is written to, for another to put files into; None: there is none."""
        for folder in self.folders():
            with suppress(OSError):
                self._make(folder)
                if os.access(folder, os.W_OK):
                    return folder
        return None

    def names(self) -> list[str]:
        """The names of all entries, damaged or not."""
        return sorted({file.stem for folder in self.folders() for file in folder.glob(f"*{ENTRY}")})

    def _make(self, folder: Path) -> None:
        """Make the folder with its marker.

        Raises:
            OSError: it cannot be made, or is not the user's.
        """
        if folder not in self._tidied:  # once, because a large folder takes long
            self._tidied.add(folder)
            remove_leftovers(folder)
        if os.path.lexists(folder / MARKER):
            return
        os.makedirs(folder.parent, mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)
        if problem := problem_of(folder):
            raise OSError(problem)
        _write_whole(folder / MARKER, json.dumps(dict(self._describe()), indent=2).encode() + b"\n")
