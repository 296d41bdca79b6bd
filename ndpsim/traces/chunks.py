"""Lines of a file that may be large, compressed or not, a few megabytes at a time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError

__all__ = ["LONGEST_LINE", "open_plain_or_gzip", "whole_lines"]

#: Bytes in a line, with its end; more is not a trace.
LONGEST_LINE = 1 << 16

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


@contextmanager
def _reading(path: Path) -> Iterator[None]:
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
    with _reading(path):
        file = open(path, "rb")  # noqa: SIM115 (closed below, where other errors are not its own)
    with file:
        with _reading(path):
            packed = file.peek(2)[:2] == _GZIP_MAGIC
        yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if packed else file


def whole_lines(stream: IO[bytes], path: Path, size: int) -> Iterator[NDArray[np.uint8]]:
    """The bytes of `stream` in pieces of about `size` that end with a line end, the last one too.

    A line longer than `LONGEST_LINE` may come cut off. A UTF-8 byte order mark at the start is skipped. A
    piece is good until the next one is asked for.

    Raises:
        InputError: the file, `path`, cannot be read or is damaged.
    """
    buffer = bytearray(max(size, len(_BOM) + 1) + 1)  # the last byte is for a line end that the file lacks
    with _reading(path):
        head = stream.read(len(_BOM))
    filled = 0 if head == _BOM else len(head)
    buffer[:filled] = head[:filled]
    while True:
        with _reading(path), memoryview(buffer) as view:
            got = stream.readinto(view[filled:-1])  # type: ignore[attr-defined]
        filled += got
        end = buffer.rfind(b"\n", 0, filled) + 1
        if filled > end and (not got or (not end and filled > LONGEST_LINE)):
            buffer[filled : filled + 1] = b"\n"
            end = filled = filled + 1
        if end:
            yield np.frombuffer(buffer, dtype=np.uint8, count=end)
        if not got:
            return
        rest = bytes(memoryview(buffer)[end:filled])
        if not end and filled == len(buffer) - 1:
            buffer = bytearray(2 * len(buffer))
        filled = len(rest)
        buffer[:filled] = rest
