"""Reads the header of a GGUF file, version 2 or 3: metadata, and name, format and place of each tensor.

Layout: docs/gguf.md of ggml-org/ggml. Only the header is read, never a tensor. Every length is checked
against the rest of the file before it is used. Numbers of formats are those of `GGMLQuantizationType` of the
package gguf 0.19.0 and, from 133 on, of ``ggml/include/ggml.h`` of ikawrakow/ik_llama.cpp at b50efcc.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from ndpsim.base.errors import Code, InputError
from ndpsim.base.files import reading
from ndpsim.base.run_files import note_input
from ndpsim.workload.models.blocks import BLOCKS, Block

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_HEADER = 1 << 28  # bytes
_MAX_KEYS = 1 << 16
_MAX_TENSORS = 1 << 18
_MAX_NAME = 1 << 12
_MAX_TEXT = 1 << 24
_MAX_ARRAY = 1 << 24
_KEPT = 1 << 14  # entries of an array whose values are kept: one for each layer
_MAX_SIZE = 1 << 40
_MAX_DIMENSIONS = 4

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9

_UPSTREAM = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 10: "q2_k", 11: "q3_k",
    12: "q4_k", 13: "q5_k", 14: "q6_k", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl",
    21: "iq3_s", 22: "iq2_s", 23: "iq4_xs", 29: "iq1_m", 30: "bf16", 34: "tq1_0", 35: "tq2_0", 39: "mxfp4",
    40: "nvfp4", 41: "q1_0",
}  # fmt: skip
_IK = {
    133: "q6_0", 137: "iq2_k", 138: "iq3_k", 139: "iq4_k", 140: "iq5_k", 141: "iq6_k", 144: "iq4_ks",
    145: "iq2_ks", 146: "iq4_kss", 152: "iq5_ks", 153: "iq2_kt", 154: "iq3_kt", 155: "iq4_kt", 156: "iq3_ks",
    157: "iq2_kl", 158: "iq1_kt",
}  # fmt: skip
#: Repacked formats have the number of the plain one and 200; two of them are formats of their own.
_REPACKED = {number + 200: name for number, name in (_UPSTREAM | _IK).items() if number >= 2} | {
    219: "iq1_s_r4",
    229: "iq1_m_r4",
}
_NUMBERS = {
    24: Block("i8", 1, 1),
    25: Block("i16", 1, 2),
    26: Block("i32", 1, 4),
    27: Block("i64", 1, 8),
    28: Block("f64", 1, 8),
}
#: Formats by their numbers in a file.
FORMATS: Mapping[int, Block] = _NUMBERS | {
    number: BLOCKS[name] for number, name in (_UPSTREAM | _IK | _REPACKED).items()
}


@dataclass(frozen=True)
class Array:
    """An array of metadata: the number of its entries, and the entries if they are few numbers."""

    count: int
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a file: its name, sizes (the length of a row first) and format."""

    name: str
    sizes: tuple[int, ...]
    block: Block

    @property
    def columns(self) -> int:
        """The length of a row."""
        return self.sizes[0]

    @property
    def rows(self) -> int:
        """The number of rows of all matrices together."""
        return math.prod(self.sizes[1:])

    @property
    def bytes(self) -> int:
        """The bytes in the file."""
        return self.block.size(self.rows, self.columns)


