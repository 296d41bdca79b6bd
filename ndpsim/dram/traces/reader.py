"""Reads request traces in blocks, in any format of `registry` or as NumPy's files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arrays import NPY, read_header
from ndpsim.base.errors import InputError
from ndpsim.base.files import open_plain_or_gzip, reading
from ndpsim.dram.traces import parser
from ndpsim.dram.traces.chunks import LONGEST_LINE, whole_lines
from ndpsim.dram.traces.commands import is_command_header
from ndpsim.dram.traces.request_format import COORDINATES, RequestFormat, request_formats
from ndpsim.dram.traces.requests import Requests

_CHUNK = 1 << 20  # bytes read and parsed at a time
_BLOCK = 1 << 16  # requests of a block, at most
_SHOWN = 40  # shown characters of a bad line
_NO_BLANKS = "is blank; in this format blank lines stand at the end only"
_RECORDS = "biufV"  # kinds of NumPy types; whole numbers without names are refused for lack of columns


class TraceFile:
    """A request trace, gzip-compressed or not.

    Args:
        path: the file.
        format_: its format; None: detected.

    Attributes:
        share_read: the share of the file that was read.
    """

    def __init__(self, path: Path, format_: RequestFormat | None) -> None:
        self._path, self._format = path, format_
        self.share_read = 0.0

    def blocks(self) -> Iterator[Requests]:
        """The requests, in blocks.

        Raises:
            InputError: the file cannot be read, is damaged, or holds no request; or a line is bad.
        """
        with open_plain_or_gzip(self._path) as stream:
            with reading(self._path):
                is_numpy = stream.peek(len(NPY)).startswith(NPY)  # type: ignore[attr-defined]
            packed = getattr(stream, "fileobj", stream)
            size = os.fstat(packed.fileno()).st_size
            for block in self._of_numpy(stream) if is_numpy else self._of_lines(stream):
                if size > 0 and packed.seekable():
                    self.share_read = min(packed.tell() / size, 1.0)
                yield block
        self.share_read = 1.0

    def _of_lines(self, stream: IO[bytes]) -> Iterator[Requests]:
        reader = _Reader(self._path, self._format)
        for data in whole_lines(stream, self._path, _CHUNK):
            yield from reader.blocks(data)
        reader.ensure_any()

    def _of_numpy(self, stream: IO[bytes]) -> Iterator[Requests]:
        """The requests of a NumPy file: an array of records with the columns of `Requests.to_arrays`."""
        if self._format is not None:
            raise InputError("is a file of NumPy, which needs no format", "conflict", file=self._path)
        with reading(self._path):
            shape, _, record = read_header(stream, self._path, kinds=_RECORDS)
        if len(shape) != 1 or shape[0] == 0:
            problem = "has no requests" if len(shape) == 1 else f"has {len(shape)} dimensions, not 1"
            raise InputError(problem, "form", file=self._path)
        count = shape[0]
        by_place = "address" not in (record.names or ())
        names = COORDINATES if by_place else ("address",)
        lacking = [name for name in (*names, "write") if name not in (record.names or ())]
        if lacking:
            problem = f"has no column {lacking[0]}; NumPy's files have records of address (or "
            problem += f"{', '.join(COORDINATES)}), write and perhaps cycle"
            raise InputError(problem, "form", file=self._path)
        for _ in range(0, count, _BLOCK):
            rows = min(_BLOCK, count)
            count -= rows
            with reading(self._path):
                data = stream.read(rows * record.itemsize)
            if len(data) < rows * record.itemsize:
                raise InputError("ends within its records", "unreadable", file=self._path)
            yield self._of_records(np.frombuffer(data, dtype=record), names)

    def _of_records(self, records: NDArray[Any], names: tuple[str, ...]) -> Requests:
        cycle = records["cycle"] if "cycle" in (records.dtype.names or ()) else None
        place = None if "address" in names else np.stack([records[name] for name in names], axis=1)
        address = records["address"] if place is None else None
        try:
            return Requests(address, records["write"], str(self._path), cycle, place)
        except InputError as error:
            raise InputError(error.problem, error.code, file=self._path, key=error.key) from None


class _Reader:
    """Makes blocks of the pieces of a file of lines."""

    def __init__(self, path: Path, format_: RequestFormat | None) -> None:
        self.path = path
        self.state = parser.new_state()
        self.format: RequestFormat | None = None
        self.grammar = parser.no_format()
        self.cycle_read = 0  # number of the line after the last request
        if format_ is not None:
            self._take(format_)

    def blocks(self, data: NDArray[np.uint8]) -> Iterator[Requests]:
        """The requests of a piece, which ends with a line end.

        Raises:
            InputError: a line is bad.
        """
        self.state.position[0] = 0
        while self.state.position[0] < len(data):
            block = self._parse(data)
            if self.state.fault[0] == parser.MALFORMED and self.format is None:
                self.state.line[0] -= 1
                self._detect(_line(data, int(self.state.fault_start[0])))
                self.state.fault[0], self.state.position[0] = parser.NO_FAULT, self.state.fault_start[0]
            if self.state.fault[0] != parser.NO_FAULT:
                raise self._error(_line(data, int(self.state.fault_start[0])))
            if block is not None:
                yield block

    def _parse(self, data: NDArray[np.uint8]) -> Requests | None:
        """The next block of a piece, up to a bad line; None if it has no requests."""
        first_line = int(self.state.line[0]) + 1
        rows = parser.room_for(min(_BLOCK, len(data)), self.format)
        count = parser.parse(data, self.grammar, self.state, rows)
        self.cycle_read = int(rows.cycle[count]) if count < len(rows.cycle) else 0
        if count == 0 or self.format is None:
            return None
        return Requests(
            address=None if self.format.by_place else rows.address[:count],
            write=rows.write[:count],
            file=str(self.path),
            cycle=rows.cycle[:count] if self.format.timed else None,
            place=rows.place[:count] if self.format.by_place else None,
            format=self.format.name,
            skipped=rows.skipped[: int(self.state.skipped[0])].copy(),
            first_line=first_line,
        )

    def ensure_any(self) -> None:
        """Check that there was a request.

        Raises:
            InputError: there was none.
        """
        if self.format is None or not self.state.requests[0]:
            problem = "has no requests" if self.state.line[0] else "is empty; a request trace is expected"
            raise InputError(problem, "form", file=self.path)

    def _take(self, format_: RequestFormat) -> None:
        """Continue in this format.

        Raises:
            InputError: the file's name or the lines before the first request do not fit the format.
        """
        for suffix, reason in format_.refused_suffixes.items():
            if suffix in self.path.suffixes:
                raise InputError(reason, "unsupported", file=self.path)
        comment, blank = int(self.state.comment[0]), int(self.state.blank[0])
        faults = [(comment, _no_comments(format_))] if comment and not format_.comments else []
        faults += [(blank, _NO_BLANKS)] if blank and not format_.blank_lines else []
        if faults:
            line, problem = min(faults)
            raise InputError(problem, "form", file=self.path, line=line)
        self.format, self.grammar = format_, parser.grammar_of(format_)

    def _detect(self, line: bytes) -> None:
        """Continue in the format of a line, or in its probable format if it has a mistake."""
        fitting, resembling = _fitting(line), _resembling(line)
        if fitting:
            self._take(fitting[0])
        elif resembling:
            self.format, self.grammar = resembling[0], parser.grammar_of(resembling[0])
            self.state.blank[0] = 0  # the mistake of this line is to be reported
        else:
            if is_command_header(line.decode("ascii", "replace")):
                problem = "is a trace of commands, not of requests; ndpsim check judges it"
                raise InputError(problem, "form", file=self.path, line=int(self.state.line[0]) + 1)
            known = ", ".join(f"{format_.name} '{format_.example}'" for format_ in request_formats().values())
            problem = f"{_shown(line)} is in no known format of request traces (known: {known})"
            raise InputError(problem, "form", file=self.path, line=int(self.state.line[0]) + 1)

    def _error(self, line: bytes) -> InputError:
        kind, shown = int(self.state.fault[0]), _shown(line)
        what = _field_at(self.state, self.format)
        if kind == parser.LONG:
            problem = f"{shown} goes on for more than {LONGEST_LINE} bytes"
        elif kind == parser.BLANK:
            problem = _NO_BLANKS
        elif kind == parser.TOO_LARGE:
            largest = parser.LARGEST_COORDINATE if what in COORDINATES else parser.LARGEST
            problem = f"{shown}: the {what} is beyond {largest:#x}"
        elif kind == parser.BACKWARDS:
            before = int(self.state.cycle[0])
            problem = f"{shown}: cycle {self.cycle_read} is before the last request's, {before}"
        elif what not in ("", "operation", "data") and line[int(self.state.fault_at[0]) :].startswith(b"-"):
            problem = f"{shown}: the {what} is negative"
        else:
            problem = self._malformed(line)
        return InputError(problem, "form", file=self.path, line=int(self.state.fault_line[0]))

    def _malformed(self, line: bytes) -> str:
        assert self.format is not None
        if line.startswith(b"#"):
            return _no_comments(self.format)
        reason = _refusal(self.format, line)
        if reason:
            return f"{_shown(line)}: {reason}"
        others = [format_.name for format_ in _fitting(line)]
        mixed = f" (that is {others[0]}; a file has one format)" if others else ""
        return f"{_shown(line)} is not {self.format.expects}, as in '{self.format.example}'{mixed}"


def _line(data: NDArray[np.uint8], begin: int) -> bytes:
    """The line from index `begin` on, without its end, cut off if it is too long."""
    line = data[begin : begin + LONGEST_LINE].tobytes().partition(b"\n")[0]
    return line.removesuffix(b"\r")


def _shown(line: bytes) -> str:
    """The beginning of a line, quoted, with all special characters escaped."""
    text = line.strip(b" \t")[:_SHOWN].decode("latin-1").encode("unicode_escape").decode("ascii")
    return f"'{text}'"


def _no_comments(format_: RequestFormat) -> str:
    return f"is a comment; {format_.name} has no comment lines"


def _refusal(format_: RequestFormat, line: bytes) -> str | None:
    """The reason why a line of this format is not supported, if it resembles one."""
    text = line.decode("latin-1")
    return next((why for pattern, why in format_.refused.items() if re.search(pattern, text)), None)


def _tried(line: bytes, format_: RequestFormat) -> parser.State:
    """The state of the parser after a line in a format."""
    data, state = np.frombuffer(bytearray(line + b"\n"), dtype=np.uint8), parser.new_state()
    parser.parse(data, parser.grammar_of(format_), state, parser.room_for(1, format_))
    return state


def _field_at(state: parser.State, format_: RequestFormat | None) -> str:
    """The meaning of the field with the fault; empty after the last field."""
    number = int(state.fault_field[0])
    return format_.fields[number].what if format_ is not None and number < len(format_.fields) else ""


def _fitting(line: bytes) -> list[RequestFormat]:
    """The formats in which a line is valid."""
    return [format_ for format_ in request_formats().values() if _tried(line, format_).requests[0]]


def _resembling(line: bytes) -> list[RequestFormat]:
    """The formats in which a line would be valid without a mistake, the most likely first.

    The line has an operation of the format, or an unsupported part of it.
    """
    progress = {}
    for format_ in request_formats().values():
        reached = int(_tried(line, format_).fault_field[0])
        if reached > [field.what for field in format_.fields].index("operation") or _refusal(format_, line):
            progress[format_.name] = reached
    names = sorted(progress, key=lambda name: -progress[name])
    return [request_formats()[name] for name in names]
