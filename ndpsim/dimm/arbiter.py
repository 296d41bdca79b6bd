"""The arbiter of a channel's DIMMs on the fast controller: looks at a bus when something can happen there.

See the package for what it decides, and `dimm.readable` for the same, clock by clock.

A controller without a command to issue wakes up at the first clock at which it can have one (its `wake`).
One whose ready command is blocked wakes up as `issue_commands` says.
"""

from __future__ import annotations

from ndpsim._jit import inlined, kernel, outlined
from ndpsim.dimm.arbitration_points import host_waits, master_changes_at, usual_master
from ndpsim.dimm.arrivals import (
    ask_for_refresh,
    begin_steps,
    carry_transfers,
    refresh_due,
    take_host_request,
    take_lane_requests,
)
from ndpsim.dimm.common import (
    DONE,
    LATE,
    RECORD_FULL,
    STUCK,
    dimm_of,
    first_master,
    has_work,
    is_reached,
    lane_ranks,
    record_is_full,
    slot_of,
    update_credit,
    update_refilling,
)
from ndpsim.dimm.relayout import (
    engine_due,
    has_requests,
    offer_requests,
    offers_due,
    requests_left,
)
from ndpsim.dimm.staging import give_to_multipliers, next_step
from ndpsim.dimm.state import FIRST, HOST, NDP, REFILLING
from ndpsim.dimm.stepping import (
    HOSTS,
    UNKNOWN,
    step_host,
    step_lane,
)
from ndpsim.dimm.transfers import next_transfer
from ndpsim.dimm.waiting import next_column, oldest_arrival
from ndpsim.dram.fast.choose import next_ready_after
from ndpsim.dram.fast.words import assume_nonnegative, lowest
from ndpsim.dram.maintenance import next_refresh
from ndpsim.dram.state import (
    BUS_TAKEN,
    FAR,
    HOST_WAITS,
    NEXT_REFRESH,
    REFRESH_PENDING,
    WRITE_MODE,
)

__all__ = ["run"]


@inlined
def takes_part(hosts, traffic, bus):
    """Whether the host asks for anything on a bus."""
    if hosts is None:
        return False
    return traffic.takes_part[bus] != 0


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
    """Which master is first on each lane: (the mask of those on which it is the NDP unit, the mask of those
    on which that has changed).
    """
    if hosts is None:
        return -1, 0
    host_starves = starves(setup, hosts.shape, hosts.states[bus], wakeups, bus, HOSTS, clock)
    writes, records, ndp_first, regranted = (
        hosts.values[bus, WRITE_MODE] & 1 != 0,
        claims.grant_records[bus],
        0,
        0,
    )
    for number in range(lane_ranks(setup, claims)):
        rank = assume_nonnegative(number)
        lane = assume_nonnegative(rank * buses + bus)
        update_refilling(claims, lane, clock)
        lane_starves = starves(setup, lanes.shape, lanes.states[lane], wakeups, bus, rank, clock)
        usual = usual_master(setup.arbitration, records, rank, writes, clock)
        first = first_master(usual, claims.tally[lane, REFILLING], lane_starves, host_starves)
        if host_waits(setup.arbitration) and oldest_arrival(lanes.shape, lanes.states[lane]) == FAR:
            first = HOST
        regranted |= (claims.tally[lane, FIRST] != first) << rank
        ndp_first |= (first == NDP) << rank
        claims.tally[lane, FIRST] = first
    return ndp_first, regranted


@inlined
def grants_change(setup, claims, wakeups, has_host, bus, buses, clock):
    """The first clock at which another master may be first, or a command bus free, if nothing happens."""
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
def earlier_of(clock, other, now):
    """The earlier of two clocks, the second only where it is yet to come."""
    return min(clock, other) if other > now else clock


@inlined
def pending_refresh(state):
    """REFRESH_PENDING where a refresh of a controller is."""
    return REFRESH_PENDING if state.pending_size > 0 else 0


