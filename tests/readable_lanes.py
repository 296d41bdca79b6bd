"""`ndpsim.link.lanes` to be read: every clock, every lane, with the readable controller; to compare with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._by_reference import by_reference
from ndpsim._jit import inlined, kernel
from ndpsim.dram import controller, sink
from ndpsim.dram.state import (
    CLOCK,
    FAR,
    PAUSE,
    READS,
    RECORD_FIELDS,
    SERVED,
    WRITES,
    Channel,
    Commands,
    Policy,
    Source,
    make_channel,
)
from ndpsim.link.engine import advance, begin, read_issued, write_taken
from ndpsim.link.lanes import DONE, MORE
from ndpsim.link.offers import Offers, next_offer, note_issued, note_taken, take_handed
from ndpsim.link.requests import Requests
from ndpsim.spec import Tables

__all__ = ["ReadableLanes", "make_readable_lanes", "run"]

_IN_FLIGHT = 1 << 10  # more reads than can be between their RD and their data

run_controller = controller.run


@by_reference
class ReadableLanes(NamedTuple):
    """Lanes, and the requests that each takes, in order. Of channels and sinks, [lane, ...]."""

    requests: Requests
    offers: Offers
    due: NDArray[np.int64]  # [lane]: not used here
    request: NDArray[np.int32]  # [lane, n]: its requests in the order in which it takes them
    sources: Source
    sinks: sink.Sink  # `done` says which reads have issued
    channels: Channel
    commands: Commands
    waits: NDArray[np.int64]  # [lane, n]: 1: a read that was not seen to issue
    total: NDArray[np.int64]  # [lane]: requests that there will be
    clock: NDArray[np.int64]  # [1]


def make_readable_lanes(
    tables: Tables, policy: Policy, requests: Requests, offers: Offers, lanes: int
) -> ReadableLanes:
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
        offers=offers,
        due=zeros(),
        request=np.zeros((lanes, most), dtype=np.int32),
        sources=Source(zeros(most), np.zeros((lanes, most), np.int32), zeros(most), zeros(most), zeros(1), 0),
        sinks=sink.Sink(
            _IN_FLIGHT, 1, 1, 1, zeros(_IN_FLIGHT), zeros(1), rows, rows, rows, zeros(most), zeros(8)
        ),
        channels=Channel(*each(tuple(make_channel(tables, policy)))),
        commands=Commands(zeros(8 * most + 4096, RECORD_FIELDS), zeros(1)),
        waits=zeros(most),
        total=total,
        clock=np.zeros(1, dtype=np.int64),
    )


@inlined
def offer(policy, engine, lanes, lane, clock):
    """A lane is given the request that it takes in its step at `clock`, if there is one."""
    size, offers, sources = lanes.channels.size[lane], lanes.offers, lanes.sources
    read_room, write_room = size[READS] < policy.read_slots, size[WRITES] < policy.write_slots
    request = next_offer(engine, offers, lane, read_room, write_room, clock)
    if request < 0:
        return
    note_taken(offers, lane, request)
    at = sources.admitted[lane, 0]
    sources.admitted[lane, 0] += 1
    lanes.request[lane, at] = request
    sources.place[lane, at] = lanes.requests.place[request]
    sources.column[lane, at] = lanes.requests.column[request]
    sources.address[lane, at] = request
    if request >= offers.reads:
        write_taken(engine, request - offers.reads, clock)
    else:
        lanes.waits[lane, at] = 1


@inlined
def step_lane(tables, policy, lanes, lane, clock):
    """The step of a lane at `clock`."""
    sources, sinks, channels = lanes.sources, lanes.sinks, lanes.channels
    source = Source(
        sources.place[lane],
        sources.column[lane],
        sources.address[lane],
        sources.cycle[lane, :0],
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
        sinks.first_group,
        sinks.last_group,
        sinks.group_end,
        sinks.done[lane],
        sinks.value[lane],
    )
    channel = Channel(
        channels.entry[lane],
        channels.size[lane],
        channels.bound[lane],
        channels.ready[lane],
        channels.rows[lane],
        channels.recent[lane],
        channels.value[lane],
        channels.issued[lane],
        channels.latencies[lane],
    )
    commands = Commands(lanes.commands.entry[lane], lanes.commands.length[lane])
    channel.value[CLOCK], channel.value[PAUSE] = clock, clock + 1
    run_controller(tables, policy, source, channel, data, commands, FAR, FAR)


@inlined
def report(engine, lanes, lane, clock):
    """Tell the engine of a read that has issued in a lane's step at `clock`."""
    for at in range(lanes.sources.admitted[lane, 0]):
        if lanes.waits[lane, at] == 1 and lanes.sinks.done[lane, at] > 0:
            lanes.waits[lane, at] = 0
            note_issued(lanes.offers, lane)
            read_issued(engine, lanes.request[lane, at], clock)


@kernel
def run(tables, policy, engine, lanes, clocks):
    """Go on for `clocks` clocks, or until every request is served: MORE or DONE."""
    if lanes.clock[0] == 0:
        lanes.clock[0] = 1
        begin(engine)
    for clock in range(lanes.clock[0], lanes.clock[0] + clocks):
        advance(engine, (clock - 1) * engine.dram_ticks)
        take_handed(engine, lanes.offers, lanes.due)
        done = True
        for lane in range(lanes.total.shape[0]):
            if lanes.channels.value[lane, SERVED] < lanes.total[lane]:
                offer(policy, engine, lanes, lane, clock)
                step_lane(tables, policy, lanes, lane, clock)
                report(engine, lanes, lane, clock)
            done = done and lanes.channels.value[lane, SERVED] == lanes.total[lane]
        lanes.clock[0] = clock + 1
        if done:
            return DONE
    return MORE
