"""Results of ``vllm bench serve --save-result --save-detailed``, JSON with an array for each quantity.

Source: vLLM, `vllm/benchmarks/serve.py`. A request with an error failed, and is omitted. Arrivals are
`start_times`, which newer versions write, less `queue_times`: with a limit of concurrency, a request waits in
the load generator before it starts. With `request_rate` "inf", requests arrive at once, or with
`max_concurrency` in a closed loop. With ``--append-result``, each line is a run. Latencies are `ttfts` and
`itls`, and count from the arrival.
"""

from __future__ import annotations

from pathlib import Path

from ndpsim.base.text_files import json_with
from ndpsim.workload.requests.bench import BenchProgram, read_bench
from ndpsim.workload.requests.recorded import Sink, WorkloadFormat
from ndpsim.workload.requests.requests import Requests

_PROGRAM = BenchProgram(
    without_lengths="record with --save-detailed",
    without_arrivals="so arrivals are not known; newer versions of vLLM write it",
    foreign="sharegpt_output_len",
    other="SGLang's bench_serving; its format is sglang-bench",
    fails_empty=False,
)


def _read(path: Path, most: int | None, sink: Sink | None = None, run: int | None = None) -> Requests:
    return read_bench(path, most, sink, run, _PROGRAM)


FORMAT = WorkloadFormat(
    example='{"request_rate": 2.0, "input_lens": [279], "output_lens": [12], "start_times": [1000.0], ...}',
    meaning="JSON of vllm bench serve, recorded with --save-detailed",
    recognises=json_with("input_lens", "request_rate", "max_concurrency"),
    read=_read,
    has_runs=True,
)
