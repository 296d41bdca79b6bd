"""The queues and wires that packets of a set of flows pass, as arrays; see `ndpsim.dimm.link.engine`."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.jit import by_reference, inlined, kernel
from ndpsim.base.units import Timebase, common_ticks, exact
from ndpsim.dimm.link.topology import Network
from ndpsim.dram.fast.vectors import assume_nonnegative

# ---- A link between two ends, in one direction: messages leave in order, as packets with headers


_MOST = 1 << 62  # maximum of a counter of ticks


@dataclass(frozen=True)
class Pipe:
    """One direction of a point-to-point link.

    Attributes:
        gbps: bytes a ns on the wire, headers included, in GB/s.
        latency_ns: from the last byte sent to the same byte received.
        packet_bytes: maximum payload of a packet; a packet has bytes of one message.
        header_bytes: header of each packet.
    """

    gbps: float
    latency_ns: float
    packet_bytes: int
    header_bytes: int

    @functools.cached_property
    def byte_ps(self) -> Fraction:
        """Time of a byte on the wire in ps, exactly."""
        return 1000 / exact(self.gbps)

    @functools.cached_property
    def _ticks(self) -> tuple[int, int, int]:
        """Ticks in a ps, of a byte on the wire and of the latency, all whole."""
        latency = exact(self.latency_ns) * 1000
        ticks = math.lcm(self.byte_ps.denominator, latency.denominator)
        return ticks, int(self.byte_ps * ticks), int(latency * ticks)

    def wire_bytes(self, size_bytes: Ints) -> Ints:
        """Bytes of messages on the wire: their own bytes, and a header for each packet.

        The last packet of a message may not be full.
        """
        packets = -(-size_bytes // self.packet_bytes)
        return size_bytes + packets * self.header_bytes

    def busy_ps(self, size_bytes: Ints) -> Fraction:
        """Time for which messages occupy the wire, in ps, exactly."""
        return int(self.wire_bytes(size_bytes).sum()) * self.byte_ps

    def _checked_ticks(self, ready_ps: Ints, on_wire: int) -> tuple[int, int, int]:
        """`_ticks`, if times in ticks fit in 64 bits; on_wire: bytes of all messages on the wire."""
        ticks, byte_ticks, latency_ticks = self._ticks
        if int(ready_ps.max(initial=0)) * ticks + on_wire * byte_ticks + latency_ticks >= _MOST:
            problem = f"{self.gbps!r} has too many digits for transfers as long as these"
            raise InputError(problem, "too-large", key="gbps")
        return self._ticks

    def arrivals(self, ready_ps: Ints, size_bytes: Ints) -> Ints:
        """The arrival time of the last byte of each message in ps, int64[n].

        A message starts when it is ready and the previous one has left. Messages stay in order, without gaps
        between ready packets. Internal times are exact; results are rounded up once to a whole ps.

        Args:
            ready_ps: the earliest start of each message, from 0, in any order; messages keep their order.
            size_bytes: bytes of each message, from 1.

        Raises:
            InputError: times too long, at a rate of this many digits, for 64-bit counters.
        """
        if not len(ready_ps):
            return np.zeros(0, dtype=np.int64)
        on_wire = self.wire_bytes(size_bytes)
        left = np.cumsum(on_wire)
        ticks, byte_ticks, latency_ticks = self._checked_ticks(ready_ps, int(left[-1]))
        service, left = on_wire * byte_ticks, left * byte_ticks
        # A message leaves after the last message that found the wire idle, and all messages since.
        done = left + np.maximum.accumulate(ready_ps * ticks - (left - service))
        return -(-(done + latency_ticks) // ticks)


# ---- Copies over one link; each copy engine sends the packets of its copies one after the other


@kernel
def send_copies(ready, size, packet_bytes, header_bytes, byte_ticks, latency, engine_state, done):
    """Send copies until all have arrived; times are ticks.

    Copies are assigned in order to the next free engine. Engines with a ready copy take turns on the link,
    packet by packet.

    Args:
        ready, size: [copy].
        packet_bytes, header_bytes: maximum payload and header of a packet.
        byte_ticks, latency: ticks of a byte on the link, and from the last byte to a packet's arrival.
        engine_state: [3, engine]: scratch: its copy or -1, the bytes left, and the tick from which it can
            send.
        done: [copy]: the tick at which each copy has arrived.
    """
    copy_of, left, since = engine_state[0], engine_state[1], engine_state[2]
    engines, copies = len(copy_of), len(ready)
    copy_of[:] = -1
    taken, sent, free, turn = 0, 0, 0, 0
    while sent < copies:
        tick = FAR
        for engine in range(engines):
            if copy_of[engine] < 0 and taken < copies:
                copy_of[engine], left[engine] = taken, size[taken]
                since[engine] = ready[taken]
                taken += 1
            if copy_of[engine] >= 0:
                tick = min(tick, since[engine])
        tick = max(tick, free)
        while copy_of[turn] < 0 or since[turn] > tick:
            turn = 0 if turn + 1 == engines else turn + 1
        payload = min(left[turn], packet_bytes)
        free = tick + (payload + header_bytes) * byte_ticks
        left[turn] -= payload
        if left[turn] == 0:
            done[copy_of[turn]] = free + latency
            copy_of[turn] = -1
            sent += 1
        turn = 0 if turn + 1 == engines else turn + 1


# ---- The link to a GPU: copies of several copy engines share one direction of it


@dataclass(frozen=True)
class PcieLink(Pipe):
    """One direction of a PCIe link; `gbps` is after line coding.

    Attributes:
        copy_engines: number of copies at once.
    """

    copy_engines: int

    def arrivals(self, ready_ps: Ints, size_bytes: Ints) -> Ints:
        """The arrival time of each copy in ps, int64[n], rounded up once to a whole ps.

        Engines take copies in order; the packets of concurrent copies take turns on the link.

        Args:
            ready_ps: the earliest start of each copy, from 0.
            size_bytes: bytes of each copy, from 1.

        Raises:
            InputError: the times are too long for 64-bit counters at this rate.
        """
        on_wire = int(self.wire_bytes(size_bytes).sum())
        ticks, byte_ticks, latency_ticks = self._checked_ticks(ready_ps, on_wire)
        done, ready = np.zeros_like(size_bytes), ready_ps * ticks
        engines = np.zeros((3, self.copy_engines), dtype=np.int64)
        sizes = (self.packet_bytes, self.header_bytes)
        send_copies(ready, size_bytes, *sizes, byte_ticks, latency_ticks, engines, done)
        return -(-done // ticks)


# ---- The next of many events: a tree whose leaves are ticks; each inner node is the earlier of its two
# children
#
# Node 1 is the earliest of all; nodes 2n and 2n + 1 are below node n; the leaves are the second half of the
# array. Of equal ticks the leaf with the lowest number comes first.


#: A tick after all events.
FAR = 1 << 62


def make_times(leaves: int) -> NDArray[np.int64]:
    """A tree with at least this number of leaves, all FAR."""
    return np.full(2 << max(leaves - 1, 0).bit_length(), FAR, dtype=np.int64)


@inlined
def set_time(times, leaf, tick):
    """The event of a leaf is at a tick."""
    node = assume_nonnegative(times.shape[0] // 2 + leaf)
    times[node] = tick
    while node > 1:
        tick = min(tick, times[node ^ 1])
        node = assume_nonnegative(node >> 1)
        if times[node] == tick:
            return
        times[node] = tick


@inlined
def first_leaf(times):
    """The leaf whose event is first."""
    node, half, tick = 1, times.shape[0] // 2, times[1]
    while node < half:
        node = assume_nonnegative(2 * node)
        node += times[node] != tick
    return node - half


# ---- The queues and wires that packets of a set of flows pass, as arrays; see `ndpsim.dimm.link.engine`


Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]


@by_reference
class Fabric(NamedTuple):
    """The queues of a set of flows and the wires behind them. Queues of an input, and inputs of a wire, are
    neighbours.
    """

    path_first: Ints  # [flow + 1]: where a flow's queues begin in `path`
    path: Ints  # the queues that its packets pass
    queue_wire: Ints  # [queue]
    queue_node: Ints  # [queue]
    queue_latency: Ints  # [queue]: ticks of the latency of its hop
    input_first: Ints  # [input + 1]: its first queue
    wire_first: Ints  # [wire + 1]: its first input
    byte_ticks: Ints  # [wire]: ticks that a byte takes


@by_reference
class Packets(NamedTuple):
    """The packets, flow by flow, in the order of each flow."""

    flow: Narrow  # [packet]
    size: Narrow  # [packet]: bytes on the wire
    due: Ints  # [packet]: the tick from which it can leave its queue; FAR: not known yet
    hop: Narrow  # [packet]: number of hops that it has passed
    behind: Narrow  # [packet]: the next packet of its queue, -1: none
    sent: Ints  # [packet]: the tick at which it has left its source, 0 before
    arrived: Ints  # [packet]: the tick at which it is at its target, 0 before
    head: Ints  # [queue]: -1: empty
    tail: Ints  # [queue]
    waiting: Ints  # [queue]: bytes of packets that were sent to it and have not begun to leave it
    most: Ints  # [queue]: the most of them at any time
    turn: Ints  # [wire]: the input with the next turn
    granted_queue: Ints  # [input]: the queue with the next turn
    free: Ints  # [wire]: the tick from which it is free
    busy: Ints  # [wire]: ticks for which it was busy
    times: Ints  # see `link.fabric`: the ticks at which wires next start to send, and perhaps others
    leaves_before: int  # leaves of `times` before those of the wires


def link_ticks(network: Network, *clocks_ps: Fraction) -> Timebase:
    """A tick that divides the time of a byte on every wire and every latency, and the given periods.

    `Timebase.ticks` begins with those of the periods.
    """
    bytes_ = [1000 / exact(gbps) for gbps in sorted({hop.gbps for hop in network.hops})]
    latencies = [1000 * exact(ns) for ns in sorted({hop.latency_ns for hop in network.hops}) if ns]
    return common_ticks(*clocks_ps, *bytes_, *latencies)


class _Queue(NamedTuple):
    """The identity of a queue; the first three fields identify its input, the first its wire."""

    wire: int
    before: int  # the hop of arriving packets; -1: packets that begin here
    node: int
    hop: int  # the hop that they wait for
    flow: int  # the flow of packets that begin here, else -1


def _queues(network: Network, flow: int, route: Sequence[int]) -> list[_Queue]:
    """The queues that packets of a flow pass."""
    hops = [network.hops[hop] for hop in route]
    return [
        _Queue(hop.wire, route[n - 1] if n else -1, hop.source, route[n], -1 if n else flow)
        for n, hop in enumerate(hops)
    ]


def make_fabric(network: Network, flows: Sequence[tuple[int, int]], timebase: Timebase) -> Fabric:
    """The queues that packets of `flows`, pairs of a source and a target DIMM, can wait in."""
    paths = [_queues(network, flow, network.route(*ends)) for flow, ends in enumerate(flows)]
    queues = sorted({queue for path in paths for queue in path})
    inputs = sorted({queue[:3] for queue in queues})
    number = {queue: n for n, queue in enumerate(queues)}
    input_number = {input_: n for n, input_ in enumerate(inputs)}
    wires = len(network.wire_names)
    rates = {hop.wire: hop.gbps for hop in network.hops}
    latencies = [_ticks(1000 * exact(hop.latency_ns), timebase) for hop in network.hops]
    queue_input = _ints(input_number[queue[:3]] for queue in queues)
    return Fabric(
        path_first=_ints(itertools.accumulate(map(len, paths), initial=0)),
        path=_ints(number[queue] for path in paths for queue in path),
        queue_wire=_ints(queue.wire for queue in queues),
        queue_node=_ints(queue.node for queue in queues),
        queue_latency=_ints(latencies[queue.hop] for queue in queues),
        input_first=_firsts(queue_input, len(inputs)),
        wire_first=_firsts(_ints(wire for wire, _, _ in inputs), wires),
        byte_ticks=_ints(_ticks(1000 / exact(rates[wire]), timebase) for wire in range(wires)),
    )


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _firsts(owners: Ints, count: int) -> Ints:
    """The first place of each of `count` owners, and the end of the last; `owners` is sorted."""
    return np.searchsorted(owners, np.arange(count + 1)).astype(np.int64)


def _ticks(ps: Fraction, timebase: Timebase) -> int:
    ticks = ps / timebase.tick_ps
    assert ticks.denominator == 1
    return int(ticks)


def make_packets(fabric: Fabric, flow: Narrow, size: Narrow, ready: Ints, leaves_before: int = 0) -> Packets:
    """Packets at their sources, flow by flow.

    Args:
        fabric: the queues.
        flow: int32[packet], ascending.
        size: int32[packet], bytes on the wire.
        ready: int64[packet], the tick from which each may be sent; FAR: not known yet. It becomes
            `Packets.at`.
        leaves_before: see `Packets`.
    """
    packets, queues, wires = len(flow), len(fabric.queue_wire), len(fabric.byte_ticks)
    first = np.searchsorted(flow, np.arange(len(fabric.path_first), dtype=np.int32))
    behind = np.arange(1, packets + 1, dtype=np.int32)
    behind[first[1:][first[1:] > 0] - 1] = -1
    linked = np.flatnonzero((np.diff(fabric.path_first) > 0) & (np.diff(first) > 0))
    queue = fabric.path[fabric.path_first[linked]]
    head, tail = np.full(queues, -1), np.full(queues, -1)
    head[queue], tail[queue] = first[linked], first[linked + 1] - 1

    def zeros(count: int) -> Ints:
        return np.zeros(count, dtype=np.int64)

    return Packets(
        flow=flow,
        size=size,
        due=ready,
        hop=np.zeros(packets, dtype=np.int32),
        behind=behind,
        sent=zeros(packets),
        arrived=zeros(packets),
        head=head,
        tail=tail,
        waiting=zeros(queues),
        most=zeros(queues),
        turn=fabric.wire_first[:-1].copy(),
        granted_queue=fabric.input_first[:-1].copy(),
        free=zeros(wires),
        busy=zeros(wires),
        times=make_times(leaves_before + wires),
        leaves_before=leaves_before,
    )


def check_ticks(fabric: Fabric, size: int, packets: int, ready: int) -> None:
    """Make sure that `packets` of `size` bytes in all, ready by the tick `ready`, arrive before FAR.

    Raises:
        InputError: they may arrive later if they all wait for each other at every hop.
    """
    hops = int(np.diff(fabric.path_first).max(initial=0))
    byte_ticks, latency = (int(ticks.max(initial=0)) for ticks in (fabric.byte_ticks, fabric.queue_latency))
    if ready + hops * (size * byte_ticks + packets * latency) >= FAR:
        problem = "rates and latencies have too many digits for transfers as long as these"
        raise InputError(problem, "too-large", key="link")


def most_waiting(network: Network, fabric: Fabric, packets: Packets) -> Ints:
    """int64[node]: bytes of packets passing through each node, at most: what its buffers must hold.

    A packet occupies its place from the beginning of its transfer to the node until it begins to leave. The
    result is the sum over the queues of a node, each at its own maximum.
    """
    most = np.zeros(len(network.next_hop), dtype=np.int64)
    np.add.at(most, fabric.queue_node, packets.most)
    return most
