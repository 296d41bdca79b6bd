"""The fast controller against the readable one: traces of every kind, pauses, idle time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.drawn_requests import PLACE, drawn_places
from builders.one_channel import run_on
from mistakes import refused
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dram import controller, sink, state
from ndpsim.dram.engines import FastController, ScanController, compare_channels, make_controller
from ndpsim.dram.spec import Device, lower, resolve
from ndpsim.dram.spec.standard import READ as RD
from ndpsim.dram.spec.standard import READ_AP as RDA
from ndpsim.dram.traces import Requests
from ndpsim.simulate import Memory, program, run_requests, run_trace
from ndpsim.simulate.lane import command_room, run_channel
from ndpsim.simulate.program import IdleTime
from pairs import all_pairs

DEVICES = [
    ("DDR4", "DDR4_4Gb_x8", "DDR4_2400R"),
    ("DDR4", "DDR4_8Gb_x16", "DDR4_3200AA"),
    ("DDR5", "DDR5_8Gb_x8", "DDR5_4800AN"),
    ("DDR5", "DDR5_16Gb_x16", "DDR5_3200BN"),
]


REFRESH = {"DDR4": ["none", "all-bank", "staggered"], "DDR5": ["none", "all-bank", "staggered", "same-bank"]}


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Device, ControllerOptions, list[np.ndarray]]:
    ranks = draw(st.sampled_from([1, 2, 4]))
    # A short refresh interval brings several refreshes into a short run.
    overrides = {"nREFI": draw(st.sampled_from([901, 1500, 4000])), "nRFC": draw(st.sampled_from([60, 200]))}
    preset = draw(st.sampled_from(DEVICES))
    if preset[0] == "DDR5":
        overrides |= {"nRFCsb": draw(st.sampled_from([20, 100])), "nREFI2": overrides["nREFI"]}
    device = resolve(*preset, ranks, overrides)
    options = ControllerOptions(
        scheduler=draw(st.sampled_from(["FRFCFS", "FRFCFS-RowHit"])),
        row_policy=draw(st.sampled_from(["open", "closed-cap"])),
        row_cap=draw(st.integers(1, 5)),
        refresh=draw(st.sampled_from(REFRESH[device.standard.name])),
        refresh_control=draw(st.sampled_from([None, "reference"])),
        read_buffer=draw(st.sampled_from([1, 2, 5, 32, 65, 256])),
        write_buffer=draw(st.sampled_from([1, 3, 10, 32, 65, 256])),
    )
    count = draw(st.integers(1, 150) | st.just(2000))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, columns = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([2, 16, 64]))
    banks = (1, 1) if draw(st.booleans()) else (device.bankgroups, device.banks_per_group)
    sizes = (ranks, *banks, rows, columns)
    place, address = drawn_places(rng, count, sizes)
    if draw(st.booleans()):  # in order: bank groups in turn, long row hits, a place several times
        address = np.arange(count) // draw(st.sampled_from([1, 1, 2, 50])) % np.prod(sizes)
        rank, bank, row, column, group = np.unravel_index(address, (ranks, banks[1], rows, columns, banks[0]))
        place = dict(zip(PLACE, (rank, group, bank, row, column), strict=True))
    write = (rng.random(count) < draw(st.sampled_from([0.0, 0.1, 0.4, 0.9, 1.0]))).astype(np.int64)
    if draw(st.booleans()):
        write = np.arange(count) // draw(st.integers(1, 200)) % 2
    gaps = rng.integers(0, draw(st.sampled_from([2, 30, 400])), count)
    cycle = np.cumsum(gaps) if draw(st.booleans()) else np.zeros(count, dtype=np.int64)
    return device, options, [*place.values(), write, address, cycle]


@settings(max_examples=200, deadline=None)
@given(work=workloads())
def test_fast_and_readable_issue_the_same_commands_and_count_the_same(work):
    (fast, one), (slow, other) = (run_on(make, *work) for make in (make_controller, ScanController))
    assert np.array_equal(one.columns(), other.columns())
    assert compare_channels(fast, slow) == []


@settings(max_examples=80, deadline=None)
@given(
    work=workloads(),
    depth=st.integers(1, 40),
    servers=st.integers(1, 9),
    ticks=st.sampled_from([(5, 12), (1, 1), (5, 4), (3, 7)]),
    service_cycles=st.integers(1, 60),
)
def test_a_sink_holds_reads_back_alike_in_fast_and_readable(work, depth, servers, ticks, service_cycles):
    device, options, load = work
    load[5][:] = 0
    dram, unit = ticks
    service, traces, done = service_cycles * unit, [], []
    for make in (partial(make_controller, with_sink=True), ScanController):
        data = sink.make_sink(depth, servers, *ticks, sink.a_group_each(len(load[0])))
        data.value[sink.SERVICE] = service
        traces.append(run_on(make, device, options, load, data)[1])
        done.append(data.done.tolist())
    assert traces[0].columns().T.tolist() == traces[1].columns().T.tolist()
    assert done[0] == done[1]
    # Servers take bursts in the order of the reads, on edges of their clock; a read issues when there is room.
    starts, free = [], [0] * servers
    for n, clock in enumerate(traces[0].clock[np.isin(traces[0].command, (RD, RDA))].tolist()):
        if n >= depth:
            assert clock * dram >= starts[n - depth]
        there = (clock + lower(device).read_latency) * dram
        start = max(there, free[n % servers], starts[-1] if starts else 0)
        starts.append(-(-start // unit) * unit)
        free[n % servers] = starts[-1] + service
    assert sorted(done[0]) == sorted(start + service for start in starts)


def traces_of_readable():
    """Commands of the readable controller for several mixtures, by refresh."""
    traces, rng = {}, np.random.default_rng(11)
    for refresh in REFRESH["DDR5"]:
        device = resolve("DDR5", "DDR5_8Gb_x8", "DDR5_4800AN", 2, {"nREFI": 901, "nRFC": 60})
        options = ControllerOptions(row_policy="closed-cap", row_cap=2, refresh=refresh, read_buffer=5)
        sizes = {"rank": 2, "bankgroup": 2, "bank": 2, "row": 2, "column": 4, "write": 2}
        load = {name: rng.integers(0, size, 60) for name, size in sizes.items()}
        load |= {"address": rng.integers(0, 40, 60), "cycle": np.cumsum(rng.integers(0, 40, 60))}
        traces[refresh] = run_on(ScanController, device, options, [*load.values()])[1].columns().T.tolist()
    return traces


def test_the_readable_controller_can_be_stepped_through_in_python():
    """It issues the same commands without Numba."""
    script = "import json, test_controller; print(json.dumps(test_controller.traces_of_readable()))"
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths}
    out = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    assert json.loads(out.stdout) == traces_of_readable()


def hot_bank(device: Device, count: int, seed: int) -> list[np.ndarray]:
    """Reads of which every other one is for another row of a bank, and waits long while others overtake."""
    rng = np.random.default_rng(seed)
    hot = np.arange(count) % 2 == 0
    place = [
        rng.integers(0, size, count) for size in (device.ranks, device.bankgroups, device.banks_per_group)
    ]
    for field in place:
        field[hot] = 0
    number = np.arange(count)
    return [*place, rng.integers(0, 64, count), number % 16, np.zeros(count, dtype=np.int64), number]


@pytest.mark.parametrize(
    *all_pairs(
        {
            "depth": [None, 2, 40],
            "row_policy": ["open", "closed-cap"],
            "slots": [64, 65, 129, 256],
        }
    )
)
def test_long_queues_keep_the_order_of_age(slots, row_policy, depth):
    # Refreshes often close rows that reads wait for, which then return to a queue that is full.
    device = resolve(*DEVICES[2], 2 if row_policy == "open" else 1, {"nREFI": 1500, "nRFC": 200})
    options = ControllerOptions(row_policy=row_policy, row_cap=2, read_buffer=slots)
    channels, traces, sinks = [], [], []
    for make in (partial(FastController, with_sink=depth is not None), ScanController):
        data_sink = sink.null_sink()
        if depth is not None:
            data_sink = sink.make_sink(depth, 2, 1, 1, sink.a_group_each(2000))
            data_sink.value[sink.SERVICE] = 60
        channel, trace = run_on(make, device, options, hot_bank(device, 2000, slots), data_sink)
        channels.append(channel)
        traces.append(trace)
        sinks.append(data_sink.done)
    assert np.array_equal(traces[0].columns(), traces[1].columns())
    assert np.array_equal(*sinks)
    assert compare_channels(*channels) == []
    end = int(traces[0].clock[-1]) + 1
    assert channels[0].open_clocks(end) == channels[1].open_clocks(end)


@pytest.mark.parametrize("slots", [64, 256])
def test_the_fast_controller_runs_all_row_policies_and_long_queues(slots):
    for row_policy in ("open", "closed-cap"):
        options = ControllerOptions(row_policy=row_policy, read_buffer=slots, write_buffer=slots)
        for preset in DEVICES:
            tables = lower(resolve(*preset, 4))
            for with_sink in (False, True):
                assert isinstance(
                    make_controller(tables, state.make_policy(options), with_sink), FastController
                )


@pytest.mark.parametrize("seed", range(3))
def test_reads_return_to_a_queue_that_has_no_free_slot_at_their_age(seed):
    # The first reads are activated, 64 others fill their segment, and a refresh closes the rows of the first.
    device, count, lead = resolve(*DEVICES[2], 2, {"nREFI": 901, "nRFC": 200}), 260, 59
    tables, rng = lower(device), np.random.default_rng(seed)
    policy = state.make_policy(ControllerOptions(read_buffer=256))
    cycle = np.concatenate([np.arange(lead) * 40, 2600 + 150 * seed + np.arange(count - lead)])
    zero, number = np.zeros(count, dtype=np.int64), np.arange(count)
    bankgroup, bank, row = (
        rng.integers(0, size, count) for size in (device.bankgroups, device.banks_per_group, 64)
    )
    traces = []
    for channel in (FastController(tables, policy, with_sink=True), ScanController(tables, policy)):
        source = state.make_source((zero, bankgroup, bank, row, zero, zero, number), cycle)
        data_sink = sink.make_sink(55, 1, 1, 1, sink.a_group_each(count))
        data_sink.value[sink.SERVICE] = 900
        commands = run_channel(channel, source, data_sink, command_room(), count // 2)
        traces.append(commands.entry[: commands.length[0]])
    assert np.array_equal(*traces)


# ---- A controller that gets later requests only after a pause issues the commands of a run without a pause

BY_RANKS = {
    ranks: resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=ranks, overrides={"nREFI": 3000})
    for ranks in (1, 3)
}


def requests(device, seed, count):
    """Reads and writes, some to the same burst, in order of their cycles."""
    rng = np.random.default_rng(seed)
    rank, group, bank = (rng.integers(n, size=count) for n in (device.ranks, device.bankgroups, 2))
    row, column, write = rng.integers(3, size=count), rng.integers(8, size=count), rng.integers(2, size=count)
    address = np.ravel_multi_index(
        (rank, group, bank, row, column), (device.ranks, device.bankgroups, 2, 3, 8)
    )
    cycle = np.sort(rng.integers(0, 12 * count, size=count))
    return rank, group, bank, row, column, write, address, cycle


def run(make, device, load, pauses):
    """All that happens; `pauses`: when the controller learns of the requests up to the next pause."""
    tables = lower(device)
    channel = make(tables, state.make_policy(ControllerOptions(write_buffer=8)))
    source = state.make_source(load[:7], *load[7:])
    count, cycle = len(source.place), source.cycle
    data = sink.make_sink(64, 1, 5, 12, sink.a_group_each(count))
    commands = command_room()
    for pause in [*pauses, state.FAR]:
        source.admitted[0] = np.searchsorted(cycle, pause)
        channel.value[state.PAUSE] = pause
        outcome = channel.run(source, data, commands, count, state.FAR)
        assert outcome in (controller.DONE, controller.PAUSED)
    recorded = commands.entry[: commands.length[0]].tolist()
    return (
        channel.value.tolist(),
        channel.issued.tolist(),
        channel.latencies.tolist(),
        data.done.tolist(),
        recorded,
    )


@pytest.mark.parametrize("make", [ScanController, FastController])
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(BY_RANKS)), st.integers(0, 10**6), st.lists(st.integers(1, 6000), max_size=60))
def test_pauses_change_nothing(make, ranks, seed, pauses):
    load = requests(BY_RANKS[ranks], seed, 400)
    assert run(make, BY_RANKS[ranks], load, sorted(pauses)) == run(make, BY_RANKS[ranks], load, [])


# ---- Idle time between timed requests: whole periods of refreshes are jumped over, and nothing else changes


def timed(cycles, seed=0, banks=20):
    """Reads and writes at these cycles, some to the same rows."""
    rng = np.random.default_rng(seed)
    address = rng.integers(0, 1 << banks, len(cycles)) & ~63
    return Requests(address=address, write=rng.random(len(cycles)) < 0.4, cycle=np.asarray(cycles))


def memory(ranks=1, refresh="all-bank", row_policy="open", read_buffer=32, channels=1, **overrides):
    options = ControllerOptions(refresh=refresh, row_policy=row_policy, read_buffer=read_buffer)
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
