"""Requests that other programs recorded: each format as its file has it, its traps, and every mistake with its place.

Samples of public traces are the first rows as published: Azure/AzurePublicDataset @b469a11 (CC-BY 4.0),
kvcache-ai/Mooncake @3b5a594 (Apache-2.0). The sums are counted by hand. All other files are made up.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from calls import refused_call
from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.inference.serving.measured import compare_measured
from ndpsim.simulate.results.serving import ServingResult
from ndpsim.workload.requests import (
    Measured,
    Requests,
    convert_requests,
    import_requests,
    request_formats,
    save_requests,
)

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
CODE_2023 = AZURE + "\r\n".join(
    (
        "2023-11-16 18:17:03.9799600,4808,10",
        "2023-11-16 18:17:04.0319600,3180,8",
        "2023-11-16 18:17:04.0781490,110,27",
        "2023-11-16 18:17:04.1206440,7433,14",
    )
)
CODE_2024 = AZURE + "\n".join(
    (
        "2024-05-11 23:59:59.500000+00:00,1423,276",
        "2024-05-12 00:00:00+00:00,2854,170",
        "2024-05-12 00:00:00.009930+00:00,860,545",
        "",
    )
)
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST_1 = BURST + "\n".join(
    (
        "5,ChatGPT,472,18,490,Conversation log",
        "45,ChatGPT,1087,230,1317,Conversation log",
        "118,GPT-4,417,276,693,Conversation log",
        "118,GPT-4,200,0,200,API log",
        "118,ChatGPT,20,1,21,API log",
    )
)
BURST_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "0.738,,3.140,ChatGPT,1197,137,1334,API log\n"
    "2.26,s0,2.14,GPT-4,2053,87,2140,Conversation log\n"
)
MOONCAKE = [
    {"timestamp": 0, "input_length": 1500, "output_length": 500, "hash_ids": [0, 1, 2]},
    {"timestamp": 3000, "input_length": 512, "output_length": 1, "hash_ids": [0]},
    {"timestamp": 3000, "input_length": 513, "output_length": 3, "hash_ids": [0, 3]},
]
LLMSS = [
    {"input_toks": 1455, "output_toks": 164, "arrival_time_ns": 3212421997},
    {"input_toks": 556, "output_toks": 26, "arrival_time_ns": 5599025319},
]
BENCH = {
    "num_prompts": 3,
    "request_rate": 2.0,
    "max_concurrency": None,
    "total_output_tokens": 12,
    "input_lens": [279, 849, 99],
    "output_lens": [7, 5, 0],
    "ttfts": [0.164, 0.098, 0.0],
    "itls": [[0.02], [0.03], []],
    "errors": ["", "", "timed out"],
    "start_times": [1000.5, 1000.0, 1001.25],
}


# One result of SGLang 0.5.23; the second request has failed without a message.
SGLANG = {
    "backend": "sglang", "request_rate": float("inf"), "max_concurrency": 2, "sharegpt_output_len": None,
    "duration": 1.25, "total_output_tokens": 12, "total_output_tokens_retokenized": 12,
    "input_lens": [279, 99, 849], "output_lens": [7, 0, 5], "ttfts": [0.125, 0.0, 0.25],
    "itls": [[0.5, 0.25], [], [0.125]], "errors": ["", "", ""],
}  # fmt: skip
# Records as aiperf 0.13.0, inference-perf 0.7.0 and guidellm 0.8.1 write them, without parts that are not read.
AIPERF = [
    {
        "metadata": {"request_start_ns": 1796026992386653794 + start, "benchmark_phase": phase, "turn_index": 0},
        "metrics": {
            "input_sequence_length": {"value": prompt, "unit": "tokens"},
            "output_sequence_length": {"value": output, "unit": "tokens"},
            "time_to_first_token": {"value": ttft, "unit": "ms"},
            "request_latency": {"value": latency, "unit": "ms"},
        },
        "error": None,
    }
    for start, phase, prompt, output, ttft, latency in (
        (0, "warmup", 8, 1, 1.0, 2.0),
        (500_000_000, "profiling", 849, 5, 56.5, 130.5),
        (0, "profiling", 279, 7, 50.0, 170.0),
    )
]  # fmt: skip
AIPERF.append({**AIPERF[1], "metrics": None, "error": {"code": 499}})
PERF = [
    {
        "start_time": start, "end_time": start + 0.5, "request": "{}", "response": "data: {}",
        "info": {
            "request_metrics": {"text": {"input_tokens": prompt}, "image": None},
            "response_metrics": {
                "output_tokens": output,
                "server_usage": {"prompt_tokens": prompt + 2, "completion_tokens": output + 1},
                "output_token_times": [start + 0.125, start + 0.375],
            },
            "input_tokens": prompt,
        },
        "error": None,
    }
    for start, prompt, output in ((54989.0, 849, 5), (54988.5, 279, 7))
]  # fmt: skip
PERF.append({**PERF[0], "error": {"error_type": "TimeoutError", "error_msg": ""}})
GUIDE_REQUEST = {
    "type_": "generative_request_stats", "request_id": "7d04", "request_start_time": 1796027267.5,
    "request_end_time": 1796027268.0, "request_latency": 0.5, "prompt_tokens": 279, "output_tokens": 7,
    "time_to_first_token_ms": 50.0, "time_per_output_token_ms": 25.0, "inter_token_latency_ms": 20.0,
}  # fmt: skip
GUIDE_LATER = {
    **GUIDE_REQUEST, "request_start_time": 1796027268.0, "prompt_tokens": 849, "output_tokens": 1,
    "inter_token_latency_ms": None,
}  # fmt: skip
GUIDE = {
    "metadata": {"version": 2, "guidellm_version": "0.8.1"},
    "config": {},
    "benchmarks": [
        {
            "type_": "generative_benchmark",
            "config": {"strategy": {"type_": "constant", "rate": 2.0}},
            "requests": {
                "successful": [GUIDE_LATER, GUIDE_REQUEST],
                "incomplete": [GUIDE_REQUEST],
                "errored": [],
                "total": None,
            },
        }
    ],
}
SIMULATED = (
    "instance id,request id,model,input,output,arrival,end_time,latency,queuing_delay,TTFT,TPOT,ITL\n"
    '0,5,meta-llama/Llama-3.1-8B,849,5,604829891,704829891,100000000,6468117,50000000,1,"[1, 2]"\n'
    '0,0,meta-llama/Llama-3.1-8B,279,7,104829891,904829891,800000000,82945408,200000000,1,"[]"\n'
)
ENGINE = [
    {
        "request_id": f"bench-{number}", "input_toks": prompt, "output_toks": output, "arrival_time": start,
        "queued_ts": 479748.5, "scheduled_ts": 479748.625, "first_token_ts": 479749.0,
        "last_token_ts": 479750.5,
    }
    for number, start, prompt, output in ((0, 1777142838.5, 279, 7), (1, 1777142839.0, 849, 5))
]  # fmt: skip

VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n1.0,374,44\n5.314579,396,109.0\n6,10,1\n"
REPLAYED = "Time,PromptTokenCount,CompletionTokenCount,Date\n0.5,374,44,20231116\n2.5,396,109,20231116\n"


def lines(records: list[dict[str, object]]) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


def written(folder: Path, text: object, name: str = "r.txt") -> Path:
    path = folder / name
    path.write_bytes((text if isinstance(text, str) else json.dumps(text)).encode())
    return path


def columns(requests: Requests) -> tuple[list[float], list[int], list[int]]:
    return (
        requests.arrival_ns.tolist(),
        requests.prompt_tokens.tolist(),
        requests.output_tokens.tolist(),
    )


READ = {
    "azure-2023": (CODE_2023, [0, 52e6, 98.189e6, 140.684e6], [4808, 3180, 110, 7433], [10, 8, 27, 14]),
    "azure-2024": (CODE_2024, [0, 5e8, 509.93e6], [1423, 2854, 860], [276, 170, 545]),
    "burstgpt": (BURST_1, [0, 40e9, 113e9, 113e9], [472, 1087, 417, 20], [18, 230, 276, 1]),
    "mooncake": (lines(MOONCAKE), [0, 3e9, 3e9], [1500, 512, 513], [500, 1, 3]),
    "llmservingsim": (lines(LLMSS), [0, 2386603322], [1455, 556], [164, 26]),
    "vidur": (VIDUR, [0, 4314579e3, 5e9], [374, 396, 10], [44, 109, 1]),
    "vllm-bench": (BENCH, [0, 5e8], [849, 279], [5, 7]),
    "sglang-bench": (SGLANG, [0, 0], [279, 849], [7, 5]),
    "aiperf": (lines(AIPERF), [0, 5e8], [279, 849], [7, 5]),
    "inference-perf": (PERF, [0, 5e8], [279, 849], [7, 5]),
    "guidellm": (GUIDE, [0, 5e8], [279, 849], [7, 1]),
    "llmservingsim-record": (SIMULATED, [0, 5e8], [279, 849], [7, 5]),
}
# ttft_ns and latency_ns of each request, by hand, and the time from the first arrival to the last token.
MEASURED = {
    "vllm-bench": ([98e6, 164e6], [128e6, 184e6], 684e6),
    "sglang-bench": ([125e6, 250e6], [875e6, 375e6], 1.25e9),
    "aiperf": ([50e6, 56.5e6], [170e6, 130.5e6], 630.5e6),
    "inference-perf": ([125e6, 125e6], [375e6, 375e6], 875e6),
    "guidellm": ([50e6, 50e6], [170e6, 50e6], 550e6),
    "llmservingsim-record": ([200e6, 50e6], [800e6, 100e6], 800e6),
}
WITHOUT = {"aiperf": 1, "inference-perf": 1, "guidellm": 1, "sglang-bench": 1, "vllm-bench": 1}


@pytest.mark.parametrize("name", MEASURED)
def test_latencies_of_a_load_generator_count_from_the_arrival(name, tmp_path):
    requests = import_requests(written(tmp_path, READ[name][0]))
    measured, (ttft_ns, latency_ns, time_ns) = requests.measured, MEASURED[name]
    np.testing.assert_allclose(measured.ttft_ns, ttft_ns, rtol=1e-9)
    np.testing.assert_allclose(measured.latency_ns, latency_ns, rtol=1e-9)
    assert measured.time_ns == pytest.approx(time_ns)
    assert requests.source.get("failed", 0) == WITHOUT.get(name, 0)
    assert {*MEASURED} == {
        each for each in READ if import_requests(written(tmp_path, READ[each][0])).measured
    }


def test_latencies_are_left_out_where_they_are_not_known_or_at_another_rate(tmp_path):
    requests = import_requests(written(tmp_path, BENCH))
    assert requests.at_rate(1.0).measured is None
    assert import_requests(written(tmp_path, READ["vidur"][0])).measured is None
    plain = import_requests(written(tmp_path, without(without(BENCH, "ttfts"), "itls"))).measured
    assert np.isnan(plain.ttft_ns).all()
    assert plain.time_ns is None
    streamless = [{**PERF[1], "info": {"input_tokens": 279, "output_tokens": 7}}]
    found = import_requests(written(tmp_path, streamless)).measured  # as inference-perf 0.1 wrote it
    assert np.isnan(found.ttft_ns[0])
    assert found.latency_ns.tolist() == [5e8]


def test_inference_perf_may_leave_out_all_but_what_it_computed(tmp_path):
    """per_request_fields of version 0.7: without info, with computed_metrics."""
    computed = {"request_latency": 0.5, "time_to_first_token": 0.125, "input_tokens": 279, "output_tokens": 7}
    record = {"start_time": 54988.5, "end_time": 54989.0, "computed_metrics": computed, "error": None}
    requests = import_requests(written(tmp_path, [record, {**record, "start_time": 54989.5}]))
    assert list(columns(requests)) == [[0, 1e9], [279, 279], [7, 7]]
    assert requests.measured.ttft_ns.tolist() == [1.25e8] * 2
    assert requests.measured.latency_ns.tolist() == [5e8] * 2
    unary = {**record, "computed_metrics": {**computed, "time_to_first_token": None}}
    assert np.isnan(import_requests(written(tmp_path, [unary])).measured.ttft_ns).all()
    with refused("missing r.txt [0].computed_metrics.input_tokens"):
        import_requests(written(tmp_path, [{**record, "computed_metrics": {"request_latency": 0.5}}]))


def test_runs_of_vllm_itself_that_llmservingsim_recorded(tmp_path):
    """Latencies count from `queued_ts`, on the engine's clock."""
    requests = import_requests(written(tmp_path, lines(ENGINE)))
    assert requests.source["imported"] == "llmservingsim-record"
    assert list(columns(requests)) == [[0, 5e8], [279, 849], [7, 5]]
    assert requests.measured.ttft_ns.tolist() == [5e8, 5e8]
    assert requests.measured.latency_ns.tolist() == [2e9, 2e9]


