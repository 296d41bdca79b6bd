"""Systolic arrays behind a lane of a memory device, as hardware (Amaranth).

A burst leaves the FIFO for a register when its first word can enter the arrays at the next clock. In each
clock one step enters: a word for every column of the lane's arrays, column c of an array c clocks later, and
the activations for it, row r r clocks later. `inverse-bits`: a word has the native bits, with all weights
that end in it, and an element has a multiplier for each of them. `fixed`: a word is one weight.

Output-stationary: weights move down, activations to the right, and each element sums one token and output.
After the last step the sums move down and out; with two registers they are put aside for that.
Weight-stationary: the words of a block move down to their places; then its tokens pass. With two registers
the next words move meanwhile. A sum over all blocks of a tile is kept below each column.

Numbers are signed integers, of `bits` bits and `activation_bits`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ndpsim.simulate.rtl.build import load_module

_PARTS: Any = load_module(Path(__file__).with_name("parts.py"))
Sized, delayed = _PARTS.Sized, _PARTS.delayed
add_fifo, add_part = _PARTS.add_fifo, _PARTS.add_part


@dataclass(frozen=True)
class Parameters:
    """Sizes of the arrays of a lane; keys as in `rtl_params`, and those that machine and weights give.

    Attributes:
        arrays: of the device; `lanes` of it share them.
        depth: vectors of activations that each row holds.
    """

    arrays: int
    rows: int
    columns: int
    dataflow: str
    low_bit_throughput: str
    native_bits: int
    stationary_registers: int
    load_rows: int
    fifo_bursts: int
    lanes: int
    burst_bits: int = 512
    bits: int = 16
    tokens: int = 1
    depth: int = 64
    activation_bits: int = 16

    def __post_init__(self) -> None:
        if self.arrays % self.lanes:
            raise ValueError(f"arrays: {self.lanes} lanes cannot share {self.arrays}")
        if self.load_rows != 1:
            raise ValueError("load_rows: only 1 has hardware, weights that enter at one edge")
        if self.burst_bits % self.step_bits:
            raise ValueError(
                f"bits: a step of {self.step_bits} bits does not divide a burst of {self.burst_bits}"
            )

    @property
    def weight_stationary(self) -> bool:
        return self.dataflow == "weight-stationary"

    @property
    def outputs(self) -> int:
        """Columns of the arrays of a lane."""
        return self.arrays // self.lanes * self.columns

    @property
    def word_bits(self) -> int:
        """Bits for a column in a step."""
        return self.native_bits if self.low_bit_throughput == "inverse-bits" else self.bits

    @property
    def step_bits(self) -> int:
        return self.outputs * self.word_bits

    @property
    def burst_steps(self) -> int:
        """Steps in a burst."""
        return self.burst_bits // self.step_bits

    @property
    def weights(self) -> int:
        """Most weights that end in a word."""
        return max(len(range(*self.ends(word))) for word in range(self.bits))

    def ends(self, word: int) -> tuple[int, int]:
        """The first weight that ends in a word of a row, and the first that does not."""
        return word * self.word_bits // self.bits, (word + 1) * self.word_bits // self.bits

    @property
    def vector_bits(self) -> int:
        """Bits of the activations for a word."""
        return self.weights * self.activation_bits

    @property
    def sum_bits(self) -> int:
        """Bits of a sum of up to 2^14 products."""
        return self.bits + self.activation_bits + 14

    @property
    def token_bits(self) -> int:
        return max(1, (self.tokens - 1).bit_length())


def product(p: Parameters, words: Value, activations: Value) -> Value:
    """The sum of the products of the weights of a word."""
    total: Any = 0
    for number in range(p.weights):
        weight = words.word_select(number, p.bits).as_signed()
        total = total + weight * activations.word_select(number, p.activation_bits).as_signed()
    summed: Value = total
    return summed


class Element(Sized):
    """An element: multiplies what enters it in a clock, and passes it on with the next."""

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        ports = {"sum_in": In(signed(p.sum_bits)), "sum": Out(signed(p.sum_bits))}
        # What moves down with a word, and right with activations.
        tags = (
            {"weight": 1 + 16, "activation": 1 + 1} if p.weight_stationary else {"weight": 4, "activation": 0}
        )
        for name, bits in {"weight": p.weights * p.bits, "activation": p.vector_bits}.items():
            width = bits + tags[name]
            ports |= {f"{name}_in": In(width), f"{name}": Out(width)}
        if not p.weight_stationary:
            # A finished sum with the turn of its tile; sums of the turn that leaves move down.
            ports |= {"done_in": In(2), "done": Out(2), "moves_in": In(1), "moves": Out(1), "leaving": In(1)}
            ports |= {"ends": Out(2)}
        return ports

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.activation.eq(self.activation_in)
        if self.parameters.weight_stationary:
            self._pass_tokens(m)
        else:
            m.d.sync += self.weight.eq(self.weight_in)
            self._keep_sum(m)
        return m

    def _keep_sum(self, m: Module) -> None:
        p = self.parameters
        size = p.weights * p.bits
        valid, first, last, turn = (self.weight_in[size + place] for place in range(4))
        total, new = Signal(signed(p.sum_bits)), Signal(signed(p.sum_bits))
        done, is_there, of_turn = self.sum, self.done[0], self.done[1]
        running = done if p.stationary_registers == 1 else total
        m.d.comb += [
            new.eq(Mux(first, 0, running) + product(p, self.weight_in[:size], self.activation_in)),
            self.moves.eq(is_there & (of_turn == self.leaving)),
            self.ends.eq(Cat(valid & last, turn)),
        ]
        with m.If(valid):
            m.d.sync += running.eq(new)
        with m.If(valid & last):
            m.d.sync += [done.eq(new), self.done.eq(Cat(1, turn))]
        with m.Elif(self.moves_in):
            m.d.sync += [done.eq(self.sum_in), self.done.eq(self.done_in)]
        with m.Elif(self.moves):
            m.d.sync += is_there.eq(0)

    def _pass_tokens(self, m: Module) -> None:
        p = self.parameters
        size = p.weights * p.bits
        word, valid, hops = self.weight_in[:size], self.weight_in[size], self.weight_in[size + 1 :]
        token, is_first = self.activation_in[p.vector_bits], self.activation_in[p.vector_bits + 1]
        home, used, weight = Signal(size), Signal(size), Signal(size)
        m.d.sync += self.weight.eq(Cat(word, valid & (hops != 0), hops - 1))
        with m.If(valid & (hops == 0)):
            m.d.sync += home.eq(word)
        if p.stationary_registers == 1:
            m.d.comb += weight.eq(home)
        else:
            m.d.comb += weight.eq(Mux(is_first, home, used))
            with m.If(token):
                m.d.sync += used.eq(weight)
        m.d.sync += self.sum.eq(self.sum_in + product(p, weight, self.activation_in[: p.vector_bits]))


class SystolicUnit(Sized):
    """The arrays of a lane.

    `in_step`: the place of the activations for the first step of a burst; weight-stationary arrays have those
    of each token of a block of `rows` words behind one another. `steps`: of a tile. `out_valid` has a bit for
    each column; its sums are those of rows from the lowest up, or of tokens.
    """

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        return {
            "in_valid": In(1),
            "in_ready": Out(1),
            "in_data": In(p.burst_bits),
            "in_step": In(16),
            "in_phase": In(1),
            "in_credit": Out(1),
            "act_valid": In(p.rows),
            "act_place": In(16),
            "act_data": In(p.vector_bits),
            "go": In(1),
            "phase": In(1),
            "tokens": In(p.token_bits + 1),
            "steps": In(16),
            "out_valid": Out(p.outputs),
            "out_sum": Out(p.outputs * p.sum_bits),
        }

    def elaborate(self, platform: object) -> Module:
        p, m = self.parameters, Module()
        load, enters, step, place = Signal(), Signal(), Signal(16), Signal(16)
        ends, left = Signal(), Signal(range(p.burst_steps + 1))
        words = Signal(p.burst_bits)
        head, is_there, room = add_fifo(
            m, "fifo", p.fifo_bursts, self.in_valid, Cat(self.in_data, self.in_step, self.in_phase), load
        )
        room_now, room_next = Signal(), Signal()
        m.d.comb += [
            self.in_ready.eq(room),
            self.in_credit.eq(load),
            enters.eq((left != 0) & room_now),
            ends.eq(enters & (step == self.steps - 1)),
            load.eq(
                is_there
                & self.go
                & (head[-1] == self.phase)
                & ((left == 0) | (enters & ((left == 1) | ends)))
                & room_next
            ),
        ]
        with m.If(enters):
            m.d.sync += [words.eq(words >> p.step_bits), left.eq(Mux(ends, 0, left - 1))]
            m.d.sync += step.eq(Mux(ends, 0, step + 1))
        with m.If(load):
            m.d.sync += [words.eq(head[: p.burst_bits]), left.eq(p.burst_steps)]
        self._place(m, place, load, head[p.burst_bits : p.burst_bits + 16], enters, step)
        columns = [
            self._decoded(m, words.word_select(number, p.word_bits), enters, step)
            for number in range(p.outputs)
        ]
        if p.weight_stationary:
            self._weight_stationary(m, enters, ends, step, place, columns, room_now, room_next)
        else:
            self._output_stationary(m, enters, ends, step, place, columns, room_now, room_next)
        return m

    def _place(self, m: Module, place: Signal, load: Value, first: Value, enters: Value, step: Value) -> None:
        """The place of the activations for the step, or for the block, that enters."""
        p = self.parameters
        if p.weight_stationary:
            with m.If(enters & (step % p.rows == p.rows - 1)):
                m.d.sync += place.eq(place + self.tokens)
        else:
            with m.If(enters):
                m.d.sync += place.eq(place + 1)
        begins = step % p.rows == 0 if p.weight_stationary else 1
        ends_block = enters & (step % p.rows == p.rows - 1) if p.weight_stationary else 1
        with m.If(load & (begins & ~enters | ends_block)):
            m.d.sync += place.eq(first)

    def _decoded(self, m: Module, word: Value, enters: Value, step: Value) -> Value:
        """The weights that end in a word; those of a row go on where the word before ended."""
        p = self.parameters
        if p.word_bits % p.bits == 0:
            return word
        before, turn = Signal(p.word_bits), Signal(range(p.bits))
        with m.If(enters):
            m.d.sync += [before.eq(word), turn.eq(Mux(turn == p.bits - 1, 0, turn + 1))]
            with m.If(step == self.steps - 1):
                m.d.sync += turn.eq(0)
        choices = []
        for number in range(p.bits):
            first, end = p.ends(number)
            held = number * p.word_bits - first * p.bits  # bits of a weight that began in the word before
            choices.append(Cat(before[p.word_bits - held :], word)[: (end - first) * p.bits])
        size = p.weights * p.bits
        return Array(Cat(each, 0)[:size] if len(each) < size else each for each in choices)[turn]

    def _activations(self, m: Module, row: int, place: Value) -> Value:
        p = self.parameters
        m.submodules[f"buffer{row}"] = memory = Memory(shape=p.vector_bits, depth=p.depth, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(self.act_place),
            write.data.eq(self.act_data),
            write.en.eq(self.act_valid[row]),
            read.addr.eq(place),
        ]
        return read.data

    def _grid(self, m: Module, rows: list[Value], columns: list[Value]) -> list[list[dict[str, Value]]]:
        """The elements of all arrays, connected; [output][row]."""
        p = self.parameters
        grid = []
        for output, words in enumerate(columns):
            number, column = divmod(output, p.columns)
            elements = [
                add_part(m, f"element{number}_{row}_{column}", Element, p, self.apart)
                for row in range(p.rows)
            ]
            for row, element in enumerate(elements):
                right = rows[row] if column == 0 else grid[output - 1][row]["activation"]
                down = delayed(m, words, column) if row == 0 else elements[row - 1]["weight"]
                above = 0 if row == 0 else elements[row - 1]["sum"]
                m.d.comb += [
                    element["activation_in"].eq(right),
                    element["weight_in"].eq(down),
                    element["sum_in"].eq(above),
                ]
            grid.append(elements)
        return grid

    def _output_stationary(
        self,
        m: Module,
        enters: Value,
        ends: Value,
        step: Value,
        place: Value,
        columns: list[Value],
        room_now: Value,
        room_next: Value,
    ) -> None:
        p, turn = self.parameters, Signal()
        # Clocks until the last step of a tile, or with one register the first one, may enter.
        pause = 2 * p.rows + p.columns - 2 if p.stationary_registers == 1 else p.rows - 1
        wait = Signal(range(pause + 1))
        with m.If(ends):
            m.d.sync += [turn.eq(~turn), wait.eq(pause)]
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        if p.stationary_registers == 1:
            m.d.comb += [
                room_now.eq((step != 0) | (wait == 0)),
                room_next.eq(~ends & ((step != 0) | (wait <= 1))),
            ]
        else:
            m.d.comb += [room_now.eq((step != self.steps - 1) | (wait == 0)), room_next.eq(1)]
        words = [
            Cat(Mux(enters, each, 0)[: p.weights * p.bits], enters, step == 0, ends, turn) for each in columns
        ]
        rows = [delayed(m, Mux(enters, self._activations(m, row, place), 0), row) for row in range(p.rows)]
        grid = self._grid(m, rows, words)
        for output, elements in enumerate(grid):
            # The turn of the sums that leave: set when the last step has passed the lowest element.
            passes = grid[output | p.columns - 1 if p.stationary_registers == 1 else output][-1]["ends"]
            leaving = Signal(init=1)
            with m.If(passes[0]):
                m.d.sync += leaving.eq(passes[1])
            for row, element in enumerate(elements):
                m.d.comb += element["leaving"].eq(leaving)
                if row:
                    m.d.comb += [
                        element[f"{name}_in"].eq(elements[row - 1][name]) for name in ("done", "moves")
                    ]
            valid, out = Signal(), Signal(signed(p.sum_bits))
            m.d.sync += [valid.eq(elements[-1]["moves"]), out.eq(elements[-1]["sum"])]
            m.d.comb += [
                self.out_valid[output].eq(valid),
                self.out_sum.word_select(output, p.sum_bits).eq(out),
            ]

    def _weight_stationary(
        self,
        m: Module,
        enters: Value,
        ends: Value,
        step: Value,
        place: Value,
        columns: list[Value],
        room_now: Value,
        room_next: Value,
    ) -> None:
        p = self.parameters
        crossing = p.rows + p.columns - 1
        pending, busy, token, wait = Signal(), Signal(), Signal(p.token_bits), Signal(range(crossing + 1))
        of_pending, of_busy, now = Signal(18), Signal(18), Signal(18)  # place, first and last block of a tile
        valid, begins, last = Signal(), Signal(), Signal()
        in_block = step % p.rows
        block_ends = enters & (in_block == p.rows - 1)
        pending_next, busy_next, wait_next = Signal(), Signal(), Signal(range(crossing + 1))
        m.d.comb += [
            valid.eq(busy | pending),
            begins.eq(pending & ~busy),
            last.eq(valid & (token == self.tokens - 1)),
            now.eq(Mux(busy, of_busy, of_pending)),
            pending_next.eq(block_ends | (pending & busy)),
            busy_next.eq(valid & ~last),
            wait_next.eq(Mux(last, crossing - 1, Mux(wait != 0, wait - 1, 0))),
        ]
        m.d.sync += [pending.eq(pending_next), busy.eq(busy_next), wait.eq(wait_next)]
        with m.If(valid):
            m.d.sync += [token.eq(Mux(last, 0, token + 1)), of_busy.eq(now)]
        with m.If(block_ends):
            m.d.sync += of_pending.eq(Cat(place, step < p.rows, ends))
        if p.stationary_registers == 1:
            free, free_next = ~pending & ~busy & (wait == 0), ~pending_next & ~busy_next & (wait_next == 0)
        else:
            free, free_next = ~pending | begins, ~pending_next | ~busy_next
        next_in_block = Mux(enters, Mux(in_block == p.rows - 1, 0, in_block + 1), in_block)
        m.d.comb += [
            room_now.eq((in_block != 0) | free),
            room_next.eq((next_in_block != 0) | free_next),
        ]
        hops = Signal(16)  # to the row of the word
        m.d.comb += hops.eq(in_block)
        words = [Cat(Mux(enters, each, 0)[: p.weights * p.bits], enters, hops) for each in columns]
        address = (now[:16] + token)[:16]
        rows = [
            delayed(m, Cat(Mux(valid, self._activations(m, row, address), 0), valid, begins), row)
            for row in range(p.rows)
        ]
        grid = self._grid(m, rows, words)
        tag = delayed(m, Cat(valid, now[16], now[17], token), p.rows - 1)
        for output, elements in enumerate(grid):
            self._add_blocks(m, output, elements[-1], delayed(m, tag, output % p.columns))

    def _add_blocks(self, m: Module, output: int, lowest: dict[str, Value], tag: Value) -> None:
        """Add the sums of the blocks of a tile, token by token, in the clock after the lowest element."""
        p = self.parameters
        tag = delayed(m, tag, 1)
        valid, first, last, token = tag[0], tag[1], tag[2], tag[3:]
        m.submodules[f"sums{output}"] = sums = Memory(
            shape=signed(p.sum_bits), depth=1 << p.token_bits, init=[]
        )
        read, write = sums.read_port(domain="comb"), sums.write_port()
        total = Signal(signed(p.sum_bits))
        m.d.comb += [
            read.addr.eq(token),
            total.eq(lowest["sum"] + Mux(first, 0, read.data)),
            write.addr.eq(token),
            write.data.eq(total),
            write.en.eq(valid),
            self.out_valid[output].eq(valid & last),
            self.out_sum.word_select(output, p.sum_bits).eq(total),
        ]


def modules(parameters: Parameters) -> dict[str, wiring.Component]:
    """The modules of the unit by name, the last at the top; each is written once."""
    return {"element": Element(parameters), "unit": SystolicUnit(parameters, apart=True)}


def counts(parameters: Parameters) -> dict[str, int]:
    """How often each module is on the device."""
    elements = parameters.arrays * parameters.rows * parameters.columns
    return {"element": elements, "unit": parameters.lanes}
