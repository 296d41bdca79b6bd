"""The step of a bus, on the fast controller, whose lanes share ranks with a host, or command buses.

The package describes the decisions; `dimm.readable` makes the same decisions clock by clock. A controller
without a command to issue wakes up at the first clock at which it can have one (its `wake`). For a controller
whose ready command is blocked see `issue_commands`.
"""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined
from ndpsim.dimm.arbitration_points import host_waits, master_changes_at
from ndpsim.dimm.arrivals import (
    ask_for_refresh,
    begin_steps,
    refresh_due,
    take_host_request,
    take_lane_requests,
)
from ndpsim.dimm.common import find_first, has_work, lane_ranks, slot_of
from ndpsim.dimm.state import FIRST, HOST, NDP
from ndpsim.dimm.stepping import HOSTS, UNKNOWN, step_host, step_lane
from ndpsim.dram.fast.banks import active_bank, is_barred, requests_held
from ndpsim.dram.fast.choose import next_ready_after
from ndpsim.dram.fast.fields import BANKS_PER_RANK, RD, SLOTS
from ndpsim.dram.fast.slots import slot_bank, wait_row
from ndpsim.dram.fast.vectors import assume_nonnegative, lowest, rotate
from ndpsim.dram.state import BUS_TAKEN, FAR, HOST_WAITS, REFRESH_PENDING, WRITE_MODE


class Shared(NamedTuple):
    """Sharing: lanes may share their ranks with a host, and command buses with each other."""


# ---- Which master is first


@inlined
def lanes_to_wake(wakeups, ranks, bus, clock):
    """The mask of the lanes of a bus that may have a command to issue, as far as none has to wait."""
    wake_mask = 0
    for rank in range(ranks):
        wake_mask |= (wakeups.wake[bus, rank] <= clock) << rank
    return wake_mask


@inlined
def starves(setup, shape, state, wakeups, bus, number, clock):
    """Whether the oldest request that a controller serves has waited for longer than the threshold."""
    if clock < wakeups.starvation_deadline[bus, number]:
        return False
    since = oldest_arrival(shape, state)
    wakeups.starvation_deadline[bus, number] = min(since, clock - 1) + setup.starvation_clocks + 1
    return clock - since > setup.starvation_clocks


@inlined
def update_grants(setup, claims, lanes, hosts, wakeups, bus, buses, clock):
    """Find the master that is first on each lane.

    Returns the mask of lanes on which it is the NDP unit, and the mask of those on which that has changed.
    """
    host_starves = starves(setup, hosts.shape, hosts.states[bus], wakeups, bus, HOSTS, clock)
    writes, records = hosts.values[bus, WRITE_MODE] & 1 != 0, claims.grant_records[bus]
    ndp_first, regranted = 0, 0
    for number in range(lane_ranks(setup, claims)):
        rank = assume_nonnegative(number)
        lane = assume_nonnegative(rank * buses + bus)
        lane_starves = starves(setup, lanes.shape, lanes.states[lane], wakeups, bus, rank, clock)
        is_idle = host_waits(setup.arbitration) and oldest_arrival(lanes.shape, lanes.states[lane]) == FAR
        first = find_first(
            setup, claims, lane, rank, records, writes, lane_starves, host_starves, is_idle, clock
        )
        regranted |= (claims.totals[lane, FIRST] != first) << rank
        ndp_first |= (first == NDP) << rank
        claims.totals[lane, FIRST] = first
    return ndp_first, regranted


@inlined
def grants_change(setup, claims, wakeups, has_host, bus, buses, clock):
    """The first clock at which another master may be first, or a command bus free, without other events."""
    changes = FAR
    for dimm in range(claims.bus_free.shape[0]):
        changes = earlier_of(changes, claims.bus_free[dimm, bus], clock)
    if has_host:
        changes = earlier_of(changes, wakeups.starvation_deadline[bus, HOSTS], clock)
    for rank in range(lane_ranks(setup, claims)):
        changes = earlier_of(changes, claims.half_free[rank * buses + bus], clock)
        changes = earlier_of(changes, wakeups.starvation_deadline[bus, rank], clock)
        master_changes = master_changes_at(setup.arbitration, claims.grant_records[bus], rank, clock)
        changes = earlier_of(changes, master_changes, clock)
    return changes


