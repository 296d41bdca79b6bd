"""Results of ``vllm bench serve --save-result --save-detailed``, JSON with an array for each quantity.

Source: vLLM, `vllm/benchmarks/serve.py`. A request with an error failed, and is omitted. Arrivals are
`start_times`, which newer versions write, less `queue_times`: with a limit of concurrency, a request waits in
the load generator before it starts. With `request_rate` "inf", requests arrive at once, or with
`max_concurrency` in a closed loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import json_with, read_json
from ndpsim.workload.requests.recorded import RecordedRequests, Sink, WorkloadFormat
from ndpsim.workload.requests.requests import Requests

_TIME, _PROMPT, _OUTPUT, _ERRORS = "start_times", "input_lens", "output_lens", "errors"
_QUEUE = "queue_times"
_LIMIT, _RATE, _TOTAL = "max_concurrency", "request_rate", "total_output_tokens"


def _is_tokens(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _array(record: dict[str, Any], key: str, fits: Callable[[Any], bool], path: Path) -> list[Any] | None:
    """The array of a quantity for each request, if any."""
    array = record.get(key)
    if array is None:
        return None
    if not isinstance(array, list):
        raise InputError("is not a list", "type", file=path, key=key)
    for index, value in enumerate(array):
        if not fits(value):
            problem = f"{shown(value)} is not allowed here"
            raise InputError(problem, "type", file=path, key=f"{key}[{index}]")
    return array


def _needed(record: dict[str, Any], key: str, path: Path) -> list[int]:
    array = _array(record, key, _is_tokens, path)
    if array is None:
        raise InputError("is missing; record with --save-detailed", "missing", file=path, key=key)
    return array


def _closed_loop(record: dict[str, Any], path: Path) -> int | None:
    limit = record.get(_LIMIT)
    if limit is None:
        return None
    if type(limit) is not int or limit < 1:
        problem = f"{shown(limit)} is not a whole number from 1"
        raise InputError(problem, "type", file=path, key=_LIMIT)
    if record.get(_RATE) != "inf" and record.get(_QUEUE) is not None:
        return None  # arrivals are known
    if record.get(_RATE) != "inf":
        problem = f"delays arrivals of {_RATE} {shown(record.get(_RATE))}; use one of them"
        raise InputError(problem, "unsupported", file=path, key=_LIMIT)
    return limit


def _read(path: Path, most: int | None, sink: Sink | None = None) -> Requests:
    record = read_json(path)
    if not isinstance(record, dict):
        raise InputError("is not a JSON object", "form", file=path)
    prompts, outputs = _needed(record, _PROMPT, path), _needed(record, _OUTPUT, path)
    errors = _array(record, _ERRORS, lambda value: isinstance(value, str), path) or [""] * len(prompts)
    closed_loop = _closed_loop(record, path)
    times = _array(record, _TIME, _is_time, path) if closed_loop is None else [0] * len(prompts)
    if times is None and record.get(_RATE) == "inf":
        times = [0] * len(prompts)
    if times is None:
        problem = "is missing, so arrivals are not known; newer versions of vLLM write it"
        raise InputError(problem, "missing", file=path, key=_TIME)
    queue = (
        None if closed_loop else _array(record, _QUEUE, lambda value: _is_time(value) and value >= 0, path)
    )
    waits = [0] * len(prompts) if queue is None else queue
    for key, array in ((_OUTPUT, outputs), (_ERRORS, errors), (_TIME, times), (_QUEUE, waits)):
        if len(array) != len(prompts):
            problem = f"has {len(array)} requests, and {_PROMPT} has {len(prompts)}"
            raise InputError(problem, "conflict", file=path, key=key)
    total = record.get(_TOTAL)
    if total is not None and total != sum(outputs):
        problem = f"{shown(total)} is not the sum of {_OUTPUT}, {sum(outputs)}"
        raise InputError(problem, "conflict", file=path, key=_TOTAL)
    rows = RecordedRequests(path, most, _TIME, _PROMPT, _OUTPUT, sink)
    arrivals = [Decimal(repr(time)) - Decimal(repr(wait)) for time, wait in zip(times, waits, strict=True)]
    for index in sorted(range(len(prompts)), key=arrivals.__getitem__):
        if errors[index]:
            rows.failed += 1
        elif not rows.full:
            rows.add(arrivals[index].scaleb(9), prompts[index], outputs[index], name=str(index))
    return rows.requests(closed_loop=closed_loop)


FORMAT = WorkloadFormat(
    example='{"request_rate": 2.0, "input_lens": [279], "output_lens": [12], "start_times": [1000.0], ...}',
    meaning="JSON of vllm bench serve, recorded with --save-detailed",
    recognises=json_with("input_lens", "request_rate", "max_concurrency"),
    read=_read,
)