@inlined
def mask_lanes(setup, claims, lanes, wakeups, bus, buses, clock):
    """Where the host is second, which way the lanes' next data goes, and which command buses are taken."""
    for rank in range(lane_ranks(setup, claims)):
        lane = rank * buses + bus
        claims.host_second[bus, rank] = claims.tally[lane, FIRST] == NDP
        claims.host_direction[bus, rank] = 0
        if claims.tally[lane, FIRST] == NDP:
            column = noted_column(lanes.shape, lanes.states[lane], wakeups, bus, rank)
            claims.host_direction[bus, rank] = column[1] | pending_refresh(lanes.states[lane])
            if host_waits(setup.arbitration):
                claims.host_direction[bus, rank] |= HOST_WAITS
        if claims.bus_free[setup.dimm_of_rank[rank], bus] > clock:
            claims.host_direction[bus, rank] |= BUS_TAKEN


@inlined
def noted_column(shape, state, wakeups, bus, number):
    """What `waiting.next_column` says of a controller, which changes with its requests and rows."""
    column = wakeups.column[bus, number]
    if column[0] == UNKNOWN:
        column[0], column[1] = next_column(shape, state)
    return column[0], column[1]


@inlined
def first_slot(setup, claims, mask, bus):
    """Of a mask of lanes that is not empty, the rank of the one whose slot on its command bus is first."""
    rank = assume_nonnegative(lowest(mask))
    if setup.command_clocks[0] == 0:
        return rank
    next_active, first = mask & (mask - 1), slot_of(setup, claims, rank, bus)
    while next_active != 0:
        other = assume_nonnegative(lowest(next_active))
        next_active &= next_active - 1
        turn = slot_of(setup, claims, other, bus)
        if turn < first:
            rank, first = other, turn
    return rank


# ---- A bus and the lanes behind it


@inlined
def is_put_off(policy, shape, state, credit, wakeups, bus, number, clock):
    """Whether commands of the other have delayed what a controller was to issue now; records until when."""
    wakeups.wake[bus, number] = next_ready_after(policy, shape, state, credit, clock - 1)
    return wakeups.wake[bus, number] > clock


@inlined
def is_lane_put_off(setup, claims, lanes, wakeups, lane, rank, bus, clock):
    """As `is_put_off`, of a lane without a command that waits."""
    if wakeups.blocked[bus] >> rank & 1:
        return False
    credit = claims.credit[lane, 0]
    return is_put_off(setup.policy, lanes.shape, lanes.states[lane], credit, wakeups, bus, rank, clock)


@inlined
def is_host_to_wake(setup, hosts, wakeups, freed, bus, clock):
    """Whether the host's controller may have a command to issue; `freed`: ranks on which one may be free."""
    if hosts is None:
        return False
    if wakeups.host_blocked[bus] & freed != 0:
        return True
    if wakeups.wake[bus, HOSTS] > clock:
        return False
    if wakeups.host_blocked[bus] != 0:
        return True
    return not is_put_off(setup.policy, hosts.shape, hosts.states[bus], 0, wakeups, bus, HOSTS, clock)


@inlined
def next_of_host(hosts, wakeups, bus):
    """The host's next data, see `noted_column`, and whether it waits for a refresh."""
    if hosts is None:
        return -1, 0, 0
    rank, direction = noted_column(hosts.shape, hosts.states[bus], wakeups, bus, HOSTS)
    return rank, direction, pending_refresh(hosts.states[bus])


@inlined
def step_lanes(setup, agents, lanes, hosts, wakeups, mask, master, bus, clock):
    """Lanes on which `master` is first, a mask, issue. One that has read all leaves its rank to the host.

    Returns the mask of those that had a command, or whose mode has changed.
    """
    claims, buses, happened = agents.claims, wakeups.due.shape[0], 0
    has_host, is_second = takes_part(hosts, agents.traffic, bus), master == HOST
    host_rank, host_direction, pending = -1, 0, 0
    if is_second and mask != 0:  # of the host before any lane issues, as they do so at the same time
        host_rank, host_direction, pending = next_of_host(hosts, wakeups, bus)
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
def step_lanes_alone(setup, agents, lanes, wakeups, bus, clock):
    """All lanes that may have a command issue: they share their ranks and command buses with nobody."""
    happened = False
    for number in range(lane_ranks(setup, agents.claims)):
        rank = assume_nonnegative(number)
        if wakeups.wake[bus, rank] <= clock and step_lane(
            setup, agents, lanes, None, wakeups, rank, bus, clock
        ):
            happened = True
    return happened


