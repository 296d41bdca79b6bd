"""The energy model for the loops and examples of data sheets (validation/energy.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ndpsim.dram.energy import find_currents
from ndpsim.dram.spec import resolve
from scripts import script

VALIDATION = Path(__file__).parents[1] / "validation"
SCRIPT: Any = script("validation/energy.py")


@pytest.mark.parametrize("preset", SCRIPT.KNOWN, ids=" ".join)
def test_every_loop_of_a_data_sheet_draws_its_current(preset):
    device = resolve(*preset)
    loops = list(SCRIPT.measured(device, find_currents(device)))
    assert len(loops) == (7 if preset[0] == "DDR5" else 6)
    for name, sheet, ours in loops:
        assert ours == pytest.approx(sheet, rel=1e-12), name


def test_loops_that_the_model_is_not_made_from():
    # x8 at 2400 MT/s: clocks of 5/6 ns, tRAS 39, tRP 17, a burst 4, 16 banks in 4 x 26 clocks. An ACT with its
    # precharge and the bank's standby draws IDD0 for tRC.
    sheet = {name: ours for name, _, ours, _ in SCRIPT.predicted(*SCRIPT.SHEETS[0][1:])}
    row, burst = (48 - 34) * 56, (135 - 43) * 4
    assert sheet["IDD1, mA"] == pytest.approx(34 + (row + burst) / 56)
    assert sheet["IDD7, mA"] == pytest.approx(34 + 16 * (row + burst) / 104)
    assert sheet["IDD7, mW with VPP"] == pytest.approx(1.2 * sheet["IDD7, mA"] + 2.5 * 3)
    # By TN-40-07 a bank is open all the time.
    row = 48 * 56 - 43 * 39 - 34 * 17
    micron = {name: mA for name, _, _, mA in SCRIPT.predicted(*SCRIPT.SHEETS[0][1:])}
    assert micron["IDD7, mA"] == pytest.approx(43 + 16 * (row + burst) / 104)


def test_currents_of_the_sheet_are_those_that_are_known_of_the_part():
    _, device, chip, *_ = SCRIPT.SHEETS[0]
    known = find_currents(device)
    loops = ("IDD0", "IDD2N", "IDD3N", "IDD4R", "IDD4W", "IDD5B", "IPP0", "IPP3N", "IPP5B", "precharge_ns")
    assert {name: getattr(known, name) for name in loops} == {name: getattr(chip, name) for name in loops}


def test_microns_calculators_are_met_to_their_last_digit():
    for name, calculator, ours in SCRIPT.calculated():
        # A refresh among closed banks: they take off IDD3N where the standby is IDD2N.
        more = (45 - 42) * 1.5 * 160 / 7800 if name.startswith("REF") else 0
        assert ours - more == pytest.approx(calculator, abs=0.05), name
    for name, calculator, ours in SCRIPT.pins():
        assert ours == pytest.approx(calculator, abs=0.05), name


def test_the_committed_page_is_current():
    assert (VALIDATION / "energy.md").read_text(encoding="utf-8") == SCRIPT.text()
