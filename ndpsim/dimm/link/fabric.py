"""The queues and wires that packets of a set of flows pass, as arrays; see `ndpsim.dimm.link.engine`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.jit import by_reference, inlined
from ndpsim.base.units import Timebase, common_ticks, exact
from ndpsim.dimm.link.topology import Network
from ndpsim.dram.fast.words import assume_nonnegative

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
