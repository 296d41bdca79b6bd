"""NDP unit and host on the lanes and buses of a DIMM: the engine against its plain twin, and by hand."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.audit import check
from ndpsim.dram import sink, state
from ndpsim.dram.plain import PlainSink, Request
from ndpsim.dram.sharing import engine
from ndpsim.dram.sharing import state as sharing
from ndpsim.dram.sharing.plain import HostRequest, PlainDimm, PlainLane
from ndpsim.simulate.lane import decode_commands
from ndpsim.spec import Device, lower, resolve
from ndpsim.spec.standard import RD, WR

DEVICES = [
    ("DDR4", "DDR4_4Gb_x8", "DDR4_2400R"),
    ("DDR5", "DDR5_8Gb_x8", "DDR5_4800AN"),
    ("DDR5", "DDR5_16Gb_x16", "DDR5_3200BN"),
]
FIELDS = ("bankgroup", "bank", "row", "column", "write", "address")


class Work(NamedTuple):
    """A DIMM and what both sides want of it; requests by lane (weights) and by bus (host)."""

    device: Device
    options: state.ControllerOptions
    lanes: int
    buses: int
    arbitration: str
    slice_clocks: int
    patience: int
    fifo: tuple[int, int, int]  # depth, servers, service in unit cycles
    ticks: tuple[int, int]
    weights: list[dict[str, np.ndarray]]
    host: list[dict[str, np.ndarray]]
    pace: tuple[int, int]
    jobs: tuple[int, ...]
    clocks: int


def requests(draw: st.DrawFn, rng: np.random.Generator, device: Device, count: int) -> dict[str, np.ndarray]:
    """Requests to random places among few: hits, misses and conflicts in plenty."""
    rows, columns = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([2, 16, 64]))
    few = draw(st.booleans())
    place = {
        "bankgroup": rng.integers(0, 2 if few else device.bankgroups, count),
        "bank": rng.integers(0, 1 if few else device.banks_per_group, count),
        "row": rng.integers(0, rows, count),
        "column": rng.integers(0, columns, count),
    }
    address = np.zeros(count, dtype=np.int64)
    for values in place.values():
        address = address * 1024 + values
    return {**place, "write": np.zeros(count, dtype=np.int64), "address": address}


@st.composite
def works(draw: st.DrawFn) -> Work:
    preset = draw(st.sampled_from(DEVICES))
    overrides = {"nREFI": draw(st.sampled_from([451, 900])), "nRFC": draw(st.sampled_from([60, 200]))}
    modes = ["none", "all-bank"]
    if preset[0] == "DDR5":
        overrides["nRFCsb"] = 40
        modes.append("same-bank")
    device = resolve(*preset, 1, overrides)
    options = state.ControllerOptions(
        scheduler=draw(st.sampled_from(["FRFCFS", "FRFCFS-RowHit"])),
        row_policy=draw(st.sampled_from(["open", "open", "closed-cap"])),
        row_cap=draw(st.integers(1, 5)),
        refresh=draw(st.sampled_from(modes)),
        read_buffer=draw(st.sampled_from([1, 2, 8, 32])),
        write_buffer=draw(st.sampled_from([1, 3, 10, 32])),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    buses, ranks = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2]))
    host = []
    for bus in range(buses):
        count = draw(st.integers(1, 150))
        asked = requests(draw, rng, device, count)
        asked["write"] = (rng.random(count) < draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))).astype(np.int64)
        asked["lane"] = rng.integers(0, ranks, count) * buses + bus
        asked["address"] = asked["address"] * 8 + asked["lane"]
        host.append(asked)
    return Work(
        device,
        options,
        ranks * buses,
        buses,
        draw(st.sampled_from(list(sharing.ARBITRATIONS))),
        draw(st.sampled_from([1, 17, 100])),
        draw(st.sampled_from([0, 50, 200, 5000])),
        (draw(st.integers(1, 32)), draw(st.integers(1, 5)), draw(st.integers(1, 40))),
        draw(st.sampled_from([(5, 12), (1, 1), (5, 4)])),
        [requests(draw, rng, device, draw(st.integers(1, 150))) for _ in range(ranks * buses)],
        host,
        draw(st.sampled_from([(0, 1), (7, 2), (40, 1)])),
        tuple(sorted(draw(st.lists(st.integers(1, 4000), max_size=4)))),
        draw(st.sampled_from([400, 1000])),
    )


JOB_TICKS = 31


def run_engine(work: Work) -> dict[str, Any]:
    tables, policy = lower(work.device), state.make_policy(work.options)
    depth, servers, service = work.fifo
    setup = sharing.Setup(
        tables,
        policy,
        sharing.ARBITRATIONS[work.arbitration],
        work.slice_clocks,
        work.patience,
        work.device.timings["nCL"],
        *work.ticks,
        depth,
        servers,
    )

    def source_of(one: dict[str, np.ndarray]) -> state.Source:
        rank = np.zeros(len(one["row"]), dtype=np.int64)
        return state.make_source(tables, rank, *(one[field] for field in FIELDS))

    counts = [len(one["row"]) for one in work.weights]
    weights = sharing.make_weights(
        setup,
        [source_of(one) for one in work.weights],
        [sink.a_row_each(count) for count in counts],
        np.array(counts, dtype=np.int64)[:, None],
        max(counts),
    )
    weights.release[:], weights.service[:] = 0, service * work.ticks[1]
    lengths = np.array([len(one["row"]) for one in work.host], dtype=np.int64)
    first = np.concatenate(([0], np.cumsum(lengths)))
    traffic = sharing.make_traffic(
        [source_of(one) for one in work.host],
        [one["lane"] for one in work.host],
        [first[bus] + np.arange(length) for bus, length in enumerate(lengths)],
        work.pace,
        2 * lengths,  # a second round
    )
    lanes = sharing.make_lanes(tables, policy, work.lanes)
    timings = work.device.timings
    buses = sharing.make_buses(
        policy, work.buses, sharing.bus_bubbles(tables, timings["nCL"], timings["nCWL"])
    )
    transfers = sharing.make_transfers(8)
    transfers.ready[: len(work.jobs)] = work.jobs
    transfers.value[[sharing.JOBS, sharing.JOB_TICKS, sharing.JOB_DIRECTION]] = (
        len(work.jobs),
        JOB_TICKS,
        sharing.WRITE,
    )
    commands = state.Commands(
        np.zeros((work.lanes, work.clocks, state.RECORD_FIELDS), np.int64), np.zeros(work.lanes, np.int64)
    )
    outcome = engine.run(
        setup,
        lanes,
        weights,
        buses,
        transfers,
        traffic,
        commands,
        engine.NOTHING,
        work.clocks + 1,
    )
    assert outcome == engine.LATE
    traces = [
        decode_commands(state.Commands(commands.entry[n], commands.length[n : n + 1]), tables)
        for n in range(work.lanes)
    ]
    on_bus = {
        "taken": sharing.TAKEN,
        "reads": sharing.READS,
        "writes": sharing.WRITES,
        "turnarounds": sharing.BUS_TURNAROUNDS,
        "rank switches": sharing.RANK_SWITCHES,
    }
    tally = {
        "turnarounds": sharing.TURNAROUNDS,
        "lost by the NDP unit": sharing.ROWS_LOST + sharing.NDP,
        "lost by the host": sharing.ROWS_LOST + sharing.HOST,
    }
    found = {"hits": state.ROW_HITS, "misses": state.ROW_MISSES, "conflicts": state.ROW_CONFLICTS}
    return {
        "traces": [trace.columns().T.tolist() for trace in traces],
        "buses": [{name: int(value[place]) for name, place in on_bus.items()} for value in buses.value],
        "free": [int(value[sharing.FREE]) for value in buses.value],
        "latencies": {int(at): int(buses.latencies[at]) for at in np.flatnonzero(buses.latencies)},
        "lanes": [{name: int(value[place]) for name, place in tally.items()} for value in lanes.tally],
        "rows": [
            {name: int(lanes.value[owner, lane, place]) for name, place in found.items()}
            for lane in range(work.lanes)
            for owner in (sharing.NDP, sharing.HOST)
        ],
        "decoded": traces,
    }


def plain_requests(one: dict[str, np.ndarray]) -> list[Request]:
    return [
        Request(WR if write else RD, 0, group, bank, row, column, address)
        for group, bank, row, column, write, address in zip(
            *(one[field].tolist() for field in FIELDS), strict=True
        )
    ]


def run_twin(work: Work) -> dict[str, Any]:
    tables, policy = lower(work.device), state.make_policy(work.options)
    depth, servers, service = work.fifo
    lanes = [
        PlainLane(
            tables,
            policy,
            sharing.ARBITRATIONS[work.arbitration],
            work.slice_clocks,
            work.patience,
            PlainSink(depth, servers, *work.ticks, service * work.ticks[1]),
            deque(plain_requests(one)),
        )
        for one in work.weights
    ]
    asked, first, total = [], 0, sum(len(one["row"]) for one in work.host)
    for one in work.host:
        count = len(one["row"])
        asked.append(
            deque(
                HostRequest(
                    1 + (again * total + first + n) * work.pace[0] // work.pace[1],
                    int(one["lane"][n]),
                    request,
                )
                for again in range(2)
                for n, request in enumerate(plain_requests(one))
            )
        )
        first += count
    timings = work.device.timings
    dimm = PlainDimm(
        tables,
        policy,
        lanes,
        asked,
        sharing.bus_bubbles(tables, timings["nCL"], timings["nCWL"]),
        timings["nCL"],
        work.ticks[0],
        JOB_TICKS,
        sharing.WRITE,
        list(work.jobs),
    )
    for _ in range(work.clocks):
        dimm.step()
    names = ("taken", "reads", "writes", "turnarounds", "rank switches")
    return {
        "traces": [[list(line) for line in lane.ndp.trace] for lane in lanes],
        "buses": [{name: bus.counts[name] for name in names} for bus in dimm.buses],
        "free": [bus.free for bus in dimm.buses],
        "latencies": dict(sum((bus.latencies for bus in dimm.buses), start=type(dimm.buses[0].latencies)())),
        "lanes": [
            {name: lane.counts[name] for name in ("turnarounds", "lost by the NDP unit", "lost by the host")}
            for lane in lanes
        ],
        "rows": [
            {name: owner.counts[name] for name in ("hits", "misses", "conflicts")}
            for lane in lanes
            for owner in (lane.ndp, lane.host)
        ],
    }


@settings(max_examples=60, deadline=None)
@given(works())
def test_engine_and_twin_issue_the_same_commands_and_carry_the_same_data(work):
    fast, slow = run_engine(work), run_twin(work)
    traces = fast.pop("decoded")
    assert fast == slow
    for trace in traces:  # the rules; such short intervals are not what a rank may owe refreshes by
        report = check(trace, work.device, refresh="none")
        assert report.count == 0, report.violations[0]
