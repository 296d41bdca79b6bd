"""The size of a GEMV unit without synthesis: from its terms, which were fitted to units that were synthesised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ndpsim.config import load_hardware
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.studies.rtl import METRICS, fit, unit_size
from ndpsim.studies.sweeps.commands.gemv import COMMAND
from ndpsim.workload.models import Expert

SIZES, FOUND = fit()
UNITS = [(SIZES.Parameters(**unit["sizes"]), unit["gates"]) for unit in FOUND["units"]]
PAPER = UNITS[0][0]


def size(*sets, hw="trimoe", bits=16, tokens=1):
    return unit_size(
        load_hardware(hw, sets, "gemv"), "qwen3-30b-a3b", ExpertFormat.of(bits), "localized", tokens
    )


def test_units_that_were_synthesised_have_their_gates():
    """The fit itself; `most_error` is that of a unit that the others predict."""
    for sizes, gates in UNITS:
        true = sum(number * gates[module] for module, number in SIZES.counts(sizes).items())
        assert SIZES.gates(sizes, FOUND["factors"]) == pytest.approx(true, rel=FOUND["most_error"])
    assert 0 < FOUND["mean_error"] < FOUND["most_error"] < 0.1
    assert FOUND["paper_error"] <= FOUND["most_error"]


def test_bits_of_memories_by_hand():
    """8 lanes of 8 groups: FIFOs of 4 bursts with row, place and phase, 256 KiB, and 32 open rows a group."""
    fifos = 8 * 8 * 4 * (512 + 16 + 16 + 1)
    open_rows = 8 * 8 * 64 * (46 + 16)
    assert SIZES.memory_bits(PAPER) == fifos + 256 * 8192 + open_rows
    # That of `ndpsim rtl trimoe_gemv --synth`, whose rows are of 128 bursts.
    assert SIZES.memory_bits(replace(PAPER, window=16)) == 139_520 + 2_097_152 + 94_208 + 32_768


def test_adders_and_registers_of_a_tree_by_hand():
    """8 terms of 16 bits with a register a level; 3 of 8 bits without: an adder of 9 bits, and one of 10."""
    assert SIZES._tree(8, 16, 3) == (4 * 17 + 2 * 18 + 19,) * 2
    assert SIZES._tree(3, 8, 0) == (9 + 10, 0)


@pytest.mark.parametrize(
    ("changed", "terms"),
    [
        ({"bit_serial_cycles": 4}, {"products": 4, "product adders": float("inf")}),
        ({"multipliers": 8}, {"parts of a burst": float("inf"), "products": 1 / 4}),
        ({"window": 64}, {"open rows": 2}),
    ],
)
def test_terms_of_a_group_grow_with_what_they_are_of(changed, terms):
    before, after = (SIZES.terms(sizes)["group"] for sizes in (PAPER, replace(PAPER, **changed)))
    grown = {
        name: after[name] / before[name] if before[name] else float("inf")
        for name in after
        if after[name] != before[name]
    }
    assert {name: grown[name] for name in terms} == terms


def test_the_area_is_that_of_gates_and_memories_in_the_first_process():
    """By hand: 0.05832 um2 a gate at 70% utilisation, 0.027 um2 a bit."""
    gates, bits, area = size().values()
    assert area == pytest.approx((gates * 0.05832 / 0.7 + bits * 0.027) / 1e6)
    assert gates == pytest.approx(1.6e6, rel=0.1)


def test_faster_products_and_deeper_fifos_are_larger():
    areas = [size(f"ndp.gemv.bit_serial_cycles={cycles}")["rtl_area_mm2"] for cycles in (16, 8, 4, 2)]
    assert areas == sorted(areas)
    bits = [size(f"ndp.gemv.fifo_bursts={bursts}")["rtl_memory_bits"] for bursts in (8, 16, 64)]
    assert bits == sorted(bits)
    assert bits[1] - bits[0] >= 8 * 8 * 545


@pytest.mark.parametrize(
    ("hw", "sets", "bits"),
    [("cxl", (), 16), ("trimoe", (), 3), ("trimoe", ("ndp.gemv.adder_tree_cycles=1",), 16)],
)
def test_units_without_hardware_have_no_size(hw, sets, bits):
    assert size(*sets, hw=hw, bits=bits) == dict.fromkeys(METRICS)


def test_a_point_of_a_sweep_has_the_size_of_its_unit():
    row = COMMAND.measure({"shape": "256,128", "tokens": 2, "bits": 8, "dimm.ranks": 1})
    found = unit_size(
        load_hardware("trimoe", ("dimm.ranks=1",), "gemv"), Expert(256, 128), ExpertFormat.of(8), tokens=2
    )
    assert {name: row[name] for name in METRICS} == found
    assert found["rtl_area_mm2"] > 0
    assert COMMAND.measure({"shape": "256,128", "hw": "cxl"})["rtl_area_mm2"] is None


def test_a_point_is_another_one_if_sizes_come_from_other_files(monkeypatch):
    before = COMMAND.resolve({"shape": "256,128"}).key
    assert COMMAND.resolve({"shape": "256,128"}).key == before
    monkeypatch.setattr("ndpsim.studies.sweeps.commands.gemv.data_digest", lambda: "other")
    assert COMMAND.resolve({"shape": "256,128"}).key != before
