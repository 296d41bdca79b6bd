"""A session: experts on DIMMs of a channel and the host beside them, against each of them alone and bounds."""

from __future__ import annotations

import numpy as np
import pytest

from mistakes import refused
from ndpsim.audit import check_lanes
from ndpsim.base.errors import InputError
from ndpsim.config import load_hardware
from ndpsim.dram.spec import standards
from ndpsim.report.text import all_lanes
from ndpsim.simulate import Session, simulate_contention, simulate_dimm, simulate_expert, simulate_host_read
from ndpsim.workload.models import Expert

COMMANDS = standards()["DDR5"].by_number

SMALL = Expert(512, 256)
QUEUE = (2, 3, 1)


def queue(dimm=0, **others):
    return [{"model": SMALL, "tokens": tokens, "dimm": dimm, **others} for tokens in QUEUE]


def times(result, dimm=0):
    return [(job.start_ns, job.end_ns) for job in result.jobs if job.dimm == dimm]


# ---- experts alone -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [16, 3])
def test_a_queue_on_a_dimm_is_the_queue_of_simulate_expert(bits):
    alone = simulate_expert("trimoe", SMALL, list(QUEUE), bits=bits, record_commands=True)
    result = simulate_dimm("trimoe", queue(bits=bits), dimms=1, record_commands=True)
    assert times(result) == [(job.start_ns, job.end_ns) for job in alone.jobs]
    assert result.time_ns == alone.time_ns
    for ours, lane in zip(result.command_traces, alone.command_traces, strict=True):
        # A lane that has read its last weight is refreshed until the results are out, too.
        assert np.array_equal(ours.columns()[:, : len(lane)], lane.columns())
        assert (ours.column[len(lane) :] < 0).all()
    assert result.energy_nj["total"] == pytest.approx(alone.energy_nj["total"], rel=1e-3)


@pytest.mark.parametrize("command_bus", ["private", "shared"])
def test_the_first_of_a_queue_ends_as_it_ends_alone_and_the_queue_within_its_bounds(command_bus):
    sets = [f"dimm.command_bus={command_bus}", "dram.refresh=none"]
    alone = [simulate_dimm("trimoe", [job], dimms=1, sets=sets) for job in queue()]
    together = simulate_dimm("trimoe", queue(), dimms=1, sets=sets)
    assert times(together)[0] == times(alone[0])[0]
    assert together.time_ns <= sum(one.time_ns for one in alone)
    peak_gbps = load_hardware("trimoe").lanes * load_hardware("trimoe").lane_device().peak_gbps
    assert together.time_ns >= 3 * SMALL.weights * 2 / peak_gbps
    for name in ("ndp_multiply", "read", "host"):
        assert together.energy_nj[name] == pytest.approx(sum(one.energy_nj[name] for one in alone))


def test_experts_on_two_dimms_share_nothing_but_the_buses_to_the_host():
    one = simulate_dimm("trimoe", queue())
    both = simulate_dimm("trimoe", queue() + queue(dimm=1))
    later = [ours[1] - alone[1] for ours, alone in zip(times(both), times(one), strict=True)]
    assert all(0 <= ns < 100 for ns in later)
    assert both.time_ns < 1.02 * one.time_ns
    assert both.energy_nj["read"] == pytest.approx(2 * one.energy_nj["read"])


def test_nothing_of_an_expert_is_done_before_its_release():
    given = dict(dimms=1, sets=["dram.refresh=none"])
    result = simulate_dimm("trimoe", [{"model": SMALL, "release_ns": 5000}], record_commands=True, **given)
    alone = simulate_dimm("trimoe", [{"model": SMALL}], **given)
    assert result.jobs[0].start_ns == pytest.approx(5000, abs=1)
    assert min(trace.clock[0] for trace in result.command_traces) >= 5000 / result.clock_ns
    assert result.jobs[0].end_ns - result.jobs[0].start_ns == pytest.approx(alone.jobs[0].end_ns, abs=1)


def test_a_run_can_be_read_in_between_and_goes_on_as_if_it_had_not():
    session, whole = Session("trimoe", dimms=1), Session("trimoe", dimms=1)
    for each in (session, whole):
        each.expert(SMALL, 2)
        each.host(gbps=8)
        each.expert(SMALL, 1)
    seen = []
    for until_ns in (1000, 1000, 8000.5):
        session.run(until_ns)
        seen.append(session.result())
    assert session.now_ns == pytest.approx(8000.5, abs=0.5)
    assert [one.end_ns is None for one in seen[0].jobs] == [True, True]
    assert 0 < seen[0].host[0].requests < seen[2].host[0].requests
    for each in (session, whole):
        each.run()
    ours, theirs = session.result().to_dict(), whole.result().to_dict()
    for told in (ours, theirs):
        told.pop("wall_s"), told.pop("compile_s")
    assert ours == theirs


