"""The controller against reference command traces of Ramulator 2.1 (validation/ramulator2)."""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path

import pytest
import yaml

from ndpsim.dram.spec import standards
from ndpsim.dram.traces import CommandTrace
from ndpsim.simulate import TraceResult, run_trace

COMMANDS = standards()["DDR5"].under("reference").by_number

REFERENCE = Path(__file__).parents[1] / "validation" / "ramulator2"
CASES = sorted(REFERENCE.glob("*.yaml"))


def run(case: Path, **changes: object) -> tuple[dict, TraceResult]:
    facts = yaml.safe_load(case.read_text())
    channel = {name: facts[name] for name in ("standard", "org", "timing", "ranks", "overrides", "mapper")}
    policy = {
        name: facts[name] for name in ("scheduler", "row_policy", "refresh", "read_buffer", "write_buffer")
    }
    trace = case.with_suffix("").with_suffix(".trace.gz")
    return facts, run_trace(trace, **channel | policy | changes, rules="reference", record_commands=True)


def text_until(trace: CommandTrace, clock: int) -> bytes:
    """The trace as the reference's CSV, up to a clock."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["clock", "command", "rank", "bankgroup", "bank", "row", "column"])
    for at, command, *place in trace.columns().T.tolist():
        if at <= clock:
            writer.writerow([at, COMMANDS[command].name, *place])
    return table.getvalue().encode()


def test_there_are_reference_cases():
    assert len(CASES) == 21


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_commands_and_counters_equal_the_reference(case):
    facts, result = run(case)
    accepted = result.accepted
    assert accepted["cycles"] == facts["cycles"]
    for counter in ("row_hits", "row_misses", "row_conflicts", "reads_forwarded", "writes_coalesced"):
        assert accepted[counter] == facts[counter], counter
    assert accepted["commands"] == facts["commands"]
    commands = text_until(result.command_traces[0], facts["cycles"])
    assert hashlib.sha256(commands).hexdigest() == facts["sha256"]


def test_all_requests_are_served_before_statistics_are_taken():
    _, result = run(REFERENCE / "ddr5_r2_mixed_wr30.yaml")
    columns = sum(result.commands.get(name, 0) for name in ("RD", "RDA", "WR", "WRA"))
    assert columns + result.reads_forwarded + result.writes_coalesced == result.requests
