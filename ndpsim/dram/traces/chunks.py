"""What traces are read from: lines of files, a few megabytes at a time, and columns of arrays."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ndpsim.base.arrays import as_array
from ndpsim.base.errors import InputError, shown
from ndpsim.base.files import reading
from ndpsim.base.reported import Shown

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


def whole_numbers(
    values: ArrayLike, name: str, dtype: DTypeLike = np.int64, kinds: str = "iu", dimensions: int = 1
) -> NDArray[Any]:
    """`values` as an array of integers of `dtype`, not copied if it is one already.

    Args:
        name: name of the argument, for errors.
        kinds: accepted kinds of NumPy types; "iub" includes bools.
        dimensions: the number of dimensions of the array.

    Raises:
        InputError: the values are not whole numbers, do not fit the type, or have other dimensions.
    """
    array = as_array(values)
    if not array.size and array.ndim == dimensions:
        return array.astype(dtype)  # an empty list has no type of its own
    if array.dtype.kind not in kinds or array.ndim != dimensions:
        expected = "whole numbers" if dimensions == 1 else f"whole numbers in {dimensions} dimensions"
        raise InputError(f"{shown(values)} is not an array of {expected}", "type", key=name)
    limits = np.iinfo(np.dtype(dtype))
    if array.dtype != limits.dtype and array.dtype.kind != "b":
        for value in (int(array.min()), int(array.max())):
            if not limits.min <= value <= limits.max:
                problem = f"{value} is not a whole number from {limits.min} to {limits.max}"
                raise InputError(problem, "range", key=name)
    return array.astype(dtype, copy=False)


class Columns(Shown):
    """A trace whose columns are arrays."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The columns by name."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """`to_arrays` as a pandas DataFrame.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            pandas: Any = importlib.import_module("pandas")
        except ImportError as error:
            problem = f"needs pandas, which cannot be imported ({error}); to_arrays does without"
            raise InputError(problem, "not-installed", key="to_pandas") from None
        return pandas.DataFrame(self.to_arrays())
