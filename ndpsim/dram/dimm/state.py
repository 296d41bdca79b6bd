"""The memory of a DIMM that the NDP unit and the host use at the same time: named tuples of arrays.

Lane ``n`` is rank ``n // buses`` behind bus ``n % buses``; a bus is a sub-channel of the host's channel. Of
the ranks on a bus, those of this DIMM come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram.masks.state import BANKS_PER_RANK
from ndpsim.dram.sink import Rows
from ndpsim.dram.state import FAR, Channel, Policy, Source, make_channel
from ndpsim.spec import COMMANDS, Tables
from ndpsim.spec.standard import RD, WR

__all__ = [
    "ARBITRATIONS",
    "HOST",
    "NDP",
    "Buses",
    "Claims",
    "Setup",
    "Traffic",
    "Transfers",
    "Weights",
    "bus_bubbles",
    "make_buses",
    "make_channels",
    "make_claims",
    "make_traffic",
    "make_transfers",
    "make_weights",
]

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

# Who issues a command.
NDP, HOST = range(2)

# Whose turn comes first.
HOST_FIRST, NDP_FIRST, SLICE = range(3)
ARBITRATIONS = {"host-first": HOST_FIRST, "ndp-first": NDP_FIRST, "slice": SLICE}

# Which way data goes.
READ, WRITE = range(2)


class Setup(NamedTuple):
    """What does not change while a DIMM runs."""

    lane_tables: Tables  # a channel of one rank
    host_tables: Tables  # a channel with the ranks of all DIMMs on it
    policy: Policy
    arbitration: int  # HOST_FIRST, NDP_FIRST or SLICE
    slice_clocks: int
    starvation_clocks: int  # a request that waits for longer makes its owner first
    read_latency: int  # clocks from RD to the first beat of its data: nCL
    write_latency: int  # from WR: nCWL
    dram_ticks: int
    unit_ticks: int
    fifo_bursts: int
    servers: int  # bursts that the multipliers of a lane hold, see `dram.sink`


# The fields of a staged burst, and the places in `Weights.staged`.
BURST, ARRIVAL, STEP = range(3)
HEAD, STAGED = range(2)
# Places in `Weights.value`.
BURSTS_LEFT, NEXT_ROW, END_ROW, FIRST_ROW, ROWS_SUMMED = range(5)


class Weights(NamedTuple):
    """The weights that the lanes read, and the FIFOs and multipliers that take them.

    The program reads the weights in steps. A lane that is done with a step reads ahead into its FIFO; what it
    reads lies in a staging buffer until it is decided when the multipliers may start on the step.
    """

    place: Ints  # [lane, burst], as in `dram.state.Source`
    column: Narrow  # [lane, burst]
    length: Ints  # [lane]: bursts
    ends: Ints  # [lane, step]: the lane's reads up to the end of each step
    step: Ints  # [lane]: the step that the lane reads
    admitted: Ints  # [lane, 1]
    release: Ints  # [step]: the tick before which the multipliers may not start on it, FAR: undecided
    service: Ints  # [step]: ticks that a burst holds its multipliers
    credit: Ints  # [lane, slot], as in `dram.sink.Sink`
    free: Ints  # [lane, server]
    sink: Ints  # [lane, place]
    first_row: Narrow  # [lane, burst]
    last_row: Narrow  # [lane, burst]
    done: Ints  # [row]: the tick at which all lanes are done with the bursts of a row so far
    left: Ints  # [row]: bursts that hold weights of the row and that no multiplier has been given
    staging: Ints  # [lane, slot, field]: bursts read, not yet given to the multipliers
    staged: Ints  # [lane, place]
    value: Ints


class Traffic(NamedTuple):
    """What the host asks for: requests for every bus, and the same again and again.

    Request n of the whole DIMM is due at clock ``1 + n * clocks // per``.
    """

    place: Ints  # [bus, request], as in `dram.state.Source`
    column: Narrow  # [bus, request]
    address: Ints  # [bus, request]
    number: Ints  # [bus, request]: its number on the DIMM
    length: Ints  # [bus]: requests
    total: int  # over all buses
    clocks: int
    per: int
    offered: Ints  # [bus]: no more requests than this are made; 0: the host takes no part
    admitted: Ints  # [bus, 1]: requests that are due


# Places in `Buses.value`.
(
    FREE,  # the tick at which the last transfer ends
    DIRECTION,  # of the last transfer
    RANK,  # and its rank; that of the buffer chip itself is the number of ranks
    LAST_COLUMN_CLOCK,  # of the host
    BUS_TURNAROUNDS,
    RANK_SWITCHES,
) = range(6)
BUS_PLACES = 6


class Buses(NamedTuple):
    """The data buses to the host."""

    value: Ints  # [bus, place]
    bubble: Ints  # [direction, next direction, 1 where the rank changes]: clocks between transfers
    at: Ints  # [bus]: the next job of `Transfers`
    end: Ints  # [bus]: the tick at which the last of its jobs ended


# Places in `Transfers.value`.
JOBS, JOB_TICKS, JOB_DIRECTION, JOB_ROWS, JOB_LATENCY = range(5)


class Transfers(NamedTuple):
    """Activations or results on their way between host and buffer chip; each job takes every bus once."""

    ready: Ints  # [job]: the tick from which it may have the bus
    value: Ints


# Places in `Claims.tally`.
(
    LAST_COLUMN,  # the direction of the last column command, -1: none yet
    TURNAROUNDS,
    REFILLING,
    FIRST,  # the owner whose turn is first
    ROWS_LOST,  # [owner]: rows opened for it that the other closed
) = range(5)
TALLY_PLACES = ROWS_LOST + 2


class Claims(NamedTuple):
    """What the arbiter notes of the lanes, and of what the first owner waits for."""

    clock: Ints  # [1]: the next clock
    credit: Ints  # [lane, 1]: the clock from which a read of weights has a place in the FIFO
    half_free: Ints  # [lane]: the clock from which half of the FIFO is free
    no_credit: Ints  # the credit of the host, who always has room
    no_rows: Narrow
    tally: Ints  # [lane, place]
    host_issued: Ints  # [lane, command]: commands of the host to the lane's rank
    opened_by: Ints  # [lane, bank]: whose ACT opened the row
    lane_wanted: Ints  # [lane, node]: the last clock at which the host waited for a bank, and was first
    host_wanted: Ints  # [bus, node]: likewise the NDP unit
    lane_second: Ints  # [lane, 1]: 1 where the host is first
    host_second: Ints  # [bus, rank]: 1 where the NDP unit is first
    lane_direction: Ints  # [lane, 1]: the host's next column command, if it is first: 1 reads, 2 writes
    host_direction: Ints  # [bus, rank]: likewise the NDP unit's


def make_channels(tables: Tables, policy: Policy, count: int, latency_places: int) -> Channel:
    """So many channels at rest before clock 1; every array has one more dimension, the first."""
    one = make_channel(tables, policy, latency_places)
    return Channel(*(np.tile(array, (count, *(1,) * array.ndim)) for array in one))


def make_claims(lanes: int, buses: int, lane_nodes: int, host_nodes: int, host_ranks: int) -> Claims:
    """Nothing noted."""

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    tally = zeros(lanes, TALLY_PLACES)
    tally[:, LAST_COLUMN] = -1
    return Claims(
        clock=np.ones(1, dtype=np.int64),
        credit=zeros(lanes, 1),
        half_free=zeros(lanes),
        no_credit=zeros(8),
        no_rows=np.zeros(0, dtype=np.int32),
        tally=tally,
        host_issued=zeros(lanes, len(COMMANDS)),
        opened_by=zeros(lanes, max(lane_nodes, BANKS_PER_RANK)),
        lane_wanted=zeros(lanes, lane_nodes),
        host_wanted=zeros(buses, host_nodes),
        lane_second=zeros(lanes, 1),
        host_second=zeros(buses, host_ranks),
        lane_direction=zeros(lanes, 1),
        host_direction=zeros(buses, host_ranks),
    )


def _rows_of(values: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
    """Arrays of different lengths as the rows of one, with zeros behind them."""
    together: NDArray[Any] = np.zeros((len(values), max(1, *(len(one) for one in values))), dtype=kind)
    for row, one in zip(together, values, strict=True):
        row[: len(one)] = one
    return together


def make_weights(
    setup: Setup, sources: Sequence[Source], rows: Sequence[Rows], ends: Ints, row_count: int
) -> Weights:
    """Weights that nobody has read yet, a source and its rows for every lane.

    Args:
        ends: int64[lane, step], reads of the lane up to the end of each step.
        row_count: rows of weights.
    """
    lanes, depth = len(sources), setup.fifo_bursts
    place, column, first_row, last_row = (
        _rows_of(values, kind)
        for values, kind in (
            ([one.place for one in sources], np.int64),
            ([one.column for one in sources], np.int32),
            ([one.first_row for one in rows], np.int32),
            ([one.last_row for one in rows], np.int32),
        )
    )
    steps = ends.shape[1]

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    return Weights(
        place=place,
        column=column,
        length=np.array([len(one.place) for one in sources], dtype=np.int64),
        ends=ends,
        step=zeros(lanes),
        admitted=zeros(lanes, 1),
        release=np.full(steps, FAR, dtype=np.int64),
        service=zeros(steps),
        credit=zeros(lanes, depth),
        free=zeros(lanes, setup.servers),
        sink=zeros(lanes, 8),
        first_row=first_row,
        last_row=last_row,
        done=zeros(row_count),
        left=zeros(row_count),
        staging=zeros(lanes, depth, 3),
        staged=zeros(lanes, 2),
        value=zeros(5),
    )


def make_traffic(
    sources: Sequence[Source], numbers: Sequence[Ints], pace: tuple[int, int], offered: Ints
) -> Traffic:
    """Requests of the host, a source for every bus.

    Args:
        numbers: of each bus, the number of each request among those of the DIMM.
        pace: request n is due after ``n * pace[0] // pace[1]`` clocks.
        offered: int64[bus], no more requests than this are made.
    """
    return Traffic(
        place=_rows_of([one.place for one in sources], np.int64),
        column=_rows_of([one.column for one in sources], np.int32),
        address=_rows_of([one.address for one in sources], np.int64),
        number=_rows_of(numbers, np.int64),
        length=np.array([len(one.place) for one in sources], dtype=np.int64),
        total=sum(len(one.place) for one in sources),
        clocks=pace[0],
        per=pace[1],
        offered=offered,
        admitted=np.zeros((len(sources), 1), dtype=np.int64),
    )


def bus_bubbles(tables: Tables, read_latency: int, write_latency: int) -> Ints:
    """Clocks that a bus stays empty between two transfers: [direction, next direction, 1: other rank].

    What the standard's distances between commands leave between their data, seen from the bus.

    Args:
        read_latency, write_latency: clocks from a command to the first beat of its data: nCL, nCWL.
    """
    later = write_latency - read_latency
    other_rank = tables.sibling_gap[RD, RD] - tables.burst
    turn = np.zeros((2, 2), dtype=np.int64)
    turn[READ, WRITE] = max(tables.gap[0, RD, WR], tables.gap[1, RD, WR]) + later - tables.burst
    turn[WRITE, READ] = tables.sibling_gap[WR, RD] - later - tables.burst
    bubbles = np.stack((turn, np.maximum(turn, other_rank)), axis=-1)
    never_negative: Ints = np.maximum(bubbles, 0)
    return never_negative


def make_buses(buses: int, bubbles: Ints) -> Buses:
    """Buses that have carried nothing."""
    value = np.zeros((buses, BUS_PLACES), dtype=np.int64)
    value[:, DIRECTION] = -1
    return Buses(
        value=value,
        bubble=bubbles,
        at=np.zeros(buses, dtype=np.int64),
        end=np.zeros(buses, dtype=np.int64),
    )


def make_transfers(most: int) -> Transfers:
    """Room for the jobs of a step."""
    return Transfers(np.zeros(most, dtype=np.int64), np.zeros(5, dtype=np.int64))
