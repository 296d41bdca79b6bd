"""What several units as hardware have in common (Amaranth)."""

from __future__ import annotations

from typing import Any

from amaranth import ClockSignal, Instance, Module, ResetSignal, Signal, Value
from amaranth.lib.wiring import In


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
    """Add a submodule, or an instance of the module of its class; returns its ports by name."""
    members = kind.ports(parameters)
    if not apart:
        m.submodules[name] = part = kind(parameters)
        return {port: getattr(part, port) for port in members}
    ports = {port: Signal(member.shape, name=f"{name}_{port}") for port, member in members.items()}
    connected = {
        f"{'i' if members[port].flow is In else 'o'}_{port}": signal for port, signal in ports.items()
    }
    m.submodules[name] = Instance(
        kind.__name__.lower(), i_clk=ClockSignal(), i_rst=ResetSignal(), **connected
    )
    return ports
