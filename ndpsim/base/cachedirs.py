"""Cache folders: their owner, their entries, and the files that may be removed.

A cache has folders ``KIND-VERSION``, each with a marker file that names its maker. They are in the user's
cache folder or in ``NDPSIM_CACHE_DIR``; if that cannot be used, in the folder for temporary files. ndpsim
does not read a folder that other users own or can write: compiled kernels are executed. It uses a file only
if its digest is right. It removes only files and folders with its own names, in folders with its marker.

Entries are files, not rows of SQLite, whose locks are not reliable on network file systems. A file that is
renamed into place is complete or absent. If two processes write an entry, both write the same content.
"""

from __future__ import annotations

import functools
import grp
import hashlib
import json
import logging
import os
import pwd
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs

from ndpsim.base.run_files import remove_leftovers, temporary_file

_log = logging.getLogger("ndpsim")

#: What is cached; the first part of a folder's name.
KINDS = ("kernels", "results")

_FOLDER = re.compile(rf"({'|'.join(KINDS)})-[0-9a-f]{{20}}")
_MARKER = "ndpsim-cache.json"
_ENTRY = ".entry"
# Entries, temporary files of killed runs, and what Numba keeps itself.
_OURS = re.compile(rf".+\{_ENTRY}|\.ndpsim-.+\.tmp|.+\.nb[ci](\.tmp\..+)?")

_LONGEST_PATH = 4096  # bytes, of Linux; no folder has a longer name
_BLOCK_BYTES = 4096  # the least that a file takes on disk
_MOST_BYTES = 1 << 28  # some ten versions of all kernels; no file is as large
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # links are not followed, and pipes not waited for

# ---- Files and folders that only the user can have written


@functools.cache
def _is_own_group(group: int) -> bool:
    """Whether a group is the user's alone: the primary group, of the user's name, without other members."""
    try:
        name, entry = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return group == os.getegid() and entry.gr_name == name and set(entry.gr_mem) <= {name}


def _others_write(status: os.stat_result, path: Path | int) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    if not status.st_mode & stat.S_IWGRP:
        return False
    with suppress(OSError, AttributeError):  # no access lists here
        if "system.posix_acl_access" in os.listxattr(path):
            return True
    return not _is_own_group(status.st_gid)


def problem_of(folder: Path) -> str | None:
    """The reason why other users could have written to `folder`; None: they could not, or it does not exist.

    `folder` and all folders above it must not be links. It must belong to the user, and no other user may
    write to it, or to a folder above it without the sticky bit.
    """
    if _is_too_long(folder):
        return f"its name has {len(str(folder)):,} characters"
    for part in (folder, *folder.parents):
        try:
            status = os.lstat(part)
        except (FileNotFoundError, NotADirectoryError):
            continue  # if a file is in the way, it is found further up
        except OSError as error:
            return f"{part}: {error.strerror or error}"
        if not stat.S_ISDIR(status.st_mode):
            return f"{part} is not a folder"
        if part == folder and status.st_uid != os.geteuid():
            return f"{part} belongs to another user"
        sticky = part != folder and status.st_mode & stat.S_ISVTX
        if not sticky and _others_write(status, part):
            return f"other users can write {part}"
    return None


