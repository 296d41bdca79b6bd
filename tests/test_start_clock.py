"""Experts that start at any clock between two refreshes, and command traces that do."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from calls import call, refused_call, said
from mistakes import refused
from ndpsim.audit import check, check_lanes
from ndpsim.config import load_hardware
from ndpsim.dram.refresh_policies import NAMES, Refreshed, make_schedule
from ndpsim.dram.spec import resolve, standards
from ndpsim.dram.spec.standard import ONE_BANK, SAME_BANKS, WHOLE_RANK
from ndpsim.dram.traces import CommandTrace, write_commands
from ndpsim.report.pictures.expert import reads_over_time
from ndpsim.simulate import Session, simulate_dimm, simulate_expert
from ndpsim.simulate.results import ResultCache
from ndpsim.workload.models import Expert

SMALL = Expert(512, 256)
SHORT = {"model": Expert(1024, 333), "bits": 2}  # less than half an interval between refreshes on trimoe
DEVICE = load_hardware("trimoe").lane_device()
INTERVAL = DEVICE.timings["nREFI"]
CLOCKS = (2, INTERVAL // 2, INTERVAL - 1, INTERVAL, INTERVAL + 1, 100_000)
REFAB = standards()["DDR5"].names.index("REFab")


# ---- from a clock ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("start", [1, 2, 999, 1000, 1001, 2500, 123_456])
def test_refreshes_fall_due_at_the_clocks_of_the_policy_whoever_counts_them(name, start):
    by_scope = {ONE_BANK: (10, 1000), SAME_BANKS: (9, 1000), WHOLE_RANK: (7, 1000)}
    schedule, periods = make_schedule(name, Refreshed(2, 4, 4, by_scope)), range(start // 1000 + 5)
    due = [turn._replace(clock=turn.clock + n * schedule.period) for n in periods for turn in schedule.turns]
    seen = schedule.seen_from(start)
    again = [turn._replace(clock=turn.clock + n * seen.period) for n in periods for turn in seen.turns]
    later = [turn._replace(clock=turn.clock - start + 1) for turn in due if turn.clock >= start]
    assert again[: len(later)] == later
    assert all(1 <= turn.clock <= seen.period for turn in seen.turns)


@pytest.mark.parametrize("command_bus", ["private", "shared"])
@pytest.mark.parametrize("start", CLOCKS)
def test_an_expert_from_a_clock_is_that_of_a_session_from_there(start, command_bus):
    sets, tokens = [f"dimm.command_bus={command_bus}"], [2, 1]
    alone = simulate_expert(
        "trimoe", SMALL, tokens, sets=sets, start_clock=start, record_commands=True, exact_check=True
    )
    experts = [{"model": SMALL, "tokens": one} for one in tokens]
    session = simulate_dimm("trimoe", experts, dimms=1, sets=sets, start_clock=start, record_commands=True)
    assert [(job.start_ns, job.end_ns) for job in alone.jobs] == [
        (job.start_ns, job.end_ns) for job in session.jobs
    ]
    for ours, theirs in zip(alone.command_traces, session.command_traces, strict=True):
        assert np.array_equal(ours.columns(), theirs.columns()[:, : len(ours)])
        assert (theirs.column[len(ours) :] < 0).all()


@pytest.mark.parametrize("start", CLOCKS)
def test_commands_carry_the_clocks_of_the_memory_and_are_legal_there(start):
    result = simulate_expert("trimoe", SMALL, start_clock=start, record_commands=True)
    assert result.config["start_clock"] == start
    assert result.jobs[0].start_ns == 0
    due = [clock for clock in range(0, start + result.cycles, INTERVAL) if clock >= start]
    assert due  # or nothing is seen
    for trace in result.command_traces:
        assert trace.clock[0] == start
        assert check(trace, DEVICE, "none").ok
        refreshes = trace.clock[trace.command == REFAB]
        waited = refreshes - due[: len(refreshes)]
        assert len(refreshes) == len(due)
        assert (waited >= 0).all()
        assert (waited < DEVICE.timings["nRAS"] + DEVICE.timings["nRP"] + DEVICE.timings["nRC"]).all()


def test_whole_intervals_later_all_is_the_same():
    first = simulate_expert("trimoe", SMALL, 3, start_clock=4000, record_commands=True)
    later = simulate_expert("trimoe", SMALL, 3, start_clock=4000 + 7 * INTERVAL, record_commands=True)
    assert (first.time_ns, first.phases, first.energy_nj) == (later.time_ns, later.phases, later.energy_nj)
    for one, other in zip(first.command_traces, later.command_traces, strict=True):
        assert np.array_equal(one.clock + 7 * INTERVAL, other.clock)
        assert np.array_equal(one.columns()[1:], other.columns()[1:])


@pytest.mark.parametrize(
    ("hw", "layout", "sets"),
    [
        ("trimoe", "localized", ["dram.refresh=same-bank"]),
        ("trimoe", "localized", ["dram.refresh=staggered", "dram.row_policy=closed-cap"]),
        pytest.param("trimoe", "localized", ["dram.read_buffer=256"], marks=pytest.mark.long),
        ("trimoe", "localized", ["dimm.command_bus=broadcast"]),
        ("edge", "sharded:3", []),
        ("cxl", "localized", ["dimm.subchannels=4", "ndp.systolic.arrays=8"]),
    ],
)
def test_every_lane_step_by_step_agrees_wherever_it_begins(hw, layout, sets):
    for start in np.random.default_rng(5).integers(1, 100_000, 3).tolist():
        result = simulate_expert(
            hw, Expert(520, 264), [2, 1], layout, sets=sets, start_clock=start, exact_check=True
        )
        assert result.config["start_clock"] == start


@pytest.mark.parametrize("refresh", ["all-bank", "same-bank"])
def test_fast_forward_is_exact_from_any_clock(refresh):
    sets = [f"dram.refresh={refresh}"]
    for start in (INTERVAL - 50, 77_777):
        result = simulate_expert("trimoe", Expert(2048, 1024), sets=sets, start_clock=start, exact_check=True)
        assert result.fast_forwarded > (
            0.05 if refresh == "same-bank" else 0.1
        )  # REFsb comes 8 times in tREFI


def test_what_is_read_over_time_is_the_same_bytes_from_any_clock():
    for start in (1, 100_000):
        result = simulate_expert("trimoe", SMALL, start_clock=start, record_commands=True)
        curve = reads_over_time(result)
        assert curve.data_bytes.sum() == result.weight_bursts * DEVICE.burst_bytes


# ---- over the phases of refresh --------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 64])
def test_the_time_over_phases_is_that_of_runs_from_their_clocks(tokens):
    result = simulate_expert(tokens=tokens, refresh_phases=7, start_clock=500, **SHORT)
    over = result.over_refresh
    assert over.start_clocks == tuple(500 + n * INTERVAL // 7 for n in range(7))
    each = [simulate_expert(tokens=tokens, start_clock=clock, **SHORT) for clock in over.start_clocks]
    assert over.times_ns == tuple(one.time_ns for one in each)
    assert over.mean_ns == pytest.approx(sum(over.times_ns) / 7)
    assert (over.least_ns, over.most_ns) == (min(over.times_ns), max(over.times_ns))
    for name, nj in over.mean_energy_nj.items():
        if nj is not None:
            assert nj == pytest.approx(sum(one.energy_nj[name] for one in each) / 7)
    assert result.time_ns == each[0].time_ns
    assert each[0].over_refresh is None


def test_a_short_expert_meets_a_refresh_as_often_as_its_share_of_an_interval():
    over = simulate_expert(**SHORT, refresh_phases=100).over_refresh
    clock_ns, length = 1250 / 3 / 1000, DEVICE.timings["nRFC"]
    assert over.least_ns == simulate_expert(**SHORT, sets=["dram.refresh=none"]).time_ns
    held = [time_ns for time_ns in over.times_ns if time_ns > over.least_ns]
    assert len(held) == pytest.approx(100 * over.least_ns / (INTERVAL * clock_ns), abs=3)
    # A refresh closes rows first, and opens them again.
    reopened = 2 * (DEVICE.timings["nRP"] + DEVICE.timings["nRCD"] + DEVICE.timings["nRAS"])
    assert np.median(held) - over.least_ns >= length * clock_ns
    assert over.most_ns - over.least_ns <= (length + reopened) * clock_ns


def test_runs_in_which_no_refresh_falls_due_are_simulated_once():
    cache = ResultCache(disk_bytes=0)
    over = simulate_expert(**SHORT, refresh_phases=100, cache=cache).over_refresh
    held = sum(time_ns > over.least_ns for time_ns in over.times_ns)
    assert held < 55
    assert held <= cache.misses <= held + 5
    assert simulate_expert(**SHORT, refresh_phases=100, cache=cache).over_refresh == over


def test_without_refreshes_every_clock_is_alike():
    over = simulate_expert(**SHORT, sets=["dram.refresh=none"], refresh_phases=5).over_refresh
    assert over.least_ns == over.most_ns
    assert over.mean_ns == pytest.approx(over.least_ns)


def test_progress_rises_to_one_over_all_runs():
    shares = []
    simulate_expert(**SHORT, refresh_phases=5, progress=shares.append)
    assert (shares[0], shares[-1]) == (0, 1)
    assert all(one <= other for one, other in itertools.pairwise(shares))


# ---- the command line ------------------------------------------------------------------------------------

CALL = ["gemv", "--shape", "1024,333", "--bits", "2"]


def test_the_command_line_tells_mean_least_and_most_with_their_units():
    shown = said(*CALL, "--refresh-phases", "8")
    (line,) = [line for line in shown.splitlines() if line.startswith("time over start clocks")]
    over = simulate_expert(**SHORT, refresh_phases=8).over_refresh
    for ns in (over.mean_ns, over.least_ns, over.most_ns):
        assert f"{ns / 1000:.3f} µs" in line
    told = json.loads(said(*CALL, "--refresh-phases", "8", "--start-clock", "4000", "--json", "-"))
    assert told["config"]["start_clock"] == told["over_refresh"]["start_clocks"][0] == 4000
    assert told["over_refresh"]["mean_ns"] == pytest.approx(over.mean_ns, rel=0.03)
    assert json.loads(said(*CALL, "--json", "-"))["over_refresh"] is None


def test_a_report_and_a_trace_begin_at_the_clock(tmp_path):
    page, commands = tmp_path / "run.html", tmp_path / "commands.csv"
    given = ["--start-clock", "12000", "--refresh-phases", "4"]
    said(*CALL, *given, "--report", str(page), "--commands", str(commands))
    assert "time over start clocks" in page.read_text()
    assert commands.read_text().splitlines()[1].startswith("12000,")


@pytest.mark.parametrize("given", ["--start-clock", "--refresh-phases"])
@pytest.mark.parametrize("engine", [["--host-traffic", "4"], ["--engine", "host-read"]])
def test_what_has_no_start_clock_says_so(given, engine):
    assert refused_call(*CALL, *engine, given, "5").split()[1] == given


# ---- A command trace that begins after clock 0, where refreshes due before are done

DDR4 = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA", 1, {"nREFI": 1000, "nRFC": 10, "nRP": 1})


def refreshes(*clocks, rank=0):
    """REFab at these clocks."""
    count = len(clocks)
    place = np.tile(np.array([[rank], [-1], [-1], [-1], [-1]]), (1, count))
    return CommandTrace.of(np.vstack([clocks, np.full(count, REFAB), place]).astype(np.int64))


def shortfalls(trace, start, postponed=0, ahead=1):
    report = check(trace, DDR4, max_postponed=postponed, max_pulled_in=ahead, start_clock=start)
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
        check(refreshes(100_000), DDR4, start_clock=100_001)
    with refused("range start_clock"):
        check_lanes(refreshes(100_000), DDR4, 1, start_clock=-1)


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
