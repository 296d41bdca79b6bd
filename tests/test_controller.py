"""The fast controller against the plain one, on traces of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.dram import sink, state
from ndpsim.dram.engines import MaskController, ScanController, compare_channels, make_controller
from ndpsim.dram.plain import PlainController, PlainSink, Request
from ndpsim.simulate.lane import command_room, decode_commands, run_channel
from ndpsim.spec import Device, lower, resolve
from ndpsim.spec.standard import RD, WR

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


def run_plain(device, options, load, data_sink=None) -> PlainController:
    plain = PlainController(lower(device), state.make_policy(options), data_sink)
    waiting = [
        (cycle, Request(WR if write else RD, rank, group, bank, row, column, address))
        for rank, group, bank, row, column, write, address, cycle in zip(
            *(load[field].tolist() for field in load), strict=True
        )
    ]
    total = len(waiting)
    while plain.counts["served"] < total:
        if waiting and waiting[0][0] <= plain.clock and plain.offer(waiting[0][1]):
            waiting.pop(0)
        if plain.counts["served"] < total:
            plain.step()
    return plain


def run(make, device, options, load, data_sink=None):
    tables, policy = lower(device), state.make_policy(options)
    channel = make(tables, policy, data_sink is not None)
    source = state.make_source(tables, *load.values())
    commands = run_channel(channel, source, data_sink or sink.nobody(), command_room(), len(load["rank"]))
    return channel, decode_commands(commands, tables)


CONTROLLERS = pytest.mark.parametrize(
    "make",
    [lambda tables, policy, with_sink: ScanController(tables, policy), make_controller],
    ids=["scan", "fastest"],
)


@CONTROLLERS
@settings(max_examples=100, deadline=None)
@given(work=workloads())
def test_fast_and_plain_issue_the_same_commands_and_count_the_same(make, work):
    device, options, load = work
    plain = run_plain(device, options, load)
    channel, trace = run(make, device, options, load)
    assert trace.columns().T.tolist() == [list(line) for line in plain.trace]
    counted = {
        "hits": state.ROW_HITS,
        "misses": state.ROW_MISSES,
        "conflicts": state.ROW_CONFLICTS,
        "forwarded": state.FORWARDED,
        "coalesced": state.COALESCED,
        "read_latency": state.READ_LATENCY,
        "read_queue": state.READ_QUEUE,
        "write_queue": state.WRITE_QUEUE,
        "open_clocks": state.OPEN_CLOCKS,
    }
    assert {name: int(channel.value[place]) for name, place in counted.items()} == {
        name: plain.counts[name] for name in counted
    }
    assert {
        int(at): int(channel.latencies[at]) for at in np.flatnonzero(channel.latencies)
    } == plain.latencies


@CONTROLLERS
@settings(max_examples=80, deadline=None)
@given(
    work=workloads(),
    depth=st.integers(1, 40),
    servers=st.integers(1, 9),
    ticks=st.sampled_from([(5, 12), (1, 1), (5, 4), (3, 7)]),
    service_cycles=st.integers(1, 60),
)
def test_a_sink_holds_reads_back_alike_in_fast_and_plain(make, work, depth, servers, ticks, service_cycles):
    device, options, load = work
    load["write"][:] = 0
    service = service_cycles * ticks[1]
    slow = PlainSink(depth, servers, *ticks, service)
    plain = run_plain(device, options, load, slow)
    fast = sink.make_sink(depth, servers, *ticks, sink.a_row_each(len(load["rank"])))
    fast.value[sink.SERVICE] = service
    _, trace = run(make, device, options, load, fast)
    assert trace.columns().T.tolist() == [list(line) for line in plain.trace]
    order = np.argsort(fast.done, kind="stable")
    assert fast.done[order].tolist() == slow.drain()


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


def hot_bank(device: Device, count: int, seed: int) -> list[np.ndarray]:
    """Reads of which every other one is for another row of one bank: they wait long while others pass."""
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
    device = resolve(*DEVICES[2], 2, {"nREFI": 1500, "nRFC": 200})
    options = state.ControllerOptions(row_policy=row_policy, row_cap=2, read_buffer=slots)
    tables, policy = lower(device), state.make_policy(options)
    traces, sinks = [], []
    for make in (MaskController, ScanController):
        with_sink = {} if depth is None or make is ScanController else {"with_sink": True}
        channel, source = (
            make(tables, policy, **with_sink),
            state.make_source(tables, *hot_bank(device, 2000, slots)),
        )
        data_sink = sink.nobody()
        if depth is not None:
            data_sink = sink.make_sink(depth, 2, 1, 1, sink.a_row_each(2000))
            data_sink.value[sink.SERVICE] = 60
        commands = run_channel(channel, source, data_sink, command_room(), 2000)
        traces.append((channel, commands.entry[: commands.length[0]]))
        sinks.append(data_sink.done)
    (masks, ours), (scan, plain) = traces
    assert np.array_equal(ours, plain)
    assert np.array_equal(*sinks)
    assert compare_channels(masks, scan) == []
    end = int(plain[-1, 0]) + 1
    assert masks.open_clocks(end) == scan.open_clocks(end)


@pytest.mark.parametrize("slots", [64, 256])
def test_the_fast_controller_runs_all_row_policies_and_long_queues(slots):
    for row_policy in ("open", "closed-cap"):
        options = state.ControllerOptions(row_policy=row_policy, read_buffer=slots, write_buffer=slots)
        for preset in DEVICES:
            tables = lower(resolve(*preset, 4))
            for with_sink in (False, True):
                assert isinstance(
                    make_controller(tables, state.make_policy(options), with_sink), MaskController
                )


@pytest.mark.parametrize("seed", range(3))
def test_reads_return_to_a_queue_that_has_no_free_slot_at_their_age(seed):
    # The first reads are activated, 64 others fill their segment, and a refresh closes the rows of the first.
    device, count, lead = resolve(*DEVICES[2], 1, {"nREFI": 901, "nRFC": 200}), 260, 59
    tables, rng = lower(device), np.random.default_rng(seed)
    policy = state.make_policy(state.ControllerOptions(read_buffer=256))
    cycle = np.concatenate([np.arange(lead) * 40, 2600 + 150 * seed + np.arange(count - lead)])
    zero, number = np.zeros(count, dtype=np.int64), np.arange(count)
    bankgroup, bank, row = (
        rng.integers(0, size, count) for size in (device.bankgroups, device.banks_per_group, 64)
    )
    traces = []
    for channel in (MaskController(tables, policy, with_sink=True), ScanController(tables, policy)):
        source = state.make_source(tables, zero, bankgroup, bank, row, zero, zero, number, cycle)
        data_sink = sink.make_sink(55, 1, 1, 1, sink.a_row_each(count))
        data_sink.value[sink.SERVICE] = 900
        commands = run_channel(channel, source, data_sink, command_room(), count // 2)
        traces.append(commands.entry[: commands.length[0]])
    assert np.array_equal(*traces)