def test_one_run_is_taken_from_a_file_with_several(tmp_path):
    """vLLM appends a line for each run, SGLang too; GuideLLM has a benchmark for each rate."""
    later = {**BENCH, "output_lens": [7, 4, 0], "total_output_tokens": 11}
    text = json.dumps(BENCH, indent=1) + "\n" + json.dumps(later)
    guide = {**GUIDE, "benchmarks": [*GUIDE["benchmarks"], *GUIDE["benchmarks"]]}
    for name, content in (
        ("vllm-bench", text),
        ("sglang-bench", lines([SGLANG, SGLANG])),
        ("guidellm", guide),
    ):
        path = written(tmp_path, content)
        with refused("missing r.txt run"):
            import_requests(path)
        with refused("range r.txt run"):
            import_requests(path, run=3)
        requests = import_requests(path, run=2)
        assert (requests.source["imported"], requests.source["run"]) == (name, 2)
    assert import_requests(written(tmp_path, text), run=2).output_tokens.tolist() == [4, 7]
    broken = {**later, "output_lens": [7, "x"]}
    with refused(f"type r.txt:{text.count(chr(10)) + 2} output_lens[1]"):
        import_requests(written(tmp_path, f"{text}\n{json.dumps(broken)}"), run=3)
    with refused("conflict r.txt run"):
        import_requests(written(tmp_path, lines(MOONCAKE)), run=1)


