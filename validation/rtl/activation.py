"""The activation unit as hardware: SiLU(gate) x up in pipelines side by side (Amaranth).

A row has a pair of gate and up for each token. The unit takes `units` pairs at once into its input registers
and holds them there for `cycles_per_value` clocks; then they pass `latency_cycles` registers. If results
cannot leave, everything waits.

SiLU(g) is g / (1 + e^-g). The steps are those of the parameter file: the exponent of -|g| (4), a sum and a
first guess of its reciprocal (2), two of Newton's steps for the reciprocal (4), and two products (2). With
other than 12 registers these are at even distances between the steps.

Numbers are of fixed point: gate and up signed, of 16 bits, 10 of them behind the point; results of 32 bits,
16 behind the point. The unit of the paper has FP16 instead; this is a stated simplification.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth import Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ndpsim.simulate.rtl.build import load_module

_PARTS: Any = load_module(Path(__file__).with_name("parts.py"))
Sized, add_part = _PARTS.Sized, _PARTS.add_part

#: Bits behind the point of gate and up, within the unit, and of a result.
FRACTION, INNER, RESULT = 10, 16, 16
BITS, RESULT_BITS = 16, 32
_HELD = 14  # bits behind the point of SiLU before the last product

_LOG2_E = round(1.4426950408889634 * 2**14)
# 2^-f = 1 - f (c1 - f (c2 - f c3)) for f from 0 to 1, exact at both ends; at most 7.4e-5 away.
_EXPONENT = [round(c * 2**INNER) for c in (0.6916773, 0.2312997, 0.0396224)]
_GUESS = round(1.4571 * 2**INNER)  # 1/d is about 1.4571 - d/2 for d from 1 to 2


@dataclass(frozen=True)
class Parameters:
    """Sizes of the unit; keys as in `rtl_params`."""

    units: int
    cycles_per_value: int
    latency_cycles: int

    def __post_init__(self) -> None:
        if self.latency_cycles < 1:
            raise ValueError(f"latency_cycles: {self.latency_cycles} is too few, 1 is the least")


Values = dict[str, Value]
_SHAPES: dict[str, Shape] = {
    "gate": signed(BITS),
    "up": signed(BITS),
    "turns": unsigned(6),  # |g| log2 e: the whole part
    "f": unsigned(INNER),  # and the rest
    "inner": signed(INNER + 2),
    "power": unsigned(INNER + 1),  # e^-|g|
    "d": unsigned(INNER + 2),
    "y": unsigned(INNER + 1),  # its reciprocal
    "dy": unsigned(INNER + 2),
    "silu": signed(BITS - FRACTION + _HELD),
    "result": signed(RESULT_BITS),
}


def _scaled(product: Value) -> Value:
    return product >> INNER


def _newton(v: Values) -> Values:
    return {"dy": _scaled(v["d"] * v["y"])}


def _newton_end(v: Values) -> Values:
    return {"y": _scaled(v["y"] * ((2 << INNER) - v["dy"])[: INNER + 2])}


def _log2(v: Values) -> Values:
    size = Mux(v["gate"] < 0, -v["gate"], v["gate"])[: BITS + 1]
    turns = (size * _LOG2_E) >> (FRACTION + 14 - INNER)
    return {"turns": turns[INNER : INNER + 6], "f": turns[:INNER]}


def _silu(v: Values) -> Values:
    share = Mux(v["gate"] < 0, (1 << INNER) - v["y"], v["y"])[: INNER + 1]
    return {"silu": (v["gate"] * share) >> (FRACTION + INNER - _HELD)}


#: What each step adds to the values of the one before, and those that later steps need.
STEPS: tuple[tuple[Callable[[Values], Values], str], ...] = (
    (_log2, "gate up turns f"),
    (lambda v: {"inner": _EXPONENT[1] - _scaled(v["f"] * _EXPONENT[2])}, "gate up turns f inner"),
    (lambda v: {"inner": _EXPONENT[0] - _scaled(v["f"] * v["inner"])}, "gate up turns f inner"),
    (
        lambda v: {"power": ((1 << INNER) - _scaled(v["f"] * v["inner"]))[: INNER + 1] >> v["turns"]},
        "gate up power",
    ),
    (lambda v: {"d": (1 << INNER) + v["power"]}, "gate up d"),
    (lambda v: {"y": _GUESS - (v["d"] >> 1)}, "gate up d y"),
    (_newton, "gate up d y dy"),
    (_newton_end, "gate up d y"),
    (_newton, "gate up y dy"),
    (_newton_end, "gate up y"),
    (_silu, "up silu"),
    (lambda v: {"result": (v["silu"] * v["up"]) >> (FRACTION + _HELD - RESULT)}, "result"),
)


class Pipeline(Sized):
    """The steps for one pair, with their registers, behind the input register."""

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        return {
            "load": In(1),
            "advance": In(1),
            "gate": In(signed(BITS)),
            "up": In(signed(BITS)),
            "result": Out(signed(RESULT_BITS)),
        }

    def elaborate(self, platform: object) -> Module:
        m, registers = Module(), self.parameters.latency_cycles
        values = self._registered(m, {"gate": self.gate, "up": self.up}, self.load)
        for number, (step, kept) in enumerate(STEPS):
            found = {**values, **step(values)}
            values = {}
            for name in kept.split():
                values[name] = Signal(_SHAPES[name], name=f"{name}{number}")
                m.d.comb += values[name].eq(found[name])
            for _ in range(registers * (number + 1) // len(STEPS) - registers * number // len(STEPS)):
                values = self._registered(m, values, self.advance)
        m.d.comb += self.result.eq(values["result"])
        return m

    def _registered(self, m: Module, values: Values, enable: Value) -> Values:
        held: Values = {name: Signal(_SHAPES[name]) for name in values}
        with m.If(enable):
            m.d.sync += [held[name].eq(values[name]) for name in values]
        return held


class ActivationUnit(Sized):
    """The unit: `units` pairs of a row at once.

    A beat is taken at an edge at which `in_valid` and `in_ready` are 1, and its results leave at one at which
    `out_valid` and `out_ready` are 1; `tag` comes with both.
    """

    @staticmethod
    def ports(p: Parameters) -> dict[str, Any]:
        return {
            "in_valid": In(1),
            "in_ready": Out(1),
            "in_gate": In(p.units * BITS),
            "in_up": In(p.units * BITS),
            "in_tag": In(32),
            "out_valid": Out(1),
            "out_ready": In(1),
            "out_value": Out(p.units * RESULT_BITS),
            "out_tag": Out(32),
        }

    def elaborate(self, platform: object) -> Module:
        p, m = self.parameters, Module()
        held, clock, advance, leaves = Signal(), Signal(range(max(2, p.cycles_per_value))), Signal(), Signal()
        load, tag = Signal(), Signal(32)
        m.d.comb += [
            advance.eq(~self.out_valid | self.out_ready),
            leaves.eq(held & advance & (clock == p.cycles_per_value - 1)),
            self.in_ready.eq(~held | leaves),
            load.eq(self.in_valid & self.in_ready),
        ]
        with m.If(held & advance):
            m.d.sync += clock.eq(Mux(leaves, 0, clock + 1))
        with m.If(leaves):
            m.d.sync += held.eq(0)
        with m.If(load):
            m.d.sync += [held.eq(1), tag.eq(self.in_tag)]
        valid, of_stage = leaves, tag
        for _ in range(p.latency_cycles):
            new_valid, new_tag = Signal(), Signal(32)
            with m.If(advance):
                m.d.sync += [new_valid.eq(valid), new_tag.eq(of_stage)]
            valid, of_stage = new_valid, new_tag
        m.d.comb += [self.out_valid.eq(valid), self.out_tag.eq(of_stage)]
        for number in range(p.units):
            pipeline = add_part(m, f"pipeline{number}", Pipeline, p, self.apart)
            m.d.comb += [
                pipeline["load"].eq(load),
                pipeline["advance"].eq(advance),
                pipeline["gate"].eq(self.in_gate.word_select(number, BITS)),
                pipeline["up"].eq(self.in_up.word_select(number, BITS)),
                self.out_value.word_select(number, RESULT_BITS).eq(pipeline["result"]),
            ]
        return m


def modules(parameters: Parameters) -> dict[str, wiring.Component]:
    """The modules of the unit by name, the last at the top; each is written once."""
    return {"pipeline": Pipeline(parameters), "unit": ActivationUnit(parameters, apart=True)}


def counts(parameters: Parameters) -> dict[str, int]:
    """How often each module is in the unit."""
    return {"pipeline": parameters.units, "unit": 1}
