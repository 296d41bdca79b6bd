"""Times and rows of the Trace Event Format, which Perfetto and chrome://tracing read."""

from __future__ import annotations

import math
from typing import Any


def span_of(start_ns: float, end_ns: float) -> dict[str, float]:
    """`ts` and `dur` in us of something from one time to another, both cut to whole ns.

    Readers count in whole ns, and drop what overlaps on a row. So cut, what follows something else still
    begins when that has ended.
    """
    start, end = math.floor(start_ns), math.floor(end_ns)
    return {"ts": _us(start), "dur": _us(end - start)}


def moment_of(time_ns: float) -> float:
    """`ts` in us of a time, cut as in `span_of`."""
    return _us(math.floor(time_ns))


def _us(ns: int) -> float:
    """The number of us that is `ns` again when it is multiplied by 1000 and cut."""
    us = ns / 1000
    return us if int(us * 1000) == ns else math.nextafter(us, math.inf)


class Rows:
    """The rows of a process, each with a name; what overlaps has rows of its own, of the same name."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[int, float]]] = {}  # numbers of rows, and their last ends
        self._count = 0

    def place(self, name: str, start_ns: float, end_ns: float) -> tuple[int, dict[str, Any] | None]:
        """The number of a row that is free then, and the event that names it where it is a new one.

        Spans of one name come in the order of their starts.
        """
        rows = self._rows.setdefault(name, [])
        for place, (number, until) in enumerate(rows):
            if start_ns >= until:
                rows[place] = number, end_ns
                return number, None
        number = self._count
        self._count += 1
        rows.append((number, end_ns))
        return number, {"ph": "M", "tid": number, "name": "thread_name", "args": {"name": name}}
