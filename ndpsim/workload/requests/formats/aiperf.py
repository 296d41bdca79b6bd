"""Records of AIPerf, ``profile_export.jsonl``: JSON lines with `metadata` and `metrics` of each request.

Source: ai-dynamo/aiperf, `docs/tutorials/working-with-profile-exports.md`. Lines are in the order in which
requests ended. Arrivals are `request_start_ns`. A request that was cancelled or has an error failed; requests
of other phases than profiling are a warm-up, and are left out as well. Metrics have units of their own, which
are checked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import json_objects, whole_of
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

_TIME, _PROMPT, _OUTPUT = "request_start_ns", "input_sequence_length", "output_sequence_length"
_TTFT, _LATENCY, _PHASE = "time_to_first_token", "request_latency", "benchmark_phase"
_NS_BY_UNIT = {"ns": 1.0, "us": 1e3, "ms": 1e6, "sec": 1e9, "s": 1e9}


def _value(metrics: dict[str, Any], key: str, path: Path, line: int) -> tuple[Any, Any]:
    """The value and the unit of a metric."""
    metric = metrics.get(key)
    if metric is None:
        raise InputError("is missing", "missing", file=path, line=line, key=key)
    if not isinstance(metric, dict) or "value" not in metric:
        raise InputError("is not an object with value and unit", "type", file=path, line=line, key=key)
    return metric["value"], metric.get("unit")


def _tokens(metrics: dict[str, Any], key: str, path: Path, line: int) -> int:
    value, _ = _value(metrics, key, path, line)
    if not is_time(value) or value != int(value):
        raise InputError(f"{shown(value)} is not a whole number", "type", file=path, line=line, key=key)
    return int(value)


def _ns(metrics: dict[str, Any], key: str, path: Path, line: int) -> float:
    """A time; NaN of none, as without streaming."""
    if key not in metrics:
        return float("nan")
    value, unit = _value(metrics, key, path, line)
    if unit not in _NS_BY_UNIT or not is_time(value):
        problem = f"{shown(value)} {shown(unit)} is not a time in {', '.join(_NS_BY_UNIT)}"
        raise InputError(problem, "type", file=path, line=line, key=key)
    return float(value) * _NS_BY_UNIT[unit]


def _read(path: Path, most: int | None, sink: Sink | None = None) -> Requests:
    rows = RecordedRequests(path, most, _TIME, _PROMPT, _OUTPUT, sink)
    loaded: list[LoadedRequest] = []
    for line, record in json_objects(path):
        metadata = object_in(record.get("metadata"), path, "metadata", line)
        if metadata.get(_PHASE, "profiling") != "profiling":
            continue
        if record.get("error") is not None or metadata.get("was_cancelled"):
            rows.failed += 1
            continue
        metrics = object_in(record.get("metrics"), path, "metrics", line)
        arrival_ns = whole_of(metadata, _TIME, path, line)
        prompt, output = (_tokens(metrics, key, path, line) for key in (_PROMPT, _OUTPUT))
        times = _ns(metrics, _TTFT, path, line), _ns(metrics, _LATENCY, path, line)
        loaded.append(LoadedRequest(arrival_ns, prompt, output, line, str(len(loaded)), times))
    add_sorted(rows, loaded)
    return rows.requests()


def _recognises(path: Path, head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and b'"metadata"' in head and b'"request_start_ns"' in head


FORMAT = WorkloadFormat(
    example='{"metadata": {"request_start_ns": 1759813207532900363, ...}, "metrics": {...}, "error": null}',
    meaning="JSON lines of AIPerf, profile_export.jsonl",
    recognises=_recognises,
    read=_read,
)
