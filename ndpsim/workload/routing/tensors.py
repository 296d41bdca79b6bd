"""Reads tensors of PyTorch's files without PyTorch, and without running code of a pickle.

``torch.save`` writes a zip archive with a pickle, ``data.pkl``, that describes objects, and a file for each
storage, ``data/0``, ... Here the pickle may name tensors, storages and plain containers; other names are
refused.
"""

from __future__ import annotations

import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.files import reading
from ndpsim.base.limits import ensure_fits
from ndpsim.base.run_files import note_input

_STORAGES = {
    "ByteStorage": "u1",
    "CharStorage": "i1",
    "ShortStorage": "i2",
    "IntStorage": "i4",
    "LongStorage": "i8",
    "HalfStorage": "f2",
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "BoolStorage": "?",
}
_FACTOR = 6  # approximate bytes of objects for each byte of a pickle or a tensor


def is_saved_by_torch(path: Path) -> bool:
    """Whether a file is a zip archive with the pickle of ``torch.save``."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def read_saved(path: Path) -> Any:
    """The object that ``torch.save`` wrote, with NumPy arrays instead of tensors.

    Raises:
        InputError: it cannot be read, is damaged, needs too much memory, or has other objects than plain
            data.
    """
    note_input(path)
    try:
        with reading(path), zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            ensure_fits(_FACTOR * size, "its content", file=path)
            name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            with archive.open(name) as file:
                return _TensorReader(file, archive, name.removesuffix("data.pkl"), path).load()
    except InputError:
        raise
    except Exception as error:  # a damaged pickle may raise any exception
        problem = f"is damaged, or was not written by torch.save ({type(error).__name__}: {error})"
        raise InputError(problem, "form", file=path) from None


class _TensorReader(pickle.Unpickler):
    """An unpickler that only makes plain data and arrays from tensors."""

    def __init__(self, file: Any, archive: zipfile.ZipFile, folder: str, path: Path) -> None:
        super().__init__(file)
        self._archive, self._folder, self._path = archive, folder, path

    def find_class(self, module: str, name: str) -> Any:
        """Called for each name in the pickle."""
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        raise InputError(
            f"holds {module}.{name}, which is not plain data and is not read", "unsupported", file=self._path
        )

    def persistent_load(self, identity: Any) -> NDArray[Any]:
        """Called for each storage."""
        _, dtype, key, *_ = identity
        content = self._archive.read(f"{self._folder}data/{key}")
        return np.frombuffer(content, np.dtype(dtype).newbyteorder("<"))


def _tensor(storage: NDArray[Any], offset: int, shape: Any, strides: Any, *_: Any) -> NDArray[Any]:
    """A copy of a tensor, so that no stride leaves its storage."""
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min((offset, *shape, *strides)) < 0 or (0 not in shape and last >= len(storage)):
        raise ValueError(f"a tensor of shape {tuple(shape)} is larger than its storage")
    steps = tuple(stride * storage.itemsize for stride in strides)
    return np.lib.stride_tricks.as_strided(storage[offset:], tuple(shape), steps).copy()
