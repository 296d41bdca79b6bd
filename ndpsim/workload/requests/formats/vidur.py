"""Vidur's traces of requests: CSV with times in seconds.

Source: microsoft/vidur at 7d47513, `data/processed_traces`
(`arrived_at,num_prefill_tokens,num_decode_tokens`), and its replay of a trace, which reads
`Time,PromptTokenCount,CompletionTokenCount,Date` and takes the requests of one date. Such a file with several
dates is refused. Numbers of tokens may have a fraction of 0.
"""

from __future__ import annotations

import re
from pathlib import Path

from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import first_bytes
from ndpsim.workload.requests.recorded import (
    RecordedRequests,
    Sink,
    WorkloadFormat,
    begins_with,
    cells_of,
    seconds,
    whole,
)
from ndpsim.workload.requests.requests import Requests

_PROCESSED = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")
_REPLAYED = ("Time", "PromptTokenCount", "CompletionTokenCount", "Date")
_is_processed, _is_replayed = begins_with(*_PROCESSED), begins_with(*_REPLAYED)
_ZERO_FRACTION = re.compile(r"\.0*$")


def _read(path: Path, most: int | None, sink: Sink | None = None) -> Requests:
    header = _REPLAYED if _is_replayed(path, first_bytes(path)) else _PROCESSED
    rows = RecordedRequests(path, most, *header[:3], sink)
    date: str | None = None
    for line, cells in cells_of(path, header):
        if rows.full:
            break
        own_date = cells[3] if len(cells) > 3 else None
        if date not in (None, own_date):
            problem = f"{shown(own_date)} is another date than that of the first request; keep one"
            raise InputError(problem, "conflict", file=path, line=line, key=_REPLAYED[3])
        date = own_date
        prompt, output = (
            whole(_ZERO_FRACTION.sub("", cells[index]), path, line, header[index]) for index in (1, 2)
        )
        rows.add(seconds(cells[0], path, line, header[0]), prompt, output, line)
    return rows.requests()


FORMAT = WorkloadFormat(
    example="4.314579,396,109",
    meaning=f"CSV of Vidur, {','.join(_PROCESSED)} or {','.join(_REPLAYED)}",
    recognises=lambda path, head: _is_processed(path, head) or _is_replayed(path, head),
    read=_read,
)
