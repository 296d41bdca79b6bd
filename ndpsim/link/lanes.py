"""Lanes with fast controllers around a relayout engine, each stepped only when something can happen there.

The tests have a plain twin that goes clock by clock (`tests/readable_lanes.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._by_reference import by_reference
from ndpsim._jit import inlined, kernel, outlined
from ndpsim.dram.fast.choose import mode_changes
from ndpsim.dram.fast.controller import queue_request, refresh, step_of
from ndpsim.dram.fast.fields import RD, READS, WR, WRITES
from ndpsim.dram.fast.state import ONE_CHUNK, make_states
from ndpsim.dram.fast.words import assume_nonnegative
from ndpsim.dram.maintenance import next_refresh
from ndpsim.dram.state import (
    FAR,
    LATENCIES,
    NEXT_REFRESH,
    RECORD_FIELDS,
    Commands,
    Policy,
    Source,
)
from ndpsim.link.engine import advance, begin, known_until, read_issued, waits_for_credit, write_taken
from ndpsim.link.offers import Offers, next_change, next_offer, note_issued, note_taken, take_handed
from ndpsim.link.requests import Requests
from ndpsim.spec import Tables

__all__ = ["DONE", "LAST_SERVED", "MORE", "RECORD_FULL", "UNSERVED", "Lanes", "make_lanes", "run"]

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

DONE, MORE, RECORD_FULL = range(3)

_NONE = -1

# Places in `Lanes.value`.
CLOCK = 0  # the clock before which all lanes have stepped but those that may lag
LAGGING_CLOCK = 1  # the clock before which those that may lag have
UNSERVED = 2  # requests
LAST_SERVED = 3  # the clock at which the last request was served

LONGEST_LAG = 1 << 10  # clocks


@by_reference
class Lanes(NamedTuple):
    """Lanes, the requests that were offered to each, and when each is to be stepped."""

    offers: Offers
    source: Source  # all requests
    left: Ints  # [lane]: requests that are not served, those not yet offered included
    left_reads: Ints  # [lane]: reads among them
    next_ready: Ints  # [lane]: the clock before which none of those that it has taken can issue a command
    due: Ints  # [lane]: the clock of its next step
    states: NDArray[Any]  # [lane]: see `dram.fast.fields`
    latencies: Ints  # of the lanes together
    commands: Ints  # [lane, n, field]: recorded; n is 0 where nothing is
    recorded: Ints  # [lane, 1]
    value: Ints  # by the places above


def make_lanes(
    tables: Tables, policy: Policy, requests: Requests, offers: Offers, lanes: int, room: int
) -> Lanes:
    """Lanes at rest; `room`: commands that each can record, 0 for none."""
    total = len(requests.lane)
    # No burst is read or written twice: requests are queued without a look at the addresses of others.
    address = np.broadcast_to(np.zeros(1, dtype=np.int32), total)
    cycle, admitted = np.zeros(0, dtype=np.int64), np.array([FAR])
    left = np.bincount(requests.lane, minlength=lanes)
    return Lanes(
        offers=offers,
        source=Source(requests.place, requests.column, address, cycle, admitted, 0),  # type: ignore[arg-type]
        left=left,
        left_reads=np.bincount(requests.lane[: offers.reads], minlength=lanes),
        next_ready=np.zeros(lanes, dtype=np.int64),
        due=np.where(left > 0, 1, FAR),
        states=make_states(tables, policy, lanes),
        latencies=np.zeros(LATENCIES, dtype=np.int64),
        commands=np.zeros((lanes, room, RECORD_FIELDS), dtype=np.int64),
        recorded=np.zeros((lanes, 1), dtype=np.int64),
        value=np.array([0, 0, total, 0]),
    )


@inlined
def offered(policy, engine, lanes, state, lane, clock):
    """The request that a lane takes at `clock`, if nothing happens before; -1: none."""
    read_room = state.queued[READS] < policy.read_slots
    write_room = state.queued[WRITES] < policy.write_slots
    return next_offer(engine, lanes.offers, lane, read_room, write_room, clock)


@inlined
def take(engine, lanes, state, lane, request, clock):
    """A lane takes a request; returns when that can issue a command, at the earliest."""
    note_taken(lanes.offers, lane, request)
    if request >= lanes.offers.reads:
        write_taken(engine, request - lanes.offers.reads, clock)
    return queue_request(ONE_CHUNK, state, lanes.source, request, clock)


@inlined
def next_due(policy, engine, lanes, state, lane, clock):
    """The clock of a lane's step after one at `clock`."""
    if lanes.left[lane] == 0:
        return FAR
    clock += 1
    if offered(policy, engine, lanes, state, lane, clock) >= 0 or mode_changes(policy, state):
        return clock
    due, change = (
        min(lanes.next_ready[lane], state.value[NEXT_REFRESH]),
        next_change(engine, lanes.offers, lane, clock),
    )
    return max(clock, min(due, change) if change > clock else due)


