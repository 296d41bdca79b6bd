"""Makes the arrays of `state`, and adds jobs of the NDP units and streams of the host to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.dimm.arbitration_points import RECORDS
from ndpsim.dimm.state import (
    BUS_PLACES,
    DIRECTION,
    LAST_COLUMN,
    READ,
    STREAM_PLACES,
    TOTAL_PLACES,
    WRITE,
    Claims,
    DimmSetup,
    HostBuses,
    Ints,
    Traffic,
    UnitTransfers,
    Weights,
)
from ndpsim.dram.fast.fields import BANKS_PER_RANK
from ndpsim.dram.sink import Groups
from ndpsim.dram.spec import Tables, standard
from ndpsim.dram.state import FAR, Policy, Source, State, make_state, number_nodes


def request_slots(setup: DimmSetup) -> int:
    """Requests of a relayout engine that a lane can have taken and not served: queued, or active."""
    return setup.policy.read_slots + setup.policy.write_slots + BANKS_PER_RANK * setup.lane_tables.ranks


def make_channels(tables: Tables, policy: Policy, count: int) -> State:
    """This many channels at rest before clock 1; every array has one more dimension, the first."""
    channel = make_state(tables, policy)
    return State(*(np.tile(array, (count, *(1,) * array.ndim)) for array in channel))


def make_claims(setup: DimmSetup, lanes: int, buses: int) -> Claims:
    """Empty records of the arbiter."""
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


def _widened(array: NDArray[Any], columns: int, value: Ints | int = 0) -> NDArray[Any]:
    """The array if it has this many columns, else a copy with a value in the new ones."""
    if columns <= array.shape[1]:
        return array
    widened = np.zeros((len(array), columns), dtype=array.dtype)
    widened[:, : array.shape[1]] = array
    if np.any(value):  # zeros are there, and pages not written take no memory
        widened[:, array.shape[1] :] = value
    return widened


def make_weights(setup: DimmSetup, lanes: int, buses: int) -> Weights:
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
    """The reads of a job on a DIMM: region by region, and all regions again for every tile of tokens."""

    sources: Sequence[Source]  # of each of its lanes
    groups: Sequence[Groups]  # likewise
    regions: Ints  # [lane, region]: bursts
    servers: Sequence[int]  # [region]: bursts that the multipliers of a lane hold
    tiles: int
    group_count: int  # groups of bursts that the unit adds together
    read_from: int  # the clock from which weights may be read


def add_job(weights: Weights, dimm: int, job: JobReads) -> Weights:
    """The weights with another job, which its DIMM reads after all earlier jobs; changes `weights`, too."""
    lanes = weights.place.shape[0] // weights.steps.shape[0]
    counts = [len(source.place) for source in job.sources]
    # Lanes are ordered by rank and, in it, by bus: those of a DIMM are neighbours.
    own = range(dimm * lanes, (dimm + 1) * lanes)
    step, steps = int(weights.steps[dimm]), len(job.servers) * job.tiles
    width = int((weights.length[own.start : own.stop] + counts).max())
    changed: dict[str, NDArray[Any]] = {
        name: _widened(getattr(weights, name), width)
        for name in ("place", "column", "first_group", "last_group")
    }
    changed["address"] = np.arange(changed["place"].shape[1], dtype=np.int64)
    for name in ("begin", "begins_job", "read_from", "release", "service", "servers"):
        changed[name] = _widened(getattr(weights, name), step + steps)
    for name in ("done", "left"):
        changed[name] = _widened(getattr(weights, name), job.group_count)
    changed["ends"] = _widened(weights.ends, 1 + step + steps, weights.ends[:, -1:])
    changed["free"] = _widened(weights.free, max(job.servers))
    for lane, source, groups, regions in zip(own, job.sources, job.groups, job.regions, strict=True):
        first = int(weights.length[lane])
        part = slice(first, first + len(source.place))
        changed["place"][lane, part], changed["column"][lane, part] = source.place, source.column
        changed["first_group"][lane, part] = groups.first_group
        changed["last_group"][lane, part] = groups.last_group
        begin = first + np.cumsum(regions) - regions
        changed["begin"][lane, step : step + steps] = np.tile(begin, job.tiles)
        reads = weights.ends[lane, step] + np.cumsum(np.tile(regions, job.tiles))
        changed["ends"][lane, step + 1 : step + 1 + steps] = reads
        changed["ends"][lane, step + 1 + steps :] = reads[-1]
    changed["begins_job"][dimm, step] = 1
    changed["read_from"][dimm, step : step + steps] = job.read_from
    changed["release"][dimm, step : step + steps] = FAR
    changed["servers"][dimm, step : step + steps] = np.tile(job.servers, job.tiles)
    weights.length[own.start : own.stop] += counts
    weights.steps[dimm] += steps
    return weights._replace(**changed)


def make_traffic(buses: int) -> Traffic:
    """Traffic without streams."""
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
    numbers: Sequence[Ints]  # for each bus, the number of each request in the stream
    start: int
    pace: tuple[int, int]  # request n is due after ``n * pace[0] // pace[1]`` clocks
    offered: Ints  # [bus]: no more requests than this are made
    most_lag: int = FAR  # see `Traffic`


def add_stream(traffic: Traffic, stream: Stream) -> Traffic:
    """The traffic with a further stream; changes `traffic`, too."""
    number, buses = len(traffic.first), len(stream.sources)
    before = traffic.first[-1] + traffic.length[-1] if number else np.zeros(buses, dtype=np.int64)
    length = np.array([len(source.place) for source in stream.sources], dtype=np.int64)
    width = int((before + length).max())
    changed: dict[str, NDArray[Any]] = {
        name: _widened(getattr(traffic, name), width)
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
    traffic.due[:] = 0
    return traffic._replace(**changed)


def bus_bubbles(tables: Tables, read_latency: int, write_latency: int) -> Ints:
    """Clocks that a bus stays empty between two transfers: [direction, next direction, 1: other rank].

    They follow from the standard's distances between commands.

    Args:
        read_latency, write_latency: clocks from a command to the first beat of its data: nCL, nCWL.
    """
    later = write_latency - read_latency
    reads, writes, between_ranks = standard.READ, standard.WRITE, tables.sibling_gap[1]
    other_rank = between_ranks[reads, reads] - tables.burst
    turn = np.zeros((2, 2), dtype=np.int64)
    turn[READ, WRITE] = tables.gap[:2, reads, writes].max() + later - tables.burst
    turn[WRITE, READ] = between_ranks[writes, reads] - later - tables.burst
    bubbles = np.stack((turn, np.maximum(turn, other_rank)), axis=-1)
    to_write = between_ranks[reads, writes] + later - tables.burst
    bubbles[READ, WRITE, 1] = max(bubbles[READ, WRITE, 1], to_write)
    never_negative: Ints = np.maximum(bubbles, 0)
    return never_negative


def make_buses(setup: DimmSetup, buses: int, dimms: int) -> HostBuses:
    """Buses without transfers so far."""
    value = _zeros(buses, BUS_PLACES)
    value[:, DIRECTION] = -1
    bubble = bus_bubbles(setup.host_tables, setup.read_latency, setup.write_latency)
    return HostBuses(value=value, bubble=bubble, next_transfer=_zeros(buses, dimms), end=_zeros(buses, dimms))


def make_transfers(dimms: int, most: int) -> UnitTransfers:
    """Room for this number of transfers of each DIMM at a time."""
    return UnitTransfers(_zeros(dimms, most), _zeros(dimms, 6))
