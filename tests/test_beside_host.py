"""Layers of a model beside the host's own traffic: costs, whole runs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from builders import small_moe
from mistakes import refused
from ndpsim.audit import check_schedule
from ndpsim.config import load_hardware
from ndpsim.inference.layers import beside_host
from ndpsim.inference.layers.beside_host import BesideHost, checked_traffic
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.log import writing_log
from ndpsim.inference.serving.server import run_serving
from ndpsim.simulate import simulate_contention, simulate_host_read
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.simulate.results.expert import OverRefresh
from ndpsim.studies.sweeps.commands.moe import COMMAND as MOE
from ndpsim.workload.models import Expert
from ndpsim.workload.requests import generate_requests

EXPERT = Expert(512, 256)
#: One DIMM on each channel, as in `gemv`; without refreshes, no start is special.
ONE = load_hardware("trimoe", ("dimm.count=8", "dram.refresh=none"))
SHARES = (None, 0, "10%", "30%", "60%")


def costs(gbps, hardware=ONE, cache=False, **others):
    return Costs(hardware, EXPERT, cache=cache, traffic=checked_traffic(hardware, gbps), **others)


def moe(gbps=None, policies=(small_moe.Everything, "monde"), **others):
    return small_moe.moe(*policies, host_gbps=gbps, layers=(1, 2), **others)


# ---- Costs


@pytest.mark.parametrize("arbitration", ["host-first", "slice"])
@pytest.mark.parametrize("tokens", [1, 9])
def test_an_expert_takes_as_long_as_by_gemv_with_the_same_traffic(tokens, arbitration):
    for share in ("10%", 20):
        beside = simulate_contention(ONE, EXPERT, tokens, share, arbitration=arbitration, cache=False)
        cost = costs(share, arbitration=arbitration).expert(tokens)
        assert cost.time_ns == pytest.approx(beside.ndp_time_ns, rel=1e-9)
        assert set(cost.added_nj.values()) == {None}


def test_more_traffic_makes_nothing_faster_and_none_changes_nothing():
    hardware = load_hardware("trimoe", ("dimm.count=8",))
    of_each = [costs(share, hardware) for share in SHARES]
    assert of_each[0].expert(2) == of_each[1].expert(2)
    assert of_each[0].host_read(None) == of_each[1].host_read(None)
    for name, time_ns in {
        "expert": lambda cost: cost.expert(2).time_ns,
        "sharded": lambda cost: cost.expert(2, shards=4).time_ns,
        "striped read": lambda cost: cost.host_read(None).time_ns,
        "localized read": lambda cost: cost.host_read(1).time_ns,
        "move": lambda cost: cost.relayout("localized 0", "localized 1").time_ns,
    }.items():
        times_ns = [time_ns(cost) for cost in of_each]
        assert np.all(np.diff(times_ns) >= -1e-3 * times_ns[0]), name
        assert times_ns[-1] > times_ns[0] or name == "move", name


def test_a_read_has_what_the_traffic_leaves_of_its_channel():
    read = simulate_host_read(ONE, EXPERT, "striped", cache=False)
    for gbps in (4.0, 12.0):
        cost = costs(gbps).host_read(None)
        left = read.bandwidth_gbps / read.channels - gbps
        assert 0.75 * left < cost.gbps_per_channel < 1.05 * left


def test_a_kept_time_is_for_the_same_expert_and_traffic_only(monkeypatch):
    """What is simulated is replaced by a count of simulations."""
    simulated = []
    for name in ("_ends_ns", "_move_ns"):
        monkeypatch.setattr(BesideHost, name, lambda *given: simulated.append(given) or 1.0)
    cache, alone = ResultCache(disk_bytes=0), OverRefresh(1e3, 1e3, 1e3, None, (5, 9), (1e3, 1e3))
    usual = dict(memory=ONE, bits=16, arbitration="host-first", traffic=checked_traffic(ONE, 5), cache=cache)
    others = (
        {},
        {"memory": load_hardware("trimoe", ("dimm.count=8", "dram.refresh=none", "dimm.ranks=1"))},
        {"bits": 8},
        {"arbitration": "slice"},
        {"traffic": checked_traffic(ONE, 6)},
    )
    asked = (
        (EXPERT, [1], 1),
        (Expert(512, 512), [1], 1),
        (EXPERT, [2], 1),
        (EXPERT, [1, 1], 1),
        (EXPERT, [1], 2),
    )
    for other in others:
        for expert in asked:
            before = len(simulated)
            for _ in range(2):
                BesideHost(**{**usual, **other}).expert_ns(*expert, alone)
            assert len(simulated) == before + len(alone.start_clocks), (other, expert)


def test_the_host_s_own_memory_has_none_of_the_traffic():
    edge = load_hardware("edge")
    alone, beside = (costs(gbps, edge) for gbps in (None, "20%"))
    assert beside.host_read(None) == alone.host_read(None)
    assert beside.expert(1).time_ns > alone.expert(1).time_ns


def test_a_long_expert_has_the_slowdown_of_its_first_part(monkeypatch):
    whole = costs("30%").expert(1).time_ns
    monkeypatch.setattr(beside_host, "_WINDOW_NS", whole / 3)
    assert costs("30%").expert(1).time_ns == pytest.approx(whole, rel=0.05)


def test_results_are_kept_by_the_traffic(tmp_path):
    cache = small_moe.ResultCache(tmp_path)
    times_ns = [costs(share, cache=cache).expert(1).time_ns for share in SHARES]
    again = small_moe.ResultCache(tmp_path)
    assert [costs(share, cache=again).expert(1).time_ns for share in SHARES] == times_ns
    assert again.misses == 0
    assert len(set(times_ns)) == len(SHARES) - 1


# ---- Runs


@pytest.fixture(scope="module")
def results():
    policies = [small_moe.alone_on(engine) for engine in ("ndp", "cpu")]
    return {gbps: moe(gbps, policies) for gbps in (None, 0, "20%")}


def test_a_run_beside_traffic_is_slower_and_says_so(results):
    without, none, beside = results.values()
    assert without.runs == none.runs
    assert without.config == none.config
    assert beside.config["host_gbps"] == pytest.approx(0.2 * 38.4)
    for first, second in zip(without.runs, beside.runs, strict=True):
        assert second.moe_ns > first.moe_ns
        assert second.bound_ns <= second.moe_ns
        assert first.energy_nj["activate"] > 0
        assert second.energy_nj["activate"] is None


def test_the_log_of_such_a_run_has_no_faults_and_a_layer_is_simulated_again(tmp_path):
    with writing_log(tmp_path / "log.jsonl") as log:
        result = moe("20%", observer=log, check_layer=(1, 2), steps=2)
    report = check_schedule(tmp_path / "log.jsonl")
    assert report.count == 0, report.findings
    for run in result.runs:
        assert run.check.rate_ns == pytest.approx(run.check.cycle_ns, rel=0.1)


def test_points_of_a_sweep_differ_by_the_traffic():
    keys = {MOE.resolve({"model": "deepseek-v2", **more}).key for more in ({}, {"host-traffic": "20%"})}
    assert len(keys) == 2


def test_requests_are_served_beside_traffic():
    asked = generate_requests("poisson:requests=3,rate=100,input_tokens=16,output_tokens=3", seed=1)
    given = dict(policy=small_moe.Everything, max_batch=4, cache=small_moe.CACHE, gpu_experts=2)
    without, beside = (
        run_serving("trimoe", small_moe.MODEL, asked, host_gbps=gbps, **given) for gbps in (None, "20%")
    )
    assert without.config["host_gbps"] is None
    assert beside.config["host_gbps"] == pytest.approx(0.2 * 38.4)
    assert beside.tpot_ns["mean"] > without.tpot_ns["mean"]


@pytest.mark.parametrize(
    ("hardware", "gbps", "expected"),
    [
        ("trimoe", "60%", "range host_gbps"),
        ("trimoe", -1, "range host_gbps"),
        ("cxl", "10%", "unsupported host_gbps"),
        ("dali-7532-3090", 1, "unsupported host_gbps"),
        ("aim-cards", 1, "unsupported host_gbps"),
    ],
)
def test_traffic_that_cannot_be_is_refused(hardware, gbps, expected):
    with refused(expected):
        checked_traffic(load_hardware(hardware), gbps)


def test_a_run_needs_a_rate():
    with refused("form host_gbps"):
        moe("saturate")
