"""TriMoE's policy against its equations: by hand, against MILP, and in runs with arbitrary loads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.policy_machines import TOKENS, flags
from builders.policy_machines import estimates as plain_estimates
from builders.policy_machines import machine as plain_machine
from ndpsim.policies import views
from ndpsim.policies.assignment.bottleneck import CPU, DIMM, GPU
from ndpsim.policies.assignment.relocation import HOT
from ndpsim.policies.interface import Assignment, Migration
from ndpsim.policies.offline import LoadPredictor
from ndpsim.policies.published.trimoe.makespan import CostModel
from ndpsim.policies.published.trimoe.policy import TriMoE, TriMoEParameters
from ndpsim.workload.routing import Routing
from oracles.trimoe import (
    Coming,
    EngineCosts,
    Schedule,
    engine_costs,
    engines_of,
    migrations,
    ndp_busy,
    prefetches,
    rebalances,
    scheduled,
)

INF = float("inf")
# Four DIMMs on two channels: a striped read takes 40 ns, of which each DIMM serves its quarter in 20.
ESTIMATES = plain_estimates(ndp_ns=np.maximum(30.0, 20.0 * TOKENS))


def machine(experts: int = 8, layers: int = 1, gpu_experts: int = 0, dimms: int = 4) -> views.Machine:
    channel = tuple(dimm // 2 for dimm in range(dimms))
    return plain_machine(experts, layers, gpu_experts, dimms, channel=channel)


def layer(dimm: Sequence[int], resident: Sequence[int] = ()) -> views.LayerPlacement:
    """Experts on these DIMMs or striped, those of `resident` also with the GPU."""
    count = len(dimm)
    return views.LayerPlacement(np.array(dimm, np.int16), np.ones(count, np.int16), flags(count, resident))


def policy(
    estimates: views.Estimates = ESTIMATES, of: views.Machine | None = None, **parameters: Any
) -> TriMoE:
    return TriMoE(machine() if of is None else of, estimates, TriMoEParameters(**parameters))


def view(
    loads: Sequence[int], placement: views.LayerPlacement, phase: str = "decode", arriving: Sequence[int] = ()
) -> views.LayerView:
    on_the_way = flags(len(loads), arriving)
    return views.LayerView(phase, 0, 0, np.array(loads, np.int64), max(loads), placement, on_the_way)


def makespan(
    assignment: Assignment,
    loads: Sequence[int],
    placement: views.LayerPlacement,
    estimates: views.Estimates = ESTIMATES,
) -> float:
    """Equations 1 to 7 once more, expert by expert."""
    gpu, cpu, dimms = estimates.shared_ns, 0.0, dict.fromkeys(range(4), 0.0)

    def read(expert: int) -> float:
        at = int(placement.dimm[expert])
        for dimm in dimms if at == views.STRIPED else [at]:
            dimms[dimm] += estimates.localized_read_ns / (len(dimms) if at == views.STRIPED else 1)
        return estimates.striped_read_ns if at == views.STRIPED else estimates.localized_read_ns

    for expert in assignment.gpu:
        assert isinstance(expert, int)
        compute = estimates.gpu_ns[loads[expert]]
        gpu += compute if placement.resident[expert] else max(compute, estimates.pcie_ns, read(expert))
    for expert in assignment.cpu:
        assert isinstance(expert, int)
        cpu += max(estimates.cpu_ns[loads[expert]], read(expert))
    for expert in assignment.ndp:
        assert isinstance(expert, int)
        dimms[int(placement.dimm[expert])] += estimates.ndp_ns[loads[expert]]
    return float(max(gpu, cpu, *dimms.values()))


# ---- equations 1 to 7, and greedy

# Expert: 0 resident, 1 striped, 2 and 3 on DIMM 0, 4 on DIMM 1, 5 without tokens, 6 striped, 7 on DIMM 3.
LOADS = [30, 8, 1, 5, 4, 0, 200, 2]
PLACEMENT = layer([views.STRIPED, views.STRIPED, 0, 0, 1, views.STRIPED, views.STRIPED, 3], resident=[0])


def test_costs_are_those_of_equations_1_to_4() -> None:
    costs = engine_costs(CostModel(ESTIMATES, 4), np.array(LOADS), PLACEMENT)
    # Hit: compute. Miss: compute 210 above PCIe 100 above the reads, 40 striped and 80 localized.
    assert costs.time[GPU].tolist() == [40, 100, 100, 100, 100, 100, 210, 100]
    # Compute above the read, or the read above compute.
    assert costs.time[CPU].tolist() == [128, 40, 80, 80, 80, 40, 808, 80]
    assert costs.time[DIMM].tolist() == [INF, INF, 30, 100, 80, INF, INF, 40]
    assert costs.contention[GPU].tolist() == [0, 20, 80, 80, 80, 20, 20, 80]
    assert costs.contention[CPU].tolist() == [20, 20, 80, 80, 80, 20, 20, 80]


def test_a_localized_read_bounds_a_missed_expert_where_it_is_slower_than_pcie() -> None:
    slow = dataclasses.replace(ESTIMATES, localized_read_ns=300.0)
    costs = engine_costs(CostModel(slow, 4), np.array(LOADS), PLACEMENT)
    assert costs.time[GPU].tolist() == [40, 100, 300, 300, 300, 100, 210, 300]


def test_greedy_takes_the_least_of_equations_1_to_4_and_ndp_then_the_cpu_of_equals() -> None:
    got = policy(refine=False).assign(view(LOADS, PLACEMENT))
    assert set(got.gpu) == {0, 6}
    assert set(got.cpu) == {1, 3}
    assert set(got.ndp) == {2, 4, 7}  # 4: 80 ns on the CPU, too
    same = layer([views.STRIPED] * 8)
    slow_host = dataclasses.replace(ESTIMATES, striped_read_ns=100.0, pcie_ns=90.0)
    got = policy(slow_host, refine=False).assign(view([1] * 8, same))  # read by either in 100 ns
    assert len(got.cpu) == 8


def test_equations_5_to_7_add_up_engines_and_contention() -> None:
    costs = engine_costs(CostModel(ESTIMATES, 4), np.array(LOADS), PLACEMENT)
    schedule = scheduled(costs, PLACEMENT, np.array(LOADS), 4, shared_ns=5.0)
    # GPU: 5 + 40 + 210. CPU: 40 + 80. Each DIMM 20 + 20 of the striped reads of 1 and 6; DIMM 0 also its
    # expert's 30 and the read of 3, DIMM 1 its expert's 80, DIMM 3 its expert's 40.
    assert schedule.busy_ns.tolist() == [255, 120, 150, 120, 40, 80]
    assert schedule.makespan_ns == 255


def test_shared_experts_are_the_gpus_first_work() -> None:
    shared = dataclasses.replace(ESTIMATES, shared_ns=7.0)
    got = policy(shared, refine=False).assign(view([30, *[0] * 7], PLACEMENT))
    assert got.estimated_ns == 47


def test_a_fused_call_counts_where_the_gpu_computes_and_copies_have_calls_of_their_own() -> None:
    """A call of 50 ns. 30 tokens of a resident: 7 + 50 + 40; nothing there: shared experts of 7, and 80 on
    the CPU; 300 tokens are copied: 7 + 310 and a call.
    """
    fused = dataclasses.replace(ESTIMATES, shared_ns=57.0, call_ns=50.0)
    for loads, ns in (([30, *[0] * 7], 97), ([0, 0, 0, 5, *[0] * 4], 80), ([0, 300, *[0] * 6], 367)):
        assert policy(fused, refine=False).assign(view(loads, PLACEMENT)).estimated_ns == ns


def test_an_expert_on_its_way_waits_for_the_rest_of_its_copy_and_comes_before_those_that_are_copied() -> None:
    late = dataclasses.replace(ESTIMATES, window_ns=70.0)  # 30 ns of the copy are left
    loads = [30, 300, 2, 5, 0, 0, 0, 0]
    got = policy(late, refine=False).assign(view(loads, PLACEMENT, arriving=[2, 3]))
    assert list(got.gpu) == [0, 2, 3, 1]
    costs = engine_costs(
        CostModel(late, 4), np.array(loads), PLACEMENT, np.array([False, False, True, True, *[False] * 4])
    )
    assert costs.time[GPU, 2:4].tolist() == [30, 30]
    assert costs.contention[GPU, 2:4].tolist() == [0, 0]


def test_a_mean_load_costs_what_lies_between_and_less_than_a_token_a_share() -> None:
    expert_costs = CostModel(ESTIMATES, 4).expert_costs(np.array([2.5, 1.0, 0.5, 0.0, 9.5]))
    assert expert_costs.resident.tolist() == [12.5, 11, 5.5, 0, 19.5]
    assert expert_costs.striped.tolist() == [40, 40, 20, 0, 46]
    assert expert_costs.localized.tolist() == [12.5, 7.5, 3.75, 0, 80]
    assert expert_costs.ndp.tolist() == [50, 30, 15, 0, 0]
    assert expert_costs.cold.tolist() == [True, True, True, True, False]


def test_the_contention_of_a_striped_read_is_a_parameter() -> None:
    loads, placement = [2, 10], layer([0, views.STRIPED])
    part = policy(of=machine(2)).assign(view(loads, placement))
    whole = policy(of=machine(2), contention="whole").assign(view(loads, placement))
    assert (part.estimated_ns, whole.estimated_ns) == (40 + 20, 40 + 40)


# ---- refinement


def refined(
    gpu: Sequence[float], cpu: Sequence[float], ndp: Sequence[float], dimm: Sequence[int], limit: int = 10
) -> Schedule:
    """Experts of these costs, with two DIMMs and no contention."""
    costs = EngineCosts(np.array([gpu, cpu, ndp], np.float64), np.zeros((2, len(gpu))))
    return scheduled(costs, layer(dimm), np.ones(len(gpu), np.int64), 2, limit=limit)


@pytest.mark.parametrize(("gpu", "cpu", "to"), [(60, 70, GPU), (70, 60, CPU), (60, 60, GPU)])
def test_of_equal_makespans_refinement_takes_the_least_increase(gpu: int, cpu: int, to: int) -> None:
    # DIMM 0: 50 + 40, DIMM 1: 80. Without expert 0 DIMM 1 makes the makespan, wherever expert 0 goes.
    schedule = refined([gpu, 99, 99], [cpu, 99, 99], [50, 40, 80], [0, 0, 1])
    assert (schedule.moves, schedule.greedy_ns, schedule.makespan_ns) == (1, 90, 80)
    assert schedule.devices.tolist() == [to, DIMM, DIMM + 1]


def test_refinement_takes_the_least_makespan_before_the_least_increase() -> None:
    # The GPU is busy with expert 1 for 80: expert 0 adds 61 there and 70 to the idle CPU.
    schedule = refined([61, 80, 99], [70, INF, 99], [60, INF, 50], [0, views.STRIPED, 0], limit=1)
    assert schedule.devices.tolist() == [CPU, GPU, DIMM]


def test_refinement_tries_the_most_costly_expert_of_the_bottleneck_only() -> None:
    # Expert 1 on the CPU would make 60 of 110, but expert 0 is the most costly, and nowhere better.
    schedule = refined([200, 200], [200, 50], [60, 50], [0, 0])
    assert (schedule.moves, schedule.makespan_ns) == (0, 110)


def test_refinement_never_makes_an_illegal_move() -> None:
    # Both DIMMs are idle, but expert 0 is striped: it could only go to the GPU.
    schedule = refined([500, 500], [60, 50], [INF, 51], [views.STRIPED, 1])
    assert (schedule.moves, schedule.makespan_ns) == (0, 110)


def test_refinement_goes_on_until_nothing_helps_or_the_limit_is_reached() -> None:
    costs = [INF] * 6, [20] * 6, [30] * 6, [0, 1, 0, 1, 0, 1]
    schedule = refined(*costs, limit=2)
    assert (schedule.moves, schedule.busy_ns.tolist()) == (2, [0, 80, 30, 30])
    schedule = refined(*costs, limit=100)  # the fourth would leave the makespan as it is
    assert (schedule.moves, schedule.busy_ns.tolist()) == (3, [0, 60, 60, 30])


def test_refinement_counts_the_contention_that_a_move_ends() -> None:
    # Expert 0 on the CPU is read from its DIMM in 80 ns: back on that DIMM it takes 100 and reads nothing.
    loads, placement = np.array([5, 5, 9]), layer([0, 1, views.STRIPED])
    costs = engine_costs(CostModel(ESTIMATES, 2), loads, placement)
    # CPU 80 + 80 + 44; each DIMM its read of 80 and 40 of the striped one.
    assert scheduled(costs, placement, loads, 2).busy_ns.tolist() == [0, 204, 120, 120]
    # Expert 0 back: the CPU is busy 124 and DIMM 0 100 + 40. To the GPU: the CPU 124, the GPU 100.
    schedule = scheduled(costs, placement, loads, 2, limit=10)
    assert schedule.moves == 1
    assert schedule.devices.tolist() == [GPU, CPU, CPU]
    assert schedule.busy_ns.tolist() == [100, 124, 120, 120]


# ---- against the best of all assignments

LAYERS = st.integers(1, 7).flatmap(
    lambda experts: st.tuples(
        st.lists(st.integers(0, 40), min_size=experts, max_size=experts),
        st.lists(st.integers(views.STRIPED, 3), min_size=experts, max_size=experts),
        st.lists(st.booleans(), min_size=experts, max_size=experts),
    )
)


def optimum(loads: Sequence[int], placement: views.LayerPlacement) -> float:
    """The least makespan of all assignments, by MILP over (expert, device) and the makespan."""
    active = [expert for expert, load in enumerate(loads) if load]
    costs = engine_costs(CostModel(ESTIMATES, 4), np.array(loads), placement)
    choices: list[tuple[int, int]] = []
    rows: list[list[float]] = [[] for _ in range(6)]
    for expert in active:
        at = int(placement.dimm[expert])
        for device in (GPU, CPU) if at == views.STRIPED else (GPU, CPU, DIMM + at):
            busy = [0.0] * 6
            busy[device] = costs.time[min(device, DIMM), expert]
            if device == CPU or (device == GPU and not placement.resident[expert]):
                for dimm in range(4) if at == views.STRIPED else [at]:
                    busy[DIMM + dimm] += 20.0 if at == views.STRIPED else 80.0
            choices.append((expert, device))
            for row, time in zip(rows, busy, strict=True):
                row.append(time)
    if not active:
        return 0.0
    once = [[float(one == expert) for one, _ in choices] + [0.0] for expert in active]
    result = scipy.optimize.milp(
        [0.0] * len(choices) + [1.0],
        integrality=[1] * len(choices) + [0],
        bounds=scipy.optimize.Bounds(0, [1] * len(choices) + [np.inf]),
        constraints=[
            scipy.optimize.LinearConstraint(once, 1, 1),
            scipy.optimize.LinearConstraint([[*row, -1.0] for row in rows], -np.inf, 0),
        ],
    )
    assert result.success
    return float(result.fun)


@settings(max_examples=60)
@given(LAYERS)
def test_no_assignment_is_better_than_the_milp_optimum_and_refinement_never_harms(case):
    loads, dimm, resident = case
    placement = layer(dimm, np.flatnonzero(resident).tolist())
    of = machine(len(loads))
    best = optimum(loads, placement)
    got = policy(of=of).assign(view(loads, placement))
    first = policy(of=of, refine=False).assign(view(loads, placement))
    assert got.estimated_ns is not None
    assert first.estimated_ns == got.details["greedy_ns"]
    assert best * (1 - 1e-9) <= got.estimated_ns <= first.estimated_ns
    assert engines_of(policy(of=of), view(loads, placement)) == [got.gpu, got.cpu, got.ndp]
    for one in (got, first):
        assert one.estimated_ns == pytest.approx(makespan(one, loads, placement))
        assert sorted([*one.gpu, *one.cpu, *one.ndp]) == np.flatnonzero(loads).tolist()
        assert all(dimm[expert] != views.STRIPED for expert in one.ndp)
    if np.count_nonzero(loads) == 1:  # contention is never longer than the read that causes it
        assert first.estimated_ns == pytest.approx(best)


def test_refinement_finds_the_optimum_where_greedy_does_not() -> None:
    loads, placement = [6, 6, 6, 6, 0, 0], layer([0, 1, 2, 3, 0, 1])
    got = policy(of=machine(6)).assign(view(loads, placement))
    # Greedy: all four at 80 on the CPU. Their own DIMMs take 120 each, the GPU 100 each.
    assert got.details["greedy_ns"] == 320
    assert got.estimated_ns == pytest.approx(optimum(loads, placement)) == 120


# ---- equation 8


def test_the_moving_average_by_hand() -> None:
    predictor = LoadPredictor(2, 3, alpha=0.3)
    predictor.begin(np.array([[10.0, 0.0, 4.0], [1.0, 1.0, 1.0]]))
    predictor.update(0, np.array([20, 10, 4]))
    assert predictor.loads[0] == pytest.approx([13.0, 3.0, 4.0])
    predictor.update(0, np.array([3, 0, 4]))
    assert predictor.loads[0] == pytest.approx([10.0, 2.1, 4.0])
    assert predictor.loads[1].tolist() == [1, 1, 1]


def test_the_memory_of_the_predictor_is_the_papers_38_kb() -> None:
    loads = LoadPredictor(60, 160, 0.3).loads
    assert (loads.dtype, loads.shape, loads.nbytes) == (np.float32, (60, 160), 38_400)
    assert 38_400 // 1000 == 38


# ---- the first layout


def trace(loads: np.ndarray[Any, Any], prefill: bool = False) -> Routing:
    """A trace of two experts a token with these loads, [layer, expert], each at most half of the sum."""
    rows = []
    for row in loads:
        chosen = np.repeat(np.arange(len(row)), row)
        half = len(chosen) // 2
        pairs = np.stack((chosen[:half], chosen[half:]), axis=1)
        assert (pairs[:, 0] != pairs[:, 1]).all()
        rows.append(pairs)
    ids = np.array(rows, np.int16)
    layers = tuple(range(len(loads)))
    if not prefill:
        return Routing(loads.shape[1], layers, np.stack((ids, ids)))
    return Routing(loads.shape[1], layers, ids[None][:0], ids, (ids.shape[1],))


# From 5 tokens on an expert is not for NDP: 20 x 5 ns is more than the 80 of a localized read.
OFFLINE = np.array([[22, 20, 18, 18, 3, 3, 2, 1, 1], [20, 18, 15, 12, 10, 5, 3, 3, 2]])


def placed(
    gpu_experts: int = 2, loads: np.ndarray[Any, Any] = OFFLINE, dimms: int = 4, **parameters: Any
) -> tuple[TriMoE, views.Placement]:
    of = machine(loads.shape[1], len(loads), gpu_experts, dimms)
    made = policy(of=of, **parameters)
    batch = int(loads[0].sum()) // 2
    return made, made.place(views.OfflineView(of, ESTIMATES, trace(loads), batch))


def test_hot_experts_are_resident_cold_ones_localized_and_the_others_striped() -> None:
    made, placement = placed()
    assert [np.flatnonzero(row).tolist() for row in placement.resident] == [[0], [0]]
    assert (placement.dimm >= 0).tolist() == [[False] * 4 + [True] * 5, [False] * 6 + [True] * 3]
    # Longest first: 60, 60, 40, then 30 and 30 where there is least.
    groups = [np.flatnonzero(placement.dimm[0] == dimm).tolist() for dimm in range(4)]
    assert sorted(groups) == [[4], [5], [6], [7, 8]]
    # The DIMM with two of the first layer gets none of the three of the second.
    assert np.bincount(placement.dimm[placement.dimm >= 0]).tolist() == [2, 2, 2, 2]
    assert made.predictor.loads.tolist() == OFFLINE.tolist()


def test_the_offline_loads_are_those_of_the_runs_batch() -> None:
    of = machine(9, 2)
    for prefill in (False, True):
        made = policy(of=of)
        made.place(views.OfflineView(of, ESTIMATES, trace(OFFLINE, prefill), 88))  # of 44 tokens
        assert made.predictor.loads == pytest.approx(2.0 * OFFLINE)


@pytest.mark.parametrize(
    ("gpu_experts", "hot_experts", "each"),
    [(0, None, [0, 0]), (3, None, [2, 1]), (5, None, [3, 2]), (100, None, [9, 9]), (8, 1, [1, 1])],
)
def test_the_gpus_memory_is_shared_evenly_by_layers(gpu_experts, hot_experts, each):
    _, placement = placed(gpu_experts, hot_experts=hot_experts)
    counts = placement.resident.sum(axis=1).tolist()
    assert sum(counts) <= gpu_experts
    # An expert of one or two tokens takes less of the step on one of four DIMMs than on the GPU.
    assert counts == [min(most, gains) for most, gains in zip(each, (6, 8), strict=True)]


def test_an_expert_with_the_gpu_is_not_localized() -> None:
    _, placement = placed(100)
    assert (placement.dimm[placement.resident] == views.STRIPED).all()
    assert (placement.dimm[~placement.resident] >= 0).all()


def test_dimms_get_alike_bytes_and_alike_loads() -> None:
    random = np.random.default_rng(3)
    cold = np.repeat([1, 2, 3, 4], [8, 8, 6, 4])
    loads = np.array([np.concatenate(([20] * 4, random.permutation(cold))) for _ in range(12)])
    _, placement = placed(0, loads)
    held = np.bincount(placement.dimm[placement.dimm >= 0], minlength=4)
    assert held.sum() == 12 * 26
    assert np.ptp(held) <= 2
    times = np.maximum(30, 20 * loads)
    for row, dimm in zip(times, placement.dimm, strict=True):
        busy = [row[dimm == one].sum() for one in range(4)]
        assert max(busy) - min(busy) <= row[dimm >= 0].max()


# ---- migrations


class Run:
    """Layers in turn, with migrations that end when the next layer begins, or `later` layers after that."""

    def __init__(self, made: TriMoE, placement: views.Placement, later: int = 0) -> None:
        self.policy = made
        self.placement = placement
        self.later = later
        self.moving = np.zeros(placement.dimm.shape, np.bool_)
        self.under_way: list[tuple[int, Migration]] = []
        self.now = 0
        self.free = made.machine.gpu_experts - int(placement.resident.sum())

    def layer(self, row: int, loads: Any, phase: str = "decode") -> list[Migration]:
        """What the policy decides when a layer is done; every decision is checked."""
        self.now += 1
        for due, migration in list(self.under_way):
            if due <= self.now:
                self._end(migration)
                self.under_way.remove((due, migration))
        following = (row + 1) % len(self.placement.dimm)
        here = self.placement
        frozen = views.Placement(here.dimm.view(), here.shards.view(), here.resident.view())
        for array in (frozen.dimm, frozen.shards, frozen.resident):
            array.flags.writeable = False
        seen = views.BackgroundView(phase, 0, row, following, np.array(loads), frozen, self.moving, self.free)
        readable = migrations(self.policy, seen) if phase != "prefill" else []
        answer = list(self.policy.background(seen))
        assert answer == readable
        for migration in answer:
            self._begin(following, migration)
        return answer

    def _begin(self, row: int, migration: Migration) -> None:
        at = row, migration.expert
        assert migration.layer == row
        assert not self.moving[at]
        if migration.kind == "evict":
            assert self.placement.resident[at]
            self.placement.resident[at] = False
            self.free += 1
            return
        if migration.kind == "prefetch":
            assert not self.placement.resident[at]
            self.free -= 1
            assert self.free >= 0
        else:
            here = self.placement.dimm[at]
            assert migration.kind == ("rebalance" if here >= 0 and migration.to >= 0 else "relayout")
            assert migration.to != here
            assert views.STRIPED <= migration.to < self.policy.machine.dimms
        self.moving[at] = True
        self.under_way.append((self.now + 1 + self.later, migration))

    def _end(self, migration: Migration) -> None:
        at = migration.layer, migration.expert
        self.moving[at] = False
        if migration.kind == "prefetch":
            self.placement.resident[at] = True
        else:
            self.placement.dimm[at] = migration.to


def kinds(migrations: Sequence[Migration]) -> list[tuple[str, int]]:
    return [(migration.kind, migration.expert) for migration in migrations]


def run(
    dimm: Sequence[int],
    predicted: Sequence[float],
    resident: Sequence[int] = (),
    gpu_experts: int = 0,
    estimates: views.Estimates = ESTIMATES,
    **parameters: Any,
) -> Run:
    """A run of one layer, whose predictor says `predicted` before the layer is seen."""
    made = policy(estimates, machine(len(dimm), 1, gpu_experts), **parameters)
    made.predictor.begin(np.array([predicted]))
    made.room[:] = [gpu_experts]
    one = layer(dimm, resident)
    return Run(made, views.Placement(one.dimm[None], one.shards[None], one.resident[None]))


def test_the_predictor_learns_each_layer_when_it_is_done() -> None:
    made, placement = placed()
    running = Run(made, placement)
    running.layer(0, OFFLINE[0] + 10)
    assert made.predictor.loads[0] == pytest.approx(OFFLINE[0] + 3)
    assert made.predictor.loads[1].tolist() == OFFLINE[1].tolist()
    running.layer(1, [0] * 9)
    assert made.predictor.loads[1] == pytest.approx(0.7 * OFFLINE[1])


def test_a_hot_expert_is_prefetched_in_place_of_the_coldest_resident() -> None:
    loads = [22, 18, 15, 10]
    running = run([views.STRIPED] * 4, loads, resident=[0, 3], gpu_experts=2)
    # Expert 1 gains 80 - 28, expert 3 only 48 - 20.
    got = running.layer(0, loads)
    assert kinds(got) == [("evict", 3), ("prefetch", 1)]
    assert [one.estimated_ns for one in got] == [0, 100]
    assert running.layer(0, loads) == []


def test_no_resident_leaves_where_there_is_room() -> None:
    loads = [22, 18, 15, 10]
    running = run([views.STRIPED] * 4, loads, resident=[0], gpu_experts=2)
    assert kinds(running.layer(0, loads)) == [("prefetch", 1)]


def test_experts_get_the_layout_of_their_best_engine() -> None:
    # Expert 0 is warm but on a DIMM, 1 is cold but striped, 2 and 3 lie as they should.
    loads = [10, 1, 10, 1]
    got = run([0, views.STRIPED, views.STRIPED, 0], loads).layer(0, loads)
    # Expert 1 gains 40 - 30 / 4, and goes to the first DIMM that is idle. Expert 0 gains 80 - 48.
    assert [(one.kind, one.expert, one.to, one.estimated_ns) for one in got] == [
        ("relayout", 1, 1, 60),
        ("relayout", 0, views.STRIPED, 50),
    ]


def test_relayouts_to_dimms_go_where_least_is_predicted() -> None:
    loads = [2, 1, 1, 1, 1, 1]
    got = run([0, 1, 2, views.STRIPED, views.STRIPED, views.STRIPED], loads, overrun=False).layer(0, loads)
    # DIMM 3 is idle; then DIMMs 1 to 3 have 30 each, DIMM 0 has 40.
    assert [(one.expert, one.to) for one in got] == [(3, 3), (4, 1), (5, 2)]


def test_cold_experts_go_from_the_busiest_to_the_most_idle_dimm() -> None:
    loads = [1, 2, 1, 1, 1]
    got = run([0, 0, 0, 1, 2], loads).layer(0, loads)
    # DIMM 0: 30 + 40 + 30, DIMM 3 idle: with expert 1 there they are 60 and 40. Then the busiest have 60
    # of a mean of 40, and no move lowers that by more.
    assert [(one.kind, one.expert, one.to) for one in got[:1]] == [("rebalance", 1, 3)]
    assert all(one.kind == "rebalance" for one in got)


def test_skew_below_the_threshold_is_left_alone() -> None:
    loads = [3, 1, 2, 2, 2]
    dimm = [0, 0, 1, 2, 3]  # 60 + 30 and three times 40: 71% above the mean, and one move would help
    assert kinds(run(dimm, loads, skew=0.8).layer(0, loads)) == []
    assert kinds(run(dimm, loads, skew=0.7).layer(0, loads)) == [("rebalance", 1)]


def test_tasks_are_taken_by_benefit_until_the_window_is_full() -> None:
    loads = [40, 21, 60, 30, 70, 50]
    dimm = [0, 1, 2, 3, 0, 1]
    wide = dataclasses.replace(ESTIMATES, localized_read_ns=400.0, pcie_ns=1000.0, window_ns=120.0)
    order = [1, 3, 0, 5, 2, 4]  # the CPU takes 8 + 4 x load in place of 400: the fewest tokens gain most
    strict = run(dimm, loads, estimates=wide, overrun=False).layer(0, loads)
    assert kinds(strict) == [("relayout", expert) for expert in order[:2]]  # 50 + 50 of 120
    over = run(dimm, loads, estimates=wide).layer(0, loads)
    assert kinds(over) == [("relayout", expert) for expert in order[:3]]  # the third fills it


def test_what_ends_behind_the_window_must_be_worth_it() -> None:
    loads = [20, 2]
    short = dataclasses.replace(ESTIMATES, window_ns=10.0, to_striped_ns=100.0)
    # Expert 0 gains 100 - 88 a step; 90 ns are behind the window.
    slower = dataclasses.replace(short, localized_read_ns=100.0)
    assert kinds(run([0, 0], loads, estimates=slower).layer(0, loads)) == []
    assert kinds(run([0, 0], loads, estimates=slower, benefit_steps=8).layer(0, loads)) == [("relayout", 0)]
    assert run([0, 0], loads, estimates=slower, benefit_steps=8, overrun=False).layer(0, loads) == []


@pytest.mark.parametrize("time_ns", [INF, float("nan")])
def test_a_migration_whose_time_is_no_number_is_not_begun(time_ns: float) -> None:
    no_links = dataclasses.replace(ESTIMATES, to_striped_ns=time_ns, to_localized_ns=time_ns)
    assert run([0, views.STRIPED], [10, 1], estimates=no_links).layer(0, [10, 1]) == []


@pytest.mark.parametrize(("budget", "count"), [("apart", 2), ("together", 1)])
def test_pcie_and_links_have_budgets_apart_or_one_together(budget: str, count: int) -> None:
    loads = [50, 40, 20, 1]
    one = dataclasses.replace(ESTIMATES, window_ns=110.0, to_localized_ns=100.0)
    running = run(
        [views.STRIPED] * 4,
        loads,
        [0],
        gpu_experts=2,
        estimates=one,
        overrun=False,
        budget=budget,
        relayout=True,
    )
    assert len(running.layer(0, loads)) == count


def test_what_is_under_way_counts_against_the_next_window() -> None:
    loads = [20, 20, 20, 20]
    wide = dataclasses.replace(ESTIMATES, localized_read_ns=400.0, window_ns=100.0)
    running = run([0, 1, 2, 3], loads, estimates=wide, overrun=False)
    running.later = 1
    assert len(running.layer(0, loads)) == 2
    assert running.layer(0, loads) == []  # the two have not ended
    assert len(running.layer(0, loads)) == 2
    assert len(running.layer(0, loads)) == 0


def test_what_is_under_way_is_not_decided_again() -> None:
    wide = dataclasses.replace(ESTIMATES, window_ns=1000.0)

    def again(dimm: Sequence[int], loads: Sequence[int], *resident: int, gpu_experts: int = 0) -> list[Any]:
        running = run(dimm, loads, resident, gpu_experts, wide)
        running.later = 1
        return [kinds(running.layer(0, loads)) for _ in range(2)]

    hot = again([views.STRIPED] * 4, [22, 18, 0, 0], 3, gpu_experts=4)
    assert hot == [[("prefetch", 0), ("prefetch", 1)], []]
    # On its way to DIMM 3, expert 1 counts there: DIMM 0 has 30 and 30 left, and no other is to go.
    assert again([0, 0, 0, 1, 2], [1, 2, 1, 1, 1]) == [[("rebalance", 1)], []]
    assert again([0, views.STRIPED, views.STRIPED, 0], [10, 1, 10, 1]) == [
        [("relayout", 1), ("relayout", 0)],
        [],
    ]
    # On its way to the GPU, expert 0 (80) makes DIMM 0 no longer busy: DIMM 1, which got expert 1, has 60.
    left = again([0, 0, 1, 2, 3], [4, 1, 1, 1, 1], gpu_experts=1)
    assert left == [[("rebalance", 1), ("prefetch", 0)], [("rebalance", 2)]]


def test_an_expert_on_its_way_is_no_candidate() -> None:
    expert_costs = CostModel(ESTIMATES, 4).expert_costs(np.array([22, 20, 1, 1, 1]))
    here = layer([views.STRIPED, views.STRIPED, 0, 0, 0])
    assert ndp_busy(expert_costs, here, 4).tolist() == [90, 0, 0, 0]
    for moving, prefetched, rebalanced in (([], 0, 2), ([0, 2], 1, 3)):
        coming = Coming(0, expert_costs, here, flags(5, moving), 4, ESTIMATES)
        begun = prefetches(coming, expert_costs.classes(2) == HOT, 2)
        assert begun[0].migration.expert == prefetched
        (cold,) = rebalances(coming, 0.0, 1)
        assert cold.migration.expert == rebalanced


def test_experts_with_the_gpu_neither_move_nor_make_a_dimm_busy() -> None:
    # Experts 0 and 1 would be relayouted; expert 2 would make DIMM 0 the busiest.
    loads = [10, 1, 4, 1, 1, 1, 1]
    dimm = [0, views.STRIPED, 0, 0, 1, 2, 3]
    assert run(dimm, loads, [0, 1, 2], gpu_experts=3, skew=0.0).layer(0, loads) == []
    assert kinds(run(dimm, loads).layer(0, loads)) != []


def test_decisions_follow_the_prediction_not_the_latest_loads() -> None:
    # 0.3 x 1 + 0.7 x 12 = 8.7 tokens: still warm.
    assert kinds(run([0, views.STRIPED], [12, 12]).layer(0, [1, 12])) == [("relayout", 0)]
    assert kinds(run([0, views.STRIPED], [1, 12]).layer(0, [10, 12])) == []  # 3.7: still cold


def test_nothing_moves_in_a_prefill() -> None:
    loads = [20, 1, 20, 1]
    running = run([0, views.STRIPED, views.STRIPED, 0], loads)
    assert running.layer(0, [500] * 4, "prefill") == []
    assert running.policy.predictor.loads[0].tolist() == loads


PLANS = st.tuples(
    st.integers(0, 2**32 - 1),
    st.integers(0, 5),
    st.integers(0, 2),
    st.sampled_from(["apart", "together"]),
    st.booleans(),
    st.sampled_from([10.0, 60.0, 120.0, 500.0]),
)


@settings(max_examples=40)
@given(PLANS)
def test_no_run_sees_an_illegal_move_or_more_than_the_window(plan):
    seed, gpu_experts, later, budget, overrun, window_ns = plan
    random = np.random.default_rng(seed)
    estimates = dataclasses.replace(ESTIMATES, window_ns=window_ns, localized_read_ns=160.0)
    of = machine(12, 2, gpu_experts)
    made = policy(estimates, of, budget=budget, overrun=overrun, skew=0.0)
    made.predictor.begin(random.integers(0, 60, (2, 12)).astype(float))
    made.room[:] = [gpu_experts // 2, gpu_experts - gpu_experts // 2]
    placement = views.Placement.striped(2, 12)
    placement.dimm[:] = random.integers(views.STRIPED, 4, (2, 12))
    placement.resident[0, : made.room[0]] = True
    running = Run(made, placement, later)
    for step in range(8):
        loads = random.integers(0, 60, 12) * random.integers(0, 2, 12)
        under_way = [one for due, one in running.under_way if due > running.now + 1]
        spent = {"pcie": 0.0, "link": 0.0}
        last = dict(spent)
        for one in [*under_way, *running.layer(step % 2, loads)]:
            which = "pcie" if one.kind in ("prefetch", "evict") else "link"
            which = which if budget == "apart" else "link"
            if one.kind != "evict":
                last[which] = one.estimated_ns
                spent[which] += one.estimated_ns
        for which, total in spent.items():
            assert total - (last[which] if overrun else 0.0) <= window_ns


# ---- what can be switched off


def mixed_run(**parameters: Any) -> set[str]:
    """Kinds of migrations in a run that asks for all of them."""
    dimm = [views.STRIPED, views.STRIPED, views.STRIPED, 0, 0, 0, 0, 1, 1]
    predicted = [60, 50, 1, 40, 2, 2, 2, 1, 1]
    estimates = dataclasses.replace(ESTIMATES, window_ns=1000.0)
    running = run(dimm, predicted, [1], gpu_experts=1, estimates=estimates, **parameters)
    return {one.kind for one in running.layer(0, predicted)}


def test_each_part_of_the_ablation_can_be_switched_off() -> None:
    assert mixed_run() == {"evict", "prefetch", "relayout", "rebalance"}
    assert mixed_run(prefetch=False) == {"relayout", "rebalance"}
    assert mixed_run(relayout=False) == {"evict", "prefetch", "rebalance"}
    assert mixed_run(rebalance=False) == {"evict", "prefetch", "relayout"}
    assert mixed_run(prefetch=False, relayout=False, rebalance=False) == set()


def test_without_the_cpu_experts_run_on_gpu_and_ndp_only() -> None:
    for refined in (True, False):
        got = policy(cpu=False, refine=refined).assign(view(LOADS, PLACEMENT))
        assert list(got.cpu) == []
        assert sorted([*got.gpu, *got.ndp]) == [0, 1, 2, 3, 4, 6, 7]
    assert len(policy(refine=False).assign(view(LOADS, PLACEMENT)).cpu) == 2
    _, placement = placed(cpu=False)
    assert (placement.dimm >= 0).any()


# ---- prefill, and machines without NDP


def test_the_gpu_computes_all_of_a_prefill_residents_first() -> None:
    got = policy().assign(view(LOADS, PLACEMENT, "prefill"))
    assert list(got.gpu) == [0, 6, 1, 3, 4, 7, 2]
    assert (list(got.cpu), list(got.ndp)) == ([], [])
    assert got.estimated_ns == 40 + 5 * 100 + 210
    assert policy().assign(view([10_000, *[1] * 7], PLACEMENT, "prefill")).estimated_ns is None


def test_a_machine_without_ndp_uses_gpu_and_cpu() -> None:
    made, placement = placed(dimms=0)
    assert (placement.dimm == views.STRIPED).all()
    got = made.assign(view(OFFLINE[0].tolist(), placement.of_layer(0)))
    assert list(got.ndp) == []
    assert sorted([*got.gpu, *got.cpu]) == list(range(9))
    running = Run(made, placement)
    for step in range(6):
        assert all(one.kind in ("evict", "prefetch") for one in running.layer(step % 2, OFFLINE[step % 2]))


# ---- was it right?


def test_prediction_counts_classes_and_decisions_separately() -> None:
    loads = [10, 1, 10, 1]
    running = run([0, views.STRIPED, views.STRIPED, 0], loads)
    assert running.policy.prediction() is None
    running.layer(0, loads)  # predicts warm, cold, warm, cold, and moves experts 0 and 1
    running.layer(0, [1, 1, 10, 1])  # expert 0 is cold: that class and that relayout were wrong
    found = running.policy.prediction()
    assert found is not None
    assert found["accuracy"] == 3 / 4
    assert found["decision_accuracy"] == 1 / 2
    assert (found["counted"]["experts"], found["counted"]["migrations"]) == (4, 2)


def test_a_hot_expert_that_is_only_warm_is_a_wrong_class() -> None:
    running = run([views.STRIPED] * 3, [20, 15, 10], resident=[0], gpu_experts=1)
    running.layer(0, [20, 15, 10])
    running.layer(0, [15, 20, 10])
    found = running.policy.prediction()
    assert found is not None
    assert (found["accuracy"], found["decision_accuracy"]) == (1 / 3, None)


def test_a_layer_that_was_not_expected_is_not_counted() -> None:
    made, placement = placed()
    running = Run(made, placement)
    running.layer(0, OFFLINE[0])
    running.layer(0, OFFLINE[0])
    assert made.prediction() is None


def test_each_kind_of_decision_is_judged_by_the_loads_of_the_next_visit() -> None:
    def right(dimm: Sequence[int], loads: Sequence[int], actual: Sequence[int], **more: Any) -> float | None:
        running = run(dimm, loads, **more)
        assert running.layer(0, loads)
        running.layer(0, actual)
        found = running.policy.prediction()
        assert found is not None
        return found["decision_accuracy"]  # type: ignore[no-any-return]

    hot = [views.STRIPED] * 4
    assert right(hot, [22, 18, 15, 10], [22, 18, 15, 10], resident=[0, 3], gpu_experts=2) == 1
    assert right(hot, [22, 18, 15, 10], [22, 10, 15, 18], resident=[0, 3], gpu_experts=2) == 0
    skewed = [0, 0, 1, 2, 3]
    assert right(skewed, [3, 1, 2, 2, 2], [3, 1, 2, 2, 2]) == 1
    assert right(skewed, [3, 1, 2, 2, 2], [0, 1, 2, 2, 2]) == 0
    # Of 4 tokens, it takes 80 beside nothing, and would take 120 with the 40 of the DIMM to which it goes.
    assert right(skewed, [3, 1, 2, 2, 2], [0, 4, 2, 2, 2]) == 0
    # Localized an expert of 2 tokens takes 20 x 2 / 4; one of 22 is read by the host, striped in half of the time.
    assert right(hot, [2, 2, 2, 2], [2, 2, 2, 2], rebalance=False) == 1
    assert right(hot, [2, 2, 2, 2], [22, 22, 22, 22], rebalance=False) == 0
