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
from pathlib import Path
from typing import Any

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ndpsim.simulate.rtl.build import load_module

_PARTS: Any = load_module(Path(__file__).with_name("parts.py"))
Sized, add_part = _PARTS.Sized, _PARTS.add_part

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


class Flow(Sized):
    """The FIFO and the credits of a flow; `present`: the slots whose bursts have come."""

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        return {
            "piece_valid": In(1),
            "piece": In(p.piece.size),
            "present": In(p.slots),
            "credits": In(CREDIT_BITS),
            "leaves": In(1),
            "room": Out(1),
            "ready": Out(1),
            "pieces": Out(p.packet_pieces * p.piece.size),
            "used": Out(p.packet_pieces),
            "number": Out(32),
        }

    def elaborate(self, platform: object) -> Module:
        p, m = self.parameters, Module()
        m.submodules.fifo = memory = Memory(shape=p.piece.size, depth=p.depth, init=[])
        first, after, level = Signal(range(p.depth)), Signal(range(p.depth)), Signal(range(p.depth + 1))
        credit, write = Signal(range(p.places + 1), init=p.places), memory.write_port()
        is_in, whole, there = Const(1, 1), Const(0, 1), list[Value]()
        for place in range(p.packet_pieces):
            read, used = memory.read_port(domain="comb"), self.used[place]
            piece = p.piece(read.data)
            m.d.comb += [
                read.addr.eq(first + place),
                self.pieces.word_select(place, p.piece.size).eq(read.data),
                used.eq(is_in & (level > place)),
            ]
            there.append(~used | self.present.bit_select(piece.slot, 1))
            whole, is_in = whole | used & piece.last, is_in & ~piece.last
        m.d.comb += [
            self.room.eq(level != p.depth),
            write.addr.eq(after),
            write.data.eq(self.piece),
            write.en.eq(self.piece_valid & self.room),
            self.ready.eq(whole & reduce(and_, there) & (credit != 0)),
        ]
        count = Mux(self.leaves, sum(self.used, Const(0)), 0)
        m.d.sync += [
            after.eq(after + write.en),
            level.eq(level + write.en - count),
            first.eq(first + count),
            credit.eq(credit + self.credits - self.leaves),
            self.number.eq(self.number + self.leaves),
        ]
        return m


class Decoder(Sized):
    """One line for each slot."""

    has_registers = False

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        return {"enable": In(1), "slot": In(p.slot_bits), "lines": Out(p.slots)}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.lines.eq(self.enable << self.slot)
        return m


class Slot(Sized):
    """Counts the pieces of a slot that have not left; a slot without one is free."""

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        return {
            "comes": In(1),
            "leaves": In(p.packet_pieces),
            "arrives": In(p.lanes),
            "freed": Out(1),
            "present": Out(1),
        }

    def elaborate(self, platform: object) -> Module:
        p, m = self.parameters, Module()
        unsent, leaving = Signal(range(p.slot_pieces + 1)), Signal(range(p.packet_pieces + 1))
        m.d.comb += [
            leaving.eq(sum(self.leaves, Const(0))),
            self.freed.eq((leaving != 0) & (unsent == leaving)),
        ]
        m.d.sync += [
            unsent.eq(unsent + self.comes - leaving),
            self.present.eq(self.present & ~self.freed | self.arrives.any()),
        ]
        return m


class Cut(Sized):
    """The bytes of a piece, from its burst."""

    has_registers = False

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        count, burst = p.burst_bytes.bit_length(), p.burst_bytes * 8
        return {"burst": In(burst), "first": In(count), "bytes": In(count), "cut": Out(burst)}

    def elaborate(self, platform: object) -> Module:
        p, m = self.parameters, Module()
        shifted = Signal(p.burst_bytes * 8)
        kept = (Mux(self.bytes > byte, shifted.word_select(byte, 8), 0) for byte in range(p.burst_bytes))
        m.d.comb += [shifted.eq(self.burst >> (self.first << 3)), self.cut.eq(Cat(kept))]
        return m


