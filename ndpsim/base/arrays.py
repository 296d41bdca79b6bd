"""Arrays of files: NPY, NPZ, base64 and lists. Nothing is unpickled.

Every size that a file states is compared with the file, and with the memory limit, before anything is copied.
"""

from __future__ import annotations

import ast
import io
import math
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError, shown
from ndpsim.base.files import reading
from ndpsim.base.limits import ensure_fits
from ndpsim.base.run_files import note_input

NPY = b"\x93NUMPY"  #: The first bytes of an NPY file.
_KINDS = "biufU"
_LENGTH_BYTES = {b"\1\0": 2, b"\2\0": 4}  # of the header's length, by version
_LONGEST_HEADER = 1 << 16
_MOST_AXES = 32  # of an array of NumPy 1
_COPIES = 2  # the bytes of a file, and the array that a caller makes of them


class Header(NamedTuple):
    """What an NPY file states of its array."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


class _Place(NamedTuple):
    """The file and key of an array, for messages."""

    file: Path
    key: str | None

    def error(self, problem: str, code: Any = "form") -> InputError:
        return InputError(problem, code, file=self.file, key=self.key)


@contextmanager
def damage_named(path: Path, what: str) -> Iterator[None]:
    """Turn any error of decoding a file in the block into an InputError: it is damaged, or `what`.

    Decoders such as `zipfile` raise errors of many classes for damaged files.
    """
    note_input(path)
    try:
        with reading(path):
            yield
    except InputError:
        raise
    except Exception as error:
        problem = f"is damaged, or {what} ({type(error).__name__}: {error})"
        raise InputError(problem, "form", file=path) from None


def read_header(
    file: IO[bytes],
    path: Path,
    key: str | None = None,
    available: int | None = None,
    kinds: str = _KINDS,
) -> Header:
    """The header of an NPY file.

    Args:
        available: bytes of the file from its first on; None: unknown.
        kinds: accepted kinds of NumPy types.

    Raises:
        InputError: it is no such header, or states another kind, or an array that is larger than the file.
    """
    place = _Place(path, key)
    begin = file.read(len(NPY) + 2)
    if begin[: len(NPY)] != NPY:
        raise place.error("is no NPY file")
    length_bytes = _LENGTH_BYTES.get(begin[len(NPY) :])
    if length_bytes is None:
        version = ".".join(map(str, begin[len(NPY) :]))
        raise place.error(f"is NPY version {version}, not 1.0 or 2.0", "unsupported")
    length = int.from_bytes(file.read(length_bytes), "little")
    if length > _LONGEST_HEADER:
        raise place.error(f"has a header of {length} bytes, more than {_LONGEST_HEADER}")
    header = _parsed(file.read(length), place)
    _check_kind(header, kinds, place)
    left = None if available is None else available - len(begin) - length_bytes - length
    if left is not None and header.nbytes > left:
        problem = f"states {_words(header)}, {header.nbytes} bytes, and has {max(left, 0)} bytes"
        raise place.error(problem)
    return header


def _parsed(text: bytes, place: _Place) -> Header:
    try:
        stated = ast.literal_eval(text.decode("latin-1"))
        shape, order, dtype = (stated[name] for name in ("shape", "fortran_order", "descr"))
        dtype = np.lib.format.descr_to_dtype(dtype)
    except Exception as error:  # of Python's parser and of NumPy
        raise place.error(f"has a damaged header of NPY ({type(error).__name__}: {error})") from None
    if not _is_shape(shape):
        raise place.error(f"states the shape {shown(shape)}")
    if not dtype.itemsize or type(order) is not bool:
        raise place.error(f"states {shown(str(dtype))} in the order {shown(order)}")
    return Header(shape, order, dtype)


def _is_shape(shape: Any) -> bool:
    if not isinstance(shape, tuple) or len(shape) > _MOST_AXES:
        return False
    return all(type(size) is int and 0 <= size < 1 << 62 for size in shape)


def _words(header: Header) -> str:
    return f"an array of {header.dtype} of shape {shown(header.shape)}"


def _check_kind(header: Header, kinds: str, place: _Place) -> None:
    if header.dtype.kind not in kinds or header.dtype.hasobject:
        raise place.error(f"is {shown(str(header.dtype))}; only plain numbers are read", "type")


def _content(file: IO[bytes], header: Header, place: _Place) -> NDArray[Any]:
    content = file.read(header.nbytes)
    if len(content) < header.nbytes:
        raise place.error(f"ends after {len(content)} of {header.nbytes} bytes")
    flat, shape = np.frombuffer(content, header.dtype), header.shape
    return flat.reshape(shape[::-1]).T if header.fortran_order else flat.reshape(shape)


def member_names(path: Path) -> list[str]:
    """Names of the files of a zip archive; empty if it is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except Exception:  # as for `damage_named`
        return []


