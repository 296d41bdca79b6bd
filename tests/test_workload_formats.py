"""Requests that other programs recorded: each format as its file has it, its traps, and every mistake with its place.

Samples of public traces are the first rows as published: Azure/AzurePublicDataset @b469a11 (CC-BY 4.0),
kvcache-ai/Mooncake @3b5a594 (Apache-2.0). The sums are counted by hand. All other files are made up.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from mistakes import refused
from ndpsim.workload.requests import (
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
}


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


def without(record: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in record.items() if name != key}


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
    ("vllm-bench", without(BENCH, "input_lens"), "missing r.txt input_lens"),
    ("vllm-bench", without(BENCH, "output_lens"), "missing r.txt output_lens"),
    ("vllm-bench", without(BENCH, "start_times"), "missing r.txt start_times"),
    ("vllm-bench", {**BENCH, "start_times": [1.0, 2.0]}, "conflict r.txt start_times"),
    ("vllm-bench", {**BENCH, "start_times": [1.0, "x", 2.0]}, "type r.txt start_times[1]"),
    ("vllm-bench", {**BENCH, "output_lens": [7, 5]}, "conflict r.txt output_lens"),
    ("vllm-bench", {**BENCH, "errors": ["", ""]}, "conflict r.txt errors"),
    ("vllm-bench", {**BENCH, "input_lens": [279, -1, 99]}, "type r.txt input_lens[1]"),
    ("vllm-bench", {**BENCH, "input_lens": {}}, "type r.txt input_lens"),
    ("vllm-bench", {**BENCH, "errors": ["", "", ""]}, "range r.txt output_lens"),
    ("vllm-bench", {**BENCH, "total_output_tokens": 13}, "conflict r.txt total_output_tokens"),
    ("vllm-bench", {**BENCH, "queue_times": [0.5]}, "conflict r.txt queue_times"),
    ("vllm-bench", {**BENCH, "queue_times": [0.5, -1, 0]}, "type r.txt queue_times[1]"),
    ("vllm-bench", {**BENCH, "max_concurrency": 4}, "unsupported r.txt max_concurrency"),
    ("vllm-bench", {**BENCH, "request_rate": "inf", "max_concurrency": 0}, "type r.txt max_concurrency"),
    ("vllm-bench", [BENCH], "form r.txt"),
    ("vllm-bench", json.dumps(BENCH) + "x", "form r.txt:1"),
]


@pytest.mark.parametrize(("name", "text", "expected"), MISTAKES)
def test_a_mistake_is_refused_where_it_stands(name, text, expected, tmp_path):
    with refused(expected):
        import_requests(written(tmp_path, text), name)


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
