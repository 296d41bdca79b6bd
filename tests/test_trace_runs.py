"""Request traces through a memory: channels, time, latency, load."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from mistakes import refused
from ndpsim.audit import check
from ndpsim.dram.spec import resolve
from ndpsim.dram.state import ControllerOptions
from ndpsim.dram.traces import Requests
from ndpsim.simulate import Memory, TraceResult, run_trace, sweep_load

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


@pytest.mark.parametrize("refresh", ["all-bank", "staggered", "same-bank", "none"])
@pytest.mark.parametrize("row_policy", ["open", "closed-cap"])
@pytest.mark.parametrize("ranks", [1, 4])
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


def test_results_are_plain_data():
    result = run_trace(stream(10))
    assert isinstance(result, TraceResult)
    assert "command_traces" not in result.to_dict()
