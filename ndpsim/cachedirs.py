"""Folders of caches: whose they are, what in them may be removed, and what in them is damaged.

A cache holds what can be made again, in folders ``KIND-VERSION``, each with a marker file that says who made
it: in the user's cache folder, or in the one that ``NDPSIM_CACHE_DIR`` names; where that cannot be used, in
the folder for temporary files. A folder that others can write, or own, is not read. A file is believed when
its digest says so. Only files and folders with ndpsim's own names, in folders with its marker, are removed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
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

__all__ = [
    "KINDS",
    "BoundedEntries",
    "Cleared",
    "Entries",
    "Folder",
    "clear",
    "find_folders",
    "problem_of",
    "roots",
]

_log = logging.getLogger("ndpsim")

#: What is cached; the first part of a folder's name.
KINDS = ("kernels", "results")

_MARKER = "ndpsim-cache.json"
_FOLDER = re.compile(rf"({'|'.join(KINDS)})-([0-9a-f]{{20}})")
_ENTRY = re.compile(r"[\w.-]+\.entry")
_UNFINISHED = re.compile(r"\.ndpsim-[\w-]+\.tmp")  # what a process that was killed leaves behind

_MAGIC = b"ndpsim cache entry 1\n"
_DIGEST_BYTES = 32
_LARGEST_BYTES = 1 << 28  # no entry is anywhere near as large
_FOLDERS_OF_A_KIND = 4  # of earlier versions, and the newest
_ABANDONED_S = 3600.0  # no file takes as long to write
_BLOCK_BYTES = 4096  # the least that a file takes on disk

_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_OPEN_FOLDER = _OPEN | getattr(os, "O_DIRECTORY", 0)


# ---- Whose it is


def _user() -> int | None:
    return os.geteuid() if hasattr(os, "geteuid") else None


@functools.cache
def _is_own_group(group: int) -> bool:
    """Whether a group is the user's alone: the primary group that bears the user's name or number."""
    import grp  # noqa: PLC0415 (not on every system)
    import pwd  # noqa: PLC0415

    user = os.geteuid()
    if group != os.getegid():
        return False
    try:
        name = pwd.getpwuid(user).pw_name
        entry = grp.getgrgid(group)
    except KeyError:
        return group == user
    return (entry.gr_name == name or group == user) and set(entry.gr_mem) <= {name}


def _others_write(status: os.stat_result, path: str | Path | int) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    if not status.st_mode & stat.S_IWGRP:
        return False
    if not _is_own_group(status.st_gid):
        return True
    with contextlib.suppress(OSError, AttributeError):  # no access lists here
        return "system.posix_acl_access" in os.listxattr(path)
    return False


def _is_own(status: os.stat_result, path: str | Path | int) -> bool:
    """Whether nobody but the user can have written a file or folder."""
    return _user() is None or (status.st_uid == _user() and not _others_write(status, path))


def problem_of(folder: Path) -> str | None:
    """Why others could have put something into `folder`; None: they could not, or it is not there.

    `folder` and everything above it must be a folder, not a link to one. It must belong to the user, and
    nobody else may write it; nor what is above it, unless the sticky bit there keeps it where it is.
    """
    for part in (folder, *folder.parents):
        try:
            status = os.lstat(part)
        except FileNotFoundError:
            continue
        except NotADirectoryError:
            continue  # what is above says so
        except OSError as error:
            return f"{part}: {error.strerror or error}"
        if not stat.S_ISDIR(status.st_mode):
            return f"{part} is not a folder"
        if _user() is None:
            continue
        if part == folder and status.st_uid != _user():
            return f"{part} belongs to another user"
        sticky = part != folder and status.st_mode & stat.S_ISVTX
        if not sticky and _others_write(status, part):
            return f"other users can write {part}"
    return None


@functools.cache
def _report_unused(folder: Path, problem: str) -> None:
    _log.warning("the cache in %s is not used: %s", folder, problem)


# ---- Where it is


def _usual_root() -> Path | None:
    chosen = os.environ.get("NDPSIM_CACHE_DIR")
    folder = chosen or platformdirs.user_cache_dir("ndpsim")
    if not chosen and not os.path.isabs(folder):
        return None  # there is no home
    return Path(os.path.realpath(folder))


def _temporary_root() -> Path | None:
    try:
        return Path(os.path.realpath(tempfile.gettempdir())) / f"ndpsim-{_user() or 0}"
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


# ---- What is damaged


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


def _read_own(path: Path) -> bytes | None:
    """What is in a file that only the user can have written; None: it is no such file.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    number = os.open(path, _OPEN)
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_BYTES:
            return None
        if not _is_own(status, number):
            return None
        with open(number, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(number)


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    number, beside = tempfile.mkstemp(dir=path.parent, prefix=".ndpsim-", suffix=".tmp")
    try:
        with open(number, "wb") as file:
            file.write(content)
        try:
            os.replace(beside, path)
        except IsADirectoryError:
            os.rmdir(path)
            os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


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
        assert _FOLDER.fullmatch(self.name), self.name
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
        sealed = _read_own(folder / f"{name}.entry")
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

    def _write_in(self, folder: Path, name: str, content: bytes) -> None:
        self._make(folder)
        _write_whole(folder / f"{name}.entry", _sealed(name, content))

    def names(self) -> list[str]:
        """The entries that are there and whole."""
        found: set[str] = set()
        for folder in self.folders():
            with contextlib.suppress(OSError):
                found |= set(filter(_ENTRY.fullmatch, os.listdir(folder)))
        names = sorted(name.removesuffix(".entry") for name in found)
        return [name for name in names if self.read(name) is not None]

    def _make(self, folder: Path) -> None:
        """Make the folder with its marker, and room for it.

        Raises:
            OSError: it cannot be made, or is not the user's.
        """
        marker = folder / _MARKER
        if os.path.lexists(marker):
            if folder not in self._tidied:  # once, for a large folder takes its time
                self._tidied.add(folder)
                _remove_unfinished(folder)
            return
        os.makedirs(folder.parent, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)
        if problem := problem_of(folder):
            raise OSError(problem)
        _write_whole(marker, json.dumps(dict(self._describe()), indent=2).encode() + b"\n")
        _remove_old(folder)


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
        eighth, size = self._most_bytes // 8, _size_on_disk(len(content) + len(_MAGIC) + _DIGEST_BYTES)
        if size > eighth:
            return
        super()._write_in(folder, name, content)
        uncounted = self._uncounted.get(folder.parent, eighth) + size
        if uncounted >= eighth:
            _remove_longest_unused(folder.parent, self.kind, self._most_bytes - eighth)
            uncounted = 0
        self._uncounted[folder.parent] = uncounted


def _size_on_disk(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


# ---- What may be removed


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
        if not _FOLDER.fullmatch(folder.name) or _MARKER not in names:
            raise OSError(f"{folder} was not made by ndpsim")
        if _user() is not None and status.st_uid != _user():
            raise OSError(f"{folder} belongs to another user")
        removed = sum(_remove_file(name, number) for name in names if name != _MARKER and which(name))
        if which(_MARKER) and os.listdir(number) == [_MARKER]:
            removed += _remove_file(_MARKER, number)
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


def _is_made_here(name: str) -> bool:
    return name == _MARKER or bool(_ENTRY.fullmatch(name) or _UNFINISHED.fullmatch(name))


def _entry_files(folder: Path) -> list[tuple[int, int, Path, str]]:
    """(Last use, size, folder, name) of each entry in a folder that ndpsim made."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as files:
        ours = os.path.lexists(folder / _MARKER)
        for file in files if ours else ():
            if _ENTRY.fullmatch(file.name):
                with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                    status = file.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, _size_on_disk(status.st_size), folder, file.name))
    return found


def _remove_longest_unused(root: Path, kind: str, most_bytes: int) -> None:
    """Leave entries of a kind that take at most so many bytes, of all versions together."""
    with contextlib.suppress(OSError):
        folders = [root / name for name in os.listdir(root) if _FOLDER.fullmatch(name)]
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


def _remove_unfinished(folder: Path) -> None:
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
    named = _FOLDER.fullmatch(folder.name)
    if named is None:
        return None
    try:
        status = os.lstat(folder)
        names = os.listdir(folder) if stat.S_ISDIR(status.st_mode) else []
    except OSError:
        return None
    if _MARKER not in names or (_user() is not None and status.st_uid != _user()):
        return None
    size, entries = 0, 0
    for name in filter(_is_made_here, names):
        with contextlib.suppress(OSError):
            size += os.lstat(folder / name).st_size
            entries += name.endswith(".entry")
    made_by: Any = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        made_by = json.loads(_read_own(folder / _MARKER) or b"")
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


def _remove_old(newest: Path) -> None:
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