def test_guidellm_without_a_rate_is_a_closed_loop(tmp_path):
    for strategy, limit in (
        ({"type_": "concurrent", "streams": 3}, 3),
        ({"type_": "synchronous"}, 1),
        ({"type_": "throughput", "max_concurrency": None}, None),
    ):
        benchmark = {**GUIDE["benchmarks"][0], "config": {"strategy": strategy}}
        requests = import_requests(written(tmp_path, {**GUIDE, "benchmarks": [benchmark]}))
        assert requests.closed_loop == limit
        assert list(columns(requests)) == [[0, 0], [279, 849], [7, 1]]
        assert requests.measured.time_ns == 550e6


@pytest.mark.parametrize(
    ("name", "record"), [("vllm-bench", SGLANG), ("sglang-bench", {**BENCH, "endpoint_type": "vllm"})]
)
def test_a_file_of_one_program_is_not_answered_with_advice_for_another(name, record, tmp_path):
    other = "sglang" if name == "vllm-bench" else "vllm"
    with pytest.raises(InputError, match=f"its format is {other}-bench"):
        import_requests(written(tmp_path, record), name)


def test_a_run_is_set_beside_what_was_measured(tmp_path):
    """Latencies by hand; the third request has one token, and no time per output token."""
    requests = Requests(
        np.zeros(3), np.full(3, 8), np.array([3, 5, 1]),
        measured=Measured(np.array([1e9, 2e9, 4e9]), np.array([2e9, 4e9, np.nan]), 1e9),
    )  # fmt: skip
    served = [
        SimpleNamespace(id=str(n), ttft_ns=5e8, tpot_ns=None if n == 2 else 1e9, latency_ns=3e9)
        for n in range(3)
    ]
    run = object.__new__(ServingResult)
    for name, value in (
        ("per_request", tuple(served)), ("tokens_per_s", 18.0), ("requests_per_s", 6.0),
        ("requests", 3), ("output_tokens", 9),
    ):  # fmt: skip
        object.__setattr__(run, name, value)
    compared = compare_measured(run, requests)
    assert compared.ttft_ns["measured"]["mean"] == pytest.approx(7e9 / 3)
    assert compared.ttft_ns["ratio"]["p50"] == 0.25
    assert compared.tpot_ns["measured"]["mean"] == 5e8  # 1 s over 2 gaps, 2 s over 4
    assert compared.tpot_ns["ratio"]["mean"] == 2
    assert compared.latency_ns["simulated"]["mean"] == 3e9
    assert compared.latency_ns["measured"]["mean"] == 3e9
    assert compared.tokens_per_s == {"simulated": 18.0, "measured": 9.0, "ratio": 2.0}
    assert compared.requests_per_s["ratio"] == 2
    assert compared.compared == 3
    with refused("missing requests"):
        compare_measured(run, dataclasses.replace(requests, measured=None))
    with refused("conflict requests"):
        compare_measured(run, dataclasses.replace(requests, ids=("a", "b", "c")))


