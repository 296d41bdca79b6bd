"""LPDDR5, HBM3 and GDDR6 against reference command traces of Ramulator 2.1 (validation/ramulator2/memories)."""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
import yaml

from ndpsim.dram import sink, state
from ndpsim.dram.engines import ScanController
from ndpsim.dram.state import ControllerOptions
from ndpsim.simulate import Memory, TraceResult, run_requests
from ndpsim.simulate.lane import command_room, decode_commands, run_channel
from ndpsim.spec import Device, lower, resolve
from ndpsim.traces import CommandTrace, Requests, read_requests

REFERENCE = Path(__file__).parents[1] / "validation" / "ramulator2" / "memories"
CASES = sorted(REFERENCE.glob("*.yaml"))
RUN = [case for case in CASES if case.stem.startswith(("gddr6", "hbm3", "lpddr5"))]

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


def commands_of(device: Device, places: list[tuple[int, int, int]], row: int, write: int) -> CommandTrace:
    """The commands for requests to bank 0 of (rank, stack, bank group), one after the other."""
    tables, policy = (
        lower(device),
        state.make_policy(ControllerOptions(refresh="none"), device.standard.controller),
    )
    rank, stack, group = np.array(places).T
    number = np.arange(len(places))
    groups, none = stack * (device.bankgroups // device.stacks) + group, np.zeros_like(number)
    source = state.make_source(tables, rank, groups, none, none + row, number, none + write, number)
    channel = ScanController(tables, policy)
    commands = run_channel(channel, source, sink.null_sink(), command_room(), len(places))
    return decode_commands(commands, tables, device.standard)


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


def test_stacks_of_a_pseudo_channel_bind_each_other_and_not_those_of_the_other():
    device = resolve("HBM3", "HBM3_8Gb_8hi", "HBM3_6400Mbps", overrides={"nCCDR": 9, "nCCDS": 3})
    place = {"row": 0, "write": 0}
    # Pseudo-channel, stack and bank group of reads whose rows are open, and the ticks between them by hand.
    for one, other, ticks in (
        ((0, 0, 0), (0, 0, 1), 2 * 3),  # the same stack: nCCDS
        ((0, 0, 0), (0, 1, 0), 2 * 9),  # the other: nCCDR
        ((0, 0, 0), (1, 1, 0), 4),  # the other pseudo-channel: the row bus, 3 ticks an ACT, and rising edges
        ((0, 0, 0), (0, 0, 0), 2 * 4),  # the same bank group: nCCDL
    ):
        trace = commands_of(device, [one, other] * 8, **place)
        reads = trace.take(np.flatnonzero(trace.to_arrays()["command"] == "RD"))
        assert (reads.clock % 2 == 1).all()
        node = reads.rank * device.bankgroups + reads.bankgroup
        apart = np.diff(reads.clock)[(np.diff(node) != 0) == (one != other)]
        assert apart.min() == ticks, (one, other, reads)


def test_rows_close_on_falling_edges_and_all_else_issues_on_rising_ones():
    _, result, _ = run(REFERENCE / "hbm3_16hi_random_norefresh.yaml")
    trace = result.command_traces[0]
    names = trace.to_arrays()["command"]
    falling = names[trace.clock % 2 == 0]
    assert set(falling) == {"PREpb"}
    assert 0.1 < len(falling) / (names == "PREpb").sum() < 0.9
    _, count = np.unique(trace.clock, return_counts=True)
    assert count.max() == 2


def test_closed_rows_and_writes_do_not_lock_hbm3():
    # The reference stops at request 2,463: an active request whose row was closed is never activated again.
    rng = np.random.default_rng(7)
    memory = Memory.named(
        "HBM3", "HBM3_4Gb", "HBM3_6400Mbps", options=ControllerOptions(row_policy="closed-cap", row_cap=2)
    )
    address = (rng.integers(0, 16, 6000) << 20 | rng.integers(0, 64, 6000) << 5) % memory.capacity_bytes
    requests = Requests.of(address, (rng.random(6000) < 0.3).astype(np.int64))
    result = run_requests(requests, memory, record_commands=True)
    moved = sum(result.commands.get(name, 0) for name in ("RD", "RDA", "WR", "WRA"))
    assert moved + result.reads_forwarded + result.writes_coalesced == 6000
