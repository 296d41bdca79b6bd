"""A lane, or the host's controller, issues its next command, and the other observes it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._jit import inlined
from ndpsim.dram.dimm.beside import (
    FROM_ACTIVE,
    FROM_QUEUE,
    FROM_REFRESHES,
    NOWHERE,
    Beside,
    bank_of_command,
    choose,
    kind_of_command,
    oldest_arrival,
    request_of_command,
    row_of_command,
)
from ndpsim.dram.dimm.common import (
    commands_at,
    data_sink,
    host_source,
    note_refilling,
    note_room,
)
from ndpsim.dram.dimm.staging import give_to_multipliers, lane_source, next_step, stage
from ndpsim.dram.dimm.state import (
    HOST,
    LAST_COLUMN,
    NDP,
    READ,
    ROWS_LOST,
    TURNAROUNDS,
    WRITE,
)
from ndpsim.dram.dimm.transfers import carry_data
from ndpsim.dram.masks.banks import requeue_reads
from ndpsim.dram.masks.choose import (
    mode_changes,
    quiet_until,
)
from ndpsim.dram.masks.controller import would_accept
from ndpsim.dram.masks.issue import issue_active, issue_maintenance, issue_queued
from ndpsim.dram.masks.observe import (
    observe_activate,
    observe_column,
    observe_maintenance,
    observe_precharge,
    release_closed,
)
from ndpsim.dram.masks.state import (
    ACT,
    BANKS,
    BANKS_PER_RANK,
    COMMANDS_OF_KINDS,
    PENDING_BANK,
    PENDING_SIZE,
    PRE,
    RD,
    WR,
)
from ndpsim.dram.state import FAR, WRITE_MODE

__all__ = ["Asked", "make_asked", "step_host", "step_lane"]

Ints = NDArray[np.int64]


class Asked(NamedTuple):
    """When controllers are asked for their next command. Those of the lanes come first, then the host's."""

    wake: Ints  # [controller]: the clock before which it has none
    takes: Ints  # [controller]: 1 when it can take its next request
    withheld: Ints  # [controller]: 1 when it has one that waits for the first owner's
    since: Ints  # [controller]: the arrival of its oldest request
    due: Ints  # [bus]: the clock of its next step


def make_asked(lanes: int, buses: int) -> Asked:
    """All are asked at the first clock."""

    count = lanes + buses
    wake, due = np.ones(count, dtype=np.int64), np.ones(buses, dtype=np.int64)
    takes, withheld = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    return Asked(wake, takes, withheld, np.full(count, FAR, dtype=np.int64), due)


@inlined
def issue(policy, shape, state, latencies, source, sink, commands, origin, first, second, clock):
    """Issue a chosen command."""
    if origin == FROM_ACTIVE:
        issue_active(shape, state, latencies, source, sink, commands, first, second, clock)
    elif origin == FROM_REFRESHES:
        issue_maintenance(shape, state, source, sink, commands, second, clock)
    else:
        queue = state[WRITE_MODE] & 1
        issue_queued(policy, shape, state, latencies, source, sink, commands, queue, first, second, clock)


@inlined
def observe(shape, state, kind, bank, row, of_active, clock):
    """A controller learns of a command of the other. Returns whether it may have changed what can issue."""
    if kind == RD or kind == WR:
        observe_column(state, kind, bank, of_active, clock)
        return of_active
    if kind == ACT:
        observe_activate(shape, state, bank, row, clock)
    elif kind == PRE:
        observe_precharge(state, bank, clock)
    else:
        observe_maintenance(shape, state, kind, bank, clock)
    return True


@inlined
def note_command(tally, opened_by, owner, origin, kind, bank):
    """Count turns of a lane's data bus, and rows that one owner opened and the other's request closed."""
    if kind == RD or kind == WR:
        direction = READ if kind == RD else WRITE
        if tally[LAST_COLUMN] == 1 - direction:
            tally[TURNAROUNDS] += 1
        tally[LAST_COLUMN] = direction
    elif kind == ACT:
        opened_by[bank] = owner
    elif kind == PRE and origin == FROM_QUEUE and opened_by[bank] != owner:
        tally[ROWS_LOST + 1 - owner] += 1


@inlined
def next_asked(policy, shape, state, credit, clock):
    """The clock at which a controller is asked again that has issued a command at `clock`."""
    if state[PENDING_SIZE] > 0 or mode_changes(policy, state):
        return clock + 1
    return quiet_until(shape, state, state[WRITE_MODE] & 1, credit)


# ---- A lane, and the host