@dataclass(frozen=True)
class Header:
    """What a file says before its data."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: tuple[TensorInfo, ...]

    def error(self, key: str, problem: str, code: Code = "form") -> InputError:
        """The error `problem` of a key or a tensor."""
        return InputError(problem, code, file=self.path, key=key)


def is_gguf(path: Path) -> bool:
    """Whether a file has the suffix or the first bytes of GGUF."""
    if path.suffix.lower() == ".gguf":
        return True
    if not path.is_file():  # a pipe would wait for its writer
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read_header(path: Path) -> Header:
    """The header of the file at `path`.

    Raises:
        InputError: it is no readable GGUF file, or a length or an offset leads beyond its end.
    """
    note_input(path)
    if not path.is_file():
        raise InputError("not a regular file", "unreadable", file=path)
    with reading(path), open(path, "rb") as file:
        return _Reader(path, file, path.stat().st_size).header()


class _Reader:
    """Reads forward, and never beyond the end of the file or of what a header may have."""

    def __init__(self, path: Path, file: IO[bytes], size: int) -> None:
        self._path, self._file, self._size, self._done = path, file, size, 0

    def _fail(self, problem: str, key: str = "", code: Code = "form") -> NoReturn:
        raise InputError(problem, code, file=self._path, key=key or None)

    def _room(self, count: int, what: str) -> int:
        """`count` bytes from here on.

        Raises:
            InputError: the file, or what a header may have, ends before.
        """
        if count > self._size - self._done:
            self._fail(f"{what} needs {count} bytes, and the file ends after {self._size - self._done} more")
        if self._done + count > _MAX_HEADER:
            self._fail(f"the header is longer than {_MAX_HEADER >> 20} MiB", code="too-large")
        self._done += count
        return count

    def _bytes(self, count: int, what: str) -> bytes:
        found = self._file.read(self._room(count, what))
        if len(found) != count:
            self._fail(f"{what} is cut off")
        return found

    def _skip(self, count: int, what: str) -> None:
        self._file.seek(self._room(count, what), 1)

    def _number(self, letter: str, what: str) -> Any:
        form = f"<{letter}"
        return struct.unpack(form, self._bytes(struct.calcsize(form), what))[0]

    def _count(self, letter: str, most: int, what: str) -> int:
        number = int(self._number(letter, what))
        if number > most:
            self._fail(f"{number} is more than {most} for {what}", code="range")
        return number

    def _text(self, most: int, what: str) -> str:
        found = self._bytes(self._count("Q", most, f"the length of {what}"), what)
        try:
            return found.decode()
        except UnicodeDecodeError:
            self._fail(f"{what} is not UTF-8 text")

    def header(self) -> Header:
        """The whole header."""
        if self._bytes(len(_MAGIC), "the first word") != _MAGIC:
            self._fail("is no GGUF file: it does not begin with GGUF")
        version = self._number("I", "the version")
        if version not in _VERSIONS:
            known = " and ".join(map(str, _VERSIONS))
            self._fail(f"has version {version} of GGUF; {known} are understood", code="unsupported")
        tensors = self._count("Q", _MAX_TENSORS, "the number of tensors")
        keys = self._count("Q", _MAX_KEYS, "the number of keys")
        metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = self._text(_MAX_NAME, "a key")
            if key in metadata:
                self._fail("is given twice", key, "twice")
            metadata[key] = self._value(self._number("I", f"the type of {key}"), key)
        places = [self._tensor() for _ in range(tensors)]
        self._check_places(metadata, places)
        return Header(self._path, metadata, tuple(info for info, _ in places))

    def _value(self, kind: int, key: str) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind], key)
        if kind == _TEXT:
            return self._text(_MAX_TEXT, key)
        if kind != _ARRAY:
            self._fail(f"has a value of type {kind}, which is unknown", key)
        inner = self._number("I", f"the type of {key}")
        count = self._count("Q", _MAX_ARRAY, f"the entries of {key}")
        if inner == _TEXT:
            for _ in range(count):
                self._skip(self._count("Q", _MAX_TEXT, f"an entry of {key}"), key)
            return Array(count)
        if inner not in _SCALARS:
            self._fail(f"is an array of type {inner}, which is unknown", key)
        form = f"<{count}{_SCALARS[inner]}"
        if count > _KEPT:
            self._skip(struct.calcsize(form), key)
            return Array(count)
        return Array(count, struct.unpack(form, self._bytes(struct.calcsize(form), key)))

    def _tensor(self) -> tuple[TensorInfo, int]:
        name = self._text(_MAX_NAME, "the name of a tensor")
        dimensions = self._count("I", _MAX_DIMENSIONS, f"the dimensions of {name}")
        sizes = tuple(self._count("Q", _MAX_SIZE, f"a size of {name}") for _ in range(dimensions)) or (1,)
        number = self._number("I", f"the format of {name}")
        if number not in FORMATS:
            self._fail(f"has format number {number}, which is unknown", name, "unsupported")
        block = FORMATS[number]
        if not all(sizes) or sizes[0] % block.weights:
            self._fail(f"has rows of {sizes[0]}, which are no whole blocks of {block.name}", name)
        return TensorInfo(name, sizes, block), self._number("Q", f"the offset of {name}")

    def _check_places(self, metadata: Mapping[str, Any], places: list[tuple[TensorInfo, int]]) -> None:
        """Check that the data of all tensors is within the file."""
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
            self._fail("is no distance in bytes", "general.alignment", "range")
        begin = -(-self._done // alignment) * alignment
        for info, offset in places:
            end = begin + offset + info.bytes
            if end > self._size:
                self._fail(f"ends at byte {end}, and the file has {self._size}: it is cut off", info.name)
