"""The relayout engine: its rules, nothing lost, nothing faster than its slowest part."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from fractions import Fraction
from threading import Event

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistakes import refused
from ndpsim import check, load_hardware, simulate_relayout
from ndpsim.audit import check_lanes
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dimm.engines import FastDimms, ReadableDimms
from ndpsim.dimm.layout import ExpertFormat, ExpertWeights, Geometry, make_layout
from ndpsim.dimm.link import Bridge, link_ticks, make_network
from ndpsim.dimm.link.packing import LanesOfDimms
from ndpsim.dram import state
from ndpsim.dram.spec import resolve
from ndpsim.dram.spec.standard import READ as RD
from ndpsim.dram.spec.standard import WRITE as WR
from ndpsim.report.text import all_lanes
from ndpsim.simulate import relayout_plan, relayout_run
from ndpsim.simulate.machine import geometry_of
from ndpsim.simulate.relayout_plan import access_by_host
from ndpsim.simulate.relayout_run import Access, Job, Transfer, run_relayout
from ndpsim.workload.models import Expert
from oracles.sending import step_packets

#: DDR4-3200: a clock of 625 ps. Links of 1.6 GB/s, or half of that, take a clock, or two, a byte.
PRESET, OVERRIDES = ("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA"), {"nREFI": 1600, "nRFC": 120}
DEVICE = resolve(*PRESET, overrides=OVERRIDES)
CLOCK_NS = 0.625
CLOCK_PS = Fraction(625)


@st.composite
def jobs(draw):
    dimms, lanes = draw(st.integers(2, 4)), draw(st.integers(1, 2))
    geometry = Geometry(draw(st.integers(1, dimms)), dimms, lanes, 1, DEVICE)
    bits = draw(st.sampled_from([16, 3, 3]))
    weights = ExpertWeights(
        draw(st.sampled_from([64, 96])), draw(st.sampled_from([8, 13])), ExpertFormat.of(bits)
    )
    names = ["localized", "striped", "sharded:2", f"sharded:{dimms}"]
    transfers, base = [], 0
    for _ in range(draw(st.integers(1, 2))):
        pair = []
        for _ in range(2):
            name = draw(st.sampled_from(names))
            dimm = draw(st.integers(0, dimms - 1)) if name == "localized" else 0
            pair.append(make_layout(name, geometry, weights, dimm, base))
            base = pair[-1].end
        transfers.append(Transfer(*pair))
    bridge = Bridge(2, geometry.channels, 1.6, 5 * CLOCK_NS)
    topology = draw(st.sampled_from(["chain", "ring", "mesh", "full", "bus", "groups"]))
    latency = draw(st.sampled_from([0, 1, 7])) * CLOCK_NS
    network = make_network(topology, dimms, 9, draw(st.sampled_from([1.6, 0.8])), latency, bridge)
    dimm_lane = np.arange(dimms * lanes, dtype=np.int32)
    by_units = draw(st.booleans())  # or by a host, on a bus of a rank for each lane
    device = DEVICE if by_units else resolve(*PRESET, dimms * lanes, OVERRIDES)
    access = Access(
        device=device,
        policy=state.make_policy(
            ControllerOptions(write_buffer=8, read_buffer=draw(st.sampled_from([4, 16])))
        ),
        lanes=lanes if by_units else 1,
        network=network if by_units else make_network("chain", 1, 0, 1.0, 0.0),
        slots=draw(st.sampled_from([4, 16, 64])),
        receive_bytes=draw(st.sampled_from([1024, 4096])),
        many_reads=draw(st.sampled_from([1, 2, 3, 8, 100])),
        packet_bytes=draw(st.sampled_from([64, 128])),
        header_bytes=draw(st.sampled_from([0, 8])),
        timebase=link_ticks(network, CLOCK_PS, CLOCK_PS * draw(st.sampled_from([1, 2, Fraction(5, 3)]))),
        dimm_lanes=LanesOfDimms(dimm_lane // lanes, dimm_lane, 0 * dimm_lane)
        if by_units
        else LanesOfDimms(0 * dimm_lane, 0 * dimm_lane, dimm_lane),
    )
    return access, transfers


class ReadableJob(Job):
    """A wave clock by clock, by the readable controllers."""

    make_dimms = ReadableDimms


@pytest.mark.long  # test_session_relayout.py has both controllers around the engine of a shared DIMM
@settings(max_examples=200, deadline=None)
@given(jobs())
def test_fast_and_readable_controllers_do_the_same_around_the_engine(work):
    access, transfers = work
    job, recorded = (Job(access, transfers, record) for record in (False, True))
    readable = ReadableJob(access, transfers, True)
    readable.run(lambda share: None, Event())
    for fast in (job, recorded):
        fast.run(lambda share: None, Event())
        for name in ("sent", "arrived", "busy", "most"):
            ticks = (getattr(of.engine.packets, name).tolist() for of in (fast, readable))
            assert operator.eq(*ticks), name
        for name in ("read_tick", "write_tick", "offered_at"):
            assert getattr(fast.engine, name).tolist() == getattr(readable.engine, name).tolist(), name
    for fast, slow in zip(recorded.outcome().traces, readable.outcome().traces, strict=True):
        assert fast.columns().T.tolist() == slow.columns().T.tolist()
    assert job.outcome().end == recorded.outcome().end
    assert job.outcome().issued.tolist() == recorded.outcome().issued.tolist()


def test_long_read_queues_of_lanes_alone_are_run_by_the_fast_controller():
    # 60 reads and one a bank that comes back are more than its 64 slots, but only weights for a FIFO come back.
    hardware = load_hardware("trimoe", ("dimm.count=4", "host.channels=2", "dram.read_buffer=60"))
    geometry, weights = geometry_of(hardware), ExpertWeights(64, 8, ExpertFormat.of(16))
    pair = [make_layout(name, geometry, weights) for name in ("localized", "striped")]
    job = Job(relayout_plan.access_by_units(hardware, geometry), [Transfer(*pair)], False)
    assert isinstance(job.dimms, FastDimms)


def clock_at(tick, job):
    """The DRAM clock at or after the unit's edge at or after a tick."""
    dram, unit = job.access.timebase.ticks[:2]
    return -(-(-(-tick // unit) * unit) // dram)


def column_clocks(job, traces):
    """The clock of each request's RD or WR, by the lane and the burst that it goes to."""
    issued = {}
    for lane, trace in enumerate(traces):
        columns = trace.columns()
        for clock, command, rank, bankgroup, bank, row, column in columns.T.tolist():
            if command in (RD, WR):
                issued[lane, rank, bankgroup, bank, row, column, command] = clock
    requests, reads = job.requests, len(job.engine.packed.unsent)
    return [
        issued[
            lane, word >> 17 & 255, word >> 9 & 255, word >> 1 & 255, word >> 25, column, (RD, WR)[n >= reads]
        ]
        for n, (lane, word, column) in enumerate(zip(*(of.tolist() for of in requests), strict=True))
    ]


@settings(max_examples=40, deadline=None)
@given(jobs())
def test_what_happened_follows_the_rules_of_the_engine(work):
    """From the commands of the lanes and when places were free, all else is worked out once more."""
    access, transfers = work
    job = Job(access, transfers, record=True)
    job.run(lambda share: None, Event())
    engine, traces = job.engine, job.outcome().traces
    dram, unit = access.timebase.ticks[:2]
    clocks, reads, packets = column_clocks(job, traces), len(engine.packed.unsent), len(engine.packets.flow)
    pieces = [range(*engine.packed.packet_first[n : n + 2].tolist()) for n in range(packets)]
    packet_reads = [{int(engine.packed.piece_read[piece]) for piece in of} for of in pieces]
    packet_writes = [{int(engine.packed.piece_write[piece]) for piece in of} for of in pieces]
    flow, place_free = engine.packets.flow.tolist(), engine.place_free.tolist()
    sent, arrived = engine.packets.sent.tolist(), engine.packets.arrived.tolist()
    offered_at = engine.offered_at.tolist()
    # Reads are in the buffer a read latency after RD, at an edge of the unit's clock.
    read_tick = [-(-(clock + access.tables.read_latency) * dram // unit) * unit for clock in clocks[:reads]]
    # A packet can leave when its reads are there and its flow has a credit for it, and then takes its turn.
    ready = []
    for packet in range(packets):
        hops = [access.network.hops[hop] for hop in access.network.route(*job.flows[flow[packet]])]
        latency = sum(int(1000 * Fraction(str(hop.latency_ns)) / access.timebase.tick_ps) for hop in hops)
        before = packet - int(engine.flow_credits[flow[packet]])
        there = max(read_tick[read] for read in packet_reads[packet])
        has_credit = before >= 0 and flow[before] == flow[packet]
        # A credit, too, is there at an edge.
        ready.append(max(there, -(-(place_free[before] + latency) // unit) * unit) if has_credit else there)
    over_links = [n for n in range(packets) if len(set(job.flows[flow[n]])) == 2]
    ends = [job.flows[flow[n]] for n in over_links]
    columns = [*map(list, zip(*ends, strict=True))] if ends else [[], []]
    size = [int(engine.packets.size[n]) for n in over_links]
    stepped = step_packets(access.network, *columns, size, [ready[n] for n in over_links], access.timebase)
    assert [sent[n] for n in over_links] == stepped[0]
    assert [arrived[n] for n in over_links] == stepped[1]
    last = {}
    for packet in sorted(set(range(packets)) - set(over_links)):
        last[flow[packet]] = max(ready[packet], last.get(flow[packet], 0))
        assert sent[packet] == arrived[packet] == last[flow[packet]]
    # A write is offered when the last packet with a piece of it has arrived; its place is free when its lane
    # has taken it, after that and before its WR. A packet that completes no write frees its own at once.
    completes = dict.fromkeys(range(packets), ())
    for write in range(len(engine.packed.missing)):
        brought = [n for n in range(packets) if write in packet_writes[n]]
        assert offered_at[reads + write] == clock_at(max(arrived[n] for n in brought), job)
        by = int(engine.completed_by[write])
        assert by in brought
        assert arrived[by] == max(arrived[n] for n in brought)
        completes[by] += (reads + write,)
    for packet, requests in completes.items():
        if requests:
            free = place_free[packet] // dram
            assert free * dram == place_free[packet]
            assert max(offered_at[n] for n in requests) < free <= max(clocks[n] for n in requests)
        else:
            assert place_free[packet] == arrived[packet]
    # The reads of a node are offered in their order, as slots become free.
    for node in range(access.network.dimms):
        first, end = (int(engine.packed.node_read[node + n]) for n in range(2))
        left = dict.fromkeys(range(first, end), 0)
        for packet in range(packets):
            for read in packet_reads[packet] & left.keys():
                left[read] = max(left[read], sent[packet])
        free = sorted([0] * access.slots + list(left.values()))
        assert offered_at[first:end] == [clock_at(tick, job) for tick in free[: end - first]]


def test_what_fails_beside_the_host_does_not_wait_for_it(monkeypatch):
    """Each runs in a thread of its own: an error in one, or Ctrl-C, ends the other at its next chunk."""
    stopped = []

    def run(access, wave, record, progress, stop):
        if access.network.dimms > 1:
            raise KeyboardInterrupt
        stopped.append(stop.wait(60))

    monkeypatch.setattr("ndpsim.simulate.relayout.run_relayout", run)
    with pytest.raises(KeyboardInterrupt):
        small(host=True)
    assert stopped == [True]


def test_a_relayout_that_is_told_to_stop_does():
    weights = ExpertWeights(64, 8, ExpertFormat.of(16))
    hardware = load_hardware("trimoe", SMALL)
    geometry = geometry_of(hardware)
    layouts = [make_layout(name, geometry, weights) for name in ("localized", "striped")]
    stop = Event()
    stop.set()
    with pytest.raises(InterruptedError):
        run_relayout(access_by_host(hardware, geometry), [Transfer(*layouts)], False, print, stop)


EXPERT = Expert(256, 48)
SMALL = ("dimm.count=4", "host.channels=2", "dimm.ranks=2")
PAIRS = [
    ("localized", "striped"),
    ("striped", "localized"),
    ("localized", "localized"),
    ("localized", "sharded:2"),
    ("sharded:2", "striped"),
    ("sharded:4", "sharded:2"),
]


def small(*sets, source="localized", target="striped", experts=2, **options):
    options.setdefault("host", False)
    return simulate_relayout("trimoe", EXPERT, experts, source, target, sets=(*SMALL, *sets), **options)


def bursts(result, command):
    """Lane and place of every RD or WR, from the command traces."""
    found = []
    for lane, trace in enumerate(result.command_traces[0]):
        of = trace.command == command
        places = (trace.bankgroup[of], trace.bank[of], trace.row[of], trace.column[of])
        found += [(lane, *at) for at in zip(*places, strict=True)]
    return found


def bursts_of(layout, bits):
    """How many bursts a layout has."""
    hardware = load_hardware("trimoe", SMALL)
    weights = ExpertWeights(EXPERT.hidden, EXPERT.intermediate, ExpertFormat.of(bits))
    return make_layout(layout, geometry_of(hardware), weights).bursts


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("bits", [16, 3])
def test_every_byte_is_read_sent_or_local_and_written_once(source, target, bits):
    result = small(source=source, target=target, bits=bits, record_commands=True)
    assert result.weight_bytes == 2 * 3 * 256 * 48 * bits // 8
    assert result.read_bytes == result.written_bytes == result.weight_bytes
    assert result.sent_bytes + result.local_bytes == result.weight_bytes
    read, written = bursts(result, RD), bursts(result, WR)
    assert len(read) == len(set(read)) == 2 * bursts_of(source, bits)
    assert len(written) == len(set(written)) == 2 * bursts_of(target, bits)
    assert not set(read) & set(written)


@pytest.mark.parametrize(("hidden", "intermediate", "packets"), [(9, 3, 1), (13, 5, 1), (100, 7, 4)])
def test_parts_of_bytes_at_the_end_of_a_region_go_over_the_wire_as_whole_ones(hidden, intermediate, packets):
    # Gate and up lie in bursts of 64 bytes one after the other, and so does down, of 3 bits a weight. Packets
    # have room for 256 bytes, and headers of 16.
    ends = [-(-2 * hidden * intermediate * 3 // 8), -(-hidden * intermediate * 3 // 8)]
    ends_at = dict(target="localized", source_dimms=[0], target_dimms=[1])
    result = simulate_relayout("trimoe", Expert(hidden, intermediate), bits=3, host=False, **ends_at)
    assert result.wire_bytes == sum(ends) + 16 * packets


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("topology", ["chain", "ring", "mesh", "full", "bus", "groups"])
def test_no_relayout_is_faster_than_its_slowest_resource(source, target, topology):
    result = small(
        f"link.topology={topology}", "link.ports=3", "link.group_dimms=2", source=source, target=target
    )
    assert result.time_ns > max(result.bounds_ns.values()) > 0
    assert max(result.link_busy.values()) < 1
    assert max(result.dram_busy.values()) < 1
    bound = result.bounds_ns["links" if result.bottleneck.startswith("link ") else result.bottleneck]
    assert bound == max(result.bounds_ns.values())


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_twice_the_links_or_the_dram_is_never_slower_where_links_hold_a_move_up(source, target):
    once = small("link.link_gbps=12.5", "dimm.ranks=1", source=source, target=target).time_ns
    assert small("link.link_gbps=25", "dimm.ranks=1", source=source, target=target).time_ns <= once
    assert small("link.link_gbps=12.5", "dimm.ranks=2", source=source, target=target).time_ns <= once


def test_faster_links_do_not_slow_a_relayout_whose_targets_are_sources_as_well():
    # Four DIMMs that are written hold a quarter of what two lanes of each are waiting for. Before their writes
    # waited for their reads, 50 GB/s took 47.38 us, and 12.5 GB/s 42.26 us.
    times_ns = []
    for gbps in (6.25, 12.5, 50, 400):
        sets = ["link.topology=full", "link.ports=15", f"link.link_gbps={gbps}", f"link.lane_gbit_s={gbps}"]
        result = simulate_relayout(
            "trimoe", Expert(2048, 256), 4, "striped", "localized", sets=sets, host=False
        )
        times_ns.append(result.time_ns)
    assert all(faster <= 1.01 * slower for slower, faster in itertools.pairwise(times_ns))
    assert times_ns[0] < 1.1 * result.weight_bytes * 15 / 16 * 272 / 256 / 60 / 6.25  # 60 links carry it all
    assert times_ns[-1] < 1.25 * result.bounds_ns["DRAM"]


@pytest.mark.parametrize(
    "topology",
    ["ring", *(pytest.param(name, marks=pytest.mark.long) for name in ("chain", "mesh", "full", "bus"))],
)
@pytest.mark.parametrize(
    ("source", "target", "most"),
    [
        ("localized", "striped", 1.005),
        pytest.param("localized", "localized", 1.005, marks=pytest.mark.long),
        # Where lanes write as much as they read, or more, reads go first, and what is left of chance is more.
        ("striped", "localized", 1.01),
        pytest.param("sharded:4", "striped", 1.01, marks=pytest.mark.long),
    ],
)
def test_faster_links_are_not_slower(topology, source, target, most):
    # Writes that came earlier interrupted the reads of lanes that have most of them: from localized to striped
    # the ring took 31.8, 32.4 and 34.5 us at 100, 200 and 400 GB/s, with 43, 187 and 301 turnarounds of a lane.
    times_ns = []
    for gbps in (25, 100, 200, 400):
        sets = [f"link.topology={topology}", "link.ports=15"]
        sets += [f"link.link_gbps={gbps}", f"link.lane_gbit_s={gbps}"]
        result = simulate_relayout("trimoe", Expert(2048, 256), 4, source, target, sets=sets, host=False)
        times_ns.append(result.time_ns)
    assert all(faster <= most * slower for slower, faster in itertools.pairwise(times_ns))


def test_a_lane_that_mostly_reads_writes_in_batches():
    # Each DIMM that is read has 6144 reads and 1536 writes on a lane: 24 batches of 64 writes if all are full.
    # The busiest lanes are busy but for their refreshes, 0.41 of 3.9 us, and for turnarounds.
    sets = ["link.link_gbps=400", "link.lane_gbit_s=400"]
    result = simulate_relayout("trimoe", Expert(2048, 256), 4, sets=sets, host=False, record_commands=True)
    for trace in result.command_traces[0][:8]:
        columns = trace.command[(trace.command == RD) | (trace.command == WR)]
        assert (np.count_nonzero(columns == RD), np.count_nonzero(columns == WR)) == (6144, 1536)
        assert np.count_nonzero((columns[1:] == RD) & (columns[:-1] == WR)) < 2 * 24
    assert result.time_ns < 1.05 * result.bounds_ns["DRAM"] / (1 - 410 / 3900)


@pytest.mark.parametrize(("source", "target"), [("localized", "striped"), ("localized", "localized")])
def test_the_same_on_neighbouring_dimms(source, target):
    both = small(source=source, target=target, other_dimms=True, host=True)
    assert both.config["source_dimms"] == [0, 2]
    targets = None if source == target else [0, 0]
    alone = small(source=source, target=target, source_dimms=[0, 1], target_dimms=targets, host=True)
    other = both.other_dimms
    assert (other.source_dimms, other.target_dimms) == ([0, 1], alone.config["target_dimms"])
    assert (other.time_ns, other.host_time_ns) == (alone.time_ns, alone.host.time_ns)
    assert other.host_speedup == alone.host_speedup
    assert small(source=source, target=target, host=True).other_dimms is None
    without = small(source=source, target=target, other_dimms=True).other_dimms
    assert (without.time_ns, without.host_time_ns, without.host_speedup) == (alone.time_ns, None, None)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("refresh", ["all-bank", "same-bank", "none"])
def test_commands_of_every_lane_are_legal(source, target, refresh):
    result = small(f"dram.refresh={refresh}", source=source, target=target, record_commands=True)
    device = load_hardware("trimoe", SMALL).lane_device()
    reports = [check(trace, device, refresh) for trace in result.command_traces[0]]
    assert all(report.ok for report in reports)
    assert sum(report.commands for report in reports) == sum(result.commands.values())


def test_over_a_bus_all_packets_go_one_after_the_other():
    # Four DIMMs send three quarters of what they have, in packets of 256 B with 16 B of header, at 25 GB/s.
    result = small("link.topology=bus", "link.ports=1", experts=4)
    sent_bytes = 4 * 3 * 256 * 48 * 2 * 3 // 4
    assert (result.sent_bytes, result.wire_bytes) == (sent_bytes, sent_bytes * 272 // 256)
    assert result.bounds_ns["links"] == pytest.approx(result.wire_bytes / 25)
    assert result.bottleneck == "link bus"
    assert list(result.link_busy) == ["bus"]
    assert result.wire_bytes / 25 < result.time_ns < 1.05 * result.wire_bytes / 25


def test_what_lies_where_it_shall_does_not_move():
    result = small(target="localized", source_dimms=[1, 2], target_dimms=[1, 2], host=True)
    assert (result.moved, result.weight_bytes, result.time_ns, result.bottleneck) == (0, 0, 0, "nothing")
    assert result.host is None
    assert small(target="localized", source_dimms=[1, 2], target_dimms=[1, 3]).moved == 1


def test_within_a_dimm_no_link_is_used():
    result = small("dimm.count=1", "host.channels=1", source="striped", target="localized", experts=1)
    assert (result.sent_bytes, result.wire_bytes, result.link_busy) == (0, 0, {})
    assert result.local_bytes == result.weight_bytes
    assert result.bottleneck == "DRAM"


def test_work_of_all_waves_counts():
    one = dict(target="localized", source_dimms=[0], target_dimms=[1], experts=1)
    two = {name: value if name == "target" else value * 2 for name, value in one.items()}
    alone, in_turn = small(**one), small("ndp.relayout.concurrent_experts=1", **two)
    assert in_turn.waves == 2
    assert in_turn.wire_bytes == 2 * 288 * 272  # packets of 256 B with 16 B of header, as above
    assert in_turn.bounds_ns["links"] == pytest.approx(2 * alone.bounds_ns["links"])
    assert in_turn.commands["RD"] == in_turn.commands["WR"] == 2 * alone.commands["RD"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (dict(experts=0), "range experts"),
        (dict(source="localised"), "unknown-name source ? localized"),
        (dict(target="sharded:9"), "range target"),
        (dict(source="sharded:5", target="sharded:5"), "range source"),
        (dict(source="sharded:0"), "range source"),
        (dict(source="sharded:3", source_dimms=[0, 2]), "range source_dimms"),
        (dict(source="striped", source_dimms=[0, 3]), "range source_dimms"),
        (dict(bits=ExpertFormat.of(3, 4096), target="sharded:2"), "range target"),
        (dict(source_dimms=[0]), "conflict source_dimms"),
        (dict(source_dimms=[0, 1], other_dimms=True), "conflict other_dimms"),
        (dict(target="localized", target_dimms=[0, 4]), "range target_dimms"),
    ],
)
def test_calls_that_make_no_sense_are_refused(options, problem):
    with refused(problem):
        small(**options)


@pytest.mark.parametrize(
    ("sets", "problem"),
    [
        ("link.topology=full", "range trimoe.yaml link.ports"),
        ("link.packet_bytes=32", "range sets link.packet_bytes"),
        ("ndp.relayout.buffer_kib=1", "too-large sets ndp.relayout.buffer_kib"),
        (
            "dram.standard=LPDDR5 dram.org=LPDDR5_8Gb_x16 dram.timing=LPDDR5_6400",
            "unsupported sets dram.standard",
        ),
        ("dimm.command_bus=broadcast", "unsupported trimoe.yaml dimm.command_bus"),
    ],
)
def test_hardware_that_cannot_do_it_is_refused(sets, problem):
    with refused(problem):
        small(*sets.split(), source="striped", target="localized")


BEYOND_FAST = [("dram.row_policy=closed-cap",), ("dram.read_buffer=100",)]


@pytest.mark.parametrize("sets", BEYOND_FAST)
def test_what_the_fast_controller_cannot_run_is_run_by_the_general_one(sets):
    hardware = load_hardware("trimoe", (*SMALL, *sets))
    geometry, weights = geometry_of(hardware), ExpertWeights(256, 48, ExpertFormat.of(16))
    pair = [make_layout(name, geometry, weights) for name in ("localized", "striped")]
    assert isinstance(Job(access_by_host(hardware, geometry), [Transfer(*pair)], False).dimms, ReadableDimms)


@pytest.mark.long  # test_session_relayout.py has relayouts on the general controller beside experts and the host
@pytest.mark.parametrize("sets", BEYOND_FAST)
def test_the_general_controller_moves_every_weight_legally(sets):
    hardware = load_hardware("trimoe", (*SMALL, *sets))
    result = small(*sets, host=True, record_commands=True)
    assert result.read_bytes == result.written_bytes == result.weight_bytes
    for commands in (result.commands, result.host.commands):
        read, written = (
            sum(commands.get(name, 0) for name in names) for names in (("RD", "RDA"), ("WR", "WRA"))
        )
        assert 64 * read == 64 * written == result.weight_bytes
    assert all(check(trace, hardware.lane_device()).ok for trace in result.command_traces[0])


def test_without_links_there_is_no_relayout():
    with refused("missing edge.yaml link.lanes"):
        simulate_relayout("edge", EXPERT)


@pytest.mark.parametrize("kind", ["private", "shared"])
def test_lanes_of_a_dimm_take_turns_on_the_command_bus_that_they_share(kind):
    sets = [f"dimm.command_bus={kind}"]
    hardware = load_hardware("trimoe", sets)
    result = simulate_relayout(hardware, Expert(512, 64), experts=2, host=False, record_commands=True)
    trace = all_lanes(result.command_traces[0])
    lanes = hardware.system.dimm.count * hardware.lanes
    # Lanes of a DIMM are ordered by rank, then by sub-channel: those of a sub-channel of a DIMM share a bus.
    dimm, lane = np.divmod(np.arange(lanes), hardware.lanes)
    bus = dimm * hardware.system.dimm.subchannels + lane % hardware.system.dimm.subchannels
    cycles = {command.name: command.cycles for command in hardware.lane_device().standard.commands}
    taken = np.array([cycles[name] for name in np.array(trace.names)[trace.command]])
    overlaps = 0
    for number in range(bus.max() + 1):
        on_bus = np.isin(trace.rank, np.flatnonzero(bus == number))
        overlaps += int((np.diff(trace.clock[on_bus]) < taken[on_bus][:-1]).sum())
    assert (overlaps == 0) == (kind == "shared")
    assert check_lanes(trace, hardware.lane_device(), lanes).ok
    assert result.commands["RD"] == result.commands["WR"] == 2 * 3 * 512 * 64 * 2 // 64


def test_a_relayout_alone_is_the_same_on_the_driver_of_a_channel(monkeypatch):
    hardware = load_hardware("trimoe")
    alone = simulate_relayout(hardware, Expert(512, 64), experts=2, host=False, record_commands=True)
    found = relayout_plan.access_by_units

    def driven(hardware, geometry):
        dimm, lane = np.divmod(np.arange(geometry.dimms * geometry.lanes), geometry.lanes)
        buses = geometry.channels * geometry.subchannels
        bus = geometry.channel_of(dimm) * geometry.subchannels + lane % geometry.subchannels
        ranks = -(-geometry.dimms // geometry.channels) * geometry.ranks
        none = np.zeros(12, dtype=np.int64)
        of_lane = geometry.host_rank(dimm, lane) * buses + bus
        private = relayout_run.CommandBuses(buses, ranks, geometry.ranks, none, of_lane)
        return dataclasses.replace(found(hardware, geometry), command_buses=private)

    monkeypatch.setattr("ndpsim.simulate.relayout.access_by_units", driven)
    driver = simulate_relayout(hardware, Expert(512, 64), experts=2, host=False, record_commands=True)
    assert driver.time_ns == alone.time_ns
    for one, other in zip(alone.command_traces[0], driver.command_traces[0], strict=True):
        # Lanes that are done go on to be refreshed on a channel.
        assert np.array_equal(one.columns(), other.columns()[:, : len(one)])
