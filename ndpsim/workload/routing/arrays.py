"""Arrays of NPY and NPZ files, which are inspected before they are read, and never unpickled."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.files import reading
from ndpsim.base.limits import ensure_fits
from ndpsim.base.run_files import note_input

_KINDS = "biufU"


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    note_input(path)
    try:
        with reading(path):
            yield
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"is damaged, or no file of NumPy arrays ({error})", "form", file=path) from None


def member_names(path: Path) -> list[str]:
    """Names of the arrays of an NPZ file; empty if it is not a zip file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return []


def read_npz(path: Path, wanted: Callable[[str], bool]) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file that have names in `wanted`.

    Raises:
        InputError: the file cannot be read, is damaged, holds Python objects, or needs too much memory.
    """
    arrays, total = {}, 0
    with _damage_named(path), zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            plain = name.removesuffix(".npy")
            if name.endswith(".npy") and wanted(plain):
                with archive.open(name) as member:
                    arrays[plain] = _read_array(member, path, plain, total)
                total += arrays[plain].nbytes
    return arrays


def read_npy(path: Path) -> NDArray[Any]:
    """The array of an NPY file.

    Raises:
        InputError: as for `read_npz`.
    """
    with _damage_named(path), open(path, "rb") as file:
        return _read_array(file, path, path.stem, 0)


def _read_array(file: IO[bytes], path: Path, name: str, before: int) -> NDArray[Any]:
    version = np.lib.format.read_magic(file)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise InputError(
            f"is NPY version {version[0]}.{version[1]}, not 1.0 or 2.0", "unsupported", file=path, key=name
        )
    shape, fortran_order, dtype = read_header(file)
    if dtype.kind not in _KINDS:
        raise InputError(f"is {dtype}; only plain numbers are read", "type", file=path, key=name)
    needed = math.prod(shape) * dtype.itemsize
    ensure_fits(before + 2 * needed, f"an array of shape {shape}", file=path, key=name)
    content = file.read(needed)
    if len(content) < needed:
        raise InputError(f"ends after {len(content)} of {needed} bytes", "form", file=path, key=name)
    flat = np.frombuffer(content, dtype)
    return flat.reshape(shape[::-1]).T if fortran_order else flat.reshape(shape)
