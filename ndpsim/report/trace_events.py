"""Times and rows of the Trace Event Format, which Perfetto and chrome://tracing read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import IO, Any

from ndpsim.base.files import replacing

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=lambda value: value.item()).encode


def span_of(start_ns: float, end_ns: float) -> dict[str, float]:
    """`ts` and `dur` in us of a span, whose ends are cut to whole ns.

    Readers count in whole ns, and drop spans that overlap on a row. Cut in this way, a span that follows
    another still begins at its end.
    """
    start, end = math.floor(start_ns), math.floor(end_ns)
    return {"ts": _us(start), "dur": _us(end - start)}


def moment_of(time_ns: float) -> float:
    """`ts` in us of a time, cut as by `span_of`."""
    return _us(math.floor(time_ns))


def _us(ns: int) -> float:
    """A number of us that multiplied by 1000 and cut gives `ns` again."""
    us = ns / 1000
    return us if int(us * 1000) == ns else math.nextafter(us, math.inf)


@contextmanager
def timeline_file(path: str | PathLike[str]) -> Iterator[TimelineWriter]:
    """A timeline in a file, which exists only if the block ends without an exception.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(path) as file:
        file.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        writer = TimelineWriter(file)
        yield writer
        writer.end()


class TimelineWriter:
    """Writes events: spans on named rows of a process, of which a name has several where spans overlap."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._process = -1
        self._held = b""

    def begin_process(self, name: str) -> None:
        """Begin a process of this name, to which all further events belong."""
        self._rows: dict[str, list[tuple[int, float]]] = {}  # numbers of rows, and their last ends
        self._count = 0
        self._process += 1
        self.event({"ph": "M", "tid": 0, "name": "process_name", "args": {"name": name}})

    def row(self, name: str, start_ns: float = -math.inf, end_ns: float = -math.inf) -> int:
        """The number of a row that is free at this time; without times, the row is added if it is new.

        Spans of a name must come in the order of their starts.
        """
        rows = self._rows.setdefault(name, [])
        for place, (number, until) in enumerate(rows):
            if start_ns >= until:
                rows[place] = number, end_ns
                return number
        number = self._count
        self._count += 1
        rows.append((number, end_ns))
        self.event({"ph": "M", "tid": number, "name": "thread_name", "args": {"name": name}})
        return number

    def span(self, row: str, name: str, start_ns: float, end_ns: float, arguments: dict[str, Any]) -> None:
        """Write a span on a row, or on another of the same name if the row is occupied."""
        number, times = self.row(row, start_ns, end_ns), span_of(start_ns, end_ns)
        self.event({"ph": "X", "tid": number, "name": name, **times, "args": arguments})

    def event(self, event: dict[str, Any]) -> None:
        """Write an event of the process."""
        # An event is written when the next one comes, since the last has no comma after it.
        if self._held:
            self._file.write(self._held + b",\n")
        self._held = _encode({"pid": self._process, **event}).encode()

    def end(self) -> None:
        """Write the last event."""
        self._file.write(self._held + b"\n]}\n")
