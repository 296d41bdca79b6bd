"""A lane, or the host's controller, issues its next command, and the other observes it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, inlined, outlined
from ndpsim.dimm.common import (
    commands_at,
    count_served,
    data_sink,
    host_source,
    record_command,
    record_host_data,
    serve_lane,
    take_command_bus,
)
from ndpsim.dimm.relayout import (
    has_requests,
    looks_for_offers,
    looks_for_room,
    source_of,
)
from ndpsim.dimm.staging import lane_source
from ndpsim.dimm.state import HOST, NDP, READ, WRITE
from ndpsim.dram.fast.banks import requeue_reads
from ndpsim.dram.fast.blocking import Blocking
from ndpsim.dram.fast.choose import next_ready_after
from ndpsim.dram.fast.controller import would_accept
from ndpsim.dram.fast.fields import ACT, BANKS, BANKS_PER_RANK, PRE, RANKS, RD, READS, WR, WRITES
from ndpsim.dram.fast.observe import (
    observe_activate,
    observe_column,
    observe_maintenance,
    observe_precharge,
    release_closed,
)
from ndpsim.dram.fast.shape import FROM_ACTIVE, FROM_MAINTENANCE, FROM_QUEUE, NOWHERE, Shape
from ndpsim.dram.fast.state import COMMAND_OF_CLASS
from ndpsim.dram.fast.step import step
from ndpsim.dram.fast.vectors import assume_nonnegative
from ndpsim.dram.state import WRITE_MODE, Channel, Commands

Ints = NDArray[np.int64]

HOSTS = RANKS
HOST_BIT = 1 << HOSTS
UNKNOWN = -2


@by_reference
class FastControllers(NamedTuple):
    """The controllers of the lanes, or of the host's buses, and their command traces."""

    shape: Shape
    states: NDArray[Any]  # [controller], see `dram.fast.fields`
    values: Ints  # [controller, place], the counters in `states`
    latencies: Ints  # [controller, stream, clocks]
    commands: Commands


@by_reference
class Wakeups(NamedTuple):
    """When controllers wake up: the wake-up state of the arbiter.

    Of the controllers of a bus, number n is that of the lane of rank n, and number HOSTS the host's; so are
    the bits of masks.
    """

    wake: Ints  # [bus, controller]: the clock before which it has no command
    starvation_deadline: Ints  # [bus, controller]: no request has waited for too long before
    takes: Ints  # [bus], mask of those that may take a request at the next clock
    blocked: Ints  # [bus], mask of the lanes with a command that waits for the host's, or a command bus
    host_blocked: Ints  # [bus], mask of the ranks on which one of the host waits likewise
    next_from: Ints  # [bus]: the clock from which a lane may read its next step
    due: Ints  # [bus]: the clock of its next step,
    next_active: Ints  # [bus]: and of the next step that does more than take requests
    carries_at: Ints  # [bus]: the clock at which its next transfer of activations or results is ready
    column: Ints  # [bus, controller, 2]: its `concurrent.next_column`, or UNKNOWN


def make_wakeups(buses: int) -> Wakeups:
    """Wake-up times: all controllers wake up at the first clock."""
    each = (HOSTS + 1,)
    more = {"wake": each, "starvation_deadline": each, "column": (*each, 2)}
    return Wakeups(
        **{name: np.zeros((buses, *more.get(name, ())), dtype=np.int64) for name in Wakeups._fields}
    )


@inlined
def observe(shape, state, command, bank, row, from_active, clock):
    """Update a controller for a command of the other. Returns whether other commands may now issue."""
    if command == RD or command == WR:
        observe_column(state, command, bank, from_active, clock)
        return from_active
    if command == ACT:
        observe_activate(shape, state, bank, row, clock)
    elif command == PRE:
        observe_precharge(state, bank, clock)
    else:
        observe_maintenance(shape, state, command, bank, clock)
    return True


@inlined
def direction_of(command):
    """The direction of a command's data; -1: it has none."""
    return READ if command == RD else WRITE if command == WR else -1


@inlined
def set_bit(mask, bit, wanted):
    """The mask with a bit set, or not."""
    return mask | bit if wanted else mask & ~bit


@inlined
def looks_for_requests(setup, relayout, state, source, weights, lane, clock):
    """Whether a lane may take a request at `clock`, as far as is known; see `relayout.due`, too."""
    may_accept = would_accept(setup.policy, state, source, clock)
    reads, writes = state.queued[READS], state.queued[WRITES]
    looks = looks_for_offers(relayout, setup.policy, lane, reads, writes, clock)
    if not has_requests(relayout, lane):
        return may_accept
    return looks_for_room(relayout, setup, weights, lane, state.value, may_accept, clock) or looks


# ---- A lane, and the host


