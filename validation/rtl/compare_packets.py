"""The packetizer of a relayout engine as hardware against the model of it, packet by packet.

A relayout is run first. Its bursts come to the hardware at the clocks at which the DRAM gave them, and
credits at those of the model. The packets and their order, the clock and the byte of it at which each has
left, and the clock at which each read is offered, are compared; so is all data. What the packetizer does
reaches the DRAM through the offers only, and other nodes through the wire. Pieces that stay within the node
do not pass it: they leave the buffer as in the model.
"""

from __future__ import annotations

import heapq
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.dimm.link.engine_state import Engine
from ndpsim.simulate.relayout_run import Job
from ndpsim.simulate.rtl.build import load_module

Ints = NDArray[np.int64]

_HERE = Path(__file__).parent
_BENCH: Any = load_module(_HERE / "bench.py")
_HARDWARE: Any = load_module(_HERE / "packetizer.py")
_ABSENT = -1


@dataclass(frozen=True, eq=False)
class _NodePieces:
    """What a node of a finished relayout sends over links: pieces in the order of reading.

    Attributes:
        packet, read, bytes, first: [piece], `first` being the byte of the burst at which it begins.
        last: [piece], whether it is the last of its packet.
        packets: those with a piece, by flow and number.
    """

    packet: Ints
    read: Ints
    bytes: Ints
    first: Ints
    last: NDArray[np.bool_]
    packets: Ints

    @classmethod
    def of(cls, engine: Engine, flows: Ints, burst_bytes: int) -> _NodePieces:
        """Of some flows; the pieces of a burst are one behind the other."""
        packed = engine.packed
        of_packet = np.repeat(np.arange(len(packed.unread)), np.diff(packed.packet_first))
        chosen = np.flatnonzero(np.isin(engine.packets.flow[of_packet], flows))
        read = packed.piece_read[chosen].astype(np.int64)
        order = np.argsort(read, kind="stable")
        chosen, read, packet = chosen[order], read[order], of_packet[chosen][order]
        count = -(-packed.piece_bits[chosen].astype(np.int64) // 8)
        begin = np.cumsum(count) - count
        first = begin - begin[np.searchsorted(read, read)]
        # Pieces that are no whole bytes share some.
        first = np.minimum(first, burst_bytes - count)
        last = chosen == packed.packet_first[packet + 1] - 1
        return cls(packet, read, count, first, last, np.unique(packet))


class _Packets:
    """Gives the packetizer what a relayout has given to the model of it, and keeps what comes out."""

    def __init__(self, job: Job, node: int, unit: Any, seed: int = 65) -> None:
        self.parameters, engine = unit.parameters, job.engine
        self.flow_of = engine.packets.flow
        p, ticks = self.parameters, engine.unit_ticks
        linked = np.diff(engine.fabric.path_first) > 0
        self.flows = np.flatnonzero((engine.flow_node == node) & linked)
        self.pieces = _NodePieces.of(engine, self.flows, p.burst_bytes)
        self.first, self.end = (int(engine.packed.node_read[node + n]) for n in range(2))
        self.data = np.random.default_rng(seed).integers(
            0, 256, (self.end - self.first, p.burst_bytes), dtype=np.uint8
        )
        self.arrivals = -(-engine.read_tick[self.first : self.end] // ticks)
        self.local_until = self._local_until(engine, node, linked)
        self.credits = self._credits(engine)
        self.offered = np.full(self.end - self.first, _ABSENT)
        self.slot = np.full(self.end - self.first, _ABSENT)
        self.waiting: list[int] = []  # pieces that the packetizer does not know of
        self.held: dict[int, int] = {}  # the read in each slot
        self.free: list[tuple[int, int]] = [(0, slot) for slot in range(p.slots)]
        self.unsent = np.bincount(self.pieces.read - self.first, minlength=self.end - self.first)
        self.stream, self.byte_edges = bytearray(), list[tuple[int, int]]()
        self.next_read, self.before = 0, 0
        self._offer(0)
        self.before = len(self.waiting) + 1  # edges before edge 0

    def _local_until(self, engine: Engine, node: int, linked: Any) -> Ints:
        """The edge from which the pieces of each read that stay in the node have left; 0: it has none."""
        until = np.zeros(self.end - self.first, dtype=np.int64)
        packed = engine.packed
        for packet in np.flatnonzero(np.isin(engine.packets.flow, np.flatnonzero(~linked))):
            if engine.flow_node[engine.packets.flow[packet]] == node:
                of_packet = slice(packed.packet_first[packet], packed.packet_first[packet + 1])
                reads = packed.piece_read[of_packet] - self.first
                until[reads] = np.maximum(until[reads], -(-engine.packets.sent[packet] // engine.unit_ticks))
        return until

    def _credits(self, engine: Engine) -> dict[int, int]:
        """The credits that come with each edge, as the port has them; those of a flow come in order."""
        found: dict[int, int] = {}
        for number, flow in enumerate(self.flows):
            first, end = engine.packed.flow_packet[flow : flow + 2]
            back = engine.place_free[first:end] + engine.credit_ticks[flow]
            for edge in np.maximum.accumulate(-(-back // engine.unit_ticks)).tolist():
                found[edge] = found.get(edge, 0) + (1 << 8 * number)
        return found

    def _offer(self, edge: int) -> None:
        """Free slots get the next reads; their pieces wait until the packetizer knows of them."""
        while self.next_read < len(self.offered) and self.free and self.free[0][0] <= edge:
            _, slot = heapq.heappop(self.free)
            read = self.next_read
            self.offered[read], self.slot[read], self.held[slot] = edge, slot, read
            self.next_read += 1
            if self.unsent[read]:
                begin = int(np.searchsorted(self.pieces.read, read + self.first))
                self.waiting += range(begin, begin + int(self.unsent[read]))
            else:
                heapq.heappush(self.free, (int(self.local_until[read]), slot))

    def step(self, number: int, get: Any, put: Any) -> bool:
        """See `bench.run_clocks`."""
        edge, p = number - self.before, self.parameters
        if edge >= 0 and (freed := get("freed")):
            for slot in np.flatnonzero([freed >> n & 1 for n in range(p.slots)]).tolist():
                heapq.heappush(self.free, (max(edge, int(self.local_until[self.held[slot]])), slot))
        self._offer(max(edge, 0))
        put("credits", self.credits.get(edge, 0))
        self._put_piece(get, put)
        self._put_bursts(edge, put)
        if count := get("wire_bytes"):
            self.stream += get("wire_data").to_bytes(p.wire_bytes, "little")[:count]
            self.byte_edges.append((edge, count))
        return len(self.stream) >= self.total

    @property
    def total(self) -> int:
        """Bytes of all packets."""
        return int(self.pieces.bytes.sum()) + len(self.pieces.packets) * self.parameters.header_bytes

    def _put_piece(self, get: Any, put: Any) -> None:
        put("piece_valid", int(bool(self.waiting)))
        if not self.waiting:
            return
        pieces, piece, p = self.pieces, self.waiting[0], self.parameters
        word = p.piece.const(
            {
                "slot": int(self.slot[pieces.read[piece] - self.first]),
                "first": int(pieces.first[piece]),
                "bytes": int(pieces.bytes[piece]),
                "last": int(pieces.last[piece]),
            }
        )
        put("piece", word.as_bits())
        put("piece_flow", int(np.searchsorted(self.flows, self.flow_of[pieces.packet[piece]])))
        if get("piece_ready"):
            self.waiting.pop(0)

    def _put_bursts(self, edge: int, put: Any) -> None:
        p, here = self.parameters, np.flatnonzero(self.arrivals == edge)
        here = here[self.unsent[here] > 0]
        if (self.offered[here] == _ABSENT).any():
            raise AssertionError(f"a burst comes that the packetizer has not asked for, at clock {edge}")
        put("burst_valid", (1 << len(here)) - 1)
        put("burst_slot", _BENCH.joined(self.slot[here].tolist(), p.slot_bits))
        put("burst_data", int.from_bytes(self.data[here].tobytes(), "little"))

    def sent(self) -> list[tuple[int, int, int]]:
        """Flow, number and the byte of the wire's time at which it had left, of each packet on the wire."""
        p, found, begin = self.parameters, list[tuple[int, int, int]](), 0
        ends = np.cumsum([count for _, count in self.byte_edges])
        while begin < len(self.stream):
            fields = self.stream[begin : begin + 12]
            flow, count, number, check = (
                int.from_bytes(self.stream[begin + first : begin + first + size], "little")
                for first, size in ((0, 2), (2, 2), (4, 4), (8, 4))
            )
            if zlib.crc32(fields[:8]) != check:
                raise AssertionError(f"the check of packet {len(found)} is wrong")
            self._compare_data(flow, number, self.stream[begin + p.header_bytes :][:count])
            begin += p.header_bytes + count
            word = int(np.searchsorted(ends, begin))
            edge, before = self.byte_edges[word][0], int(ends[word]) - self.byte_edges[word][1]
            # Bytes of a clock are there after its edge; they have left within the clock before.
            found.append((flow, number, (edge - 1) * p.wire_bytes + begin - before))
        return found

    def _compare_data(self, flow: int, number: int, found: bytearray) -> None:
        packet = int(self.pieces.packets[self.flow_of[self.pieces.packets] == self.flows[flow]][number])
        wanted = bytearray()
        for piece in np.flatnonzero(self.pieces.packet == packet).tolist():
            first, read = int(self.pieces.first[piece]), int(self.pieces.read[piece])
            wanted += self.data[read - self.first, first : first + int(self.pieces.bytes[piece])].tobytes()
        if wanted != found:
            raise AssertionError(f"packet {number} of flow {flow} has other data")


def sizes_of(job: Job, node: int) -> Any:
    """The sizes of the packetizer of a node.

    Raises:
        ValueError: none can be built, since the node's wires do not send whole bytes in a clock.
    """
    access, engine, flows = job.access, job.engine, np.array(job.flows)
    linked = np.flatnonzero((flows[:, 0] == node) & (flows[:, 1] != node))
    (byte_ticks,) = {int(engine.fabric.byte_ticks[0])}
    wire_bytes, rest = divmod(engine.unit_ticks, byte_ticks)
    if rest:
        raise ValueError("the wire sends no whole number of bytes in a clock")
    pieces = _NodePieces.of(engine, linked, access.device.burst_bytes)
    edges = -(-engine.read_tick // engine.unit_ticks)
    return _HARDWARE.Parameters(
        slots=access.slots,
        lanes=int(np.bincount(edges[pieces.read]).max()),
        flows=len(linked),
        places=int(engine.flow_credits[linked].max()),
        wire_bytes=wire_bytes,
        burst_bytes=access.device.burst_bytes,
        packet_bytes=access.packet_bytes,
        header_bytes=access.header_bytes,
        packet_pieces=int(np.bincount(pieces.packet).max()),
        slot_pieces=int(np.bincount(pieces.read).max()),
    )


def compare_packets(job: Job, node: int, unit: Any) -> list[str]:
    """The differences between a finished relayout and the packetizer of a node as hardware, in words."""
    engine, packets = job.engine, _Packets(job, node, unit)
    try:
        _BENCH.run_clocks(unit, packets.step)
        found = packets.sent()
    except AssertionError as error:
        return [str(error)]
    own = packets.pieces.packets
    own = own[np.argsort(engine.packets.sent[own], kind="stable")]
    differences = []
    byte_ticks = int(engine.fabric.byte_ticks[0])
    for turn, (packet, (flow, number, byte)) in enumerate(zip(own.tolist(), found, strict=True)):
        in_model = int(engine.packets.flow[packet])
        wanted = (
            int(np.searchsorted(packets.flows, in_model)),
            packet - int(engine.packed.flow_packet[in_model]),
            int(engine.packets.sent[packet]) / byte_ticks,
        )
        if wanted != (flow, number, byte):
            differences.append(
                f"packet {turn}: number {wanted[1]} of flow {wanted[0]} has left at byte {wanted[2]:g} in "
                f"the model, number {number} of flow {flow} at byte {byte} in hardware"
            )
            break
    offered = -(-packets.offered * engine.unit_ticks // engine.dram_ticks)
    wrong = np.flatnonzero(offered != engine.offered_at[packets.first : packets.end])
    if len(wrong):
        read = int(wrong[0])
        clocks = engine.offered_at[packets.first + read], offered[read]
        differences.append(
            f"read {read}: offered at DRAM clock {clocks[0]} in the model, {clocks[1]} in hardware"
        )
    return differences
