"""Units as hardware: equal to their models clock by clock, and wrong ones are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ndpsim.config import load_hardware
from ndpsim.dimm.layout import ExpertWeights
from ndpsim.simulate.machine import lower_machine, named_weights, place_on_dimms
from ndpsim.workload.models import Expert
from scripts import script

pytest.importorskip("amaranth", reason="needs the extra rtl")

from ndpsim.simulate.rtl import loop, units
from ndpsim.simulate.rtl.amaranth import AmaranthUnit

COMPARE: Any = script("validation/rtl/compare.py")
SMALL = ("dimm.ranks=1", "ndp.gemv.multipliers=8", "ndp.gemv.fifo_bursts=6")


class Case:
    """A small machine and an expert on it, with the sizes of its unit."""

    def __init__(self, hidden=64, intermediate=32, tokens=1, sets=SMALL, bits=16, hw="trimoe"):
        self.tokens = tokens
        self.machine = lower_machine(load_hardware(hw, sets, "gemv"))
        self.weights, _ = named_weights(Expert(hidden, intermediate), bits)
        assert isinstance(self.weights, ExpertWeights)
        self.expert = place_on_dimms(self.machine, "localized", self.weights)
        self.module = units.hardware_module("trimoe_gemv")
        most = max(self.machine.unit.tile(tokens, hidden, self.expert.slice))
        self.sizes = units.machine_parameters(self.module, self.machine, self.expert, most)
        self.ports = loop.sizes_of(self.machine, bits, most)

    def unit(self, sizes=None):
        return AmaranthUnit(self.module.GemvUnit(sizes or self.sizes), self.ports, True)

    def compare(self, unit=None):
        return COMPARE.compare(self.machine, self.weights, self.tokens, self.expert, unit or self.unit())


@pytest.fixture(scope="module")
def case():
    return Case()


def test_the_gemv_unit_equals_its_model_clock_by_clock(case):
    compared = case.compare()
    assert compared.differences == []
    assert compared.full_clocks > 0, "the FIFO held reads back"


def test_low_bits_and_several_tokens_are_equal():
    sets = (*SMALL, "ndp.gemv.bit_serial_cycles=8", "ndp.gemv.adder_tree_cycles=5", "ndp.gemv.clock_mhz=700")
    assert Case(64, 64, 2, sets, bits=8).compare().differences == []


def test_one_more_clock_is_seen(case):
    slower = replace(case.sizes, bit_serial_cycles=case.sizes.bit_serial_cycles + 1)
    differences = case.compare(case.unit(slower)).differences
    assert any("burst" in each for each in differences)
    assert any("row" in each for each in differences)


def test_one_more_level_of_registers_is_seen(case):
    later = replace(case.sizes, adder_tree_cycles=case.sizes.adder_tree_cycles + 1)
    assert any("phase 0, row 0: clock" in each for each in case.compare(case.unit(later)).differences)


def test_a_wrong_sign_is_seen(case, monkeypatch):
    add = case.module.Group._add

    def unsigned(self, m, products, valid, clock, is_top, place):
        add(self, m, products, valid, clock, 0, place)

    monkeypatch.setattr(case.module.Group, "_add", unsigned)
    with pytest.raises(loop.UnitError, match=r"row \d+, token 0: the sum is -?\d+, not -?\d+, at clock \d+"):
        case.compare(case.unit())


def test_a_lost_burst_is_seen(case, monkeypatch):
    monkeypatch.setattr(loop, "STUCK_EDGES", 300)
    unit = case.unit()
    add = unit.add_bursts

    def lossy(lane, fields):
        kept = (fields[:, 4] != 5) | (fields[:, 3] != 0)
        add(lane[kept], fields[kept])

    unit.add_bursts = lossy
    with pytest.raises(loop.UnitError, match=r"the unit took \d+ of 128 bursts of the phase, and no more"):
        case.compare(unit)


def test_a_full_fifo_that_gets_a_burst_is_named(case):
    smaller = replace(case.sizes, fifo_bursts=2)
    with pytest.raises(
        loop.UnitError, match=r"lane \d: a burst arrives, but in_ready is 0: its data is lost"
    ):
        case.compare(case.unit(smaller))
