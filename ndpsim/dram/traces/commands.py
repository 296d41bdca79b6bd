"""Files of command traces: reads our own form, and writes it and those of other tools.

Our own form is CSV, gzip-compressed or not (detected by its content), with a command on each line after the
header ``clock,command,rank,bankgroup,bank,row,column``. Numbers are decimal; -1 is a coordinate that a
command does not address: row and column of precharges and refreshes, bank group and bank of commands to a
whole rank, and the column of an activation (which may also be empty). For a standard with stacks (HBM3) the
header is ``clock,command,pseudochannel,stack,bankgroup,bank,row,column``. A column is a burst of the open
row, not a column of one device.
"""

from __future__ import annotations

import gzip
import os
import re
import string
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import choice, instance, path_of, whole_number
from ndpsim.base.errors import InputError, did_you_mean, shown
from ndpsim.base.files import open_plain_or_gzip, replacing
from ndpsim.base.limits import ensure_fits
from ndpsim.dram.spec import Device, command_names, standards
from ndpsim.dram.traces.chunks import whole_lines
from ndpsim.dram.traces.command_form import Facts, columns_of, join_stacks, level_columns
from ndpsim.dram.traces.command_trace import HEADER, CommandTrace
from ndpsim.dram.traces.request_format import command_forms

_WHOLE = re.compile(r"-?[0-9]+", re.ASCII)
_LARGEST = 10**18  # so that a clock plus any latency fits into 64 bits
_MAX_CHANNEL = 1 << 20
_PART = 1 << 17  # commands converted to text at a time
_CHUNK = 4 << 20  # bytes read at a time
_BYTES_CHECKED = 256  # bytes of memory for a command while its trace is read and checked
_PLAIN = (string.digits + string.ascii_letters + ",-\n").encode("ascii")  # no blanks, quotes, plus signs


def _columns_by_standard() -> dict[str, tuple[str, ...]]:
    """The columns of our own form, by standard."""
    return {name: level_columns(standard) for name, standard in standards().items()}


def is_command_header(line: str) -> bool:
    """Whether a line is the header of a command trace, of any standard."""
    return tuple(line.strip().split(",")) in _columns_by_standard().values()


def other_standards(trace: CommandTrace, device: Device) -> tuple[list[str], list[str]]:
    """Commands of a trace that the device lacks, and the standards that have all of its commands.

    Both are empty if the device has all of them.
    """
    numbers = np.unique(trace.command)
    used = {trace.names[number] for number in numbers if 0 <= number < len(trace.names)}
    lacking = sorted(used - set(device.standard.names))
    both = {name: {*page.names, *page.under("reference").names} for name, page in standards().items()}
    fitting = [name for name, names in both.items() if used <= names]
    return (lacking, fitting) if lacking else ([], [])


def _check_header(header: str, names: Sequence[str], path: Path) -> None:
    expected = f"the header must be {','.join(names)}"
    found = header.split(",")
    fitting = [name for name, columns in _columns_by_standard().items() if columns == tuple(found)]
    if fitting and tuple(found) != tuple(names):
        problem = f"{expected}; this is one of {' or '.join(fitting)}: --standard {fitting[0]}"
        raise InputError(problem, "form", file=path, line=1)
    for index, name in enumerate(names):
        if index == len(found):
            raise InputError(f"{expected}; '{name}' is missing", "form", file=path, line=1)
        if found[index] != name:
            problem = f"{expected}; column {index + 1} is {shown(found[index])}"
            raise InputError(problem, "form", file=path, line=1)
    if len(found) > len(names):
        problem = f"{expected}; {shown(found[len(names)])} is one column too many"
        raise InputError(problem, "form", file=path, line=1)


def _numbers() -> dict[str, int]:
    return {name: number for number, name in enumerate(command_names())}


def _quickly(body: str, count: int, numbers: Mapping[str, int]) -> NDArray[np.int64] | None:
    """The columns of a well-formed body; None if it needs careful parsing."""
    if body.encode("ascii").translate(None, _PLAIN):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy reads "1.5" as a whole number with only a warning
            table = np.loadtxt(
                body.splitlines(),
                dtype=np.int64,
                delimiter=",",
                comments=None,
                converters={1: numbers.__getitem__},
                ndmin=2,
            )
    except (ValueError, KeyError, OverflowError, Warning):
        return None
    lines = body.count("\n") + (not body.endswith("\n"))
    whole = table.shape == (lines, count) and table.min() > -_LARGEST and table.max() < _LARGEST
    return table.T if whole else None


def _number(text: str, name: str, path: Path, line: int) -> int:
    if not _WHOLE.fullmatch(text):
        raise InputError(f"{shown(text)} is not a whole number", "type", file=path, line=line, key=name)
    if len(text) > 20 or abs(int(text)) >= _LARGEST:
        raise InputError(f"{shown(text)} is beyond {_LARGEST:.0e}", "range", file=path, line=line, key=name)
    return int(text)


def _carefully(
    body: str, names: Sequence[str], path: Path, first_line: int, numbers: Mapping[str, int]
) -> NDArray[np.int64]:
    """The named columns of `body`, or the error of its first bad line."""
    commands = [command for standard in standards().values() for command in standard.commands]
    opening = {command.name for command in commands if command.opens}
    rows = []
    for line, text in enumerate(body.removesuffix("\n").split("\n"), start=first_line):
        values = text.split(",")
        if len(values) != len(names):
            problem = f"the line has {len(values)} of {len(names)} fields: {shown(text)}"
            raise InputError(problem, "form", file=path, line=line)
        name = values[1]
        if name not in numbers:
            hint = did_you_mean(name, numbers)
            problem = f"unknown command {shown(name)}{hint} (known: {', '.join(numbers)})"
            raise InputError(problem, "unknown-name", file=path, line=line, key="command")
        if name in opening:
            values[-1] = values[-1] or "-1"
        values[1] = str(numbers[name])
        rows.append([_number(value, key, path, line) for key, value in zip(names, values, strict=True)])
    return np.array(rows, dtype=np.int64).T


