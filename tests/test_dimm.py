"""NDP unit and host on one DIMM: the fast arbiter against the readable one, each side alone, and the rules."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders.drawn_requests import drawn_places
from builders.one_channel import run_on
from ndpsim.audit import check
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dimm import common
from ndpsim.dimm import state as shared
from ndpsim.dimm.arbitrations import make_arbitration
from ndpsim.dimm.building import JobReads, Stream
from ndpsim.dimm.concurrent import Shared
from ndpsim.dimm.engines import FastDimms, ReadableDimms, SharedDimms, make_dimms
from ndpsim.dram import sink, state
from ndpsim.dram.engines import FastController, ScanController
from ndpsim.dram.spec import Device, lower, resolve, standards
from ndpsim.simulate.lane import decode_commands, merge_commands

STANDARD = standards()["DDR5"]  # DDR4 has the first of its commands
COMMANDS = STANDARD.by_number

DEVICES = [
    ("DDR4", "DDR4_4Gb_x8", "DDR4_2400R"),
    ("DDR5", "DDR5_8Gb_x8", "DDR5_4800AN"),
    ("DDR5", "DDR5_16Gb_x16", "DDR5_3200BN"),
]
FIELDS = ("rank", "bankgroup", "bank", "row", "column", "write", "address")
TRANSFER_TICKS = 31


ARBITRATIONS = [
    "host-first",
    "ndp-first",
    *(f"slice:clocks={clocks}" for clocks in (1, 17, 100)),
    "batch",
    "batch:reads=1,most=30,clocks=700",
    "batch:reads=3,most=5,clocks=60",
    "batch:reads=30,most=30,clocks=40",
]


class Work(NamedTuple):
    """DIMMs of a channel and the work of both sides; requests by lane (weights) and by bus (host)."""

    preset: tuple[str, str, str]
    arbitration: str
    weights: list[dict[str, np.ndarray]]
    host: list[dict[str, np.ndarray]]
    overrides: dict[str, int] | None = None
    options: ControllerOptions = ControllerOptions(refresh="none")
    dimms: int = 1
    ranks: int = 1  # of a DIMM
    others: int = 0  # of other DIMMs behind each bus
    buses: int = 1
    starvation_clocks: int = 5000
    fifo: tuple[int, int, int] = (32, 4, 1)  # depth, servers, service in unit cycles
    ticks: tuple[int, int] = (1, 1)
    rounds: int = 1
    pace: tuple[int, int] = (0, 1)
    transfers: tuple[int, ...] = ()
    clocks: int = 0
    shared_bus: bool = False
    queued: int = 1  # jobs of each DIMM, all of the same weights
    regions: int = 1  # of the weights of a job
    start: int = 1  # the first clock, as refresh counts them
    open_rows: tuple[tuple[int, int, int, int], ...] = ()
    most_lag: int = state.FAR  # of the first stream

    @property
    def lanes(self) -> int:
        return self.dimms * self.ranks * self.buses

    def device(self, ranks: int) -> Device:
        return resolve(*self.preset, ranks, self.overrides)


def requests(
    draw: st.DrawFn, rng: np.random.Generator, device: Device, count: int, ranks: int
) -> dict[str, np.ndarray]:
    """Requests to random places among few, with many hits, misses and conflicts."""
    rows, columns, few = (
        draw(st.sampled_from([1, 2, 4])),
        draw(st.sampled_from([2, 16, 64])),
        draw(st.booleans()),
    )
    return random_requests(rng, device, count, ranks, rows, columns, few)


def random_requests(
    rng: np.random.Generator, device: Device, count: int, ranks: int, rows: int, columns: int, few: bool
) -> dict[str, np.ndarray]:
    """Reads of random places among rows, columns and few banks."""
    banks = (2, 1) if few else (device.bankgroups, device.banks_per_group)
    place, address = drawn_places(rng, count, (ranks, *banks, rows, columns))
    return {**place, "write": np.zeros(count, dtype=np.int64), "address": address}


@st.composite
def works(
    draw: st.DrawFn,
    row_policies: tuple[str, ...] = ("open",),
    refresh: str | None = None,
) -> Work:
    preset = draw(st.sampled_from(DEVICES if refresh is None else DEVICES[1:]))
    overrides = {"nREFI": draw(st.sampled_from([600, 900])), "nRFC": draw(st.sampled_from([60, 200]))}
    modes = ["none", "all-bank", "staggered"]
    if preset[0] == "DDR5":
        overrides |= {"nRFCsb": 40, "nREFI2": overrides["nREFI"]}
        modes = [*modes, "same-bank"] if refresh is None else [refresh]
    device = resolve(*preset, 1, overrides)
    row_policy = draw(st.sampled_from(row_policies))
    arbitration = draw(st.sampled_from(ARBITRATIONS))
    options = ControllerOptions(
        scheduler=draw(st.sampled_from(["FRFCFS", "FRFCFS-RowHit"])),
        row_policy=row_policy,
        row_cap=draw(st.integers(1, 5)),
        refresh=draw(st.sampled_from(modes)),
        refresh_control=draw(st.sampled_from([None, "reference"])),
        read_buffer=draw(st.sampled_from([1, 2, 8, 32])),
        write_buffer=draw(st.sampled_from([1, 3, 10, 32])),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    buses, ranks, dimms = (draw(st.sampled_from([1, 2])) for _ in range(3))
    others = draw(st.integers(0, 1))
    host = []
    for _ in range(buses):
        count = draw(st.integers(1, 150))
        asked = requests(draw, rng, device, count, dimms * ranks + others)
        asked["write"] = (rng.random(count) < draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))).astype(np.int64)
        host.append(asked)
    bank = (
        draw(st.integers(0, dimms * ranks + others - 1)),
        draw(st.integers(0, 1)),
        0,
        draw(st.integers(0, 3)),
    )
    return Work(
        preset,
        arbitration,
        [requests(draw, rng, device, draw(st.integers(1, 150)), 1) for _ in range(dimms * ranks * buses)],
        host,
        overrides,
        options,
        dimms,
        ranks,
        others,
        buses,
        starvation_clocks=draw(st.sampled_from([0, 50, 200, 5000])),
        fifo=(draw(st.integers(1, 32)), draw(st.integers(1, 5)), draw(st.integers(1, 40))),
        ticks=draw(st.sampled_from([(5, 12), (1, 1), (5, 4)])),
        rounds=draw(st.sampled_from([0, 1, 2])),
        pace=draw(st.sampled_from([(0, 1), (7, 2), (40, 1)])),
        transfers=tuple(sorted(draw(st.lists(st.integers(1, 4000), max_size=4)))),
        clocks=draw(st.sampled_from([400, 1500])),
        shared_bus=draw(st.booleans()),
        queued=draw(st.sampled_from([1, 3])),
        regions=draw(st.sampled_from([1, 2])),
        start=draw(st.sampled_from([1, 1, 777])),
        open_rows=draw(st.sampled_from([(), (bank,)])),
        most_lag=draw(st.sampled_from([state.FAR, 0, 3, 100])),
    )


def starving(
    seed: int,
    arbitration: str,
    starvation_clocks: int,
    buffers: tuple[int, int],
    rows: int,
    writes: float,
    pace: tuple[int, int],
    fifo: tuple[int, int, int],
) -> Work:
    """A lane and the host on a bus, where requests wait for longer than the starvation threshold."""
    rng, preset, overrides = np.random.default_rng(seed), DEVICES[2], {"nREFI": 900, "nRFC": 200}
    device = resolve(*preset, 1, overrides)
    options = ControllerOptions(refresh="staggered", read_buffer=buffers[0], write_buffer=buffers[1])
    weights = random_requests(rng, device, 60, 1, rows, 64, False)
    host = random_requests(rng, device, 80, 2, rows, 64, False)
    host["write"] = (rng.random(80) < writes).astype(np.int64)
    return Work(
        preset, arbitration, [weights], [host], overrides, options, others=1, starvation_clocks=starvation_clocks,
        fifo=fifo, ticks=(5, 12), pace=pace, clocks=1500,
    )  # fmt: skip


def make(work: Work, kind: Any, weights_at: int = 0, recording: bool = True) -> SharedDimms:
    """The idle DIMMs, whose multipliers may start at tick `weights_at`. Jobs are released 300 clocks apart.

    The host has the requests in a stream, and again at another pace in a stream that begins later.
    """
    device = work.device(1)
    lane_tables = lower(device)
    host_tables = lower(work.device(work.dimms * work.ranks + work.others))
    depth, servers, service = work.fifo
    clocks = [command.cycles for command in device.standard.by_number]
    setup = shared.DimmSetup(
        Shared(),
        lane_tables,
        host_tables,
        state.make_policy(work.options),
        make_arbitration(work.arbitration),
        work.starvation_clocks,
        device.timings["nCL"],
        device.timings["nCWL"],
        *work.ticks,
        depth,
        work.ranks,
        np.arange(work.dimms * work.ranks + work.others) // work.ranks,
        work.start - 1,
        np.array(clocks, dtype=np.int64) * work.shared_bus,
    )
    dimms = kind(setup, work.lanes, work.buses, 8, recording, work.open_rows)
    counts = np.array([len(one["row"]) for one in work.weights], dtype=np.int64)
    regions = counts[:, None]
    if work.regions == 2:
        regions = np.stack((counts // 3, counts - counts // 3), axis=1)
    of_dimm = work.ranks * work.buses
    for dimm in range(work.dimms):
        own = slice(dimm * of_dimm, (dimm + 1) * of_dimm)
        for number in range(work.queued):
            job = JobReads(
                [state.make_source([one[field] for field in FIELDS]) for one in work.weights[own]],
                [sink.a_group_each(count) for count in counts[own]],
                regions[own],
                [servers + number] * (regions.shape[1] - 1) + [servers],
                1 + number % 2,
                int(counts.max(initial=0)),
                1 + 300 * number * (1 + dimm),
            )
            dimms.add_job(dimm, job)
    weights = dimms.agents.weights
    weights.release[:], weights.service[:] = weights_at, service * work.ticks[1]
    lengths = np.array([len(one["row"]) for one in work.host], dtype=np.int64)
    first = np.concatenate(([0], np.cumsum(lengths)))
    for stream in range(work.rounds):
        dimms.add_stream(
            Stream(
                [state.make_source([one[field] for field in FIELDS]) for one in work.host],
                [first[bus] + np.arange(length) for bus, length in enumerate(lengths)],
                1 + 70 * stream,
                work.pace if stream == 0 else (11 * stream, 3),
                work.rounds * lengths,
                work.most_lag if stream == 0 else state.FAR,
            )
        )
    for dimm in range(work.dimms):
        dimms.put_transfers(dimm, shared.WRITE, TRANSFER_TICKS, work.transfers)
    return dimms


COUNTED = [
    state.TAKEN,
    state.SERVED,
    state.ROW_HITS,
    state.ROW_MISSES,
    state.ROW_CONFLICTS,
    state.FORWARDED,
    state.COALESCED,
    state.READ_LATENCY,
    state.READS_SERVED,
    state.FIRST_COMMAND,
    state.DATA_END,
    state.IDLE_REFRESH,
    state.IDLE_CREDIT,
    state.IDLE_ROW,
    state.REFRESHES,
]

COUNTED_OF_LANES = [
    shared.LAST_COLUMN,
    shared.TURNAROUNDS,
    shared.ROWS_LOST + shared.NDP,
    shared.ROWS_LOST + shared.HOST,
]


def commands(dimm: SharedDimms) -> tuple[list[Any], list[Any]]:
    """The commands of each lane and of each bus."""
    tables = dimm.setup.lane_tables, dimm.setup.host_tables
    return tuple(
        [
            decode_commands(state.Commands(one.entry[n], one.length[n : n + 1]), of, STANDARD)
            for n in range(len(one.length))
        ]
        for one, of in zip(dimm.recorded, tables, strict=True)
    )


def told(dimm: SharedDimms) -> dict[str, Any]:
    """All values that must be equal for two arbiters."""
    lanes, buses = commands(dimm)
    agents = dimm.agents
    return {
        "clock": dimm.clock,
        "lanes": [trace.columns().T.tolist() for trace in lanes],
        "buses": [trace.columns().T.tolist() for trace in buses],
        "lane counters": dimm.values(shared.NDP)[:, COUNTED].tolist(),
        "host counters": dimm.values(shared.HOST)[:, COUNTED].tolist(),
        "latencies": [np.flatnonzero(one).tolist() for one in dimm.host_latencies],
        "issued": (dimm.issued(shared.NDP).tolist(), dimm.issued(shared.HOST).tolist()),
        "totals": dimm.agents.claims.totals[:, COUNTED_OF_LANES].tolist(),
        "of the host": dimm.agents.claims.host_issued.tolist(),
        "data buses": agents.buses.value.tolist(),
        "transfers": (agents.buses.next_transfer.tolist(), agents.buses.end.tolist()),
        "rows": agents.weights.done.tolist(),
        "multipliers": agents.weights.sink[:, sink.COMPARED].tolist(),
        "streams": (agents.traffic.taken.tolist(), agents.traffic.totals.tolist()),
        "open": dimm.open_clocks(dimm.clock + 10_000).tolist(),
    }


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Name the differences, since showing all values would take minutes."""
    assert [name for name in one if one[name] != other[name]] == []


