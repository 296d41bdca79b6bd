"""Folders of caches: where they are, what is in them, and what in them may be removed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from ndpsim.cachedirs.own_files import OPEN, read_own, user_number

#: What is cached; the first part of a folder's name.
KINDS = ("kernels", "results")
#: The file that says who made a folder.
MARKER = "ndpsim-cache.json"
#: Names of folders, and of the files of entries.
FOLDER = re.compile(rf"({'|'.join(KINDS)})-([0-9a-f]{{20}})")
ENTRY = re.compile(r"[\w.-]+\.entry")

# What Numba puts there when it keeps kernels itself: a folder for each of sources, with files.
_NUMBA_FOLDER = re.compile(r".+_[0-9a-f]{40}")
_NUMBA_FILE = re.compile(r".+\.nb[ci](\.tmp\.[0-9a-f]+)?")
_UNFINISHED = re.compile(r"\.ndpsim-[\w-]+\.tmp")  # what a process that was killed leaves behind
_FOLDERS_OF_A_KIND = 4  # of earlier versions, and the newest
_ABANDONED_S = 3600.0  # no file takes as long to write
_BLOCK_BYTES = 4096  # the least that a file takes on disk
_OPEN_FOLDER = OPEN | getattr(os, "O_DIRECTORY", 0)


def _usual_root() -> Path | None:
    chosen = os.environ.get("NDPSIM_CACHE_DIR")
    folder = chosen or platformdirs.user_cache_dir("ndpsim")
    if not chosen and not os.path.isabs(folder):
        return None  # there is no home
    return Path(os.path.realpath(folder))


def _temporary_root() -> Path | None:
    try:
        return Path(os.path.realpath(tempfile.gettempdir())) / f"ndpsim-{user_number() or 0}"
    except OSError:
        return None  # no folder for temporary files can be written


def roots() -> Iterator[Path]:
    """The folders that caches may lie in, in the order in which they are tried."""
    usual = _usual_root()
    if usual is not None:
        yield usual
    temporary = _temporary_root()
    if temporary is not None and temporary != usual:
        yield temporary


def size_on_disk(size: int) -> int:
    """What a file of so many bytes takes, at least."""
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _remove(folder: Path, which: Callable[[str], bool]) -> int:
    """Remove files of a folder that ndpsim made, by their names, and the folder if nothing else is in it.

    Returns how many bytes that were. Links are removed, not followed.

    Raises:
        OSError: it is not such a folder.
    """
    number = os.open(folder, _OPEN_FOLDER)
    try:
        status = os.fstat(number)
        names = os.listdir(number)
        if not FOLDER.fullmatch(folder.name) or MARKER not in names:
            raise OSError(f"{folder} was not made by ndpsim")
        if user_number() is not None and status.st_uid != user_number():
            raise OSError(f"{folder} belongs to another user")
        which_now = [name for name in names if name != MARKER and which(name)]
        removed = sum(_remove_files_of_numba(name, number) for name in which_now)
        removed += sum(_remove_file(name, number) for name in which_now)
        if which(MARKER) and os.listdir(number) == [MARKER]:
            removed += _remove_file(MARKER, number)
            os.rmdir(folder)
        return removed
    finally:
        os.close(number)


def _remove_file(name: str, folder: int) -> int:
    """Remove a file, a link or an empty folder, if that is possible; returns its size in bytes."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        (os.rmdir if stat.S_ISDIR(status.st_mode) else os.unlink)(name, dir_fd=folder)
    except OSError:
        return 0
    return status.st_size


def _remove_files_of_numba(name: str, folder: int) -> int:
    """Remove what Numba put into a folder of its own; returns how many bytes that were."""
    if not _NUMBA_FOLDER.fullmatch(name):
        return 0
    try:
        within = os.open(name, _OPEN_FOLDER, dir_fd=folder)
    except OSError:
        return 0
    try:
        return sum(_remove_file(file, within) for file in os.listdir(within) if _NUMBA_FILE.fullmatch(file))
    finally:
        os.close(within)


def _is_made_here(name: str) -> bool:
    return name == MARKER or any(form.fullmatch(name) for form in (ENTRY, _UNFINISHED, _NUMBA_FOLDER))