def _ascii(data: bytes, path: Path, first_line: int) -> str:
    try:
        return data.decode("ascii").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        problem = f"is not a command trace: byte {data[error.start]:#04x} is not ASCII"
        raise InputError(problem, "form", file=path, line=line) from None


def _pieces(path: Path, device: Device | None) -> Iterator[NDArray[np.int64]]:
    """The columns of a file's commands, as in `HEADER`, a few megabytes of text at a time."""
    line, numbers = 1, _numbers()
    names: tuple[str, ...] = HEADER
    with open_plain_or_gzip(path) as stream:
        for data in whole_lines(stream, path, _CHUNK):
            text = _ascii(data.tobytes(), path, line)
            if line == 1:
                header, _, text = text.partition("\n")
                if header == ",".join(columns_of(device)):
                    names = columns_of(device)
                _check_header(header, names, path)
                line = 2
            if text:
                columns = _quickly(text, len(names), numbers)
                if columns is None:
                    columns = _carefully(text, names, path, line, numbers)
                yield columns if device is None or names == HEADER else join_stacks(columns, device)
                line += text.count("\n")
    if line == 1:
        raise InputError(f"is empty; the header {','.join(HEADER)} is expected", "form", file=path)


def read_commands(path: str | os.PathLike[str], device: Device | None = None) -> CommandTrace:
    """Read the command trace in `path`; the command of line n, counted from 1, has index n - 2.

    Only the form is checked here; `check` finds clocks out of order or rows out of range.

    >>> result = ndpsim.simulate_expert("trimoe", ndpsim.Expert(256, 128), record_commands=True)
    >>> ndpsim.write_commands("lane.csv", result.command_traces[0])
    >>> len(ndpsim.read_commands("lane.csv")) == len(result.command_traces[0])
    True

    Args:
        path: the file.
        device: the channel, which a file with a column for stacks needs.

    Raises:
        InputError: the file is missing, empty, damaged, or a line of it is malformed; or it has more commands
            than fit in the allowed memory (`limits.memory_limit`).
    """
    path, count = path_of(path, "path"), 0
    if device is not None:
        instance(device, "device", Device)
    pieces = [np.empty((len(HEADER), 0), dtype=np.int64)]
    for columns in _pieces(path, device):
        count += columns.shape[1]
        ensure_fits(count * _BYTES_CHECKED, f"{count} commands or more", file=path)
        pieces.append(columns)
    return CommandTrace.of(np.concatenate(pieces, axis=1))


def check_command_form(form: str) -> None:
    """Check that `write_commands` knows a form, before the commands are simulated.

    Raises:
        InputError: the form is unknown.
    """
    choice(form, "form", command_forms(), "form of command traces")


def write_commands(
    path: str | os.PathLike[str],
    trace: CommandTrace,
    form: str = "ndpsim",
    channel: int = 0,
    device: Device | None = None,
) -> None:
    """Write `trace` to `path`, gzip-compressed when the name ends in ``.gz``.

    Equal traces give equal files. The file appears under its name only when it is complete.

    >>> result = ndpsim.simulate_expert("trimoe", ndpsim.Expert(256, 128), record_commands=True)
    >>> ndpsim.write_commands("lane.csv", result.command_traces[0])

    Args:
        path: the file.
        trace: the commands of one channel.
        form: "ndpsim" is the CSV that `read_commands` reads. The others are forms of other tools:
            "ramulator2", "dramsim3", "drampower", "drampower5". The file of a form in
            `ndpsim/dram/traces/command_formats/` lists what the form cannot express.
        channel: the channel's number, for forms that have it.
        device: the channel, for forms that number banks over all bank groups.

    Raises:
        InputError: the file cannot be written, the form is unknown or cannot express the trace.
    """
    check_command_form(form)
    path, trace = path_of(path, "path"), instance(trace, "trace", CommandTrace)
    channel = whole_number(channel, "channel", 0, _MAX_CHANNEL)
    if device is not None:
        instance(device, "device", Device)
    for number in np.unique(trace.command):
        if not 0 <= number < len(trace.names):
            problem = f"command number {number} has no name; they go from 0 to {len(trace.names) - 1}"
            raise InputError(problem, "range", key="trace")
    chosen, facts = command_forms()[form], Facts(channel, device)
    chosen.check(trace, facts)
    with replacing(path) as file, _packing(file, path.suffix == ".gz") as out:
        if chosen.header is not None:
            out.write(f"{chosen.header(facts)}\n".encode("ascii"))
        for first in range(0, len(trace), _PART):
            part = trace.take(np.arange(first, min(first + _PART, len(trace))))
            out.write("".join(chosen.lines(part, facts)).encode("ascii"))


@contextmanager
def _packing(file: IO[bytes], packed: bool) -> Iterator[IO[bytes]]:
    """A file that writes to `file`, compressed if requested, without name and time of writing."""
    if not packed:
        yield file
        return
    with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0, compresslevel=6) as out:
        yield cast(IO[bytes], out)
