"""The arbiter of a shared DIMM on the fast controller: looks at a bus only when something can happen there.

See the package for what it decides, and `dram.dimm.readable` for the same, clock by clock.

A controller without a command to issue is asked again at the first clock at which it can have one (its
`wake`). One whose ready command has to wait for the first owner's is asked at every step of its bus: after
any command or new request there, and when the first owner may change.
"""

from __future__ import annotations

from ndpsim._jit import inlined, kernel, outlined
from ndpsim.dram.dimm.beside import next_column, oldest_arrival
from ndpsim.dram.dimm.common import (
    DONE,
    LATE,
    RECORD_FULL,
    STUCK,
    admit,
    due,
    first_owner,
    host_source,
    is_reached,
    note_refilling,
    note_room,
    record_is_full,
    usual_owner,
)
from ndpsim.dram.dimm.staging import give_to_multipliers, lane_source, next_step
from ndpsim.dram.dimm.state import (
    FIRST,
    HOST,
    JOBS,
    NDP,
    READ,
    REFILLING,
    SLICE,
    WRITE,
)
from ndpsim.dram.dimm.stepping import step_host, step_lane
from ndpsim.dram.dimm.transfers import carry_job, has_job, next_command_at
from ndpsim.dram.maintenance import next_refresh
from ndpsim.dram.masks.choose import (
    mode_changes,
)
from ndpsim.dram.masks.controller import accept, push_refresh, refresh, would_accept
from ndpsim.dram.masks.rows import set_lane
from ndpsim.dram.masks.state import (
    BANKS_PER_RANK,
    KINDS,
    PENDING,
    PENDING_BANK,
    PENDING_KIND,
    PENDING_SIZE,
    RANK_READY,
    RD,
    WR,
)
from ndpsim.dram.masks.words import assume_nonnegative, ranks_of
from ndpsim.dram.state import FAR, NEXT_REFRESH, REFRESH_FROM, REFRESHES, SERVED

__all__ = ["run"]


# ---- A bus and the lanes behind it


@inlined
def carry_jobs(setup, shape, state, buses, transfers, bus, clock):
    """Activations and results take the bus, and the host's commands wait until their data can follow."""
    while has_job(setup, buses, transfers, bus, clock):
        carry_job(setup, buses, transfers, bus)
        reads_at = next_command_at(setup, buses, bus, READ)
        writes_at = next_command_at(setup, buses, bus, WRITE)
        for rank in range(ranks_of(shape)):
            ready = RANK_READY + assume_nonnegative(rank) * KINDS
            set_lane(state, ready, RD, max(state[ready + RD], reads_at))
            set_lane(state, ready, WR, max(state[ready + WR], writes_at))


@inlined
def take_request(policy, shape, state, latencies, source, asked, number, clock):
    """A controller takes its next request, if it is due and has a slot. Returns whether it has."""
    if not would_accept(policy, state, source, clock):
        asked.takes[number] = 0
        return False
    asked.wake[number] = min(asked.wake[number], accept(state, latencies, source, clock))
    if mode_changes(policy, state):
        asked.wake[number] = min(asked.wake[number], clock)
    if asked.since[number] == FAR:
        asked.since[number] = oldest_arrival(shape, state)
    asked.takes[number] = would_accept(policy, state, source, clock + 1)
    return True


@inlined
def refresh_lanes(shape, host, lane_states, asked, before, bus, buses):
    """The refreshes that the host's controller has just asked of a rank are its lane's as well."""
    for place in range(before, host[PENDING_SIZE]):
        first = host[PENDING_BANK + (place & (PENDING - 1))]
        lane = first // BANKS_PER_RANK * buses + bus
        if lane < lane_states.shape[0]:
            state = lane_states[lane]
            if state[PENDING_SIZE] == 0:
                state[REFRESH_FROM] = host[REFRESH_FROM]
            push_refresh(state, host[PENDING_KIND + (place & (PENDING - 1))], first % BANKS_PER_RANK)
            asked.wake[lane] = 0


@inlined
def is_refresh_due(states, has_host, bus, clock):
    """Whether a refresh falls due on a rank of a bus."""
    if has_host:
        return clock >= states[1][bus, NEXT_REFRESH]
    for lane in range(bus, states[0].shape[0], states[1].shape[0]):
        if clock >= states[0][lane, NEXT_REFRESH]:
            return True
    return False


@outlined
def ask_for_refresh(setup, shapes, states, asked, has_host, bus, clock):
    """The refreshes that fall due on the ranks of a bus. False when they can never catch up.

    With the host away each lane keeps its own time; else they are the host's, and its lanes' as well.
    """
    lanes, count = states[0].shape[0], states[1].shape[0]
    host = states[1][bus]
    if has_host:
        before = host[PENDING_SIZE]
        asked.wake[lanes + bus] = 0
        if not refresh(shapes[1], setup.policy, host, clock):
            return False
        refresh_lanes(shapes[1], host, states[0], asked, before, bus, count)
        return True
    for lane in range(bus, lanes, count):
        if clock >= states[0][lane, NEXT_REFRESH]:
            asked.wake[lane] = 0
            if not refresh(shapes[0], setup.policy, states[0][lane], clock):
                return False
    return True


