"""Shared by both arbiters of a DIMM: requests that fall due, masters, sinks, and goals of a run."""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dimm.arbitration_points import host_waits, record_data, record_request, usual_master
from ndpsim.dimm.relayout import (
    has_requests,
    is_promised,
    is_relayout_done,
    is_relayouts,
    record_served_request,
    update_promises,
)
from ndpsim.dimm.staging import carry_data, give_to_multipliers, has_reads, lane_credit, next_step, stage
from ndpsim.dimm.state import (
    BURSTS_LEFT,
    FIRST,
    HOST,
    LAST_COLUMN,
    NDP,
    READ,
    REFILLING,
    ROWS_LOST,
    STREAM_END,
    STREAM_LATENCY,
    STREAM_READS,
    STREAM_SERVED,
    TRANSFERS,
    TURNAROUNDS,
)
from ndpsim.dram.sink import Sink
from ndpsim.dram.state import (
    DATA_END,
    FAR,
    PLACE,
    READ_LATENCY,
    READS_SERVED,
    SERVED,
    TAKEN,
    Commands,
    Source,
)

# What a run returns.
DONE, LATE, RECORD_FULL, STUCK = range(4)

# The goals of a run.
NOTHING, WEIGHTS_READ, TRANSFERS_DONE, REQUESTS_DONE = range(4)


@inlined
def lane_ranks(setup, claims):
    """Number of ranks with a lane behind each bus; ranks of DIMMs without NDP units come after them."""
    return claims.bus_free.shape[0] * setup.dimm_ranks


@inlined
def dimm_of(setup, lane, buses):
    """The DIMM of a lane."""
    return lane // (buses * setup.dimm_ranks)


# ---- Requests of the host


@inlined
def due(traffic, stream, bus):
    """The clock from which the next request of a stream is due; FAR: there is none."""
    number = traffic.taken[stream, bus]
    if number >= traffic.offered[stream, bus]:
        return FAR
    total, start, clocks, per = traffic.pace[stream]
    if clocks == 0:
        return max(start, traffic.taken_at[stream, bus])
    length, first = traffic.length[stream, bus], traffic.first[stream, bus]
    nth = number // length * total + traffic.number[bus, first + number % length]
    # The factor stays below `per`, so that no number of requests overflows.
    return start + nth // per * clocks + nth % per * clocks // per + traffic.lag[stream, bus]


@inlined
def admit(traffic, bus, value, clock):
    """The next request that the host's controller may take: of the streams with one that is due, that of the
    stream from which it took none for the longest time, so that streams with a backlog share a bus equally
    and one that asks for less than its share gets all of it.
    """
    if traffic.next[bus] >= 0 or clock < traffic.due[bus]:
        return
    first, last_taken, traffic.due[bus] = -1, FAR, FAR
    for stream in range(traffic.first.shape[0]):
        due_at = due(traffic, stream, bus)
        traffic.due[bus] = min(traffic.due[bus], due_at)
        if due_at <= clock and traffic.taken_at[stream, bus] < last_taken:
            first, last_taken = stream, traffic.taken_at[stream, bus]
    if first >= 0:
        number = traffic.taken[first, bus] % traffic.length[first, bus]
        value[PLACE] = traffic.first[first, bus] + number
        traffic.admitted[bus, 0] = value[TAKEN] + 1
        traffic.next[bus] = first


@inlined
def record_taken(traffic, bus, value, clock):
    """The host's controller has taken a request: another may be next."""
    stream = traffic.next[bus]
    traffic.lag[stream, bus] += max(0, clock - due(traffic, stream, bus) - traffic.most_lag[stream])
    traffic.taken[stream, bus] += 1
    traffic.taken_at[stream, bus] = clock
    traffic.next[bus], traffic.due[bus] = -1, clock
    admit(traffic, bus, value, clock)


@inlined
def count_served(value):
    """What a controller's counters say now of the requests that it has served, for `record_served`."""
    return value[SERVED], value[READS_SERVED], value[READ_LATENCY]


@inlined
def record_served(traffic, stream, bus, value, before, end):
    """Add to a stream what was served since the controller's counters were `before`, and until when."""
    totals, (served, reads, latency) = traffic.totals[stream, bus], before
    totals[STREAM_SERVED] += value[SERVED] - served
    totals[STREAM_READS] += value[READS_SERVED] - reads
    totals[STREAM_LATENCY] += value[READ_LATENCY] - latency
    totals[STREAM_END] = max(totals[STREAM_END], end)


