"""Results of ``python -m sglang.bench_serving --output-details``, a JSON line for each run.

Source: SGLang 0.5.23, `sglang/benchmark/serving.py`. A request with an error or without output tokens failed,
and is omitted. SGLang records no arrivals: only runs with `request_rate` inf are read, in which requests
arrive at once, or with `max_concurrency` in a closed loop. Latencies are `ttfts` and `itls`.
"""

from __future__ import annotations

from pathlib import Path

from ndpsim.base.text_files import json_with
from ndpsim.workload.requests.bench import BenchProgram, read_bench
from ndpsim.workload.requests.recorded import Sink, WorkloadFormat
from ndpsim.workload.requests.requests import Requests

_PROGRAM = BenchProgram(
    without_lengths="record with --output-details",
    without_arrivals="SGLang records no arrivals; with --request-rate inf requests arrive at once, or with "
    "--max-concurrency in a closed loop",
    foreign="endpoint_type",
    other="vllm bench serve; its format is vllm-bench",
    fails_empty=True,
)


def _read(path: Path, most: int | None, sink: Sink | None = None, run: int | None = None) -> Requests:
    return read_bench(path, most, sink, run, _PROGRAM)


FORMAT = WorkloadFormat(
    example='{"backend": "sglang", "request_rate": Infinity, "sharegpt_output_len": null, ..., "itls": [[]]}',
    meaning="JSON lines of SGLang's bench_serving, recorded with --output-details",
    recognises=json_with("sharegpt_output_len", "total_output_tokens_retokenized"),
    read=_read,
    has_runs=True,
)
