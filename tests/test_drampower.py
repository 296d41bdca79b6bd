"""The energy of command traces against DRAMPower's (validation/drampower.csv)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts import script

VALIDATION = Path(__file__).parents[1] / "validation"
SCRIPT: Any = script("validation/drampower.py")
STORED = SCRIPT.stored()
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


def test_the_committed_page_is_current():
    assert (VALIDATION / "drampower.md").read_text(encoding="utf-8") == SCRIPT.text()
