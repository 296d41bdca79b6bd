"""The state of the relayout engine, as arrays; see `ndpsim.dimm.link.engine`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.jit import by_reference
from ndpsim.base.units import Timebase
from ndpsim.dimm.link.fabric import FAR, Fabric, Packets, check_ticks, make_fabric, make_packets
from ndpsim.dimm.link.packing import Packed, add_up_bits
from ndpsim.dimm.link.topology import Network

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

_SLOWEST = 1 << 10  # an upper bound of the mean time of a burst, in clocks


@by_reference
class Engine(NamedTuple):
    """The state. Reads of a node are in the order of reading, packets of a flow in the order of sending."""

    fabric: Fabric
    packets: Packets  # leaves of `times`: arrivals by flow, packets that leave by wire, then wires that start
    dram_ticks: int
    unit_ticks: int
    read_latency: int  # clocks from RD to the last beat of its data
    slots: int  # bursts that a node's buffer holds between reading and sending
    packed: Packed  # the pieces: `unread`, `unsent` and `missing` count down
    flow_node: Ints  # [flow]: its source
    flow_credits: Ints  # [flow]: packets its target has places for
    credit_ticks: Ints  # [flow]: ticks from a free place at its target to the credit at its source
    next_read: Ints  # [node]: the next read to be offered
    read_until: Ints  # [packet]: the tick at which those of its reads that have issued are in the buffer
    leaving: Ints  # [wire]: the packet that it sends, where that is leaving its source
    arriving: Ints  # [flow]: its next packet to arrive
    completed_by: Narrow  # [write]: the packet with the last of its pieces
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
    network: Network,
    flows: Sequence[tuple[int, int]],
    timebase: Timebase,
    read_latency: int,
    slots: int,
    receive_bytes: int,
    packet_bytes: int,
    header_bytes: int,
) -> Engine:
    """An engine before the first move.

    Args:
        packed: the packets, of `packet_bytes` and a header.
        flows: the nodes at the ends of each flow.
        timebase: ticks of the DRAM clock, then of the unit's.
        read_latency, slots: see `Engine`.
        receive_bytes: bytes of received data that a node's buffer can hold.

    Raises:
        InputError: the buffer is too small, or times are too long for 64-bit counters.
    """
    fabric = make_fabric(network, flows, timebase)
    reads, writes, count = len(packed.unsent), len(packed.missing), len(packed.unread)
    size = packed.packet_bytes + np.int32(header_bytes)
    longest = len(packed.piece_read) * _SLOWEST * timebase.ticks[0]
    check_ticks(fabric, int(size.sum(dtype=np.int64)), count, longest)
    leaves = len(flows) + len(fabric.byte_ticks)
    packets = make_packets(fabric, packed.packet_flow, size, np.full(count, FAR), leaves)
    source, target = np.array(flows, dtype=np.int64).T.copy()
    into = np.bincount(target, minlength=network.dimms)[target]
    places = receive_bytes // (into * packet_bytes)
    if places.min() < 1:
        problem = (
            f"the buffer is too small: half of it has to hold a packet of {packet_bytes} bytes "
            f"from each of {int(into.max())} DIMMs"
        )
        raise InputError(problem, "too-large", key="ndp.relayout.buffer_kib")
    latency = np.append(0, np.cumsum(fabric.queue_latency[fabric.path]))
    credit_ticks = latency[fabric.path_first[1:]] - latency[fabric.path_first[:-1]]
    most_pieces = int(np.diff(packed.packet_first).max(initial=1))
    linked = np.diff(fabric.path_first) > 0
    # Reads have slots; writes offered have places, or complete with a packet that has one.
    most_handed = (len(packed.node_read) - 1) * slots + int(places.sum()) * most_pieces

    def zeros(length: int) -> Ints:
        return np.zeros(length, dtype=np.int64)

    return Engine(
        fabric=fabric,
        packets=packets,
        dram_ticks=timebase.ticks[0],
        unit_ticks=timebase.ticks[1],
        read_latency=read_latency,
        slots=slots,
        packed=packed,
        flow_node=source,
        flow_credits=places,
        credit_ticks=credit_ticks,
        next_read=packed.node_read[:-1].copy(),
        read_until=zeros(count),
        leaving=zeros(len(fabric.byte_ticks)),
        arriving=packed.flow_packet[:-1].copy(),
        completed_by=np.zeros(writes, dtype=np.int32),
        not_taken=np.zeros(count, dtype=np.int32),
        place_free=zeros(count),
        without_credit=zeros(2),
        least_credit_ticks=int(credit_ticks[linked].min(initial=FAR)),
        read_tick=zeros(reads),
        write_tick=zeros(writes),
        offered_requests=np.zeros(min(most_handed, reads + writes), dtype=np.int32),
        offered_count=zeros(1),
        offered_at=zeros(reads + writes),
    )


class Bits(NamedTuple):
    """Bits of weights that were read, came over links, or within their node, and were written."""

    read: int
    sent: int
    local: int
    written: int


def bits_by_stage(engine: Engine) -> Bits:
    """The bits that an engine has moved until now."""
    bits = np.zeros(4, dtype=np.int64)
    add_up_bits(engine, bits)
    return Bits(*bits.tolist())
