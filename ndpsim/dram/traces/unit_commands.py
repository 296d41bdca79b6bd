"""Files of commands of units in banks: CSV, gzip-compressed or not.

``clock,command,channel,``, the levels of the device, ``row,column``; -1: the command does not address it.
"""

from __future__ import annotations

import gzip
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import instance, path_of, several
from ndpsim.base.arguments import text as text_of
from ndpsim.base.errors import InputError, shown, unknown
from ndpsim.base.files import open_plain_or_gzip, replacing
from ndpsim.base.text_files import read_bytes
from ndpsim.dram.spec.extension import LEVELS, BankDevice
from ndpsim.dram.traces.chunks import whole_numbers

#: The rows of `UnitCommands.columns`.
COLUMNS = ("clock", "command", "channel", *LEVELS, "row", "column")


@dataclass(frozen=True, eq=False)
class UnitCommands:
    """Commands of units in banks, in the order of clocks, channels and issue; -1: not addressed.

    `columns`: int64[9, commands], rows as in `COLUMNS`; `names`: the names of commands by number.
    """

    columns: NDArray[np.int64]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", whole_numbers(self.columns, "columns", dimensions=2))
        object.__setattr__(self, "names", several(self.names, "names", text_of))
        if len(self.columns) != len(COLUMNS):
            problem = f"has {len(self.columns)} rows, not {len(COLUMNS)}: {', '.join(COLUMNS)}"
            raise InputError(problem, "form", key="columns")

    def __len__(self) -> int:
        return int(self.columns.shape[1])


_FACTOR = 24  # approximate bytes of memory for each byte of a file
_WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_START = "clock,command,channel,"


def header_of(device: BankDevice) -> tuple[str, ...]:
    """The columns of a file for a device."""
    return ("clock", "command", "channel", *device.extension.levels, "row", "column")


def is_unit_commands(path: str | os.PathLike[str]) -> bool:
    """Whether a file has commands of units in banks.

    Raises:
        InputError: it cannot be read.
    """
    with open_plain_or_gzip(path_of(path, "trace")) as stream:
        return stream.read(len(_START)) == _START.encode()


def _shown(device: BankDevice) -> list[int]:
    return [COLUMNS.index(name) for name in header_of(device)]


def write_unit_commands(path: str | os.PathLike[str], commands: UnitCommands, device: BankDevice) -> None:
    """Write commands; a name that ends in .gz compresses.

    >>> device = ndpsim.load_bank_hardware("attacc").device
    >>> ndpsim.write_unit_commands("commands.csv", commands, device)  # doctest: +SKIP

    Raises:
        InputError: the file cannot be written.
    """
    path = path_of(path, "path")
    instance(commands, "commands", UnitCommands)
    rows = commands.columns[_shown(instance(device, "device", BankDevice))].tolist()
    rows[1] = [commands.names[number] for number in rows[1]]
    text = "\n".join(
        [",".join(header_of(device)), *(",".join(map(str, row)) for row in zip(*rows, strict=True))]
    )
    data = f"{text}\n".encode()
    with replacing(path) as file:
        file.write(gzip.compress(data, mtime=0) if os.fspath(path).endswith(".gz") else data)


def read_unit_commands(path: str | os.PathLike[str], device: BankDevice) -> UnitCommands:
    """Read commands of a device.

    >>> device = ndpsim.load_bank_hardware("attacc").device
    >>> commands = ndpsim.read_unit_commands("commands.csv", device)  # doctest: +SKIP

    Raises:
        InputError: the file cannot be read, or a line is malformed or has an unknown command.
    """
    file = path_of(path, "path")
    instance(device, "device", BankDevice)
    header, numbers = header_of(device), {name: n for n, name in enumerate(device.names)}
    try:
        lines = read_bytes(file, _FACTOR).decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise InputError("is no trace of commands: it is not ASCII", "form", file=file) from None
    if not lines or lines[0].strip() != ",".join(header):
        raise InputError(f"the header must be {','.join(header)}", "form", file=file, line=1)
    table = np.full((len(COLUMNS), len(lines) - 1), -1, dtype=np.int64)
    columns = _shown(device)
    for index, text in enumerate(lines[1:]):
        fields = text.split(",")
        if len(fields) != len(header):
            problem = f"the line has {len(fields)} of {len(header)} fields: {shown(text)}"
            raise InputError(problem, "form", file=file, line=index + 2)
        if fields[1] not in numbers:
            raise unknown(fields[1], numbers, "command", file=file, line=index + 2, key="command")
        fields[1] = str(numbers[fields[1]])
        table[columns, index] = _numbers(fields, header, file, index + 2)
    return UnitCommands(table, device.names)


def _numbers(fields: list[str], header: tuple[str, ...], file: Path, line: int) -> list[int]:
    for name, text in zip(header, fields, strict=True):
        if not _WHOLE.fullmatch(text):
            raise InputError(f"{shown(text)} is not a whole number", "type", file=file, line=line, key=name)
    return [int(text) for text in fields]
