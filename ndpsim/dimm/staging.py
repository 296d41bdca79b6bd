"""Moves weights, activations and results of the NDP units.

The weights of a lane are admitted step by step, staged, and given to the multipliers. Activations and
results pass between the host and the buffer chips on the data bus of a sub-channel; each chip is a further
rank on it. The host's controller spaces its own data by the standard's rules for the ranks of its channel.
Activations and results take the bus when it is free, before the data of later commands, and commands wait
until their data can follow.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dimm.state import (
    ARRIVAL,
    BURST,
    BURSTS_LEFT,
    BUS_TURNAROUNDS,
    DIRECTION,
    END_GROUP,
    FIRST_GROUP,
    FREE,
    GROUP_SPACING,
    GROUPS_SUMMED,
    HEAD,
    LAST_COLUMN_CLOCK,
    NEXT_GROUP,
    RANK,
    RANK_SWITCHES,
    READ,
    SERVERS_NOW,
    STAGED,
    STEP,
    TRANSFER_DIRECTION,
    TRANSFER_GROUPS,
    TRANSFER_LATENCY,
    TRANSFER_TICKS,
    TRANSFERS,
)
from ndpsim.dram.sink import RELEASE, SERVER, SERVICE, SLOT, Sink, take_burst
from ndpsim.dram.state import FAR, PLACE, SERVED, Source


@inlined
def lane_source(weights, lane):
    """The reads of a lane, as a source."""
    places = weights.place[lane]
    return Source(places, weights.column[lane], weights.address, places[:0], weights.admitted[lane], 0)


@inlined
def lane_credit(setup, weights, lane, ahead):
    """The clock from which a read of a lane has a place in its FIFO, `ahead` reads after the next.

    FAR while the staged bursts occupy too many places for the clock to be known.
    """
    taken = weights.staged[lane, STAGED] + ahead
    if taken >= setup.fifo_bursts:
        return FAR
    slot = weights.sink[lane, SLOT] + taken
    return weights.credit[lane, slot - setup.fifo_bursts if slot >= setup.fifo_bursts else slot]


@inlined
def has_reads(weights, value, lane):
    """Whether a lane has weights to read, now or in a later step."""
    return value[SERVED] < weights.ends[lane, weights.ends.shape[1] - 1]


@inlined
def is_disturbing(setup, weights, dimm, lane, values, buses, step):
    """Whether a step is of a job that follows one whose weights are not all read yet by the lanes that share
    a command bus."""
    if setup.command_clocks[0] == 0 or not weights.begins_job[dimm, step]:
        return False
    for rank in range(dimm * setup.dimm_ranks, (dimm + 1) * setup.dimm_ranks):
        sibling = rank * buses + lane % buses
        if values[sibling, SERVED] < weights.ends[sibling, step]:
            return True
    return False


@inlined
def next_step(setup, weights, dimm, lane, values, buses, clock):
    """Admit the reads of the next step when those of the last have all issued, and it may be read.

    values: int64[lane, place], the counters of the lanes' controllers.
    """
    begun, next_from = weights.step[lane], FAR
    if values[lane, SERVED] < weights.ends[lane, begun]:
        return
    while begun < weights.steps[dimm] and values[lane, SERVED] == weights.ends[lane, begun]:
        if weights.read_from[dimm, begun] > clock:
            next_from = weights.read_from[dimm, begun]
            break
        if is_disturbing(setup, weights, dimm, lane, values, buses, begun):
            next_from = clock + 1
            break
        values[lane, PLACE] = weights.begin[lane, begun]
        begun += 1
    weights.step[lane] = begun
    weights.next_from[lane] = next_from
    weights.admitted[lane, 0] = weights.ends[lane, begun]


@inlined
def stage(weights, lane, burst, arrival):
    """Stage a burst of weights that arrives at a clock."""
    staging, staged = weights.staging[lane], weights.staged[lane]
    slot = staged[HEAD] + staged[STAGED]
    slot = slot - staging.shape[0] if slot >= staging.shape[0] else slot
    staging[slot, BURST] = burst
    staging[slot, ARRIVAL] = arrival
    staging[slot, STEP] = weights.step[lane] - 1
    staged[STAGED] += 1


@inlined
def record_groups(weights, transfers, dimm, lane, burst):
    """A burst was given to the multipliers: complete groups are summed, and results are transferred."""
    left, value, counters = weights.left[dimm], weights.value[dimm], transfers.value[dimm]
    for group in range(weights.first_group[lane, burst], weights.last_group[lane, burst] + 1):
        left[group] -= 1
    value[BURSTS_LEFT] -= 1
    while value[NEXT_GROUP] < value[END_GROUP] and left[value[NEXT_GROUP]] == 0:
        earliest = value[GROUPS_SUMMED] + counters[GROUP_SPACING]
        value[GROUPS_SUMMED] = max(earliest, weights.done[dimm, value[NEXT_GROUP]])
        value[NEXT_GROUP] += 1
        groups = value[NEXT_GROUP] - value[FIRST_GROUP]
        if groups % counters[TRANSFER_GROUPS] == 0 or value[NEXT_GROUP] == value[END_GROUP]:
            transfers.ready[dimm, counters[TRANSFERS]] = value[GROUPS_SUMMED] + counters[TRANSFER_LATENCY]
            counters[TRANSFERS] += 1


@inlined
def set_up_multipliers(weights, dimm, lane, step):
    """The multipliers of a lane turn to a step; those of the step before are done by its release."""
    value, servers = weights.sink[lane], weights.servers[dimm, step]
    value[RELEASE] = weights.release[dimm, step]
    value[SERVICE] = weights.service[dimm, step]
    if weights.staged[lane, SERVERS_NOW] != servers:
        weights.staged[lane, SERVERS_NOW] = servers
        weights.free[lane, :] = 0
        value[SERVER] = 0


@inlined
def give_to_multipliers(setup, weights, transfers, dimm, lane):
    """Give the multipliers of a lane the staged bursts of every step that they may start on.

    Returns whether there were any.
    """
    staging, staged = weights.staging[lane], weights.staged[lane]
    before = staged[STAGED]
    while staged[STAGED] > 0:
        head = staged[HEAD]
        step = staging[head, STEP]
        if weights.release[dimm, step] == FAR:
            break
        set_up_multipliers(weights, dimm, lane, step)
        groups = weights.first_group[lane]
        fifo = Sink(
            setup.fifo_bursts,
            staged[SERVERS_NOW],
            setup.dram_ticks,
            setup.unit_ticks,
            weights.credit[lane],
            weights.free[lane],
            groups,
            weights.last_group[lane],
            groups,
            weights.done[dimm],
            weights.sink[lane],
        )
        take_burst(fifo, staging[head, BURST], staging[head, ARRIVAL])
        staged[HEAD] = 0 if head + 1 == staging.shape[0] else head + 1
        staged[STAGED] -= 1
        record_groups(weights, transfers, dimm, lane, staging[head, BURST])
    return staged[STAGED] < before


# ---- The data bus of a sub-channel to the host


@inlined
def free_from(buses, bus, direction, rank, dram_ticks):
    """The tick from which a bus can carry a transfer of this direction and rank."""
    value = buses.value[bus]
    if value[DIRECTION] < 0:
        return 0
    changes = 1 if value[RANK] != rank else 0
    return value[FREE] + buses.bubble[value[DIRECTION], direction, changes] * dram_ticks


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
def carry_data(setup, buses, bus, direction, rank, clock):
    """A column command of the host issues at `clock`: its data occupies the bus."""
    latency = setup.read_latency if direction == READ else setup.write_latency
    end = clock + latency + setup.host_tables.burst
    carry(buses, bus, direction, rank, end * setup.dram_ticks)
    buses.value[bus, LAST_COLUMN_CLOCK] = clock


@inlined
def next_transfer(buses, transfers, bus):
    """The transfer that has the bus next, the first that is ready: (its DIMM, the tick, FAR: none waits)."""
    first, ready = 0, FAR
    for dimm in range(buses.next_transfer.shape[1]):
        number = buses.next_transfer[bus, dimm]
        if number < transfers.value[dimm, TRANSFERS] and transfers.ready[dimm, number] < ready:
            first, ready = dimm, transfers.ready[dimm, number]
    return first, ready


@inlined
def carry_transfer(setup, buses, transfers, bus, dimm, ready):
    """A DIMM's next transfer takes the bus as soon as it is ready and the bus is free."""
    direction, buffer_rank = transfers.value[dimm, TRANSFER_DIRECTION], setup.host_tables.ranks + dimm
    free = free_from(buses, bus, direction, buffer_rank, setup.dram_ticks)
    end = max(ready, free) + transfers.value[dimm, TRANSFER_TICKS]
    carry(buses, bus, direction, buffer_rank, end)
    buses.end[bus, dimm] = end
    buses.next_transfer[bus, dimm] += 1


@inlined
def next_command_at(setup, buses, bus, direction):
    """The first clock at which a column command's data can follow the transfer that has the bus."""
    free = free_from(buses, bus, direction, 0, setup.dram_ticks)
    latency = setup.read_latency if direction == READ else setup.write_latency
    return (free + setup.dram_ticks - 1) // setup.dram_ticks - latency