@settings(deadline=None, max_examples=120)
@given(works(), st.integers(1, 900), st.booleans())
@example(starving(145, "ndp-first", 200, (1, 10), 1, 0.9, (0, 1), (32, 3, 10)), 1, True)
@example(starving(187, "slice:clocks=17", 200, (1, 10), 2, 0.3, (7, 2), (6, 1, 1)), 1, False)
@example(starving(713, "slice:clocks=17", 50, (32, 32), 2, 0.3, (7, 2), (6, 1, 1)), 1, False)
def test_the_fast_arbiter_does_what_the_readable_one_does(work, pause, decided):
    outcomes = []
    for kind in (FastDimms, ReadableDimms):
        dimm, seen = make(work, kind, 0 if decided else state.FAR), []
        for until in (min(pause, work.clocks), work.clocks):
            dimm.run_until(1 + until)
            seen.append(told(dimm))
            dimm.agents.weights.release[:] = dimm.clock * work.ticks[0]
        dimm.end_streams()
        dimm.run_host(50_000)
        outcomes.append([*seen, told(dimm)])
    for one, other in zip(*outcomes, strict=True):
        assert_same(one, other)


def at_once() -> Work:
    """A lane issues the host's refresh at the clock at which another may close a row that the host's queue,
    which waits for that refresh, has requests for.
    """

    def requests_of(words: str) -> dict[str, np.ndarray]:
        digits = np.array([list(map(int, word)) for word in words.split()], dtype=np.int64).reshape(-1, 5)
        rank, bankgroup, bank, row, column = digits.T
        address = ((((rank << 10 | bankgroup) << 10 | bank) << 10 | row) << 10) | column
        return dict(zip(FIELDS, (rank, bankgroup, bank, row, column, 0 * rank, address), strict=True))

    host = """10021 11020 10001 10011 10030 21010 20011 00031 00000 11001 20001 00021 00020 01031 21021 00001
    10021 00010 11030 21011 11021 00021 00031 01001 10000 11021 20010 10031 11020 11001 21030 00011 20021"""
    return Work(
        DEVICES[2], "host-first", [requests_of(one) for one in ("00000", "03201", "01001", "03301")],
        [requests_of(host), requests_of("")], {"nREFI": 900, "nRFC": 60, "nRFCsb": 40},
        ControllerOptions(refresh="same-bank", write_buffer=1), ranks=2, others=1, buses=2,
        starvation_clocks=0, fifo=(1, 1, 1), ticks=(5, 12), rounds=2, transfers=(136,), clocks=800, queued=3,
    )  # fmt: skip


