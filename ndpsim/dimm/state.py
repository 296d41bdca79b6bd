"""The memory of a DIMM that the NDP unit and the host use at the same time: named tuples of arrays.

Lane ``n`` is rank ``n // buses`` behind bus ``n % buses``; a bus is a sub-channel of the host's channel. Of
the ranks on a bus, those of this DIMM come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._jit import by_reference
from ndpsim.dimm.arbitration_points import RECORDS
from ndpsim.dram.fast.fields import BANKS_PER_RANK
from ndpsim.dram.sink import Groups
from ndpsim.dram.state import FAR, Channel, Policy, Source, make_channel, number_nodes
from ndpsim.spec import Tables, standard

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

# The masters that issue commands.
NDP, HOST = range(2)

# Directions of data.
READ, WRITE = range(2)


@by_reference
class Setup(NamedTuple):
    """Parameters that do not change while a channel runs."""

    sharing: Any  # `dimm.sharing.Shared`, or `Alone`
    lane_tables: Tables  # a channel of one rank
    host_tables: Tables  # a channel with the ranks of all DIMMs on it
    policy: Policy
    arbitration: Any  # see `dimm.arbitration_points`
    starvation_clocks: int  # a request that waits for longer makes its master first
    read_latency: int  # clocks from a read command to the first beat of its data: nCL
    write_latency: int  # from a write command: nCWL
    dram_ticks: int
    unit_ticks: int
    fifo_bursts: int
    dimm_ranks: int  # of the ranks on a bus, those of a DIMM
    dimm_of_rank: Ints  # [rank on the channel]
    refresh_shift: int  # refreshes fall due by so many clocks earlier than after a whole interval
    command_clocks: Ints  # [command]: clocks for which it has a command bus that lanes share, 0: none is


# The fields of a staged burst, and the places in `Weights.staged`.
BURST, ARRIVAL, STEP = range(3)
HEAD, STAGED, SERVERS_NOW = range(3)
# Places in `Weights.value`.
BURSTS_LEFT, NEXT_GROUP, END_GROUP, FIRST_GROUP, GROUPS_SUMMED = range(5)


@by_reference
class Weights(NamedTuple):
    """The weights that the lanes read, and the FIFOs and multipliers that take them.

    The program of a DIMM reads weights in steps. A lane that is done with a step reads ahead into its FIFO;
    what it reads is in a staging buffer until it is decided when the multipliers may start on the step.
    """

    place: Ints  # [lane, burst], as in `dram.state.Source`: behind slots for requests of a relayout engine
    column: Narrow  # [lane, burst]
    address: Ints  # [burst]: its number, as none is read twice at a time
    first_group: Narrow  # [lane, burst]
    last_group: Narrow  # [lane, burst]
    length: Ints  # [lane]: bursts
    begin: Ints  # [lane, step]: the first burst of each step
    ends: Ints  # [lane, 1 + step]: the lane's reads up to the end of each step
    step: Ints  # [lane]: steps that the lane has begun
    next_from: Ints  # [lane]: the clock from which its next step may be read, FAR: it has one or needs none
    admitted: Ints  # [lane, 1]
    steps: Ints  # [DIMM]
    begins_job: Ints  # [DIMM, step]: 1 where a step is the first of a job
    read_from: Ints  # [DIMM, step]: the clock from which its weights may be read
    release: Ints  # [DIMM, step]: the tick before which multipliers may not start on it, FAR: undecided
    service: Ints  # [DIMM, step]: ticks that a burst holds its multipliers
    servers: Ints  # [DIMM, step]: bursts that the multipliers of a lane hold, see `dram.sink`
    credit: Ints  # [lane, slot], as in `dram.sink.Sink`
    free: Ints  # [lane, server]
    sink: Ints  # [lane, place]
    done: Ints  # [DIMM, group]: the tick at which all lanes are done with its bursts so far
    left: Ints  # [DIMM, group]: its bursts that no multiplier has been given
    staging: Ints  # [lane, slot, field]: bursts read, not yet given to the multipliers
    staged: Ints  # [lane, place]
    value: Ints  # [DIMM, place]


# Places in `Traffic.totals`.
STREAM_SERVED, STREAM_READS, STREAM_LATENCY, STREAM_END = range(4)
STREAM_PLACES = 4


@by_reference
class Traffic(NamedTuple):
    """Requests of the host: streams of requests, each the same again and again.

    Request n of a stream is due at clock ``start + n * clocks // per``; with 0 clocks, when the last was
    taken. Streams with requests that are due take turns on a bus, request by request, and a request is a
    burst: shares are equal in bytes, whatever a stream asks for, but for those that ask for less. What a
    request was taken later than `most_lag` clocks after it was due delays those behind it on that bus.
    """

    place: Ints  # [bus, request], as in `dram.state.Source`: those of the streams behind one another
    column: Narrow  # [bus, request]
    address: Ints  # [bus, request]
    number: Ints  # [bus, request]: its number in the stream, over all buses
    stream: Narrow  # [bus, request]
    first: Ints  # [stream, bus]: the first request of the stream,
    length: Ints  # [stream, bus]: and how many it has
    pace: Ints  # [stream, 4]: requests over all buses, start, clocks, per
    most_lag: Ints  # [stream]: clocks from being due to being taken, FAR: any
    lag: Ints  # [stream, bus]: clocks by which requests fall due later
    offered: Ints  # [stream, bus]: no more requests than this are made
    taken: Ints  # [stream, bus]: requests that the controller has taken,
    taken_at: Ints  # [stream, bus]: the last at this clock
    next: Ints  # [bus]: the stream of the next request, -1: none is due
    due: Ints  # [bus]: the clock from which there is a next one
    admitted: Ints  # [bus, 1]
    takes_part: Ints  # [bus]: 1 when the host asks for anything there
    totals: Ints  # [stream, bus, place]


# Places in `Buses.value`.
(
    FREE,  # the tick at which the last transfer ends
    DIRECTION,  # of the last transfer
    RANK,  # and its rank; those of the buffer chips follow the ranks of the channel
    LAST_COLUMN_CLOCK,  # of the host
    BUS_TURNAROUNDS,
    RANK_SWITCHES,
) = range(6)
BUS_PLACES = 6


@by_reference
class Buses(NamedTuple):
    """The data buses to the host."""

    value: Ints  # [bus, place]
    bubble: Ints  # [direction, next direction, 1 where the rank changes]: clocks between transfers
    at: Ints  # [bus, DIMM]: the next of its `Transfers`
    end: Ints  # [bus, DIMM]: the tick at which the last of them ended


# Places in `Transfers.value`.
TRANSFERS, TRANSFER_TICKS, TRANSFER_DIRECTION, TRANSFER_GROUPS, TRANSFER_LATENCY = range(5)


@by_reference
class Transfers(NamedTuple):
    """Activations or results on their way between host and buffer chips; each takes every bus once."""

    ready: Ints  # [DIMM, transfer]: the tick from which it may have the bus
    value: Ints  # [DIMM, place]


# Places in `Claims.totals`.
(
    LAST_COLUMN,  # the direction of the last column command, -1: none yet
    TURNAROUNDS,
    REFILLING,
    FIRST,  # the master that is first
    ROWS_LOST,  # [master]: rows opened for it that the other closed
) = range(5)
TOTAL_PLACES = ROWS_LOST + 2


@by_reference
class Claims(NamedTuple):
    """Records of the arbiter: of the lanes, and of the banks that the first master waits for."""

    clock: Ints  # [1]: the next clock
    credit: Ints  # [lane, 1]: the clock from which a read of weights has a place in the FIFO
    half_free: Ints  # [lane]: the clock from which half of the FIFO is free
    credit_from: Ints  # [lane]: the clock from which both are as they are
    no_credit: Ints  # the credit of the host, who always has room
    no_rows: Narrow
    totals: Ints  # [lane, place]
    host_issued: Ints  # [lane, command]: commands of the host to the lane's rank
    opened_by: Ints  # [lane, bank]: who opened the row
    lane_wanted: Ints  # [lane, node]: the last clock at which the host waited for a bank, and was first
    host_wanted: Ints  # [bus, node]: likewise the NDP unit
    lane_second: Ints  # [lane, 1]: 1 where the host is first
    host_second: Ints  # [bus, rank]: 1 where the NDP unit is first
    lane_direction: Ints  # [lane, 1]: the host's next column command, if it is first: 1 reads, 2 writes;
    host_direction: Ints  # [bus, rank]: likewise the NDP unit's; with bits of `dram.fast.blocking`
    bus_free: Ints  # [DIMM, bus]: the clock from which the command bus that its lanes share is free
    last_rank: Ints  # [DIMM, bus]: the rank of the lane that had it last
    grant_records: Ints  # [bus, rank and all of them, place]: see `dimm.arbitration_points`


@by_reference
class Agents(NamedTuple):
    """The requests of NDP units and host on a channel, and the records of the arbiter."""

    weights: Weights
    transfers: Transfers
    traffic: Traffic
    buses: Buses
    claims: Claims
    relayout: Any = None  # `dimm.relayout.Relayout`, None: nothing is moved


def request_slots(setup: Setup) -> int:
    """Requests of a relayout engine that a lane can have taken and not served: queued, or active."""
    return setup.policy.read_slots + setup.policy.write_slots + BANKS_PER_RANK * setup.lane_tables.ranks


def make_channels(tables: Tables, policy: Policy, count: int, latency_places: int) -> Channel:
    """So many channels at rest before clock 1; every array has one more dimension, the first."""
    one = make_channel(tables, policy, latency_places)
    return Channel(*(np.tile(array, (count, *(1,) * array.ndim)) for array in one))


def make_claims(setup: Setup, lanes: int, buses: int) -> Claims:
    """Nothing recorded."""
    lane_nodes, host_nodes = number_nodes(setup.lane_tables).total, number_nodes(setup.host_tables).total
    host_ranks, dimms = setup.host_tables.ranks, lanes // buses // setup.dimm_ranks
    totals = _zeros(lanes, TOTAL_PLACES)
    totals[:, LAST_COLUMN] = -1
    return Claims(
        clock=np.ones(1, dtype=np.int64),
        credit=_zeros(lanes, 1),
        half_free=_zeros(lanes),
        credit_from=_zeros(lanes),
        no_credit=_zeros(8),
        no_rows=np.zeros(0, dtype=np.int32),
        totals=totals,
        host_issued=_zeros(lanes, len(setup.lane_tables.commands)),
        opened_by=_zeros(lanes, max(lane_nodes, BANKS_PER_RANK * setup.lane_tables.ranks)),
        lane_wanted=_zeros(lanes, lane_nodes),
        host_wanted=_zeros(buses, host_nodes),
        lane_second=_zeros(lanes, setup.lane_tables.ranks),
        host_second=_zeros(buses, host_ranks),
        lane_direction=_zeros(lanes, setup.lane_tables.ranks),
        host_direction=_zeros(buses, host_ranks),
        bus_free=_zeros(dimms, buses),
        last_rank=np.full((dimms, buses), -1, dtype=np.int64),
        grant_records=_zeros(buses, host_ranks + 1, RECORDS),
    )


def _zeros(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


def _widened(array: NDArray[Any], axis: int, length: int, edge: bool = False) -> NDArray[Any]:
    """The array with at least so many elements along an axis: zeros behind, or with `edge` the last again."""
    more = max(0, length - array.shape[axis])
    pads = [(0, more if number == axis else 0) for number in range(array.ndim)]
    return np.pad(array, pads, mode="edge" if edge else "constant")


def make_weights(setup: Setup, lanes: int, buses: int) -> Weights:
    """No weights yet."""
    depth, dimms, slots = setup.fifo_bursts, lanes // buses // setup.dimm_ranks, request_slots(setup)
    narrow = np.zeros((lanes, slots), dtype=np.int32)
    return Weights(
        place=_zeros(lanes, slots),
        column=narrow.copy(),
        address=np.arange(slots, dtype=np.int64),
        first_group=narrow.copy(),
        last_group=narrow.copy(),
        length=np.full(lanes, slots, dtype=np.int64),
        begin=_zeros(lanes, 0),
        ends=_zeros(lanes, 1),
        step=_zeros(lanes),
        next_from=np.full(lanes, FAR, dtype=np.int64),
        admitted=_zeros(lanes, 1),
        steps=_zeros(dimms),
        begins_job=_zeros(dimms, 0),
        read_from=_zeros(dimms, 0),
        release=_zeros(dimms, 0),
        service=_zeros(dimms, 0),
        servers=_zeros(dimms, 0),
        credit=_zeros(lanes, depth),
        free=_zeros(lanes, 1),
        sink=_zeros(lanes, 8),
        done=_zeros(dimms, 0),
        left=_zeros(dimms, 0),
        staging=_zeros(lanes, depth, 3),
        staged=_zeros(lanes, 3),
        value=_zeros(dimms, 5),
    )


class JobReads(NamedTuple):
    """Weights of a DIMM that are read region by region, and all of them again for every tile of tokens."""

    sources: Sequence[Source]  # of each of its lanes
    groups: Sequence[Groups]  # likewise
    regions: Ints  # [lane, region]: bursts
    servers: Sequence[int]  # [region]: bursts that the multipliers of a lane hold
    tiles: int
    group_count: int  # groups of bursts that the unit adds up
    read_from: int  # the clock from which weights may be read


def add_job(weights: Weights, dimm: int, job: JobReads) -> Weights:
    """The weights, with those of a job to be read after all that its DIMM has."""
    lanes = weights.place.shape[0] // weights.steps.shape[0]
    counts = [len(one.place) for one in job.sources]
    # Lanes are ordered by rank and, in it, by bus: those of a DIMM are neighbours.
    own = range(dimm * lanes, (dimm + 1) * lanes)
    at, steps = int(weights.steps[dimm]), len(job.servers) * job.tiles
    width = int((weights.length[own.start : own.stop] + counts).max())
    changed: dict[str, NDArray[Any]] = {
        name: _widened(getattr(weights, name), 1, width)
        for name in ("place", "column", "first_group", "last_group")
    }
    changed["address"] = np.arange(changed["place"].shape[1], dtype=np.int64)
    for name in ("begin", "begins_job", "read_from", "release", "service", "servers"):
        changed[name] = _widened(getattr(weights, name), 1, at + steps)
    for name in ("done", "left"):
        changed[name] = _widened(getattr(weights, name), 1, job.group_count)
    changed["ends"] = _widened(weights.ends, 1, 1 + at + steps, edge=True)
    changed["free"] = _widened(weights.free, 1, max(job.servers))
    for lane, source, groups, regions in zip(own, job.sources, job.groups, job.regions, strict=True):
        first = int(weights.length[lane])
        part = slice(first, first + len(source.place))
        changed["place"][lane, part], changed["column"][lane, part] = source.place, source.column
        changed["first_group"][lane, part] = groups.first_group
        changed["last_group"][lane, part] = groups.last_group
        begin = first + np.cumsum(regions) - regions
        changed["begin"][lane, at : at + steps] = np.tile(begin, job.tiles)
        reads = weights.ends[lane, at] + np.cumsum(np.tile(regions, job.tiles))
        changed["ends"][lane, at + 1 : at + 1 + steps] = reads
        changed["ends"][lane, at + 1 + steps :] = reads[-1]
    changed["begins_job"][dimm, at] = 1
    changed["read_from"][dimm, at : at + steps] = job.read_from
    changed["release"][dimm, at : at + steps] = FAR
    changed["servers"][dimm, at : at + steps] = np.tile(job.servers, job.tiles)
    weights.length[own.start : own.stop] += counts
    weights.steps[dimm] += steps
    return weights._replace(**changed)


def make_traffic(buses: int) -> Traffic:
    """The host asks for nothing yet."""
    return Traffic(
        place=_zeros(buses, 0),
        column=np.zeros((buses, 0), dtype=np.int32),
        address=_zeros(buses, 0),
        number=_zeros(buses, 0),
        stream=np.zeros((buses, 0), dtype=np.int32),
        first=_zeros(0, buses),
        length=_zeros(0, buses),
        pace=_zeros(0, 4),
        most_lag=_zeros(0),
        lag=_zeros(0, buses),
        offered=_zeros(0, buses),
        taken=_zeros(0, buses),
        taken_at=_zeros(0, buses),
        next=np.full(buses, -1, dtype=np.int64),
        due=_zeros(buses),
        admitted=_zeros(buses, 1),
        takes_part=_zeros(buses),
        totals=_zeros(0, buses, STREAM_PLACES),
    )


class Stream(NamedTuple):
    """Requests of the host, a source for every bus; see `Traffic`."""

    sources: Sequence[Source]
    numbers: Sequence[Ints]  # of each bus, the number of each request among all of the stream
    start: int
    pace: tuple[int, int]  # request n is due after ``n * pace[0] // pace[1]`` clocks
    offered: Ints  # [bus]: no more requests than this are made
    most_lag: int = FAR  # see `Traffic`


def add_stream(traffic: Traffic, stream: Stream) -> Traffic:
    """The traffic with another stream."""
    number, buses = len(traffic.first), len(stream.sources)
    before = traffic.first[-1] + traffic.length[-1] if number else np.zeros(buses, dtype=np.int64)
    length = np.array([len(one.place) for one in stream.sources], dtype=np.int64)
    width = int((before + length).max())
    changed: dict[str, NDArray[Any]] = {
        name: _widened(getattr(traffic, name), 1, width)
        for name in ("place", "column", "address", "number", "stream")
    }
    for bus, (source, numbers) in enumerate(zip(stream.sources, stream.numbers, strict=True)):
        part = slice(int(before[bus]), int(before[bus] + length[bus]))
        changed["place"][bus, part], changed["column"][bus, part] = source.place, source.column
        changed["address"][bus, part], changed["number"][bus, part] = source.address, numbers
        changed["stream"][bus, part] = number
    added = {
        "first": before,
        "length": length,
        "pace": [length.sum(), stream.start, *stream.pace],
        "most_lag": stream.most_lag,
        "lag": np.zeros(buses, dtype=np.int64),
        "offered": stream.offered,
        "taken": np.zeros(buses, dtype=np.int64),
        "taken_at": np.zeros(buses, dtype=np.int64),
        "totals": _zeros(buses, STREAM_PLACES),
    }
    for name, values in added.items():
        changed[name] = np.concatenate((getattr(traffic, name), np.array([values], dtype=np.int64)))
    traffic.takes_part[:] |= stream.offered > 0
    return traffic._replace(**changed)


def bus_bubbles(tables: Tables, read_latency: int, write_latency: int) -> Ints:
    """Clocks that a bus stays empty between two transfers: [direction, next direction, 1: other rank].

    What the standard's distances between commands leave between their data, seen from the bus.

    Args:
        read_latency, write_latency: clocks from a command to the first beat of its data: nCL, nCWL.
    """
    later = write_latency - read_latency
    reads, writes, of_ranks = standard.READ, standard.WRITE, tables.sibling_gap[1]
    other_rank = of_ranks[reads, reads] - tables.burst
    turn = np.zeros((2, 2), dtype=np.int64)
    turn[READ, WRITE] = tables.gap[:2, reads, writes].max() + later - tables.burst
    turn[WRITE, READ] = of_ranks[writes, reads] - later - tables.burst
    bubbles = np.stack((turn, np.maximum(turn, other_rank)), axis=-1)
    never_negative: Ints = np.maximum(bubbles, 0)
    return never_negative


def make_buses(setup: Setup, buses: int, dimms: int) -> Buses:
    """Buses that have carried nothing."""
    value = _zeros(buses, BUS_PLACES)
    value[:, DIRECTION] = -1
    bubble = bus_bubbles(setup.host_tables, setup.read_latency, setup.write_latency)
    return Buses(value=value, bubble=bubble, at=_zeros(buses, dimms), end=_zeros(buses, dimms))


def make_transfers(dimms: int, most: int) -> Transfers:
    """Room for so many transfers of each DIMM at a time."""
    return Transfers(_zeros(dimms, most), _zeros(dimms, 5))