def array_names(path: Path) -> list[str]:
    """Names of the arrays of an NPZ file; empty if it is not a zip file."""
    return [name.removesuffix(".npy") for name in member_names(path) if name.endswith(".npy")]


_NO_ARRAYS = "no file of NumPy arrays"


def read_npz(path: Path, wanted: Callable[[str], bool]) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file that have names in `wanted`.

    Raises:
        InputError: the file cannot be read, is damaged, holds Python objects, or needs too much memory.
    """
    headers: dict[str, Header] = {}
    with damage_named(path, _NO_ARRAYS), zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
        chosen = {name: member for member in members if wanted(name := member.filename.removesuffix(".npy"))}
        for name, member in chosen.items():
            with archive.open(member) as file:
                headers[name] = read_header(file, path, name, member.file_size)
            _ensure_fit(headers.values(), _Place(path, name))
        return {name: _member(archive, member, _Place(path, name)) for name, member in chosen.items()}


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: _Place) -> NDArray[Any]:
    with archive.open(member) as file:
        return _content(file, read_header(file, place.file, place.key), place)


def _ensure_fit(headers: Any, place: _Place) -> None:
    """Make sure that arrays with these headers may be read."""
    *_, last = headers
    total = sum(header.nbytes for header in headers)
    ensure_fits(_COPIES * total, _words(last), file=place.file, key=place.key)


def read_npy(path: Path) -> NDArray[Any]:
    """The array of an NPY file.

    Raises:
        InputError: as for `read_npz`.
    """
    with damage_named(path, _NO_ARRAYS), open(path, "rb") as file:
        status = os.fstat(file.fileno())
        return _plain_array(
            file, _Place(path, path.stem), status.st_size if stat.S_ISREG(status.st_mode) else None
        )


def npy_of(content: bytes, path: Path, key: str) -> NDArray[Any]:
    """The array of the bytes of an NPY file, which another file contains.

    Raises:
        InputError: as for `read_npz`.
    """
    return _plain_array(io.BytesIO(content), _Place(path, key), len(content))


def _plain_array(file: IO[bytes], place: _Place, available: int | None) -> NDArray[Any]:
    header = read_header(file, place.file, place.key, available)
    _ensure_fit([header], place)
    return _content(file, header, place)


def array_of(content: bytes, dtype: Any, shape: Any, path: Path, key: str) -> NDArray[Any]:
    """The array of this type and shape, of which a file has the bytes.

    Raises:
        InputError: it is no such array.
    """
    place = _Place(path, key)
    try:
        header = Header(tuple(shape), False, np.dtype(dtype))
    except Exception:
        raise place.error(f"has dtype {shown(dtype)} and shape {shown(shape)}, which are none") from None
    if not _is_shape(header.shape) or not header.dtype.itemsize or header.nbytes != len(content):
        raise place.error(f"states {_words(header)}, and has {len(content)} bytes")
    _check_kind(header, _KINDS, place)
    return np.frombuffer(content, header.dtype).reshape(header.shape)


def as_array(value: Any) -> NDArray[Any]:
    """A user's value as an array; of what is none, such as lists of different lengths, one of an object."""
    try:
        return np.asarray(value)
    except Exception:  # NumPy's, or the object's own
        return np.asarray(None)


def checked(
    value: Any, axes: Sequence[str], path: Path, key: str | None = None, kinds: str = "iu"
) -> NDArray[Any]:
    """An array or nested lists of a file as an array that is not empty.

    Args:
        axes: what its axes are.
        kinds: accepted kinds of NumPy types; the default is whole numbers.

    Raises:
        InputError: it has another type or other axes.
    """
    place = _Place(path, key)
    array = as_array(value)
    if array.ndim != len(axes) or array.dtype.kind not in kinds or not array.size:
        numbers = "numbers" if "f" in kinds else "whole numbers"
        problem = f"is {array.dtype} of shape {shown(array.shape)}, not {numbers} [{', '.join(axes)}]"
        raise place.error(problem)
    return array


def product_sum(values: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """The sum of the products of two vectors."""
    return float(np.sum(values * others))
