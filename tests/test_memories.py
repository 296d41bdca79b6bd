"""LPDDR5, HBM3 and GDDR6 against reference command traces of Ramulator 2.1 (validation/ramulator2/memories)."""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
import yaml

from ndpsim.dram.state import ControllerOptions
from ndpsim.simulate import Memory, TraceResult, run_requests
from ndpsim.traces import read_requests

REFERENCE = Path(__file__).parents[1] / "validation" / "ramulator2" / "memories"
CASES = sorted(REFERENCE.glob("*.yaml"))
RUN = [case for case in CASES if case.stem.startswith(("gddr6", "lpddr5"))]

COUNTERS = ("row_hits", "row_misses", "row_conflicts", "reads_forwarded", "writes_coalesced")
OF_LPDDR5 = ("cas_issued", "cas_skipped", "act2_deadline_forced", "act2_deferred")
COLUMNS = {
    4: ["clock", "command", "rank", "bankgroup", "bank", "row", "column"],
    5: ["clock", "command", "pseudochannel", "stack", "bankgroup", "bank", "row", "column"],
}


def memory_of(facts: dict) -> Memory:
    """The memory of a case, with the rules of the reference."""
    names = ("scheduler", "row_policy", "row_cap", "refresh", "read_buffer", "write_buffer", "wck")
    options = ControllerOptions(**{name: facts[name] for name in names if name in facts})
    place = (facts[name] for name in ("standard", "org", "timing", "ranks", "overrides", "mapper"))
    return Memory.named(*place, options=options, rules="reference")


def run(case: Path, exact_check: bool = False) -> tuple[dict, TraceResult, Memory]:
    facts = yaml.safe_load(case.read_text())
    memory = memory_of(facts)
    requests = read_requests(case.with_suffix("").with_suffix(".trace.gz"))
    return facts, run_requests(requests, memory, record_commands=True, exact_check=exact_check), memory


def text_until(result: TraceResult, memory: Memory, clock: int) -> bytes:
    """The commands as the reference's CSV, up to a clock."""
    columns = result.command_traces[0].to_arrays()
    header = COLUMNS[len(memory.device.standard.levels)]
    groups = columns["bankgroup"]
    of_stack = memory.device.bankgroups // memory.device.stacks
    columns["pseudochannel"] = columns["rank"]
    columns["stack"] = np.where(groups < 0, -1, groups // of_stack)
    columns["bankgroup"] = np.where(groups < 0, -1, groups % of_stack)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(header)
    for line in zip(*(columns[name].tolist() for name in header), strict=True):
        if line[0] <= clock:
            writer.writerow(line)
    return table.getvalue().encode()


def test_there_are_reference_cases():
    assert [sum(case.stem.startswith(name) for case in CASES) for name in ("gddr6", "hbm3", "lpddr5")] == [
        9,
        9,
        12,
    ]


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.stem)
def test_commands_and_counters_equal_the_reference(case):
    facts, result, memory = run(case)
    accepted = result.accepted
    assert accepted["cycles"] == facts["cycles"]
    for counter in COUNTERS + OF_LPDDR5 * ("wck" in facts):
        assert accepted[counter] == facts[counter], counter
    assert accepted["commands"] == facts["commands"]
    commands = text_until(result, memory, facts["cycles"])
    assert hashlib.sha256(commands).hexdigest() == facts["sha256"]


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.stem)
def test_timings_and_sizes_are_those_of_the_reference(case):
    facts = yaml.safe_load(case.read_text())
    device = memory_of(facts).device
    assert {name: device.timings[name] for name in facts["resolved_timing"]} == facts["resolved_timing"]
    levels = facts["levels"]
    sizes = {
        "bankgroup": device.bankgroups // device.stacks,
        "bank": device.banks_per_group,
        "row": device.rows,
        "column": device.bursts_per_row,
        "rank": device.ranks,
        "pseudochannel": device.ranks,
        "stack": device.stacks,
    }
    assert {name: sizes[name] for name in levels} == levels
    assert device.burst_bytes == facts["burst_bytes"]
    assert device.standard.ticks_per_clock == facts["ticks_per_clock"]


def test_what_the_fast_controller_runs_equals_the_general_one():
    run(REFERENCE / "gddr6_mixed_closedcap.yaml", exact_check=True)
