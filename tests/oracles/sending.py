"""`ndpsim.dimm.link.engine` to be read: every tick, every wire. Slow; to be compared with."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ndpsim.base.units import Timebase, exact
from ndpsim.dimm.link.topology import Network

Input = tuple[int, int]  # (the hop before or -1, the node)


class ReadableWire:
    """A wire and what waits for it: queue by input, and by flow or hop within an input."""

    def __init__(self, byte_ticks: int) -> None:
        self.byte_ticks, self.free, self.busy = byte_ticks, 0, 0
        self.inputs: dict[Input, dict[tuple[int, int], deque[int]]] = {}
        self.last_input: Input | None = None
        self.last_queue: dict[Input, tuple[int, int]] = {}

    def queue(self, input_: Input, name: tuple[int, int]) -> deque[int]:
        return self.inputs.setdefault(input_, {}).setdefault(name, deque())

    def take(self, ready: Sequence[int], tick: int) -> int | None:
        """The packet whose turn it is at `tick`."""
        for input_ in _in_turn(sorted(self.inputs), self.last_input):
            queues = self.inputs[input_]
            for name in _in_turn(sorted(queues), self.last_queue.get(input_)):
                if queues[name] and ready[queues[name][0]] <= tick:
                    self.last_input, self.last_queue[input_] = input_, name
                    return queues[name].popleft()
        return None


def _in_turn(names: list, last: object) -> list:  # type: ignore[type-arg]
    """`names`, beginning behind the last one that had its turn."""
    begin = names.index(last) + 1 if last in names else 0
    return names[begin:] + names[:begin]


def step_packets(
    network: Network,
    source: Sequence[int],
    target: Sequence[int],
    size: Sequence[int],
    ready: Sequence[int],
    timebase: Timebase,
) -> tuple[list[int], list[int], list[int]]:
    """`builders.packets_alone.simulate_packets`: (sent, arrived, busy), of packets with a way to go."""

    def ticks(ps: object) -> int:
        return int(exact(ps) / timebase.tick_ps)  # type: ignore[arg-type]

    rates = {hop.wire: hop.gbps for hop in network.hops}
    wires = [ReadableWire(ticks(1000 / exact(rates[wire]))) for wire in range(len(network.wire_names))]
    routes = [network.route(*ends) for ends in zip(source, target, strict=True)]
    flows = {ends: n for n, ends in enumerate(sorted(set(zip(source, target, strict=True))))}
    at, place = list(ready), [0] * len(size)
    sent, arrived = list(ready), list(ready)

    def enqueue(packet: int) -> None:
        route, n = routes[packet], place[packet]
        hop = network.hops[route[n]]
        flow = -1 if n else flows[source[packet], target[packet]]
        wires[hop.wire].queue((route[n - 1] if n else -1, hop.source), (route[n], flow)).append(packet)

    on_their_way = 0
    for packet, route in enumerate(routes):
        if route:
            enqueue(packet)
            on_their_way += 1
    tick = 0
    while on_their_way:
        for wire in wires:
            packet_or_none = wire.take(at, tick) if wire.free <= tick else None
            if packet_or_none is None:
                continue
            packet = packet_or_none
            hop = network.hops[routes[packet][place[packet]]]
            wire.free = tick + size[packet] * wire.byte_ticks
            wire.busy += size[packet] * wire.byte_ticks
            if place[packet] == 0:
                sent[packet] = wire.free
            place[packet] += 1
            at[packet] = wire.free + ticks(1000 * exact(hop.latency_ns))
            if place[packet] < len(routes[packet]):
                enqueue(packet)
            else:
                arrived[packet] = at[packet]
                on_their_way -= 1
        tick += 1
    return sent, arrived, [wire.busy for wire in wires]
