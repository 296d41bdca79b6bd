"""Files: read whole, compressed or not; written whole or not at all, and never over an input."""

from __future__ import annotations

import atexit
import fcntl
import functools
import gzip
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from ndpsim.base.errors import InputError

_GZIP_MAGIC = b"\x1f\x8b"
_DESCRIPTOR = re.compile(
    r"/dev/(?:std(?P<name>out|err)|fd/(?P<number>[0-9]+))|/proc/self/fd/(?P<other>[0-9]+)"
)
_STANDARD = {"out": 1, "err": 2}

Identity = tuple[int, int]


# Reading


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors while `path` is read, plain or gzip, into an InputError that names it."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"is a damaged or truncated gzip file ({error})", "unreadable", file=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", "unreadable", file=path) from None


@contextmanager
def open_plain_or_gzip(path: Path) -> Iterator[IO[bytes]]:
    """The content of a file; gzip is unpacked, regardless of the file's name.

    Raises:
        InputError: the file cannot be read.
    """
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} is not a file name", "form")
    with reading(path):
        file = open(path, "rb")  # noqa: SIM115 (closed below, where other errors are not its own)
    with file:
        with reading(path):
            packed = file.peek(2)[:2] == _GZIP_MAGIC
        yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if packed else file


# A call never writes a file that it reads


def file_identity(file: str | bytes | os.PathLike[str] | int) -> Identity | None:
    """Device and number of a regular file, the same by every name and link; None: there is no such file."""
    with suppress(OSError, ValueError):
        status = os.stat(file)
        if stat.S_ISREG(status.st_mode):
            return status.st_dev, status.st_ino
    return None


@dataclass
class _Call:
    """The files that a call has read, and those that it will write with the option that names them."""

    read: set[Identity] = field(default_factory=set)
    written: dict[Identity, str | None] = field(default_factory=dict)

    def on_open(self, path: Any, flags: int) -> None:
        """Note a file that is opened, unless only for writing."""
        identity = None if _only_writes(flags) else file_identity(path)
        if identity is None:
            return
        self.read.add(identity)
        if identity in self.written:
            name = str(path) if isinstance(path, int) else os.fsdecode(path)
            raise _is_input(name, self.written[identity])

    def will_write(self, path: Path, key: str | None) -> None:
        """Raises InputError where the call has read the file."""
        identity = file_identity(path)
        if identity is None:
            return
        if identity in self.read:
            raise _is_input(str(path), key)
        self.written.setdefault(identity, key)


def _only_writes(flags: int) -> bool:
    return flags & os.O_ACCMODE == os.O_WRONLY or bool(flags & os.O_TRUNC)


def _is_input(path: str, key: str | None) -> InputError:
    return InputError(f"{path} is an input of this call; choose another file", "unwritable", key=key)


_call: _Call | None = None


@contextmanager
def inputs_protected() -> Iterator[None]:
    """Within the block, no file is both read and written.

    Python reports every opened file, so readers need no code for this.

    Raises:
        InputError: when a file is opened that `ensure_writable` was asked about, or the reverse; when
            standard output goes to a file that is opened.
    """
    global _call
    _watch_opening()
    outer, _call = _call, _Call()
    output = file_identity(1)
    if output is not None:
        _call.written[output] = "standard output"
    try:
        yield
    finally:
        _call = outer


@functools.cache
def _watch_opening() -> None:
    sys.addaudithook(_on_event)


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _call is not None:
        path, _, flags = arguments
        _call.on_open(path, flags)


# Writing


def ensure_writable(path: str | os.PathLike[str], key: str | None = None) -> Path:
    """Make sure that `path` can be written, before work is spent on what goes into it.

    Raises:
        InputError: it is a folder, its folder does not exist, it cannot be written, or the call reads it;
            `key` names the option it came from.
    """
    name, target = os.fspath(path), Path(path)
    if name == "-":
        wrong = "only --json writes to standard output with -; give a file name"
        raise InputError(wrong, "unwritable", key=key)
    if not name or "\0" in name:
        raise InputError(f"cannot write {name!r}: it is not a file name", "unwritable", key=key)
    try:
        problem = "it is the name of a folder" if name.endswith(os.sep) else _obstacle(target)
    except OSError as error:  # a name too long, a loop of links
        problem = error.strerror or str(error)
    if problem:
        raise InputError(f"cannot write {target}: {problem}", "unwritable", key=key)
    if _call is not None:
        _call.will_write(target, key)
    return target


