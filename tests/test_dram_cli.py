"""`ndpsim dram`, `compare` and what they refuse."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import pytest

from ndpsim.cli.main import main
from ndpsim.traces import read_commands

REFERENCE = Path(__file__).parents[1] / "validation" / "ramulator2"
CASE = REFERENCE / "ddr5_r2_mixed_wr30.trace.gz"
OF_CASE = ["--timing", "DDR5_4800BN", "--ranks", "2", "--mapper", "MOP4CLXOR"]


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return int(stop.value.code or 0)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "requests.trace"
    path.write_text("".join(f"{'LD' if n % 3 else 'ST'} {n * 4160:#x}\n" for n in range(400)))
    return path


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert call("dram", *arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("ndpsim: error: ")
    return said.err.removeprefix("ndpsim: error: ")


def test_json_is_one_object_with_every_figure(trace, capsys):
    assert call("dram", trace, "--json", "-") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["requests"] == 400
    assert result["commands"]["RD"] + result["commands"]["WR"] == 400
    assert {
        "cycles",
        "time_ns",
        "bandwidth_gbps",
        "peak_fraction",
        "row_hits",
        "row_misses",
        "row_conflicts",
    } <= set(result)
    assert {"mean", "p50", "p90", "p99", "max"} == set(result["read_latency_ns"])
    assert {"read_latency_histogram", "queue_occupancy", "accepted", "config", "wall_s", "energy_nj"} <= set(
        result
    )


def test_the_table_has_units_and_whose_clock(trace, capsys):
    assert call("dram", trace) == 0
    text = capsys.readouterr().out
    for word in ("GB/s", "% of 19.20 GB/s", "DRAM clocks of 0.41667 ns (2400 MHz)", "p99"):
        assert word in text


def test_a_written_trace_is_legal_to_the_checker(trace, tmp_path, capsys):
    commands = tmp_path / "commands.csv.gz"
    assert call("dram", trace, "--ranks", 2, "--set", "nCL=40", "--commands", commands) == 0
    channel = ["--standard", "DDR5", "--org", "DDR5_16Gb_x8", "--timing", "DDR5_4800AN", "--ranks", 2]
    assert call("check", commands, *channel, "--set", "nCL=40") == 0
    assert call("check", commands, *channel, "--set", "nCL=40", "--set", "nRCD=35") == 1
    assert "tRCD" in capsys.readouterr().out


def test_a_trace_of_all_lanes_is_checked_lane_by_lane(tmp_path, capsys):
    commands = tmp_path / "lanes.csv"
    assert call("gemv", "--shape", "256,128", "--commands", commands) == 0
    assert call("check", commands, "--hw", "trimoe") == 0
    assert call("check", commands, "--hw", "trimoe", "--set", "dram.nRCD=37") == 1
    assert "lane 7" in capsys.readouterr().out
    assert call("check", commands, "--hw", "trimoe", "--set", "dimm.ranks=2", "--set", "dimm.count=1") == 1
    assert "lane 4 is not within 0 to 3" in capsys.readouterr().out


def test_a_trace_of_the_lanes_of_all_dimms_is_checked_lane_by_lane(tmp_path, capsys):
    commands = tmp_path / "lanes.csv"
    assert call("relayout", "--shape", "256,128", "--no-host", "--commands", commands) == 0
    assert read_commands(commands).rank.max() >= 8
    capsys.readouterr()
    assert call("check", commands, "--hw", "trimoe") == 0
    assert ", legal (128 lanes)" in capsys.readouterr().out
    assert call("check", commands, "--hw", "trimoe", "--set", "dimm.count=2") == 1
    assert "is not within 0 to 15" in capsys.readouterr().out


def test_commands_of_one_of_several_channels(trace, tmp_path, capsys):
    commands = tmp_path / "commands.csv"
    assert "choose one of the 2 channels" in refusal(capsys, trace, "--channels", 2, "--commands", commands)
    assert call("dram", trace, "--channels", 2, "--commands", commands, "--channel", 1) == 0
    assert len(read_commands(commands)) > 0
    capsys.readouterr()
    assert "2 is not a channel" in refusal(
        capsys, trace, "--channels", 2, "--commands", commands, "--channel", 2
    )


@pytest.mark.parametrize("form", ["ramulator2", "dramsim3", "drampower"])
def test_commands_in_the_format_of_another_tool(trace, tmp_path, form):
    commands = tmp_path / "commands"
    assert call("dram", trace, "--commands", commands, "--commands-format", form) == 0
    assert len(commands.read_text().splitlines()) > 400


def test_a_sweep_of_loads_and_its_picture(trace, tmp_path, capsys):
    picture = tmp_path / "sweep.png"
    assert call("dram", trace, "--sweep-load", "--plot", picture, "--json", "-") == 0
    sweep = json.loads(capsys.readouterr().out)["sweep"]
    assert [point["load"] for point in sweep] == sorted(point["load"] for point in sweep)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_latencies_drawn(trace, tmp_path):
    picture = tmp_path / "latencies.svg"
    assert call("dram", trace, "--plot", picture) == 0
    assert b"<svg" in picture.read_bytes()


def test_the_memory_of_a_hardware_file(trace, capsys):
    assert call("dram", trace, "--hw", "trimoe", "--json", "-") == 0
    config = json.loads(capsys.readouterr().out)["config"]
    assert (config["ranks"], config["channels"], config["timings"]["nCL"]) == (4, 16, 40)
    assert "give one of them" in refusal(capsys, trace, "--hw", "trimoe", "--ranks", 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mapper", "MOP"], "--mapper: unknown mapper 'MOP'"),
        (["--refresh", "all"], "--refresh: unknown refresh 'all'"),
        (["--ranks", "0"], "--ranks: 0 is not a whole number"),
        (["--read-buffer", "0"], "--read-buffer: 0 is not a whole number"),
        (["--set", "nCL"], "--set: 'nCL' is not of the form nCL=40"),
        (["--set", "nCLX=4"], "nCLX: unknown timing 'nCLX'; did you mean 'nCL'"),
        (["--commands-format", "x", "--commands", "c"], "x"),
        (["--plot", "p.xyz"], "'xyz' is no picture format"),
        (["--format", "vcd"], "vcd"),
        (["--channel", "0"], "--channel: needs --commands"),
    ],
)
def test_mistakes_are_one_line(trace, arguments, words, capsys):
    assert words in refusal(capsys, trace, *arguments)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x00\x01\x02junk\xff", "no known format"),
        (gzip.compress(b"LD 0x40\n" * 1000, mtime=0)[:-9], "truncated gzip"),
        (b"LD 0x40\nLD 0x200000000\n", ":2: address 0x200000000 is beyond the memory's 0x200000000 bytes"),
        (b"LD 0x40\nXX 0x80\n", ":2: "),
    ],
)
def test_senseless_traces_are_one_line_that_names_the_line(tmp_path, content, words, capsys):
    path = tmp_path / "trace"
    path.write_bytes(content)
    assert words in refusal(capsys, path)


def test_windows_line_ends_and_wrapping_are_read(tmp_path, capsys):
    path = tmp_path / "trace"
    path.write_bytes(b"LD 0x40\r\nST 0x200000080\r\n")
    assert call("dram", path, "--wrap", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 2


@pytest.mark.skipif(importlib.util.find_spec("ramulator") is not None, reason="Ramulator is installed")
def test_without_ramulator_compare_says_so(trace, capsys):
    assert call("compare", "ramulator", trace) == 2
    assert "no package 'ramulator' can be imported" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("ramulator") is None, reason="Ramulator is not installed")
def test_ramulator_issues_the_same_commands(capsys):
    assert call("compare", "ramulator", CASE, *OF_CASE, "--json", "-") == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["identical"]
    assert outcome["commands"] == 22678
    assert outcome["ours_mps"] > outcome["ramulator_mps"]


def test_another_simulator_is_unknown(trace, capsys):
    assert call("compare", "dramsim3", trace) == 2
    assert "unknown simulator 'dramsim3'" in capsys.readouterr().err