@inlined
def step_lane(setup, shapes, states, weights, transfers, claims, asked, commands, latencies, lane, clock):
    """A lane issues its next command, if it has one. Returns whether it has."""
    policy, shape, state = setup.policy, shapes[0], states[0][lane]
    count = states[1].shape[0]
    rank, bus = lane // count, lane % count
    host = states[1][bus]
    credit = claims.credit[lane]
    beside = Beside(
        states[1], bus, 0, rank * BANKS_PER_RANK, claims.lane_second[lane], claims.lane_direction[lane]
    )
    origin, first, second, wake, withheld = choose(policy, shape, state, credit[0], 0, beside, clock)
    asked.withheld[lane] = withheld
    asked.wake[lane] = wake
    if origin == NOWHERE:
        return False
    kind, bank = kind_of_command(origin, first, second), bank_of_command(state, origin, first, second)
    row, burst = row_of_command(state, origin, bank, first), request_of_command(state, origin, bank, first)
    note_command(claims.tally[lane], claims.opened_by[lane], NDP, origin, kind, bank)
    source, sink = lane_source(weights, lane), data_sink(claims, credit)
    trace = commands_at(commands, lane)
    issue(policy, shape, state, latencies, source, sink, trace, origin, first, second, clock)
    if origin == FROM_REFRESHES and credit[0] > clock:
        requeue_reads(shape, state, source, clock)
    changes = observe(shapes[1], host, kind, rank * BANKS_PER_RANK + bank, row, origin == FROM_ACTIVE, clock)
    if kind == RD:
        stage(weights, lane, burst, clock + shape.read_latency)
        next_step(weights, lane, state)
        give_to_multipliers(setup, weights, transfers, lane)
        note_room(setup, weights, claims, lane)
        note_refilling(claims, lane, clock + 1)
    if changes or host[PENDING_SIZE] > 0:
        number = states[0].shape[0] + bus
        asked.wake[number] = min(asked.wake[number], clock + 1)
    asked.since[lane] = oldest_arrival(shape, state)
    asked.wake[lane] = next_asked(policy, shape, state, credit[0], clock)
    asked.takes[lane] = would_accept(policy, state, source, clock + 1)
    return True


@inlined
def step_host(setup, shapes, states, weights, buses, traffic, claims, asked, commands, latencies, bus, clock):
    """The host's controller issues its next command, if it has one. Returns whether it has."""
    policy, shape, state = setup.policy, shapes[1], states[1][bus]
    lanes, count = states[0].shape[0], states[1].shape[0]
    other_credit = 0
    if state[PENDING_SIZE] > 0:
        lane = (state[PENDING_BANK] & (BANKS - 1)) // BANKS_PER_RANK * count + bus
        other_credit = claims.credit[lane, 0] if lane < lanes else 0
    beside = Beside(states[0], bus, count, 0, claims.host_second[bus], claims.host_direction[bus])
    origin, first, second, wake, withheld = choose(policy, shape, state, 0, other_credit, beside, clock)
    number = lanes + bus
    asked.withheld[number] = withheld
    asked.wake[number] = wake
    if origin == NOWHERE:
        asked.since[number] = oldest_arrival(shape, state)  # of another queue, perhaps
        return False
    kind, bank = kind_of_command(origin, first, second), bank_of_command(state, origin, first, second)
    row, rank = row_of_command(state, origin, bank, first), bank // BANKS_PER_RANK
    source, sink = host_source(traffic, bus), data_sink(claims, claims.no_credit)
    trace = commands_at(commands, bus)
    issue(policy, shape, state, latencies[bus], source, sink, trace, origin, first, second, clock)
    if kind == RD or kind == WR:
        carry_data(setup, buses, bus, READ if kind == RD else WRITE, rank, clock)
    lane = rank * count + bus
    if lane < lanes:
        other, lane_bank = states[0][lane], bank % BANKS_PER_RANK
        note_command(claims.tally[lane], claims.opened_by[lane], HOST, origin, kind, lane_bank)
        claims.host_issued[lane, COMMANDS_OF_KINDS[kind]] += 1
        if observe(shapes[0], other, kind, lane_bank, row, origin == FROM_ACTIVE, clock):
            asked.wake[lane] = min(asked.wake[lane], clock + 1)
        if origin == FROM_REFRESHES:
            release_closed(state, rank)
            if claims.credit[lane, 0] > clock:
                requeue_reads(shapes[0], other, lane_source(weights, lane), clock)
    asked.since[number] = oldest_arrival(shape, state)
    asked.wake[number] = next_asked(policy, shape, state, 0, clock)
    asked.takes[number] = would_accept(policy, state, source, clock + 1)
    return True