def _obstacle(target: Path) -> str | None:
    """The reason why `target` cannot be written, if it can be found without writing."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and stat.S_ISDIR(mode):
        return "it is a folder"
    if mode is None and _descriptor(target) is not None:
        return "it is not open"
    if mode is not None and is_in_place(target):
        return None if os.access(target, os.W_OK) else "no permission"
    place = _place(target)
    if not place.parent.is_dir():
        return f"there is no folder {place.parent}"
    if not os.access(place.parent, os.W_OK) or (mode is not None and not os.access(place, os.W_OK)):
        return "no permission"
    if len(os.fsencode(place.name)) > os.pathconf(place.parent, "PC_NAME_MAX"):
        return "its name is too long"
    return None


def is_in_place(target: Path) -> bool:
    """Whether `replacing` writes in place: into a device, a pipe, or an open file that has a name."""
    return _descriptor(target) is not None or (target.exists() and not target.is_file())


def _place(target: Path) -> Path:
    """The file to which a link leads, whether or not it exists."""
    return Path(os.path.realpath(target)) if target.is_symlink() else target


def _descriptor(target: Path) -> int | None:
    """The number of an open file of this process that has a name, as /dev/stdout has."""
    match = _DESCRIPTOR.fullmatch(str(target))
    return None if match is None else _STANDARD.get(match[1]) or int(match[2])


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary file that becomes `path` if the block ends without an error, and is removed otherwise.

    If `path` is a link, its target is replaced. Devices, pipes and open files that have a name, such as
    /dev/stdout, are written in place. Temporary files of killed runs in the folder are removed.

    Raises:
        InputError: the file cannot be written, or the call reads it.
    """
    target = ensure_writable(path)
    descriptor = _descriptor(target)
    try:
        if descriptor is not None:
            print(end="", flush=True)  # earlier output comes first
            with open(os.dup(descriptor), "wb") as stream:
                yield stream
        elif is_in_place(target):
            with open(target, "wb") as device:
                yield device
        else:
            with temporary_beside(_place(target)) as file:
                yield file
                _commit(file, _place(target))
    except OSError as error:
        other = error.filename if isinstance(error.filename, str) else ""
        subject = f"{other}: " if other and other != str(target) and not _is_temporary(other) else ""
        raise InputError(f"cannot write {target}: {subject}{error.strerror or error}", "unwritable") from None


def _commit(file: IO[bytes], target: Path) -> None:
    """Put a complete file in the place of `target`."""
    file.flush()
    os.fsync(file.fileno())  # the new content is on disk before the old one is replaced
    ensure_writable(target)
    os.replace(file.name, target)


# Temporary files


_TEMPORARY = re.compile(r"\.ndpsim-[0-9a-f]{32}\.tmp")

_temporaries: dict[str, int] = {}  # with the process that made each; a forked process does not remove them
_making = threading.Lock()


def _is_temporary(path: str) -> bool:
    return _TEMPORARY.fullmatch(os.path.basename(path)) is not None


@contextmanager
def temporary_beside(target: Path) -> Iterator[IO[bytes]]:
    """A new file in the folder of `target`, with its permissions; it is gone when the block has ended."""
    _remove_leftovers(target.parent)
    name = str(target.parent / f".ndpsim-{os.urandom(16).hex()}.tmp")
    try:
        with _create(name) as file:
            with suppress(FileNotFoundError):
                old = os.stat(target)
                with suppress(PermissionError):
                    os.fchown(file.fileno(), -1, old.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
            yield file
    finally:
        _discard(name)


def _create(name: str) -> IO[bytes]:
    """A new file, locked so that no other process removes it as a file of a killed run."""
    while True:
        with _making:
            _temporaries[name] = os.getpid()
            file = open(name, "xb")  # noqa: SIM115 (the caller closes it)
        with suppress(OSError):  # on a file system without locks nothing is ever removed
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process removed it before it was locked


def _discard(name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name)
    _temporaries.pop(name, None)


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary files that this user's killed runs left: those that no process has locked."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _is_temporary(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    _remove_unlocked(entry)


def _remove_unlocked(entry: os.DirEntry[str]) -> None:
    if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
        return
    descriptor = os.open(entry.path, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(entry.path)
    finally:
        os.close(descriptor)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new empty folder for temporary files; it is gone when the block has ended."""
    with _making:
        name = tempfile.mkdtemp(prefix="ndpsim-")
        _temporaries[name] = os.getpid()
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)
        _temporaries.pop(name, None)


def remove_temporaries() -> None:
    """Remove the temporary files of this process, which is about to end; from now on none can be made."""
    _making.acquire()
    _remove_own()


def _remove_own() -> None:
    for name, process in list(_temporaries.items()):
        if process == os.getpid():
            with suppress(OSError):
                os.unlink(name)
            shutil.rmtree(name, ignore_errors=True)


atexit.register(_remove_own)
