"""Files: read whole, compressed or not; written whole or not at all, and never over an input."""

from __future__ import annotations

import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from ndpsim.base.errors import InputError
from ndpsim.base.run_files import is_temporary, note_input, note_output, remove_leftovers, temporary_file

_GZIP_MAGIC = b"\x1f\x8b"
_DESCRIPTOR = re.compile(
    r"/dev/(?:std(?P<name>out|err)|fd/(?P<number>[0-9]+))|/proc/self/fd/(?P<other>[0-9]+)"
)
_STANDARD = {"out": 1, "err": 2}

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
    """The content of an input; gzip is unpacked, regardless of the file's name.

    Raises:
        InputError: the file cannot be read, or the call writes it.
    """
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} is not a file name", "form")
    note_input(path)
    with reading(path):
        file = open(path, "rb")  # noqa: SIM115 (closed below, where other errors are not its own)
    with file:
        with reading(path):
            packed = file.peek(2)[:2] == _GZIP_MAGIC
        yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if packed else file


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
    note_output(target, key)
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
    file = _place(target)
    if not file.parent.is_dir():
        return f"there is no folder {file.parent}"
    if not os.access(file.parent, os.W_OK) or (mode is not None and not os.access(file, os.W_OK)):
        return "no permission"
    if len(os.fsencode(file.name)) > os.pathconf(file.parent, "PC_NAME_MAX"):
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
def replacing(path: str | os.PathLike[str], new: bool = False) -> Iterator[IO[bytes]]:
    """A binary file that becomes `path` if the block ends without an error, and is removed otherwise.

    If `path` is a link, its target is replaced. Devices, pipes and open files that have a name, such as
    /dev/stdout, are written in place. Temporary files of killed runs in the folder are removed.

    new: keep a file that another run has put there meanwhile.

    Raises:
        InputError: the file cannot be written, or the call reads it, or with `new` is there.
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
                file.flush()
                os.fsync(file.fileno())  # the new content is on disk before the old one is replaced
                ensure_writable(target)
                (_put_new if new else os.replace)(file.name, _place(target))
    except OSError as error:
        named = error.filename if isinstance(error.filename, str) else ""
        subject = f"{named}: " if named and named != str(target) and not is_temporary(named) else ""
        raise InputError(f"cannot write {target}: {subject}{error.strerror or error}", "unwritable") from None


def _put_new(name: str, target: Path) -> None:
    """Give a file the name `target`, which no file may have."""
    try:
        os.link(name, target)
    except OSError:
        if os.path.lexists(target):
            raise
        os.replace(name, target)  # the file system has no links


@contextmanager
def temporary_beside(target: Path) -> Iterator[IO[bytes]]:
    """A temporary file in the folder of `target`, with its group and permissions."""
    remove_leftovers(target.parent)
    with temporary_file(target.parent) as file:
        with suppress(FileNotFoundError):
            old = os.stat(target)
            with suppress(PermissionError):
                os.fchown(file.fileno(), -1, old.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
        yield file
