"""The log of a run, timelines, and samples of counters."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndpsim.inference.layers.log import writing_log
from ndpsim.policies.interface import Assignment, Part
from ndpsim.policies.views import LayerPlacement
from ndpsim.report.timelines import (
    span_of,
    timeline_file,
    write_relayout_timeline,
    write_timeline,
    writing_timeline,
)
from ndpsim.simulate import contention as simulated_contention
from ndpsim.simulate import simulate_contention, simulate_expert, simulate_relayout
from ndpsim.simulate.statistics import Samples, equal_clocks, sample_clocks
from ndpsim.workload.models import Expert
from trace_events import trace_events


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
    assert processes == [(1, "first"), (2, "second")]
    rows = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    spans = [one for one in events if one["ph"] == "X"]
    shown = sorted((rows[1, one["tid"]], one["ts"], one["dur"]) for one in spans if one["pid"] == 1)
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


# ---- Timelines as Perfetto reads them: whole ns, and nothing on a row that overlaps


def shape():
    from ndpsim.workload.models import Expert

    return Expert(1024, 256)


def written(file, kind, moe_by_hand):
    """A timeline of each command that writes one."""
    if kind == "experts in turn, in tiles":
        sets = ["ndp.gemv.buffer_kib=64"]
        write_timeline(file, simulate_expert("trimoe", shape(), [40, 1, 9], sets=sets))
    elif kind == "sharded":
        write_timeline(file, simulate_expert("edge", shape(), 5, "sharded:3"))
    elif kind == "beside the host":
        write_timeline(file, simulate_contention("trimoe", shape(), [3, 2]))
    elif kind == "relayout":
        write_relayout_timeline(file, simulate_relayout("trimoe", shape(), 2, host=False))
    else:
        with writing_timeline(file) as observer:
            moe_by_hand.play(observer, "first", "second")


@pytest.mark.parametrize(
    "kind", ["experts in turn, in tiles", "sharded", "beside the host", "relayout", "layers of a model"]
)
def test_what_is_on_a_row_lies_apart_or_within(kind, tmp_path, moe_by_hand):
    file = str(tmp_path / "t.json")
    written(file, kind, moe_by_hand)
    rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in trace_events(file):
        if event["ph"] == "X":
            begin, lasts = int(event["ts"] * 1000), int(event["dur"] * 1000)
            assert begin >= 0
            assert lasts >= 0
            rows.setdefault((event["pid"], event["tid"]), []).append((begin, begin + lasts))
    assert rows
    for spans in rows.values():
        for (_, end), (start, until) in pairwise(sorted(spans)):
            assert start >= end or until <= end


@given(st.floats(0, 1e13), st.floats(0, 1e9))
def test_times_are_whole_ns_whoever_multiplies_and_cuts(start_ns, lasts_ns):
    span = span_of(start_ns, start_ns + lasts_ns)
    begin, lasts = int(span["ts"] * 1000), int(span["dur"] * 1000)
    assert begin == int(start_ns)
    assert begin + lasts == int(start_ns + lasts_ns)


def test_a_span_that_follows_another_shares_its_row_and_one_that_overlaps_does_not(tmp_path):
    with timeline_file(tmp_path / "t.json") as timeline:
        timeline.begin_process("process")
        for start_ns, end_ns in ((0, 5), (5, 9), (6, 7)):
            timeline.span("row", "span", start_ns, end_ns, {})
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert [event["tid"] for event in events if event["ph"] == "X"] == [1, 1, 2]


# ---- Curves of a run: samples of its counters, and what both sides of a shared DIMM moved over time

SMALL = Expert(256, 96)


@pytest.fixture(scope="module")
def beside():
    return simulate_contention("trimoe", Expert(1024, 384), host_gbps=20.0)


def test_the_curves_of_a_shared_dimm_are_what_both_sides_moved(beside):
    width = np.diff(np.append(0.0, beside.curve_ns))
    assert beside.curve_ns[-1] == beside.ndp_time_ns
    assert len(width) > 100
    assert np.abs(width[:-1] - width[0]).max() <= beside.clock_ns * (1 + 1e-9)
    assert width[-1] <= width[0] + beside.clock_ns * (1 + 1e-9)
    interval_ns = beside.config["hardware"]["timings"]["nREFI"] * beside.clock_ns
    parts = round(interval_ns / width[0])
    assert beside.curve_ns[parts - 1] == pytest.approx(interval_ns)  # bins do not drift against refreshes
    moved = sum(lane["ndp_bytes"] for lane in beside.by_lane)
    assert (width * beside.ndp_curve_gbps).sum() == pytest.approx(moved)
    assert (width * beside.host_curve_gbps).sum() == pytest.approx(beside.host_gbps * beside.ndp_time_ns)
    assert max(beside.ndp_curve_gbps) <= beside.lanes_peak_gbps * 1.05  # a burst more in a short time


@pytest.mark.parametrize("clocks", [1, 7, 1 << 40])
@pytest.mark.parametrize("arbitration", ["host-first", "slice"])
def test_how_often_a_run_is_sampled_changes_nothing_but_the_curves(monkeypatch, clocks, arbitration):
    def plain():
        result = simulate_contention("trimoe", SMALL, arbitration=arbitration).to_dict()
        curves = [result.pop(name) for name in ("curve_ns", "ndp_curve_gbps", "host_curve_gbps")]
        return {name: value for name, value in result.items() if name not in ("wall_s", "compile_s")}, curves

    first, curves = plain()
    monkeypatch.setattr(simulated_contention, "sample_clocks", lambda *_: clocks)
    other, others = plain()
    assert other == first
    assert others != curves
    assert (len(others[0]) == 1) == (clocks == 1 << 40)


def test_samples_are_the_rises_between_them():
    samples = Samples(2, 1, 10)
    assert samples.next_clock == 11
    for clock, counts in ((11, (3, 0)), (21, (5, 4)), (21, (5, 4)), (24, (6, 4))):
        samples.record(clock, counts)
    clocks, rises = samples.rises()
    assert clocks.tolist() == [1, 11, 21, 24]
    assert rises.tolist() == [[3, 2, 1], [0, 4, 0]]


@given(st.integers(1, 5000), st.integers(1, 50))
def test_samples_stay_few_and_lose_nothing(count, width):
    samples = Samples(1, 1, width)
    for _ in range(count):
        samples.record(samples.next_clock, [samples.next_clock - 1])
    clocks, rises = samples.rises()
    assert clocks[0] == 1
    assert len(clocks) <= 800
    assert len(clocks) > min(count, 400)
    assert np.diff(clocks).tolist() == rises[0].tolist()
    assert len(set(np.diff(clocks).tolist())) == 1


@given(st.integers(1, 10**8), st.integers(1, 20_000))
def test_the_time_between_samples_fits_the_refreshes(cycles, interval):
    clocks = sample_clocks(cycles, interval)
    assert clocks * 400 >= cycles
    if clocks >= interval:
        assert clocks % interval == 0
        assert clocks - interval < -(-cycles // 400)
    else:
        assert clocks in [Fraction(interval, 2**halvings) for halvings in range(16)]
        assert clocks <= 2 * -(-cycles // 400)


@given(st.fractions(1, 50, max_denominator=16), st.integers(1, 3000))
def test_samples_at_parts_of_a_clock_do_not_drift(width, count):
    samples = Samples(1, 1, width)
    for _ in range(count):
        samples.record(samples.next_clock, [0])
    clocks, _ = samples.rises()
    assert clocks.tolist() == [1 + math.ceil(number * samples.width) for number in range(len(clocks))]
    assert samples.width / width == 2 ** round(math.log2(samples.width / width))


@given(st.integers(0, 5000), st.fractions(1, 500, max_denominator=16))
def test_equal_times_cover_a_run(cycles, width):
    clocks = equal_clocks(cycles, width)
    assert clocks[0] == 0 or cycles == 0
    assert clocks[-1] == cycles
    assert (np.diff(clocks) > 0).all()
    assert clocks[:-1].tolist() == [math.floor(number * width) for number in range(len(clocks) - 1)]