@inlined
def step_lane(policy, shape, engine, lanes, no_sink, lane, clock):
    """The step of a lane at `clock`."""
    state = lanes.states[lane]
    request = offered(policy, engine, lanes, state, lane, clock)
    if request >= 0:
        lanes.next_ready[lane] = min(
            lanes.next_ready[lane], take(engine, lanes, state, lane, assume_nonnegative(request), clock)
        )
    if clock >= state.value[NEXT_REFRESH]:
        lanes.next_ready[lane] = clock
        if not refresh(shape, policy, state, clock):
            raise RuntimeError("a lane cannot go on: refreshes never catch up")
    if clock >= lanes.next_ready[lane] or mode_changes(policy, state):
        commands = Commands(lanes.commands[lane], lanes.recorded[lane])
        lanes.next_ready[lane], command, request = step_of(
            policy, shape, state, lanes.latencies, lanes.source, no_sink, commands, clock
        )
        if command == RD or command == WR:
            lanes.left[lane] -= 1
            lanes.value[UNSERVED] -= 1
            lanes.value[LAST_SERVED] = max(lanes.value[LAST_SERVED], clock)
        if command == RD:
            read_issued(engine, request, clock)
            note_issued(lanes.offers, lane)
            lanes.left_reads[lane] -= 1
    lanes.due[lane] = next_due(policy, engine, lanes, state, lane, clock)


@inlined
def has_room(lanes, clocks):
    """Whether every lane can record a command at each of so many clocks."""
    room = lanes.commands.shape[1]
    for lane in range(lanes.due.shape[0]):
        if 0 < room < lanes.recorded[lane, 0] + clocks:
            return False
    return True


@inlined
def may_lag(lanes, lane):
    """Whether a lane only writes, so that it may be stepped later. Those that record have room for less."""
    return lanes.left_reads[lane] == 0 and lanes.commands.shape[1] == 0


@outlined
def step_lanes(policy, shape, engine, lanes, no_sink, lagging, end):
    """The steps before the clock `end` of lanes that may lag, or of the others; returns their next clock."""
    due = FAR
    for lane in range(lanes.due.shape[0]):
        if may_lag(lanes, lane) == lagging:
            while lanes.due[lane] < end:
                step_lane(policy, shape, engine, lanes, no_sink, lane, lanes.due[lane])
            due = min(due, lanes.due[lane])
    return due


@kernel
def run(policy, shape, engine, lanes, no_sink, clocks):
    """Go on for some `clocks` clocks, or until every request is served.

    Lanes that only write lag behind until the engine waits for them: many steps of one lane after the other
    are faster than one of each in turn.

    Returns DONE; MORE; RECORD_FULL where a lane's record of commands needs more room before it goes on.

    Raises:
        RuntimeError: nothing can ever happen again.
    """
    value = lanes.value
    if value[CLOCK] == 0:
        for lane in range(lanes.due.shape[0]):
            of_lane = lanes.states[lane].value
            of_lane[NEXT_REFRESH] = next_refresh(of_lane)
        begin(engine)
        value[CLOCK] = value[LAGGING_CLOCK] = 1
    stop = value[CLOCK] + clocks
    while value[CLOCK] < stop and value[UNSERVED] > 0:
        clock = value[CLOCK]
        tick = known_until(engine, clock)
        end = (tick + engine.dram_ticks - 1) // engine.dram_ticks + 1
        if not has_room(lanes, end - clock):
            return RECORD_FULL
        advance(engine, tick - 1)
        take_handed(engine, lanes.offers, lanes.due)
        due = step_lanes(policy, shape, engine, lanes, no_sink, False, end)
        if waits_for_credit(engine) or end - value[LAGGING_CLOCK] >= LONGEST_LAG:
            due = min(due, step_lanes(policy, shape, engine, lanes, no_sink, True, end))
            value[LAGGING_CLOCK] = end
        # Nothing else happens before the first step that is due, or the engine's next event.
        event = engine.packets.times[1] // engine.dram_ticks + 1
        value[CLOCK] = max(end, min(stop, min(due, event)))
    step_lanes(policy, shape, engine, lanes, no_sink, True, value[CLOCK])
    value[LAGGING_CLOCK] = value[CLOCK]
    return DONE if value[UNSERVED] == 0 else MORE