@inlined
def earlier_of(clock, second, now):
    """The earlier of two clocks; the second counts only if it is in the future."""
    return min(clock, second) if second > now else clock


@inlined
def pending_refresh(state):
    """REFRESH_PENDING if a refresh is pending that holds back the queue of a controller, else 0."""
    return REFRESH_PENDING if is_barred(state) else 0


@inlined
def mask_lanes(setup, claims, lanes, wakeups, bus, buses, clock):
    """Mark the ranks on which the host is second, the direction of the lanes' next data, and taken buses."""
    for rank in range(lane_ranks(setup, claims)):
        lane = rank * buses + bus
        claims.host_second[bus, rank] = claims.totals[lane, FIRST] == NDP
        claims.host_direction[bus, rank] = 0
        if claims.totals[lane, FIRST] == NDP:
            column = next_data(lanes.shape, lanes.states[lane], wakeups, bus, rank)
            claims.host_direction[bus, rank] = column[1] | pending_refresh(lanes.states[lane])
            if host_waits(setup.arbitration):
                claims.host_direction[bus, rank] |= HOST_WAITS
        if claims.bus_free[setup.dimm_of_rank[rank], bus] > clock:
            claims.host_direction[bus, rank] |= BUS_TAKEN


@inlined
def next_data(shape, state, wakeups, bus, number):
    """The next data of a controller, see `next_column`; they change with its requests and rows."""
    column = wakeups.column[bus, number]
    if column[0] == UNKNOWN:
        column[0], column[1] = next_column(shape, state)
    return column[0], column[1]


@inlined
def first_slot(setup, claims, mask, bus):
    """The rank whose slot on its command bus is first, among the lanes of a mask that is not empty."""
    rank = assume_nonnegative(lowest(mask))
    if setup.command_clocks[0] == 0:
        return rank
    next_active, first = mask & (mask - 1), slot_of(setup, claims, rank, bus)
    while next_active != 0:
        candidate = assume_nonnegative(lowest(next_active))
        next_active &= next_active - 1
        turn = slot_of(setup, claims, candidate, bus)
        if turn < first:
            rank, first = candidate, turn
    return rank


# ---- A bus and the lanes behind it


@inlined
def is_put_off(policy, shape, state, credit, wakeups, bus, number, clock):
    """Whether commands of the other controller have delayed this one's next command; records until when."""
    wakeups.wake[bus, number] = next_ready_after(policy, shape, state, credit, clock - 1)
    return wakeups.wake[bus, number] > clock


@inlined
def is_lane_put_off(setup, claims, lanes, wakeups, lane, rank, bus, clock):
    """`is_put_off` for a lane without a command that waits."""
    if wakeups.blocked[bus] >> rank & 1:
        return False
    credit = claims.credit[lane, 0]
    return is_put_off(setup.policy, lanes.shape, lanes.states[lane], credit, wakeups, bus, rank, clock)


@inlined
def is_host_to_wake(setup, hosts, wakeups, freed, bus, clock):
    """Whether the host's controller may have a command to issue; `freed`: ranks that may be unblocked."""
    if wakeups.host_blocked[bus] & freed != 0:
        return True
    if wakeups.wake[bus, HOSTS] > clock:
        return False
    if wakeups.host_blocked[bus] != 0:
        return True
    return not is_put_off(setup.policy, hosts.shape, hosts.states[bus], 0, wakeups, bus, HOSTS, clock)