@settings(deadline=None, max_examples=20)
@given(works(refresh="same-bank"))
@example(at_once())
def test_both_arbiters_do_the_same_under_a_refresh_policy_of_one_file(reversed_banks, work):
    work = work._replace(options=replace(work.options, refresh=reversed_banks))
    dimms = [make(work, kind) for kind in (FastDimms, ReadableDimms)]
    for dimm in dimms:
        dimm.run_until(1 + work.clocks)
    assert_same(*map(told, dimms))


@settings(deadline=None, max_examples=40)
@given(works(row_policies=("open", "closed-cap")), st.integers(1, 900))
def test_a_run_that_stops_and_goes_on_is_one_that_does_not_stop(work, pause):
    one, other = make(work, make_dimms), make(work, make_dimms)
    one.run_until(1 + min(pause, work.clocks))
    for dimms in (one, other):
        dimms.run_until(1 + work.clocks)
    assert_same(told(one), told(other))


def assert_bus_is_legal(trace: Any, tables: Any) -> None:
    """A command a clock, and the distances that the bus and changes of rank need, pair by pair."""
    reach = int(max(tables.gap[0].max(), tables.sibling_gap.max()))
    for at in range(len(trace)):
        for before in range(at - 1, -1, -1):
            clocks = int(trace.clock[at] - trace.clock[before])
            if clocks >= reach:
                break
            pair = int(trace.command[before]), int(trace.command[at])
            assert clocks >= max(1, tables.gap[0][pair])
            if trace.rank[before] != trace.rank[at]:
                assert clocks >= tables.sibling_gap[1][pair]


