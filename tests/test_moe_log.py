"""The log of a run and its timeline: what is in them, whole or not at all, and quickly."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from ndpsim.inference.layers.log import writing_log
from ndpsim.policies.interface import Assignment, Part
from ndpsim.policies.views import LayerPlacement
from ndpsim.report.timelines import writing_timeline


def logged(path, play, *names):
    with writing_log(path) as observer:
        play(observer, *names)
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return [json.loads(line) for line in text.decode().splitlines()]


def test_each_run_begins_with_what_is_run(tmp_path, moe_by_hand):
    lines = logged(tmp_path / "log.jsonl", moe_by_hand.play, "first", "second")
    assert [line["policy"] for line in lines] == ["first"] * 5 + ["second"] * 5
    assert [("log" in line) for line in lines] == [True, *[False] * 4] * 2
    head = lines[5]
    assert head["parameters"] == {"gpu_order": "listed", "refine": True, "relayout": False}
    assert head["layers"] == [3, 4]
    assert {key: head[key] for key in ("experts", "experts_per_token", "dimms", "channels", "batch")} == {
        "experts": 8,
        "experts_per_token": 2,
        "dimms": 4,
        "channels": 2,
        "batch": 8,
    }
    assert head["gbps"] == {"pcie": 64.0, "channel": 38.4, "link": 25.0, "dimm": 153.6}
    assert head["placement"]["dimm"][1] == [-1, -1, -1, -1, 0, 0, 1, 2]
    assert head["placement"]["resident"] == [[0], [0]]


def test_a_line_has_what_happened_in_a_layer(tmp_path, moe_by_hand):
    line = logged(tmp_path / "log.jsonl.gz", moe_by_hand.play, "trimoe")[2]
    record = moe_by_hand.layers[1]
    assert {key: line[key] for key in ("phase", "step", "layer", "start_ns", "end_ns", "window_ns")} == {
        "phase": "decode",
        "step": 0,
        "layer": 4,
        "start_ns": 100e3,
        "end_ns": 160e3,
        "window_ns": 20e3,
    }
    assert line["loads"] == record.loads.tolist()
    assert line["placement"]["4"] == {"lies": "localized 0", "gpu": False}
    assert set(line["placement"]) == {"0", "1", "2", "4", "5"}
    assert line["assign"] == {"gpu": [[0, 1.0], [1, 1.0]], "cpu": [[2, 1.0]], "ndp": [[4, 1.0], [5, 1.0]]}
    assert (line["estimated_ns"], line["details"]) == (58e3, {"greedy_ns": 61e3})
    assert line["jobs"] == [vars(job) for job in record.jobs]
    (moved,) = line["migrations"]
    assert (moved["kind"], moved["from"], moved["to"], moved["hidden_ns"]) == (
        "prefetch",
        "striped",
        "gpu",
        20e3,
    )


def test_shares_and_shards_are_written(tmp_path, moe_by_hand):
    record = moe_by_hand.layers[0]
    dimm, shards = record.placement.dimm.copy(), record.placement.shards.copy()
    dimm[4], shards[4] = 2, 2
    changed = replace(
        record,
        placement=LayerPlacement(dimm, shards, record.placement.resident),
        assignment=Assignment((Part(0, 0.25), np.int64(1)), (Part(0, 0.75),), (4,)),
        loads=np.array([1, 1, 0, 0, 1, 0, 0, 0]),
    )
    lines = logged(tmp_path / "a.jsonl", lambda observer: observer(moe_by_hand.run, changed))
    assert lines[1]["assign"] == {"gpu": [[0, 0.25], [1, 1.0]], "cpu": [[0, 0.75]], "ndp": [[4, 1.0]]}
    assert lines[1]["placement"]["4"]["lies"] == "sharded:2 2"


def test_the_same_run_is_the_same_file(tmp_path, moe_by_hand):
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        logged(tmp_path / name, moe_by_hand.play, "trimoe")
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


@pytest.mark.parametrize("writing", [writing_log, writing_timeline])
def test_nothing_is_left_of_a_run_that_fails(tmp_path, moe_by_hand, writing):
    def fails():
        with writing(tmp_path / "log.jsonl") as observer:
            moe_by_hand.play(observer, "trimoe")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert list(tmp_path.iterdir()) == []


def events_of(tmp_path, play, *names):
    path = tmp_path / "t.json"
    with writing_timeline(path) as observer:
        play(observer, *names)
    content = json.loads(path.read_text())
    assert content["displayTimeUnit"] == "ns"
    return content["traceEvents"]


def test_a_timeline_has_every_job_and_migration_on_a_row_of_its_resource(tmp_path, moe_by_hand):
    events = events_of(tmp_path, moe_by_hand.play, "first", "second")
    processes = [(one["pid"], one["args"]["name"]) for one in events if one["name"] == "process_name"]
    assert processes == [(0, "first"), (1, "second")]
    rows = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    spans = [one for one in events if one["ph"] == "X"]
    shown = sorted((rows[0, one["tid"]], one["ts"], one["dur"]) for one in spans if one["pid"] == 0)
    layers = moe_by_hand.layers
    expected = [("layers", one.start_ns, one.end_ns) for one in layers]
    expected += [("layers", one.start_ns - one.window_ns, one.start_ns) for one in layers]
    expected += [(job.resource, job.start_ns, job.end_ns) for one in layers for job in one.jobs]
    over = {"prefetch": "pcie-down", "fetch": "pcie-down", "rebalance": "links", "evict": "evict"}
    expected += [
        (over[moved.kind], moved.start_ns, moved.end_ns) for one in layers for moved in one.migrations
    ]
    whole = sorted((name, math.floor(start), math.floor(end)) for name, start, end in expected)
    assert [(name, round(1000 * ts), round(1000 * (ts + dur))) for name, ts, dur in shown] == whole
    assert len(spans) == 2 * len(shown)


def test_jobs_that_overlap_have_rows_of_their_own(tmp_path, moe_by_hand):
    record = moe_by_hand.layers[0]
    copy = next(job for job in record.jobs if job.kind == "copy")
    jobs = tuple(replace(copy, expert=n, start_ns=n * 10.0, end_ns=n * 10.0 + 15) for n in range(4))
    events = events_of(tmp_path, lambda observer: observer(moe_by_hand.run, replace(record, jobs=jobs)))
    of_copies = [one["tid"] for one in events if one["name"].startswith("copy")]
    assert of_copies[0] == of_copies[2] != of_copies[1] == of_copies[3]


def test_a_run_without_layers_is_an_empty_timeline(tmp_path):
    assert events_of(tmp_path, lambda observer: SimpleNamespace()) == []
