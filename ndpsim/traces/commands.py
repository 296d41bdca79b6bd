"""Command traces, and their files.

A file is CSV, gzip-compressed or not (told by its content), with one command a line after the header
``clock,command,rank,bankgroup,bank,row,column``. Numbers are decimal; -1 stands where a command addresses
none: row and column of precharges and refreshes, bank group and bank of PREab and REFab, column of ACT
(which may also be left empty). A column is a burst of the open row, not a column of one device.
"""

from __future__ import annotations

import gzip
import os
import re
import string
import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ndpsim.errors import InputError, nearest
from ndpsim.files import read_plain_or_gzip, replacing
from ndpsim.spec import COMMANDS

__all__ = ["HEADER", "CommandTrace", "read_commands", "write_commands"]

#: The columns of a command trace, in order.
HEADER = ("clock", "command", "rank", "bankgroup", "bank", "row", "column")

_NAMES = tuple(command.name for command in COMMANDS)
_NUMBER = {name: number for number, name in enumerate(_NAMES)}
_OPENING = {command.name for command in COMMANDS if command.opens}
_WHOLE = re.compile(r"-?[0-9]+", re.ASCII)
_LARGEST = 10**18  # so that adding any latency to a clock stays within 64 bits
_PLAIN = (string.digits + string.ascii_letters + ",-\n").encode("ascii")  # no blanks, quotes, plus signs


@dataclass(frozen=True, eq=False)
class CommandTrace:
    """Commands of one channel in the order of issue: seven integer arrays of one length.

    `command` is a place in `ndpsim.spec.COMMANDS`; -1 stands for a coordinate that is not addressed.
    """

    clock: NDArray[np.int64]
    command: NDArray[np.int64]
    rank: NDArray[np.int64]
    bankgroup: NDArray[np.int64]
    bank: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, np.asarray(getattr(self, field.name), dtype=np.int64))
        lengths = {field.name: getattr(self, field.name).shape for field in fields(self)}
        if len(set(lengths.values())) > 1 or len(lengths["clock"]) != 1:
            raise ValueError(f"the arrays of a command trace have different shapes: {lengths}")

    def __len__(self) -> int:
        return len(self.clock)

    @classmethod
    def of(cls, columns: ArrayLike) -> Self:
        """The trace whose seven columns, in the order of `HEADER`, are the rows of `columns`."""
        return cls(*np.ascontiguousarray(columns, dtype=np.int64).reshape(len(HEADER), -1))

    def columns(self) -> NDArray[np.int64]:
        """All columns as one array, (7, commands)."""
        return np.stack([getattr(self, name) for name in HEADER])

    def take(self, places: NDArray[np.int64]) -> Self:
        """The commands at `places`, in that order."""
        return self.of(self.columns()[:, places])


def _text(path: Path) -> str:
    data = read_plain_or_gzip(path)
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"is not a command trace: byte {data[error.start]:#04x} is not ASCII"
        raise InputError(problem, file=path, line=line) from None
    return text.replace("\r\n", "\n")


def _check_header(header: str, path: Path) -> None:
    expected = f"the header must be {','.join(HEADER)}"
    found = header.split(",")
    for place, name in enumerate(HEADER):
        if place == len(found):
            raise InputError(f"{expected}; '{name}' is missing", file=path, line=1)
        if found[place] != name:
            raise InputError(f"{expected}; column {place + 1} is {found[place][:40]!r}", file=path, line=1)
    if len(found) > len(HEADER):
        raise InputError(f"{expected}; {found[len(HEADER)][:40]!r} is one column too many", file=path, line=1)


def _quickly(body: str) -> NDArray[np.int64] | None:
    """The columns of a well-formed body; None when anything about it needs a closer look."""
    if body.encode("ascii").translate(None, _PLAIN):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy reads "1.5" as a whole number with no more than a warning
            table = np.loadtxt(
                body.splitlines(),
                dtype=np.int64,
                delimiter=",",
                comments=None,
                converters={1: _NUMBER.__getitem__},
                ndmin=2,
            )
    except (ValueError, KeyError, OverflowError, Warning):
        return None
    lines = body.count("\n") + (not body.endswith("\n"))
    whole = table.shape == (lines, len(HEADER)) and table.min() > -_LARGEST and table.max() < _LARGEST
    return table.T if whole else None


def _number(text: str, name: str, path: Path, line: int) -> int:
    if not _WHOLE.fullmatch(text):
        raise InputError(f"{text[:40]!r} is not a whole number", file=path, line=line, key=name)
    if len(text) > 20 or abs(int(text)) >= _LARGEST:
        raise InputError(f"{text[:40]} is beyond {_LARGEST:.0e}", file=path, line=line, key=name)
    return int(text)


def _carefully(body: str, path: Path) -> NDArray[np.int64]:
    """The columns of `body`, or the error in its first bad line."""
    rows = []
    for line, text in enumerate(body.removesuffix("\n").split("\n"), start=2):
        values = text.split(",")
        if len(values) != len(HEADER):
            raise InputError(
                f"the line has {len(values)} of {len(HEADER)} fields: {text[:60]!r}", file=path, line=line
            )
        name = values[1]
        if name not in _NUMBER:
            guess = nearest(name, _NAMES)
            hint = f"; did you mean '{guess}'?" if guess else ""
            problem = f"unknown command {name[:40]!r}{hint} (known: {', '.join(_NAMES)})"
            raise InputError(problem, file=path, line=line, key="command")
        if name in _OPENING:
            values[-1] = values[-1] or "-1"
        values[1] = str(_NUMBER[name])
        rows.append([_number(value, key, path, line) for key, value in zip(HEADER, values, strict=True)])
    return np.array(rows, dtype=np.int64).T


def read_commands(path: str | os.PathLike[str]) -> CommandTrace:
    """Read the command trace in `path`; the command of line n, counted from 1, has index n - 2.

    Only the form is judged here: clocks out of order or a row out of range is for `check` to find.

    Raises:
        InputError: the file is missing, empty, damaged, or a line of it is malformed.
    """
    path = Path(path)
    text = _text(path)
    if not text:
        raise InputError(f"is empty; the header {','.join(HEADER)} is expected", file=path)
    header, _, body = text.partition("\n")
    _check_header(header, path)
    if not body:
        return CommandTrace.of(np.empty((len(HEADER), 0), dtype=np.int64))
    columns = _quickly(body)
    return CommandTrace.of(_carefully(body, path) if columns is None else columns)


def write_commands(path: str | os.PathLike[str], trace: CommandTrace) -> None:
    """Write `trace` to `path`, gzip-compressed when the name ends in ``.gz``.

    Equal traces give equal files. The file appears under its name only when it is complete.

    Raises:
        InputError: the file cannot be written.
    """
    path = Path(path)
    columns = trace.columns().tolist()
    columns[1] = [_NAMES[number] for number in columns[1]]
    lines = [",".join(HEADER)]
    lines += [f"{t},{c},{r},{g},{b},{w},{k}" for t, c, r, g, b, w, k in zip(*columns, strict=True)]
    data = ("\n".join(lines) + "\n").encode("ascii")
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    with replacing(path) as file:
        file.write(data)