@inlined
def next_host_data(hosts, wakeups, bus):
    """The host's next data, see `next_data`, and whether it waits for a refresh."""
    rank, direction = next_data(hosts.shape, hosts.states[bus], wakeups, bus, HOSTS)
    return rank, direction, pending_refresh(hosts.states[bus])


@inlined
def step_lanes(setup, agents, lanes, hosts, wakeups, mask, master, bus, clock):
    """Lanes of a mask, on which `master` is first, issue. A lane without reads yields its rank to the host.

    Returns the mask of those that had a command, or whose mode has changed.
    """
    claims, buses, happened = agents.claims, wakeups.due.shape[0], 0
    has_host, is_second = agents.traffic.takes_part[bus], master == HOST
    host_rank, host_direction, pending = -1, 0, 0
    if is_second and mask != 0:  # before any lane issues: they issue at once
        host_rank, host_direction, pending = next_host_data(hosts, wakeups, bus)
    while mask != 0:
        rank = first_slot(setup, claims, mask, bus)
        bit = 1 << rank
        mask &= ~bit
        lane = assume_nonnegative(rank * buses + bus)
        if claims.bus_free[setup.dimm_of_rank[rank], bus] > clock:
            wakeups.blocked[bus] |= bit
        elif has_host and not has_work(agents, lanes.states[lane].value, lane):
            wakeups.wake[bus, rank] = FAR
            wakeups.blocked[bus] &= ~bit
        elif not (is_second and is_lane_put_off(setup, claims, lanes, wakeups, lane, rank, bus, clock)):
            claims.lane_second[lane, 0] = is_second
            claims.lane_direction[lane, 0] = pending | (host_direction if host_rank == rank else 0)
            if step_lane(setup, agents, lanes, hosts, wakeups, rank, bus, clock):
                happened |= bit
    return happened


@inlined
def issue_commands(setup, agents, lanes, hosts, wakeups, woken, bus, clock):
    """All that may have a command issue: the lanes that are first, the host, the lanes on which it is first.

    One that is blocked wakes up when what it waits for has issued; when another master is first; when a
    request just taken may make it ready, on the ranks `woken`; and at every step of a command bus that lanes
    share. Returns whether there was a command, or a mode has changed.
    """
    claims, buses = agents.claims, wakeups.due.shape[0]
    has_host = agents.traffic.takes_part[bus]
    wake_mask = lanes_to_wake(wakeups, lane_ranks(setup, claims), bus, clock)
    ndp_first, regranted = -1, 0
    if has_host:
        ndp_first, regranted = update_grants(setup, claims, lanes, hosts, wakeups, bus, buses, clock)
    if setup.command_clocks[0] != 0:
        woken = -1
    regranted |= woken
    wake_mask |= wakeups.blocked[bus] & regranted
    issued = step_lanes(setup, agents, lanes, hosts, wakeups, wake_mask & ndp_first, NDP, bus, clock)
    if not has_host:
        return issued != 0
    happened, host_changed = issued != 0, wakeups.wake[bus, HOSTS] <= clock
    wakes_host = is_host_to_wake(setup, hosts, wakeups, regranted | issued, bus, clock)
    if wakes_host:
        mask_lanes(setup, claims, lanes, wakeups, bus, buses, clock)
        happened |= step_host(setup, agents, lanes, hosts, wakeups, bus, clock)
    if wakes_host or host_changed or issued != 0:
        wake_mask |= wakeups.blocked[bus]
    issued = step_lanes(setup, agents, lanes, hosts, wakeups, wake_mask & ~ndp_first, HOST, bus, clock)
    return happened or issued != 0


