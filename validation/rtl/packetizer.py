"""The packetizer of a relayout engine as hardware: bursts of a node into packets on a wire (Amaranth).

A buffer has `slots` bursts. Whoever reads a burst says before where its pieces go: for each its flow, its
slot, its bytes, and whether it is the last of its packet. Each flow has a FIFO of these. The packet at its
head is ready when all its bursts are in the buffer, in whatever order they come, and the flow has a credit.
Flows have turns. A packet follows the one before it on the wire, also within a clock: `wire_bytes` leave in
each. When the last byte of a packet leaves, so do its pieces from the buffer, and the slots of bursts without
further pieces are free.

A header has the flow, the bytes of data, the number of the packet in its flow, and the CRC-32 of these; the
rest of its bytes is 0.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_, xor
from typing import Any

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

#: Bits of the fields of a header: flow, bytes, number, check.
HEADER = (16, 16, 32, 32)
CREDIT_BITS = 8


@dataclass(frozen=True)
class Parameters:
    """Sizes of the packetizer.

    Attributes:
        slots: bursts that wait to be sent.
        lanes: bursts that can come in a clock.
        flows: nodes that data go to.
        places: packets of a flow for which its target has room.
        wire_bytes: bytes that the wire sends in a clock.
        burst_bytes, packet_bytes, header_bytes: bytes of a burst, and of data and header of a packet.
        packet_pieces, slot_pieces: the most pieces of a packet, and of a burst.
    """

    slots: int
    lanes: int
    flows: int
    places: int
    wire_bytes: int
    burst_bytes: int = 64
    packet_bytes: int = 256
    header_bytes: int = 16
    packet_pieces: int = 4
    slot_pieces: int = 1

    def __post_init__(self) -> None:
        if self.header_bytes * 8 < sum(HEADER):
            raise ValueError(
                f"header_bytes: a header of {self.header_bytes} bytes has no room for its fields"
            )

    @property
    def slot_bits(self) -> int:
        """Bits of the number of a slot."""
        return max(1, (self.slots - 1).bit_length())

    @property
    def flow_bits(self) -> int:
        """Bits of the number of a flow."""
        return max(1, (self.flows - 1).bit_length())

    @property
    def depth(self) -> int:
        """Pieces that the FIFO of a flow holds: all that the buffer can have; a power of 2."""
        return 1 << max(1, (self.slots * self.slot_pieces - 1).bit_length())

    @property
    def piece(self) -> data.StructLayout:
        """What is known of a piece."""
        count = self.burst_bytes.bit_length()
        return data.StructLayout({"slot": self.slot_bits, "first": count, "bytes": count, "last": 1})


def crc32(bits: Value) -> Value:
    """The CRC-32 (IEEE 802.3) of whole bytes: each of its bits is a sum of bits of the message."""
    count = len(bits) // 8
    none = zlib.crc32(bytes(count))
    columns = [zlib.crc32((1 << n).to_bytes(count, "little")) ^ none for n in range(len(bits))]
    sums = [[bits[n] for n, column in enumerate(columns) if column >> place & 1] for place in range(32)]
    return Cat(reduce(xor, terms, Const(none >> place & 1, 1)) for place, terms in enumerate(sums))


class Packetizer(wiring.Component):
    """The packetizer of a node with one wire."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "piece_valid": In(1),
                "piece_ready": Out(1),
                "piece_flow": In(p.flow_bits),
                "piece": In(p.piece.size),
                "burst_valid": In(p.lanes),
                "burst_slot": In(p.lanes * p.slot_bits),
                "burst_data": In(p.lanes * p.burst_bytes * 8),
                "credits": In(p.flows * CREDIT_BITS),
                "freed": Out(p.slots),
                "wire_ready": In(1, init=1),
                "wire_bytes": Out(p.wire_bytes.bit_length()),
                "wire_data": Out(p.wire_bytes * 8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        p, m = self.parameters, Module()
        present, chooses = Signal(p.slots), Signal()
        chosen, turn = Signal(p.flow_bits), Signal(p.flow_bits)
        rooms, ready, heads, numbers = zip(
            *(self._flow(m, number, present, chooses & (chosen == number)) for number in range(p.flows)),
            strict=True,
        )
        m.d.comb += self.piece_ready.eq(Array(rooms)[self.piece_flow])
        for is_turn in (False, True):  # the last assignment holds: from the turn on, else from 0 on
            for number in reversed(range(p.flows)):
                with m.If(ready[number] & ((turn <= number) if is_turn else 1)):
                    m.d.comb += chosen.eq(number)
        with m.If(chooses):
            m.d.sync += turn.eq(Mux(chosen == p.flows - 1, 0, chosen + 1))
        head = [(Array(each)[chosen], Array(used)[chosen]) for each, used in self._columns(heads)]
        pieces = [(p.piece(piece), used) for piece, used in head]
        ends, held = self._send(m, pieces, chosen, Array(numbers)[chosen], chooses, Cat(ready).any())
        self._free(m, present, ends, held)
        return m

    def _columns(self, heads: Any) -> list[tuple[list[Value], list[Value]]]:
        """For each place in a packet: what each flow has there, and whether it is of the packet."""
        return [
            ([head[place][0] for head in heads], [head[place][1] for head in heads])
            for place in range(self.parameters.packet_pieces)
        ]

    def _flow(
        self, m: Module, number: int, present: Value, leaves: Value
    ) -> tuple[Value, Value, list[tuple[Value, Value]], Value]:
        """The FIFO and the credits of a flow.

        Returns whether it has room, whether its first packet is ready, its pieces, and its number.
        """
        p = self.parameters
        m.submodules[f"flow{number}"] = memory = Memory(shape=p.piece.size, depth=p.depth, init=[])
        first, after, level = Signal(range(p.depth)), Signal(range(p.depth)), Signal(range(p.depth + 1))
        credit, packet = Signal(range(p.places + 1), init=p.places), Signal(32)
        write, room, ready = memory.write_port(), Signal(), Signal()
        head, is_in, whole, there = list[tuple[Value, Value]](), Const(1, 1), Const(0, 1), list[Value]()
        for place in range(p.packet_pieces):
            read = memory.read_port(domain="comb")
            m.d.comb += read.addr.eq(first + place)
            piece, used = p.piece(read.data), Signal(name=f"used{number}_{place}")
            m.d.comb += used.eq(is_in & (level > place))
            head.append((read.data, used))
            there.append(~used | present.bit_select(piece.slot, 1))
            whole, is_in = whole | used & piece.last, is_in & ~piece.last
        m.d.comb += [
            room.eq(level != p.depth),
            write.addr.eq(after),
            write.data.eq(self.piece),
            write.en.eq(self.piece_valid & room & (self.piece_flow == number)),
            ready.eq(whole & reduce(and_, there) & (credit != 0)),
        ]
        count = Mux(leaves, sum((used for _, used in head), Const(0)), 0)
        m.d.sync += [after.eq(after + write.en), level.eq(level + write.en - count), first.eq(first + count)]
        m.d.sync += [
            credit.eq(credit + self.credits.word_select(number, CREDIT_BITS) - leaves),
            packet.eq(packet + leaves),
        ]
        return room, ready, head, packet

    def _packet(
        self, m: Module, pieces: list[tuple[Any, Value]], flow: Value, number: Value
    ) -> tuple[Value, Value]:
        """The chosen packet with its header, and its bytes."""
        p = self.parameters
        m.submodules.buffer = buffer = Memory(shape=p.burst_bytes * 8, depth=p.slots, init=[])
        for lane in range(p.lanes):
            write = buffer.write_port()
            m.d.comb += [
                write.addr.eq(self.burst_slot.word_select(lane, p.slot_bits)),
                write.data.eq(self.burst_data.word_select(lane, p.burst_bytes * 8)),
                write.en.eq(self.burst_valid[lane]),
            ]
        parts, begin = [], Const(0)
        for piece, used in pieces:
            read = buffer.read_port(domain="comb")
            m.d.comb += read.addr.eq(piece.slot)
            shifted, count = read.data >> (piece.first << 3), Mux(used, piece.bytes, 0)
            kept = Cat(Mux(count > byte, shifted.word_select(byte, 8), 0) for byte in range(p.burst_bytes))
            parts.append((kept << (begin << 3))[: p.packet_bytes * 8])
            begin = (begin + count)[: p.packet_bytes.bit_length()]
        header = Signal(p.header_bytes * 8)
        fields = Signal(sum(HEADER[:3]))
        m.d.comb += [
            fields.eq(Cat(flow | Const(0, 16), begin | Const(0, 16), number)),
            header.eq(Cat(fields, crc32(fields))),
        ]
        return Cat(header, reduce(or_, parts)), begin + p.header_bytes

    def _send(
        self,
        m: Module,
        pieces: list[tuple[Any, Value]],
        flow: Value,
        number: Value,
        chooses: Value,
        is_ready: Value,
    ) -> tuple[Value, list[tuple[Value, Value]]]:
        """Put packets on the wire; returns whether one ends in this clock, and its slots."""
        p = self.parameters
        most = p.packet_bytes + p.header_bytes
        packet, size = self._packet(m, pieces, flow, number)
        current, left = Signal(most * 8), Signal(range(most + 1))
        bits, count, ends = (
            Signal((most + p.wire_bytes) * 8),
            Signal(range(most + p.wire_bytes + 1)),
            Signal(),
        )
        held = [(Signal(p.slot_bits, name=f"held{n}"), Signal(name=f"holds{n}")) for n in range(len(pieces))]
        within = left[: p.wire_bytes.bit_length()]
        m.d.comb += [
            chooses.eq(self.wire_ready & is_ready & (left < p.wire_bytes)),
            bits.eq(current | Mux(chooses, packet << (within << 3), 0)),
            count.eq(left + Mux(chooses, size, 0)),
            ends.eq(self.wire_ready & (left != 0) & (left <= p.wire_bytes)),
            self.wire_data.eq(bits),
            self.wire_bytes.eq(Mux(count < p.wire_bytes, count, p.wire_bytes)),
        ]
        with m.If(self.wire_ready):
            m.d.sync += current.eq(bits >> p.wire_bytes * 8)
            m.d.sync += left.eq(Mux(count < p.wire_bytes, 0, count - p.wire_bytes))
        with m.If(chooses):
            for (slot, holds), (piece, used) in zip(held, pieces, strict=True):
                m.d.sync += [slot.eq(piece.slot), holds.eq(used)]
        return ends, held

    def _free(self, m: Module, present: Value, ends: Value, held: list[tuple[Value, Value]]) -> None:
        """Count the pieces of each slot that have not left; a slot without one is free."""
        p = self.parameters
        piece = p.piece(self.piece)
        comes = self.piece_valid & self.piece_ready
        for slot in range(p.slots):
            unsent = Signal(range(p.slot_pieces + 1), name=f"unsent{slot}")
            leaving = sum((ends & holds & (number == slot) for number, holds in held), Const(0))
            m.d.comb += self.freed[slot].eq((leaving != 0) & (unsent == leaving))
            m.d.sync += unsent.eq(unsent + (comes & (piece.slot == slot)) - leaving)
            arrives = [
                self.burst_valid[lane] & (self.burst_slot.word_select(lane, p.slot_bits) == slot)
                for lane in range(p.lanes)
            ]
            m.d.sync += present[slot].eq(present[slot] & ~self.freed[slot] | Cat(arrives).any())


def modules(parameters: Parameters) -> dict[str, wiring.Component]:
    """The modules of the unit by name: one."""
    return {"unit": Packetizer(parameters)}


def counts(parameters: Parameters) -> dict[str, int]:
    """How often each module is in the unit."""
    return {"unit": 1}
