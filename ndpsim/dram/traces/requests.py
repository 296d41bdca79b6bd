"""Request traces: requests of a processor to memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ndpsim.base.arguments import choice, path_of
from ndpsim.base.errors import InputError
from ndpsim.base.files import open_plain_or_gzip
from ndpsim.base.limits import ensure_fits
from ndpsim.dram.traces import parser
from ndpsim.dram.traces.chunks import LONGEST_LINE, whole_lines
from ndpsim.dram.traces.columns import Columns, whole_numbers
from ndpsim.dram.traces.commands import is_command_header
from ndpsim.dram.traces.registry import request_formats
from ndpsim.dram.traces.request_format import COORDINATES, RequestFormat

#: Bytes of memory for a request, from its file until it is served, measured and rounded up.
BYTES_OF_A_REQUEST = 128

_BYTES_SKIPPED = 64  # bytes of memory for a line without a request, of which most files have few
_CHUNK = 4 << 20  # bytes read and parsed at a time
_SHOWN = 40  # shown characters of a bad line
_NO_BLANKS = "is blank; in this format blank lines stand at the end only"


@dataclass(frozen=True, eq=False, repr=False)
class Requests(Columns):
    """Requests in their order; every array has an element, or a row, for each of them.

    Attributes:
        address: byte addresses, int64[n]; None if `place` locates the requests.
        write: 1 where a request writes, int8[n].
        cycle: the earliest clock of each request, int64[n], never decreasing; None: there is no limit.
        place: channel, rank, bankgroup, bank, row, column, int32[n, 6]; a column is a burst of the row.
        file: the file that they were read from.
        format: the name of its format.
        skipped: for each line of the file without a request, the number of requests before it; None: there
            are no such lines.

    Equality compares the requests, not their files; they have no hash.

    Raises:
        InputError: an array has another type or length, there are no requests, or they have neither addresses
            nor places.
    """

    address: NDArray[np.int64] | None
    write: NDArray[np.int8]
    file: str | None = None
    cycle: NDArray[np.int64] | None = None
    place: NDArray[np.int32] | None = None
    format: str | None = None
    skipped: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        forms: dict[str, tuple[Any, str, int]] = {
            "address": (np.int64, "iu", 1),
            "write": (np.int8, "iub", 1),
            "cycle": (np.int64, "iu", 1),
            "place": (np.int32, "iu", 2),
            "skipped": (np.int64, "iu", 1),
        }
        for name, form in forms.items():
            if name == "write" or getattr(self, name) is not None:
                object.__setattr__(self, name, whole_numbers(getattr(self, name), name, *form))
        if (self.address is None) == (self.place is None):
            raise InputError("requests have either addresses or places", "conflict", key="address")
        if not len(self):
            problem = "there are no requests"
            raise InputError(problem, "missing", file=self.file, key=None if self.file else "requests")
        if self.write.min() < 0 or self.write.max() > 1:
            raise InputError("a write is neither 0 nor 1", "range", key="write")
        for name in ("address", "cycle", "place"):
            self._check(name, getattr(self, name))

    def _check(self, name: str, values: NDArray[Any] | None) -> None:
        """Raise InputError if a column does not fit the requests."""
        if values is None:
            return
        if len(values) != len(self):
            raise InputError(f"there are {len(values)} for {len(self)} requests", "conflict", key=name)
        if name == "place" and values.shape[1] != len(COORDINATES):
            raise InputError(f"{values.shape[1]} coordinates, not {len(COORDINATES)}", "form", key=name)
        if name != "place" and values.min() < 0:  # the memory checks whether it has the places
            raise InputError(f"{values.min()} is negative", "range", key=name)
        if name == "cycle" and (values[1:] < values[:-1]).any():
            raise InputError("cycles decrease", "invalid", key=name)

    def __len__(self) -> int:
        return len(self.write)

    @classmethod
    def of(cls, address: ArrayLike, write: ArrayLike, file: str | None = None) -> Self:
        """Requests at byte addresses.

        Args:
            address: whole numbers from 0, one for each request.
            write: 1 or True for each write.
            file: their file, for messages.

        Raises:
            InputError: the arrays are empty, have different lengths, or have values other than whole numbers
                from 0.
        """
        return cls(
            whole_numbers(address, "address"),
            whole_numbers(write, "write", np.int8, "iub"),
            None if file is None else str(path_of(file, "file")),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The columns by name: `address` in bytes, or the coordinates; `write` as bools; `cycle` if timed."""
        columns: dict[str, NDArray[Any]] = {}
        if self.address is not None:
            columns["address"] = self.address
        if self.place is not None:
            columns |= dict(zip(COORDINATES, self.place.T, strict=True))
        columns["write"] = self.write == 1
        return columns if self.cycle is None else columns | {"cycle": self.cycle}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Requests):
            return NotImplemented
        ours, theirs = self.to_arrays(), other.to_arrays()
        return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)

    def _title(self) -> str:
        return f"Requests: {len(self)}"

    def _rows(self) -> Iterable[tuple[str, str]]:
        writes = int(np.count_nonzero(self.write))
        rows = {"reads": str(len(self) - writes), "writes": str(writes)}
        rows |= {
            name: f"{values.min()} to {values.max()}"
            for name, values in self.to_arrays().items()
            if name != "write"
        }
        if self.file is not None:
            rows["file"] = self.file
        return rows.items()

    def line(self, request: int) -> int | None:
        """The line number of a request in its file, from 1."""
        if self.file is None:
            return None
        if self.skipped is None:
            return request + 1
        return request + 1 + int(np.searchsorted(self.skipped, request, side="right"))


