"""Lines of a file that may be large, compressed or not, a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.files import reading

#: Maximum bytes of a line, with its end, in a trace.
LONGEST_LINE = 1 << 16

_BOM = b"\xef\xbb\xbf"


def whole_lines(stream: IO[bytes], path: Path, size: int) -> Iterator[NDArray[np.uint8]]:
    """The bytes of `stream` in pieces of about `size`, all of which end with a line end.

    A line longer than `LONGEST_LINE` may be cut off. A UTF-8 byte order mark at the start is skipped. A piece
    is valid until the next one is requested.

    Raises:
        InputError: the file, `path`, cannot be read or is damaged.
    """
    buffer = bytearray(max(size, len(_BOM) + 1) + 1)  # the last byte is for a missing line end
    with reading(path):
        head = stream.read(len(_BOM))
    filled = 0 if head == _BOM else len(head)
    buffer[:filled] = head[:filled]
    while True:
        with reading(path), memoryview(buffer) as view:
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
