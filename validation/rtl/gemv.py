"""The GEMV unit as hardware: lanes of multiplier groups behind FIFOs, and an adder tree (Amaranth).

Each lane has some *groups* of multipliers, the servers of `ndpsim.dimm.units.gemv`. Burst n of a lane goes
to group n mod groups, which has a small FIFO of its own: together they hold `fifo_bursts` bursts. A group
takes a burst and the activations of its first token in one clock, and multiplies some bits of each weight in
each further clock. The last clock of a burst and the load of the next one are the same clock.

Products of a clock pass `front` levels of adders, with registers, and are added to the sum of their row,
which the group keeps until the row is complete. Rows leave in order: in each clock the sums of one row and
token over all groups pass the other levels of adders. `window` rows can be open at once.

Numbers are integers: weights of `bits` bits and activations of `activation_bits`, both signed. Each lane has
a part of the buffer for activations, with a read port for each group.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amaranth import Array, Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ndpsim.simulate.rtl.build import load_module

_PARTS: Any = load_module(Path(__file__).with_name("parts.py"))
_SIZES: Any = load_module(Path(__file__).with_name("gemv_sizes.py"))
Sized, add_fifo, add_part = _PARTS.Sized, _PARTS.add_fifo, _PARTS.add_part
add_tree, delayed = _PARTS.add_tree, _PARTS.delayed
Parameters: Any = _SIZES.Parameters
counts = _SIZES.counts  # how often each module is in the unit


class Group(Sized):
    """A group of multipliers: takes a burst, multiplies it for each token, and keeps sums of rows."""

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        return {
            "load": In(1),
            "can_load": Out(1),
            "data": In(p.burst_bits),
            "slot": In(p.slot_bits),
            "vector": In(16),
            "tokens": In(p.token_bits + 1),
            "next_vector": Out(16),
            "activations": In(p.values * p.activation_bits),
            # The row that may leave: bursts of it that are finished, and its sum.
            "head": In(p.slot_bits + p.token_bits),
            "finished": Out(16),
            "leaves": In(1),
            "sum_head": In(p.slot_bits + p.token_bits),
            "sum_leaves": In(1),
            "sum": Out(signed(p.sum_bits)),
        }

    def elaborate(self, platform: object) -> Module:
        p, m = self.parameters, Module()
        busy, ends_token, ends = Signal(), Signal(), Signal()
        clock, part = Signal(range(max(2, p.pass_cycles))), Signal(range(max(2, p.chunks)))
        token, tokens = Signal(p.token_bits), Signal(p.token_bits + 1)
        slot, vector, place = Signal(p.slot_bits), Signal(16), Signal(p.slot_bits + p.token_bits)
        last_clock = clock == p.pass_cycles - 1
        m.d.comb += [
            ends_token.eq(busy & last_clock & (part == p.chunks - 1)),
            ends.eq(ends_token & (token + 1 == tokens)),
            self.can_load.eq(~busy | ends),
            self.next_vector.eq(vector + 1),
            place.eq(Cat(token, slot)),
        ]
        with m.If(busy):
            m.d.sync += clock.eq(Mux(last_clock, 0, clock + 1))
            with m.If(last_clock):
                m.d.sync += part.eq(Mux(part == p.chunks - 1, 0, part + 1))
            with m.If(ends_token):
                m.d.sync += [token.eq(token + 1), vector.eq(vector + 1)]
            with m.If(ends):
                m.d.sync += busy.eq(0)
        with m.If(self.load):
            m.d.sync += [busy.eq(1), slot.eq(self.slot), vector.eq(self.vector)]
            m.d.sync += [tokens.eq(self.tokens), token.eq(0)]
        multiplies, is_top = Signal(), Signal()
        m.d.comb += [multiplies.eq(busy & (clock < p.used)), is_top.eq(clock == p.used - 1)]
        products = self._multiply(m, part, multiplies, is_top, ends_token)
        stage = delayed(m, Cat(multiplies, is_top, place, clock), p.front)
        self._add(m, products, stage[0], stage[2 + len(place) :], stage[1], stage[2 : 2 + len(place)])
        self._count(m, ends_token, place)
        return m

    def _multiply(self, m: Module, part: Value, multiplies: Value, is_top: Value, ends_token: Value) -> Value:
        """The sum, after `front` registers, of the products of a clock: `step_bits` bits of each weight."""
        p = self.parameters
        # A compiled simulation has less to do with one register for all activations, but not for all weights:
        # shifts of such numbers are slow.
        held = Signal(p.values * p.activation_bits)
        acts = [held.word_select(number, p.activation_bits).as_signed() for number in range(p.values)]
        with m.If(self.load | ends_token):
            m.d.sync += held.eq(self.activations)
        weights = [Signal(p.used * p.step_bits, name=f"weight{number}") for number in range(p.values)]
        for number, weight in enumerate(weights):
            with m.If(multiplies & (part == number // p.chunk)):
                m.d.sync += weight.eq(weight.rotate_right(p.step_bits))
            with m.If(self.load):
                m.d.sync += weight.eq(self.data.word_select(number, p.bits).as_signed())
        terms = []
        for place in range(p.chunk):
            some = weights[place][: p.step_bits]
            act = acts[place]
            if p.chunks > 1:  # one of several weights; the last part may have fewer
                some = Array(weight[: p.step_bits] for weight in weights[place :: p.chunk])[part]
                act = Array(acts[place :: p.chunk])[part]
                missing = part >= len(weights[place :: p.chunk])
                some = Mux(missing, 0, some)
            if p.step_bits == 1:
                terms.append(Mux(some, act, 0).as_signed())
            else:
                terms.append(Cat(some, some[-1] & is_top).as_signed() * act)
        return add_tree(m, terms, p.front)

    def _add(
        self, m: Module, products: Value, valid: Value, clock: Value, is_top: Value, place: Value
    ) -> None:
        """Add the products of a clock to the sum of their row and token."""
        p = self.parameters
        depth = 1 << len(place)
        m.submodules.sums = sums = Memory(shape=signed(p.sum_bits), depth=depth, init=[])
        here, head, write = sums.read_port(domain="comb"), sums.read_port(domain="comb"), sums.write_port()
        is_open = Signal(depth)
        shifted = Signal(signed(p.sum_bits))
        subtracts = is_top if p.step_bits == 1 and p.bits > 1 else 0  # the top bit of a signed number
        m.d.comb += [
            here.addr.eq(place),
            head.addr.eq(self.sum_head),
            shifted.eq(products << (clock * p.step_bits)),
            write.addr.eq(place),
            write.en.eq(valid),
            write.data.eq(
                Mux(is_open.bit_select(place, 1), here.data, 0) + Mux(subtracts, -shifted, shifted)
            ),
            self.sum.eq(Mux(is_open.bit_select(self.sum_head, 1), head.data, 0)),
        ]
        m.d.sync += is_open.eq(is_open & ~(self.sum_leaves << self.sum_head) | (valid << place))

    def _count(self, m: Module, ends_token: Value, place: Value) -> None:
        """Count the finished bursts of each row and token."""
        depth = 1 << len(place)
        m.submodules.counts = counts = Memory(shape=unsigned(16), depth=depth, init=[])
        here, head, write = (
            counts.read_port(domain="comb"),
            counts.read_port(domain="comb"),
            counts.write_port(),
        )
        is_open = Signal(depth)
        m.d.comb += [
            here.addr.eq(place),
            head.addr.eq(self.head),
            write.addr.eq(place),
            write.en.eq(ends_token),
            write.data.eq(Mux(is_open.bit_select(place, 1), here.data, 0) + 1),
            self.finished.eq(Mux(is_open.bit_select(self.head, 1), head.data, 0)),
        ]
        m.d.sync += is_open.eq(is_open & ~(self.leaves << self.head) | (ends_token << place))


class Lane(Sized):
    """The groups of a lane behind their FIFOs, and the levels of adders over them."""

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        return {
            "in_valid": In(1),
            "in_ready": Out(1),
            "in_data": In(p.burst_bits),
            "in_row": In(16),
            "in_vector": In(16),
            "in_phase": In(1),
            "in_credit": Out(8),
            "go": In(1),
            "phase": In(1),
            "tokens": In(p.token_bits + 1),
            "first_row": In(16),
            "act_valid": In(1),
            "act_vector": In(16),
            "act_data": In(p.values * p.activation_bits),
            "head": In(p.slot_bits + p.token_bits),
            "finished": Out(16),
            "leaves": In(1),
            "sum_head": In(p.slot_bits + p.token_bits),
            "sum_leaves": In(1),
            "advance": In(1),
            "sum": Out(signed(p.sum_bits)),
        }

    def elaborate(self, platform: object) -> Module:
        p, m = self.parameters, Module()
        groups = [add_part(m, f"group{number}", Group, p, self.apart) for number in range(p.groups)]
        turn = Signal(range(max(2, p.groups)))
        with m.If(self.in_valid & self.in_ready):
            m.d.sync += turn.eq(Mux(turn == p.groups - 1, 0, turn + 1))
        ready = [self._fifo(m, number, group, turn) for number, group in enumerate(groups)]
        m.submodules.buffer = buffer = Memory(shape=len(self.act_data), depth=p.lane_vectors, init=[])
        write = buffer.write_port()
        m.d.comb += [
            write.addr.eq(self.act_vector),
            write.data.eq(self.act_data),
            write.en.eq(self.act_valid),
            self.in_ready.eq(Array(ready)[turn]),
            self.in_credit.eq(add_tree(m, [group["load"] for group in groups], 0)),
            self.finished.eq(add_tree(m, [group["finished"] for group in groups], 0)),
            self.sum.eq(add_tree(m, [group["sum"] for group in groups], p.lane_registers, self.advance)),
        ]
        for group in groups:
            read = buffer.read_port(domain="comb")
            m.d.comb += [
                read.addr.eq(Mux(group["load"], group["vector"], group["next_vector"])),
                group["activations"].eq(read.data),
                *(group[name].eq(getattr(self, name)) for name in ("head", "leaves", "sum_head", "tokens")),
                group["sum_leaves"].eq(self.sum_leaves & self.advance),
            ]
        return m

    def _fifo(self, m: Module, number: int, group: dict[str, Value], turn: Value) -> Value:
        """The FIFO of a group. A burst that finds it empty and the group free is loaded at once."""
        p = self.parameters
        entry = Cat(self.in_data, self.in_row, self.in_vector, self.in_phase)
        comes, in_window = self.in_valid & (turn == number), Signal()
        depth = -(-p.fifo_bursts // p.groups)
        head, is_there, room = add_fifo(m, f"fifo{number}", depth, comes, entry, group["load"])
        row = head[p.burst_bits : p.burst_bits + 16]
        may = self.go & (head[-1] == self.phase) & in_window & is_there
        m.d.comb += [
            in_window.eq((row - self.first_row)[:16] < p.window),
            group["load"].eq(group["can_load"] & may),
            group["data"].eq(head[: p.burst_bits]),
            group["slot"].eq(row),
            group["vector"].eq(head[p.burst_bits + 16 : p.burst_bits + 32]),
        ]
        return room


#: Inputs of the unit that all lanes have.
SHARED = ("act_vector", "act_data", "go", "phase", "tokens")


class GemvUnit(Sized):
    """The unit; for its ports see docs/rtl.md.

    apart: lanes and groups are instances of modules that `modules` writes, once each.
    """

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        return {
            "in_valid": In(p.lanes),
            "in_ready": Out(p.lanes),
            "in_data": In(p.lanes * p.burst_bits),
            "in_row": In(p.lanes * 16),
            "in_vector": In(p.lanes * 16),
            "in_phase": In(p.lanes),
            "in_credit": Out(p.lanes * 8),
            "act_valid": In(p.lanes),
            "act_vector": In(16),
            "act_data": In(p.values * p.activation_bits),
            "go": In(1),
            "phase": In(1),
            "tokens": In(p.token_bits + 1),
            "row_bursts": In(16),
            "out_valid": Out(1),
            "out_ready": In(1),
            "out_row": Out(16),
            "out_token": Out(p.token_bits),
            "out_sum": Out(signed(p.sum_bits)),
        }

    def elaborate(self, platform: object) -> Module:
        p, m = self.parameters, Module()
        row, token, advance, finished, leaves = (
            Signal(16),
            Signal(p.token_bits),
            Signal(),
            Signal(16),
            Signal(),
        )
        lanes = [add_part(m, f"lane{number}", Lane, p, self.apart) for number in range(p.lanes)]
        m.d.comb += [
            advance.eq(~self.out_valid | self.out_ready),
            finished.eq(add_tree(m, [lane["finished"] for lane in lanes], 0)),
            leaves.eq(self.go & advance & (finished == self.row_bursts)),
        ]
        with m.If(~self.go):
            m.d.sync += [row.eq(0), token.eq(0)]
        with m.Elif(leaves):
            is_last = token + 1 == self.tokens
            m.d.sync += [token.eq(Mux(is_last, 0, token + 1)), row.eq(row + is_last)]
        # The sum of a row is complete `front` clocks after its last product; its bursts are counted before.
        head = Cat(token, row[: p.slot_bits])
        sum_head, sum_leaves, tag = self._held(m, advance, (head, leaves, Cat(row, token)), p.front)
        self._feed(m, lanes)
        for lane in lanes:
            m.d.comb += [
                lane["first_row"].eq(row),
                lane["head"].eq(head),
                lane["leaves"].eq(leaves),
                lane["sum_head"].eq(sum_head),
                lane["sum_leaves"].eq(sum_leaves),
                lane["advance"].eq(advance),
            ]
        over_lanes = p.adder_tree_cycles - p.front - p.lane_registers
        m.d.comb += self.out_sum.eq(add_tree(m, [lane["sum"] for lane in lanes], over_lanes, advance))
        sum_leaves, tag = self._held(m, advance, (sum_leaves, tag), p.adder_tree_cycles - p.front)
        m.d.comb += [self.out_valid.eq(sum_leaves), Cat(self.out_row, self.out_token).eq(tag)]
        return m

    def _feed(self, m: Module, lanes: list[dict[str, Value]]) -> None:
        """Bursts and activations to the lanes."""
        p = self.parameters
        for number, lane in enumerate(lanes):
            m.d.comb += [
                lane["in_valid"].eq(self.in_valid[number]),
                self.in_ready[number].eq(lane["in_ready"]),
                lane["in_data"].eq(self.in_data.word_select(number, p.burst_bits)),
                lane["in_row"].eq(self.in_row.word_select(number, 16)),
                lane["in_vector"].eq(self.in_vector.word_select(number, 16)),
                lane["in_phase"].eq(self.in_phase[number]),
                self.in_credit.word_select(number, 8).eq(lane["in_credit"]),
                lane["act_valid"].eq(self.act_valid[number]),
                *(lane[name].eq(getattr(self, name)) for name in SHARED),
            ]

    def _held(self, m: Module, advance: Value, values: tuple[Value, ...], clocks: int) -> tuple[Value, ...]:
        """Values some clocks later, in which results leave."""
        for _ in range(clocks):
            held = tuple(Signal(len(value)) for value in values)
            with m.If(advance):
                m.d.sync += [new.eq(old) for new, old in zip(held, values, strict=True)]
            values = held
        return values


def modules(parameters: Parameters) -> dict[str, wiring.Component]:
    """The modules of the unit by name, the last at the top; each is written once."""
    return {
        "group": Group(parameters),
        "lane": Lane(parameters, apart=True),
        "unit": GemvUnit(parameters, apart=True),
    }
