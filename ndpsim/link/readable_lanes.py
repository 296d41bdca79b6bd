"""`ndpsim.link.lanes` to be read: every clock, every lane, with the readable controller; to compare with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._jit import inlined, kernel
from ndpsim.dram import controller, sink
from ndpsim.dram.state import (
    CLOCK,
    FAR,
    PAUSE,
    RECORD_FIELDS,
    SERVED,
    TAKEN,
    Channel,
    Commands,
    Policy,
    Source,
    make_channel,
)
from ndpsim.link.engine import advance, begin, read_issued, write_taken
from ndpsim.link.lanes import DONE, MORE
from ndpsim.link.requests import Requests
from ndpsim.spec import Tables

__all__ = ["ReadableLanes", "make_readable_lanes", "run"]

_IN_FLIGHT = 1 << 10  # more reads than can be between their RD and their data

run_controller = controller.run


class ReadableLanes(NamedTuple):
    """Lanes, and the requests that were offered to each, in order. Of channels and sinks, [lane, ...]."""

    requests: Requests
    request: NDArray[np.int32]  # [lane, n]: its requests in the order in which they were offered
    sources: Source
    sinks: sink.Sink  # `done` says which reads have issued
    channels: Channel
    commands: Commands
    taken: NDArray[np.int64]  # [lane]: requests that were seen to be taken
    waits: NDArray[np.int64]  # [lane, n]: 1: a read that was not seen to issue
    total: NDArray[np.int64]  # [lane]: requests that there will be
    clock: NDArray[np.int64]  # [1]


def make_readable_lanes(tables: Tables, policy: Policy, requests: Requests, lanes: int) -> ReadableLanes:
    """Lanes at rest."""
    total = np.bincount(requests.lane, minlength=lanes).astype(np.int64)
    most = int(total.max())

    def zeros(*shape: int) -> NDArray[np.int64]:
        return np.zeros((lanes, *shape), dtype=np.int64)

    def each(one: tuple[NDArray[np.int64], ...]) -> list[NDArray[np.int64]]:
        return [np.repeat(array[None], lanes, axis=0) for array in one]

    rows = np.arange(most, dtype=np.int32)
    return ReadableLanes(
        requests=requests,
        request=np.zeros((lanes, most), dtype=np.int32),
        sources=Source(zeros(most), np.zeros((lanes, most), np.int32), zeros(most), zeros(most), zeros(1), 0),
        sinks=sink.Sink(
            _IN_FLIGHT, 1, 1, 1, zeros(_IN_FLIGHT), zeros(1), rows, rows, rows, zeros(most), zeros(8)
        ),
        channels=Channel(*each(tuple(make_channel(tables, policy)))),
        commands=Commands(zeros(8 * most + 4096, RECORD_FIELDS), zeros(1)),
        taken=zeros(),
        waits=zeros(most),
        total=total,
        clock=np.zeros(1, dtype=np.int64),
    )


@inlined
def offer(engine, lanes):
    """Requests that the engine has handed out go behind those of their lanes."""
    for n in range(engine.handed_count[0]):
        request = engine.handed[n]
        lane = lanes.requests.lane[request]
        at = lanes.sources.admitted[lane, 0]
        lanes.sources.admitted[lane, 0] += 1
        lanes.request[lane, at] = request
        lanes.waits[lane, at] = 1 if request < engine.read_tick.shape[0] else 0
        lanes.sources.place[lane, at] = lanes.requests.place[request]
        lanes.sources.column[lane, at] = lanes.requests.column[request]
        lanes.sources.address[lane, at] = request
        lanes.sources.cycle[lane, at] = engine.offered_at[request]
    engine.handed_count[0] = 0


@inlined
def step_lane(tables, policy, lanes, lane, clock):
    """The step of a lane at `clock`."""
    sources, sinks, channels = lanes.sources, lanes.sinks, lanes.channels
    source = Source(
        sources.place[lane],
        sources.column[lane],
        sources.address[lane],
        sources.cycle[lane],
        sources.admitted[lane],
        0,
    )
    data = sink.Sink(
        sinks.depth,
        1,
        1,
        1,
        sinks.credit[lane],
        sinks.free[lane],
        sinks.first_row,
        sinks.last_row,
        sinks.row_end,
        sinks.done[lane],
        sinks.value[lane],
    )
    channel = Channel(
        channels.entry[lane],
        channels.size[lane],
        channels.bound[lane],
        channels.ready[lane],
        channels.rows[lane],
        channels.recent_acts[lane],
        channels.value[lane],
        channels.issued[lane],
        channels.latencies[lane],
    )
    commands = Commands(lanes.commands.entry[lane], lanes.commands.length[lane])
    channel.value[CLOCK], channel.value[PAUSE] = clock, clock + 1
    run_controller(tables, policy, source, channel, data, commands, FAR, FAR)


@inlined
def report(engine, lanes, lane, clock):
    """Tell the engine what a lane did in its step at `clock`."""
    value, reads = lanes.channels.value[lane], engine.read_tick.shape[0]
    if value[TAKEN] > lanes.taken[lane]:
        request = lanes.request[lane, lanes.taken[lane]]
        lanes.taken[lane] += 1
        if request >= reads:
            write_taken(engine, request - reads, clock)
    for at in range(lanes.taken[lane]):
        if lanes.waits[lane, at] == 1 and lanes.sinks.done[lane, at] > 0:
            lanes.waits[lane, at] = 0
            read_issued(engine, lanes.request[lane, at], clock)


@kernel
def run(tables, policy, engine, lanes, clocks):
    """Go on for `clocks` clocks, or until every request is served: MORE or DONE."""
    if lanes.clock[0] == 0:
        lanes.clock[0] = 1
        begin(engine)
    for clock in range(lanes.clock[0], lanes.clock[0] + clocks):
        advance(engine, (clock - 1) * engine.dram_ticks)
        offer(engine, lanes)
        done = True
        for lane in range(lanes.total.shape[0]):
            if lanes.channels.value[lane, SERVED] < lanes.total[lane]:
                step_lane(tables, policy, lanes, lane, clock)
                report(engine, lanes, lane, clock)
            done = done and lanes.channels.value[lane, SERVED] == lanes.total[lane]
        lanes.clock[0] = clock + 1
        if done:
            return DONE
    return MORE
