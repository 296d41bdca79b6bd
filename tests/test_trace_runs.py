"""Request traces through a memory: channels, time, latency, load; `ndpsim dram` and `compare`."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from calls import call, refused_call, said
from mistakes import refused
from ndpsim.audit import check
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dram.spec import resolve
from ndpsim.dram.traces import Requests, read_commands
from ndpsim.simulate import Memory, run_trace, sweep_load
from pairs import all_pairs

CAPACITY = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN").capacity_bytes


def random_requests(count: int, writes: float = 0.0, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, CAPACITY // 64, count) * 64, (rng.random(count) < writes).astype(np.int64)


def stream(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(count, dtype=np.int64) * 64, np.zeros(count, dtype=np.int64)


# ---- one request, by hand ----------------------------------------------------------------------------


def test_a_single_read_takes_what_the_standard_says():
    # Arrival 0, ACT at clock 1, RD after tRCD, data tCL + tBL later (DDR5-4800AN: 34, 34 and 8 clocks).
    result = run_trace(stream(1), record_commands=True)
    assert result.command_traces[0].clock.tolist() == [1, 35]
    assert result.read_latency_ns["mean"] == pytest.approx((35 + 34 + 8) / 2.4)
    assert result.read_latency_ns == dict.fromkeys(result.read_latency_ns, result.read_latency_ns["max"])
    assert result.cycles == 35 + 34 + 8
    assert result.row_misses == 1


def test_a_read_of_a_write_that_is_queued_takes_a_clock():
    rows = [row << 21 for row in (0, 1, 2, 2, 2)]  # of one bank, so that the last row waits
    result = run_trace((rows, [1, 1, 1, 0, 1]))
    assert (result.reads_forwarded, result.writes_coalesced) == (1, 1)
    assert result.read_latency_ns is not None
    assert result.read_latency_ns["mean"] == result.read_latency_ns["max"] == pytest.approx(result.clock_ns)


def test_a_request_waits_for_its_cycle():
    requests = Requests.of([0, 64], [0, 0])
    timed = type(requests)(**{**vars(requests), "cycle": np.array([100, 5000])})
    trace = run_trace(timed, refresh="none", record_commands=True).command_traces[0]
    assert trace.clock.tolist() == [101, 135, 5001]


# ---- channels ---------------------------------------------------------------------------------------


def test_channels_share_the_work_and_run_as_if_alone():
    addresses, writes = random_requests(4000, 0.3)
    both = run_trace((addresses, writes), channels=2, record_commands=True)
    assert sum(channel["requests"] for channel in both.per_channel) == 4000
    for channel in (0, 1):
        mine = (addresses >> 6) % 2 == channel
        low = addresses[mine] & 63
        alone = run_trace((((addresses[mine] >> 7) << 6) | low, writes[mine]), record_commands=True)
        one, other = both.command_traces[channel].columns(), alone.command_traces[0].columns()
        assert (one == other).all()


def test_a_stream_over_two_channels_carries_twice_as_much():
    one = run_trace(stream(20_000), mapper="MOP4CLXOR", refresh="none")
    two = run_trace(stream(40_000), mapper="MOP4CLXOR", refresh="none", channels=2)
    assert two.bandwidth_gbps == pytest.approx(2 * one.bandwidth_gbps, rel=0.01)
    assert one.bandwidth_gbps < one.peak_bandwidth_gbps == pytest.approx(19.2)


# ---- refresh ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    *all_pairs(
        {
            "refresh": ["all-bank", "staggered", "same-bank", "none"],
            "row_policy": ["open", "closed-cap"],
            "ranks": [1, 4],
        }
    )
)
def test_every_refresh_is_legal_and_owes_nothing(refresh, row_policy, ranks):
    result = run_trace(
        random_requests(8000, 0.25), ranks=ranks, refresh=refresh, row_policy=row_policy, record_commands=True
    )
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks)
    report = check(result.command_traces[0], device, refresh)
    assert report.ok, report.violations[0].message
    kinds = {"all-bank": "REFab", "staggered": "REFab", "same-bank": "REFsb"}
    assert refresh == "none" or result.commands[kinds[refresh]] >= ranks * (result.cycles // 9375)


def test_same_bank_refresh_leaves_the_other_banks_working():
    requests = random_requests(30_000)
    whole, same_bank = (run_trace(requests, refresh=refresh) for refresh in ("all-bank", "same-bank"))
    assert same_bank.read_latency_ns["max"] < whole.read_latency_ns["max"]
    assert same_bank.bandwidth_gbps > whole.bandwidth_gbps


# ---- statistics -------------------------------------------------------------------------------------


def test_latency_rises_with_load_and_bandwidth_follows_it():
    memory = Memory(resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN"), ControllerOptions())
    points = sweep_load(Requests.of(*random_requests(6000)), memory, loads=(0.05, 0.2, 0.35, 1.0))
    latencies = [point.mean_ns for point in points]
    assert latencies == sorted(latencies)
    assert points[0].bandwidth_gbps == pytest.approx(points[0].offered_gbps, rel=0.03)
    assert points[-1].bandwidth_gbps < points[-1].offered_gbps


# ---- bad input --------------------------------------------------------------------------------------


def test_an_address_beyond_the_memory_is_refused_or_wrapped(tmp_path):
    trace = tmp_path / "trace.gz"
    trace.write_bytes(gzip.compress(f"LD 0x40\nLD {CAPACITY + 64:#x}\n".encode()))
    with refused("range trace.gz:2"):
        run_trace(trace)
    wrapped = run_trace(trace, wrap=True, record_commands=True).command_traces[0]
    same = run_trace(([0x40, 0x40], [0, 0]), record_commands=True).command_traces[0]
    assert (wrapped.columns() == same.columns()).all()


# ---- `ndpsim dram`, `compare` and their refusals

REFERENCE = Path(__file__).parents[1] / "validation" / "ramulator2"
CASE = REFERENCE / "ddr5_r2_mixed_wr30.trace.gz"
OF_CASE = ["--timing", "DDR5_4800BN", "--ranks", "2", "--mapper", "MOP4CLXOR"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "requests.trace"
    path.write_text("".join(f"{'LD' if n % 3 else 'ST'} {n * 4160:#x}\n" for n in range(400)))
    return path


def test_the_table_has_units_and_whose_clock(trace):
    text = said("dram", trace)
    for word in ("GB/s", "% of 19.20 GB/s", "DRAM clocks of 0.41667 ns (2400 MHz)", "p99"):
        assert word in text


def test_a_written_trace_is_legal_to_the_checker(trace, tmp_path):
    commands = tmp_path / "commands.csv.gz"
    assert call("dram", trace, "--ranks", 2, "--set", "nCL=40", "--commands", commands).status == 0
    channel = ["--standard", "DDR5", "--org", "DDR5_16Gb_x8", "--timing", "DDR5_4800AN", "--ranks", 2]
    assert call("check", commands, *channel, "--set", "nCL=40").status == 0
    done = call("check", commands, *channel, "--set", "nCL=40", "--set", "nRCD=35")
    assert (done.status, "tRCD" in done.out) == (1, True)


def test_a_trace_of_all_lanes_is_checked_lane_by_lane(tmp_path):
    commands = tmp_path / "lanes.csv"
    assert call("gemv", "--shape", "256,128", "--commands", commands).status == 0
    assert call("check", commands, "--hw", "trimoe").status == 0
    done = call("check", commands, "--hw", "trimoe", "--set", "dram.nRCD=37")
    assert (done.status, "lane 7" in done.out) == (1, True)
    done = call("check", commands, "--hw", "trimoe", "--set", "dimm.ranks=2", "--set", "dimm.count=1")
    assert (done.status, "lane 4 is not within 0 to 3" in done.out) == (1, True)


def test_a_trace_of_the_lanes_of_all_dimms_is_checked_lane_by_lane(tmp_path):
    commands = tmp_path / "lanes.csv"
    assert call("relayout", "--shape", "256,128", "--no-host", "--commands", commands).status == 0
    assert read_commands(commands).rank.max() >= 8
    assert ", lanes 128" in said("check", commands, "--hw", "trimoe")
    done = call("check", commands, "--hw", "trimoe", "--set", "dimm.count=2")
    assert (done.status, "is not within 0 to 15" in done.out) == (1, True)


def test_commands_of_one_of_several_channels(trace, tmp_path):
    commands = tmp_path / "commands.csv"
    assert refused_call("dram", trace, "--channels", 2, "--commands", commands) == "missing --commands"
    assert call("dram", trace, "--channels", 2, "--commands", commands, "--channel", 1).status == 0
    assert len(read_commands(commands)) > 0
    assert (
        refused_call("dram", trace, "--channels", 2, "--commands", commands, "--channel", 2)
        == "range --channel"
    )


def test_a_sweep_of_loads_and_its_picture(trace, tmp_path):
    picture = tmp_path / "sweep.png"
    sweep = json.loads(said("dram", trace, "--sweep-load", "--plot", picture, "--json", "-"))["sweep"]
    assert [point["load"] for point in sweep] == sorted(point["load"] for point in sweep)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_latencies_drawn(trace, tmp_path):
    picture = tmp_path / "latencies.svg"
    assert call("dram", trace, "--plot", picture).status == 0
    assert b"<svg" in picture.read_bytes()


def test_the_memory_of_a_hardware_file(trace):
    config = json.loads(said("dram", trace, "--hw", "trimoe", "--json", "-"))["config"]
    assert (config["ranks"], config["channels"], config["timings"]["nCL"]) == (4, 16, 40)
    assert refused_call("dram", trace, "--hw", "trimoe", "--ranks", 2) == "conflict --ranks"


@pytest.mark.skipif(importlib.util.find_spec("ramulator") is not None, reason="Ramulator is installed")
def test_without_ramulator_compare_says_so(trace):
    assert refused_call("compare", "ramulator", trace) == "not-installed compare ramulator"


@pytest.mark.skipif(importlib.util.find_spec("ramulator") is None, reason="Ramulator is not installed")
def test_ramulator_issues_the_same_commands():
    outcome = json.loads(said("compare", "ramulator", CASE, *OF_CASE, "--rules", "reference", "--json", "-"))
    assert outcome["identical"]
    assert outcome["commands"] == 22678
    assert outcome["ours_mps"] > outcome["ramulator_mps"]


def test_another_simulator_is_unknown(trace):
    assert refused_call("compare", "dramsim3", trace) == "unknown-name compare"