def test_a_recording_without_latencies_is_not_compared(tmp_path):
    call = ("requests", "compare", written(tmp_path, VIDUR), "--model", "llama-3.1-8b")
    assert refused_call(*call) == "missing r.txt"


@pytest.mark.parametrize("name", READ)
def test_each_format_is_recognised_and_read(name, tmp_path):
    text, *expected = READ[name]
    requests = import_requests(written(tmp_path, text))
    assert requests.source["imported"] == name
    assert list(columns(requests)) == expected


def test_the_file_that_vidur_replays_is_read_as_well(tmp_path):
    requests = import_requests(written(tmp_path, REPLAYED))
    assert requests.source["imported"] == "vidur"
    assert columns(requests) == ([0, 2e9], [374, 396], [44, 109])


def test_mooncake_without_hashes_has_no_blocks(tmp_path):
    """As AIPerf and GuideLLM write it, in whole milliseconds."""
    requests = import_requests(written(tmp_path, lines([without(record, "hash_ids") for record in MOONCAKE])))
    assert (requests.source["imported"], requests.blocks) == ("mooncake", None)
    assert list(columns(requests)) == list(READ["mooncake"][1:])


def test_every_format_has_a_file_here():
    assert {*READ, "csv"} == set(request_formats())


@pytest.mark.parametrize("name", READ)
def test_a_packed_file_and_the_first_requests_only(name, tmp_path):
    text, *expected = READ[name]
    path = tmp_path / "r.gz"
    path.write_bytes(gzip.compress((text if isinstance(text, str) else json.dumps(text)).encode()))
    assert list(columns(import_requests(path, first=2))) == [column[:2] for column in expected]
    assert import_requests(path, name, first=1).arrival_ns.tolist() == [0]


@pytest.mark.parametrize("name", ["azure-2023", "azure-2024", "burstgpt"])
def test_ends_of_lines_do_not_matter(name, tmp_path):
    text, *expected = READ[name]
    for ending in ("\n", "\r\n"):
        for last in ("", ending):
            path = written(tmp_path, ending.join(text.splitlines()) + last)
            assert list(columns(import_requests(path))) == expected