@settings(deadline=None, max_examples=60)
@given(works(row_policies=("open", "closed-cap")), st.integers(1, 800), st.sampled_from(["read", "write"]))
def test_activations_and_results_keep_their_distance_from_the_hosts_data_on_every_bus(work, ready, way):
    # An activation, or a result, of each DIMM among the data of the host's commands.
    dimm = make(work._replace(transfers=(), open_rows=(), rounds=max(1, work.rounds)), make_dimms)
    direction, dram_ticks = {"read": shared.READ, "write": shared.WRITE}[way], work.ticks[0]
    for number in range(work.dimms):
        dimm.put_transfers(number, direction, TRANSFER_TICKS, [(ready + 17 * number) * dram_ticks])
    dimm.run_until(1 + work.clocks)
    device, names = work.device(1), [command.name for command in COMMANDS]
    latency = {"RD": device.timings["nCL"], "WR": device.timings["nCWL"]}
    for bus, trace in enumerate(commands(dimm)[1]):
        data = []
        for clock, command, rank in zip(trace.clock, trace.command, trace.rank, strict=True):
            kind = names[command][:2]
            if kind in latency:
                start = (int(clock) + latency[kind]) * dram_ticks
                data.append((start, start + device.timings["nBL"] * dram_ticks, int(rank)))
        for number in range(work.dimms):
            if dimm.agents.buses.next_transfer[bus, number]:
                end = int(dimm.agents.buses.end[bus, number])
                data.append((end - TRANSFER_TICKS, end, -1 - number))
        data.sort()
        for (_, end, rank), (start, _, other) in itertools.pairwise(data):
            # Between two of the host's own, its commands keep the standard's distances.
            if rank < 0 or other < 0:
                assert start - end >= device.timings["nCS"] * dram_ticks


