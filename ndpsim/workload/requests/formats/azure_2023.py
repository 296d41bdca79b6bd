"""Azure's LLM inference trace of November 2023, of code completion and of conversations.

Source: Azure/AzurePublicDataset, `AzureLLMInferenceTrace_code.csv` and `_conv.csv` (CC-BY 4.0), described in
"Splitwise" (ISCA 2024). Timestamps have seven decimals and no time zone; lines end in CR LF.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Callable
from pathlib import Path

from ndpsim.base.errors import InputError, shown
from ndpsim.workload.requests.recorded import (
    RecordedRequests,
    Sink,
    WorkloadFormat,
    begins_with,
    cells_of,
    whole,
)
from ndpsim.workload.requests.requests import Requests

_TIME, _PROMPT, _OUTPUT = HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

_has_header = begins_with(*HEADER)


def recognised_by(timestamp: re.Pattern[str]) -> Callable[[Path, bytes], bool]:
    """Whether a file has Azure's header, and a first row with a matching timestamp."""

    def recognises(path: Path, head: bytes) -> bool:
        if not _has_header(path, head):
            return False
        row = head.decode("utf-8-sig", "replace").lstrip().partition("\n")[2].lstrip()
        return timestamp.fullmatch(row.partition(",")[0].strip()) is not None

    return recognises


def read_azure(
    path: Path, most: int | None, sink: Sink | None, timestamp: re.Pattern[str], form: str
) -> Requests:
    """Requests of a file whose timestamps match; `form` is an example for messages.

    The groups of `timestamp` are a date, hours, minutes, seconds, and decimals of a second or None.

    Raises:
        InputError: the file cannot be read, or a row is invalid.
    """
    rows = RecordedRequests(path, most, _TIME, _PROMPT, _OUTPUT, sink)
    for line, cells in cells_of(path, HEADER):
        if rows.full:
            break
        match = timestamp.fullmatch(cells[0])
        time_ns = None if match is None else _time_ns(match)
        if time_ns is None:
            problem = f"{shown(cells[0])} is not a time like {form}"
            raise InputError(problem, "type", file=path, line=line, key=_TIME)
        prompt, output = (whole(cells[index], path, line, key) for index, key in ((1, _PROMPT), (2, _OUTPUT)))
        rows.add(time_ns, prompt, output, line)
    return rows.requests()


def _time_ns(match: re.Match[str]) -> int | None:
    """Nanoseconds since the beginning of the calendar; None for an impossible time."""
    date, hours, minutes, whole_seconds, decimals = match.groups()
    day = _day(date)
    hour, minute, second = int(hours), int(minutes), int(whole_seconds)
    if day is None or hour > 23 or minute > 59 or second > 59:
        return None
    return (((day * 24 + hour) * 60 + minute) * 60 + second) * 10**9 + int((decimals or "0").ljust(9, "0"))


@functools.lru_cache(maxsize=16)
def _day(date: str) -> int | None:
    try:
        return datetime.date.fromisoformat(date).toordinal()
    except ValueError:
        return None


_EXAMPLE = "2023-11-16 18:17:03.9799600"
_TIMESTAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})\.([0-9]{7})")

FORMAT = WorkloadFormat(
    example=f"{_EXAMPLE},4808,10",
    meaning="CSV of Azure's LLM inference trace 2023, columns TIMESTAMP,ContextTokens,GeneratedTokens",
    recognises=recognised_by(_TIMESTAMP),
    read=lambda path, most, sink: read_azure(path, most, sink, _TIMESTAMP, _EXAMPLE),
)
