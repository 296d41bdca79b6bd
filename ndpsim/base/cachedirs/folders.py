"""Cache folders: their places, their contents, and the files that may be removed."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from ndpsim.base.cachedirs.own_files import read_own

#: What is cached; the first part of a folder's name.
KINDS = ("kernels", "results")
#: The file that says who made a folder.
MARKER = "ndpsim-cache.json"
#: Names of folders.
FOLDER = re.compile(rf"({'|'.join(KINDS)})-[0-9a-f]{{20}}")
#: How names of entries end.
ENTRY = ".entry"

# Entries, temporary files of killed runs, and what Numba keeps itself.
_OURS = re.compile(rf".+\{ENTRY}|\.ndpsim-.+\.tmp|.+\.nb[ci](\.tmp\..+)?")
_BLOCK_BYTES = 4096  # the least that a file takes on disk


def roots() -> list[Path]:
    """The folders that may contain caches, in the order in which they are tried."""
    chosen = os.environ.get("NDPSIM_CACHE_DIR")
    usual = chosen or platformdirs.user_cache_dir("ndpsim")
    found = [Path(os.path.realpath(usual))] if chosen or os.path.isabs(usual) else []  # with a home folder
    with suppress(OSError):  # no folder for temporary files can be written
        found.append(Path(os.path.realpath(tempfile.gettempdir())) / f"ndpsim-{os.geteuid()}")
    return list(dict.fromkeys(found))


def size_on_disk(size: int) -> int:
    """Minimum number of bytes that a file of this size occupies on disk."""
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _names(folder: Path) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []


def _files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """The files that ndpsim, or Numba for it, put into a folder of ours, besides the marker."""
    found = []
    for inner, _, names in os.walk(folder):
        for path in (Path(inner, name) for name in names if _OURS.fullmatch(name)):
            with suppress(OSError):  # another process has just removed it
                found.append((path, os.lstat(path)))
    return found


@dataclass(frozen=True)
class Folder:
    """A folder of a cache.

    Attributes:
        path: the path of the folder.
        kind: one of `KINDS`.
        files: all that ndpsim put there, besides the marker.
        size_bytes: of these files and the marker.
        written: when something was last put there, in seconds since 1970.
    """

    path: Path
    kind: str
    files: Sequence[tuple[Path, os.stat_result]]
    size_bytes: int
    written: float

    @property
    def entries(self) -> int:
        """How many files are entries."""
        return sum(path.suffix == ENTRY for path, _ in self.files)

    @property
    def made_by(self) -> Mapping[str, Any]:
        """What the marker says; empty when that is damaged."""
        made_by: Any = None
        with suppress(OSError, ValueError, RecursionError):
            made_by = json.loads(read_own(self.path / MARKER))
        return made_by if isinstance(made_by, dict) else {}


def find_folders(root: Path, kinds: Collection[str] = KINDS) -> list[Folder]:
    """The folders of these kinds that ndpsim made in a root for this user, the one written last first."""
    found = []
    for name in _names(root):
        path, named = root / name, FOLDER.fullmatch(name)
        with suppress(OSError):  # it has no marker, or has just been removed
            status, marker = os.lstat(path), os.lstat(path / MARKER)
            if named and named[1] in kinds and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                files = _files(path)
                size = marker.st_size + sum(of_file.st_size for _, of_file in files)
                found.append(Folder(path, named[1], files, size, status.st_mtime))
    return sorted(found, key=lambda folder: folder.written, reverse=True)


def _remove(folder: Folder) -> int:
    """Remove what ndpsim put into a folder, and the folder if nothing else is in it.

    Returns the size of what was removed, in bytes.
    """
    size = 0
    for path, status in folder.files:
        with suppress(OSError):
            path.unlink()
            size += status.st_size
    for inner, _, _ in os.walk(folder.path, topdown=False):
        with suppress(OSError):
            os.rmdir(inner)
    return folder.size_bytes if _removed_empty(folder.path) else size


def _removed_empty(folder: Path) -> bool:
    """Remove a folder in which only its marker is left: the marker last, as it says whose the folder is."""
    with suppress(OSError):
        if _names(folder) == [MARKER]:
            (folder / MARKER).unlink()
            folder.rmdir()
    return not os.path.lexists(folder)


def remove_longest_unused(root: Path, kind: str, most_bytes: int) -> None:
    """Remove the least recently used files of a kind, of any version, until this many bytes are left."""
    files = [file for one in find_folders(root, (kind,)) for file in one.files if file[0].suffix != ".tmp"]
    excess = sum(size_on_disk(status.st_size) for _, status in files) - most_bytes
    for path, status in sorted(files, key=lambda file: file[1].st_mtime_ns):
        if excess <= 0:
            return
        excess -= size_on_disk(status.st_size)
        with suppress(OSError):
            path.unlink()
            _removed_empty(path.parent)


@dataclass(frozen=True)
class Cleared:
    """Removed bytes and files, and the folders that could not be removed, or only in part."""

    removed: tuple[Path, ...]
    size_bytes: int
    left: tuple[Path, ...]


def clear(kinds: Collection[str] = KINDS) -> Cleared:
    """Remove all caches of these kinds in every root, and nothing else."""
    folders = [folder for root in roots() for folder in find_folders(root, kinds)]
    size = sum(map(_remove, folders))
    left = tuple(folder.path for folder in folders if os.path.lexists(folder.path))
    return Cleared(tuple(folder.path for folder in folders if folder.path not in left), size, left)
