"""The unit of serial.v as an Amaranth class: ``ndpsim gemv --rtl examples/rtl/serial.py:Serial``."""

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

ROWS, VECTORS = 32, 512


class Serial(wiring.Component):
    """Takes a burst a clock in each lane; rows come out in their order. One token."""

    def __init__(self, lanes, burst_bits, bits, tokens):
        self.lanes, self.burst_bits, self.bits = lanes, burst_bits, bits
        self.act_bits = burst_bits // bits * 16
        wide = {"in_data": In(lanes * burst_bits), "in_row": In(lanes * 16), "in_vector": In(lanes * 16)}
        activations = {"act_valid": In(lanes), "act_vector": In(16), "act_data": In(self.act_bits)}
        control = {"go": In(1), "tokens": In(8), "row_bursts": In(16)}
        out = {"out_row": Out(16), "out_token": Out(1), "out_sum": Out(signed(48))}
        handshake = {"in_valid": In(lanes), "in_ready": Out(lanes), "out_valid": Out(1), "out_ready": In(1)}
        super().__init__({**wide, **activations, **control, **out, **handshake})

    def elaborate(self, platform):
        m = Module()
        first, leaves = Signal(16), Signal()
        sums, counts = zip(*(self._lane(m, lane, first, leaves) for lane in range(self.lanes)), strict=True)
        free = ~self.out_valid | self.out_ready
        m.d.comb += leaves.eq(self.go & free & (sum(counts) == self.row_bursts))
        m.d.sync += first.eq(Mux(self.go, first + leaves, 0))
        with m.If(leaves):
            m.d.sync += [self.out_valid.eq(1), self.out_row.eq(first), self.out_sum.eq(sum(sums))]
        with m.Elif(self.out_ready):
            m.d.sync += self.out_valid.eq(0)
        return m

    def _lane(self, m, lane, first, leaves):
        """Adds a lane; returns its sum of the first row, and the bursts in it."""
        m.submodules[f"buffer{lane}"] = buffer = Memory(shape=self.act_bits, depth=VECTORS, init=[])
        write, read = buffer.write_port(), buffer.read_port(domain="comb")
        row, data = self.in_row.word_select(lane, 16), self.in_data.word_select(lane, self.burst_bits)
        product = sum(
            data.word_select(n, self.bits).as_signed() * read.data.word_select(n, 16).as_signed()
            for n in range(self.burst_bits // self.bits)
        )
        m.submodules[f"sums{lane}"] = sums = Memory(shape=signed(48), depth=ROWS, init=[])
        m.submodules[f"counts{lane}"] = counts = Memory(shape=16, depth=ROWS, init=[])
        used, takes = Signal(ROWS), Signal()
        own, head, add = sums.read_port(domain="comb"), sums.read_port(domain="comb"), sums.write_port()
        seen, ends, count = (
            counts.read_port(domain="comb"),
            counts.read_port(domain="comb"),
            counts.write_port(),
        )
        here, done = used.bit_select(row[:5], 1), used.bit_select(first[:5], 1)
        m.d.comb += [
            *(port.addr.eq(row) for port in (own, add, seen, count)),
            *(port.addr.eq(first) for port in (head, ends)),
            write.addr.eq(self.act_vector),
            write.data.eq(self.act_data),
            write.en.eq(self.act_valid[lane]),
            read.addr.eq(self.in_vector.word_select(lane, 16)),
            self.in_ready[lane].eq(self.go & ((row - first)[:16] < ROWS)),
            takes.eq(self.in_valid[lane] & self.in_ready[lane]),
            add.data.eq(Mux(here, own.data, 0) + product),
            count.data.eq(Mux(here, seen.data, 0) + 1),
            add.en.eq(takes),
            count.en.eq(takes),
        ]
        with m.If(leaves):
            m.d.sync += used.bit_select(first[:5], 1).eq(0)
        with m.If(takes):
            m.d.sync += used.bit_select(row[:5], 1).eq(1)
        return Mux(done, head.data, 0), Mux(done, ends.data, 0)
