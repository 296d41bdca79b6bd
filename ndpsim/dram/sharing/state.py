"""What a shared DIMM remembers, as named tuples of integers and arrays.

Lanes are numbered over the DIMM: lane ``n`` is rank ``n // buses`` behind bus ``n % buses``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram.sink import Rows
from ndpsim.dram.state import COUNTERS, FAR, LATENCIES, Policy, Source, make_channel
from ndpsim.spec import Tables
from ndpsim.spec.standard import RD, WR

__all__ = [
    "ARBITRATIONS",
    "HOST",
    "NDP",
    "Buses",
    "Lanes",
    "Setup",
    "Traffic",
    "Transfers",
    "Weights",
    "bus_bubbles",
    "make_buses",
    "make_lanes",
    "make_transfers",
    "make_weights",
]

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

# Who owns a request.
NDP, HOST = range(2)

# Who comes first.
HOST_FIRST, NDP_FIRST, SLICE = range(3)
ARBITRATIONS = {"host-first": HOST_FIRST, "ndp-first": NDP_FIRST, "slice": SLICE}

# Which way data goes.
READ, WRITE = range(2)


class Setup(NamedTuple):
    """What does not change while a DIMM runs."""

    tables: Tables  # of a lane
    policy: Policy
    arbitration: int  # HOST_FIRST, NDP_FIRST or SLICE
    slice_clocks: int
    patience: int  # clocks after which a request that waits makes its owner first
    column_latency: int  # clocks from RD to the first beat of its data: nCL
    dram_ticks: int
    unit_ticks: int
    fifo_bursts: int
    servers: int  # places of the multipliers of a lane, see `dram.sink`


# Places in `Lanes.tally`.
LAST_COLUMN, TURNAROUNDS, HUNGRY, ROWS_LOST = range(4)  # ROWS_LOST + owner: its rows that the other closed
TALLIES = 6


class Lanes(NamedTuple):
    """The channels of all lanes, as in `dram.state.Channel`: once an owner what is his, once what both share.

    The refreshes of a lane stand in the priority queue of the NDP unit.
    """

    entry: Ints  # [owner, lane, queue, field, slot]
    size: Ints  # [owner, lane, queue]
    bound: Ints  # [owner, lane, queue]
    value: Ints  # [owner, lane, place]
    issued: Ints  # [owner, lane, command]
    latencies: Ints  # [owner, clocks]: of a lane only; the host's are counted on the bus
    ready: Ints  # [lane, node, command]
    rows: Ints  # [lane, node, field]
    recent_acts: Ints  # [lane, rank node, 4]
    due: Ints  # [lane]: the clock of the next step
    credit: Ints  # [owner, lane, 1]: the clock from which a read has a place for its data
    both: Ints  # [lane, queue]: requests of both owners
    wanted: Ints  # [lane, node]: the last clock at which the first owner waited for the bank
    opened_by: Ints  # [lane, node]: whose ACT opened the row
    tally: Ints  # [lane, place]
    nothing: Ints  # the counters of a sink that takes nothing


# The fields of a shelved burst, and the places in `Weights.shelved`.
BURST, ARRIVAL, STEP = range(3)
HEAD, SHELVED = range(2)
# Places in `Weights.value`.
BURSTS_LEFT, NEXT_ROW, END_ROW, FIRST_ROW, ROWS_KNOWN = range(5)


class Weights(NamedTuple):
    """The weights that the lanes read, and the FIFOs and multipliers that take them.

    The program reads the weights in steps. A lane that is done with a step reads ahead into its FIFO; what it
    reads lies on the shelf until it is known when the multipliers may start on the step.
    """

    place: Ints  # [lane, burst], as in `dram.state.Source`
    column: Narrow  # [lane, burst]
    length: Ints  # [lane]: bursts
    ends: Ints  # [lane, step]: the lane's reads up to the end of each step
    step: Ints  # [lane]: the step that the lane reads
    admitted: Ints  # [lane, 1]
    release: Ints  # [step]: the tick before which the multipliers may not start on it, FAR: unknown
    service: Ints  # [step]: ticks that a burst holds its multipliers
    credit: Ints  # [lane, slot], as in `dram.sink.Sink`
    free: Ints  # [lane, server]
    sink: Ints  # [lane, place]
    first_row: Narrow  # [lane, burst]
    last_row: Narrow  # [lane, burst]
    done: Ints  # [row]: the tick at which all lanes are done with the bursts of a row so far
    left: Ints  # [row]: bursts that hold weights of the row and that no multiplier has been given
    shelf: Ints  # [lane, slot, field]: bursts read, not yet given to the multipliers
    shelved: Ints  # [lane, place]
    value: Ints


class Traffic(NamedTuple):
    """What the host asks for: a round of requests for every bus, and the same again and again.

    Request n of the whole DIMM is due at clock ``1 + n * clocks // per``.
    """

    lane: Ints  # [bus, request]
    place: Ints  # [bus, request], as in `dram.state.Source`
    column: Narrow  # [bus, request]
    address: Ints  # [bus, request]
    number: Ints  # [bus, request]: its number on the DIMM
    length: Ints  # [bus]: requests
    total: int  # requests of a round, over all buses
    clocks: int
    per: int
    offered: Ints  # [bus]: no more requests than this are made


# Places in `Buses.value`.
(
    TAKEN,  # requests that have gone to their lanes
    LAST_END,  # the clock at which the last transfer of the host's data ended
    FREE,  # the tick at which the last transfer ends
    DIRECTION,  # of the last transfer
    RANK,  # and its rank; that of the buffer chip itself is the number of ranks
    UNDER_WAY,  # reads whose data has not had the bus
    FIRST_RETURN,  # in the ring of returns
    RETURNS,  # waiting
    READS,  # transfers
    WRITES,
    LATENCY,  # of reads, from being taken to the last beat on the bus, summed, clocks
    LONGEST,  # of these
    BUS_TURNAROUNDS,
    RANK_SWITCHES,
) = range(14)
BUS_COUNTS = 14

# The fields of a return.
READY, ARRIVED, FROM_RANK = range(3)


class Buses(NamedTuple):
    """The buses to the host."""

    value: Ints  # [bus, place]
    returns: Ints  # [bus, slot, field]: data of reads, a ring
    latencies: Ints  # [clocks]: reads by latency
    bubble: Ints  # [direction, next direction, 1 where the rank changes]: clocks between transfers
    at: Ints  # [bus]: the next job of `Transfers`
    end: Ints  # [bus]: the tick at which the last of its jobs ended


# Places in `Transfers.value`.
JOBS, JOB_TICKS, JOB_DIRECTION, JOB_ROWS, JOB_LATENCY, JOB_FIRST_ROW, JOB_END_ROW = range(7)


class Transfers(NamedTuple):
    """Activations or results on their way between host and buffer chip; each job takes every bus once."""

    ready: Ints  # [job]: the tick from which it may have the bus
    value: Ints


def _stack(values: Ints, *counts: int) -> Ints:
    """`values`, again and again."""
    return np.tile(values, (*counts, *(1,) * values.ndim))


def make_lanes(tables: Tables, policy: Policy, lanes: int) -> Lanes:
    """Lanes at rest before clock 1."""
    one = make_channel(tables, policy)
    nodes = len(one.rows)
    credit = np.zeros((2, lanes, 1), dtype=np.int64)
    both = np.zeros((lanes, len(one.size)), dtype=np.int64)
    tally = np.zeros((lanes, TALLIES), dtype=np.int64)
    tally[:, LAST_COLUMN] = -1
    return Lanes(
        entry=_stack(one.entry, 2, lanes),
        size=_stack(one.size, 2, lanes),
        bound=_stack(one.bound, 2, lanes),
        value=_stack(one.value[:COUNTERS], 2, lanes),
        issued=_stack(one.issued, 2, lanes),
        latencies=np.zeros((2, LATENCIES), dtype=np.int64),
        ready=_stack(one.ready, lanes),
        rows=_stack(one.rows, lanes),
        recent_acts=_stack(one.recent_acts, lanes),
        due=np.ones(lanes, dtype=np.int64),
        credit=credit,
        both=both,
        wanted=np.zeros((lanes, nodes), dtype=np.int64),
        opened_by=np.zeros((lanes, nodes), dtype=np.int64),
        tally=tally,
        nothing=np.zeros(8, dtype=np.int64),
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
        shelf=zeros(lanes, depth, 3),
        shelved=zeros(lanes, 2),
        value=zeros(5),
    )


def make_traffic(
    sources: Sequence[Source],
    lanes: Sequence[Ints],
    numbers: Sequence[Ints],
    pace: tuple[int, int],
    offered: Ints,
) -> Traffic:
    """Requests of the host, a source for every bus.

    Args:
        lanes: of each bus, the lane that each request goes to.
        numbers: of each bus, the number of each request among those of the DIMM.
        pace: request n is due after ``n * pace[0] // pace[1]`` clocks.
        offered: int64[bus], no more requests than this are made.
    """
    return Traffic(
        lane=_rows_of(lanes, np.int64),
        place=_rows_of([one.place for one in sources], np.int64),
        column=_rows_of([one.column for one in sources], np.int32),
        address=_rows_of([one.address for one in sources], np.int64),
        number=_rows_of(numbers, np.int64),
        length=np.array([len(one.place) for one in sources], dtype=np.int64),
        total=sum(len(one.place) for one in sources),
        clocks=pace[0],
        per=pace[1],
        offered=offered,
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


def make_buses(policy: Policy, buses: int, bubbles: Ints) -> Buses:
    """Buses that have carried nothing."""
    value = np.zeros((buses, BUS_COUNTS), dtype=np.int64)
    value[:, DIRECTION] = -1
    return Buses(
        value=value,
        returns=np.zeros((buses, policy.read_slots, 3), dtype=np.int64),
        latencies=np.zeros(LATENCIES, dtype=np.int64),
        bubble=bubbles,
        at=np.zeros(buses, dtype=np.int64),
        end=np.zeros(buses, dtype=np.int64),
    )


def make_transfers(most: int) -> Transfers:
    """Room for the jobs of a step."""
    return Transfers(np.zeros(most, dtype=np.int64), np.zeros(7, dtype=np.int64))