def _read_own(path: Path) -> bytes:
    """Content of a file; empty if other users could have written it.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    with open(path, "rb", opener=lambda name, _: os.open(name, _OPEN)) as file:
        status = os.fstat(file.fileno())
        small = stat.S_ISREG(status.st_mode) and status.st_size <= _MOST_BYTES
        own = status.st_uid == os.geteuid() and not _others_write(status, file.fileno())
        return file.read() if small and own else b""


# ---- Folders


def roots() -> list[Path]:
    """The folders that may contain caches, in the order in which they are tried."""
    chosen = os.environ.get("NDPSIM_CACHE_DIR")
    usual = chosen or platformdirs.user_cache_dir("ndpsim")
    found = [_resolved(usual)] if chosen or os.path.isabs(usual) else []  # with a home folder
    with suppress(OSError):  # no folder for temporary files can be written
        found.append(Path(os.path.realpath(tempfile.gettempdir())) / f"ndpsim-{os.geteuid()}")
    return list(dict.fromkeys(found))


def _resolved(name: str) -> Path:
    """The folder without links; a name that is too long for one stays, for `problem_of` to name."""
    return Path(name if _is_too_long(name) else os.path.realpath(name))


def _is_too_long(name: str | Path) -> bool:
    return len(os.fspath(name)) > _LONGEST_PATH


class CacheFolder(NamedTuple):
    """A folder of a cache.

    Attributes:
        kind: one of `KINDS`.
        files: all that ndpsim, or Numba for it, put there, besides the marker.
        size_bytes: of these files and the marker.
        written: when something was last put there, in seconds since 1970.
    """

    path: Path
    kind: str
    files: list[tuple[Path, os.stat_result]]
    size_bytes: int
    written: float

    @property
    def entries(self) -> int:
        """How many files are entries."""
        return sum(path.suffix == _ENTRY for path, _ in self.files)

    @property
    def made_by(self) -> dict[str, Any]:
        """What the marker says; empty when that is damaged."""
        made_by: Any = None
        with suppress(OSError, ValueError, RecursionError):
            made_by = json.loads(_read_own(self.path / _MARKER))
        return made_by if isinstance(made_by, dict) else {}


def find_folders(root: Path, kinds: Collection[str] = KINDS) -> list[CacheFolder]:
    """The folders of these kinds that ndpsim made in a root for this user, the one written last first."""
    found = []
    for name in _names(root):
        path, named = root / name, _FOLDER.fullmatch(name)
        with suppress(OSError):  # it has no marker, or has just been removed
            status, marker = os.lstat(path), os.lstat(path / _MARKER)
            if named and named[1] in kinds and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                files = _files(path)
                size = marker.st_size + sum(status.st_size for _, status in files)
                found.append(CacheFolder(path, named[1], files, size, status.st_mtime))
    return sorted(found, key=lambda folder: folder.written, reverse=True)


def _names(folder: Path) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []


def _files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    found = []
    for inner, _, names in os.walk(folder):
        for path in (Path(inner, name) for name in names if _OURS.fullmatch(name)):
            with suppress(OSError):  # another process has just removed it
                found.append((path, os.lstat(path)))
    return found


class Cleared(NamedTuple):
    """Removed folders and bytes, and the folders that could not be removed, or only in part."""

    removed: list[Path]
    size_bytes: int
    left: list[Path]


def clear(kinds: Collection[str] = KINDS) -> Cleared:
    """Remove all caches of these kinds in every root, and nothing else."""
    removed: list[Path] = []
    left: list[Path] = []
    size = 0
    for folder in [folder for root in roots() for folder in find_folders(root, kinds)]:
        removable = sum(status.st_size for path, status in folder.files if _is_removed(path))
        for inner, _, _ in os.walk(folder.path, topdown=False):
            with suppress(OSError):
                os.rmdir(inner)
        is_gone = _is_removed_empty(folder.path)
        size += folder.size_bytes if is_gone else removable
        (removed if is_gone else left).append(folder.path)
    return Cleared(removed, size, left)


def _is_removed(path: Path) -> bool:
    """Remove a file, if that is possible."""
    with suppress(OSError):
        path.unlink()
        return True
    return False


def _is_removed_empty(folder: Path) -> bool:
    """Remove a folder in which only its marker is left: the marker last, as it says whose the folder is."""
    with suppress(OSError):
        if _names(folder) == [_MARKER]:
            (folder / _MARKER).unlink()
            folder.rmdir()
    return not os.path.lexists(folder)


def _size_on_disk(size: int) -> int:
    """Minimum number of bytes that a file of this size occupies on disk."""
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _remove_longest_unused(root: Path, kind: str, most_bytes: int) -> None:
    """Remove the least recently used files of a kind, of any version, until this many bytes are left."""
    files = [
        file for folder in find_folders(root, (kind,)) for file in folder.files if file[0].suffix != ".tmp"
    ]
    excess = sum(_size_on_disk(status.st_size) for _, status in files) - most_bytes
    for path, status in sorted(files, key=lambda file: file[1].st_mtime_ns):
        if excess <= 0:
            return
        excess -= _size_on_disk(status.st_size)
        if _is_removed(path):
            _is_removed_empty(path.parent)


# ---- Entries


@functools.cache
def _warn_once(line: str) -> None:
    _log.warning("%s", line)


def _sealed(name: str, content: bytes) -> bytes:
    """The bytes of an entry: a digest of its name and content, and the content."""
    return hashlib.blake2b(name.encode() + b"\0" + content, digest_size=32).digest() + content


_SEAL_BYTES = len(_sealed("", b""))


def _write_whole(path: Path, content: bytes) -> None:
    with temporary_file(path.parent) as file:
        os.fchmod(file.fileno(), 0o600)  # whatever the user's mask lets others write, `_read_own` refuses
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
        assert _FOLDER.fullmatch(self.name), self.name
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
            file = folder / (name + _ENTRY)
            with suppress(OSError):  # it is not there, or has just been removed
                found = _read_own(file)
                content = found[_SEAL_BYTES:]
                if found == _sealed(name, content):
                    with suppress(OSError):  # a folder may be readable only
                        os.utime(file)
                    return content
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write an entry, if a folder can be used."""
        sealed, eighth, problems = _sealed(name, content), self._most_bytes // 8, []
        size = _size_on_disk(len(sealed))
        if size > eighth:
            return
        for folder in self.folders():
            root = folder.parent
            try:
                self._make(folder)
                _write_whole(folder / (name + _ENTRY), sealed)
                self._uncounted[root] = self._uncounted.get(root, eighth) + size
                if self._uncounted[root] >= eighth:
                    _remove_longest_unused(root, self._kind, self._most_bytes - eighth)
                    self._uncounted[root] = 0
                return
            except OSError as error:
                problems.append(f"{folder}: {error.strerror or error}")
        _warn_once(f"nothing can be cached ({(problems or ['there is no folder for it'])[0]})")

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
        return sorted({file.stem for folder in self.folders() for file in folder.glob(f"*{_ENTRY}")})

    def _make(self, folder: Path) -> None:
        """Make the folder with its marker.

        Raises:
            OSError: it cannot be made, or is not the user's.
        """
        if folder not in self._tidied:  # once, because a large folder takes long
            self._tidied.add(folder)
            remove_leftovers(folder)
        if os.path.lexists(folder / _MARKER):
            return
        os.makedirs(folder.parent, mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)
        if problem := problem_of(folder):
            raise OSError(problem)
        _write_whole(folder / _MARKER, json.dumps(dict(self._describe()), indent=2).encode() + b"\n")
