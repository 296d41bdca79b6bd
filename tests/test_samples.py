"""Curves of a run: samples of its counters, and what both sides of a shared DIMM moved over time."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndpsim.simulate import contention as simulated_contention
from ndpsim.simulate import simulate_contention
from ndpsim.simulate.samples import Samples, equal_clocks, sample_clocks
from ndpsim.workload.models import Expert

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
