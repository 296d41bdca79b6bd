"""The arbiter of a channel's DIMMs on the fast controller: it steps a bus only when something can happen.

The package describes its decisions. `dimm.readable` makes the same decisions clock by clock.
"""

from __future__ import annotations

from ndpsim.base.jit import by_type, inlined, kernel, outlined
from ndpsim.dimm.arrivals import carry_transfers
from ndpsim.dimm.common import (
    DONE,
    LATE,
    RECORD_FULL,
    STUCK,
    dimm_of,
    is_reached,
    record_is_full,
    update_credit,
)
from ndpsim.dimm.relayout import engine_due, has_requests, lanes_due, offer_requests, requests_left
from ndpsim.dimm.staging import give_to_multipliers, next_step, next_transfer
from ndpsim.dimm.stepping import HOSTS, UNKNOWN
from ndpsim.dram.fast.vectors import assume_nonnegative
from ndpsim.dram.maintenance import next_refresh
from ndpsim.dram.state import FAR, NEXT_REFRESH


@by_type
def step_bus(sharing, setup, agents, lanes, hosts, wakeups, bus, clock):
    """A step of a bus and of the lanes behind it. `sharing`: whether they share ranks or buses.

    False when refresh can never catch up.
    """


# ---- What reaches buses


@inlined
def next_carry(setup, agents, wakeups):
    """The clock at which the next transfer is ready for its bus, FAR: none waits."""
    first = FAR
    for bus in range(wakeups.carries_at.shape[0]):
        ready_at = next_transfer(agents.buses, agents.transfers, bus)[1]
        clock = FAR if ready_at == FAR else (ready_at + setup.dram_ticks - 1) // setup.dram_ticks
        wakeups.carries_at[bus] = clock
        first = min(first, clock)
    return first


@inlined
def carry_all(setup, agents, hosts, wakeups, clock):
    """Transfers that are ready take their buses, which are due then."""
    for bus in range(wakeups.carries_at.shape[0]):
        if wakeups.carries_at[bus] <= clock:
            buses, transfers, host = agents.buses, agents.transfers, hosts.states[bus]
            carry_transfers(setup, buses, transfers, hosts.shape, host, bus, clock)
            wakeups.due[bus] = wakeups.next_active[bus] = clock


@inlined
def wake_lanes(relayout, lanes, wakeups, buses, clock):
    """The relayout engine has begun: lanes with requests of it look for them from this clock on."""
    for lane in range(lanes.states.shape[0]):
        if has_requests(relayout, lane):
            bus = lane % buses
            wakeups.takes[bus] |= 1 << lane // buses
            wakeups.wake[bus, lane // buses] = wakeups.due[bus] = wakeups.next_active[bus] = clock


@inlined
def due_at(agents, wakeups, bus):
    """The clock of the next step of a bus."""
    return min(wakeups.due[bus], lanes_due(agents.relayout, bus, wakeups.due.shape[0]))


@inlined
def has_jobs_or_streams(agents):
    """Whether there are weights to read, or the host has requests."""
    for dimm in range(agents.weights.steps.shape[0]):
        if agents.weights.steps[dimm] > 0:
            return True
    return agents.traffic.first.shape[0] > 0


@inlined
def apart_until(relayout, lanes, reached_at, clock):
    """The clock before which no bus affects another bus or reaches a goal.

    A relayout engine reaches buses at `reached_at`, and cannot be done while it has more requests than lanes
    could serve, one a clock each.
    """
    return max(clock + 1, min(reached_at, clock + requests_left(relayout) // lanes.states.shape[0]))


@inlined
def begin_hosts(hosts):
    """Find when the next refresh of each of the host's controllers is."""
    for bus in range(hosts.states.shape[0]):
        value = hosts.states[bus].value
        value[NEXT_REFRESH] = next_refresh(value)


@outlined
def begin_run(setup, agents, lanes, hosts, wakeups, clock):
    """All controllers wake up at the first clock of a run."""
    weights, buses = agents.weights, wakeups.due.shape[0]
    count = lanes.states.shape[0]
    wakeups.next_from[:] = FAR
    for lane in range(count):
        state, dimm, bus = lanes.states[lane], dimm_of(setup, lane, buses), lane % buses
        state.value[NEXT_REFRESH] = next_refresh(state.value)
        next_step(setup, weights, dimm, lane, lanes.values, buses, clock)
        wakeups.next_from[bus] = min(wakeups.next_from[bus], weights.next_from[lane])
        give_to_multipliers(setup, weights, agents.transfers, dimm, lane)
        update_credit(setup, agents, lane, clock)
    for bus in range(buses):
        wakeups.takes[bus] = (1 << count // buses) - 1 | (agents.traffic.takes_part[bus] != 0) << HOSTS
    begin_hosts(hosts)
    wakeups.wake[:], wakeups.due[:], wakeups.next_active[:] = clock, clock, clock
    wakeups.starvation_deadline[:], wakeups.column[:, :, 0] = 0, UNKNOWN
    next_carry(setup, agents, wakeups)


@kernel
def run(setup, agents, lanes, hosts, wakeups, goals, until_clock):
    """As `dimm.readable.run`, with the same results."""
    claims, clock, outcome = agents.claims, agents.claims.clock[0], DONE
    begin_run(setup, agents, lanes, hosts, wakeups, clock)
    buses = wakeups.due.shape[0]
    coupled = has_jobs_or_streams(agents)
    next_clock = clock
    while not is_reached(goals, agents):
        clock = max(clock, min(next_clock, engine_due(agents.relayout)))
        if clock >= until_clock:
            clock, outcome = until_clock, LATE
            break
        begins, end = offer_requests(agents.relayout, clock)
        if begins:
            wake_lanes(agents.relayout, lanes, wakeups, buses, clock)
        end = clock + 1 if coupled else apart_until(agents.relayout, lanes, min(end, until_clock), clock)
        if record_is_full(lanes.commands, end - clock) or record_is_full(hosts.commands, end - clock):
            outcome = RECORD_FULL
            break
        if coupled:
            carry_all(setup, agents, hosts, wakeups, clock)
        next_clock = FAR
        for number in range(buses):
            bus = assume_nonnegative(number)
            due = due_at(agents, wakeups, bus)
            while due < end:
                if not step_bus(setup.sharing, setup, agents, lanes, hosts, wakeups, bus, max(clock, due)):
                    claims.clock[0] = clock
                    return STUCK
                due = due_at(agents, wakeups, bus)
            next_clock = min(next_clock, due)
        if coupled:
            next_clock = min(next_clock, next_carry(setup, agents, wakeups))
        clock = end
    claims.clock[0] = clock
    return outcome