def test_what_is_added_later_begins_later():
    session = Session("trimoe", dimms=1)
    session.expert(SMALL)
    session.run()
    done = session.now_ns
    session.expert(SMALL, 2)
    session.host_read(SMALL, gbps=3)
    session.run()
    assert session.jobs[1].start_ns >= done
    assert session.hosts[0].start_ns == done
    assert session.hosts[0].is_done


# ---- the host ----------------------------------------------------------------------------------------


def test_weights_read_by_the_host_alone_take_what_simulate_host_read_takes():
    alone = simulate_host_read("trimoe", SMALL, "localized")
    result = simulate_dimm("trimoe", host_reads=[{"model": SMALL}])
    assert result.host[0].end_ns == pytest.approx(alone.time_ns)
    assert result.host[0].bytes == alone.weight_bursts * 64
    assert result.commands["RD"] == alone.commands["RD"]


def test_weights_are_read_at_the_rate_that_was_asked_for():
    stream = simulate_dimm("trimoe", host_reads=[{"model": SMALL, "gbps": 5, "start_ns": 2000}]).host[0]
    assert stream.bytes / (stream.end_ns - stream.start_ns) == pytest.approx(5, rel=0.01)


CHANNEL_GBPS = 33.9  # what a host read reaches alone


def test_a_host_read_that_was_held_up_makes_up_for_what_buffers_hold_and_no_more():
    # Beside a read of half as long, one that asks for 30 of 33.9 GB/s gets half, and then 30 again.
    session = Session("trimoe")
    session.host_read(Expert(512, 2048), gbps=30, behind=True)
    session.host_read(Expert(512, 512), gbps=38.4, dimm=1, behind=True)
    session.run()
    slow, fast = session.hosts
    rest_ns, rest_bytes = slow.end_ns - fast.end_ns, slow.bytes - fast.bytes
    made_up = 30 * 2048 * session.result().clock_ns
    assert fast.bytes / fast.end_ns == pytest.approx(CHANNEL_GBPS / 2, rel=0.03)
    assert rest_bytes - 1.2 * made_up < 30 * rest_ns < rest_bytes


def test_bytes_that_units_have_read_are_those_of_their_experts():
    session = Session("trimoe")
    session.expert(SMALL, 2)
    session.expert(SMALL, 1, dimm=1)
    session.expert(SMALL, 1, dimm=1)
    session.host_read(SMALL, behind=True)
    session.run(1000)
    begun = session.ndp_bytes
    session.run()
    weights = 2 * SMALL.weights
    assert session.ndp_bytes == (weights, 2 * weights)
    assert 0 < begun[0] < weights
    assert sum(session.ndp_bytes) == round(session.result().ndp_gbps * session.now_ns)


