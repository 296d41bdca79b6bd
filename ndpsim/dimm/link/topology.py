"""The links between DIMMs, and the routes of packets: each topology is a small function.

Nodes are the DIMMs, numbered from 0, and after them the host, if it bridges DIMMs. A *hop* goes from one node
to another over a *wire*; hops on the same wire take turns. The two directions of a link between DIMMs are two
wires; all DIMMs of a memory channel share one wire, in both directions. Routes are tables: the next hop
depends only on the current node and the target, so packets of a flow stay in order. Packets wait at a node in
unbounded buffers, one for each incoming hop, so no deadlock is possible, even on rings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Hop:
    """One direction of a link, or of a DIMM's connection to the host.

    Attributes:
        source: the node at its beginning.
        target: the node at its end.
        wire: the wire that it occupies.
        gbps: its rate in GB/s.
        latency_ns: time from the last byte sent until the packet can be forwarded at the target.
    """

    source: int
    target: int
    wire: int
    gbps: float
    latency_ns: float


@dataclass(frozen=True)
class Bridge:
    """The connection of groups of DIMMs over the host's memory channels.

    Attributes:
        group_dimms: DIMMs in a group; they are linked in a chain.
        channels: memory channels of the host; DIMM d is on channel d mod `channels`.
        gbps: rate of a channel in GB/s.
        latency_ns: time from a packet's arrival at the host until it can leave.
    """

    group_dimms: int
    channels: int
    gbps: float
    latency_ns: float


@dataclass(frozen=True, eq=False)
class Network:
    """DIMMs, their links, and the routes between them.

    Attributes:
        topology: its name.
        dimms: number of DIMMs, which are the first nodes.
        hops: all hops.
        next_hop: int64[node, target DIMM], the next hop of a packet; -1 at its target.
        wire_names: the names of the wires, for reports.
    """

    topology: str
    dimms: int
    hops: tuple[Hop, ...]
    next_hop: Ints = field(repr=False)
    wire_names: tuple[str, ...]

    def route(self, source: int, target: int) -> list[int]:
        """The hops from one DIMM to another, in order; none to itself."""
        hops, node = [], source
        while node != target:
            hops.append(int(self.next_hop[node, target]))
            node = self.hops[hops[-1]].target
        return hops


Towards = Callable[[int, int], int]  # (at, target) -> the next node


def _chain(dimms: int) -> Towards:
    """DIMM k is linked to k - 1 and k + 1."""
    return lambda node, target: node + 1 if target > node else node - 1


def _ring(dimms: int) -> Towards:
    """A chain with linked ends, by the shorter way; to the opposite DIMM, even ones go up, odd ones down."""

    def towards(node: int, target: int) -> int:
        up = (target - node) % dimms
        step = 1 if 2 * up < dimms or (2 * up == dimms and node % 2 == 0) else -1
        return (node + step) % dimms

    return towards


def _mesh(dimms: int) -> Towards:
    """Full rows and columns, as square as possible; first along the row, then along the column."""
    columns = dimms // max(rows for rows in range(1, dimms + 1) if dimms % rows == 0 and rows * rows <= dimms)

    def towards(node: int, target: int) -> int:
        if node % columns != target % columns:
            return node + 1 if target % columns > node % columns else node - 1
        return node + columns if target > node else node - columns

    return towards


def _full(dimms: int) -> Towards:
    """Every DIMM is linked to every other."""
    return lambda node, target: target


#: The next node, for topologies without the host. A packet for the opposite DIMM in a ring keeps its
#: direction: after its first hop this direction is the shorter one. On a bus every DIMM reaches every other,
#: over one wire.
TOPOLOGIES: dict[str, Callable[[int], Towards]] = {
    "chain": _chain,
    "ring": _ring,
    "mesh": _mesh,
    "full": _full,
    "bus": _full,
}


def _wire_name(topology: str, node: int, to: int) -> str:
    """The wire from one DIMM to another; a bus is the same for all."""
    return "bus" if topology == "bus" else f"dimm {node} to {to}"


def _steps(towards: Towards, group: range) -> dict[tuple[int, int], int]:
    """(at, target) -> next node, among DIMMs that are numbered from 0 within `group`."""
    first = group[0]
    return {
        (node, target): first + towards(node - first, target - first)
        for node in group
        for target in group
        if node != target
    }


def _groups(dimms: int, bridge: Bridge) -> dict[tuple[int, int], int]:
    """Chains of DIMMs; DIMMs of other groups are reached over the host, which is node `dimms`."""
    host, size = dimms, bridge.group_dimms
    steps = {
        (node, target): host
        for node in range(dimms)
        for target in range(dimms)
        if node // size != target // size
    }
    steps |= {(host, target): target for target in range(dimms)}
    for first in range(0, dimms, size):
        group = range(first, min(first + size, dimms))
        steps |= _steps(_chain(len(group)), group)
    return steps


def ports_needed(topology: str, dimms: int, group_dimms: int = 1) -> int:
    """The maximum number of links of a DIMM in a topology."""
    if topology == "groups":
        steps = _steps(_chain(group_dimms), range(min(group_dimms, dimms)))
    else:
        steps = _steps(TOPOLOGIES[topology](dimms), range(dimms))
    wires: dict[int, set[str]] = {}
    for (node, _), to in steps.items():
        wires.setdefault(node, set()).add(_wire_name(topology, node, to))
    return max(map(len, wires.values()), default=0)


def make_network(
    topology: str, dimms: int, ports: int, gbps: float, hop_latency_ns: float, bridge: Bridge | None = None
) -> Network:
    """The network of a number of DIMMs.

    Args:
        topology: one of `TOPOLOGIES`, or "groups".
        dimms: DIMMs, from 1.
        ports: maximum number of links of a DIMM.
        gbps: rate of a link in one direction, or of a bus in total, in GB/s.
        hop_latency_ns: latency of a hop over a link.
        bridge: the bridge, for "groups".

    Raises:
        InputError: there are not enough ports.
    """
    if topology != "groups":
        bridge = None
    needed = ports_needed(topology, dimms, bridge.group_dimms if bridge else 1)
    if ports < needed:
        problem = f"{ports} is too few: {topology} of {dimms} DIMMs needs {needed}"
        raise InputError(problem, "range", key="link.ports")
    steps = _groups(dimms, bridge) if bridge else _steps(TOPOLOGIES[topology](dimms), range(dimms))
    pairs = dict.fromkeys((node, to) for (node, _), to in sorted(steps.items()))
    number = {pair: n for n, pair in enumerate(pairs)}
    next_hop = np.full((dimms + (bridge is not None), dimms), -1, dtype=np.int64)
    for (node, target), to in steps.items():
        next_hop[node, target] = number[node, to]
    wires: dict[str, int] = {}

    def hop(node: int, to: int) -> Hop:
        if bridge is None or dimms not in (node, to):
            wire = wires.setdefault(_wire_name(topology, node, to), len(wires))
            return Hop(node, to, wire, gbps, hop_latency_ns)
        wire = wires.setdefault(f"channel {min(node, to) % bridge.channels}", len(wires))
        return Hop(node, to, wire, bridge.gbps, bridge.latency_ns if to == dimms else 0.0)

    hops = tuple(hop(node, to) for node, to in pairs)
    return Network(topology, dimms, hops, next_hop, tuple(wires))