@settings(deadline=None, max_examples=60)
@given(works(row_policies=("open", "closed-cap")))
def test_the_commands_to_every_rank_and_on_every_bus_are_legal(work):
    dimm = make(work._replace(open_rows=()), make_dimms)
    dimm.run_until(1 + work.clocks)
    lanes, buses = commands(dimm)
    for trace in buses:
        assert_bus_is_legal(trace, dimm.setup.host_tables)
    for lane, own in enumerate(lanes):
        rank, bus = divmod(lane, work.buses)
        # Such short intervals are not what a rank may owe refreshes by.
        report = check(merge_commands(own, buses[bus], rank), work.device(1), refresh="none")
        assert report.count == 0, report.violations[0]


@settings(deadline=None, max_examples=40)
@given(works())
def test_rows_lost_and_turns_of_a_lane_follow_from_who_issued_what(work):
    dimm = make(work._replace(open_rows=()), make_dimms)
    dimm.run_until(1 + work.clocks)
    lanes, buses = commands(dimm)
    for lane, own in enumerate(lanes):
        rank, bus = divmod(lane, work.buses)
        chosen = buses[bus].rank == rank
        both = [
            (int(clock), COMMANDS[number].name, int(group), int(bank), owner)
            for trace, mask, owner in (
                (own, np.ones(len(own), dtype=bool), shared.NDP),
                (buses[bus], chosen, shared.HOST),
            )
            for clock, number, group, bank in zip(
                trace.clock[mask], trace.command[mask], trace.bankgroup[mask], trace.bank[mask], strict=True
            )
        ]
        lost, turns, opened, before = [0, 0], 0, {}, None
        for _, name, group, bank, owner in sorted(both):
            if name == "ACT":
                opened[group, bank] = owner
            elif name == "PREpb":
                lost[opened[group, bank]] += opened[group, bank] != owner
            elif name in ("RD", "WR"):
                turns += before not in (None, name)
                before = name
        totals = dimm.agents.claims.totals[lane]
        assert totals[shared.ROWS_LOST : shared.ROWS_LOST + 2].tolist() == lost
        assert totals[shared.TURNAROUNDS] == turns


