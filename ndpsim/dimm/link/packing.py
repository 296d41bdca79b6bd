"""Numbers reads in the order of reading, and packs pieces into packets, for the relayout engine.

Each kernel makes one pass over data that is already in order; nothing is sorted by comparing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ndpsim.base.jit import by_reference, inlined, kernel
from ndpsim.dram.state import RANK_SHIFT

# ---- Makes the requests of a relayout from the locations of its bursts, and sums their results


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


# ---- Numbers reads in the order of reading, and packs pieces into packets, for the relayout engine


Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]


@by_reference
class Pieces(NamedTuple):
    """Pieces of an expert's reads that go into each of its writes, in the order of the writes."""

    read: Ints  # numbered as the expert's bursts
    write: Ints
    bits: Ints


@by_reference
class Packed(NamedTuple):
    """Pieces in packets; see `link.engine`. Pieces of a packet are in the order of reading."""

    node_read: Ints  # [node + 1]: its first read
    read_first: Narrow  # [read + 1]: where the packets of its pieces begin
    read_packet: Narrow
    packet_first: Narrow  # [packet + 1]: its first piece
    piece_read: Narrow  # [piece]
    piece_write: Narrow  # [piece]
    piece_bits: Narrow  # [piece]
    flow_packet: Ints  # [flow + 1]: its first packet
    packet_flow: Narrow  # [packet]
    packet_bytes: Narrow  # [packet]: without header
    unread: Narrow  # [packet]: pieces of reads that have not issued
    unsent: Narrow  # [read]: pieces that have not left its node
    missing: Narrow  # [write]: pieces that have not arrived


@kernel
def fill_numbers(node, expert_first, count, seen, node_first, number):
    """Number bursts node by node; a node has one burst of each of its experts in turn.

    Args:
        node: [burst].
        expert_first: [expert + 1]: its first burst.
        count: [expert, node]: bursts.
        seen: [expert, node]: zeros.
        node_first: [node]: the first number of each.
        number: [burst]: the result.
    """
    experts = count.shape[0]
    for expert in range(experts):
        for burst in range(expert_first[expert], expert_first[expert + 1]):
            home = node[burst]
            turn = seen[expert, home]
            seen[expert, home] = turn + 1
            position = node_first[home]
            for peer in range(experts):
                position += min(count[peer, home], turn) + (peer < expert and count[peer, home] > turn)
            number[burst] = position


class Numbers(NamedTuple):
    """Bursts numbered node by node."""

    number: Narrow  # [burst]
    node_first: Ints  # [node + 1]


def number_by_node(node: Narrow, expert_first: Ints, nodes: int) -> Numbers:
    """Number bursts node by node."""
    experts = len(expert_first) - 1
    count = np.array(
        [
            np.bincount(node[expert_first[expert] : expert_first[expert + 1]], minlength=nodes)
            for expert in range(experts)
        ]
    )
    numbers = Numbers(np.empty(len(node), dtype=np.int32), np.append(0, np.cumsum(count.sum(axis=0))))
    fill_numbers(node, expert_first, count, np.zeros_like(count), numbers.node_first, numbers.number)
    return numbers


@kernel
def count_pieces(read, number, read_first):
    """Count the pieces of each read, one place after its own."""
    for piece in range(read.shape[0]):
        read_first[number[read[piece]] + 1] += 1


@kernel
def by_reads(read, write, bits, read_number, write_number, unsent, read_first, by_read, by_read_bits):
    """Writes and bits of an expert's pieces in the order of their reads; `unsent` counts them by read."""
    for piece in range(read.shape[0]):
        reading = read_number[read[piece]]
        index = read_first[reading] + unsent[reading]
        unsent[reading] += 1
        by_read[index] = write_number[write[piece]]
        by_read_bits[index] = bits[piece]


@kernel
def count_flows(node_read, write_node, read_first, by_read, missing, count):
    """Count the pieces between each two nodes, count[source, target], and of each write."""
    for node in range(node_read.shape[0] - 1):
        for index in range(read_first[node_read[node]], read_first[node_read[node + 1]]):
            write = by_read[index]
            missing[write] += 1
            count[node, write_node[write]] += 1


@inlined
def by_flows(node_read, write_node, read_first, by_read, by_read_bits, first, into):
    """Sort pieces by flow, in the order of reading; `into.read_packet` has the new place of each.

    first: [source, target]: the place of the next piece between two nodes.
    """
    for node in range(node_read.shape[0] - 1):
        for read in range(node_read[node], node_read[node + 1]):
            for index in range(read_first[read], read_first[read + 1]):
                write = by_read[index]
                to = write_node[write]
                piece = first[node, to]
                first[node, to] = piece + 1
                into.read_packet[index] = piece
                into.piece_read[piece], into.piece_write[piece] = read, write
                into.piece_bits[piece] = by_read_bits[index]


