"""What both arbiters of a shared DIMM do alike: requests that fall due, turns, sinks, goals of a run."""

from __future__ import annotations

from ndpsim._jit import inlined
from ndpsim.dram.dimm.staging import lane_credit
from ndpsim.dram.dimm.state import BURSTS_LEFT, HOST, JOBS, NDP, NDP_FIRST, REFILLING, SLICE
from ndpsim.dram.sink import Sink
from ndpsim.dram.state import SERVED, Commands, Source

__all__ = [
    "DONE",
    "JOBS_DONE",
    "LATE",
    "NOTHING",
    "RECORD_FULL",
    "REQUESTS_DONE",
    "STUCK",
    "WEIGHTS_READ",
    "admit",
    "commands_at",
    "data_sink",
    "due",
    "first_owner",
    "host_source",
    "is_reached",
    "note_refilling",
    "note_room",
    "record_is_full",
    "usual_owner",
]

# What a run returns.
DONE, LATE, RECORD_FULL, STUCK = range(4)

# What it runs for.
WEIGHTS_READ, JOBS_DONE, REQUESTS_DONE, NOTHING = range(4)


@inlined
def due(traffic, bus, number):
    """The clock before which a request of a bus is not made."""
    rounds, place = number // traffic.length[bus], number % traffic.length[bus]
    of_dimm = rounds * traffic.total + traffic.number[bus, place]
    return 1 + of_dimm * traffic.clocks // traffic.per


@inlined
def admit(traffic, bus, clock):
    """Admit the host's requests that are due."""
    admitted = traffic.admitted[bus]
    if traffic.clocks == 0:
        admitted[0] = traffic.offered[bus]
    while admitted[0] < traffic.offered[bus] and due(traffic, bus, admitted[0]) <= clock:
        admitted[0] += 1


@inlined
def host_source(traffic, bus):
    """The host's requests on a bus, as a source."""
    place = traffic.place[bus, : traffic.length[bus]]
    return Source(place, traffic.column[bus], traffic.address[bus], place[:0], traffic.admitted[bus], 0)


@inlined
def commands_at(commands, number):
    """The command trace of one of several channels."""
    return Commands(commands.entry[number], commands.length[number : number + 1])


@inlined
def data_sink(claims, credit):
    """What a controller needs to know of the sink of its reads: the credit. Bursts are staged, not taken."""
    rows = claims.no_rows
    return Sink(1, 0, 1, 1, credit, credit, rows, rows, rows, credit, claims.no_credit)


@inlined
def note_room(setup, weights, claims, lane):
    """From when the FIFO of a lane has room for the next read, and from when half of it is free."""
    claims.credit[lane, 0] = lane_credit(setup, weights, lane, 0)
    claims.half_free[lane] = lane_credit(setup, weights, lane, (setup.fifo_bursts - 1) // 2)


@inlined
def note_refilling(claims, lane, clock):
    """The FIFO of a lane refills from when half of it is free until it is full."""
    if claims.half_free[lane] <= clock:
        claims.tally[lane, REFILLING] = 1
    elif claims.credit[lane, 0] > clock:
        claims.tally[lane, REFILLING] = 0


@inlined
def usual_owner(setup, clock):
    """Whose turn is first at a clock when nobody starves."""
    if setup.arbitration == SLICE:
        return NDP if (clock - 1) // setup.slice_clocks % 2 else HOST
    return NDP if setup.arbitration == NDP_FIRST else HOST


@inlined
def first_owner(setup, usual, refilling, ndp_since, host_since, clock):
    """Whose turn is first at a clock, when the oldest requests have waited since these clocks."""
    if not refilling:
        return HOST
    ndp_starves = clock - ndp_since > setup.starvation_clocks
    host_starves = clock - host_since > setup.starvation_clocks
    if ndp_starves == host_starves:
        return usual
    return NDP if ndp_starves else HOST


@inlined
def is_reached(goal, weights, buses, transfers, host_values, traffic):
    """Whether all weights of the step, all jobs, or all offered requests are done.

    host_values: int64[bus, place], the counters of the host's controllers.
    """
    if goal == WEIGHTS_READ:
        return weights.value[BURSTS_LEFT] == 0
    for bus in range(buses.at.shape[0]):
        if goal == JOBS_DONE and buses.at[bus] < transfers.value[JOBS]:
            return False
        if goal == REQUESTS_DONE and host_values[bus, SERVED] < traffic.offered[bus]:
            return False
    return goal != NOTHING


@inlined
def record_is_full(commands):
    """Whether a channel may have no room for its next command."""
    room = commands.entry.shape[1]
    if room == 0:
        return False
    for number in range(commands.length.shape[0]):
        if commands.length[number] == room:
            return True
    return False
