"""The state of a DIMM that the NDP unit and the host use at the same time: named tuples of arrays.

Lane ``n`` is rank ``n // buses`` behind bus ``n % buses``; a bus is a sub-channel of the host's channel. Of
the ranks on a bus, those of this DIMM come first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference
from ndpsim.dimm.arbitrations import Arbitration
from ndpsim.dram.spec import Tables
from ndpsim.dram.state import Policy

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

# The masters that issue commands.
NDP, HOST = range(2)

# Directions of data.
READ, WRITE = range(2)


@by_reference
class DimmSetup(NamedTuple):
    """Parameters that do not change while a channel runs."""

    sharing: Any  # `dimm.sharing.Shared`, or `Alone`
    lane_tables: Tables  # a channel of one rank
    host_tables: Tables  # a channel with the ranks of all DIMMs on it
    policy: Policy
    arbitration: Arbitration
    starvation_clocks: int  # a request that waits for longer makes its master first
    read_latency: int  # clocks from a read command to the first beat of its data: nCL
    write_latency: int  # from a write command: nCWL
    dram_ticks: int
    unit_ticks: int
    fifo_bursts: int
    dimm_ranks: int  # ranks of a DIMM on a bus
    dimm_of_rank: Ints  # [rank on the channel]
    refresh_shift: int  # clocks by which refreshes are due earlier than after a whole interval
    command_clocks: Ints  # [command]: clocks on a shared command bus; 0: the bus is not shared


# The fields of a staged burst, and the places in `Weights.staged`.
BURST, ARRIVAL, STEP = range(3)
HEAD, STAGED, SERVERS_NOW = range(3)
# Places in `Weights.value`.
BURSTS_LEFT, NEXT_GROUP, END_GROUP, FIRST_GROUP, GROUPS_SUMMED = range(5)


@by_reference
class Weights(NamedTuple):
    """The weights that the lanes read, and the FIFOs and multipliers that receive them.

    The program of a DIMM reads weights in steps. A lane that has finished a step reads ahead into its FIFO.
    These bursts are in a staging buffer until the start time of the multipliers for the step is known.
    """

    place: Ints  # [lane, burst], as in `dram.state.Source`, after the slots for requests of a relayout engine
    column: Narrow  # [lane, burst]
    address: Ints  # [burst]: its number, because no burst is read twice at a time
    first_group: Narrow  # [lane, burst]
    last_group: Narrow  # [lane, burst]
    length: Ints  # [lane]: bursts
    begin: Ints  # [lane, step]: the first burst of each step
    ends: Ints  # [lane, 1 + step]: the lane's reads up to the end of each step
    step: Ints  # [lane]: steps that the lane has begun
    next_from: Ints  # [lane]: the clock from which its next step may be read; FAR: it has or needs none
    admitted: Ints  # [lane, 1]
    steps: Ints  # [DIMM]
    begins_job: Ints  # [DIMM, step]: 1 where a step is the first of a job
    read_from: Ints  # [DIMM, step]: the clock from which its weights may be read
    release: Ints  # [DIMM, step]: the tick before which multipliers may not start; FAR: not known
    service: Ints  # [DIMM, step]: ticks for which a burst occupies its multipliers
    servers: Ints  # [DIMM, step]: bursts in the multipliers of a lane at once, see `dram.sink`
    credit: Ints  # [lane, slot], as in `dram.sink.Sink`
    free: Ints  # [lane, server]
    sink: Ints  # [lane, place]
    done: Ints  # [DIMM, group]: the tick at which all lanes have multiplied its bursts so far
    left: Ints  # [DIMM, group]: its bursts that are not yet given to multipliers
    staging: Ints  # [lane, slot, field]: bursts read, not yet given to the multipliers
    staged: Ints  # [lane, place]
    value: Ints  # [DIMM, place]


# Places in `Traffic.totals`.
STREAM_SERVED, STREAM_READS, STREAM_LATENCY, STREAM_END = range(4)
STREAM_PLACES = 4


@by_reference
class Traffic(NamedTuple):
    """Requests of the host: streams, each of which repeats its requests.

    Request n of a stream is due at clock ``start + n * clocks // per``; with 0 clocks, when the previous one
    was taken. Streams with due requests take turns on a bus, request by request. A request is a burst, so the
    streams get equal bytes, except streams that ask for less. If a request is taken more than `most_lag`
    clocks after it was due, the excess delays the later requests on that bus.
    """

    place: Ints  # [bus, request], as in `dram.state.Source`: those of the streams behind one another
    column: Narrow  # [bus, request]
    address: Ints  # [bus, request]
    number: Ints  # [bus, request]: its number in the stream, over all buses
    stream: Narrow  # [bus, request]
    first: Ints  # [stream, bus]: the first request of the stream,
    length: Ints  # [stream, bus]: and how many it has
    pace: Ints  # [stream, 4]: requests over all buses, start, clocks, per
    most_lag: Ints  # [stream]: clocks from due to taken that cause no delay; FAR: any number
    lag: Ints  # [stream, bus]: clocks by which requests are due later
    offered: Ints  # [stream, bus]: maximum number of requests
    taken: Ints  # [stream, bus]: requests that the controller has taken,
    taken_at: Ints  # [stream, bus]: and the clock of the last one
    next: Ints  # [bus]: the stream of the next request, -1: none is due
    due: Ints  # [bus]: the clock from which a next one is due
    admitted: Ints  # [bus, 1]
    takes_part: Ints  # [bus]: 1 if the host has requests there
    totals: Ints  # [stream, bus, place]


# Places in `HostBuses.value`.
(
    FREE,  # the tick at which the last transfer ends
    DIRECTION,  # of the last transfer
    RANK,  # and its rank; buffer chips are numbered after the ranks of the channel
    LAST_COLUMN_CLOCK,  # of the host
    BUS_TURNAROUNDS,
    RANK_SWITCHES,
) = range(6)
BUS_PLACES = 6


@by_reference
class HostBuses(NamedTuple):
    """The data buses to the host."""

    value: Ints  # [bus, place]
    bubble: Ints  # [direction, next direction, 1 where the rank changes]: clocks between transfers
    next_transfer: Ints  # [bus, DIMM]: the next of its `UnitTransfers`
    end: Ints  # [bus, DIMM]: the tick at which the last of them ended


# Places in `UnitTransfers.value`.
(
    TRANSFERS,
    TRANSFER_TICKS,
    TRANSFER_DIRECTION,
    TRANSFER_GROUPS,
    TRANSFER_LATENCY,
    GROUP_SPACING,  # ticks from the sum of a group to that of the next
) = range(6)


@by_reference
class UnitTransfers(NamedTuple):
    """Activations or results between host and buffer chips; each transfer uses every bus once."""

    ready: Ints  # [DIMM, transfer]: the tick from which it may have the bus
    value: Ints  # [DIMM, place]


# Places in `Claims.totals`.
(
    LAST_COLUMN,  # direction of the last column command; -1: none yet
    TURNAROUNDS,
    REFILLING,
    FIRST,  # the master that is first
    ROWS_LOST,  # [master]: rows that were opened for it and closed by the other
) = range(5)
TOTAL_PLACES = ROWS_LOST + 2


@by_reference
class Claims(NamedTuple):
    """Records of the arbiter: of the lanes, and of the banks that the first master waits for."""

    clock: Ints  # [1]: the next clock
    credit: Ints  # [lane, 1]: the clock from which a read of weights has a place in the FIFO
    half_free: Ints  # [lane]: the clock from which half of the FIFO is free
    credit_from: Ints  # [lane]: the clock from which both are valid
    no_credit: Ints  # the credit of the host, which always has room
    no_rows: Narrow
    totals: Ints  # [lane, place]
    host_issued: Ints  # [lane, command]: commands of the host to the lane's rank
    opened_by: Ints  # [lane, bank]: the master that opened the row
    lane_wanted: Ints  # [lane, node]: the last clock at which the host was first and waited for a bank
    host_wanted: Ints  # [bus, node]: the same for the NDP unit
    lane_second: Ints  # [lane, 1]: 1 where the host is first
    host_second: Ints  # [bus, rank]: 1 where the NDP unit is first
    lane_direction: Ints  # [lane, 1]: the host's next column command, if it is first: 1 reads, 2 writes;
    host_direction: Ints  # [bus, rank]: the same for the NDP unit; with bits of `dram.fast.blocking`
    bus_free: Ints  # [DIMM, bus]: the clock from which the command bus that its lanes share is free
    last_rank: Ints  # [DIMM, bus]: the rank of the lane that used it last
    grant_records: Ints  # [bus, rank and all of them, place]: see `dimm.arbitration_points`


@by_reference
class Agents(NamedTuple):
    """The requests of NDP units and host on a channel, and the records of the arbiter."""

    weights: Weights
    transfers: UnitTransfers
    traffic: Traffic
    buses: HostBuses
    claims: Claims
    relayout: Any  # `dimm.relayout.Relayout`
