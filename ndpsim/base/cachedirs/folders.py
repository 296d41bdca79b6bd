"""Cache folders: their places, their contents, and the files that may be removed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
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
FOLDER = re.compile(rf"({'|'.join(KINDS)})-([0-9a-f]{{20}})")
#: How names of entries end.
ENTRY = ".entry"

_UNFINISHED = r"\.ndpsim-[\w-]+\.tmp"  # what a process that was killed leaves behind
_NUMBA_FOLDER = re.compile(r".+_[0-9a-f]{40}")  # where Numba keeps kernels itself: a folder for each source
_OURS = re.compile(rf"[\w.-]+\{ENTRY}|{_UNFINISHED}|{_NUMBA_FOLDER.pattern}/.+\.nb[ci](\.tmp\.[0-9a-f]+)?")
_FOLDERS_OF_A_KIND = 4  # of earlier versions, and the newest
_ABANDONED_S = 3600.0  # no file takes as long to write
_BLOCK_BYTES = 4096  # the least that a file takes on disk


def roots() -> list[Path]:
    """The folders that may contain caches, in the order in which they are tried."""
    chosen = os.environ.get("NDPSIM_CACHE_DIR")
    usual = chosen or platformdirs.user_cache_dir("ndpsim")
    found = [Path(os.path.realpath(usual))] if chosen or os.path.isabs(usual) else []  # with a home folder
    with contextlib.suppress(OSError):  # no folder for temporary files can be written
        found.append(Path(os.path.realpath(tempfile.gettempdir())) / f"ndpsim-{os.geteuid()}")
    return list(dict.fromkeys(found))


def size_on_disk(size: int) -> int:
    """Minimum number of bytes that a file of this size occupies on disk."""
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _is_ours(folder: Path) -> bool:
    """Whether ndpsim made a folder, for this user."""
    with contextlib.suppress(OSError):
        named = FOLDER.fullmatch(folder.name) and not folder.is_symlink()
        return bool(named) and os.path.lexists(folder / MARKER) and os.lstat(folder).st_uid == os.geteuid()
    return False


def _files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """The files that ndpsim, or Numba for it, put into a folder of ours, besides the marker."""
    within = list(folder.iterdir())
    for path in list(within):
        if _NUMBA_FOLDER.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            within += path.iterdir()
    found = []
    for path in within:
        if _OURS.fullmatch(path.relative_to(folder).as_posix()):
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                found.append((path, os.lstat(path)))
    return found


def _remove(files: Iterable[tuple[Path, os.stat_result]]) -> int:
    """Remove files, and links without following them, where that is possible; returns their size in bytes."""
    removed = 0
    for path, status in files:
        with contextlib.suppress(OSError):
            path.unlink()
            removed += status.st_size
    return removed


def _remove_folder(folder: Path) -> int:
    """Remove what ndpsim put into a folder of ours, and the folder if nothing else is in it.

    Returns how many bytes that were.
    """
    size = 0
    with contextlib.suppress(OSError):
        size = _remove(_files(folder))
        for within in filter(_NUMBA_FOLDER.fullmatch, os.listdir(folder)):
            with contextlib.suppress(OSError):
                os.rmdir(folder / within)
        if os.listdir(folder) == [MARKER]:
            size += _remove([(folder / MARKER, os.lstat(folder / MARKER))])
            folder.rmdir()
    return size


def _folders(root: Path) -> list[Path]:
    """The folders in a root that ndpsim made for this user."""
    with contextlib.suppress(OSError):
        return [folder for folder in root.iterdir() if _is_ours(folder)]
    return []


def remove_longest_unused(root: Path, kind: str, most_bytes: int) -> None:
    """Remove the least recently used entries of a kind, of any version, until this many bytes are left."""
    files: list[tuple[Path, os.stat_result]] = []
    for folder in _folders(root):
        with contextlib.suppress(OSError):
            files += _files(folder) if folder.name.startswith(kind) else ()
    entries = [one for one in files if one[0].suffix == ENTRY]
    excess = sum(size_on_disk(status.st_size) for _, status in entries) - most_bytes
    for path, status in sorted(entries, key=lambda entry: entry[1].st_mtime_ns):
        if excess <= 0:
            break
        _remove([(path, status)])
        excess -= size_on_disk(status.st_size)


def remove_unfinished(folder: Path) -> None:
    """Remove unfinished files of processes that ended long ago from a folder of ndpsim."""
    before = time.time() - _ABANDONED_S
    with contextlib.suppress(OSError):
        _remove(one for one in _files(folder) if one[0].suffix == ".tmp" and one[1].st_mtime < before)


@dataclass(frozen=True)
class Folder:
    """A folder of a cache.

    Attributes:
        path: the path of the folder.
        kind: one of `KINDS`.
        version: 20 hexadecimal digits.
        entries: files that are entries.
        size_bytes: of all that ndpsim put there.
        written: when something was last put there, in seconds since 1970.
        made_by: what its marker says; empty when that is damaged.
    """

    path: Path
    kind: str
    version: str
    entries: int
    size_bytes: int
    written: float
    made_by: Mapping[str, Any]


def find_folders(root: Path) -> list[Folder]:
    """The folders that ndpsim made in a root, the one written last first."""
    found = []
    for path in _folders(root):
        with contextlib.suppress(OSError):
            files = _files(path)
            entries = sum(file.suffix == ENTRY for file, _ in files)
            size = sum(status.st_size for _, status in files) + os.lstat(path / MARKER).st_size
            kind, _, version = path.name.partition("-")
            found.append(Folder(path, kind, version, entries, size, path.stat().st_mtime, _made_by(path)))
    return sorted(found, key=lambda folder: folder.written, reverse=True)


def _made_by(folder: Path) -> Mapping[str, Any]:
    made_by: Any = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        made_by = json.loads(read_own(folder / MARKER) or b"")
    return made_by if isinstance(made_by, dict) else {}


def remove_old(newest: Path) -> None:
    """Remove all but the last folders of the kind of `newest`; `newest` stays."""
    kind = newest.name.partition("-")[0]
    others = [one for one in find_folders(newest.parent) if one.kind == kind and one.path != newest]
    for old in others[_FOLDERS_OF_A_KIND - 1 :]:
        _remove_folder(old.path)


@dataclass(frozen=True)
class Cleared:
    """Removed bytes and files, and the folders that could not be removed, or only in part."""

    removed: tuple[Path, ...]
    size_bytes: int
    left: tuple[Path, ...]


def clear(kinds: tuple[str, ...] = KINDS) -> Cleared:
    """Remove all caches of these kinds in every root, and nothing else."""
    folders = [path for root in roots() for path in _folders(root) if path.name.partition("-")[0] in kinds]
    size = sum(map(_remove_folder, folders))
    left = tuple(filter(os.path.lexists, folders))
    return Cleared(tuple(path for path in folders if path not in left), size, left)
