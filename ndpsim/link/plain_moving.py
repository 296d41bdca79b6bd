"""`ndpsim.link.moving` the plain way: every DRAM clock, every lane, every wire. Slow; to be compared with.

A tick must be a DRAM clock.
"""

from __future__ import annotations

import heapq
from collections import defaultdict

from ndpsim.dram.plain import PlainController, Request
from ndpsim.dram.state import BANK_SHIFT, GROUP_SHIFT, RANK_SHIFT, ROW_SHIFT, Policy
from ndpsim.link.fabric import FAR
from ndpsim.link.plain import PlainWire
from ndpsim.link.topology import Network
from ndpsim.link.work import Requests, Work
from ndpsim.spec import Tables
from ndpsim.spec.standard import RD, WR
from ndpsim.units import Timebase, exact

__all__ = ["PlainMove"]

# A request on its way to its lane: its clock, the window in which that was known, reads first, the node or
# flow, what came first; the request, and which write it is, -1 for a read.
_Given = tuple[int, int, int, int, int, Request, int]


def _coordinates(word: int) -> tuple[int, int, int, int]:
    """Rank, bank group, bank and row of a place."""
    return word >> RANK_SHIFT & 255, word >> GROUP_SHIFT & 255, word >> BANK_SHIFT & 255, word >> ROW_SHIFT