@settings(deadline=None, max_examples=40)
@given(works(row_policies=("open", "closed-cap")))
def test_a_host_alone_is_the_controller_alone(work):
    work = work._replace(
        weights=[{f: one[f][:0] for f in FIELDS} for one in work.weights],
        transfers=(),
        rounds=1,
        start=1,
        open_rows=(),
        most_lag=state.FAR,
    )
    dimm = make(work, make_dimms)
    assert dimm.run_host(1 << 40)
    device = work.device(work.dimms * work.ranks + work.others)
    total, first = sum(len(one["row"]) for one in work.host), 0
    for bus, (asked, trace) in enumerate(zip(work.host, commands(dimm)[1], strict=True)):
        count = len(asked["row"])
        cycle = (first + np.arange(count)) * work.pace[0] // work.pace[1] if work.pace[0] else None
        first += count
        requests = [*(asked[field] for field in FIELDS), *([] if cycle is None else [cycle])]
        channel, alone = run_on(ScanController, device, work.options, requests)
        alone = alone.columns()
        # Until the last bus is done, the others are refreshed.
        assert trace.columns()[:, : alone.shape[1]].tolist() == alone.tolist()
        assert (trace.column[alone.shape[1] :] < 0).all()
        assert dimm.values(shared.HOST)[bus, COUNTED[:-1]].tolist() == channel.value[COUNTED[:-1]].tolist()
        assert dimm.host_latencies[bus, 0].tolist() == channel.latencies.tolist()
    assert total == first


