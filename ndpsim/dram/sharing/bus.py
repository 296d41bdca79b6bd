"""The bus of a sub-channel to the host, and the host's requests on it."""

from __future__ import annotations

from ndpsim._jit import inlined
from ndpsim.dram.queues import accept, has_slot, is_queued_write
from ndpsim.dram.sharing.state import (
    ARRIVED,
    BUS_TURNAROUNDS,
    DIRECTION,
    FIRST_RETURN,
    FREE,
    FROM_RANK,
    HOST,
    JOB_DIRECTION,
    JOB_TICKS,
    JOBS,
    LAST_END,
    LATENCY,
    LONGEST,
    RANK,
    RANK_SWITCHES,
    READ,
    READS,
    READY,
    RETURNS,
    TAKEN,
    UNDER_WAY,
    WRITE,
    WRITES,
)
from ndpsim.dram.state import FORWARDED, LATENCIES, PLACE, Channel, Source
from ndpsim.dram.state import TAKEN as ACCEPTED

__all__ = ["note_return", "step_bus"]


@inlined
def free_from(buses, bus, direction, rank, dram_ticks):
    """The tick from which a bus can carry a transfer of this direction and rank."""
    value = buses.value[bus]
    if value[DIRECTION] < 0:
        return 0
    other = 1 if value[RANK] != rank else 0
    return value[FREE] + buses.bubble[value[DIRECTION], direction, other] * dram_ticks


@inlined
def carry(buses, bus, direction, rank, end):
    """The bus carries a transfer until the tick `end`."""
    value = buses.value[bus]
    if value[DIRECTION] == 1 - direction:
        value[BUS_TURNAROUNDS] += 1
    if value[DIRECTION] >= 0 and value[RANK] != rank:
        value[RANK_SWITCHES] += 1
    value[DIRECTION] = direction
    value[RANK] = rank
    value[FREE] = end


@inlined
def note_return(buses, lane, ready, arrived):
    """Data of a host's read reaches the buffer chip from the clock `ready` on."""
    count = buses.value.shape[0]
    bus = lane % count
    value, returns = buses.value[bus], buses.returns[bus]
    slot = (value[FIRST_RETURN] + value[RETURNS]) % returns.shape[0]
    returns[slot, READY] = ready
    returns[slot, ARRIVED] = arrived
    returns[slot, FROM_RANK] = lane // count
    value[RETURNS] += 1


@inlined
def carry_jobs(setup, buses, transfers, bus, buffer_rank, clock):
    """Activations or results take the bus as soon as they are there and it is free."""
    now = clock * setup.dram_ticks
    while buses.at[bus] < transfers.value[JOBS] and transfers.ready[buses.at[bus]] <= now:
        direction = transfers.value[JOB_DIRECTION]
        from_ = free_from(buses, bus, direction, buffer_rank, setup.dram_ticks)
        end = max(transfers.ready[buses.at[bus]], from_) + transfers.value[JOB_TICKS]
        carry(buses, bus, direction, buffer_rank, end)
        buses.end[bus] = end
        buses.at[bus] += 1


@inlined
def carry_return(setup, buses, bus, clock):
    """Data of the next read takes the bus, if it is there and the bus is free."""
    value, now = buses.value[bus], clock * setup.dram_ticks
    first = value[FIRST_RETURN]
    read = buses.returns[bus, first]
    if read[READY] > clock or free_from(buses, bus, READ, read[FROM_RANK], setup.dram_ticks) > now:
        return
    end = clock + setup.tables.burst
    carry(buses, bus, READ, read[FROM_RANK], end * setup.dram_ticks)
    latency = end - read[ARRIVED]
    value[LATENCY] += latency
    value[LONGEST] = max(value[LONGEST], latency)
    buses.latencies[min(latency, LATENCIES - 1)] += 1
    value[READS] += 1
    value[LAST_END] = end
    value[UNDER_WAY] -= 1
    value[RETURNS] -= 1
    value[FIRST_RETURN] = (first + 1) % buses.returns.shape[1]


@inlined
def due(traffic, bus, taken):
    """The clock before which the next request of a bus is not made."""
    rounds, place = taken // traffic.length[bus], taken % traffic.length[bus]
    number = rounds * traffic.total + traffic.number[bus, place]
    return 1 + number * traffic.clocks // traffic.per


@inlined
def may_go(setup, buses, bus, channel, source, request, rank, clock):
    """Whether a request has all it needs to go to its lane: a slot, and the bus or a place for its data."""
    write = source.place[request] & 1
    if write:
        if free_from(buses, bus, WRITE, rank, setup.dram_ticks) > clock * setup.dram_ticks:
            return False
    elif buses.value[bus, UNDER_WAY] == setup.policy.read_slots:
        return False
    if has_slot(setup.policy, channel.size, write):
        return True
    return is_queued_write(channel.entry, channel.size, source.address, source.address[request])


@inlined
def take_request(setup, lanes, buses, traffic, bus, clock):
    """The host's next request goes to its lane, if it is due and may."""
    value = buses.value[bus]
    if value[TAKEN] >= traffic.offered[bus] or due(traffic, bus, value[TAKEN]) > clock:
        return
    request = value[TAKEN] % traffic.length[bus]
    lane = traffic.lane[bus, request]
    rank = lane // buses.value.shape[0]
    own = lanes.value[HOST, lane]
    channel = Channel(
        lanes.entry[HOST, lane],
        lanes.size[HOST, lane],
        lanes.bound[HOST, lane],
        lanes.ready[lane],
        lanes.rows[lane],
        lanes.recent_acts[lane],
        own,
        lanes.issued[HOST, lane],
        lanes.latencies[HOST],
    )
    place = traffic.place[bus, : traffic.length[bus]]
    source = Source(
        place, traffic.column[bus], traffic.address[bus], place[:0], traffic.offered[bus : bus + 1], 0
    )
    if not may_go(setup, buses, bus, channel, source, request, rank, clock):
        return
    forwarded = own[FORWARDED]
    # To the lane, it is a source that goes on where the bus stands.
    own[ACCEPTED], own[PLACE] = value[TAKEN], request
    tables, policy = setup.tables, setup.policy
    accept(tables, policy, source, channel.entry, channel.size, channel.bound, own, channel.latencies, clock)
    value[TAKEN] += 1
    lanes.due[lane] = clock
    if source.place[request] & 1:
        carry(buses, bus, WRITE, rank, (clock + tables.burst) * setup.dram_ticks)
        value[WRITES] += 1
        value[LAST_END] = clock + tables.burst
    else:
        value[UNDER_WAY] += 1
        if own[FORWARDED] > forwarded:
            note_return(buses, lane, clock, clock - 1)


@inlined
def step_bus(setup, lanes, buses, transfers, traffic, bus, clock):
    """A clock of a bus: transfers of the NDP unit, then returning data, then the host's next request."""
    carry_jobs(setup, buses, transfers, bus, lanes.due.shape[0] // buses.value.shape[0], clock)
    if buses.value[bus, RETURNS] > 0:
        carry_return(setup, buses, bus, clock)
    take_request(setup, lanes, buses, traffic, bus, clock)