class PlainMove:
    """A relayout; see `ndpsim.link.moving`.

    Args:
        tables, policy, lanes: of the controllers.
        network, ends: the links, and source and target of each flow.
        work: the relayout before it begins; it is not changed.
        flow, size: of each packet.
        timebase: ticks of the DRAM clock, which is 1, and of the unit's.
    """

    def __init__(
        self,
        tables: Tables,
        policy: Policy,
        lanes: int,
        network: Network,
        ends: list[tuple[int, int]],
        work: Work,
        flow: list[int],
        size: list[int],
        timebase: Timebase,
    ) -> None:
        assert timebase.ticks[0] == 1
        self.window, self.unit, self.network = tables.read_latency, timebase.ticks[1], network
        self.work, self.flow, self.size, self.ends = work, flow, size, ends
        self.channels = [PlainController(tables, policy) for _ in range(lanes)]
        self.queues: list[list[_Given]] = [[] for _ in range(lanes)]
        self.latency = [int(1000 * exact(hop.latency_ns) / timebase.tick_ps) for hop in network.hops]
        rates = {hop.wire: hop.gbps for hop in network.hops}
        byte_ticks = [int(1000 / exact(rates[n]) / timebase.tick_ps) for n in range(len(rates))]
        self.wires = [PlainWire(ticks) for ticks in byte_ticks]
        self.routes = [network.route(*pair) for pair in ends]
        packets = range(len(flow))
        self.reads_of = [work.packet_read[work.packet_first[p] : work.packet_first[p + 1]] for p in packets]
        self.writes_of = [work.packet_write[work.write_first[p] : work.write_first[p + 1]] for p in packets]
        self.packets_of: dict[int, list[int]] = defaultdict(list)
        self.packets_to: dict[int, list[int]] = defaultdict(list)
        for packet in packets:
            for read in self.reads_of[packet]:
                self.packets_of[int(read)].append(packet)
            for write in self.writes_of[packet]:
                self.packets_to[int(write)].append(packet)
        self.read_done: dict[int, int] = {}
        self.sent: dict[int, int] = {}
        self.arrived: dict[int, int] = {}
        self.arrived_seen: set[int] = set()
        self.gate = {p: int(tick) for p, tick in zip(packets, work.gate, strict=True) if tick < FAR}
        self.place = [0] * len(flow)
        self.at = [FAR] * len(flow)
        self.at_home: dict[int, list[int]] = defaultdict(list)
        for packet in packets:
            if self.routes[flow[packet]]:
                self._enqueue(packet)
            else:
                self.at_home[flow[packet]].append(packet)
        self.not_taken = {p: {int(write) for write in self.writes_of[p]} for p in packets}
        self.carried: dict[int, set[int]] = {}  # writes that a packet completed
        self.free = {node: [0] * int(slots) for node, slots in enumerate(work.slots)}
        self.admitted = [int(first) for first in work.node_read[:-1]]
        self.served, self.given = 0, 0
        self.freed: set[int] = set()
        reads = zip(work.reads.lane, work.reads.place, work.reads.column, strict=True)
        self.read_at = {
            (int(lane), *_coordinates(int(word)), int(column)): read
            for read, (lane, word, column) in enumerate(reads)
        }

    def run(self) -> None:
        """Until all is written."""
        total, tick = len(self.work.reads.lane) + len(self.work.writes.lane), 0
        while self.served < total:
            if tick % self.window == 1:
                self._look_at_lanes(tick)
            self._send(tick)
            self._take_slots(tick)
            self._take_arrivals(tick)
            if tick:
                self._step_lanes(tick)
            tick += 1

    def _clock_at(self, tick: int) -> int:
        return -(-tick // self.unit) * self.unit

    def _window_end(self, tick: int) -> int:
        """The end of the window that an event at `tick` belongs to."""
        return self.window + 1 if tick < 1 else (tick - 1) // self.window * self.window + self.window + 1

    def _enqueue(self, packet: int) -> None:
        route, n = self.routes[self.flow[packet]], self.place[packet]
        hop = self.network.hops[route[n]]
        name = route[n], -1 if n else self.flow[packet]
        self.wires[hop.wire].queue((route[n - 1] if n else -1, hop.source), name).append(packet)

    def _ready(self, packet: int) -> int:
        """The tick from which a packet may leave its source."""
        if packet not in self.gate or any(int(read) not in self.read_done for read in self.reads_of[packet]):
            return FAR
        return max(self.gate[packet], *(self.read_done[int(read)] for read in self.reads_of[packet]))

    def _send(self, tick: int) -> None:
        for packet, place in enumerate(self.place):
            if place == 0:
                self.at[packet] = self._ready(packet)
        for queue in self.at_home.values():
            while queue and self.at[queue[0]] <= tick:
                packet = queue.pop(0)
                self.sent[packet] = self.arrived[packet] = tick
                self.place[packet] = 1
        for wire in self.wires:
            chosen = wire.take(self.at, tick) if wire.free <= tick else None
            if chosen is None:
                continue
            route = self.routes[self.flow[chosen]]
            hop = route[self.place[chosen]]
            wire.free = tick + self.size[chosen] * wire.byte_ticks
            if self.place[chosen] == 0:
                self.sent[chosen] = wire.free
            self.place[chosen] += 1
            self.at[chosen] = wire.free + self.latency[hop]
            if self.place[chosen] < len(route):
                self._enqueue(chosen)
            else:
                self.arrived[chosen] = self.at[chosen]

    def _take_slots(self, tick: int) -> None:
        for read, packets in self.packets_of.items():
            if read not in self.freed and all(self.sent.get(packet, FAR) <= tick for packet in packets):
                self.freed.add(read)
                node = next(n for n, first in enumerate(self.work.node_read[1:]) if read < first)
                self.free[node].append(tick)
        for node, slots in self.free.items():
            while slots and self.admitted[node] < self.work.node_read[node + 1]:
                read = self.admitted[node]
                self._give(self.work.reads, read, RD, slots.pop(0), node)
                self.admitted[node] += 1

    def _take_arrivals(self, tick: int) -> None:
        for packet in sorted(
            p for p, at in self.arrived.items() if at <= tick and p not in self.arrived_seen
        ):
            self.arrived_seen.add(packet)
            complete = [
                int(write)
                for write in self.writes_of[packet]
                if all(other in self.arrived_seen for other in self.packets_to[int(write)])
            ]
            self.carried[packet] = set(complete)
            for write in complete:
                self._give(self.work.writes, write, WR, tick, self.flow[packet])
            if not complete:
                self._free_place(packet, self._window_end(tick))

    def _give(self, requests: Requests, number: int, final: int, tick: int, origin: int) -> None:
        word, lane = int(requests.place[number]), int(requests.lane[number])
        column, address = int(requests.column[number]), int(requests.address[number])
        request = Request(final, *_coordinates(word), column, address)
        clock, kind = self._clock_at(tick), int(final == WR)
        write = number if final == WR else -1
        self.given += 1
        given = clock, self._window_end(tick), kind, origin, self.given, request, write
        heapq.heappush(self.queues[lane], given)

    def _free_place(self, packet: int, horizon: int) -> None:
        flow = self.flow[packet]
        later = packet + int(self.work.flow_window[flow])
        if later < len(self.flow) and self.flow[later] == flow:
            self.gate[later] = horizon + sum(self.latency[hop] for hop in self.routes[flow])

    def _look_at_lanes(self, tick: int) -> None:
        for packet, writes in list(self.carried.items()):
            if writes and not writes & self.not_taken[packet]:
                self._free_place(packet, tick)
                del self.carried[packet]

    def _step_lanes(self, clock: int) -> None:
        for lane, channel in enumerate(self.channels):
            queue = self.queues[lane]
            if queue and queue[0][0] <= channel.clock and channel.offer(queue[0][5]):
                for packet in self.packets_to.get(write := heapq.heappop(queue)[6], ()):
                    self.not_taken[packet].discard(write)
            before = len(channel.trace)
            channel.step()
            for entry in channel.trace[before:]:
                self._note_command(clock, lane, entry)

    def _note_command(self, clock: int, lane: int, entry: tuple[int, ...]) -> None:
        if entry[1] not in (RD, WR):
            return
        self.served += 1
        if entry[1] == RD:
            _, _, rank, group, bank, row, column = entry
            read = self.read_at[lane, rank, group, bank, row, column]
            self.read_done[read] = self._clock_at(clock + self.window)
