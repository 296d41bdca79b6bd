"""Files: read whole, compressed or not; written whole or not at all."""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from ndpsim.errors import InputError

__all__ = ["ensure_writable", "open_plain_or_gzip", "read_plain_or_gzip", "reading", "replacing"]

_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What goes wrong while `path` is read, plain or gzip, as an InputError that names it."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"is a damaged or truncated gzip file ({error})", file=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from None


@contextmanager
def open_plain_or_gzip(path: Path) -> Iterator[IO[bytes]]:
    """The content of a file, unpacked on the way when it is gzip, whatever its name.

    Raises:
        InputError: the file cannot be read.
    """
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} is not a file name")
    with reading(path):
        file = open(path, "rb")  # noqa: SIM115 (closed below, where other errors are not its own)
    with file:
        with reading(path):
            packed = file.peek(2)[:2] == _GZIP_MAGIC
        yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if packed else file


def read_plain_or_gzip(path: Path) -> bytes:
    """The bytes of a file, unpacked when it is gzip, whatever its name.

    Raises:
        InputError: the file cannot be read or is damaged.
    """
    with open_plain_or_gzip(path) as file, reading(path):
        return file.read()


def ensure_writable(path: str | Path, key: str | None = None) -> Path:
    """Make sure that `path` can be written, before work is spent on what goes into it.

    Raises:
        InputError: it is a folder, its folder does not exist, or it cannot be written; `key` names the
            option it came from.
    """
    target = Path(path)
    if str(path) == "-":
        raise InputError("only --json writes to standard output with -; give a file name", key=key)
    try:
        problem = _obstacle(target)
    except OSError as error:  # a name too long, a loop of links
        problem = error.strerror or str(error)
    if problem:
        raise InputError(f"cannot write {target}: {problem}", key=key)
    return target


def _obstacle(target: Path) -> str | None:
    """What keeps `target` from being written, as far as one can tell without doing it."""
    if target.is_dir():
        return "it is a folder"
    if not target.parent.is_dir():
        return f"there is no folder {target.parent}"
    exists = target.exists()
    if exists and not target.is_file():
        return None  # a device or a pipe: written in place
    if not os.access(target.parent, os.W_OK) or (exists and not os.access(target, os.W_OK)):
        return "no permission"
    if len(os.fsencode(target.name)) > os.pathconf(target.parent, "PC_NAME_MAX"):
        return "its name is too long"
    return None


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that becomes `path` when the block ends well, and vanishes when it does not.

    Raises:
        InputError: the file cannot be written.
    """
    target = ensure_writable(path).resolve()  # what a link leads to, so that the link stays
    try:
        if target.exists() and not target.is_file():
            with open(target, "wb") as direct:
                yield direct
            return
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".ndpsim-", delete=False) as beside:
            try:
                yield beside
                beside.flush()
                os.chmod(beside.name, target.stat().st_mode if target.exists() else 0o666 & ~_umask())
                os.replace(beside.name, target)
            except BaseException:
                Path(beside.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