def read_requests(path: str | os.PathLike[str], format: str | None = None) -> Requests:
    """Read a request trace, gzip-compressed or not, in `format` or in its detected format.

    The format is detected from the first line that is neither blank nor a comment. Line ends are LF or CR LF;
    a UTF-8 byte order mark and blank lines at the end are skipped; fields may have any spaces and tabs
    between them.

    Raises:
        InputError: `format` is unknown; the file cannot be read, is damaged, or holds no request; or a line
            is bad (the first is named); or there are more requests than fit in the allowed memory
            (`limits.memory_limit`).
    """
    if format is not None:
        choice(format, "format", request_formats(), "request trace format")
    path = path_of(path, "path")
    reader = _Reader(path, None if format is None else request_formats()[format])
    with open_plain_or_gzip(path) as stream:
        for data in whole_lines(stream, path, _CHUNK):
            reader.feed(data)
            reader.ensure_fits()
    return reader.requests()


class _Reader:
    """Collects requests from the pieces of a file."""

    def __init__(self, path: Path, format_: RequestFormat | None) -> None:
        self.path = path
        self.state = parser.new_state()
        self.parts: dict[str, list[NDArray[Any]]] = {name: [] for name in parser.RequestArrays._fields}
        self.format: RequestFormat | None = None
        self.grammar = parser.no_format()
        self.cycle_read = 0  # number of the line after the last request
        if format_ is not None:
            self._take(format_)

    def feed(self, data: NDArray[np.uint8]) -> None:
        """Read the lines of a piece, which ends with a line end.

        Raises:
            InputError: a line is bad.
        """
        lines = int(np.count_nonzero(data == ord("\n")))
        self._parse(data, 0, lines)
        if self.state.fault[0] == parser.MALFORMED and self.format is None:
            begin = int(self.state.fault_start[0])
            self.state.line[0] -= 1
            self._detect(_line(data, begin))
            self.state.fault[0] = parser.NO_FAULT
            self._parse(data, begin, lines)
        if self.state.fault[0] != parser.NO_FAULT:
            raise self._error(_line(data, int(self.state.fault_start[0])))

    def ensure_fits(self) -> None:
        """Check that memory suffices to run the requests so far.

        Raises:
            InputError: it does not, for a file that may have more requests.
        """
        requests, lines = int(self.state.requests[0]), int(self.state.line[0])
        needed = requests * BYTES_OF_A_REQUEST + (lines - requests) * _BYTES_SKIPPED
        ensure_fits(needed, f"{requests} requests or more in {lines} lines", file=self.path)

    def _parse(self, data: NDArray[np.uint8], start: int, lines: int) -> None:
        rows = parser.room_for(lines, self.format)
        count = parser.parse(data, start, self.grammar, self.state, rows)
        self.cycle_read = int(rows.cycle[count]) if count < len(rows.cycle) else 0
        counts = [count] * (len(rows) - 1) + [int(self.state.skipped[0])]
        columns: Iterable[NDArray[Any]] = rows
        for part, values, used in zip(self.parts.values(), columns, counts, strict=True):
            # A copy frees the room if little of it is used.
            part.append(values[:used] if 2 * used > len(values) else values[:used].copy())

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

    def requests(self) -> Requests:
        """All requests that were read.

        Raises:
            InputError: there are none.
        """
        if self.format is None or not self.state.requests[0]:
            problem = "has no requests" if self.state.line[0] else "is empty; a request trace is expected"
            raise InputError(problem, "form", file=self.path)
        columns = {name: _joined(parts) for name, parts in self.parts.items()}
        return Requests(
            address=None if self.format.by_place else columns["address"],
            write=columns["write"],
            file=str(self.path),
            cycle=columns["cycle"] if self.format.timed else None,
            place=columns["place"] if self.format.by_place else None,
            format=self.format.name,
            skipped=columns["skipped"],
        )


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The parts as one array; they are freed, so that only one column at a time is held twice."""
    full = [part for part in parts if len(part)] or parts[:1]
    parts.clear()
    return full[0] if len(full) == 1 else np.concatenate(full)


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
    """The length of the beginning of a line that is valid in a format."""
    data, state = np.frombuffer(bytearray(line + b"\n"), dtype=np.uint8), parser.new_state()
    parser.parse(data, 0, parser.grammar_of(format_), state, parser.room_for(1, format_))
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
