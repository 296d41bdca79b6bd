"""What the relayout engine knows, as arrays; see `ndpsim.link.engine`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._by_reference import by_reference
from ndpsim.link.events import FAR
from ndpsim.link.fabric import Fabric, Packets
from ndpsim.link.packing import Packed
from ndpsim.units import Timebase

__all__ = ["Engine", "Flows", "make_engine"]

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]


@by_reference
class Flows(NamedTuple):
    """What is known of each flow beforehand."""

    node: Ints  # its source
    credits: Ints  # packets its target has places for
    credit_ticks: Ints  # from a place that is free at its target to the credit at its source


@by_reference
class Engine(NamedTuple):
    """Reads of a node are neighbours, in the order of reading; packets of a flow, in order of sending."""

    fabric: Fabric
    packets: Packets  # leaves of `times`: arrivals by flow, packets that leave by wire, then wires that start
    dram_ticks: int
    unit_ticks: int
    read_latency: int  # clocks from RD to the last beat of its data
    slots: int  # bursts that a node's buffer holds between reading and sending
    node_read: Ints  # [node + 1]: its first read
    read_first: Narrow  # [read + 1]: where the packets of its pieces begin
    read_packet: Narrow
    packet_first: Narrow  # [packet + 1]: its first piece
    piece_read: Narrow  # [piece]
    piece_write: Narrow  # [piece]
    flow_packet: Ints  # [flow + 1]: its first packet
    flow_node: Ints
    flow_credits: Ints
    credit_ticks: Ints
    next_read: Ints  # [node]: the next read to be offered
    unread: Narrow  # [packet]: pieces of reads that have not issued
    read_until: Ints  # [packet]: the tick at which those that have are in the buffer
    unsent: Narrow  # [read]: pieces that have not left its node
    leaving: Ints  # [wire]: the packet that it sends, where that is leaving its source
    arriving: Ints  # [flow]: its next packet to arrive
    missing: Narrow  # [write]: pieces that have not arrived
    completed_by: Narrow  # [write]: the packet that brought the last of them
    not_taken: Narrow  # [packet]: writes that it completed and that are not in their lane's write queue
    place_free: Ints  # [packet]: when there are none, the tick from which its place at its target is free
    without_credit: Ints  # [2]: packets that wait for nothing else, over links and within their node
    least_credit_ticks: int  # of flows over links
    read_tick: Ints  # [read]: the tick at which its data is in the buffer, 0 before
    write_tick: Ints  # [write]: the tick at which the last of it arrived, 0 before
    offered_requests: Narrow  # [n]: requests offered: a read, or a write behind all reads
    offered_count: Ints  # [1]
    offered_at: Ints  # [request]: the clock from which it is offered to its lane


def make_engine(
    packed: Packed,
    fabric: Fabric,
    packets: Packets,
    flows: Flows,
    timebase: Timebase,
    read_latency: int,
    slots: int,
) -> Engine:
    """An engine before anything has moved."""
    reads, writes, count = len(packed.unsent), len(packed.missing), len(packed.unread)
    packet_first = packed.packet_first
    most_pieces = int(np.diff(packet_first).max(initial=1))
    nodes = len(packed.node_read) - 1
    linked = np.diff(fabric.path_first) > 0
    # Reads have slots; writes offered have places, or complete with a packet that has one.
    most_handed = nodes * slots + int(flows.credits.sum()) * most_pieces

    def zeros(length: int) -> Ints:
        return np.zeros(length, dtype=np.int64)

    return Engine(
        fabric=fabric,
        packets=packets,
        dram_ticks=timebase.ticks[0],
        unit_ticks=timebase.ticks[1],
        read_latency=read_latency,
        slots=slots,
        node_read=packed.node_read,
        read_first=packed.read_first,
        read_packet=packed.read_packet,
        packet_first=packet_first,
        piece_read=packed.piece_read,
        piece_write=packed.piece_write,
        flow_packet=packed.flow_packet,
        flow_node=flows.node,
        flow_credits=flows.credits,
        credit_ticks=flows.credit_ticks,
        next_read=packed.node_read[:-1].copy(),
        unread=packed.unread,
        read_until=zeros(count),
        unsent=packed.unsent,
        leaving=zeros(len(fabric.byte_ticks)),
        arriving=packed.flow_packet[:-1].copy(),
        missing=packed.missing,
        completed_by=np.zeros(writes, dtype=np.int32),
        not_taken=np.zeros(count, dtype=np.int32),
        place_free=zeros(count),
        without_credit=zeros(2),
        least_credit_ticks=int(flows.credit_ticks[linked].min(initial=FAR)),
        read_tick=zeros(reads),
        write_tick=zeros(writes),
        offered_requests=np.zeros(min(most_handed, reads + writes), dtype=np.int32),
        offered_count=zeros(1),
        offered_at=zeros(reads + writes),
    )
