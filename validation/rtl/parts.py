"""What several units as hardware have in common (Amaranth)."""

from __future__ import annotations

from typing import Any

from amaranth import ClockSignal, Instance, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In


class Sized(Component):
    """A component whose ports, and whatever is in it, follow from sizes; a subclass has `ports`.

    apart: its parts are instances of modules that are written once each, see `add_part`.
    """

    def __init__(self, parameters: Any, apart: bool = False) -> None:
        self.parameters, self.apart = parameters, apart
        super().__init__(self.ports(parameters))


def add_tree(m: Module, terms: list[Value], registers: int, advance: Value | int = 1) -> Value:
    """The sum of terms after this many registers, at even distances between the levels of adders."""
    levels = max(0, (len(terms) - 1).bit_length())
    for stage in range(registers):
        for _ in range(levels * (stage + 1) // registers - levels * stage // registers):
            terms = add_pairs(terms)
        held = [Signal(term.shape()) for term in terms]
        with m.If(advance):
            m.d.sync += [each.eq(term) for each, term in zip(held, terms, strict=True)]
        terms = list(held)
    while len(terms) > 1:  # without registers
        terms = add_pairs(terms)
    return terms[0]


def add_pairs(terms: list[Value]) -> list[Value]:
    """One level of adders."""
    pairs = [first + second for first, second in zip(terms[::2], terms[1::2], strict=False)]
    return pairs + terms[len(pairs) * 2 :]


def delayed(m: Module, value: Value, clocks: int) -> Value:
    """A value some clocks later."""
    for _ in range(clocks):
        later = Signal(value.shape())
        m.d.sync += later.eq(value)
        value = later
    return value


def add_part(m: Module, name: str, kind: type[Any], parameters: Any, apart: bool) -> dict[str, Value]:
    """Add a submodule, or an instance of the module of its class; returns its ports by name.

    A class without registers, whose module has no clock, says so: `has_registers = False`.
    """
    members = kind.ports(parameters)
    if not apart:
        m.submodules[name] = part = kind(parameters)
        return {port: getattr(part, port) for port in members}
    ports = {port: Signal(member.shape, name=f"{name}_{port}") for port, member in members.items()}
    connected = {
        f"{'i' if members[port].flow is In else 'o'}_{port}": signal for port, signal in ports.items()
    }
    if getattr(kind, "has_registers", True):
        connected |= {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
    m.submodules[name] = Instance(kind.__name__.lower(), **connected)
    return ports


def add_fifo(
    m: Module, name: str, depth: int, comes: Value, entry: Value, takes: Value
) -> tuple[Value, Value, Value]:
    """Add a FIFO; returns its first entry, whether there is one, and whether there is room for another.

    An entry that finds it empty can be taken in the clock in which it comes. `takes`: the first is taken.
    """
    m.submodules[name] = memory = Memory(shape=len(entry), depth=depth, init=[])
    read, write = memory.read_port(domain="comb"), memory.write_port()
    first, after, level = (Signal(range(max(2, size))) for size in (depth, depth, depth + 1))
    head, leaves, is_there = Signal(len(entry)), Signal(), Signal()
    m.d.comb += [
        read.addr.eq(first),
        head.eq(Mux(level == 0, entry, read.data)),
        is_there.eq((level != 0) | comes),
        write.addr.eq(after),
        write.data.eq(entry),
        write.en.eq(comes & ((level != 0) | ~takes) & (level != depth)),
        leaves.eq(takes & (level != 0)),
    ]
    with m.If(write.en):
        m.d.sync += after.eq(Mux(after == depth - 1, 0, after + 1))
    with m.If(leaves):
        m.d.sync += first.eq(Mux(first == depth - 1, 0, first + 1))
    m.d.sync += level.eq(level + write.en - leaves)
    return head, is_there, level != depth
