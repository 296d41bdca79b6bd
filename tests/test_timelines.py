"""Timelines as Perfetto reads them: whole ns, and nothing on a row that overlaps."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndpsim.report.timelines import (
    span_of,
    timeline_file,
    write_relayout_timeline,
    write_timeline,
    writing_timeline,
)
from ndpsim.simulate import simulate_contention, simulate_expert, simulate_relayout


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
    with open(file, encoding="utf-8") as opened:
        events = json.load(opened)["traceEvents"]
    rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in events:
        assert set(event) >= {"ph", "pid", "name"}
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
    assert [event["tid"] for event in events if event["ph"] == "X"] == [0, 0, 1]
