"""Experts one after the other on the same DIMMs, and ranks that obey the same commands."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calls import refused_call, said
from mistakes import refused
from ndpsim.audit import check
from ndpsim.base.errors import InputError
from ndpsim.config import load_hardware
from ndpsim.dram.spec import standards
from ndpsim.simulate import Session, simulate_contention, simulate_expert
from ndpsim.workload.models import Expert

COMMANDS = standards()["DDR5"].by_number

SMALL = Expert(512, 256)
CXL = ("dimm.subchannels=4", "ndp.systolic.arrays=8")
QUEUES = {
    "trimoe": ("trimoe", SMALL, "localized", ()),
    "edge": ("edge", Expert(520, 264), "sharded:3", ()),
    "cxl": ("cxl", SMALL, "localized", CXL),
}
READS = [number for number, command in enumerate(COMMANDS) if command.reads]
WORK = ("ndp_multiply", "ndp_buffer", "ndp_fifo", "ndp_activation", "read", "io")


def run(queue: str, tokens, *sets, **options):
    hw, expert, layout, changes = QUEUES[queue]
    return simulate_expert(hw, expert, tokens, layout, sets=[*changes, *sets], **options)


@pytest.fixture(scope="module", params=QUEUES)
def in_turn(request):
    """Three experts in turn, and each alone."""
    tokens = (3, 1, 2)
    return run(request.param, tokens), [run(request.param, each) for each in tokens]


def test_the_first_expert_ends_when_it_ends_alone(in_turn):
    together, alone = in_turn
    assert together.jobs[0] == alone[0].jobs[0]
    assert [job.tokens for job in together.jobs] == [3, 1, 2]


def test_each_expert_begins_when_the_results_before_it_have_left(in_turn):
    together, _ = in_turn
    assert together.jobs[0].start_ns == 0
    for job, after in zip(together.jobs, together.jobs[1:], strict=False):
        assert after.start_ns == job.end_ns
    assert 0 <= together.time_ns - together.jobs[-1].end_ns < together.clock_ns


@pytest.mark.parametrize("queue", QUEUES)
def test_together_they_take_no_longer_than_alone_and_no_less_than_their_bytes(queue):
    tokens, without = (3, 1, 2, 1), "dram.refresh=none"
    together = run(queue, tokens, without)
    alone = [run(queue, each, without) for each in tokens]
    edges_ns = 3 * 1  # each begins on an edge of the unit's clock, of at most 1 ns
    assert together.time_ns <= sum(each.time_ns for each in alone) + edges_ns
    assert together.time_ns >= together.weight_bytes / together.peak_bandwidth_gbps


def test_with_refreshes_they_take_longer_by_those_that_fall_between_them(in_turn):
    together, alone = in_turn
    hardware = load_hardware(together.config["hardware"]["name"])
    interval, length = (
        hardware.lane_device().timings[name] * together.clock_ns for name in ("nREFI", "nRFC")
    )
    more = together.time_ns // interval - sum(each.time_ns // interval for each in alone)
    # A refresh also closes rows, which are opened again.
    assert together.time_ns <= sum(each.time_ns for each in alone) + more * 1.2 * length


def test_work_and_its_energy_add_up(in_turn):
    together, alone = in_turn
    assert together.tokens == 6
    for name in ("weight_bytes", "weight_bursts", "communication_bytes"):
        assert getattr(together, name) == sum(getattr(each, name) for each in alone)
    assert together.commands["RD"] == sum(each.commands["RD"] for each in alone)
    for name in WORK:
        parts = [each.energy_nj[name] for each in alone]
        if None not in parts:
            assert together.energy_nj[name] == pytest.approx(sum(parts)), name
    opened = sum(each.commands["ACT"] for each in alone)
    refreshed = together.commands["REFab"] * 32  # banks that may be open when a refresh falls due
    assert abs(together.commands["ACT"] - opened) <= refreshed + 3 * 32 * together.lanes


@pytest.mark.parametrize("queue", QUEUES)
def test_each_weight_is_read_once_by_legal_commands(queue):
    result = run(queue, (3, 1), record_commands=True)
    device = load_hardware(QUEUES[queue][0], QUEUES[queue][3]).lane_device()
    for trace in result.command_traces:
        report = check(trace, device)
        assert report.ok, report.violations[0].message
        arrays = trace.to_arrays()
        reads = arrays["column"] >= 0
        places = np.stack([arrays[name][reads] for name in ("bankgroup", "bank", "row", "column")])
        assert len(np.unique(places, axis=1).T) == reads.sum()


def test_weights_are_read_ahead_while_the_expert_before_drains():
    together, alone = run("trimoe", (1, 1), record_commands=True), run("trimoe", 1, record_commands=True)
    trace, reads = together.command_traces[0].to_arrays(), len(alone.command_traces[0].to_arrays()["clock"])
    clocks = trace["clock"][trace["column"] >= 0]
    of_one = int((alone.command_traces[0].to_arrays()["column"] >= 0).sum())
    ahead = clocks[of_one : of_one + 32] * together.clock_ns < together.jobs[1].start_ns
    assert reads > of_one
    assert ahead.sum() >= 8


@pytest.mark.parametrize("queue", QUEUES)
def test_every_lane_step_by_step_agrees(queue):
    run(queue, (3, 1, 2), exact_check=True)


def test_a_queue_tiles_its_tokens(in_turn):
    result = run("cxl", (5, 1))
    assert result.token_tiles == (3, 2, 1)  # output-stationary arrays take four tokens at once
    assert result.weight_reads == 1.5
    assert [phase.tile for phase in result.phases if phase.name == "down"] == [0, 1, 2]
    assert result.jobs[1].start_ns == [one.end_ns for one in result.phases if one.name == "result-out"][1]


def test_the_command_line_takes_a_queue():
    found = json.loads(said("gemv", "--shape", "512,256", "--tokens", "3,1,2", "--json", "-"))
    assert [sorted(job) for job in found["jobs"]] == [["end_ns", "start_ns", "tokens"]] * 3
    assert [job["tokens"] for job in found["jobs"]] == found["config"]["tokens"] == [3, 1, 2]


@pytest.mark.parametrize("tokens", [[], [1, 0], (1, 16385), [2.0], "1,2", [[1]], [1] * 5000])
def test_queues_that_make_no_sense_are_refused(tokens):
    with pytest.raises(InputError) as refused:
        simulate_expert(model=SMALL, tokens=tokens)
    assert refused.value.key == "tokens"
    assert "\n" not in str(refused.value)


def test_experts_that_do_not_fit_behind_each_other_are_refused():
    # 36 MiB are 36 rows, of 4 KiB, of each of the 256 banks; 3,640 fit 131,072 rows.
    with refused("too-large tokens"):
        simulate_expert(tokens=[1] * 3641)


RELEASES = (2_000.0, 0.0, 40_000.3)


@pytest.mark.parametrize("queue", QUEUES)
def test_an_expert_that_is_released_later_begins_then_and_nothing_is_read_for_it_before(queue):
    result = run(queue, (3, 1, 2), release_ns=RELEASES, record_commands=True)
    clock_ns = result.clock_ns
    first, second, third = result.jobs
    for job, release_ns in ((first, RELEASES[0]), (third, RELEASES[2])):
        assert release_ns <= job.start_ns < release_ns + clock_ns
    assert second.start_ns == first.end_ns < second.end_ns < third.start_ns
    bursts = 0
    for trace in result.command_traces:
        read_ns = (trace.clock[np.isin(trace.command, READS)] - 1) * clock_ns
        assert read_ns.min() >= RELEASES[0]
        assert not ((read_ns > second.end_ns) & (read_ns < RELEASES[2])).any()
        bursts += np.sum(read_ns >= RELEASES[2])
    assert 3 * bursts == result.weight_bursts
    # In between nothing is busy, and no bandwidth is lost.
    share = (first.end_ns + second.end_ns - first.start_ns - second.start_ns) / result.time_ns
    share += (third.end_ns - third.start_ns) / result.time_ns
    assert max(result.busy.values()) < share
    assert result.bandwidth_gbps == pytest.approx(run(queue, (3, 1, 2)).bandwidth_gbps, rel=0.06)


@pytest.mark.parametrize("queue", QUEUES)
def test_a_release_that_has_passed_changes_nothing(queue):
    usual = run(queue, (3, 1, 2))
    ends = [0.0, *(job.end_ns for job in usual.jobs[:-1])]
    late = run(queue, (3, 1, 2), release_ns=[end / 2 for end in ends], exact_check=True)
    assert (late.jobs, late.time_ns) == (usual.jobs, usual.time_ns)


@pytest.mark.parametrize("command_bus", ["private", "shared"])
@pytest.mark.parametrize("release_ns", [RELEASES, (0, 0, 0), (1_000, 1_000, 1_000)])
def test_releases_are_those_of_a_session(command_bus, release_ns):
    sets = [f"dimm.command_bus={command_bus}"]
    result = simulate_expert("trimoe", SMALL, (3, 1, 2), sets=sets, release_ns=release_ns)
    session = Session("trimoe", dimms=1, sets=sets)
    for tokens, each in zip((3, 1, 2), release_ns, strict=True):
        session.expert(SMALL, tokens, release_ns=each)
    session.run()
    times = [(job.tokens, job.start_ns, job.end_ns) for job in session.jobs]
    assert times == [(job.tokens, job.start_ns, job.end_ns) for job in result.jobs]
    assert session.result().commands == result.commands


def test_beside_the_host_releases_are_those_alone_where_it_asks_for_nothing():
    beside = simulate_contention("trimoe", SMALL, (3, 1), 0, release_ns=[100, 20_000])
    alone = simulate_expert("trimoe", SMALL, (3, 1), release_ns=[100, 20_000])
    assert (beside.jobs, beside.ndp_slowdown, beside.token_tiles) == (alone.jobs, 1, (3, 1))
    assert beside.ndp_gbps == pytest.approx(alone.bandwidth_gbps)


def test_the_command_line_takes_releases():
    told = json.loads(
        said("gemv", "--shape", "512,256", "--tokens", "3,1", "--release-ns", "0,2e4", "--json", "-")
    )
    assert told["jobs"][1]["start_ns"] == pytest.approx(2e4, abs=1)
    assert told["config"]["release_ns"] == [0, 2e4]


@pytest.mark.parametrize("times", ["0,1", "-1", "soon", "1,"])
def test_releases_that_make_no_sense_are_refused_in_one_line(times):
    call = ("gemv", "--shape", "512,256", "--tokens", "3,1,2", "--release-ns", times)
    assert refused_call(*call).split()[1] == "--release-ns"


# ---- ranks that obey the same commands ---------------------------------------------------------------

BROADCAST = "dimm.command_bus=broadcast"
UNEQUAL = Expert(500, 251)


def broadcast(expert, tokens=1, **options):
    return simulate_expert("trimoe", expert, tokens, sets=[BROADCAST], **options)


@pytest.mark.parametrize("tokens", [1, 20])
def test_the_lanes_of_a_sub_channel_have_the_same_commands(tokens):
    result = broadcast(UNEQUAL, tokens, record_commands=True)
    traces = [np.stack(list(trace.to_arrays().values())) for trace in result.command_traces]
    for lane, trace in enumerate(traces):
        assert np.array_equal(trace, traces[lane % 2])  # lane n is rank n // 2 behind sub-channel n % 2
    device = load_hardware("trimoe").lane_device()
    assert all(check(trace, device).ok for trace in result.command_traces)


def test_every_rank_reads_as_much_as_the_one_with_the_most():
    alone, together = simulate_expert("trimoe", UNEQUAL), broadcast(UNEQUAL)
    # 15,687.5 and 7,843.75 bursts, rounded up, over eight lanes in turn: the first lane of each sub-channel has most.
    most = [sum(-(-(bursts - lane) // 8) for bursts in (7844, 3922)) for lane in (0, 1)]
    assert alone.commands["RD"] == alone.weight_bursts == 7844 + 3922
    assert together.commands["RD"] == 4 * sum(most)
    assert together.weight_bursts == alone.weight_bursts
    assert together.energy_nj["read"] > alone.energy_nj["read"]


def test_equal_shares_cost_nothing_in_lock_step():
    alone, together = simulate_expert("trimoe", SMALL), broadcast(SMALL)
    assert (together.time_ns, together.commands) == (alone.time_ns, alone.commands)


@pytest.mark.parametrize("expert", [UNEQUAL, Expert(3, 5), Expert(1, 1), Expert(97, 33)])
def test_lock_step_agrees_with_every_lane_on_its_own(expert):
    broadcast(expert, (3, 1), exact_check=True)


def test_a_lane_out_of_step_is_found(monkeypatch):
    monkeypatch.setattr(
        "ndpsim.simulate.machine._share", lambda machine, interleaving, lane: interleaving.share(lane)
    )
    ran = broadcast(Expert(500, 247), record_commands=True)
    sizes = {len(trace.clock) for trace in ran.command_traces[::2]}
    assert len(sizes) > 1


def test_an_expert_on_several_dimms_whose_ranks_take_turns_is_refused():
    with refused("unsupported dimm.command_bus"):
        simulate_expert(model=SMALL, layout="sharded:2", sets=["dimm.command_bus=shared"])


def test_experts_in_turn_beside_the_host_are_told_one_by_one():
    beside = ("gemv", "--shape", "256,128", "--host-traffic", "4")
    jobs = json.loads(said(*beside, "--tokens", "3,1", "--json", "-"))["jobs"]
    first = json.loads(said(*beside, "--tokens", "3", "--json", "-"))
    # The host's rows lie behind all weights, and so elsewhere.
    assert jobs[0]["end_ns"] == pytest.approx(first["jobs"][0]["end_ns"], rel=0.1)
    assert (jobs[0]["tokens"], jobs[0]["start_ns"]) == (3, 0)
    assert first["ndp_time_ns"] == pytest.approx(first["jobs"][0]["end_ns"], abs=0.5)
    assert jobs[1]["start_ns"] == jobs[0]["end_ns"]
    shown = said(*beside, "--tokens", "3,1")
    assert "2 experts in turn" in shown
    assert "4 tokens" in shown
