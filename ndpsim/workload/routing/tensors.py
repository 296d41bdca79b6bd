"""Reads tensors of PyTorch's files without PyTorch, and without running code of a pickle.

``torch.save`` writes a zip archive with a pickle, ``data.pkl``, that describes objects, and a file for each
storage, ``data/0``, ... Here the pickle may name tensors, storages and plain containers; other names are
refused.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arrays import damage_named, member_names
from ndpsim.base.errors import InputError, shown
from ndpsim.base.limits import ensure_fits

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
_STORES = ("PUT", "BINPUT", "LONG_BINPUT")
_PICKLE_BEGIN = 1 << 16
_FACTOR = 6  # approximate bytes of objects for each byte of a pickle or a tensor


def is_saved_by_torch(path: Path) -> bool:
    """Whether a file is a zip archive with the pickle of ``torch.save``."""
    return any(name.endswith("/data.pkl") for name in member_names(path))


def saved_mentions(path: Path, word: bytes) -> bool:
    """Whether the pickle of a file of ``torch.save`` has a word near its beginning."""
    name = next((name for name in member_names(path) if name.endswith("/data.pkl")), None)
    if name is None:
        return False
    with (
        damage_named(path, "was not written by torch.save"),
        zipfile.ZipFile(path) as archive,
        archive.open(name) as pickled,
    ):
        return word in pickled.read(_PICKLE_BEGIN)


def read_saved(path: Path) -> Any:
    """The object that ``torch.save`` wrote, with NumPy arrays instead of tensors.

    Raises:
        InputError: it cannot be read, is damaged, needs too much memory, or has other objects than plain
            data.
    """
    with damage_named(path, "was not written by torch.save"), zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
        ensure_fits(_FACTOR * size, "its content", file=path)
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        pickled = archive.read(name)
        for opcode, number, _ in pickletools.genops(pickled):
            # Unpickling makes room for as many objects as a number says.
            if opcode.name in _STORES and (number or 0) > len(pickled):
                raise ValueError(f"object {number} of {len(pickled)} bytes")
        return _TensorReader(pickled, archive, name.removesuffix("data.pkl"), path).load()


class _TensorReader(pickle.Unpickler):
    """An unpickler that only makes plain data and arrays from tensors."""

    def __init__(self, pickled: bytes, archive: zipfile.ZipFile, folder: str, path: Path) -> None:
        super().__init__(io.BytesIO(pickled))
        self._archive, self._folder, self._path = archive, folder, path
        self._storages: dict[str, bytes] = {}
        self._taken = 0  # bytes of all tensors so far

    def find_class(self, module: str, name: str) -> Any:
        """Called for each name in the pickle."""
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        raise InputError(
            f"holds {shown(f'{module}.{name}')}, which is not plain data and is not read",
            "unsupported",
            file=self._path,
        )

    def persistent_load(self, identity: Any) -> NDArray[Any]:
        """Called for each storage."""
        _, dtype, key, *_ = identity
        if key not in self._storages:
            self._storages[key] = self._archive.read(f"{self._folder}data/{key}")
        return np.frombuffer(self._storages[key], np.dtype(dtype).newbyteorder("<"))

    def _tensor(self, storage: NDArray[Any], offset: int, shape: Any, strides: Any, *_: Any) -> NDArray[Any]:
        """A copy of a tensor, so that no stride leaves its storage."""
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if min((offset, *shape, *strides)) < 0 or (0 not in shape and last >= len(storage)):
            raise ValueError(f"a tensor of shape {tuple(shape)} is larger than its storage")
        self._taken += math.prod(shape) * storage.itemsize  # a stride of 0 makes much of little
        what = f"tensors up to one of shape {shown(tuple(shape))}"
        ensure_fits(_FACTOR * self._taken, what, file=self._path)
        steps = tuple(stride * storage.itemsize for stride in strides)
        return np.lib.stride_tricks.as_strided(storage[offset:], tuple(shape), steps).copy()