class Part(Sized):
    """The bytes of a piece at their place in the packet."""

    has_registers = False

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        return {
            "cut": In(p.burst_bytes * 8),
            "begin": In(range(p.packet_bytes)),
            "part": Out(p.packet_bytes * 8),
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.part.eq(self.cut << (self.begin << 3))
        return m


class Packetizer(wiring.Component):
    """The packetizer of a node with one wire.

    apart: its parts are instances of modules that `modules` writes, once each.
    """

    def __init__(self, parameters: Parameters, apart: bool = False) -> None:
        self.parameters, self.apart = parameters, apart
        p = parameters
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
        chooses, chosen, turn = Signal(), Signal(p.flow_bits), Signal(p.flow_bits)
        flows = [add_part(m, f"flow{number}", Flow, p, self.apart) for number in range(p.flows)]
        m.d.comb += self.piece_ready.eq(Array(flow["room"] for flow in flows)[self.piece_flow])
        for is_turn in (False, True):  # the last assignment holds: from the turn on, else from 0 on
            for number in reversed(range(p.flows)):
                with m.If(flows[number]["ready"] & ((turn <= number) if is_turn else 1)):
                    m.d.comb += chosen.eq(number)
        with m.If(chooses):
            m.d.sync += turn.eq(Mux(chosen == p.flows - 1, 0, chosen + 1))
        words, used, number = Signal(p.packet_pieces * p.piece.size), Signal(p.packet_pieces), Signal(32)
        heads = Array(Cat(flow["pieces"], flow["used"], flow["number"]) for flow in flows)
        m.d.comb += Cat(words, used, number).eq(heads[chosen])
        pieces = [
            (p.piece(words.word_select(place, p.piece.size)), used[place]) for place in range(p.packet_pieces)
        ]
        ends, held = self._send(
            m, pieces, chosen, number, chooses, Cat(flow["ready"] for flow in flows).any()
        )
        present = self._slots(m, ends, held)
        for place, flow in enumerate(flows):
            m.d.comb += [
                flow["piece_valid"].eq(self.piece_valid & (self.piece_flow == place)),
                flow["piece"].eq(self.piece),
                flow["present"].eq(present),
                flow["credits"].eq(self.credits.word_select(place, CREDIT_BITS)),
                flow["leaves"].eq(chooses & (chosen == place)),
            ]
        return m

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
        parts, begin = list[Value](), Const(0, p.packet_bytes.bit_length())
        for place, (piece, used) in enumerate(pieces):
            read, cut = buffer.read_port(domain="comb"), add_part(m, f"cut{place}", Cut, p, self.apart)
            m.d.comb += [
                read.addr.eq(piece.slot),
                cut["burst"].eq(read.data),
                cut["first"].eq(piece.first),
                cut["bytes"].eq(Mux(used, piece.bytes, 0)),
            ]
            if place:
                part = add_part(m, f"part{place}", Part, p, self.apart)
                m.d.comb += [part["cut"].eq(cut["cut"]), part["begin"].eq(begin)]
                parts.append(part["part"])
            else:
                parts.append(cut["cut"])
            begin, before = Signal(p.packet_bytes.bit_length(), name=f"after{place}"), begin
            m.d.comb += begin.eq(before + cut["bytes"])
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

    def _slots(self, m: Module, ends: Value, held: list[tuple[Value, Value]]) -> Value:
        """Keep account of each slot; returns those whose bursts have come."""
        p = self.parameters

        def lines(name: str, enable: Value, slot: Value) -> Value:
            decoder = add_part(m, name, Decoder, p, self.apart)
            m.d.comb += [decoder["enable"].eq(enable), decoder["slot"].eq(slot)]
            return decoder["lines"]

        comes = lines("comes", self.piece_valid & self.piece_ready, p.piece(self.piece).slot)
        leaves = [lines(f"leaves{n}", ends & holds, slot) for n, (slot, holds) in enumerate(held)]
        arrives = [
            lines(f"arrives{lane}", self.burst_valid[lane], self.burst_slot.word_select(lane, p.slot_bits))
            for lane in range(p.lanes)
        ]
        slots = [add_part(m, f"slot{number}", Slot, p, self.apart) for number in range(p.slots)]
        for number, slot in enumerate(slots):
            m.d.comb += [
                slot["comes"].eq(comes[number]),
                slot["leaves"].eq(Cat(each[number] for each in leaves)),
                slot["arrives"].eq(Cat(each[number] for each in arrives)),
                self.freed[number].eq(slot["freed"]),
            ]
        return Cat(slot["present"] for slot in slots)


def modules(parameters: Parameters) -> dict[str, wiring.Component]:
    """The modules of the unit by name, the last at the top; each is written once."""
    parts = {kind.__name__.lower(): kind(parameters) for kind in (Flow, Decoder, Slot, Cut, Part)}
    return {**parts, "unit": Packetizer(parameters, apart=True)}


def counts(parameters: Parameters) -> dict[str, int]:
    """How often each module is in the unit."""
    p = parameters
    return {
        "flow": p.flows,
        "decoder": 1 + p.packet_pieces + p.lanes,
        "slot": p.slots,
        "cut": p.packet_pieces,
        "part": p.packet_pieces - 1,
        "unit": 1,
    }