@settings(deadline=None, max_examples=40)
@given(works(row_policies=("open", "closed-cap")))
def test_lanes_alone_are_controllers_of_one_rank(work):
    work = work._replace(rounds=0, queued=1, regions=1, shared_bus=False, start=1, open_rows=())
    dimm = make(work, make_dimms)
    dimm.run_until(20_000)
    depth, servers, service = work.fifo
    for asked, trace in zip(work.weights, commands(dimm)[0], strict=True):
        count = len(asked["row"])
        data_sink = sink.make_sink(depth, servers, *work.ticks, sink.a_group_each(count))
        data_sink.value[sink.SERVICE] = service * work.ticks[1]
        requests = [asked[field] for field in FIELDS]
        alone = run_on(ScanController, work.device(1), work.options, requests, data_sink)[1].columns()
        assert trace.columns()[:, : alone.shape[1]].tolist() == alone.tolist()
        assert (trace.column[alone.shape[1] :] < 0).all()


def open_reads(count: int) -> dict[str, np.ndarray]:
    """Reads of one row in every bank group of DEVICES[1]."""
    number, zero = np.arange(count), np.zeros(count, dtype=np.int64)
    return dict(zip(FIELDS, (zero, number % 8, zero, zero, number // 8, zero, number), strict=True))


def test_other_dimms_of_the_channel_are_not_slowed_by_a_lane():
    # All of the host's requests go to the rank of another DIMM: it gets what it gets alone.
    weights, none = open_reads(200), open_reads(0)
    host = {**weights, "rank": np.ones(200, dtype=np.int64)}
    beside, alone = (
        make(Work(DEVICES[1], "ndp-first", [own], [host], others=1), FastDimms) for own in (weights, none)
    )
    for dimm in (beside, alone):
        assert dimm.run_host(1 << 40)
    assert commands(beside)[1][0].columns().tolist() == commands(alone)[1][0].columns().tolist()
    assert int(beside.values(shared.NDP)[0, state.READS_SERVED]) > 100


@settings(deadline=None, max_examples=60)
@given(works(row_policies=("open", "closed-cap")))
def test_lanes_of_a_sub_channel_of_a_dimm_and_the_host_take_turns_on_a_shared_command_bus(work):
    work = work._replace(shared_bus=True)
    dimm = make(work, make_dimms)
    dimm.run_until(1 + work.clocks)
    lanes, buses = commands(dimm)
    for number in range(work.dimms * work.buses):
        of_dimm, bus = divmod(number, work.buses)
        ranks = range(of_dimm * work.ranks, (of_dimm + 1) * work.ranks)
        traces = [(lanes[rank * work.buses + bus], slice(None)) for rank in ranks]
        traces.append((buses[bus], np.isin(buses[bus].rank, ranks)))
        clock = np.concatenate([trace.clock[chosen] for trace, chosen in traces])
        command = np.concatenate([trace.command[chosen] for trace, chosen in traces])
        order = np.argsort(clock)
        taken = dimm.setup.command_clocks[command[order]]
        assert (clock[order][1:] >= clock[order][:-1] + taken[:-1]).all()
        assert taken.sum() <= work.clocks + 2


def lonely_reads(ranks: int, shared_bus: bool) -> Work:
    """Lanes of a DDR5 DIMM that read open rows, and a host without requests."""
    reads, none = open_reads(400), open_reads(0)
    return Work(
        DEVICES[1], "ndp-first", [reads] * ranks, [none], ranks=ranks, rounds=0, shared_bus=shared_bus
    )


def test_reads_of_four_ranks_fill_a_shared_command_bus_and_are_fair():
    # A read takes the bus for two of the eight clocks of its data: four ranks leave no clock for an ACT.
    ends = {}
    for ranks, shared_bus in [(2, False), (2, True), (4, False), (4, True)]:
        dimm = make(lonely_reads(ranks, shared_bus), make_dimms)
        dimm.run([common.NOTHING], 1 << 14)
        ends[ranks, shared_bus] = [int(trace.clock[-1]) for trace in commands(dimm)[0]]
    assert max(ends[2, True]) < max(ends[2, False]) + 60
    bus_clocks = 4 * (400 * 2 + 8 * 2)
    # The last read is on the bus for a clock more.
    assert bus_clocks - 1 <= max(ends[4, True]) < bus_clocks * 1.02
    assert max(ends[4, True]) - min(ends[4, True]) < 20


@settings(deadline=None, max_examples=40)
@given(works(row_policies=("open", "closed-cap")), st.integers(1, 40))
def test_a_start_that_is_later_by_whole_refresh_intervals_changes_nothing(work, intervals):
    shift = intervals * work.overrides["nREFI"]
    one, other = make(work, make_dimms), make(work._replace(start=work.start + shift), make_dimms)
    for dimms in (one, other):
        dimms.agents.weights.release[:] = dimms.clock * work.ticks[0]
        dimms.run_until(dimms.clock + work.clocks)
    early, late = told(one), told(other)
    for counted in (early, late):  # refreshes are counted from clock 0 on
        for name in ("lane counters", "host counters"):
            counted[name] = [values[:-1] for values in counted[name]]
    assert early == late


@settings(deadline=None, max_examples=40)
@given(works(row_policies=("open", "closed-cap")))
def test_a_job_that_comes_later_never_delays_an_earlier_one(work):
    work = work._replace(rounds=0, transfers=())
    one, all_of_them = (make(work._replace(queued=queued), make_dimms) for queued in (1, 3))
    for dimms in (one, all_of_them):
        dimms.run_until(1 + 20_000)
    for alone, queued in zip(commands(one)[0], commands(all_of_them)[0], strict=True):
        reads = alone.column >= 0
        last = int(alone.clock[reads][-1])
        assert (
            alone.columns()[:, alone.clock <= last].tolist()
            == queued.columns()[:, queued.clock <= last].tolist()
        )


def test_a_run_ends_when_any_dimm_has_reached_its_goal():
    work = lonely_reads(1, False)
    work = work._replace(dimms=2, weights=[work.weights[0], {f: v[:40] for f, v in work.weights[0].items()}])
    for kind in (FastDimms, ReadableDimms):
        dimms = make(work, kind)
        dimms.agents.weights.value[:, shared.BURSTS_LEFT] = 400, 40
        goals = [common.WEIGHTS_READ, common.WEIGHTS_READ, common.NOTHING]
        assert dimms.run(goals, 1 << 20)
        assert dimms.agents.weights.value[:, shared.BURSTS_LEFT].tolist()[1] == 0
        assert 350 < dimms.agents.weights.value[0, shared.BURSTS_LEFT] < 370
        assert dimms.run([common.WEIGHTS_READ], 1 << 20)
        assert dimms.agents.weights.value[0, shared.BURSTS_LEFT] == 0


@pytest.mark.parametrize("kind", [FastController, ScanController])
def test_a_refresh_waits_for_an_activated_write_also_while_the_sink_has_no_room(kind):
    # One read fills the sink for long; a write of the same stream has opened its row when the refresh comes.
    device = resolve("DDR5", "DDR5_8Gb_x8", "DDR5_4800AN", 1, {"nREFI": 900, "nRFC": 200})
    rng = np.random.default_rng(3)
    for _ in range(20):
        count = 60
        write = (rng.random(count) < 0.5).astype(np.int64)
        bank, row = rng.integers(0, 2, count), rng.integers(0, 3, count)
        zero = np.zeros(count, dtype=np.int64)
        data_sink = sink.make_sink(1, 1, 1, 1, sink.a_group_each(count))
        data_sink.value[sink.SERVICE] = int(rng.integers(300, 700))
        requests = [zero, bank, bank, row, zero, write, np.arange(count)]
        _, trace = run_on(kind, device, ControllerOptions(), requests, data_sink)
        report = check(trace, device, refresh="none")
        assert report.count == 0, report.violations[0]
