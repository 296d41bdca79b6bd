"""Results of the load generators of vLLM and SGLang: JSON objects with an array for each quantity."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import json_values
from ndpsim.workload.requests.recorded import (
    LoadedRequest,
    RecordedRequests,
    Sink,
    add_sorted,
    is_time,
    single_run,
)
from ndpsim.workload.requests.requests import Requests

_TIME, _PROMPT, _OUTPUT, _ERRORS = "start_times", "input_lens", "output_lens", "errors"
_QUEUE, _TTFT, _ITL = "queue_times", "ttfts", "itls"
_LIMIT, _RATE, _TOTAL, _DURATION = "max_concurrency", "request_rate", "total_output_tokens", "duration"
_NAN = float("nan")


@dataclass(frozen=True)
class BenchProgram:
    """A program whose results are read.

    Attributes:
        without_lengths, without_arrivals: what to do if these are missing.
        foreign: a key that only results of the other program have.
        other: the other program, and the name of its format.
        fails_empty: whether a request without output tokens failed even if it has no error.
    """

    without_lengths: str
    without_arrivals: str
    foreign: str
    other: str
    fails_empty: bool


@dataclass(frozen=True)
class _Result:
    """One result of a file, and the line where it begins."""

    record: dict[str, Any]
    path: Path
    line: int
    program: BenchProgram

    def error(self, problem: str, code: Any, key: str) -> InputError:
        return InputError(problem, code, file=self.path, line=self.line, key=key)

    def array(self, key: str, fits: Callable[[Any], bool], size: int | None = None) -> list[Any] | None:
        """The array of a quantity for each request, if any."""
        array = self.record.get(key)
        if array is None:
            return None
        if not isinstance(array, list):
            raise self.error("is not a list", "type", key)
        for index, value in enumerate(array):
            if not fits(value):
                raise self.error(f"{shown(value)} is not allowed here", "type", f"{key}[{index}]")
        if size is not None and len(array) != size:
            raise self.error(f"has {len(array)} requests, and {_PROMPT} has {size}", "conflict", key)
        return array

    def lengths(self, key: str, size: int | None = None) -> list[int]:
        array = self.array(key, lambda value: type(value) is int and value >= 0, size)
        if array is None:
            raise self.error(f"is missing; {self.program.without_lengths}", "missing", key)
        return array

    @property
    def at_once(self) -> bool:
        """Whether requests are sent without limit of their rate."""
        return self.record.get(_RATE) in ("inf", math.inf)

    def closed_loop(self) -> int | None:
        limit = self.record.get(_LIMIT)
        if limit is None:
            return None
        if type(limit) is not int or limit < 1:
            raise self.error(f"{shown(limit)} is not a whole number from 1", "type", _LIMIT)
        if not self.at_once and self.record.get(_QUEUE) is not None:
            return None  # arrivals are known
        if not self.at_once:
            rate = shown(self.record.get(_RATE))
            problem = f"delays arrivals of {_RATE} {rate}; use one of them"
            raise self.error(problem, "unsupported", _LIMIT)
        return limit

    def arrivals(self, closed_loop: int | None, size: int) -> tuple[list[Decimal], list[float]]:
        """Arrivals in seconds, and the waits in the load generator after them."""
        if closed_loop is not None:
            return [Decimal(0)] * size, [0.0] * size
        times = self.array(_TIME, is_time, size)
        if times is None and self.at_once:
            times = [0] * size
        if times is None:
            raise self.error(f"is missing; {self.program.without_arrivals}", "missing", _TIME)
        waits = self.array(_QUEUE, lambda value: is_time(value) and value >= 0, size) or [0] * size
        pairs = zip(times, waits, strict=True)
        return [Decimal(repr(time)) - Decimal(repr(wait)) for time, wait in pairs], waits

    def latencies(self, waits: list[float]) -> list[tuple[float, float]]:
        """`ttft_ns` and `latency_ns` of each request."""
        size = len(waits)
        firsts = self.array(_TTFT, is_time, size)
        gaps = self.array(_ITL, lambda value: isinstance(value, list) and all(map(is_time, value)), size)
        found = []
        for index, wait in enumerate(waits):
            ttft_ns = _NAN if firsts is None else (firsts[index] + wait) * 1e9
            rest = _NAN if gaps is None else math.fsum(gaps[index]) * 1e9
            found.append((ttft_ns, ttft_ns + rest))
        return found


def read_bench(
    path: Path, most: int | None, sink: Sink | None, run: int | None, program: BenchProgram
) -> Requests:
    """The requests of one run.

    Raises:
        InputError: the file cannot be read, or has impossible content.
    """
    line, record = single_run(json_values(path), run, path)
    if not isinstance(record, dict):
        raise InputError("is not a JSON object", "form", file=path, line=line)
    result = _Result(record, path, line, program)
    if program.foreign in record:
        raise result.error(f"is of a result of {program.other}", "conflict", program.foreign)
    prompts = result.lengths(_PROMPT)
    outputs = result.lengths(_OUTPUT, len(prompts))
    errors = result.array(_ERRORS, lambda value: isinstance(value, str), len(prompts))
    errors = [""] * len(prompts) if errors is None else errors
    closed_loop = result.closed_loop()
    arrivals, waits = result.arrivals(closed_loop, len(prompts))
    total = record.get(_TOTAL)
    if total is not None and total != sum(outputs):
        problem = f"{shown(total)} is not the sum of {_OUTPUT}, {sum(outputs)}"
        raise result.error(problem, "conflict", _TOTAL)
    failed = [
        bool(error) or (program.fails_empty and not output)
        for error, output in zip(errors, outputs, strict=True)
    ]
    latencies = result.latencies(waits)
    rows = RecordedRequests(path, most, _TIME, _PROMPT, _OUTPUT, sink)
    rows.failed = sum(failed)
    loaded = [
        LoadedRequest(arrivals[n].scaleb(9), prompts[n], outputs[n], line, str(n), latencies[n])
        for n in range(len(prompts))
        if not failed[n]
    ]
    add_sorted(rows, loaded)
    duration: Any = record.get(_DURATION)
    time_ns = duration * 1e9 if closed_loop is not None and is_time(duration) else None
    return rows.requests(closed_loop=closed_loop, time_ns=time_ns)