@pytest.mark.parametrize("layout", ["localized", "striped"])
def test_weights_that_lie_behind_others_have_rows_of_their_own(layout):
    session = Session("trimoe", record_commands=True)
    session.expert(SMALL, dimm=1)
    session.host_read(SMALL, layout, dimm=1, behind=True)
    session.host_read(SMALL, layout, dimm=1, behind=True)
    session.expert(SMALL, dimm=1)
    session.run()
    lanes, reads, opened = session.machine.lanes, {}, set()
    for lane, trace in enumerate(session.result().command_traces):
        row = {}
        for command, *bank, at_row, column in zip(
            trace.command, trace.bankgroup, trace.bank, trace.row, trace.column, strict=True
        ):
            if COMMANDS[command].name == "ACT":
                row[*bank] = at_row
            elif COMMANDS[command].reads:
                at = (lane, *bank, row[*bank], column)
                reads[at] = reads.get(at, 0) + 1
                opened.add(lane // lanes)
    assert set(reads.values()) == {1}
    assert opened == ({1} if layout == "localized" else {0, 1})


def test_contention_is_a_session_of_one_expert_and_one_stream():
    beside = simulate_contention("trimoe", SMALL, 2, host_gbps=6, pattern="random")
    result = simulate_dimm(
        "trimoe", [{"model": SMALL, "tokens": 2}], [{"gbps": 6, "pattern": "random"}], dimms=1
    )
    assert result.time_ns == beside.ndp_time_ns
    assert result.host_gbps == beside.host_gbps


# ---- command buses and starts ------------------------------------------------------------------------


@pytest.mark.parametrize("command_bus", [pytest.param("private", marks=pytest.mark.long), "shared"])
@pytest.mark.parametrize("arbitration", ["host-first", "ndp-first", "slice", "batch"])
def test_every_lane_of_every_combination_is_legal(command_bus, arbitration):
    sets = [f"dimm.command_bus={command_bus}"]
    result = simulate_dimm(
        "trimoe",
        queue() + queue(dimm=1, release_ns=700),
        [{"pattern": "random"}],
        [{"model": SMALL, "start_ns": 3000, "gbps": 4}],
        arbitration=arbitration,
        sets=sets,
        record_commands=True,
        start_clock=4000,
    )
    report = check_lanes(all_lanes(result.command_traces), load_hardware("trimoe").lane_device(), 16, "none")
    assert report.count == 0, report.violations[0]


def test_commands_on_a_shared_bus_do_not_overlap_and_their_clocks_bound_the_time():
    hardware = load_hardware("trimoe", ["dimm.command_bus=shared"])
    result = simulate_dimm(hardware, queue(), [{"pattern": "random"}], dimms=1, record_commands=True)
    clocks = np.array([command.cycles for command in COMMANDS])
    for bus in range(2):
        traces = result.command_traces[bus::2]
        clock, command = (
            np.concatenate([getattr(one, name) for one in traces]) for name in ("clock", "command")
        )
        order = np.argsort(clock)
        assert (np.diff(clock[order]) >= clocks[command[order]][:-1]).all()
        assert result.time_ns / result.clock_ns >= clocks[command].sum()


def test_an_expert_alone_on_a_shared_bus_is_that_of_a_session_and_agrees_with_its_readable_twin():
    tiny, sets = Expert(96, 64), ["dimm.command_bus=shared"]
    alone = simulate_expert("trimoe", tiny, QUEUE, sets=sets, exact_check=True, record_commands=True)
    jobs = [{"model": tiny, "tokens": tokens} for tokens in QUEUE]
    result = simulate_dimm("trimoe", jobs, dimms=1, sets=sets, record_commands=True)
    assert times(result) == [(job.start_ns, job.end_ns) for job in alone.jobs]
    assert result.energy_nj == pytest.approx(alone.energy_nj)
    for ours, lane in zip(result.command_traces, alone.command_traces, strict=True):
        assert np.array_equal(ours.columns(), lane.columns())


def test_four_ranks_on_a_shared_bus_read_more_slowly_than_on_private_ones():
    private, shared = (
        simulate_dimm("trimoe", [{"model": SMALL}], dimms=1, sets=[f"dimm.command_bus={name}"]).time_ns
        for name in ("private", "shared")
    )
    assert 1.005 * private < shared < 1.5 * private


@pytest.mark.parametrize("command_bus", ["private", "shared"])
def test_a_start_later_by_whole_refresh_intervals_changes_nothing(command_bus):
    interval = load_hardware("trimoe").lane_device().timings["nREFI"]
    told = []
    for start in (1, 1 + interval, 1 + 1000 * interval, 1 + interval // 2):
        sets = [f"dimm.command_bus={command_bus}"]
        result = simulate_dimm("trimoe", queue(), [{"gbps": 4}], start_clock=start, dimms=1, sets=sets)
        told.append((result.time_ns, result.jobs, result.host, result.commands, result.energy_nj))
    assert told[0] == told[1] == told[2]
    assert told[0] != told[3]
    assert told[3][0] == pytest.approx(told[0][0], abs=4 * 295)  # by some refreshes more or less


def test_rows_that_are_open_at_the_start_need_no_activate():
    closed = simulate_dimm("trimoe", [{"model": SMALL}], dimms=1, sets=["dram.refresh=none"])
    rows = [(rank, group, 0, 0) for rank in range(4) for group in range(8)]
    opened = simulate_dimm("trimoe", [{"model": SMALL}], dimms=1, sets=["dram.refresh=none"], open_rows=rows)
    lanes_per_rank = 2
    assert closed.commands["ACT"] - opened.commands["ACT"] == len(rows) * lanes_per_rank


def test_ranks_in_lock_step_are_refused_in_a_line():
    with refused("unsupported sets dimm.command_bus"):
        Session("trimoe", sets=["dimm.command_bus=broadcast"])


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"dimms": 3}, "dimms"),
        ({"start_clock": 0}, "start_clock"),
        ({"open_rows": [(0, 0, 9, 0)]}, "open_rows"),
        ({"open_rows": [5]}, "open_rows"),
        ({"experts": [{"dimm": 2}]}, "dimm"),
        ({"experts": [{"token": 2}]}, "experts"),
        ({"experts": [7]}, "experts"),
        ({"experts": [{"tokens": 0}]}, "tokens"),
        ({"experts": [{"release_ns": -1}]}, "release_ns"),
        ({"host": [{"gbps": -1}]}, "gbps"),
        ({"host": [{"gbps": 1e6}]}, "gbps"),
        ({"host": [{"read_share": 2}]}, "read_share"),
        ({"host": [{"start_ns": "0"}]}, "start_ns"),
        ({"host_reads": [{"gbps": 1e6}]}, "gbps"),
        ({"host_reads": [{"behind": 1}]}, "behind"),
        ({"relayout": {"start_ns": -1}}, "start_ns"),
        ({"host": [{}]}, "until_ns"),
        ({"host_reads": [{"layout": "sharded:0"}]}, "layout"),
        ({"hw": "cxl"}, "cxl"),
    ],
)
def test_senseless_arguments_are_refused(arguments, key):
    with pytest.raises(InputError) as error:
        simulate_dimm(**arguments)
    assert error.value.key == key
    assert "\n" not in str(error.value)
