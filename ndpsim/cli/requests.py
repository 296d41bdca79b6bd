"""``ndpsim requests``: import, generate, describe and compare the requests to a serving system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ndpsim.base.errors import InputError
from ndpsim.base.options import joined, refuse, table
from ndpsim.base.options.hardware import SET
from ndpsim.base.options.serve import COMPARE, DESCRIBE, GENERATE, IMPORT, RECORDED, SERVE
from ndpsim.cli.command import Options, group, taking
from ndpsim.cli.options import JSON, answer, naming, progress_of

# Options of the server: the recording has the requests and their rate.
_SERVED = joined(SERVE.but(requests=None, rate=None), table({"What is simulated": (SET,)}))


@group(
    "ndpsim requests describe poisson:rate=4,input_tokens=1155,input_sigma=1",
    "ndpsim requests import AzureLLMInferenceTrace_conv.csv -o conv.csv",
)
def command() -> None:
    """Import, generate, describe and compare the requests to a serving system.

    Requests are CSV with the columns id,arrival_s,input_tokens,output_tokens.
    """


def _note_failed(source: Mapping[str, Any]) -> None:
    failed = source.get("failed")
    if failed:
        click.echo(f"ndpsim: note: {failed} requests failed, and are left out", err=True)


def _tell(out: str, source: Mapping[str, Any], count: int) -> None:
    """Print a line about written requests."""
    from ndpsim.report.workload import requests_title

    click.echo(f"wrote {out} from {requests_title(source, count)}")


@taking(
    GENERATE,
    examples=(
        "ndpsim requests generate poisson:rate=4,requests=1000,input_tokens=1155,input_sigma=1 -o R.csv",
        "ndpsim requests generate closed-loop:concurrency=64,lengths=conv.csv --seed 7 -o R.csv",
    ),
)
def generate(options: Options) -> None:
    """Generate requests.

    SPEC is poisson, gamma or closed-loop, with optional :KEY=VALUE,... The SPECs poisson and gamma have
    rate=1, in requests a second. The SPEC gamma also has burstiness=0.5, the shape of the distribution of
    times between arrivals, as in vllm bench: 1 is a Poisson process, and smaller values give bursts. The SPEC
    closed-loop has concurrency=32 requests in the system: when one ends, the next one arrives.

    Every SPEC has requests=300, the number of requests. input_tokens=1024 and output_tokens=128 are the mean
    lengths of prompts and outputs. input_sigma=0 and output_sigma=0 are the standard deviations of their
    logarithms, for log-normal lengths. input_most and output_most are upper limits. With lengths=FILE, pairs
    of lengths are drawn from the requests of a file of any known format.
    """
    from ndpsim.workload.requests import generate_requests, save_requests

    spec = GENERATE.value(options, "spec")
    with naming(requests="SPEC"):
        requests = generate_requests(spec, **GENERATE.arguments(options, "seed"))
    save_requests(requests, options["out"])
    _tell(options["out"], requests.source or {}, len(requests))


@taking(
    IMPORT,
    examples=(
        "ndpsim requests import conversation_trace.jsonl --first 1000 -o R.csv",
        "ndpsim requests import BurstGPT_1.csv --format burstgpt -o R.csv",
    ),
)
def import_(options: Options) -> None:
    """Convert a recording of another program into requests.

    ndpsim list workload-formats names the formats: traces (azure-2023, azure-2024, burstgpt, llmservingsim,
    mooncake, vidur), records of load generators (aiperf, guidellm, inference-perf, llmservingsim-record,
    sglang-bench, vllm-bench) and csv, ndpsim's own. Files may be compressed with gzip. Failed requests are
    left out. The first request arrives at 0, except in ndpsim's own files. Measured latencies are not
    converted: ndpsim requests compare reads them from the recording.
    """
    from ndpsim.workload.requests import convert_requests

    arguments = IMPORT.arguments(options, "file", *RECORDED)
    source, count = convert_requests(path=options["out"], **arguments)
    _note_failed(source)
    _tell(options["out"], source, count)


@taking(
    DESCRIBE,
    table({"Results": (JSON,)}),
    examples=(
        "ndpsim requests describe AzureLLMInferenceTrace_code.csv",
        "ndpsim requests describe gamma:rate=8,burstiness=0.25 --json -",
    ),
)
def describe(options: Options) -> None:
    """Print the rate, the burstiness and the lengths of requests of a file, or of generated requests.

    If prompts have hashes of their blocks, it also prints the share of blocks that occurred before. This is
    the share that an unlimited prefix cache saves.
    """
    from ndpsim.base.settings import existing_file
    from ndpsim.report.workload import print_requests
    from ndpsim.workload.requests import describe_requests, import_requests, load_requests
    from ndpsim.workload.requests.spec import arrival_generators, is_spec

    requests = options["requests"]
    if is_spec(requests):
        refuse(options, "applies only to a file; a SPEC states what is generated", *RECORDED)
    else:
        with naming(requests="FILE|SPEC"):
            existing_file(requests, arrival_generators(), "requests")
        refuse(options, "applies only to a SPEC; a file already fixes it", "seed")
    with naming(requests="FILE|SPEC"):
        recorded = DESCRIBE.arguments(options, *RECORDED)
        found = (
            import_requests(requests, **recorded)
            if recorded
            else load_requests(requests, **DESCRIBE.arguments(options, "seed"))
        )
    statistics = describe_requests(found)
    answer(options, statistics.to_dict, lambda: print_requests(statistics))


@taking(
    COMPARE,
    _SERVED,
    table({"Results": (JSON,)}),
    examples=(
        "ndpsim requests compare bench.json --hw trimoe --model qwen3-30b-a3b --max-batch 64",
        "ndpsim requests compare benchmarks.json --run 2 --model llama-3.1-8b --json -",
    ),
)
def compare(options: Options) -> None:
    """Serve the requests of a recording, and set simulated latencies and throughput beside the measured ones.

    FILE is a record of a load generator: aiperf, guidellm, inference-perf, llmservingsim-record, sglang-bench
    or vllm-bench. Times to first token count from the arrival of a request, and times per output token from
    its first token. Requests that failed are simulated in neither.
    """
    from ndpsim.inference.serving.measured import compare_measured
    from ndpsim.inference.serving.server import run_serving
    from ndpsim.report.serving import print_measured
    from ndpsim.workload.requests import import_requests

    with naming(requests="FILE"):
        requests = import_requests(**COMPARE.arguments(options, "file", *RECORDED))
        if requests.measured is None:
            name = (requests.source or {}).get("imported")
            raise InputError(f"a file of {name} has no measured latencies", "missing", file=options["file"])
        _note_failed(requests.source or {})
    with progress_of("serving") as progress:
        run = run_serving(requests=requests, progress=progress, **_SERVED.arguments(options))
    compared = compare_measured(run, requests)
    answer(options, compared.to_dict, lambda: print_measured(compared))


for _command in (generate, import_, describe, compare):
    command.add_command(_command)
