"""``ndpsim relayout``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout

import pytest

from ndpsim import check_lanes, load_hardware, read_commands
from ndpsim.cli.main import main

SMALL = [
    "relayout", "--shape", "128,32", "--set", "dimm.count=4", "--set", "host.channels=2", "--set", "dimm.ranks=1"
]  # fmt: skip


def call(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as caught:
        main([*SMALL, *arguments])
    lines = [line for line in err.getvalue().splitlines() if "compil" not in line]
    return caught.value.code or 0, out.getvalue(), "\n".join(lines)


def test_json_alone_is_printed():
    status, out, err = call("--experts", "2", "--json", "-", "--no-host")
    result = json.loads(out)
    assert (status, err, result["host"]) == (0, "", None)
    assert (result["moved"], result["weight_bytes"]) == (2, 2 * 3 * 128 * 32 * 2)
    assert result["topology"] == "ring"


def test_the_text_says_time_bottleneck_and_the_host():
    status, out, _ = call("--from", "striped", "--to", "sharded:2")
    assert status == 0
    for words in (
        "1 expert of 128 x 32 on trimoe, striped to sharded:2",
        "bottleneck",
        "waves 1",
        "by the host",
    ):
        assert words in out


def test_all_topologies_with_the_ports_they_need():
    status, out, _ = call("--topology", "all", "--json", "-")
    results = json.loads(out)
    assert (status, list(results)) == (0, ["chain", "ring", "mesh", "full", "bus", "groups"])
    assert [one["config"]["hardware"]["link"]["ports"] for one in results.values()] == [2, 2, 2, 3, 2, 2]
    assert len({json.dumps(one["host"]) for one in results.values()}) == 1
    status, out, _ = call("--topology", "all")
    assert all(f"\n{name}" in out for name in results)


def test_files_are_written(tmp_path):
    commands, timeline, plot = tmp_path / "c.csv.gz", tmp_path / "t.json", tmp_path / "p.png"
    status, _, err = call("--commands", str(commands), "--timeline", str(timeline), "--plot", str(plot))
    assert (status, err) == (0, "")
    device = load_hardware("trimoe", ["dimm.ranks=1"]).lane_device()
    report = check_lanes(read_commands(str(commands)), device, lanes=8)
    assert report.ok
    assert report.commands > 0
    events = json.loads(timeline.read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} == {"read", "write"}
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--topology", "rinng"], "--topology: unknown topology 'rinng'; did you mean 'ring'?"),
        (["--topology", "full"], "link.ports: 2 is too few: full of 4 DIMMs needs 3"),
        (["--from", "stripped"], "--from: unknown layout 'stripped'; did you mean 'striped'?"),
        (["--from-dimms", "0,a"], "--from-dimms: 'a' is not a whole number"),
        (["--from-dimms", "0,1"], "--from-dimms: 2 DIMMs for 1 experts"),
        (
            ["--from-dimms", "0", "--to", "localized", "--to-dimms", "0", "--commands", "c.csv"],
            "nothing moved",
        ),
        (["--experts", "0"], "--experts: 0 is not a whole number from 1 to 64"),
        (["--topology", "all", "--timeline", "x.json"], "--timeline: needs a topology of its own, not all"),
        (["--hw", "edge", "--set", "dimm.count=4"], "link: is missing"),
        (["--set", "link.ports=0"], "link.ports: 0 is not a whole number from 1"),
    ],
)
def test_mistakes_are_one_line(arguments, line):
    status, out, err = call(*arguments)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert line in err


def test_commands_of_experts_that_take_turns_are_refused_before_they_move(tmp_path, monkeypatch):
    monkeypatch.setattr("ndpsim.simulate.simulate_relayout", lambda *_, **__: pytest.fail("simulated"))
    status, out, err = call("--experts", "5", "--commands", str(tmp_path / "c.csv"))
    assert (status, out, list(tmp_path.iterdir())) == (2, "", [])
    assert err == "ndpsim: error: --commands: is for experts that move at once, 4 at most, not 5"