def test_the_two_azure_traces_are_told_apart_by_their_time_zone(tmp_path):
    assert import_requests(written(tmp_path, CODE_2023)).source["imported"] == "azure-2023"
    with refused("type r.txt:2 TIMESTAMP"):
        import_requests(written(tmp_path, CODE_2023), "azure-2024")
    with refused("type r.txt:2 TIMESTAMP"):
        import_requests(written(tmp_path, CODE_2024), "azure-2023")


def test_azure_arrivals_are_exact_to_the_last_of_seven_decimals(tmp_path):
    text = AZURE + "2023-02-28 23:59:59.9999999,1,1\r\n2023-03-01 00:00:00.0000001,1,1\r\n"
    assert import_requests(written(tmp_path, text)).arrival_ns.tolist() == [0, 200]


def test_burstgpt_failures_are_counted_and_left_out(tmp_path):
    requests = import_requests(written(tmp_path, BURST_1))
    assert requests.source["failed"] == 1
    assert len(requests) == 4
    assert requests.ids == ("0", "1", "2", "3")


def test_burstgpt_with_sessions(tmp_path):
    requests = import_requests(written(tmp_path, BURST_3))
    assert columns(requests) == ([0, 1522e6], [1197, 2053], [137, 87])
    assert "failed" not in requests.source


def test_mooncake_blocks_are_of_512_tokens(tmp_path):
    requests = import_requests(written(tmp_path, lines(MOONCAKE)))
    assert requests.block_tokens == 512
    assert [one.tolist() for one in requests.blocks] == [[0, 1, 2], [0], [0, 3]]


def test_llmservingsim_tokens_give_equal_blocks_to_prompts_that_begin_alike(tmp_path):
    tokens = np.random.default_rng(1).integers(0, 30000, 64).tolist()
    other = [*tokens[:16], -1, *tokens[17:40]]
    prompts = [tokens[:40], [*tokens[:40], 5], other, tokens[16:32] + tokens[:16]]
    records = [
        {"input_toks": len(p), "output_toks": 1, "arrival_time_ns": 0, "input_tok_ids": p} for p in prompts
    ]
    requests = import_requests(written(tmp_path, lines(records)))
    blocks = [one.tolist() for one in requests.blocks]
    assert requests.block_tokens == 16
    assert blocks[0][:2] == blocks[1][:2]
    assert blocks[0][2] != blocks[1][2]  # 8 tokens, and 9
    assert (blocks[2][0], blocks[2][1] == blocks[0][1]) == (blocks[0][0], False)
    # The same tokens, but not after a block that has the same number; and 2 blocks as other prompts begin.
    assert not set(blocks[2][1:]) & set(blocks[0])
    assert not set(blocks[3]) & set(blocks[0])


def test_vllm_bench_of_unlimited_rate_is_a_closed_loop_or_comes_at_once(tmp_path):
    at_once = {**BENCH, "request_rate": "inf"}
    del at_once["start_times"]
    requests = import_requests(written(tmp_path, at_once))
    assert columns(requests) == ([0, 0], [279, 849], [7, 5])
    assert requests.closed_loop is None
    requests = import_requests(written(tmp_path, {**BENCH, "request_rate": "inf", "max_concurrency": 2}))
    assert requests.closed_loop == 2
    assert columns(requests) == ([0, 0], [279, 849], [7, 5])


def test_vllm_bench_names_requests_by_their_place_and_counts_failures(tmp_path):
    requests = import_requests(written(tmp_path, BENCH))
    assert requests.ids == ("1", "0")
    assert requests.source["failed"] == 1


def test_arrivals_of_vllm_are_starts_less_the_time_in_its_queue(tmp_path):
    """0.75 s in the queue of the load generator, which then may have a limit of concurrency beside a rate."""
    record = {**BENCH, "queue_times": [0.75, 0.0, 0.5], "max_concurrency": 1}
    requests = import_requests(written(tmp_path, record))
    assert list(columns(requests)) == [[0, 2.5e8], [279, 849], [7, 5]]
    assert requests.closed_loop is None
    assert requests.measured is not None  # from the arrival on, as for other programs
    assert requests.measured.ttft_ns.tolist() == pytest.approx([0.914e9, 0.098e9])
    assert requests.measured.latency_ns.tolist() == pytest.approx([0.934e9, 0.128e9])


def without(record: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in record.items() if name != key}


def aiperf(**metrics: object) -> str:
    return lines([{**AIPERF[1], "metrics": {**AIPERF[1]["metrics"], **metrics}}])


def guide(successful: list[object]) -> dict[str, object]:
    benchmark = {**GUIDE["benchmarks"][0], "requests": {"successful": successful}}
    return {**GUIDE, "benchmarks": [benchmark]}


def mooncake(**changed: object) -> str:
    return lines([MOONCAKE[0], {**MOONCAKE[1], **changed}])


def llmss(**changed: object) -> str:
    return lines([LLMSS[0], {**LLMSS[1], **changed}])


