"""The unit at a bank of a memory with units in its banks (AiM), as hardware (Amaranth).

A column of the bank and one of the global buffer come with a command. Their products, the levels of an adder
tree and the sum in the accumulator have a register each. A command to a register reads or writes an
accumulator in one clock: it does not wait for products that are on their way.

Numbers are signed integers of an element's bits, a stated simplification: the units of AiM have BF16.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ndpsim.simulate.rtl.build import load_module

_PARTS: Any = load_module(Path(__file__).with_name("parts.py"))
Sized, add_tree, delayed = _PARTS.Sized, _PARTS.add_tree, _PARTS.delayed


@dataclass(frozen=True)
class Parameters:
    """Sizes of the unit; keys as in `unit` of a file of `hwconfigs/banks`.

    Attributes:
        tree_registers: registers of the adder tree; 0: one a level.
    """

    multipliers: int
    element_bytes: int
    accumulators: int
    tree_registers: int = 0

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return 8 * self.element_bytes

    @property
    def registers(self) -> int:
        """Clocks from a command to the accumulator: inputs, products, the tree and the sum."""
        return 3 + (self.tree_registers or (self.multipliers - 1).bit_length())

    @property
    def sum_bits(self) -> int:
        """Bits of a sum of up to 2^16 products."""
        return 2 * self.bits + 16

    @property
    def place_bits(self) -> int:
        return max(1, (self.accumulators - 1).bit_length())


class BankUnit(Sized):
    """The unit. `out_complete`: no product for the accumulator that is read is on its way."""

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        return {
            "mac_valid": In(1),
            "mac_place": In(p.place_bits),
            "mac_column": In(p.multipliers * p.bits),
            "mac_vector": In(p.multipliers * p.bits),
            "write_valid": In(1),
            "write_place": In(p.place_bits),
            "write_sum": In(signed(p.sum_bits)),
            "read_place": In(p.place_bits),
            "out_sum": Out(signed(p.sum_bits)),
            "out_complete": Out(1),
        }

    def elaborate(self, platform: object) -> Module:
        p, m = self.parameters, Module()
        column, vector = Signal(len(self.mac_column)), Signal(len(self.mac_vector))
        m.d.sync += [column.eq(self.mac_column), vector.eq(self.mac_vector)]
        products = []
        for number in range(p.multipliers):
            product = Signal(signed(2 * p.bits))
            first, second = (each.word_select(number, p.bits).as_signed() for each in (column, vector))
            m.d.sync += product.eq(first * second)
            products.append(product)
        total = add_tree(m, products, p.registers - 3)
        m.submodules.sums = sums = Memory(shape=signed(p.sum_bits), depth=p.accumulators, init=[])
        own, read, write = sums.read_port(domain="comb"), sums.read_port(domain="comb"), sums.write_port()
        valid, place, on_way = self.mac_valid, self.mac_place, []
        for _ in range(p.registers - 1):
            valid, place = delayed(m, valid, 1), delayed(m, place, 1)
            on_way.append(valid & (place == self.read_place))
        m.d.comb += [
            own.addr.eq(place),
            read.addr.eq(self.read_place),
            write.addr.eq(Mux(valid, place, self.write_place)),
            write.data.eq(Mux(valid, own.data + total, self.write_sum)),
            write.en.eq(valid | self.write_valid),
            self.out_sum.eq(read.data),
        ]
        waits: Any = 0
        for each in on_way:
            waits = waits | each
        m.d.comb += self.out_complete.eq(~waits)
        return m


def modules(parameters: Parameters) -> dict[str, wiring.Component]:
    """The modules of the unit by name; it is one."""
    return {"unit": BankUnit(parameters)}


def counts(parameters: Parameters) -> dict[str, int]:
    """How often each module is in the unit of a bank."""
    return {"unit": 1}
