"""A layer by rates against cycle-level sessions: what runs again, when, and what is compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ndpsim.config import load_hardware
from ndpsim.inference.layers import exact_layer
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.exact_layer import check_layer
from ndpsim.inference.layers.record import JobRecord, LayerRecord, MovingRecord
from ndpsim.policies.interface import Assignment
from ndpsim.policies.views import STRIPED, LayerPlacement
from ndpsim.simulate import simulate_dimm
from ndpsim.simulate.results.moe import CheckedEnd, LayerCheck
from ndpsim.workload.models import Expert

MODEL = Expert(256, 128)
BYTES = 3 * 2 * 256 * 128
# Without refreshes: rates have their mean, and such short layers one or none.
HARDWARE = load_hardware("trimoe", ("dimm.count=4", "host.channels=2", "dimm.ranks=2", "dram.refresh=none"))
START = 5000.0  # of the layer


@pytest.fixture(scope="module")
def costs():
    return Costs(HARDWARE, MODEL, cache=False)


def job(resource, kind, expert, start_ns, end_ns, **others):
    given = {"share": 1.0, "tokens": 0, "bytes": BYTES, "alone_ns": end_ns - start_ns, **others}
    return JobRecord(resource, kind, expert, start_ns=START + start_ns, end_ns=START + end_ns, **given)


def ndp(dimm, expert, start_ns, end_ns, tokens=1, **others):
    return job(f"ndp {dimm}", "expert", expert, start_ns, end_ns, tokens=tokens, **others)


def read(expert, start_ns, end_ns, gbps, **others):
    return job("cpu", "expert", expert, start_ns, end_ns, tokens=1, read_limit_gbps=gbps, **others)


def copy(expert, start_ns, end_ns, gbps=20.0, **others):
    return job("pcie-down", "copy", expert, start_ns, end_ns, read_limit_gbps=gbps, **others)


def record(jobs, dimm, shards=None, end_ns=None):
    dimm = np.array(dimm, dtype=np.int16)
    shards = np.ones_like(dimm) if shards is None else np.array(shards, dtype=np.int16)
    jobs = tuple(sorted(jobs, key=lambda one: one.start_ns))
    return LayerRecord(
        phase="decode",
        step=2,
        layer=7,
        start_ns=START,
        end_ns=max(one.end_ns for one in jobs) if end_ns is None else START + end_ns,
        window_ns=0.0,
        loads=np.ones(len(dimm), dtype=np.int64),
        tokens=1,
        placement=LayerPlacement(dimm, shards, np.zeros(len(dimm), dtype=np.bool_)),
        assignment=Assignment(),
        estimates={},
        jobs=jobs,
        migrations=(),
        under_way=0,
        bound_ns=0.0,
        residents=0,
        bottleneck="",
        critical_path=(),
    )


def ends(check):
    return {end.name: end for end in check.ends}


def test_experts_alone_end_when_their_simulated_times_say(costs):
    one, two = costs.expert(1).time_ns, costs.expert(2).time_ns
    jobs = [ndp(1, 0, 300, 300 + two, 2), ndp(1, 1, 300 + two, 300 + two + one), ndp(2, 2, 0, one)]
    check = check_layer(costs, record(jobs, [1, 1, 2]))
    assert (check.step, check.layer, check.limit) == (2, 7, 0.05)
    assert list(ends(check)) == ["dimm 1", "dimm 2"]
    assert ends(check)["dimm 2"].cycle_ns == pytest.approx(one, rel=1e-4)
    assert ends(check)["dimm 1"].cycle_ns == pytest.approx(300 + one + two, abs=70)  # weights are read ahead
    assert check.cycle_ns == ends(check)["dimm 1"].cycle_ns
    assert check.error == pytest.approx(check.rate_ns / check.cycle_ns - 1)


def test_a_rate_that_is_wrong_is_an_error_of_its_size(costs):
    one = costs.expert(1).time_ns
    check = check_layer(costs, record([ndp(0, 0, 0, 0.8 * one), ndp(1, 1, 0, one)], [0, 1]))
    assert ends(check)["dimm 0"].error == pytest.approx(-0.2, abs=0.001)
    assert ends(check)["dimm 1"].error == pytest.approx(0, abs=0.001)
    assert check.largest.name == "dimm 0"
    assert not check.ok


@pytest.mark.parametrize("kind", ["dimm", "read"])
def test_an_end_on_the_critical_path_is_held_to_its_own_time(costs, kind):
    """An end is 6% early by rates and the layer five times as long: 1.2% of the layer, but on its path."""
    one = costs.expert(1).time_ns if kind == "dimm" else BYTES / 20
    own = ndp(0, 0, 0, 0.94 * one) if kind == "dimm" else read(0, 0, 0.94 * one, 20.0)
    results = job("pcie-down", "results", -1, 0.94 * one, 5 * one, bytes=512)
    beside = ndp(1, 1, 0, 0.94 * costs.expert(1).time_ns)
    jobs = sorted((own, beside, results), key=lambda job: job.start_ns)
    given = record(jobs, [0 if kind == "dimm" else 3, 1])
    aside = check_layer(costs, given)
    assert aside.ok
    check = check_layer(costs, replace(given, critical_path=(jobs.index(own), jobs.index(results))))
    critical = {end.name: end.critical for end in check.ends}
    assert critical == {("dimm 0" if kind == "dimm" else "read 0 cpu"): True, "dimm 1": False}
    assert not check.ok
    assert check.largest.error == pytest.approx(-0.06, abs=0.01)
    assert [end.critical for end in check.beyond] == [True]
    assert ends(aside)[check.largest.name].error == pytest.approx(-0.06 / 5, abs=0.002)


def test_a_layer_is_held_to_two_percent():
    end = CheckedEnd("dimm 0", 90.0, 90.0, 0.0)
    checks = [LayerCheck(0, 1, limit, 100 * (1 + error), 100.0, error, (end,)) for limit, error in (
        (0.05, 0.019), (0.05, -0.021), (0.5, 0.021), (0.01, 0.011), (0.01, -0.009)
    )]  # fmt: skip
    assert [check.ok for check in checks] == [True, False, False, False, True]


def test_reads_begin_when_they_began_at_their_own_limit(costs):
    jobs = [read(0, 1000, 1000 + BYTES / 10, 10.0), copy(1, 200, 200 + BYTES / 20), read(2, 0, 900, 5.0)]
    check = ends(check_layer(costs, record(jobs, [STRIPED, 3, 1])))
    assert check["read 0 cpu"].cycle_ns == pytest.approx(1000 + BYTES / 10, rel=0.01)
    assert check["read 1 gpu"].cycle_ns == pytest.approx(200 + BYTES / 20, rel=0.02)
    assert check["read 2 cpu"].cycle_ns == pytest.approx(BYTES / 5, rel=0.01)
    assert check["read 2 cpu"].rate_ns == 900


def test_reads_ask_for_no_more_than_a_channel_has(costs):
    check = check_layer(costs, record([read(0, 0, 1, 300.0), read(1, 0, 1, 300.0)], [STRIPED, 0]))
    at_most = 2 * HARDWARE.dimm_host_gbps
    assert ends(check)["read 0 cpu"].cycle_ns > BYTES / at_most
    # One channel carries half of the first and all of the second.
    assert check.cycle_ns == pytest.approx(1.5 * BYTES / (at_most / 2), rel=0.2)


def test_an_expert_beside_a_read_is_that_of_a_session(costs):
    jobs = [ndp(2, 0, 100, 3000, 1), read(1, 0, 3000, 30.0)]
    check = ends(check_layer(costs, record(jobs, [2, 0])))
    beside = simulate_dimm(
        HARDWARE,
        [{"model": MODEL, "dimm": 1, "release_ns": 100}],
        host_reads=[{"model": MODEL, "gbps": 30, "behind": True}],
    )
    assert check["dimm 2"].cycle_ns == beside.jobs[0].end_ns
    assert check["read 1 cpu"].cycle_ns == beside.host[0].end_ns


def test_slices_of_a_sharded_expert_run_and_are_read_on_their_dimms(costs):
    alone = costs.expert(1, 2).time_ns
    jobs = [ndp(0, 0, 0, alone), ndp(1, 0, 0, alone), read(1, 0, BYTES / 20, 20.0)]
    check = ends(check_layer(costs, record(jobs, [0, 2], [2, 2])))
    assert set(check) == {"dimm 0", "dimm 1", "read 1 cpu"}
    assert check["dimm 0"].cycle_ns == pytest.approx(alone, rel=0.02)
    assert check["read 1 cpu"].cycle_ns == pytest.approx(BYTES / 20, rel=0.02)  # 10 GB/s of each


def test_a_share_of_an_expert_reads_its_share(costs):
    jobs = [read(0, 0, BYTES / 40, 10.0, share=0.25), ndp(0, 1, 0, 900, share=0.5)]
    check = ends(check_layer(costs, record(jobs, [3, 0])))
    assert check["read 0 cpu"].cycle_ns == pytest.approx(BYTES / 40, rel=0.02)
    assert check["dimm 0"].cycle_ns == pytest.approx(costs.expert(1, share=0.5).time_ns, rel=1e-4)


def test_channels_that_do_the_same_are_run_once(costs, monkeypatch):
    runs = []
    plain = exact_layer._run
    monkeypatch.setattr(exact_layer, "_run", lambda *of: runs.append(of) or plain(*of))
    check_layer(costs, record([read(0, 0, 900, 20.0), ndp(2, 1, 0, 900), ndp(3, 2, 0, 900)], [STRIPED, 2, 3]))
    assert len(runs) == 1
    check_layer(costs, record([read(0, 0, 900, 20.0), ndp(2, 1, 0, 900)], [STRIPED, 2]))
    assert len(runs) == 3


def test_reads_after_the_experts_do_without_them(costs, monkeypatch):
    one = costs.expert(1).time_ns
    times = [(n * 4000.0, (n + 1) * 4000.0) for n in range(6)]
    jobs = [read(n, *span, BYTES / 4000) for n, span in enumerate(times)]
    jobs += [ndp(0, 6, 0, one), ndp(1, 7, 0, 2 * one), ndp(1, 8, one, 2 * one)]
    given = record(jobs, [STRIPED] * 6 + [0, 1, 1])
    cut = check_layer(costs, given)
    runs = []
    plain = exact_layer._run
    monkeypatch.setattr(exact_layer, "_run", lambda *of: runs.append(of[1]) or plain(*of))
    check_layer(costs, given)
    assert sorted((len(of.queued), len(of.reads)) for of in runs) == [(0, 5), (1, 1), (2, 2)]
    monkeypatch.setattr(exact_layer, "_MARGIN", 1e9)
    whole = check_layer(costs, given)
    for ours, theirs in zip(cut.ends, whole.ends, strict=True):
        assert ours.name == theirs.name
        assert ours.cycle_ns == pytest.approx(theirs.cycle_ns, rel=0.01)


def test_copies_go_as_fast_as_pcie_lets_them(costs):
    took = 2 * BYTES / 20
    jobs = [copy(expert, 0, took, pcie_part=0.5) for expert in (0, 1)]
    check = ends(check_layer(costs, record(jobs, [STRIPED, STRIPED])))
    assert check["read 0 gpu"].cycle_ns == pytest.approx(took, rel=0.02)


def a_move(source, target, end_ns, share=1.0, pcie_part=1.0):
    return MovingRecord(8, 3, source, target, share, START, START + end_ns, pcie_part)


def test_copies_from_before_are_read_beside_the_layer_as_far_as_they_are_left(costs):
    alone = costs.host_read(1).time_ns
    given = record([read(0, 0, 2 * alone, 60.0)], [0])

    def cycle_ns(*moving):
        return ends(check_layer(costs, replace(given, moving=moving)))["read 0 cpu"].cycle_ns

    assert cycle_ns() == pytest.approx(alone, rel=0.02)
    assert cycle_ns(a_move("localized 0", "gpu", 2 * alone)) == pytest.approx(2 * alone, rel=0.02)
    assert cycle_ns(a_move("localized 1", "gpu", 2 * alone)) == pytest.approx(alone, rel=0.02)
    half = cycle_ns(a_move("localized 0", "gpu", 1.5 * alone, share=0.5))
    assert half == pytest.approx(1.5 * alone, rel=0.03)
    assert cycle_ns(a_move("localized 0", "gpu", 2 * alone, pcie_part=0.01)) == pytest.approx(alone, rel=0.02)


@pytest.mark.parametrize(("target", "slower"), [(0, True), (1, True), (2, False)])
def test_relayouts_move_beside_the_layer(costs, target, slower):
    one = costs.expert(1).time_ns
    given = record([ndp(dimm, dimm, 0, one) for dimm in (0, 1)], [0, 1])
    moving = (a_move("localized 3", f"localized {target}", one),)
    dimms = ends(check_layer(costs, replace(given, moving=moving)))
    usual = ends(check_layer(costs, given))
    late = [dimms[name].cycle_ns > 1.02 * usual[name].cycle_ns for name in ("dimm 0", "dimm 1")]
    assert late == [slower and target == dimm for dimm in (0, 1)]


def test_the_layer_ends_with_results_and_with_what_the_gpu_computes(costs):
    one = costs.expert(1).time_ns
    results = job("pcie-down", "results", -1, one, one + 500, bytes=512)
    check = check_layer(costs, record([ndp(0, 0, 0, one), results], [0]))
    assert check.cycle_ns == pytest.approx(one + 500, rel=1e-4)
    arrived = BYTES / 20
    jobs = [
        copy(0, 0, arrived),
        job("gpu", "shared", -1, 0, 700),
        job("gpu", "expert", 1, 700, 900, tokens=1),
        job("gpu", "expert", 0, arrived, arrived + 4000, tokens=1),
    ]
    check = check_layer(costs, record(jobs, [STRIPED, STRIPED]))
    assert check.cycle_ns == pytest.approx(arrived + 4000, rel=0.01)


def test_an_expert_that_arrives_in_the_layer_is_computed_when_it_has_arrived(costs):
    """Expert 1, on its way since before, arrives at 2000; expert 0, which is there, ends at 900; 2 follows on 1."""
    jobs = [
        job("gpu", "shared", -1, 0, 700),
        job("gpu", "expert", 0, 700, 900, tokens=1),
        job("gpu", "expert", 1, 2000, 2300, tokens=1),
        job("gpu", "expert", 2, 2300, 2600, tokens=1),
    ]
    given = replace(record(jobs, [STRIPED] * 3), moving=(a_move("striped", "gpu", 2000),))
    check = check_layer(costs, given)
    assert (check.ends, check.cycle_ns) == ((), 2600)


def test_a_layer_on_the_gpu_alone_takes_what_it_took(costs):
    check = check_layer(costs, record([job("gpu", "expert", 0, 0, 700, tokens=1)], [STRIPED]))
    assert (check.ends, check.error, check.cycle_ns) == ((), 0, 700)
    assert check.ok


def test_what_ends_too_early_is_as_far_off_as_what_ends_too_late():
    ends = [
        CheckedEnd(name, 100 * (1 + off), 100.0, off) for name, off in (("a", -0.2), ("b", 0.1), ("c", -0.04))
    ]
    check = LayerCheck(0, 1, 0.05, 100.0, 100.0, 0.0, tuple(ends))
    assert [end.name for end in check.beyond] == ["a", "b"]
    assert check.largest == ends[0]
    assert not check.ok
    assert replace(check, ends=(ends[2],)).ok
