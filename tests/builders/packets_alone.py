"""Packets of many flows over a network without other users, from readiness to arrival."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import kernel
from ndpsim.base.units import Timebase
from ndpsim.dimm.link.engine import next_start, send, set_start
from ndpsim.dimm.link.fabric import FAR, check_ticks, first_leaf, make_fabric, make_packets, most_waiting
from ndpsim.dimm.link.topology import Network

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sent:
    """The times of packets.

    Attributes:
        sent: int64[packet], the tick at which each had left its source.
        arrived: int64[packet], the tick at which each was at its target.
        busy: int64[wire], ticks for which each wire sent.
        most_waiting: int64[node], maximum bytes of packets in transit at each node, which its buffers must hold.
            A packet occupies its place from the start of its transfer there until it begins to leave.
    """

    sent: Ints
    arrived: Ints
    busy: Ints
    most_waiting: Ints


@kernel
def advance(fabric, packets, until):
    """Send all packets that start before the tick `until`."""
    for wire in range(fabric.byte_ticks.shape[0]):
        set_start(packets, wire, next_start(fabric, packets, wire))
    while packets.times[1] < until:
        send(fabric, packets, first_leaf(packets.times), packets.times[1])


def simulate_packets(
    network: Network, source: Ints, target: Ints, size: Ints, ready: Ints, timebase: Timebase
) -> Sent:
    """Send packets over a network until all have arrived.

    Args:
        network: the links.
        source: int64[packet], DIMMs of sources.
        target: int64[packet], DIMMs of targets; packets between the same two DIMMs are a flow and keep their order.
        size: int64[packet], bytes on the wire, headers included, from 1.
        ready: int64[packet], the tick from which each may be sent.
        timebase: see `link_ticks`.

    Raises:
        InputError: times are too long for 64-bit counters, at rates with so many digits.
    """
    ends, flow = np.unique(source * network.dimms + target, return_inverse=True)
    fabric = make_fabric(network, [divmod(int(pair), network.dimms) for pair in ends], timebase)
    check_ticks(fabric, int(size.sum()), len(size), int(ready.max(initial=0)))
    order = np.argsort(flow, kind="stable")
    packets = make_packets(
        fabric, flow[order].astype(np.int32), size[order].astype(np.int32), ready[order].copy()
    )
    advance(fabric, packets, FAR)
    at_home = np.diff(fabric.path_first)[packets.flow] == 0
    sent, arrived = np.zeros_like(ready), np.zeros_like(ready)
    sent[order] = np.where(at_home, packets.due, packets.sent)
    arrived[order] = np.where(at_home, packets.due, packets.arrived)
    return Sent(sent, arrived, packets.busy, most_waiting(network, fabric, packets))
