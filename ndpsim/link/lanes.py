"""Lanes with fast controllers around a relayout engine, each stepped only when something can happen there.

`ndpsim.link.readable_lanes` is the same, step by step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._jit import inlined, kernel
from ndpsim.dram.maintenance import next_refresh
from ndpsim.dram.masks.banks import active_bank
from ndpsim.dram.masks.choose import (
    active_quiet_until,
    choose_active,
    choose_maintenance,
    choose_queued,
    mode_changes,
    quiet_until,
)
from ndpsim.dram.masks.controller import accept, refresh, would_accept
from ndpsim.dram.masks.issue import issue_active, issue_maintenance, issue_queued
from ndpsim.dram.masks.state import (
    ACTIVE_REQUEST,
    PENDING_SIZE,
    RD,
    READS,
    SLOT_REQUEST,
    SLOTS,
    WR,
    make_states,
)
from ndpsim.dram.masks.words import lowest, natural
from ndpsim.dram.state import (
    FAR,
    LATENCIES,
    NEXT_REFRESH,
    PLACE,
    RECORD_FIELDS,
    REFRESHES,
    WRITE_MODE,
    Commands,
    Source,
)
from ndpsim.link.engine import advance, begin, read_issued, write_taken
from ndpsim.link.requests import Requests
from ndpsim.spec import Tables

__all__ = ["DONE", "MORE", "RECORD_FULL", "Lanes", "make_lanes", "run"]

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

DONE, MORE, RECORD_FULL = range(3)

_WHEEL = 256  # clocks ahead at which lanes can be put down to be stepped
_NONE = -1


class Lanes(NamedTuple):
    """Lanes, the requests that were offered to each, and when each is to be stepped."""

    lane: Narrow  # [request]
    source: Source  # all requests; `cycle` is the engine's `offered_at`
    next_offered: Narrow  # [request]: the one offered to its lane after it
    first_offered: Narrow  # [lane]: the first one that it has not taken, -1: none
    last_offered: Narrow  # [lane]
    left: Ints  # [lane]: requests that are not served, those not yet offered included
    quiet: Ints  # [lane]: the clock before which none of those that it has taken can issue a command
    due: Ints  # [lane]: the clock of its next step
    wheel: Ints  # [clock modulo its length, word]: mask of the lanes that may be due
    states: Ints  # [lane, word]: see `dram.masks.state`
    latencies: Ints  # of the lanes together
    commands: Ints  # [lane, n, field]: recorded; n is 0 where nothing is
    recorded: Ints  # [lane, 1]
    value: Ints  # [3]: the clock of the next step of any, requests not served, the clock of the last command


def make_lanes(tables: Tables, requests: Requests, offered_at: Ints, lanes: int, room: int) -> Lanes:
    """Lanes at rest; `room`: commands that each can record, 0 for none."""
    total = len(requests.lane)
    left = np.bincount(requests.lane, minlength=lanes)
    source = Source(
        requests.place,
        requests.column,
        np.arange(total, dtype=np.int32),  # no burst is read or written twice: each has an address of its own
        offered_at,
        np.array([FAR]),
        0,
    )
    return Lanes(
        lane=requests.lane,
        source=source,
        next_offered=np.empty(total, dtype=np.int32),
        first_offered=np.full(lanes, _NONE, dtype=np.int32),
        last_offered=np.full(lanes, _NONE, dtype=np.int32),
        left=left,
        quiet=np.zeros(lanes, dtype=np.int64),
        due=np.zeros(lanes, dtype=np.int64),
        wheel=np.zeros((_WHEEL, -(-lanes // 64)), dtype=np.int64),
        states=make_states(tables, lanes),
        latencies=np.zeros(LATENCIES, dtype=np.int64),
        commands=np.zeros((lanes, room, RECORD_FIELDS), dtype=np.int64),
        recorded=np.zeros((lanes, 1), dtype=np.int64),
        value=np.array([0, total, 0]),
    )


@inlined
def step_at(lanes, lane, due, clock):
    """A lane is to be stepped at the clock `due`; where that is far ahead, the wheel asks again before."""
    lanes.due[lane] = due
    at = min(due, clock + _WHEEL - 1) & (_WHEEL - 1)
    lanes.wheel[at, lane >> 6] |= 1 << (lane & 63)


@inlined
def take_handed(engine, lanes, clock):
    """Requests that the engine has handed out are offered to their lanes."""
    for n in range(engine.handed_count[0]):
        request = natural(engine.handed[n])
        lane = natural(lanes.lane[request])
        lanes.next_offered[request] = _NONE
        if lanes.first_offered[lane] < 0:
            lanes.first_offered[lane] = request
            due = max(engine.offered_at[request] + 1, clock)
            if due < lanes.due[lane]:
                step_at(lanes, lane, due, clock)
        else:
            lanes.next_offered[lanes.last_offered[lane]] = request
        lanes.last_offered[lane] = request
    engine.handed_count[0] = 0


@inlined
def has_next(policy, lanes, state, lane, clock):
    """Whether a lane takes its next request at `clock`, if nothing happens before."""
    if lanes.first_offered[lane] < 0:
        return False
    state[PLACE] = lanes.first_offered[lane]
    return would_accept(policy, state, lanes.source, clock)


@inlined
def choose_and_issue(policy, shape, state, latencies, source, no_sink, commands, clock):
    """As that of `dram.masks.controller`, which says when the next command can issue, and not which did.

    Returns the clock before which no other can issue, whether a request was served, and which one if that
    was a read, else -1.
    """
    line, place = choose_active(shape, state, 0, clock)
    served, read = False, _NONE
    if line >= 0:
        served = True
        if line & 1 == READS:
            read = state[ACTIVE_REQUEST + active_bank(state, line, place)]
        issue_active(shape, state, latencies, source, no_sink, commands, line, place, clock)
    elif state[PENDING_SIZE] > 0:
        kind, at = choose_maintenance(shape, state, 0, 0, clock)
        if kind < 0:
            return min(at, active_quiet_until(shape, state, 0)), served, read
        issue_maintenance(shape, state, source, no_sink, commands, kind, clock)
    else:
        if mode_changes(policy, state):
            state[WRITE_MODE] ^= 1
        queue = state[WRITE_MODE] & 1
        slot, kind = choose_queued(policy, shape, state, queue, 0, clock)
        if slot >= 0:
            slot &= SLOTS - 1
            served = kind == RD or kind == WR
            if kind == RD:
                read = state[SLOT_REQUEST + READS * SLOTS + slot]
            issue_queued(policy, shape, state, latencies, source, no_sink, commands, queue, slot, kind, clock)
    quiet = quiet_until(shape, state, state[WRITE_MODE] & 1, 0)
    return clock + 1 if state[PENDING_SIZE] > 0 else quiet, served, read


@inlined
def step_lane(policy, shape, engine, lanes, no_sink, lane, clock):
    """The step of a lane at `clock`; returns whether its record of commands is full."""
    state, source = lanes.states[lane], lanes.source
    quiet = lanes.quiet[lane]
    if has_next(policy, lanes, state, lane, clock):
        request = lanes.first_offered[lane]
        lanes.first_offered[lane] = lanes.next_offered[request]
        quiet = min(quiet, accept(state, lanes.latencies, source, clock))
        reads = engine.read_tick.shape[0]
        if request >= reads:
            write_taken(engine, request - reads, clock)
    if clock >= state[NEXT_REFRESH]:
        quiet = clock
        if not refresh(shape, policy, state, clock):
            raise RuntimeError("a lane cannot go on: refreshes never catch up")
    full = False
    if clock >= quiet or mode_changes(policy, state):
        commands = Commands(lanes.commands[lane], lanes.recorded[lane])
        quiet, served, read = choose_and_issue(
            policy, shape, state, lanes.latencies, source, no_sink, commands, clock
        )
        if served:
            lanes.left[lane] -= 1
            lanes.value[1] -= 1
            lanes.value[2] = clock
        if read >= 0:
            read_issued(engine, read, clock)
        full = 0 < commands.entry.shape[0] == commands.length[0]
    lanes.quiet[lane] = quiet
    due = FAR
    if lanes.left[lane] > 0:
        due = clock + 1
        if not (has_next(policy, lanes, state, lane, due) or mode_changes(policy, state)):
            due = max(due, min(quiet, state[NEXT_REFRESH]))
            if lanes.first_offered[lane] >= 0:
                cycle = source.cycle[lanes.first_offered[lane]]
                if cycle > clock:
                    due = min(due, cycle + 1)
    step_at(lanes, lane, due, clock)
    return full


@inlined
def start(policy, shape, engine, lanes):
    """Offer the first requests, and put down every lane for its first step."""
    for lane in range(lanes.due.shape[0]):
        lanes.states[lane, NEXT_REFRESH] = next_refresh(shape, policy.refresh, lanes.states[lane, REFRESHES])
        step_at(lanes, lane, 1 if lanes.left[lane] > 0 else FAR, 1)
    begin(engine)
    take_handed(engine, lanes, 1)
    lanes.value[0] = 1


@kernel
def run(policy, shape, engine, lanes, no_sink, clocks):
    """Go on for `clocks` clocks, or until every request is served; see `make_lanes` for how it began.

    Returns DONE; MORE; RECORD_FULL where a lane's record of commands needs more room before it goes on.

    Raises:
        RuntimeError: nothing can ever happen again.
    """
    if lanes.value[0] == 0:
        start(policy, shape, engine, lanes)
    times, words = engine.packets.times, lanes.wheel.shape[1]
    for clock in range(lanes.value[0], lanes.value[0] + clocks):
        if times[1] <= (clock - 1) * engine.dram_ticks:
            advance(engine, (clock - 1) * engine.dram_ticks)
            take_handed(engine, lanes, clock)
        full = False
        for word in range(words):
            mask = lanes.wheel[clock & (_WHEEL - 1), word]
            lanes.wheel[clock & (_WHEEL - 1), word] = 0
            while mask != 0:
                lane = natural(word * 64 + lowest(mask))
                mask &= mask - 1
                if lanes.due[lane] == clock:
                    full |= step_lane(policy, shape, engine, lanes, no_sink, lane, clock)
                else:
                    step_at(lanes, lane, lanes.due[lane], clock)
        lanes.value[0] = clock + 1
        if lanes.value[1] == 0:
            return DONE
        if full:
            return RECORD_FULL
    return MORE