@inlined
def issue_commands(setup, agents, lanes, hosts, wakeups, woken, bus, clock):
    """All that may have a command issue: the lanes that are first, the host, the lanes on which it is first.

    One that is blocked wakes up when what it waits for has issued; when another master is first; when a
    request just taken may make it ready, on the ranks `woken`; and at every step of a command bus that lanes
    share. Returns whether there was a command, or a mode has changed.
    """
    claims, buses = agents.claims, wakeups.due.shape[0]
    has_host = takes_part(hosts, agents.traffic, bus)
    if hosts is None and setup.command_clocks[0] == 0:
        return step_lanes_alone(setup, agents, lanes, wakeups, bus, clock)
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
def next_step_of_bus(setup, agents, lanes, hosts, wakeups, happened, bus, clock):
    """The clock of the next step that a bus needs for more than requests that are taken."""
    claims, traffic = agents.claims, agents.traffic
    buses, has_host = wakeups.due.shape[0], takes_part(hosts, traffic, bus)
    ranks = lane_ranks(setup, claims)
    at = min(refresh_due(lanes, hosts, has_host, bus, buses, ranks), wakeups.next_from[bus])
    for rank in range(ranks):
        at = min(at, wakeups.wake[bus, rank])
    if has_host:
        at = min(at, wakeups.wake[bus, HOSTS])
        if traffic.next[bus] < 0:
            at = min(at, traffic.due[bus])
    if wakeups.blocked[bus] | wakeups.host_blocked[bus] != 0:
        if happened:
            return clock + 1
        at = min(at, grants_change(setup, claims, wakeups, has_host, bus, buses, clock))
    return max(at, clock + 1)


@inlined
def step_bus(setup, agents, lanes, hosts, wakeups, bus, clock):
    """A step of a bus and of the lanes behind it. False when refresh can never catch up."""
    buses, has_host = wakeups.due.shape[0], takes_part(hosts, agents.traffic, bus)
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
        wakeups.next_active[bus] = next_step_of_bus(
            setup, agents, lanes, hosts, wakeups, happened, bus, clock
        )
    wakeups.due[bus] = clock + 1 if wakeups.takes[bus] != 0 else wakeups.next_active[bus]
    return True


# ---- All of them


@inlined
def next_carry(setup, agents, wakeups):
    """The clock at which the next transfer is ready for its bus, FAR: none waits."""
    first = FAR
    for bus in range(wakeups.carries_at.shape[0]):
        ready_at = next_transfer(agents.buses, agents.transfers, bus)[1]
        at = FAR if ready_at == FAR else (ready_at + setup.dram_ticks - 1) // setup.dram_ticks
        wakeups.carries_at[bus] = at
        first = min(first, at)
    return first


@inlined
def carry_all(setup, agents, hosts, wakeups, clock):
    """Transfers that are ready take their buses, which are due then."""
    if hosts is None:
        return
    for bus in range(wakeups.carries_at.shape[0]):
        if wakeups.carries_at[bus] <= clock:
            buses, transfers, host = agents.buses, agents.transfers, hosts.states[bus]
            carry_transfers(setup, buses, transfers, hosts.shape, host, bus, clock)
            wakeups.due[bus] = wakeups.next_active[bus] = clock


