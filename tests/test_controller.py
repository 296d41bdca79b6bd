"""The fast controller against the readable one, on traces of every kind."""

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

from drawn_requests import PLACE, drawn_places
from ndpsim.dram import sink, state
from ndpsim.dram.engines import FastController, ScanController, compare_channels, make_controller
from ndpsim.dram.spec import Device, lower, resolve
from ndpsim.dram.spec.standard import READ as RD
from ndpsim.dram.spec.standard import READ_AP as RDA
from ndpsim.simulate.lane import command_room, run_channel
from one_channel import run_on

DEVICES = [
    ("DDR4", "DDR4_4Gb_x8", "DDR4_2400R"),
    ("DDR4", "DDR4_8Gb_x16", "DDR4_3200AA"),
    ("DDR5", "DDR5_8Gb_x8", "DDR5_4800AN"),
    ("DDR5", "DDR5_16Gb_x16", "DDR5_3200BN"),
]


REFRESH = {"DDR4": ["none", "all-bank", "staggered"], "DDR5": ["none", "all-bank", "staggered", "same-bank"]}


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Device, state.ControllerOptions, list[np.ndarray]]:
    ranks = draw(st.sampled_from([1, 2, 4]))
    # A short refresh interval brings several refreshes into a short run.
    overrides = {"nREFI": draw(st.sampled_from([901, 1500, 4000])), "nRFC": draw(st.sampled_from([60, 200]))}
    preset = draw(st.sampled_from(DEVICES))
    if preset[0] == "DDR5":
        overrides |= {"nRFCsb": draw(st.sampled_from([20, 100])), "nREFI2": overrides["nREFI"]}
    device = resolve(*preset, ranks, overrides)
    options = state.ControllerOptions(
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
        options = state.ControllerOptions(row_policy="closed-cap", row_cap=2, refresh=refresh, read_buffer=5)
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


@pytest.mark.parametrize("depth", [None, 2, 40])
@pytest.mark.parametrize("row_policy", ["open", "closed-cap"])
@pytest.mark.parametrize("slots", [64, 65, 129, 256])
def test_long_queues_keep_the_order_of_age(slots, row_policy, depth):
    # Refreshes often close rows that reads wait for, which then return to a queue that is full.
    device = resolve(*DEVICES[2], 2 if row_policy == "open" else 1, {"nREFI": 1500, "nRFC": 200})
    options = state.ControllerOptions(row_policy=row_policy, row_cap=2, read_buffer=slots)
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
        options = state.ControllerOptions(row_policy=row_policy, read_buffer=slots, write_buffer=slots)
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
    policy = state.make_policy(state.ControllerOptions(read_buffer=256))
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