@inlined
def fill_packets(flow_first, source_read, slots, packet_bytes, into, packet):
    """Fill packets in order until the next piece would not fit; returns how many there are.

    A packet has pieces of one flow, and of one chunk of `slots` reads of its node.
    """
    packets = 0
    for flow in range(flow_first.shape[0] - 1):
        into.flow_packet[flow] = packets
        filled, chunk_end = packet_bytes, source_read[flow]
        for piece in range(flow_first[flow], flow_first[flow + 1]):
            piece_bytes, read = (into.piece_bits[piece] + 7) >> 3, into.piece_read[piece]
            if read >= chunk_end or filled + piece_bytes > packet_bytes:
                into.packet_first[packets], into.packet_flow[packets] = piece, flow
                packets, filled = packets + 1, 0
                if read >= chunk_end:
                    chunk_end += ((read - chunk_end) // slots + 1) * slots
            filled += piece_bytes
            into.packet_bytes[packets - 1] = filled
            packet[piece] = packets - 1
    into.flow_packet[flow_first.shape[0] - 1] = packets
    into.packet_first[packets] = packet.shape[0]
    return packets


@kernel
def pack(by_read, by_read_bits, write_node, first, flow_first, source_read, slots, packet_bytes, into):
    """Put pieces, given in the order of their reads, into packets; returns how many packets there are.

    Args:
        by_read, by_read_bits: [piece]: its write, and its bits.
        first: [source, target]: the first piece between two nodes, flow by flow.
        flow_first: [flow + 1]: its first piece.
        source_read: [flow]: the first read of its node.
        into: the result.
    """
    by_flows(into.node_read, write_node, into.read_first, by_read, by_read_bits, first, into)
    packet = by_read  # not needed any more
    packets = fill_packets(flow_first, source_read, slots, packet_bytes, into, packet)
    for index in range(into.read_packet.shape[0]):
        owner = packet[into.read_packet[index]]
        into.read_packet[index] = owner
        into.unread[owner] += 1
    return packets


def pack_pieces(
    experts: Sequence[tuple[Pieces, Narrow, Narrow]],
    node_read: Ints,
    write_node: Narrow,
    slots: int,
    packet_bytes: int,
) -> tuple[Packed, list[tuple[int, int]]]:
    """Pieces in packets, and the nodes at the ends of each flow: source and target, ascending.

    Args:
        experts: for each expert its pieces, and the numbers of its reads and its writes.
        node_read: the first read of each node, see `Numbers`.
        write_node: int32[write], by number.
        slots: slots of a node's buffer.
        packet_bytes: payload of a packet, at most; no piece is larger.
    """
    nodes, reads, writes = len(node_read) - 1, int(node_read[-1]), len(write_node)
    count = sum(len(pieces.read) for pieces, _, _ in experts)

    def narrow(length: int) -> Narrow:
        return np.empty(length, dtype=np.int32)

    read_first, unsent = (np.zeros(length, dtype=np.int32) for length in (reads + 1, reads))
    for pieces, read_number, _ in experts:
        count_pieces(pieces.read, read_number, read_first)
    np.cumsum(read_first, out=read_first)
    by_read, by_read_bits = narrow(count), narrow(count)
    for pieces, read_number, write_number in experts:
        by_reads(*pieces, read_number, write_number, unsent, read_first, by_read, by_read_bits)
    missing, between = np.zeros(writes, dtype=np.int32), np.zeros((nodes, nodes), dtype=np.int64)
    count_flows(node_read, write_node, read_first, by_read, missing, between)
    ends = np.flatnonzero(between)
    first = np.append(0, np.cumsum(between))
    piece = side_by_side(count, read=np.int32, write=np.int32, bits=np.int32)
    packed = Packed(
        node_read=node_read,
        read_first=read_first,
        read_packet=narrow(count),
        packet_first=narrow(count + 1),
        piece_read=piece["read"],
        piece_write=piece["write"],
        piece_bits=piece["bits"],
        flow_packet=np.empty(len(ends) + 1, dtype=np.int64),
        packet_flow=narrow(count),
        packet_bytes=narrow(count),
        unread=np.zeros(count, dtype=np.int32),
        unsent=unsent,
        missing=missing,
    )
    packets = pack(
        by_read,
        by_read_bits,
        write_node,
        first[:-1].reshape(nodes, nodes),
        np.append(first[ends], count),
        node_read[ends // nodes],
        slots,
        packet_bytes,
        packed,
    )
    trimmed = {name: getattr(packed, name)[:packets] for name in ("packet_flow", "packet_bytes", "unread")}
    packed = packed._replace(packet_first=packed.packet_first[: packets + 1], **trimmed)
    return packed, [divmod(pair, nodes) for pair in ends.tolist()]