@inlined
def wake_lanes(relayout, lanes, wakeups, buses, clock):
    """Lanes with requests of the relayout engine, which has just begun, look for them from this clock on."""
    for lane in range(lanes.states.shape[0]):
        if has_requests(relayout, lane):
            bus = lane % buses
            wakeups.takes[bus] |= 1 << lane // buses
            wakeups.wake[bus, lane // buses] = wakeups.due[bus] = wakeups.next_active[bus] = clock


@inlined
def due_at(agents, wakeups, bus):
    """The clock of the next step of a bus."""
    return min(wakeups.due[bus], offers_due(agents.relayout, bus))


@inlined
def has_jobs_or_streams(agents):
    """Whether there are weights to read, or the host asks for anything."""
    for dimm in range(agents.weights.steps.shape[0]):
        if agents.weights.steps[dimm] > 0:
            return True
    return agents.traffic.first.shape[0] > 0


@inlined
def apart_until(relayout, lanes, reached_at, clock):
    """The clock before which no bus does what matters to another, or to whether a goal is reached.

    Buses share the weights of their DIMMs, their transfers, and the host's goals, at every clock; a relayout
    engine reaches them at `reached_at`, and is not done while each lane has more than one request a clock.
    """
    return max(clock + 1, min(reached_at, clock + requests_left(relayout) // lanes.states.shape[0]))


@inlined
def begin_hosts(setup, hosts):
    """Find when the next refresh of each of the host's controllers is."""
    if hosts is None:
        return
    for bus in range(hosts.states.shape[0]):
        value = hosts.states[bus].value
        value[NEXT_REFRESH] = next_refresh(value) - setup.refresh_shift


@inlined
def are_records_full(lanes, hosts, clocks):
    """Whether a record of commands may have no room for those of so many clocks."""
    if hosts is None:
        return record_is_full(lanes.commands, clocks)
    return record_is_full(lanes.commands, clocks) or record_is_full(hosts.commands, clocks)


@outlined
def begin_run(setup, agents, lanes, hosts, wakeups, clock):
    """All controllers wake up at the first clock of a run."""
    weights, buses = agents.weights, wakeups.due.shape[0]
    count = lanes.states.shape[0]
    wakeups.next_from[:] = FAR
    for lane in range(count):
        state, dimm, bus = lanes.states[lane], dimm_of(setup, lane, buses), lane % buses
        state.value[NEXT_REFRESH] = next_refresh(state.value) - setup.refresh_shift
        next_step(setup, weights, dimm, lane, lanes.values, buses, clock)
        wakeups.next_from[bus] = min(wakeups.next_from[bus], weights.next_from[lane])
        give_to_multipliers(setup, weights, agents.transfers, dimm, lane)
        update_credit(setup, agents, lane, clock)
    for bus in range(buses):
        wakeups.takes[bus] = (1 << count // buses) - 1 | takes_part(hosts, agents.traffic, bus) << HOSTS
    begin_hosts(setup, hosts)
    wakeups.wake[:], wakeups.due[:], wakeups.next_active[:] = clock, clock, clock
    wakeups.starvation_deadline[:], wakeups.column[:, :, 0] = 0, UNKNOWN
    next_carry(setup, agents, wakeups)


@kernel
def run(setup, agents, lanes, hosts, wakeups, goals, until_clock):
    """Run as `dimm.readable.run` does; returns and can be taken up again as that."""
    claims, clock, outcome = agents.claims, agents.claims.clock[0], DONE
    begin_run(setup, agents, lanes, hosts, wakeups, clock)
    buses = wakeups.due.shape[0]
    coupled = has_jobs_or_streams(agents)
    at = clock
    while not is_reached(goals, agents):
        clock = max(clock, min(at, engine_due(agents.relayout)))
        if clock >= until_clock:
            clock, outcome = until_clock, LATE
            break
        begins, end = offer_requests(agents.relayout, clock)
        if begins:
            wake_lanes(agents.relayout, lanes, wakeups, buses, clock)
        end = clock + 1 if coupled else apart_until(agents.relayout, lanes, min(end, until_clock), clock)
        if are_records_full(lanes, hosts, end - clock):
            outcome = RECORD_FULL
            break
        if coupled:
            carry_all(setup, agents, hosts, wakeups, clock)
        at = FAR
        for number in range(buses):
            bus = assume_nonnegative(number)
            due = due_at(agents, wakeups, bus)
            while due < end:
                if not step_bus(setup, agents, lanes, hosts, wakeups, bus, max(clock, due)):
                    claims.clock[0] = clock
                    return STUCK
                due = due_at(agents, wakeups, bus)
            at = min(at, due)
        if coupled:
            at = min(at, next_carry(setup, agents, wakeups))
        clock = end
    claims.clock[0] = clock
    return outcome
