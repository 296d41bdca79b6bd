"""Reports of GuideLLM, ``benchmarks.json``: a benchmark for each rate, with its requests.

Source: vllm-project/guidellm, `src/guidellm/schemas/request_stats.py`. Requests that were cut off or had
errors are left out. Arrivals are `request_start_time` in seconds; the strategies `synchronous` and
`concurrent` are closed loops, and `throughput` sends all at once, or in a closed loop of `max_concurrency`.

`request_latency` is in seconds, other times in milliseconds. `time_per_output_token_ms` has the time to the
first token in it and is not used: time between tokens is `inter_token_latency_ms`.
"""

from __future__ import annotations

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
    single_run,
)
from ndpsim.workload.requests.requests import Requests

_PROMPT, _OUTPUT = "prompt_tokens", "output_tokens"
_STARTS = ("request_start_time", "start_time")  # the second one of version 0.3 and before
_TTFT, _ITL, _LATENCY = "time_to_first_token_ms", "inter_token_latency_ms", "request_latency"
_NAN = float("nan")


def _list(value: Any, path: Path, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError("is not a list", "type", file=path, key=key)
    return value


def _number(request: dict[str, Any], key: str, path: Path, where: str) -> float | None:
    value = request.get(key)
    if value is not None and (not is_time(value) or value < 0):
        problem = f"{shown(value)} is not a number from 0"
        raise InputError(problem, "type", file=path, key=f"{where}.{key}")
    return value


def _tokens(request: dict[str, Any], key: str, path: Path, where: str) -> int:
    value = _number(request, key, path, where)
    if value is None or value != int(value):
        problem = f"{shown(value)} is not a whole number of tokens"
        raise InputError(problem, "type", file=path, key=f"{where}.{key}")
    return int(value)


def _latencies(request: dict[str, Any], output: int, path: Path, where: str) -> tuple[float, float]:
    """To the first and to the last token, in ns."""
    ttft, gap, latency = (_number(request, key, path, where) for key in (_TTFT, _ITL, _LATENCY))
    ttft_ns = _NAN if ttft is None else ttft * 1e6
    if output == 1:
        gap = 0.0
    if ttft is not None and gap is not None:
        return ttft_ns, ttft_ns + gap * (output - 1) * 1e6
    return ttft_ns, _NAN if latency is None else latency * 1e9


def _loaded(request: Any, name: str, path: Path, where: str) -> LoadedRequest:
    request = object_in(request, path, where)
    key = _STARTS[0] if _STARTS[0] in request else _STARTS[1]
    start = _number(request, key, path, where)
    if start is None:
        raise InputError("is missing", "missing", file=path, key=f"{where}.{key}")
    prompt, output = (_tokens(request, key, path, where) for key in (_PROMPT, _OUTPUT))
    latencies = _latencies(request, output, path, where)
    return LoadedRequest(Decimal(repr(start)).scaleb(9), prompt, output, None, name, latencies)


def _closed_loop(benchmark: dict[str, Any]) -> tuple[bool, int | None]:
    """Whether requests do not wait for an arrival, and the requests that are in the system at any time."""
    config = benchmark.get("config", benchmark.get("args"))
    strategy = config.get("strategy") if isinstance(config, dict) else None
    if not isinstance(strategy, dict):
        return False, None
    kind = strategy.get("type_")
    names = {"synchronous": None, "concurrent": "streams", "throughput": "max_concurrency"}
    if kind not in names:
        return False, None
    limit = 1 if kind == "synchronous" else strategy.get(names[kind])
    return True, limit if type(limit) is int and limit >= 1 else None


def _read(path: Path, most: int | None, sink: Sink | None = None, run: int | None = None) -> Requests:
    report = object_in(read_json(path), path, "report")
    benchmarks = _list(report.get("benchmarks"), path, "benchmarks")
    number, benchmark = single_run(list(enumerate(benchmarks)), run, path)
    where = f"benchmarks[{number}]"
    by_status = object_in(object_in(benchmark, path, where).get("requests"), path, f"{where}.requests")
    rows = RecordedRequests(path, most, _STARTS[0], _PROMPT, _OUTPUT, sink)
    rows.failed = sum(
        len(_list(by_status.get(status) or [], path, f"{where}.requests.{status}"))
        for status in ("incomplete", "errored")
    )
    key = f"{where}.requests.successful"
    successful = _list(by_status.get("successful"), path, key)
    loaded = [_loaded(each, str(n), path, f"{key}[{n}]") for n, each in enumerate(successful)]
    at_once, closed_loop = _closed_loop(benchmark)
    time_ns = _time_ns(loaded) if at_once else None
    if at_once:
        loaded = [each._replace(arrival_ns=0) for each in sorted(loaded, key=lambda each: each.arrival_ns)]
    add_sorted(rows, loaded)
    return rows.requests(closed_loop=closed_loop, time_ns=time_ns)


def _time_ns(loaded: list[LoadedRequest]) -> float | None:
    """From the first start to the last token."""
    if not loaded:
        return None
    first = min(each.arrival_ns for each in loaded)
    ends = [float(each.arrival_ns - first) + each.measured[1] for each in loaded]
    return max((end for end in ends if end == end), default=None)


FORMAT = WorkloadFormat(
    example='{"metadata": {...}, "benchmarks": [{"requests": {"successful": [{"prompt_tokens": 9, ...}]}}]}',
    meaning="JSON of GuideLLM, benchmarks.json",
    recognises=lambda path, head: (
        head.lstrip().startswith(b"{")
        and (b'"guidellm_version"' in head or (b'"benchmarks"' in head and b'"type_"' in head))
    ),
    read=_read,
    has_runs=True,
)
