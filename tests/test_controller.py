"""The fast controller against the readable one, on traces of every kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.dram import sink, state
from ndpsim.dram.engines import MaskController, ScanController, compare_channels, make_controller
from ndpsim.simulate.lane import command_room, decode_commands, run_channel
from ndpsim.spec import Device, lower, resolve
from ndpsim.spec.standard import RD, RDA

DEVICES = [
    ("DDR4", "DDR4_4Gb_x8", "DDR4_2400R"),
    ("DDR4", "DDR4_8Gb_x16", "DDR4_3200AA"),
    ("DDR5", "DDR5_8Gb_x8", "DDR5_4800AN"),
    ("DDR5", "DDR5_16Gb_x16", "DDR5_3200BN"),
]


REFRESH = {"DDR4": ["none", "all-bank", "staggered"], "DDR5": ["none", "all-bank", "staggered", "same-bank"]}


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Device, state.ControllerOptions, dict[str, np.ndarray]]:
    ranks = draw(st.sampled_from([1, 2, 4]))
    # A short refresh interval brings several refreshes into a short run.
    overrides = {"nREFI": draw(st.sampled_from([901, 1500, 4000])), "nRFC": draw(st.sampled_from([60, 200]))}
    preset = draw(st.sampled_from(DEVICES))
    if preset[0] == "DDR5":
        overrides["nRFCsb"] = draw(st.sampled_from([20, 100]))
    device = resolve(*preset, ranks, overrides)
    options = state.ControllerOptions(
        scheduler=draw(st.sampled_from(["FRFCFS", "FRFCFS-RowHit"])),
        row_policy=draw(st.sampled_from(["open", "closed-cap"])),
        row_cap=draw(st.integers(1, 5)),
        refresh=draw(st.sampled_from(REFRESH[device.standard.name])),
        read_buffer=draw(st.sampled_from([1, 2, 5, 32, 65, 256])),
        write_buffer=draw(st.sampled_from([1, 3, 10, 32, 65, 256])),
    )
    count = draw(st.integers(1, 150))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, columns = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([2, 16, 64]))
    writes = draw(st.sampled_from([0.0, 0.1, 0.4, 0.9, 1.0]))
    one_bank = draw(st.booleans())
    place = {
        "rank": rng.integers(0, ranks, count),
        "bankgroup": rng.integers(0, 1 if one_bank else device.bankgroups, count),
        "bank": rng.integers(0, 1 if one_bank else device.banks_per_group, count),
        "row": rng.integers(0, rows, count),
        "column": rng.integers(0, columns, count),
    }
    address = np.zeros(count, dtype=np.int64)
    for field in place.values():
        address = address * 1024 + field
    load = place | {"write": (rng.random(count) < writes).astype(np.int64), "address": address}
    gaps = rng.integers(0, draw(st.sampled_from([2, 30, 400])), count)
    load["cycle"] = np.cumsum(gaps) if draw(st.booleans()) else np.zeros(count, dtype=np.int64)
    return device, options, load


def run(make, device, options, load, data_sink=None):
    tables, policy = lower(device), state.make_policy(options)
    channel = make(tables, policy, data_sink is not None)
    source = state.make_source(tables, *load.values())
    commands = run_channel(channel, source, data_sink or sink.nobody(), command_room(), len(load["rank"]))
    return channel, decode_commands(commands, tables)


def readable(tables, policy, with_sink):
    """The controller that can be read, as `make_controller`."""
    return ScanController(tables, policy)


@settings(max_examples=100, deadline=None)
@given(work=workloads())
def test_fast_and_readable_issue_the_same_commands_and_count_the_same(work):
    (fast, one), (slow, other) = (run(make, *work) for make in (make_controller, readable))
    assert one.columns().T.tolist() == other.columns().T.tolist()
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
    load["write"][:] = 0
    dram, unit = ticks
    service, traces, done = service_cycles * unit, [], []
    for make in (make_controller, readable):
        data = sink.make_sink(depth, servers, *ticks, sink.a_row_each(len(load["rank"])))
        data.value[sink.SERVICE] = service
        traces.append(run(make, device, options, load, data)[1])
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
    """Commands that the readable controller issues for some mixtures, by refresh."""
    traces, rng = {}, np.random.default_rng(11)
    for refresh in REFRESH["DDR5"]:
        device = resolve("DDR5", "DDR5_8Gb_x8", "DDR5_4800AN", 2, {"nREFI": 901, "nRFC": 60})
        options = state.ControllerOptions(row_policy="closed-cap", row_cap=2, refresh=refresh, read_buffer=5)
        sizes = {"rank": 2, "bankgroup": 2, "bank": 2, "row": 2, "column": 4, "write": 2}
        load = {name: rng.integers(0, size, 60) for name, size in sizes.items()}
        load |= {"address": rng.integers(0, 40, 60), "cycle": np.cumsum(rng.integers(0, 40, 60))}
        traces[refresh] = run(readable, device, options, load)[1].columns().T.tolist()
    return traces


def test_the_readable_controller_can_be_stepped_through_in_python():
    """It issues the same without Numba as with it."""
    script = f"import json, runpy; print(json.dumps(runpy.run_path({__file__!r})['traces_of_readable']()))"
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    out = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    assert json.loads(out.stdout) == traces_of_readable()


@st.composite
def long_runs(draw: st.DrawFn) -> tuple[Device, state.ControllerOptions, list[np.ndarray]]:
    """Thousands of requests: rows that are hit for long, reads and writes by turns, few addresses."""
    device = resolve(*draw(st.sampled_from(DEVICES)), draw(st.sampled_from([1, 2, 4, 8])))
    options = state.ControllerOptions(
        scheduler=draw(st.sampled_from(["FRFCFS", "FRFCFS-RowHit"])),
        row_policy=draw(st.sampled_from(["open", "closed-cap"])),
        row_cap=draw(st.sampled_from([1, 2, 4, 16])),
        refresh=draw(st.sampled_from(REFRESH[device.standard.name])),
        read_buffer=draw(st.sampled_from([1, 4, 16, 32, 64, 65, 100, 256])),
        write_buffer=draw(st.sampled_from([1, 4, 16, 32, 64, 65, 100, 256])),
    )
    count, rng = 3000, np.random.default_rng(draw(st.integers(0, 2**32)))
    step, turn = draw(st.sampled_from([1, 1, 3, 17])), draw(st.integers(1, 200))
    number = np.arange(count) // draw(st.sampled_from([1, 1, 2, 50])) * step
    if draw(st.booleans()):
        number = rng.integers(0, draw(st.sampled_from([40, 500, 1 << 20])), count)
    place, rest = [], number
    for size in (device.bankgroups, 16, device.banks_per_group, device.ranks):
        place.append(rest % size)
        rest = rest // size
    bankgroup, column, bank, rank = place
    writes = {
        "none": np.zeros(count, dtype=np.int64),
        "by turns": np.arange(count) // turn % 2,
        "a few": (rng.random(count) < 0.1).astype(np.int64),
        "a third": (rng.random(count) < 0.33).astype(np.int64),
    }[draw(st.sampled_from(["none", "by turns", "by turns", "a few", "a third"]))]
    return device, options, [rank, bankgroup, bank, rest % device.rows, column, writes, number]


@settings(max_examples=150, deadline=None)
@given(long_runs())
def test_masks_and_scan_agree_over_thousands_of_requests(work):
    device, options, load = work
    tables, policy = lower(device), state.make_policy(options)
    traces = []
    for make in (MaskController, ScanController):
        channel, source = make(tables, policy), state.make_source(tables, *load)
        commands = run_channel(channel, source, sink.nobody(), command_room(), len(load[0]))
        traces.append((channel, commands.entry[: commands.length[0]]))
    (masks, ours), (scan, plain) = traces
    assert np.array_equal(ours, plain)
    assert compare_channels(masks, scan) == []
