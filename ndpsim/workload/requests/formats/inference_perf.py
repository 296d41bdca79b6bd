"""Records of inference-perf, ``per_request_lifecycle_metrics.json``: a JSON list of requests.

Source: kubernetes-sigs/inference-perf, `inference_perf/reportgen/base.py` and `inference_perf/apis/base.py`.
Requests are in the order in which they ended. Arrivals are `start_time` in seconds. Lengths are those that
inference-perf counts (`request_metrics.text.input_tokens` and `response_metrics.output_tokens`, in older
versions `input_tokens` and `output_tokens`). `output_token_times` has a time for each chunk of a stream.
Since version 0.7 `info` may be left out and `computed_metrics` be there, which have the lengths, too.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import read_json
from ndpsim.workload.requests.recorded import (
    LoadedRequest,
    RecordedRequests,
    Sink,
    WorkloadFormat,
    add_sorted,
    is_time,
    object_in,
)
from ndpsim.workload.requests.requests import Requests

_START, _END, _TIMES = "start_time", "end_time", "output_token_times"
_PROMPT, _OUTPUT = "input_tokens", "output_tokens"
_BEGIN = re.compile(rb'\s*\[\s*\{\s*"start_time"\s*:')
_NAN = float("nan")


def _number(record: dict[str, Any], key: str, path: Path, where: str) -> float:
    value = record.get(key)
    if not is_time(value):
        problem = f"{shown(value)} is not a number" if key in record else "is missing"
        raise InputError(problem, "type" if key in record else "missing", file=path, key=f"{where}.{key}")
    return float(value)  # type: ignore[arg-type]  # a number, by `is_time`


def _tokens(records: list[Any], key: str, path: Path, where: str) -> int:
    """The number of tokens of the first record that has it."""
    for record in records:
        if isinstance(record, dict) and type(record.get(key)) is int:
            return int(record[key])
    raise InputError("is missing, or not a whole number", "missing", file=path, key=f"{where}.{key}")


def _latencies(
    record: dict[str, Any], streamed: dict[str, Any], start: float, path: Path, where: str
) -> tuple[float, float]:
    times = streamed.get(_TIMES) or []
    if not isinstance(times, list) or not all(map(is_time, times)):
        raise InputError("is not a list of numbers", "type", file=path, key=f"{where}.{_TIMES}")
    if times:
        return (times[0] - start) * 1e9, (times[-1] - start) * 1e9
    return _NAN, (_number(record, _END, path, where) - start) * 1e9


def _loaded(record: dict[str, Any], number: int, path: Path) -> LoadedRequest:
    where, computed = f"[{number}]", record.get("computed_metrics")
    if isinstance(computed, dict) and record.get("info") is None:
        return _of_computed(record, computed, number, path)
    info = object_in(record.get("info"), path, f"{where}.info")
    request, response = info.get("request_metrics"), info.get("response_metrics")
    text = request.get("text") if isinstance(request, dict) else None
    start = _number(record, _START, path, where)
    streamed = response if isinstance(response, dict) else info
    return LoadedRequest(
        Decimal(repr(start)).scaleb(9),
        _tokens([text, info], _PROMPT, path, where),
        _tokens([response, info], _OUTPUT, path, where),
        None,
        str(number),
        _latencies(record, streamed, start, path, where),
    )


def _of_computed(record: dict[str, Any], computed: dict[str, Any], number: int, path: Path) -> LoadedRequest:
    """A request without `info`."""
    where = f"[{number}].computed_metrics"
    start = _number(record, _START, path, f"[{number}]")
    seconds = [
        _NAN if computed.get(key) is None else _number(computed, key, path, where)
        for key in ("time_to_first_token", "request_latency")
    ]
    return LoadedRequest(
        Decimal(repr(start)).scaleb(9),
        _tokens([computed], _PROMPT, path, where),
        _tokens([computed], _OUTPUT, path, where),
        None,
        str(number),
        (seconds[0] * 1e9, seconds[1] * 1e9),
    )


def _read(path: Path, most: int | None, sink: Sink | None = None) -> Requests:
    records = read_json(path)
    if not isinstance(records, list):
        raise InputError("is not a JSON list", "form", file=path)
    rows = RecordedRequests(path, most, _START, _PROMPT, _OUTPUT, sink)
    loaded: list[LoadedRequest] = []
    for number, record in enumerate(records):
        record = object_in(record, path, f"[{number}]")
        if record.get("error") is not None:
            rows.failed += 1
        else:
            loaded.append(_loaded(record, number, path))
    add_sorted(rows, loaded)
    return rows.requests()


FORMAT = WorkloadFormat(
    example='[{"start_time": 10.5, "end_time": 11.2, "request": "...", "info": {...}, "error": null}]',
    meaning="JSON of inference-perf, per_request_lifecycle_metrics.json",
    recognises=lambda path, head: _BEGIN.match(head) is not None,
    read=_read,
)
