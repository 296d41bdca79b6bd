"""``ndpsim relayout``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json

import pytest

from calls import call, refused_call
from ndpsim import check_lanes, load_hardware, read_commands

SMALL = [
    "relayout", "--shape", "128,32", "--set", "dimm.count=4", "--set", "host.channels=2", "--set", "dimm.ranks=1"
]  # fmt: skip


def test_json_alone_is_printed():
    status, out, _ = call(*SMALL, "--experts", "2", "--json", "-", "--no-host")
    result = json.loads(out)
    assert (status, result["host"]) == (0, None)
    assert (result["moved"], result["weight_bytes"]) == (2, 2 * 3 * 128 * 32 * 2)
    assert result["topology"] == "ring"


def test_the_text_says_time_bottleneck_and_the_host():
    status, out, _ = call(*SMALL, "--from", "striped", "--to", "sharded:2")
    assert status == 0
    for words in (
        "1 expert of 128 x 32 on trimoe, striped to sharded:2",
        "bottleneck",
        "waves 1",
        "by the host",
    ):
        assert words in out


def test_all_topologies_with_the_ports_they_need():
    status, out, _ = call(*SMALL, "--topology", "all", "--json", "-")
    results = json.loads(out)
    assert (status, list(results)) == (0, ["chain", "ring", "mesh", "full", "bus", "groups"])
    assert [one["config"]["hardware"]["link"]["ports"] for one in results.values()] == [2, 2, 2, 3, 2, 2]
    assert len({json.dumps(one["host"]) for one in results.values()}) == 1
    assert all(one["host_speedup"] == one["host"]["time_ns"] / one["time_ns"] for one in results.values())
    status, out, _ = call(*SMALL, "--topology", "all")
    assert all(f"\n{name}" in out for name in results)


def test_files_are_written(tmp_path):
    commands, timeline, plot = tmp_path / "c.csv.gz", tmp_path / "t.json", tmp_path / "p.png"
    assert call(*SMALL, "--commands", commands, "--timeline", timeline, "--plot", plot).status == 0
    device = load_hardware("trimoe", ["dimm.ranks=1"]).lane_device()
    report = check_lanes(read_commands(str(commands)), device, lanes=8)
    assert report.ok
    assert report.commands > 0
    events = json.loads(timeline.read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} == {"read", "write"}
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_commands_of_experts_that_take_turns_are_refused_before_they_move(tmp_path, monkeypatch):
    monkeypatch.setattr("ndpsim.simulate.simulate_relayout", lambda *_, **__: pytest.fail("simulated"))
    assert refused_call(*SMALL, "--experts", 5, "--commands", tmp_path / "c.csv") == "unsupported --commands"
    assert list(tmp_path.iterdir()) == []