@inlined
def note_turns(setup, claims, asked, has_host, bus, buses, clock):
    """Whose turn comes first on each lane of a bus. Returns the first clock at which that may change."""
    lanes = claims.tally.shape[0]
    host_since, changes = asked.since[lanes + bus] if has_host else FAR, FAR
    usual = usual_owner(setup, clock)
    if setup.arbitration == SLICE:
        changes = ((clock - 1) // setup.slice_clocks + 1) * setup.slice_clocks + 1
    starves = host_since + setup.starvation_clocks + 1
    if starves > clock:
        changes = min(changes, starves)
    for lane in range(bus, lanes, buses):
        note_refilling(claims, lane, clock)
        tally, since = claims.tally[lane], asked.since[lane]
        first = first_owner(setup, usual, tally[REFILLING], since, host_since, clock)
        tally[FIRST] = first if has_host else NDP
        starves = since + setup.starvation_clocks + 1
        if claims.half_free[lane] > clock:
            changes = min(changes, claims.half_free[lane])
        if starves > clock:
            changes = min(changes, starves)
    return changes


@inlined
def keep_off_lanes(shape, lane_states, claims, bus, buses):
    """Where the host is second, and which way the lanes' next data goes there."""
    for lane in range(bus, lane_states.shape[0], buses):
        rank = lane // buses
        claims.host_second[bus, rank] = claims.tally[lane, FIRST] == NDP
        claims.host_direction[bus, rank] = 0
        if claims.tally[lane, FIRST] == NDP:
            claims.host_direction[bus, rank] = next_column(shape, lane_states[lane])[1]


@inlined
def keep_off_host(shape, host, claims, lane, rank):
    """Whether a lane is second, and which way the host's next data goes there."""
    claims.lane_second[lane, 0] = claims.lane_direction[lane, 0] = 0
    if claims.tally[lane, FIRST] == HOST:
        host_rank, host_direction = next_column(shape, host)
        claims.lane_second[lane, 0] = 1
        claims.lane_direction[lane, 0] = host_direction if host_rank == rank else 0


@inlined
def is_asked(asked, number, clock):
    """Whether a controller may have a command to issue."""
    return asked.wake[number] <= clock or asked.withheld[number] == 1


@inlined
def has_reads(weights, state, lane):
    """Whether a lane has weights to read, now or in a later step."""
    return state[SERVED] < weights.ends[lane, weights.ends.shape[1] - 1]


@inlined
def step_lanes(
    setup, shapes, states, weights, transfers, claims, asked, commands, latencies, has_host, bus, owner, clock
):
    """The lanes on which `owner` is first issue. One that has read all leaves its rank to the host.

    Returns whether there was a command.
    """
    issued, buses = False, states[1].shape[0]
    for lane in range(bus, states[0].shape[0], buses):
        if claims.tally[lane, FIRST] != owner or not is_asked(asked, lane, clock):
            continue
        if has_host and not has_reads(weights, states[0][lane], lane):
            asked.wake[lane], asked.withheld[lane] = FAR, 0
            continue
        keep_off_host(shapes[1], states[1][bus], claims, lane, lane // buses)
        issued |= step_lane(
            setup, shapes, states, weights, transfers, claims, asked, commands, latencies, lane, clock
        )
    return issued


@inlined
def lanes_due(states, asked, has_host, bus, clock):
    """The clock of the next step that the lanes of a bus need, and whether the command of one has to wait."""
    at, withheld = FAR, 0
    for lane in range(bus, states[0].shape[0], states[1].shape[0]):
        at = min(at, clock + 1 if asked.takes[lane] else asked.wake[lane])
        withheld |= asked.withheld[lane]
        if not has_host:
            at = min(at, states[0][lane, NEXT_REFRESH])
    return at, withheld


@inlined
def host_due(states, traffic, asked, bus, clock):
    """The clock of the next step that the host's controller of a bus needs."""
    number, admitted = states[0].shape[0] + bus, traffic.admitted[bus, 0]
    if asked.takes[number]:
        return clock + 1
    at = min(asked.wake[number], states[1][bus, NEXT_REFRESH])
    if admitted < traffic.offered[bus]:
        at = min(at, due(traffic, bus, admitted))
    return at


@inlined
def step_bus(
    setup,
    shapes,
    states,
    latencies,
    weights,
    buses,
    transfers,
    traffic,
    claims,
    asked,
    lane_commands,
    host_commands,
    bus,
    clock,
):
    """A step of a bus and of the lanes behind it. False when refresh can never catch up."""
    lanes, count = states[0].shape[0], states[1].shape[0]
    policy, host, has_host, happened = setup.policy, states[1][bus], traffic.offered[bus] > 0, False
    carry_jobs(setup, shapes[1], host, buses, transfers, bus, clock)
    if has_host:
        if traffic.admitted[bus, 0] < traffic.offered[bus]:
            admit(traffic, bus, clock)
            asked.takes[lanes + bus] = 1
        if asked.takes[lanes + bus]:
            source = host_source(traffic, bus)
            happened |= take_request(
                policy, shapes[1], host, latencies[1][bus], source, asked, lanes + bus, clock
            )
    for lane in range(bus, lanes, count):
        if asked.takes[lane]:
            source = lane_source(weights, lane)
            happened |= take_request(
                policy, shapes[0], states[0][lane], latencies[0], source, asked, lane, clock
            )
    refreshed = not is_refresh_due(states, has_host, bus, clock) or ask_for_refresh(
        setup, shapes, states, asked, has_host, bus, clock
    )
    if not refreshed:
        return False
    changes = note_turns(setup, claims, asked, has_host, bus, count, clock)
    # The lanes that are first, the host, and the lanes on which it is first.
    for owner in (NDP, HOST):
        if owner == HOST and has_host and is_asked(asked, lanes + bus, clock):
            keep_off_lanes(shapes[0], states[0], claims, bus, count)
            happened |= step_host(
                setup,
                shapes,
                states,
                weights,
                buses,
                traffic,
                claims,
                asked,
                host_commands,
                latencies[1],
                bus,
                clock,
            )
        happened |= step_lanes(
            setup,
            shapes,
            states,
            weights,
            transfers,
            claims,
            asked,
            lane_commands,
            latencies[0],
            has_host,
            bus,
            owner,
            clock,
        )
    at, withheld = FAR, 0
    if has_host:
        at, withheld = host_due(states, traffic, asked, bus, clock), asked.withheld[lanes + bus]
    of_lanes, held_back = lanes_due(states, asked, has_host, bus, clock)
    if withheld | held_back:
        at = min(at, clock + 1 if happened else changes)
    asked.due[bus] = max(min(at, of_lanes), clock + 1)
    return True


@inlined
def next_clock(setup, buses, transfers, asked):
    """The clock of the next step of any bus."""
    at = FAR
    for bus in range(buses.at.shape[0]):
        at = min(at, asked.due[bus])
        job = buses.at[bus]
        if job < transfers.value[JOBS]:
            at = min(at, (transfers.ready[job] + setup.dram_ticks - 1) // setup.dram_ticks)
    return at


@kernel
def run(
    setup,
    shapes,
    states,
    latencies,
    weights,
    buses,
    transfers,
    traffic,
    claims,
    asked,
    lane_commands,
    host_commands,
    goal,
    until_clock,
):
    """Run as `dram.dimm.readable.run` does; returns and can be taken up again as that.

    shapes, states, latencies: of the lanes, and of the host's controllers.
    """
    clock, refresh_kind = claims.clock[0], setup.policy.refresh
    for lane in range(states[0].shape[0]):
        state = states[0][lane]
        state[NEXT_REFRESH] = next_refresh(shapes[0], refresh_kind, state[REFRESHES])
        next_step(weights, lane, state)
        give_to_multipliers(setup, weights, transfers, lane)
        note_room(setup, weights, claims, lane)
    for bus in range(states[1].shape[0]):
        state = states[1][bus]
        state[NEXT_REFRESH] = next_refresh(shapes[1], refresh_kind, state[REFRESHES])
        traffic.admitted[bus, 0] = min(traffic.admitted[bus, 0], traffic.offered[bus])
    asked.wake[:], asked.takes[:], asked.due[:] = clock, 1, clock
    outcome = DONE
    while not is_reached(goal, weights, buses, transfers, states[1], traffic):
        clock = max(clock, next_clock(setup, buses, transfers, asked))
        if clock >= until_clock:
            clock, outcome = until_clock, LATE
            break
        if record_is_full(lane_commands) or record_is_full(host_commands):
            outcome = RECORD_FULL
            break
        for bus in range(states[1].shape[0]):
            job = has_job(setup, buses, transfers, bus, clock)
            if (job or asked.due[bus] <= clock) and not step_bus(
                setup,
                shapes,
                states,
                latencies,
                weights,
                buses,
                transfers,
                traffic,
                claims,
                asked,
                lane_commands,
                host_commands,
                bus,
                clock,
            ):
                outcome = STUCK
        if outcome == STUCK:
            break
        clock += 1
    claims.clock[0] = clock
    return outcome
