"""Makes the requests of a relayout from the locations of its bursts, and sums their results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ndpsim.base.jit import by_reference, kernel
from ndpsim.dram.state import RANK_SHIFT

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]


def side_by_side(length: int, **types: DTypeLike) -> dict[str, NDArray[Any]]:
    """Arrays whose elements with the same index are neighbours in memory: one cache miss reads them all."""
    records = np.empty(length, dtype=np.dtype([*types.items()], align=True))
    return {name: records[name] for name in types}


@by_reference
class BurstRequests(NamedTuple):
    """Bursts, reads in the order of reading and then writes, one array element each."""

    lane: Narrow
    place: Ints  # as `dram.state.pack_place` makes it
    column: Narrow


class Bursts(NamedTuple):
    """Locations of bursts, one array element each."""

    dimm_lane: Narrow  # the DIMM and its lane, as one number
    place: Narrow  # within the lane


@by_reference
class LanesOfDimms(NamedTuple):
    """Node, lane and rank of each lane of each DIMM, DIMM after DIMM."""

    node: Narrow
    lane: Narrow  # counted over all nodes
    rank: Narrow  # on that lane


@kernel
def fill_requests(dimm_lane, place, number, dimm_lanes, word, column_of, write, requests):
    """Write bursts as requests.

    Args:
        dimm_lane, place: [burst], see `Bursts`.
        number: [burst]: its number among the requests.
        word, column_of: [place]: its `dram.state.pack_place` without the rank, and its column.
        write: 0 or 1.
    """
    for burst in range(dimm_lane.shape[0]):
        request, owner = number[burst], dimm_lane[burst]
        requests.lane[request] = dimm_lanes.lane[owner]
        requests.place[request] = word[place[burst]] | dimm_lanes.rank[owner] << RANK_SHIFT | write
        requests.column[request] = column_of[place[burst]]


def make_requests(
    reads: Bursts,
    read_number: Narrow,
    writes: Bursts,
    write_number: Narrow,
    dimm_lanes: LanesOfDimms,
    word: Ints,
    column: Narrow,
) -> BurstRequests:
    """The requests of a relayout: reads by their numbers, then writes by theirs; see `fill_requests`."""
    total = len(reads.dimm_lane) + len(writes.dimm_lane)
    requests = BurstRequests(**side_by_side(total, place=np.int64, lane=np.int32, column=np.int32))
    behind = write_number + np.int32(len(reads.dimm_lane))
    fill_requests(*reads, read_number, dimm_lanes, word, column, 0, requests)
    fill_requests(*writes, behind, dimm_lanes, word, column, 1, requests)
    return requests


@kernel
def add_up_bits(engine, bits):
    """Add up the bits that were read, sent over links, passed within their node, and written: `bits`."""
    packed, path_first = engine.packed, engine.fabric.path_first
    for packet in range(packed.packet_first.shape[0] - 1):
        flow = engine.packets.flow[packet]
        stage = 2 if path_first[flow] == path_first[flow + 1] else 1
        for piece in range(packed.packet_first[packet], packed.packet_first[packet + 1]):
            size, write = packed.piece_bits[piece], packed.piece_write[piece]
            if engine.read_tick[packed.piece_read[piece]] > 0:
                bits[0] += size
            if engine.packets.arrived[packet] > 0:
                bits[stage] += size
            if engine.write_tick[write] > 0 and engine.place_free[engine.completed_by[write]] > 0:
                bits[3] += size


@kernel
def spans(tick, node, first, last):
    """The first and the last tick of each node's bursts, [node], for nodes with bursts."""
    for burst in range(tick.shape[0]):
        owner = node[burst]
        first[owner] = min(first[owner], tick[burst])
        last[owner] = max(last[owner], tick[burst])


@kernel
def counts_between(tick, edges, counts):
    """Count, in `counts`, how many ticks are between each edge and the next; none is outside the edges."""
    between = 0
    for burst in range(tick.shape[0]):
        while tick[burst] >= edges[between + 1] and between + 1 < counts.shape[0]:
            between += 1
        while tick[burst] < edges[between] and between > 0:
            between -= 1
        counts[between] += 1
