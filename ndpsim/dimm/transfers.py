"""The data bus of a sub-channel to the host, which carries the host's data, activations and results.

The host's controller spaces its data by the standard's rules for the ranks of its channel. Activations and
results pass between the host and the buffer chips; each chip is a further rank on that bus. They take the bus
when it is free, before the data of later commands, and commands wait until their data can follow.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dimm.state import (
    BUS_TURNAROUNDS,
    DIRECTION,
    FREE,
    LAST_COLUMN_CLOCK,
    RANK,
    RANK_SWITCHES,
    READ,
    TRANSFER_DIRECTION,
    TRANSFER_TICKS,
    TRANSFERS,
)
from ndpsim.dram.state import FAR


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
    for dimm in range(buses.at.shape[1]):
        at = buses.at[bus, dimm]
        if at < transfers.value[dimm, TRANSFERS] and transfers.ready[dimm, at] < ready:
            first, ready = dimm, transfers.ready[dimm, at]
    return first, ready


@inlined
def carry_transfer(setup, buses, transfers, bus, dimm, ready):
    """A DIMM's next transfer takes the bus as soon as it is ready and the bus is free."""
    direction, buffer_rank = transfers.value[dimm, TRANSFER_DIRECTION], setup.host_tables.ranks + dimm
    free = free_from(buses, bus, direction, buffer_rank, setup.dram_ticks)
    end = max(ready, free) + transfers.value[dimm, TRANSFER_TICKS]
    carry(buses, bus, direction, buffer_rank, end)
    buses.end[bus, dimm] = end
    buses.at[bus, dimm] += 1


@inlined
def next_command_at(setup, buses, bus, direction):
    """The first clock at which a column command's data can follow the transfer that has the bus."""
    free = free_from(buses, bus, direction, 0, setup.dram_ticks)
    latency = setup.read_latency if direction == READ else setup.write_latency
    return (free + setup.dram_ticks - 1) // setup.dram_ticks - latency