def _entry_files(folder: Path) -> list[tuple[int, int, Path, str]]:
    """(Last use, size, folder, name) of each entry in a folder that ndpsim made."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as files:
        ours = os.path.lexists(folder / MARKER)
        for file in files if ours else ():
            if ENTRY.fullmatch(file.name):
                with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                    status = file.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, size_on_disk(status.st_size), folder, file.name))
    return found


def remove_longest_unused(root: Path, kind: str, most_bytes: int) -> None:
    """Leave entries of a kind that take at most so many bytes, of all versions together."""
    with contextlib.suppress(OSError):
        folders = [root / name for name in os.listdir(root) if FOLDER.fullmatch(name)]
        files = sorted(
            file for folder in folders if folder.name.startswith(f"{kind}-") for file in _entry_files(folder)
        )
        excess = sum(size for _, size, _, _ in files) - most_bytes
        removed: dict[Path, set[str]] = {}
        for _, size, folder, name in files:
            if excess <= 0:
                break
            removed.setdefault(folder, set()).add(name)
            excess -= size
        for folder, names in removed.items():
            _remove(folder, names.__contains__)


def remove_unfinished(folder: Path) -> None:
    """Remove what processes that ended long ago left unfinished."""

    def is_abandoned(name: str) -> bool:
        if not _UNFINISHED.fullmatch(name):
            return False
        with contextlib.suppress(OSError):
            return time.time() - os.lstat(folder / name).st_mtime > _ABANDONED_S
        return False

    with contextlib.suppress(OSError):
        _remove(folder, is_abandoned)


@dataclass(frozen=True)
class Folder:
    """A folder of a cache.

    Attributes:
        path: of the folder.
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


def _look(folder: Path) -> Folder | None:
    """What is in a folder; None: ndpsim did not make it."""
    named = FOLDER.fullmatch(folder.name)
    if named is None:
        return None
    try:
        status = os.lstat(folder)
        names = os.listdir(folder) if stat.S_ISDIR(status.st_mode) else []
    except OSError:
        return None
    if MARKER not in names or (user_number() is not None and status.st_uid != user_number()):
        return None
    size, entries = 0, 0
    for name in filter(_is_made_here, names):
        with contextlib.suppress(OSError):
            size += os.lstat(folder / name).st_size
            entries += name.endswith(".entry")
            if _NUMBA_FOLDER.fullmatch(name):
                size += sum(os.lstat(file).st_size for file in (folder / name).iterdir())
    made_by: Any = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        made_by = json.loads(read_own(folder / MARKER) or b"")
    return Folder(
        folder,
        named[1],
        named[2],
        entries,
        size,
        status.st_mtime,
        made_by if isinstance(made_by, dict) else {},
    )


def find_folders(root: Path) -> list[Folder]:
    """The folders that ndpsim made in a root, the one written last first."""
    try:
        names = os.listdir(root)
    except OSError:
        return []
    found = [folder for name in names if (folder := _look(root / name)) is not None]
    return sorted(found, key=lambda folder: folder.written, reverse=True)


def remove_old(newest: Path) -> None:
    """Leave the last folders of the kind of `newest`, it among them."""
    kind = newest.name.partition("-")[0]
    others = [one for one in find_folders(newest.parent) if one.kind == kind and one.path != newest]
    for old in others[_FOLDERS_OF_A_KIND - 1 :]:
        with contextlib.suppress(OSError):
            _remove(old.path, _is_made_here)


@dataclass(frozen=True)
class Cleared:
    """What was removed, and which folders could not be, or not wholly."""

    removed: tuple[Path, ...]
    size_bytes: int
    left: tuple[Path, ...]


def clear(kinds: tuple[str, ...] = KINDS) -> Cleared:
    """Remove what ndpsim cached of these kinds, in every root, and nothing else."""
    removed: list[Path] = []
    left: list[Path] = []
    size = 0
    for root in roots():
        for folder in find_folders(root):
            if folder.kind not in kinds:
                continue
            with contextlib.suppress(OSError):
                size += _remove(folder.path, _is_made_here)
            (left if os.path.lexists(folder.path) else removed).append(folder.path)
    return Cleared(tuple(removed), size, tuple(left))
