"""`--rules standard` against commands of the corrected pages of Ramulator 2.1 (validation/ramulator2/corrected).

A case may set values that differ on purpose; `corrected/set` has them, and the reason of each.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dram.traces import read_requests
from ndpsim.simulate import Memory, run_requests
from test_memories import COUNTERS, text_until

CORRECTED = Path(__file__).parents[1] / "validation" / "ramulator2" / "corrected"
#: `test_lpddr5` and `test_lpddr6` have those of LPDDR.
CASES = [case for case in sorted(CORRECTED.glob("*.yaml")) if not case.stem.startswith("lpddr")]
PAGES = [yaml.safe_load(page.read_text()) for page in sorted((CORRECTED / "set").glob("*.yaml"))]
SETS = {name: values for page in PAGES for name, values in page["cases"].items()}

KNOWN = {field.name for field in fields(ControllerOptions)}
GIVEN = ("scheduler", "row_policy", "row_cap", "refresh", "read_buffer", "write_buffer", "wck")


def options_of(facts: dict) -> ControllerOptions:
    options = {name: facts[name] for name in GIVEN if name in facts}
    if "refresh_control" in KNOWN:
        options["refresh_control"] = "reference"
    if "rfm" in facts:
        options["rfm"] = {"ab": "all-bank", "sb": "same-bank"}[facts["rfm"]["mode"]]
        options["rfm_threshold"] = facts["rfm"]["threshold"]
    return ControllerOptions(**options)


def test_there_are_cases():
    names = {case.stem for case in CASES}
    assert sum(name.startswith("ddr4") for name in names) == 4
    assert sum(name.startswith("ddr5") and "rfm" not in name for name in names) == 9
    assert sum("rfm" in name for name in names) == 2
    assert set(SETS) <= names


@pytest.mark.parametrize("page", PAGES)
def test_every_value_that_is_set_has_a_reason(page):
    assert {name for values in page["cases"].values() for name in values} == set(page["reasons"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_commands_and_counters_equal_the_corrected_page(case):
    facts = yaml.safe_load(case.read_text())
    place = (facts[name] for name in ("standard", "org", "timing", "ranks"))
    set_values = SETS.get(case.stem, {})
    memory = Memory.named(*place, set_values, facts["mapper"], options=options_of(facts), rules="standard")
    result = run_requests(
        read_requests(case.with_suffix("").with_suffix(".trace.gz")), memory, record_commands=True
    )
    accepted = result.accepted
    assert accepted["cycles"] == facts["cycles"]
    for counter in COUNTERS:
        assert accepted[counter] == facts[counter], counter
    assert accepted["commands"] == facts["commands"]
    commands = text_until(result, memory, facts["cycles"])
    assert hashlib.sha256(commands).hexdigest() == facts["sha256"]