MISTAKES = [
    ("azure-2023", CODE_2023.replace("03.9799600", "03.979960"), "type r.txt:2 TIMESTAMP"),
    ("azure-2023", CODE_2023.replace("11-16 18:17:04.12", "11-31 18:17:04.12"), "type r.txt:5 TIMESTAMP"),
    ("azure-2023", CODE_2023.replace("18:17:04.12", "24:17:04.12"), "type r.txt:5 TIMESTAMP"),
    ("azure-2023", CODE_2023.replace("18:17:04.12", "18:60:04.12"), "type r.txt:5 TIMESTAMP"),
    ("azure-2023", CODE_2023.replace("18:17:04.12", "18:17:60.12"), "type r.txt:5 TIMESTAMP"),
    ("azure-2023", CODE_2023.replace("04.1206440", "04.0781489"), "range r.txt:5 TIMESTAMP"),
    ("azure-2023", CODE_2023.replace(",110,27", ",0,27"), "range r.txt:4 ContextTokens"),
    ("azure-2023", CODE_2023.replace(",110,27", ",110,0"), "range r.txt:4 GeneratedTokens"),
    ("azure-2023", CODE_2023.replace(",110,27", ",110,2.7"), "type r.txt:4 GeneratedTokens"),
    ("azure-2023", CODE_2023.replace(",110,27", ",110"), "form r.txt:4"),
    ("azure-2023", CODE_2023.replace("ContextTokens", "Context"), "form r.txt:1"),
    ("azure-2023", AZURE, "form r.txt"),
    ("azure-2024", CODE_2024.replace("00.009930", "00.00993"), "type r.txt:4 TIMESTAMP"),
    ("azure-2024", CODE_2024.replace("00:00+00:00", "00:00+02:00"), "type r.txt:3 TIMESTAMP"),
    ("azure-2024", CODE_2024.replace("05-11", "05-12"), "range r.txt:3 TIMESTAMP"),
    ("burstgpt", BURST_1.replace(",490,", ",491,"), "conflict r.txt:2 Total tokens"),
    ("burstgpt", BURST_1.replace("118,GPT-4,417", "44,GPT-4,417"), "range r.txt:4 Timestamp"),
    ("burstgpt", BURST_1.replace("45,ChatGPT", "45,GPT-5"), "unknown-name r.txt:3 Model"),
    ("burstgpt", BURST_1.replace("490,Conversation log", "490,log"), "unknown-name r.txt:2 Log Type"),
    ("burstgpt", BURST_1.replace("472,18,490", "0,490,490"), "range r.txt:2 Request tokens"),
    ("burstgpt", BURST_1.replace("472,18,490", "-1,491,490"), "type r.txt:2 Request tokens"),
    ("burstgpt", BURST_1.replace("5,ChatGPT,472", "x,ChatGPT,472"), "type r.txt:2 Timestamp"),
    ("burstgpt", BURST + "5,ChatGPT,472,0,472,API log\n", "form r.txt"),
    ("burstgpt", BURST_3.replace("3.140", ""), "type r.txt:2 Elapsed time"),
    ("burstgpt", BURST_3.replace(",s0,", ","), "form r.txt:3"),
    ("mooncake", mooncake(hash_ids=[0, 1]), "conflict r.txt:2 hash_ids"),
    ("mooncake", mooncake(hash_ids=None), "missing r.txt:2 hash_ids"),
    ("mooncake", mooncake(hash_ids=[-1]), "type r.txt:2 hash_ids"),
    ("mooncake", mooncake(hash_ids=[0.5]), "type r.txt:2 hash_ids"),
    ("mooncake", mooncake(timestamp=3.5), "type r.txt:2 timestamp"),
    ("mooncake", mooncake(timestamp=True), "type r.txt:2 timestamp"),
    ("mooncake", mooncake(output_length=0), "range r.txt:2 output_length"),
    ("mooncake", mooncake(input_length=0, hash_ids=[]), "range r.txt:2 input_length"),
    ("mooncake", lines([MOONCAKE[1], MOONCAKE[0]]), "range r.txt:2 timestamp"),
    ("mooncake", lines([without(MOONCAKE[0], "output_length")]), "missing r.txt:1 output_length"),
    ("mooncake", lines(MOONCAKE)[:-3], "form r.txt:3"),
    ("mooncake", lines([without(MOONCAKE[0], "hash_ids"), MOONCAKE[1]]), "missing r.txt:2 hash_ids"),
    ("vidur", VIDUR.replace("5.314579", "0.5"), "range r.txt:3 arrived_at"),
    ("vidur", VIDUR.replace("1.0,", "-1.0,"), "type r.txt:2 arrived_at"),
    ("vidur", VIDUR.replace("109.0", "109.5"), "type r.txt:3 num_decode_tokens"),
    ("vidur", VIDUR.replace("6,10,1", "6,10,0"), "range r.txt:4 num_decode_tokens"),
    ("vidur", REPLAYED.replace("109,20231116", "109,20231117"), "conflict r.txt:3 Date"),
    ("vidur", REPLAYED.replace("109,20231116", "109"), "form r.txt:3"),
    ("llmservingsim", llmss(arrival_time_ns=0), "range r.txt:2 arrival_time_ns"),
    ("llmservingsim", llmss(output_toks=0), "range r.txt:2 output_toks"),
    ("llmservingsim", llmss(input_toks=None), "type r.txt:2 input_toks"),
    ("llmservingsim", llmss(input_tok_ids=[1] * 556), "conflict r.txt:2 input_tok_ids"),
    ("llmservingsim", lines([{**LLMSS[0], "input_tok_ids": [1]}]), "conflict r.txt:1 input_tok_ids"),
    ("llmservingsim", lines([{**LLMSS[0], "input_tok_ids": "a"}]), "type r.txt:1 input_tok_ids"),
    (
        "llmservingsim",
        lines([{"session_id": 0, "arrival_time_ns": 0, "sub_requests": [{"input_toks": 1}]}]),
        "unsupported r.txt:1 session_id",
    ),
    ("vllm-bench", without(BENCH, "input_lens"), "missing r.txt:1 input_lens"),
    ("vllm-bench", without(BENCH, "output_lens"), "missing r.txt:1 output_lens"),
    ("vllm-bench", without(BENCH, "start_times"), "missing r.txt:1 start_times"),
    ("vllm-bench", {**BENCH, "start_times": [1.0, 2.0]}, "conflict r.txt:1 start_times"),
    ("vllm-bench", {**BENCH, "start_times": [1.0, "x", 2.0]}, "type r.txt:1 start_times[1]"),
    ("vllm-bench", {**BENCH, "output_lens": [7, 5]}, "conflict r.txt:1 output_lens"),
    ("vllm-bench", {**BENCH, "errors": ["", ""]}, "conflict r.txt:1 errors"),
    ("vllm-bench", {**BENCH, "input_lens": [279, -1, 99]}, "type r.txt:1 input_lens[1]"),
    ("vllm-bench", {**BENCH, "input_lens": {}}, "type r.txt:1 input_lens"),
    ("vllm-bench", {**BENCH, "errors": ["", "", ""]}, "range r.txt:1 output_lens"),
    ("vllm-bench", {**BENCH, "total_output_tokens": 13}, "conflict r.txt:1 total_output_tokens"),
    ("vllm-bench", {**BENCH, "queue_times": [0.5]}, "conflict r.txt:1 queue_times"),
    ("vllm-bench", {**BENCH, "queue_times": [0.5, -1, 0]}, "type r.txt:1 queue_times[1]"),
    ("vllm-bench", {**BENCH, "max_concurrency": 4}, "unsupported r.txt:1 max_concurrency"),
    ("vllm-bench", {**BENCH, "request_rate": "inf", "max_concurrency": 0}, "type r.txt:1 max_concurrency"),
    ("vllm-bench", [BENCH], "form r.txt:1"),
    ("vllm-bench", {**BENCH, "ttfts": [0.1]}, "conflict r.txt:1 ttfts"),
    ("vllm-bench", {**BENCH, "itls": [[0.1], ["x"], []]}, "type r.txt:1 itls[1]"),
    ("sglang-bench", {**SGLANG, "request_rate": 2.0, "max_concurrency": None}, "missing r.txt:1 start_times"),
    ("sglang-bench", without(SGLANG, "input_lens"), "missing r.txt:1 input_lens"),
    ("aiperf", lines([{**AIPERF[1], "metadata": None}]), "type r.txt:1 metadata"),
    (
        "aiperf",
        lines([{**AIPERF[1], "metadata": {"request_start_ns": 0.5}}]),
        "type r.txt:1 request_start_ns",
    ),
    ("aiperf", aiperf(input_sequence_length=None), "missing r.txt:1 input_sequence_length"),
    ("aiperf", aiperf(input_sequence_length=5), "type r.txt:1 input_sequence_length"),
    ("aiperf", aiperf(output_sequence_length={"value": 2.5}), "type r.txt:1 output_sequence_length"),
    ("aiperf", aiperf(request_latency={"value": 2.5, "unit": "tokens"}), "type r.txt:1 request_latency"),
    ("aiperf", lines(AIPERF[:1]), "form r.txt"),
    ("inference-perf", {"start_time": 1}, "form r.txt"),
    ("inference-perf", [1], "type r.txt [0]"),
    ("inference-perf", [{**PERF[0], "info": None}], "type r.txt [0].info"),
    ("inference-perf", [{**PERF[0], "start_time": None}], "type r.txt [0].start_time"),
    ("inference-perf", [{**PERF[0], "info": {"output_tokens": 1}}], "missing r.txt [0].input_tokens"),
    (
        "inference-perf",
        [{**PERF[0], "info": {"input_tokens": 1, "output_tokens": 1, "output_token_times": ["x"]}}],
        "type r.txt [0].output_token_times",
    ),
    ("guidellm", without(GUIDE, "benchmarks"), "type r.txt benchmarks"),
    ("guidellm", guide([1]), "type r.txt benchmarks[0].requests.successful[0]"),
    (
        "guidellm",
        guide([without(GUIDE_REQUEST, "request_start_time")]),
        "missing r.txt benchmarks[0].requests.successful[0].start_time",
    ),
    (
        "guidellm",
        guide([{**GUIDE_REQUEST, "prompt_tokens": None}]),
        "type r.txt benchmarks[0].requests.successful[0].prompt_tokens",
    ),
    (
        "guidellm",
        guide([{**GUIDE_REQUEST, "time_to_first_token_ms": -1}]),
        "type r.txt benchmarks[0].requests.successful[0].time_to_first_token_ms",
    ),
    ("guidellm", guide([]), "form r.txt"),
    ("guidellm", {**GUIDE, "benchmarks": []}, "range r.txt run"),
    ("llmservingsim-record", SIMULATED.replace(",849,", ",x,"), "type r.txt:2 input"),
    ("llmservingsim-record", SIMULATED.partition('1,"')[0], "form r.txt:2"),
    ("llmservingsim-record", lines([{**ENGINE[0], "queued_ts": None}]), "type r.txt:1 queued_ts"),
    ("vllm-bench", json.dumps(BENCH) + "x", "form r.txt:1"),
]


