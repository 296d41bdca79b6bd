"""BurstGPT's traces of ChatGPT and GPT-4, files 1 and 2, and file 3 with sessions.

Source: HPMLL/BurstGPT (CC-BY 4.0). Timestamps are seconds from midnight of the first day. A request without
response tokens failed, and is omitted. Sessions and elapsed times, which belong to the recorded system, are
ignored.
"""

from __future__ import annotations

from pathlib import Path

from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import numbered_lines
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

_FIRST = ("Timestamp",)
_SESSIONS = ("Session ID", "Elapsed time")
_REST = _MODEL, _PROMPT, _OUTPUT, _TOTAL, _LOG = (
    "Model",
    "Request tokens",
    "Response tokens",
    "Total tokens",
    "Log Type",
)
_PLAIN, _WITH_SESSIONS = _FIRST + _REST, _FIRST + _SESSIONS + _REST
_KNOWN = {_MODEL: ("ChatGPT", "GPT-4"), _LOG: ("Conversation log", "API log")}


def _read(path: Path, most: int | None, sink: Sink | None = None) -> Requests:
    rows = RecordedRequests(path, most, _FIRST[0], _PROMPT, _OUTPUT, sink)
    first = next((text for _, text in numbered_lines(path)), "")
    header = _WITH_SESSIONS if _SESSIONS[0] in first else _PLAIN
    for line, cells in cells_of(path, header):
        if rows.full:
            break
        row = dict(zip(header, cells, strict=True))
        for key, known in _KNOWN.items():
            if row[key] not in known:
                problem = f"{shown(row[key])} is neither {known[0]} nor {known[1]}"
                raise InputError(problem, "unknown-name", file=path, line=line, key=key)
        prompt, output, total = (whole(row[key], path, line, key) for key in (_PROMPT, _OUTPUT, _TOTAL))
        if prompt + output != total:
            problem = f"{total} is not the sum of {prompt} and {output}"
            raise InputError(problem, "conflict", file=path, line=line, key=_TOTAL)
        if _SESSIONS[1] in row:
            seconds(row[_SESSIONS[1]], path, line, _SESSIONS[1])
        arrival_ns = seconds(row[_FIRST[0]], path, line, _FIRST[0])
        if output:
            rows.add(arrival_ns, prompt, output, line)
        else:
            rows.failed += 1
    return rows.requests()


_is_plain, _has_sessions = begins_with(*_PLAIN), begins_with(*_WITH_SESSIONS)

FORMAT = WorkloadFormat(
    example="5,ChatGPT,472,18,490,Conversation log",
    meaning="CSV of BurstGPT, with sessions or without",
    recognises=lambda path, head: _is_plain(path, head) or _has_sessions(path, head),
    read=_read,
)
