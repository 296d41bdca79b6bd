"""A command trace that begins after clock 0, where refreshes due before are done."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calls import call, refused_call
from mistakes import refused
from ndpsim.audit import check, check_lanes
from ndpsim.config import load_hardware
from ndpsim.dram.spec import resolve, standards
from ndpsim.dram.traces import CommandTrace, write_commands
from ndpsim.simulate import Session
from ndpsim.workload.models import Expert

REFAB = standards()["DDR5"].names.index("REFab")
DEVICE = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA", 1, {"nREFI": 1000, "nRFC": 10, "nRP": 1})


def refreshes(*clocks, rank=0):
    """REFab at these clocks."""
    count = len(clocks)
    place = np.tile(np.array([[rank], [-1], [-1], [-1], [-1]]), (1, count))
    return CommandTrace.of(np.vstack([clocks, np.full(count, REFAB), place]).astype(np.int64))


def shortfalls(trace, start, postponed=0, ahead=1):
    report = check(trace, DEVICE, max_postponed=postponed, max_pulled_in=ahead, start_clock=start)
    return [(one.rule, one.shortfall) for one in report.violations]


def test_the_first_refresh_is_the_one_due_at_the_start_or_later():
    # Due are 100,000, 101,000 and 102,000; with a start at 100,001 the first of them is done.
    assert shortfalls(refreshes(100_000, 101_000, 102_000), 100_000) == []
    assert shortfalls(refreshes(101_000, 102_000), 100_001) == []
    late = shortfalls(refreshes(101_000, 102_000), 100_000)
    assert late == [
        ("refresh debt", 1000),
        ("refresh debt", 1000),
        ("refresh debt", 1),
    ]  # and a third is owed
    # Without a start, a hundred are owed: the n-th of three comes 99,000 clocks behind its time.
    assert shortfalls(refreshes(100_000, 101_000, 102_000), 0)[0] == ("refresh debt", 99_000)


def test_tolerances_count_from_the_start():
    assert shortfalls(refreshes(102_000), 100_001, postponed=1) == []
    assert shortfalls(refreshes(102_001), 100_001, postponed=1) == [("refresh debt", 1)]
    assert shortfalls(refreshes(100_500, 100_600), 100_001, ahead=1) == [("refresh ahead", 400)]


def test_what_is_owed_at_the_end_counts_from_the_start():
    # Two of those due at 100,000 (where it counts), 101,000, 102,000 and 103,000 are there, and 104,000 is the end.
    trace = refreshes(101_000, 104_000)
    assert shortfalls(trace, 100_001, postponed=2) == []
    assert ("refresh debt", 1) in shortfalls(trace, 100_001, postponed=1)
    assert ("refresh debt", 1) in shortfalls(trace, 100_000, postponed=2)


def test_a_start_behind_the_first_command_is_refused():
    with refused("range start_clock"):
        check(refreshes(100_000), DEVICE, start_clock=100_001)
    with refused("range start_clock"):
        check_lanes(refreshes(100_000), DEVICE, 1, start_clock=-1)


@pytest.fixture(scope="module")
def session_trace(tmp_path_factory):
    """The commands of a session that begins at clock 100,000."""
    session = Session("trimoe", start_clock=100_000, record_commands=True)
    session.expert(Expert(256, 256))
    session.host(gbps=5)
    session.run(until_ns=20_000)
    path = tmp_path_factory.mktemp("trace") / "session.csv"
    (trace, *_) = session.result().command_traces
    write_commands(path, trace)
    return path


def checked(*arguments):
    """The status of a check, and its outcome."""
    done = call("check", *arguments, "--json", "-")
    return done.status, json.loads(done.out)


def test_the_command_line_takes_the_start_of_a_session(session_trace):
    # Ten refreshes have fallen due by clock 100,000; the session owes none of them.
    status, outcome = checked(session_trace, "--hw", "trimoe")
    assert status == 1
    assert {one["rule"] for one in outcome["violations"]} == {"refresh debt"}
    status, outcome = checked(session_trace, "--hw", "trimoe", "--start-clock", 100_000)
    assert (status, outcome["count"]) == (0, 0)


def test_a_lane_behind_those_of_a_dimm_is_that_of_the_next_one(tmp_path):
    hardware, path = load_hardware("trimoe"), tmp_path / "commands.csv"
    for lane, lanes in ((hardware.lanes - 1, 1), (hardware.lanes, hardware.system.dimm.count)):
        path.write_text(f"clock,command,rank,bankgroup,bank,row,column\n10,ACT,{lane},0,0,5,-1\n")
        status, out, _ = call("check", path, "--hw", "trimoe")
        assert (status, f", lanes {lanes * hardware.lanes}\n" in out) == (0, True)


def test_energy_counts_from_the_start(session_trace):
    whole, own = (
        checked(session_trace, "--hw", "trimoe", "--refresh", "none", "--energy", *more)[1]
        for more in ((), ("--start-clock", 100_000))
    )
    clock_ns = 2_000 / 4800
    assert whole["time_ns"] - own["time_ns"] == pytest.approx(100_000 * clock_ns)
    assert whole["energy_nj"]["background"] > 2 * own["energy_nj"]["background"]
    assert whole["energy_nj"]["read"] == own["energy_nj"]["read"] > 0


def test_a_start_that_makes_no_sense_is_named_as_typed(session_trace):
    assert (
        refused_call("check", session_trace, "--hw", "trimoe", "--start-clock", 10**9)
        == "range --start-clock"
    )
