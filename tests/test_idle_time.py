"""Idle time between timed requests: whole periods of refreshes are jumped over, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistakes import refused
from ndpsim.dram.traces import Requests
from ndpsim.simulate import Memory, program, run_requests, run_trace
from ndpsim.simulate.program import IdleTime


def timed(cycles, seed=0, banks=20):
    """Reads and writes at these cycles, some to the same rows."""
    rng = np.random.default_rng(seed)
    address = rng.integers(0, 1 << banks, len(cycles)) & ~63
    return Requests(address=address, write=rng.random(len(cycles)) < 0.4, cycle=np.asarray(cycles))


def memory(ranks=1, refresh="all-bank", row_policy="open", read_buffer=32, channels=1, **overrides):
    options = program.state.ControllerOptions(refresh=refresh, row_policy=row_policy, read_buffer=read_buffer)
    overrides = {"nREFI": 1500, "nRFC": 200, "nRFCsb": 100} | overrides
    return Memory.named(ranks=ranks, overrides=overrides, options=options, channels=channels)


def outcome(requests, device, **options):
    result = run_requests(requests, device, **options).to_dict()
    return {name: value for name, value in result.items() if not name.endswith("_s") and name != "host"}


@pytest.fixture
def jumps(monkeypatch):
    """The clocks of each jump; every idle time of more than a few periods is jumped over."""
    made, skip = [], IdleTime.skip

    def noted(self, until, run_until):
        before = self.clocks
        skip(self, until, run_until)
        made.append(self.clocks - before)

    monkeypatch.setattr(program, "LEAST_PERIODS", 4)
    monkeypatch.setattr(IdleTime, "skip", noted)
    return made


def test_requests_weeks_apart_take_no_time_and_no_refresh_is_lost():
    month = 10**15  # clocks of 5/12 ns
    result = run_trace(timed([month, month + 100, 2 * month]))
    clock_ps = 1e6 / 2400
    assert result.time_ns == pytest.approx(2 * month * clock_ps / 1e3, rel=1e-9)
    # 9360 clocks (3.9 us, rounded down) a refresh of the only rank; the last falls due with the last request.
    assert abs(result.commands["REFab"] - 2 * month // 9360) <= 1
    assert result.accepted["cycles"] == 2 * month


@pytest.mark.usefixtures("jumps")
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 7, 900, 4000, 60_000, 61_234, 300_001]), min_size=1, max_size=30),
    st.sampled_from(["all-bank", "staggered", "same-bank"]),
    st.sampled_from(["open", "closed-cap"]),
    st.sampled_from([(1, 32), (2, 32), (4, 300)]),
    st.integers(0, 99),
)
def test_a_jump_changes_nothing_but_the_time_it_takes(gaps, refresh, row_policy, ranks_and_slots, seed):
    ranks, slots = ranks_and_slots
    device = memory(ranks, refresh, row_policy, slots)
    requests = timed(np.cumsum(gaps), seed)
    stepped = program.LEAST_PERIODS
    jumped = outcome(requests, device, exact_check=True)
    try:
        program.LEAST_PERIODS = 1 << 40
        assert outcome(requests, device) == jumped
    finally:
        program.LEAST_PERIODS = stepped


def test_idle_time_is_jumped_over_in_whole_periods(jumps):
    run_requests(timed([100, 200_000, 200_050, 900_000]), memory())
    assert len(jumps) == 2
    assert all(clocks > 0 and clocks % 1500 == 0 for clocks in jumps)
    assert sum(jumps) > 900_000 * 0.8


def test_a_queue_that_is_not_empty_yet_is_not_jumped_over(jumps):
    # 4000 row conflicts, one behind the other, and one request more while they are still served.
    cycles = [0] * 4000 + [30_000]
    address = np.arange(4001) * (1 << 21)
    requests = Requests(address=address % (1 << 34), write=np.zeros(4001, bool), cycle=np.array(cycles))
    run_requests(requests, memory(), wrap=True)
    assert jumps == []


def test_channels_jump_over_idle_time_of_their_own(jumps):
    address = np.array([0, 64, 0, 64 * 3, 128])
    cycles = np.array([0, 50_000, 400_000, 400_000, 900_000])
    requests = Requests(address=address, write=np.zeros(5, bool), cycle=cycles)
    jumped = outcome(requests, memory(channels=2))
    assert len(jumps) >= 3
    program.LEAST_PERIODS = 1 << 40
    assert outcome(requests, memory(channels=2)) == jumped


def test_recorded_refreshes_of_an_endless_pause_are_refused_by_their_bytes():
    with refused("too-large"):
        run_requests(timed([10**15]), Memory.named(), record_commands=True)


def test_a_cycle_that_controllers_take_for_never_is_refused(tmp_path):
    trace = tmp_path / "late.trace"
    trace.write_text(f"0x10 READ 5\n0x10 READ {10**18}\n")
    with refused("range late.trace:2"):
        run_trace(trace)
