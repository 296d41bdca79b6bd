"""The read clock of GDDR7, and both controllers of it against a readable one."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from builders.one_channel import run_on
from mistakes import refused
from ndpsim.audit import check
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dram.engines import FastController, ScanController, make_controller
from ndpsim.dram.mapping import map_addresses
from ndpsim.dram.spec import Device, lower, resolve
from ndpsim.dram.state import make_policy
from ndpsim.dram.traces import CommandTrace, Requests, read_requests
from ndpsim.simulate import Memory, run_requests
from oracles.gddr7 import Request, run
from pairs import all_pairs
from test_memories import REFERENCE, memory_of

NAMES = "GDDR7", "GDDR7_16Gb_x8", "GDDR7_28000_PAM3"
MODES = ("always-on", "start-with-read", "start-with-rckstrt")


def lines_of(trace: CommandTrace) -> list[tuple]:
    columns = trace.to_arrays()
    return list(
        zip(*(columns[name].tolist() for name in ("clock", "command", "bank", "row", "column")), strict=True)
    )


def assert_equal_to_the_readable_one(device: Device, places: list, cycle, **options):
    """The commands of these requests (bank, row, column, write, address) are the readable controller's."""
    bank, row, column, write, address = places
    none = np.zeros_like(bank)
    requests = [none, none, bank, row, column, write, address, *([] if cycle is None else [cycle])]
    chosen = ControllerOptions(refresh="none", **options)
    lines = lines_of(run_on(ScanController, device, chosen, requests)[1])
    wanted = [Request(bool(w), *place) for w, *place in zip(write, bank, row, column, address, strict=True)]
    read = dict(rck=options.get("rck", "always-on"), idle=options.get("rck_idle", 32))
    assert lines == run(device, wanted, cycle, lines[-1][0], **read)
    return lines


def test_the_readable_controller_issues_the_commands_of_the_reference():
    facts = yaml.safe_load((REFERENCE / "gddr7_random_norefresh.yaml").read_text())
    memory = memory_of(facts)
    whole = read_requests(REFERENCE / "gddr7_random_norefresh.trace.gz")
    few = Requests.of(whole.address[:600], whole.write[:600])
    lines = lines_of(run_requests(few, memory, record_commands=True).command_traces[0])
    at = map_addresses(few.address, memory.mapping, memory.device)
    wanted = [
        Request(bool(w), *place)
        for w, *place in zip(few.write, at.bank, at.row, at.column, few.address, strict=True)
    ]
    assert lines == run(memory.device, wanted, None, lines[-1][0])


@pytest.mark.parametrize(
    *all_pairs(
        {
            "rules": ["standard", "reference"],
            "mode": MODES,
            "seed": range(4),
        }
    )
)
def test_commands_are_those_of_the_readable_controller(mode, rules, seed):
    rng = np.random.default_rng([seed, MODES.index(mode)])
    overrides = {
        "nRCKSP2ST": 40,
        "nRCKST2SP": 90,
        "nRCKSTRT2RD": 15,
        "nRD2RCKSTOP": 50,
        "nPPD": 6,
        "nRPD": 33,
    }
    device = resolve(*NAMES, 1, {name: overrides[name] for name in overrides if rng.random() < 0.4}, rules)
    count = 200
    places = [rng.integers(0, size, count) for size in (rng.choice([2, 16]), 3, 64)]
    write = (rng.random(count) < rng.choice([0, 0.3, 0.8])).astype(np.int64)
    address = np.ravel_multi_index(places, (16, 3, 64))
    # Pauses, in which the clock stops.
    gaps = np.where(rng.random(count) < 0.1, rng.integers(0, 300, count), rng.integers(0, 4, count))
    options = {"rck": mode, "rck_idle": int(rng.choice([0, 8, 32]))}
    lines = assert_equal_to_the_readable_one(device, [*places, write, address], np.cumsum(gaps), **options)
    names = [line[1] for line in lines]
    assert ("RCKSTOP" in names) == (mode != "always-on")
    assert ("RCKSTRT" in names) == (mode == "start-with-rckstrt")


@pytest.mark.parametrize("mode", MODES)
def test_what_is_run_is_legal(mode):
    facts = yaml.safe_load((REFERENCE / "gddr7_mixed_wr30.yaml").read_text())
    given = facts | {"rck": mode, "refresh": "per-bank", "org": NAMES[1]}
    memory = memory_of(given, "standard")
    trace = read_requests(REFERENCE / "gddr7_mixed_wr30.trace.gz")
    place = np.arange(1200)
    cycle = np.cumsum(np.where(place % 40 == 0, 800, 8))
    address = trace.address[place] % memory.capacity_bytes
    timed = Requests(address=address, write=trace.write[place], cycle=cycle)
    result = run_requests(timed, memory, record_commands=True)
    assert check(result.command_traces[0], memory.device, "per-bank").ok
    stops = result.commands.get("RCKSTOP", 0)
    assert (stops > 20) == (mode != "always-on")
    if mode == "start-with-rckstrt":
        # Without one of the commands that start the clock, reads after it are not legal.
        names = result.command_traces[0].to_arrays()["command"]
        kept = np.delete(np.arange(len(names)), np.flatnonzero(names == "RCKSTRT")[1])
        broken = check(result.command_traces[0].take(kept), memory.device, "per-bank").violations
        assert {one.rule for one in broken} == {"read clock"}


def clocks_of(name: str, lines: list[tuple]) -> list[int]:
    return [line[0] for line in lines if line[1] == name]


def test_the_clock_starts_before_the_first_read_and_stops_after_the_last():
    device, two = resolve(*NAMES), np.zeros(2, dtype=np.int64)
    places = [two, two, np.arange(2), two, np.arange(2)]
    for mode, starts in (("start-with-read", []), ("start-with-rckstrt", [1, 400])):
        lines = assert_equal_to_the_readable_one(device, places, np.array([0, 399]), rck=mode, rck_idle=32)
        assert clocks_of("RCKSTRT", lines) == starts
        # By hand: ACT at 1, RD nRCDRD 30 later; 32 clocks without a read; the row is open at 400.
        assert clocks_of("RD", lines) == [31, 402 if starts else 400]
        assert clocks_of("RCKSTOP", lines) == [31 + 32]
    # nRD2RCKSTOP holds if the time without reads is shorter.
    lines = assert_equal_to_the_readable_one(device, places, np.array([0, 399]), rck=mode, rck_idle=4)
    assert clocks_of("RCKSTOP", lines) == [31 + 18]


def test_a_clock_that_always_runs_is_on_the_fast_controller():
    for mode in MODES:
        policy = make_policy(ControllerOptions(rck=mode), "read-clock")
        is_fast = isinstance(make_controller(lower(resolve(*NAMES)), policy), FastController)
        assert is_fast == (mode == "always-on")


def test_a_mode_that_is_none_is_refused():
    with refused("unknown-name rck"):
        Memory.named(*NAMES, options=ControllerOptions(rck="off"))
    with refused("range rck_idle"):
        Memory.named(*NAMES, options=ControllerOptions(rck_idle=-1))
