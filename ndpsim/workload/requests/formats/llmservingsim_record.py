"""Records of LLMServingSim: the CSV of its simulated runs, and the JSON lines of its runs of vLLM.

Source: casys-kaist/LLMServingSim at 5daddb2 (MIT), `serving/core/scheduler.py` and `bench/core`. In the CSV,
rows are in the order in which requests ended, times are in nanoseconds, and TTFT counts from the arrival. In
the JSON lines, `arrival_time` is on another clock than the engine's times: latencies count from `queued_ts`,
as its authors compute them.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import first_bytes, json_objects, numbered_lines, whole_of
from ndpsim.workload.requests.recorded import (
    LoadedRequest,
    RecordedRequests,
    Sink,
    WorkloadFormat,
    add_sorted,
    begins_with,
    is_time,
    whole,
)
from ndpsim.workload.requests.requests import Requests

_COLUMNS = [
    *("instance id", "request id", "model", "input", "output", "arrival", "end_time", "latency"),
    *("queuing_delay", "TTFT", "TPOT", "ITL"),
]
_KEYS = ("arrival_time", "queued_ts", "first_token_ts", "last_token_ts")
_is_csv = begins_with(*_COLUMNS)


def _simulated(path: Path) -> Iterator[LoadedRequest]:
    """The rows of the CSV; the last cell is a list in quotes, and is not read."""
    for line, text in numbered_lines(path):
        cells = [cell.strip() for cell in text.split(",", len(_COLUMNS) - 1)]
        if len(cells) < len(_COLUMNS):
            problem = f"has {len(cells)} columns, and the header {len(_COLUMNS)}"
            raise InputError(problem, "form", file=path, line=line)
        if cells == _COLUMNS:  # of the file, and of each part that was appended
            continue
        numbers = {
            name: whole(cells[_COLUMNS.index(name)], path, line, name)
            for name in ("input", "output", "arrival", "end_time", "TTFT")
        }
        arrival = numbers["arrival"]
        latencies = float(numbers["TTFT"]), float(numbers["end_time"] - arrival)
        yield LoadedRequest(arrival, numbers["input"], numbers["output"], line, cells[1], latencies)


def _measured(path: Path) -> Iterator[LoadedRequest]:
    """The objects of the JSON lines."""
    for line, record in json_objects(path):
        times: list[Any] = [record.get(key) for key in _KEYS]
        for key, time in zip(_KEYS, times, strict=True):
            if not is_time(time):
                problem = f"{shown(time)} is not a number of seconds"
                raise InputError(problem, "type", file=path, line=line, key=key)
        arrival, queued, first, last = times
        prompt, output = (whole_of(record, key, path, line) for key in ("input_toks", "output_toks"))
        name = str(record.get("request_id", line - 1))
        latencies = (first - queued) * 1e9, (last - queued) * 1e9
        yield LoadedRequest(Decimal(repr(arrival)).scaleb(9), prompt, output, line, name, latencies)


def _read(path: Path, most: int | None, sink: Sink | None = None) -> Requests:
    simulated = _is_csv(path, first_bytes(path))
    names = ("arrival", "input", "output") if simulated else ("arrival_time", "input_toks", "output_toks")
    rows = RecordedRequests(path, most, *names, sink)
    add_sorted(rows, list(_simulated(path) if simulated else _measured(path)))
    return rows.requests()


def _recognises(path: Path, head: bytes) -> bool:
    lines = head.lstrip().startswith(b"{") and b'"queued_ts"' in head and b'"first_token_ts"' in head
    return lines or _is_csv(path, head)


FORMAT = WorkloadFormat(
    example="0,5,meta-llama/Llama-3.1-8B,399,520,604829891,15211305070,14606475179,6468117,90063940,27969963,[]",
    meaning="CSV of a run of LLMServingSim, or JSON lines of its runs of vLLM",
    recognises=_recognises,
    read=_read,
)