@outlined
def step_lane(setup, agents, lanes, hosts, wakeups, rank, bus, clock):
    """A lane issues its next command, if it has one. Returns whether it has, or its mode has changed."""
    weights, claims, count = agents.weights, agents.claims, wakeups.due.shape[0]
    rank, bus = assume_nonnegative(rank), assume_nonnegative(bus)
    lane, bit = assume_nonnegative(rank * count + bus), 1 << rank
    policy, shape, state, host = setup.policy, lanes.shape, lanes.states[lane], hosts.states[bus]
    credit, write_mode = claims.credit[lane], state.value[WRITE_MODE]
    first_bank, second, direction = (
        rank * BANKS_PER_RANK,
        claims.lane_second[lane],
        claims.lane_direction[lane],
    )
    blocking = Blocking(hosts.states, bus, 0, first_bank, second, direction)
    source, sink = source_of(agents.relayout, weights, lane), data_sink(claims, credit)
    trace, latencies = commands_at(lanes.commands, lane), lanes.latencies[0, 0]
    wakeups.column[bus, rank, 0] = UNKNOWN
    channel = Channel(policy, shape, state, latencies, source, sink, trace)
    origin, command, bank, row, burst, wake, blocked = step(channel, blocking, credit[0], 0, clock)
    wakeups.blocked[bus] = set_bit(wakeups.blocked[bus], bit, blocked != 0)
    wakeups.wake[bus, rank] = wake
    if state.value[WRITE_MODE] != write_mode:
        wakeups.starvation_deadline[bus, rank] = 0
    if origin == NOWHERE:
        return state.value[WRITE_MODE] != write_mode
    direction, opens, closes = direction_of(command), command == ACT, command == PRE and origin == FROM_QUEUE
    record_command(claims.totals[lane], claims.opened_by[lane], NDP, direction, opens, closes, bank)
    take_command_bus(setup, claims, rank, bus, COMMAND_OF_CLASS[command], clock)
    dimm = assume_nonnegative(setup.dimm_of_rank[rank])
    claims.last_rank[dimm, bus] = rank
    if origin == FROM_MAINTENANCE and credit[0] > clock:
        requeue_reads(shape, state, source, clock)
    changes = observe(hosts.shape, host, command, first_bank + bank, row, origin == FROM_ACTIVE, clock)
    if direction >= 0:
        serve_lane(setup, agents, state.value, lanes.values, lane, dimm, burst, count, clock)
        wakeups.next_from[bus] = min(wakeups.next_from[bus], weights.next_from[lane])
    if changes or host.pending_size > 0:
        wakeups.column[bus, HOSTS, 0] = UNKNOWN
        wakeups.wake[bus, HOSTS] = min(wakeups.wake[bus, HOSTS], clock + 1)
    wakeups.wake[bus, rank] = next_ready_after(policy, shape, state, credit[0], clock)
    takes = looks_for_requests(setup, agents.relayout, state, source, weights, lane, clock + 1)
    wakeups.takes[bus] = set_bit(wakeups.takes[bus], bit, takes)
    return True


@inlined
def other_credit_of(agents, lanes, state, bus, count):
    """The clock from which the lane has room whose refresh the host's controller would issue next."""
    if state.pending_size == 0:
        return 0
    lane = (state.pending_bank[0] & (BANKS - 1)) // BANKS_PER_RANK * count + bus
    return agents.claims.credit[lane, 0] if lane < lanes.states.shape[0] else 0


@inlined
def lane_observes(agents, lanes, wakeups, rank, bus, origin, command, bank, row, clock):
    """Update the lane of a rank for a command of the host."""
    lane = assume_nonnegative(rank * wakeups.due.shape[0] + bus)
    claims, state = agents.claims, lanes.states[lane]
    direction, opens, closes = direction_of(command), command == ACT, command == PRE and origin == FROM_QUEUE
    record_command(claims.totals[lane], claims.opened_by[lane], HOST, direction, opens, closes, bank)
    claims.host_issued[lane, COMMAND_OF_CLASS[command]] += 1
    if observe(lanes.shape, state, command, bank, row, origin == FROM_ACTIVE, clock):
        wakeups.column[bus, rank, 0] = UNKNOWN
        wakeups.wake[bus, rank] = min(wakeups.wake[bus, rank], clock + 1)
    if origin == FROM_MAINTENANCE and claims.credit[lane, 0] > clock:
        requeue_reads(lanes.shape, state, lane_source(agents.weights, lane), clock)


@outlined
def step_host(setup, agents, lanes, hosts, wakeups, bus, clock):
    """The host's controller issues its next command, if it has one. Returns as `step_lane` does."""
    claims, traffic, count = agents.claims, agents.traffic, hosts.states.shape[0]
    policy, shape, state = setup.policy, hosts.shape, hosts.states[bus]
    blocking = Blocking(lanes.states, bus, count, 0, claims.host_second[bus], claims.host_direction[bus])
    source, sink = host_source(traffic, bus), data_sink(claims, claims.no_credit)
    trace, no_latencies = commands_at(hosts.commands, bus), lanes.latencies[0, 0]
    before = count_served(state.value)
    wakeups.column[bus, HOSTS, 0] = UNKNOWN
    other_credit = other_credit_of(agents, lanes, state, bus, count)
    write_mode = state.value[WRITE_MODE]
    channel = Channel(policy, shape, state, no_latencies, source, sink, trace)
    origin, command, bank, row, request, wake, blocked = step(channel, blocking, 0, other_credit, clock)
    wakeups.host_blocked[bus] = blocked
    wakeups.wake[bus, HOSTS] = wake
    if state.value[WRITE_MODE] != write_mode:
        wakeups.starvation_deadline[bus, HOSTS] = 0
    if origin == NOWHERE:
        return state.value[WRITE_MODE] != write_mode
    rank = bank // BANKS_PER_RANK
    take_command_bus(setup, claims, rank, bus, COMMAND_OF_CLASS[command], clock)
    direction = direction_of(command)
    if direction >= 0:
        value, latencies = state.value, hosts.latencies
        record_host_data(setup, agents, bus, request, rank, direction, value, before, latencies, clock)
    if rank * count + bus < lanes.states.shape[0]:
        bank_of_lane = bank % BANKS_PER_RANK
        lane_observes(agents, lanes, wakeups, rank, bus, origin, command, bank_of_lane, row, clock)
        if origin == FROM_MAINTENANCE:
            release_closed(state, rank)
    wakeups.wake[bus, HOSTS] = next_ready_after(policy, shape, state, 0, clock)
    takes = would_accept(policy, state, source, clock + 1)
    wakeups.takes[bus] = set_bit(wakeups.takes[bus], HOST_BIT, takes)
    return True