@inlined
def host_source(traffic, bus):
    """The source of the host's requests on a bus."""
    places = traffic.place[bus]
    return Source(places, traffic.column[bus], traffic.address[bus], places[:0], traffic.admitted[bus], 0)


@inlined
def record_host_request(setup, agents, bus, value, before, rank, is_read, clock):
    """The host's controller, whose counters were `before`, has taken a request.

    Returns whether masters may change now.
    """
    stream, records = agents.traffic.next[bus], agents.claims.grant_records[bus]
    is_queued = value[SERVED] == before[0]
    changes = is_queued and record_request(setup.arbitration, records, rank, is_read, clock)
    record_served(agents.traffic, stream, bus, value, before, 0)
    record_taken(agents.traffic, bus, value, clock)
    return changes


@inlined
def record_host_data(setup, agents, bus, request, rank, direction, value, before, latencies, clock):
    """The host's controller, whose counters were `before`, has issued the column command of a request.

    latencies: int64[bus, stream, clocks], reads by latency.
    """
    traffic, is_read = agents.traffic, direction == READ
    carry_data(setup, agents.buses, bus, direction, rank, clock)
    stream, end = traffic.stream[bus, request], value[DATA_END] if is_read else clock
    record_served(traffic, stream, bus, value, before, end)
    record_data(setup.arbitration, agents.claims.grant_records[bus], rank, is_read, clock)
    if is_read:
        took = min(value[READ_LATENCY] - before[2], latencies.shape[2] - 1)
        latencies[bus, stream, took] += 1


# ---- Lanes


@inlined
def record_command(totals, opened_by, master, direction, opens, closes, bank):
    """Count turnarounds of a lane's bus, and rows that one master opened and the other's request closed.

    direction: of its data; -1: none. closes: whether it closes the bank for a request.
    """
    if direction >= 0:
        if totals[LAST_COLUMN] == 1 - direction:
            totals[TURNAROUNDS] += 1
        totals[LAST_COLUMN] = direction
    elif opens:
        opened_by[bank] = master
    elif closes and opened_by[bank] != master:
        totals[ROWS_LOST + 1 - master] += 1


@inlined
def serve_lane(setup, agents, value, values, lane, dimm, burst, buses, clock):
    """The column command of a lane moves a burst of the relayout engine, or reads one of weights.

    value, values: the counters of its controller, and of those of all lanes. Returns whether queued reads may
    issue from another clock on than before.
    """
    weights, relayout = agents.weights, agents.relayout
    if is_relayouts(relayout, burst):
        value[SERVED] -= 1
        record_served_request(relayout, lane, burst, clock)
        if not update_promises(relayout, setup, weights, lane, value, clock + 1):
            return False
        changes = True
    else:
        stage(weights, lane, burst, clock + setup.lane_tables.read_latency)
        next_step(setup, weights, dimm, lane, values, buses, clock)
        changes = give_to_multipliers(setup, weights, agents.transfers, dimm, lane)
    update_credit(setup, agents, lane, clock + 1)
    return changes


@inlined
def commands_at(commands, number):
    """The command trace of one of several channels."""
    return Commands(commands.entry[number], commands.length[number : number + 1])


@inlined
def data_sink(claims, credit):
    """The sink of a controller's reads, with its credit only: bursts are staged, not taken."""
    rows = claims.no_rows
    return Sink(1, 0, 1, 1, credit, credit, rows, rows, rows, credit, claims.no_credit)