@inlined
def next_bus_step(setup, agents, lanes, hosts, wakeups, happened, bus, clock):
    """The clock of the next step of a bus that does more than take requests."""
    claims, traffic = agents.claims, agents.traffic
    buses, has_host = wakeups.due.shape[0], traffic.takes_part[bus]
    ranks = lane_ranks(setup, claims)
    next_clock = min(refresh_due(lanes, hosts, has_host, bus, buses, ranks), wakeups.next_from[bus])
    for rank in range(ranks):
        next_clock = min(next_clock, wakeups.wake[bus, rank])
    if has_host:
        next_clock = min(next_clock, wakeups.wake[bus, HOSTS])
        if traffic.next[bus] < 0:
            next_clock = min(next_clock, traffic.due[bus])
    if wakeups.blocked[bus] | wakeups.host_blocked[bus] != 0:
        if happened:
            return clock + 1
        next_clock = min(next_clock, grants_change(setup, claims, wakeups, has_host, bus, buses, clock))
    return max(next_clock, clock + 1)


@inlined
def step_bus(sharing, setup, agents, lanes, hosts, wakeups, bus, clock):
    """A step of a bus and of the lanes behind it. False when refresh can never catch up."""
    buses, has_host = wakeups.due.shape[0], agents.traffic.takes_part[bus]
    woken = 0
    if has_host:
        woken = take_host_request(setup, agents, hosts, wakeups, bus, clock)
    if wakeups.next_from[bus] <= clock:
        begin_steps(setup, agents.weights, lanes, wakeups, bus, buses, clock)
    woken |= take_lane_requests(setup, agents, lanes, wakeups, bus, buses, clock)
    if woken & (wakeups.blocked[bus] | wakeups.host_blocked[bus]) != 0:
        wakeups.next_active[bus] = clock
    falls_due = refresh_due(lanes, hosts, has_host, bus, buses, lane_ranks(setup, agents.claims)) <= clock
    if falls_due and not ask_for_refresh(setup, lanes, hosts, wakeups, has_host, bus, clock):
        return False
    if wakeups.next_active[bus] <= clock:
        happened = issue_commands(setup, agents, lanes, hosts, wakeups, woken, bus, clock)
        wakeups.next_active[bus] = next_bus_step(setup, agents, lanes, hosts, wakeups, happened, bus, clock)
    wakeups.due[bus] = clock + 1 if wakeups.takes[bus] != 0 else wakeups.next_active[bus]
    return True


# ---- How long a controller waits, and its next data


@inlined
def oldest_arrival(shape, state):
    """The arrival of the oldest active or queued request that is served now, FAR without any."""
    oldest = FAR
    for active_queue in range(2 * shape.ranks):
        if state.active_size[active_queue] > 0:
            oldest = min(oldest, state.active_arrived[active_bank(state, active_queue, 0)])
    queue = state.value[WRITE_MODE] & 1
    tail, queued = state.tail[0, queue], state.used[0, queue]
    if queued != 0:
        slot = lowest(rotate(queued, tail)) + tail & SLOTS - 1
        oldest = min(oldest, state.slot_arrived[queue, slot])
    return oldest


@inlined
def next_column(shape, state):
    """The oldest active or queued request whose row is open: (its rank, -1 if there is none; 1 if it reads,
    2 if it writes).
    """
    oldest, rank, direction = FAR, -1, 0
    for active_queue in range(2 * shape.ranks):
        if state.active_size[active_queue] > 0:
            arrived = state.active_arrived[active_bank(state, active_queue, 0)]
            if arrived < oldest:
                oldest, rank, direction = arrived, active_queue // 2, 1 + active_queue % 2
    if is_barred(state):
        return rank, direction
    queue, hits = state.value[WRITE_MODE] & 1, 0
    for number in range(shape.ranks):
        hits |= state.waiting[0, wait_row(queue, number), RD + queue]
    if state.pending_size > 0:
        hits &= ~requests_held(state, queue, 0, 0)
    if hits != 0:
        tail = state.tail[0, queue]
        slot = lowest(rotate(hits, tail)) + tail & SLOTS - 1
        if state.slot_arrived[queue, slot] < oldest:
            rank, direction = slot_bank(state, queue, slot) // BANKS_PER_RANK, 1 + queue
    return rank, direction