@pytest.mark.parametrize(("name", "text", "expected"), MISTAKES)
def test_a_mistake_is_refused_where_it_stands(name, text, expected, tmp_path):
    with refused(expected):
        import_requests(written(tmp_path, text), name)


def test_a_refused_format_is_one_short_line_that_names_the_column_or_the_list_of_formats(tmp_path):
    with refused("form r.txt:1") as caught:
        import_requests(written(tmp_path, "id,arrival_s,input_tokens\n1,0,3\n"))
    assert caught.value.problem.startswith("column output_tokens is missing; ")
    with refused("form r.txt format") as caught:
        import_requests(written(tmp_path, "a,b\n1,2\n"))
    words = "format is unknown: the file begins with 'a,b'. Formats: ndpsim list workload-formats"
    assert str(caught.value).endswith(f"r.txt: {words}")


def test_the_index_that_pandas_writes_is_named_in_the_message(here):
    Path("r.csv").write_text(",arrival_s,input_tokens,output_tokens\n0,0.0,8,2\n")
    with refused("form r.csv:1") as caught:
        import_requests("r.csv")
    assert "the first column has no name, as an index of pandas" in caught.value.problem


def test_a_file_of_no_format_is_refused(tmp_path):
    with refused("form r.txt format"):
        import_requests(written(tmp_path, json.dumps([{"id": "a", "conversations": []}])))
    with refused("unreadable none.csv"):
        import_requests(tmp_path / "none.csv")
    with refused("unknown-name format ? mooncake"):
        import_requests(written(tmp_path, lines(MOONCAKE)), "mooncak")
    with refused("range first"):
        import_requests(written(tmp_path, lines(MOONCAKE)), first=0)