@inlined
def update_credit(setup, agents, lane, clock):
    """From when the FIFO of a lane has room for the next read, and from when half of it is free, as arbiters
    see it from `clock` on."""
    weights, claims = agents.weights, agents.claims
    update_refilling(claims, lane, clock - 1)
    promised = is_promised(agents.relayout, lane)
    claims.credit[lane, 0] = 0 if promised else lane_credit(setup, weights, lane, 0)
    claims.half_free[lane] = lane_credit(setup, weights, lane, (setup.fifo_bursts - 1) // 2)
    claims.credit_from[lane] = clock


@inlined
def has_work(agents, value, lane):
    """Whether a lane has reads or writes, now or later; `value`: its controller's counters."""
    return has_reads(agents.weights, value, lane) or has_requests(agents.relayout, lane)


@inlined
def update_refilling(claims, lane, clock):
    """The FIFO of a lane refills from when half of it is free until it is full, or nothing waits for it.

    It was full at some clock until this one if it had no room at the first that `update_credit` records.
    """
    if clock < claims.credit_from[lane]:
        return
    if claims.half_free[lane] <= clock or claims.credit[lane, 0] == 0:
        claims.totals[lane, REFILLING] = 1
    elif claims.credit[lane, 0] > claims.credit_from[lane]:
        claims.totals[lane, REFILLING] = 0


@inlined
def first_master(usual, refilling, ndp_starves, host_starves):
    """The master that is first at a clock, when requests may have waited for too long."""
    if not refilling:
        return HOST
    if ndp_starves == host_starves:
        return usual
    return NDP if ndp_starves else HOST


@inlined
def find_first(setup, claims, lane, rank, records, host_writes, starves, host_starves, is_idle, clock):
    """The master that is first on a lane at a clock; `is_idle`: no request of the lane is served now."""
    update_refilling(claims, lane, clock)
    usual = usual_master(setup.arbitration, records, rank, host_writes, clock)
    first = first_master(usual, claims.totals[lane, REFILLING], starves, host_starves)
    return HOST if is_idle and host_waits(setup.arbitration) else first


@inlined
def is_dimm_done(goal, agents, dimm):
    """Whether all weights of a DIMM's step are read, or all of its transfers are done."""
    if goal == WEIGHTS_READ:
        return agents.weights.value[dimm, BURSTS_LEFT] == 0
    buses, transfers = agents.buses, agents.transfers
    for bus in range(buses.next_transfer.shape[0]):
        if buses.next_transfer[bus, dimm] < transfers.value[dimm, TRANSFERS]:
            return False
    return goal == TRANSFERS_DONE


@inlined
def is_reached(goals, agents):
    """Whether any DIMM has reached its goal; or the host the one behind these in `goals`: all requests of the
    streams that have an end are served; or the relayout engine the last: all of its requests are."""
    dimms = goals.shape[0] - 2
    for dimm in range(dimms):
        if goals[dimm] != NOTHING and is_dimm_done(goals[dimm], agents, dimm):
            return True
    if goals[dimms + 1] == REQUESTS_DONE and is_relayout_done(agents.relayout):
        return True
    return goals[dimms] == REQUESTS_DONE and are_streams_done(agents.traffic)


@inlined
def are_streams_done(traffic):
    """Whether all requests of the host's streams that have an end are served."""
    for stream in range(traffic.first.shape[0]):
        for bus in range(traffic.next.shape[0]):
            offered = traffic.offered[stream, bus]
            if offered < FAR and traffic.totals[stream, bus, STREAM_SERVED] < offered:
                return False
    return True


# ---- Command buses that lanes share


@inlined
def slot_of(setup, claims, rank, bus):
    """A lane's slot on the command bus of its DIMM, counted from the one after the last that had it."""
    if setup.command_clocks[0] == 0:
        return rank
    return (rank - claims.last_rank[rank // setup.dimm_ranks, bus] - 1) % setup.dimm_ranks


@inlined
def slot_after(setup, claims, master, dimm, bus, buses, turn):
    """The lane whose slot is next after `turn`, of those of a DIMM on which `master` is first.

    Returns its rank, -1 where there is none, and its slot.
    """
    rank, first = -1, FAR
    for number in range(dimm * setup.dimm_ranks, (dimm + 1) * setup.dimm_ranks):
        slot = slot_of(setup, claims, number, bus)
        if turn < slot < first and claims.totals[number * buses + bus, FIRST] == master:
            rank, first = number, slot
    return rank, first


@inlined
def take_command_bus(setup, claims, rank, bus, command, clock):
    """Record that a command to a rank occupies the command bus of its DIMM."""
    dimm = setup.dimm_of_rank[rank]
    if dimm < claims.bus_free.shape[0]:
        claims.bus_free[dimm, bus] = clock + setup.command_clocks[command]


@inlined
def record_is_full(commands, clocks):
    """Whether a command trace may lack room for the commands of this number of clocks."""
    room = commands.entry.shape[1]
    if room == 0:
        return False
    for number in range(commands.length.shape[0]):
        if commands.length[number] + clocks > room:
            return True
    return False
