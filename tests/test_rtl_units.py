"""Activation units, systolic arrays, packets and units in banks as hardware, against their models."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from ndpsim.config import load_hardware
from ndpsim.dimm.units import ActivationUnit
from scripts import script

pytest.importorskip("amaranth", reason="needs the extra rtl")

from ndpsim.simulate.rtl import units

COMPARE: Any = script("validation/rtl/compare_units.py")

# ---- Activation units

ACTIVATION: Any = units.hardware_module("trimoe_activation")


def rows_of(tokens, rows=12, seed=1):
    random = np.random.default_rng(seed)
    gates, ups = random.integers(-(1 << 13), 1 << 13, (2, rows, tokens))
    return np.cumsum(random.integers(0, 9, rows)), gates, ups


def activated(model, tokens, stalled=frozenset(), **changed):
    ready, gates, ups = rows_of(tokens)
    sizes = replace(ACTIVATION.Parameters(**asdict(model)), **changed)
    return ready, COMPARE.activate(ACTIVATION, ACTIVATION.ActivationUnit(sizes), ready, gates, ups, stalled)


@pytest.mark.parametrize("hw", ["trimoe", "edge", "cxl"])
def test_activation_units_start_and_end_each_row_as_their_models(hw):
    section = load_hardware(hw, (), "gemv").ndp.activation
    model = ActivationUnit(4, section.cycles_per_value, section.latency_cycles)  # fewer side by side
    ready, hardware = activated(model, 9)
    assert COMPARE.compare_activation(model, hardware, ready, 9) == []


@pytest.mark.parametrize(
    ("units_", "cycles", "latency", "tokens"), [(2, 3, 5, 1), (1, 1, 30, 3), (3, 2, 1, 7)]
)
def test_other_activation_units_are_equal(units_, cycles, latency, tokens):
    model = ActivationUnit(units_, cycles, latency)
    ready, hardware = activated(model, tokens)
    assert COMPARE.compare_activation(model, hardware, ready, tokens) == []


@pytest.mark.parametrize("changed", [{"latency_cycles": 6}, {"cycles_per_value": 3}])
def test_another_clock_of_an_activation_unit_is_seen(changed):
    model = ActivationUnit(4, 2, 5)
    ready, hardware = activated(model, 9, **changed)
    differences = COMPARE.compare_activation(model, hardware, ready, 9)
    assert any(each.startswith("end of row") for each in differences)


def test_activated_values_are_those_of_numpy():
    """Fixed point: within 2^-13 of gate times up, where these are at least 1."""
    _, gates, ups = rows_of(9)
    _, hardware = activated(ActivationUnit(4, 1, 12), 9)
    gate, up = gates / 2**10, ups / 2**10
    wanted = gate / (1 + np.exp(-gate)) * up
    bound = np.maximum(1, abs(gate)) * np.maximum(1, abs(up)) * 2**-13
    assert (abs(hardware.results / 2**16 - wanted) <= bound).all()


def test_nothing_is_lost_when_results_cannot_leave():
    stalled = frozenset(np.random.default_rng(2).integers(0, 120, 60).tolist())
    _, free = activated(ActivationUnit(4, 1, 12), 9)
    _, waiting = activated(ActivationUnit(4, 1, 12), 9, stalled)
    assert np.array_equal(free.results, waiting.results)
    assert waiting.ends[-1] > free.ends[-1]