@pytest.mark.parametrize("name", READ)
def test_a_converted_file_is_that_of_the_requests_however_it_is_cut(name, tmp_path, monkeypatch):
    path = written(tmp_path, READ[name][0])
    requests = import_requests(path)
    save_requests(requests, tmp_path / "whole.csv")
    for block in (1, 2, 1 << 16):
        monkeypatch.setattr("ndpsim.workload.requests.recorded._BLOCK", block)
        source, count = convert_requests(path, tmp_path / "parts.csv")
        assert (dict(source), count) == (dict(requests.source), len(requests))
        assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_converted_file_is_not_kept(tmp_path, monkeypatch):
    text = AZURE + "".join(f"2023-02-28 23:59:{n:02d}.0000000,1,1\r\n" for n in range(50))
    monkeypatch.setattr("ndpsim.workload.requests.recorded._BLOCK", 4)
    blocks: list[int] = []
    request_formats()["azure-2023"].read(
        written(tmp_path, text), None, lambda block: blocks.append(len(block))
    )
    assert blocks == [4] * 11  # and 6 at the end


def test_a_recording_that_is_too_large_is_refused_on_the_way(tmp_path, monkeypatch):
    text = AZURE + "".join(f"2023-02-28 23:59:{n:02d}.0000000,1,1\r\n" for n in range(50))
    monkeypatch.setattr("ndpsim.workload.requests.recorded._BLOCK", 4)
    monkeypatch.setenv("NDPSIM_MEMORY_GIB", str(64 * 15 / (1 << 30)))
    with refused("too-large r.txt:17"):
        import_requests(written(tmp_path, text))
    convert_requests(tmp_path / "r.txt", tmp_path / "r.csv")


def test_tokens_and_times_beyond_any_are_named_with_their_line(tmp_path):
    huge = 10**30
    with refused("range r.txt:2 input_toks"):
        import_requests(written(tmp_path, llmss(input_toks=huge)))
    with refused("range r.txt:2 arrival_time_ns"):
        import_requests(written(tmp_path, llmss(arrival_time_ns=huge)))
