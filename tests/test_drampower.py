"""The energy of command traces against DRAMPower's (validation/drampower.csv)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ndpsim.energy import channel_energy
from scripts import script

VALIDATION = Path(__file__).parents[1] / "validation"
SCRIPT: Any = script("validation/drampower.py")
STORED = SCRIPT.stored()
DDR4_MIXED = SCRIPT.WORKLOADS[5]
#: DRAMPower takes PREs that reach refreshed banks for precharges, as validation/drampower.md says.
PRECHARGED_IN_REFRESH = {
    "DDR4, a third writes, rows closed, 4 ranks": 17,
    "DDR5, a third writes, rows closed, 2 ranks": 33,
}


@pytest.mark.parametrize("workload", SCRIPT.WORKLOADS, ids=lambda workload: workload.name)
def test_energy_is_that_of_drampower(workload):
    stored = STORED[workload.name]
    assert len(SCRIPT.trace_of(workload)[0]) == stored["commands"], (
        "another trace: run validation/drampower.py"
    )
    assert SCRIPT.refreshed_and_precharged(workload)[0] == PRECHARGED_IN_REFRESH.get(workload.name, 0)
    errors = SCRIPT.errors(SCRIPT.as_drampower_counts(workload), stored, workload)
    assert set(errors) == {"activate", "read", "write", "refresh and background", "io", "sum"}
    assert SCRIPT.within(errors, workload), errors
    plain = SCRIPT.errors(SCRIPT.ours(workload), stored, workload)
    assert SCRIPT.within(plain, workload) == (workload.name not in PRECHARGED_IN_REFRESH)


def test_every_workload_of_the_table_is_there():
    assert list(STORED) == [workload.name for workload in SCRIPT.WORKLOADS]


def _red(workload: Any, component: str) -> bool:
    errors = SCRIPT.errors(SCRIPT.ours(workload), STORED[workload.name], workload)
    return not SCRIPT.within({component: errors[component]}, workload)


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("IDD0", "activate"),
        ("IDD2N", "refresh and background"),
        ("IDD3N", "refresh and background"),
        ("IDD4R", "read"),
        ("IDD4W", "write"),
        ("IDD5B", "refresh and background"),
        ("VPP", "refresh and background"),
        ("VDDQ", "io"),
        ("precharge_ns", "activate"),
        ("termination_ohm", "io"),
    ],
)
def test_a_tenth_more_of_a_current_voltage_or_time_is_seen(name, component, monkeypatch):
    workload, of = DDR4_MIXED, SCRIPT.currents_in_clocks
    assert not _red(workload, component)
    monkeypatch.setattr(
        SCRIPT,
        "currents_in_clocks",
        lambda device: replace(of(device), **{name: 1.1 * getattr(of(device), name)}),
    )
    assert _red(workload, component)


@pytest.mark.parametrize(
    ("cost", "component"),
    [
        ("activate", "activate"),
        ("read", "read"),
        ("write", "write"),
        ("refresh", "refresh and background"),
        ("closed", "refresh and background"),
        ("open_bank", "refresh and background"),
        ("io", "io"),
    ],
)
def test_a_tenth_more_for_a_command_or_a_clock_is_seen(cost, component, monkeypatch):
    def dearer(*of: Any) -> Any:
        energy = channel_energy(*of)
        return replace(energy, **{cost: 1.1 * getattr(energy, cost)})

    assert not _red(DDR4_MIXED, component)
    monkeypatch.setattr("ndpsim.energy.traces.channel_energy", dearer)
    assert _red(DDR4_MIXED, component)


def test_the_committed_page_is_current():
    assert (VALIDATION / "drampower.md").read_text(encoding="utf-8") == SCRIPT.text()
