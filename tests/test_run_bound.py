"""The bound of a run: an independent programme, enumerated schedules, and runs that try to beat it."""

from __future__ import annotations

import copy
import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from builders.small_moe import CACHE, MODEL, moe, recorded
from ndpsim.inference.layers import bounds as orchestrator_bounds
from ndpsim.inference.layers.bounds import _LEAST, least_lost_ns_per_byte
from ndpsim.inference.layers.contention import shared_bandwidth
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.run import run_moe
from ndpsim.policies import Assignment, Migration, Part, Placement, Policy, run_bound
from ndpsim.policies.bound_programme import ExpertUses, MachineUses, Steps
from ndpsim.policies.run_bound import run_bound_ns
from ndpsim.simulate.results.moe import MoeResult
from ndpsim.workload.routing import Routing

optimize = pytest.importorskip("scipy.optimize")

# An expert of t tokens takes 2 t on the GPU, 3 t on the CPU, 20 t on NDP units; 30 over PCIe, 4 read by the host.
_TOKENS = np.arange(1, 41)
EXPERTS = ExpertUses(_TOKENS, 2.0 * _TOKENS, 3.0 * _TOKENS, 20.0 * _TOKENS, np.zeros(40))
MACHINE = MachineUses(30.0, 15.0, True, 4.0, 8.0, 0.0, 0.0, 0.0, 0.0, 4, 0, 2, 0.0)


def steps(loads: Any, free_ns: float = 0.0, shared_ns: float = 0.0) -> Steps:
    array = np.array(loads)
    return Steps(array, np.full(array.shape[:2], free_ns), np.full(len(array), shared_ns))


# ---- By hand and against another programme --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loads", "room", "expected"),
    [
        # Shares on GPU, CPU and units end together: 2 g = 4 c = 5 n, as the channels hold the CPU back.
        ([[[1]]], 1, 1 / (1 / 2 + 1 / 4 + 1 / 5)),
        ([[[1]]], 0, 1 / (1 / 4 + 1 / 5)),
        # One of two layers can have its expert in the GPU's memory, or each a half: 4 c = 5 n, c + n = 1 / 2.
        ([[[1], [1]]], 1, 2 * 0.5 / (1 / 4 + 1 / 5)),
        # What the GPU's memory has in one step it still has in the next.
        ([[[1]], [[1]]], 1, 2 / (1 / 2 + 1 / 4 + 1 / 5)),
        # Of two experts, one a step: a half of each is there in both.
        ([[[1, 0]], [[0, 1]]], 1, 2 * 0.5 / (1 / 4 + 1 / 5)),
        ([[[0], [0]]], 1, 0.0),
    ],
)
def test_bounds_worked_out_by_hand_where_copies_take_for_ever(loads, room, expected):
    machine = replace(MACHINE, room=room, wire_ns=1e7, copy_ns=1e7)
    assert run_bound_ns(steps(loads), EXPERTS, machine) == pytest.approx(expected, rel=1e-5)


class Rows:
    """A linear programme by names of variables, each from 0 on."""

    def __init__(self) -> None:
        self.names: dict[Any, int] = {}
        self.rows: list[tuple[dict[int, float], float, bool]] = []

    def add(self, terms: list[tuple[Any, float]], most: float, equal: bool = False) -> None:
        row: dict[int, float] = {}
        for name, value in terms:
            place = self.names.setdefault(name, len(self.names))
            row[place] = row.get(place, 0.0) + float(value)
        self.rows.append((row, most, equal))

    def least(self, wanted: list[Any]) -> float:
        def dense(equal: bool) -> tuple[Any, Any]:
            chosen = [(row, most) for row, most, of in self.rows if of == equal]
            matrix = np.zeros((len(chosen), len(self.names)))
            for at, (row, _) in enumerate(chosen):
                matrix[at, list(row)] = list(row.values())
            return (matrix, [most for _, most in chosen]) if chosen else (None, None)

        costs = np.zeros(len(self.names))
        costs[[self.names[name] for name in wanted]] = 1.0
        return float(optimize.linprog(costs, *dense(False), *dense(True), method="highs-ipm").fun)


def written_again(given: Steps, experts: ExpertUses, machine: MachineUses) -> float:
    """The docstring's programme, an expert at a time, with sums over all that lies before in place of B and O."""
    count, layers, each = given.loads.shape
    visits = list(itertools.product(range(count), range(layers)))
    rows, copies_so_far, passed = Rows(), [], 0.0
    last: dict[tuple[int, int], tuple[int, int]] = {}
    spans: dict[tuple[int, int], list[Any]] = {visit: [] for visit in visits}
    classes = sorted(set(experts.lost_ns.tolist()))
    for number, (step, layer) in enumerate(visits):
        visit, loads = (step, layer), given.loads[step, layer].tolist()
        active = [expert for expert in range(each) if loads[expert]]
        used = {
            name: [] for name in ("gpu", "wire", "engines", "host", "cpu", "ndp", "units", "idle", "reads")
        }
        little = dict.fromkeys(("gpu", "cpu", "ndp"), 0.0)
        work = {of: [] for of in classes}
        for expert in active:
            at = int(np.searchsorted(experts.tokens, loads[expert]))
            k, q, f, c, u, d = ((name, visit, expert) for name in "kqfcud")
            gpu, once = experts.gpu_ns[at], 1 / len(active)
            vector = loads[expert] / machine.choices * machine.token_ns + machine.vectors_ns * once
            beside = [(u, vector), (d, vector)]
            used["gpu"] += [(f, gpu + machine.call_ns * once), (c, gpu + machine.call_ns)]
            used["wire"] += [(c, machine.wire_ns), *beside]
            copies_so_far += [(q, machine.wire_ns), (c, machine.wire_ns), *beside]
            used["engines"] += [(c, machine.copy_ns)]
            used["host"] += [(c, machine.read_ns), (u, machine.read_ns)]
            used["reads"] += [(c, 1.0), (u, 1.0)]
            used["cpu"] += [*beside, *beside]
            used["idle"] += [(name, 2 * machine.units * ns) for name, ns in beside]
            little["gpu"] += machine.rounding * gpu
            if experts.cpu_ns is None:
                rows.add([(u, 1.0)], 0.0)
            else:
                used["cpu"] += [(u, experts.cpu_ns[at] + machine.hand_over_ns * once)]
                little["cpu"] += machine.rounding * experts.cpu_ns[at]
            if experts.ndp_ns is None:
                rows.add([(d, 1.0)], 0.0)
            else:
                used["units"] += [(d, experts.ndp_ns[at])]
                work[experts.lost_ns[at]] += [(d, -experts.ndp_ns[at])]
                little["ndp"] += machine.rounding * experts.ndp_ns[at]
            if not machine.copies:
                rows.add([(c, 1.0)], 0.0)
            rows.add([(name, 1.0) for name in (f, c, u, d)], 1.0, equal=True)
            rows.add([(f, 1.0), (k, -1.0), (q, -1.0)], 0.0)
            before = last.get((layer, expert))
            if before is None:
                rows.add([(k, 1.0)], 1.0)
            else:
                rows.add([(k, 1.0), *((((name, before, expert)), -1.0) for name in "kqc")], 0.0)
            begin = 0 if before is None else visits.index(before) + 1
            for between in visits[begin : number + 1]:
                spans[between].append((k, 1.0))
            spans[visit].append((q, 1.0))
            last[layer, expert] = visit
        time = ("T", visit)
        rows.add([*used["gpu"], (time, -1.0)], little["gpu"] - given.shared_ns[step])
        rows.add([(time, -1.0)], -given.shared_ns[step])
        for name in ("wire", "engines", "host"):
            rows.add([*used[name], (time, -1.0)], 0.0)
        rows.add([*used["cpu"], (time, -1.0)], little["cpu"])
        passed += given.free_ns[step, layer]
        times = [(("T", earlier), -1.0) for earlier in visits[: number + 1]]
        rows.add([*copies_so_far, *times], passed)
        if experts.ndp_ns is not None:
            idle = ("I", visit)
            reading = [(("b", visit, of), 1.0) for of in classes]
            lost = [(("b", visit, of), of) for of in classes]
            rows.add([*used["units"], *lost, (idle, 1.0), (time, -machine.units)], little["ndp"])
            rows.add([*used["idle"], (idle, -1.0)], 0.0)
            rows.add(
                [*used["reads"], *((b, -1.0) for b, _ in reading), (idle, -1 / machine.read_alone_ns)], 0.0
            )
            for of in classes:
                rows.add([*work[of], (("b", visit, of), machine.read_alone_ns - of)], 0.0)
    for span in spans.values():
        rows.add(span or [("nothing", 1.0)], machine.room)
    return rows.least([("T", visit) for visit in visits])


@pytest.mark.parametrize("seed", range(12))
def test_the_programme_is_the_one_that_is_documented(seed):
    drawn = np.random.default_rng(seed)
    shape = int(drawn.integers(1, 4)), int(drawn.integers(1, 4)), int(drawn.integers(2, 7))
    loads = drawn.integers(0, 5, shape) * (drawn.random(shape) < 0.7)
    machine = replace(
        MACHINE, call_ns=1.0, hand_over_ns=2.0, token_ns=0.3, vectors_ns=1.5, rounding=0.002,
        room=int(drawn.integers(0, 6)), copies=bool(seed % 5), copy_ns=float(drawn.choice([15.0, 33.0])),
    )  # fmt: skip
    lost = drawn.choice([0.0, 1.0, 3.0], 40)
    experts = replace(EXPERTS, lost_ns=lost)
    if seed % 3 == 1:
        experts = replace(experts, cpu_ns=None)
    if seed % 4 == 1 and experts.cpu_ns is not None:
        experts = replace(experts, ndp_ns=None)
    given = Steps(loads, drawn.uniform(0, 40, shape[:2]), drawn.uniform(0, 5, shape[0]))
    expected = written_again(given, experts, machine)
    assert run_bound_ns(given, experts, machine) == pytest.approx(expected, rel=1e-6)


def test_whatever_prices_a_solver_gives_the_bound_holds(monkeypatch):
    loads = np.random.default_rng(1).integers(0, 4, (2, 3, 6))
    given, machine = steps(loads, 10.0, 2.0), replace(MACHINE, room=4)
    best = run_bound_ns(given, EXPERTS, machine)
    solve, drawn = optimize.linprog, np.random.default_rng(2)

    def wrong(*args: Any, **options: Any) -> Any:
        found = solve(*args, **options)
        for row in (found.ineqlin, found.eqlin):
            row.marginals = row.marginals * drawn.uniform(0.9, 1.1, len(row.marginals))
        return found

    monkeypatch.setattr(optimize, "linprog", wrong)
    assert all(run_bound_ns(given, EXPERTS, machine) < best for _ in range(5))


def test_more_room_or_time_for_copies_never_raises_the_bound_and_coupled_steps_never_lower_it():
    loads = np.random.default_rng(3).integers(0, 4, (3, 2, 6))
    machine = replace(MACHINE, room=3)
    by_room = [run_bound_ns(steps(loads), EXPERTS, replace(MACHINE, room=room)) for room in (0, 2, 6, 12)]
    by_time = [run_bound_ns(steps(loads, free), EXPERTS, machine) for free in (0.0, 20.0, 60.0, 1e3)]
    for found in (by_room, by_time):
        assert all(more <= less * (1 + 1e-9) for less, more in itertools.pairwise(found))
    alone = sum(run_bound_ns(steps(loads[step : step + 1]), EXPERTS, machine) for step in range(3))
    assert run_bound_ns(steps(loads), EXPERTS, machine) >= alone * (1 - 1e-9)


# ---- Runs that try to beat it ---------------------------------------------------------------------------------

# Experts that are large beside latencies, on a GPU that is no faster than the other engines together.
_SLOW_GPU = ["gpu.expert_overhead_us=0.2", "gpu.tflops=20"]
_LARGE = replace(
    MODEL, hidden=2048, expert_intermediate=1024, routed_experts=4, shared_experts=0, shared_intermediate=0
)
_LAYERS = (1, 2)


class Forced(Policy):
    """Does what `plan` says, where that is allowed: `Plan`."""

    name = "forced"
    title = "what a test has written down"
    moments = ("gate", "end")
    plan: Any = None

    def place(self, view: Any) -> Placement:
        placement = super().place(view)
        placement.dimm[:], placement.shards[:] = self.plan.dimm, self.plan.shards
        placement.resident[:] = self.plan.resident
        return placement

    def assign(self, view: Any) -> Assignment:
        chosen = self.plan.visits[view.step, view.layer]
        there = view.placement.resident | view.arriving
        engines: tuple[list[Any], ...] = ([], [], [])
        for expert in chosen["order"]:
            shares = np.round(16 * np.array(chosen["shares"][expert])) / 16
            shares[1] *= self.machine.has_cpu
            shares[2] *= view.placement.dimm[expert] >= 0
            shares[shares < 3 / 16] = 0
            shares = shares / shares.sum() if shares.sum() else np.array([1.0, 0.0, 0.0])
            for engine, share in zip(engines, shares.tolist(), strict=True):
                if view.loads[expert] and share:
                    engine.append(Part(expert, share))
        engines[0].sort(key=lambda part: not there[part.expert])
        return Assignment(*engines)

    def background(self, view: Any) -> list[Migration]:
        chosen, free = self.plan.visits[view.step, view.layer], view.gpu_free
        asked: dict[tuple[int, int], Migration] = {}
        for kind, layer, expert in chosen[view.moment]:
            at = self.row[layer], expert
            resident, moving = view.placement.resident[at], view.moving[at]
            in_use = layer == view.layer and view.in_use[expert : expert + 1].any()
            if kind == "keep":
                resident |= layer != view.layer or not view.copied[expert : expert + 1].any()
            if (
                at in asked
                or moving
                or in_use
                or resident != (kind == "evict")
                or (kind != "evict" and not free)
            ):
                continue
            free += 1 if kind == "evict" else -1
            asked[at] = Migration(kind, layer, expert)
        return list(asked.values())


class Plan:
    """Answers that are drawn, and changed a little at a time."""

    def __init__(self, seed: int, steps: int, room: int, dimms: int) -> None:
        self.drawn, self.room, self.dimms = random.Random(seed), room, dimms
        self.dimm, self.shards = np.full((2, 4), -1, np.int16), np.ones((2, 4), np.int16)
        self.resident = np.zeros((2, 4), np.bool_)
        self.resident.flat[self.drawn.sample(range(8), min(room, 8))] = True
        self.visits: dict[tuple[int, int], dict[str, Any]] = {
            visit: {
                "order": [0, 1, 2, 3],
                "shares": [self._shares() for _ in range(4)],
                "gate": [],
                "end": [],
            }
            for visit in itertools.product(range(steps), _LAYERS)
        }
        for at in range(8):
            self._lie(at)

    def _shares(self) -> list[float]:
        if self.drawn.random() < 0.6:
            return self.drawn.choice([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
        return [self.drawn.random() for _ in range(3)]

    def _lie(self, at: int) -> None:
        shards = self.drawn.choice([count for count in (1, 2, 4, 8, 16) if count <= max(self.dimms, 1)])
        striped = not self.dimms or self.drawn.random() < 0.15
        dimm = -1 if striped else self.drawn.randrange(0, self.dimms - shards + 1)
        self.dimm.flat[at], self.shards.flat[at] = dimm, 1 if striped else shards

    def changed(self) -> Plan:
        """Another, with one to three changes."""
        other = copy.deepcopy(self)
        other.drawn = self.drawn
        for _ in range(self.drawn.choice([1, 1, 2, 3])):
            other._change()
        return other

    def _change(self) -> None:
        drawn, visit = self.drawn, self.visits[self.drawn.choice(list(self.visits))]
        kind = drawn.randrange(5)
        if kind == 0:
            self._lie(drawn.randrange(8))
        elif kind == 1:
            drawn.shuffle(visit["order"])
        elif kind == 2:
            visit["shares"][drawn.randrange(4)] = self._shares()
        elif kind == 3:
            at = drawn.randrange(4)
            visit["shares"][at] = [max(share + drawn.gauss(0, 0.15), 0) for share in visit["shares"][at]]
        else:
            kinds = ["evict", "prefetch", "keep"]
            moves = [
                (one, drawn.choice(_LAYERS), drawn.randrange(4)) for one in kinds if drawn.random() < 0.7
            ]
            visit[drawn.choice(["gate", "end"])] = moves


def _trace(seed: int, steps: int, tokens: int, experts: int = 4) -> Routing:
    drawn = np.random.default_rng(seed).random((steps, len(_LAYERS), tokens, experts))
    return Routing(experts, _LAYERS, np.argsort(drawn, axis=-1)[..., :2].astype(np.int16))


def _runs(
    hw: str,
    trace: Routing,
    plans: list[Plan],
    gpu_experts: int,
    contention: bool = True,
    observer: Any = None,
) -> MoeResult:
    forced = [type("One", (Forced,), {"plan": plan, "contention": contention}) for plan in plans]
    model = replace(_LARGE, routed_experts=trace.experts)
    return run_moe(
        hw, model, forced, trace.batch, trace.steps, trace, layers=_LAYERS, context=64, cache=CACHE,
        gpu_experts=gpu_experts, sets=_SLOW_GPU, observer=observer,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hw", "dimms", "contention"),
    [
        pytest.param("trimoe", 16, False, marks=pytest.mark.long),
        ("cxl", 1, True),
        pytest.param("dali-7532-3090", 0, True, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("gpu_experts", [pytest.param(0, marks=pytest.mark.long), 1])
def test_no_search_over_schedules_beats_the_bound(hw, dimms, contention, gpu_experts):
    trace, best = _trace(4, 2, 12), (np.inf, Plan(5, 2, 2 * gpu_experts, dimms))
    for _ in range(6):
        plans = [best[1].changed() for _ in range(14)] + [
            Plan(n, 2, 2 * gpu_experts, dimms) for n in range(2)
        ]
        runs = _runs(hw, trace, plans, gpu_experts, contention).runs
        assert all(run.bound_ns <= run.moe_ns * (1 + 1e-9) for run in runs)
        times = (run.moe_ns for run in runs)
        best = min([best, *zip(times, plans, strict=True)], key=lambda one: one[0])
    assert runs[0].bound == "linear-programme"
    assert runs[0].bound_ns > 0.2 * best[0]


@pytest.mark.parametrize("tokens", [pytest.param(1, marks=pytest.mark.long), 4])
def test_no_assignment_of_whole_experts_beats_the_bound_whatever_the_residents(tokens):
    """All ways of each expert in each visit, with all pairs of residents that stay: visits are independent."""
    trace, least, bounds = _trace(6, 2, tokens, 3), np.inf, set()
    ways = list(itertools.product(([1, 0, 0], [0, 1, 0], [0, 0, 1]), repeat=3))
    for residents in itertools.combinations(range(6), 2):
        plans = []
        for shares in ways:
            plan = Plan(1, 2, 2, 16)
            plan.dimm, plan.shards = np.tile(np.int16([0, 4, 8]), (2, 1)), np.full((2, 3), 4, np.int16)
            plan.resident = np.isin(np.arange(6), residents).reshape(2, 3)
            for visit in plan.visits.values():
                visit |= {"order": [0, 1, 2], "shares": list(shares)}
            plans.append(plan)
        times: dict[tuple[int, int], list[float]] = {}

        def note(layer: Any, times: dict[tuple[int, int], list[float]] = times) -> None:
            times.setdefault((layer.step, layer.layer), []).append(layer.end_ns - layer.start_ns)

        runs = _runs("trimoe", trace, plans, 1, False, lambda _, layer: note(layer)).runs
        least = min(least, sum(map(min, times.values())))
        bounds |= {round(run.bound_ns, 3) for run in runs}
    assert len(bounds) == 1
    assert 0.25 * least < bounds.pop() <= least


@pytest.mark.parametrize(
    ("gpu_experts", "prefetch", "near"), [(4, False, 0.99), (0, False, 0.9), (1, True, 0.8)]
)
def test_where_the_gpu_alone_computes_its_time_or_that_of_pcie_is_nearly_the_bound(
    gpu_experts, prefetch, near
):
    class OnGpu(Policy):
        name, title = "on-gpu", "all on the GPU"

        def place(self, view: Any) -> Placement:
            placement = super().place(view)
            placement.resident[:, :gpu_experts] = True
            return placement

        def assign(self, view: Any) -> Assignment:
            there = view.placement.resident | view.arriving
            return Assignment(
                sorted(np.flatnonzero(view.loads).tolist(), key=lambda expert: not there[expert])
            )

    trace = _trace(2, 3, 12)
    (run,) = run_moe(
        "dali-7532-3090", _LARGE, [OnGpu], trace.batch, trace.steps, trace, layers=_LAYERS, context=64,
        cache=CACHE, gpu_experts=gpu_experts, sets=[*_SLOW_GPU, "host.cpu_compute_efficiency=0.0001"],
    ).runs  # fmt: skip
    assert near * run.moe_ns <= run.bound_ns <= run.moe_ns


@pytest.mark.parametrize("hw", ["cxl", "cache-7960x-4090", "dali-7532-3090"])
@pytest.mark.parametrize("batch", [1, pytest.param(8, marks=pytest.mark.long)])
def test_no_bundled_policy_beats_the_bound(hw, batch):
    result = run_moe(
        hw, replace(MODEL, experts_per_token=2), ["all"], batch, 3, prompt=4, context=64, gpu_experts=2,
        cache=CACHE,
    )  # fmt: skip
    assert len(result.runs) > 3
    for run in result.runs:
        assert 0 < run.bound_ns <= run.moe_ns * (1 + 1e-9), run.policy


def test_a_slower_layout_or_a_smaller_share_takes_no_less_than_the_bound_expects():
    costs = Costs("trimoe", MODEL, cache=CACHE)
    for tokens in (1, 3, 8, 17, 40):
        whole = costs.expert(tokens).time_ns
        for shards, share in itertools.product((1, 2, 3, 5, 8, 16), (1.0, 0.75, 0.5, 0.2)):
            columns = round(share * MODEL.expert_intermediate)
            part = costs.expert(tokens, shards, share).time_ns * shards * MODEL.expert_intermediate / columns
            assert part >= _LEAST * whole, (tokens, shards, share)


def test_an_expert_loses_no_less_than_the_bound_expects_at_any_rate_of_the_host():
    drawn = np.random.default_rng(8)
    gbps, experts = np.array([0.0, 5.0, 12.0, 20.0]), 6
    lost = drawn.random((3, experts, 3)) * gbps[1:] / 18
    speed = np.concatenate([np.ones((3, experts, 1)), np.clip(1 - lost, 0.0, 1.0)], axis=2)
    slowdown = shared_bandwidth(20.0)._replace(host_gbps=gbps, ndp_speed=speed)
    least, rates = least_lost_ns_per_byte(slowdown, 22.0), np.linspace(0.1, 22, 400)
    # What `events.loop.ndp_speed` has of the tables where all that the host reads is on the DIMM.
    expected = min(
        ((1 - np.maximum(np.interp(rates, gbps, table), 0.01)) / rates).min()
        for table in speed.reshape(-1, 4)
    )
    assert expected * 0.98 <= least <= expected * (1 + 1e-9)


def test_a_run_without_bounds_is_the_same_run():
    run, layers, _ = recorded("trimoe", bounds=False)
    bounded, unbounded = (
        {name: value for name, value in one.to_dict().items() if "wall" not in name}
        for one in (moe("trimoe").runs[0], run)
    )
    assert unbounded["bound"] is None
    assert unbounded["bound_ns"] is None
    assert bounded["bound_ns"] > 0
    assert bounded | {"bound": None, "bound_ns": None, "compile_s": 0} == unbounded | {"compile_s": 0}
    assert {layer.bound_ns for layer in layers} == {None}


def test_without_scipy_the_bound_is_that_of_steps_and_says_so(monkeypatch):
    layers: list[Any] = []

    def run(steps: int) -> Any:
        return run_moe(
            "dali-7532-3090", MODEL, ["on-demand"], 4, steps, context=64, gpu_experts=2, cache=CACHE,
            observer=lambda _, layer: layers.append(layer),
        ).runs[0]  # fmt: skip

    together = run(2)
    monkeypatch.setattr(orchestrator_bounds, "has_solver", lambda: False)
    layers.clear()
    apart = run(2)
    assert (together.bound, apart.bound, run(1).bound) == ("linear-programme", "steps", "linear-programme")
    assert sum(layer.bound_ns for layer in layers[: len(layers) // 2]) <= apart.bound_ns <= together.bound_ns


# ---- The interior point method --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_one_step_has_the_bound_that_the_programme_of_several_steps_gives_it(seed):
    drawn = np.random.default_rng(seed)
    layers, each = int(drawn.integers(1, 12)), int(drawn.integers(1, 24))
    loads = drawn.poisson(drawn.choice([0.3, 3.0, 9.0]), (1, layers, each)).clip(0, 40)
    loads[0, 0, 0] = 1
    scale = 10 ** drawn.uniform(-1, 1, 6)
    machine = replace(
        MACHINE, wire_ns=30 * scale[0], copy_ns=15 * scale[0], read_ns=4 * scale[1], read_alone_ns=8 * scale[1],
        call_ns=float(drawn.choice([0.0, 1.0])), token_ns=0.1, vectors_ns=0.5, rounding=0.001,
        room=int(drawn.choice([0, 1, layers, layers * each])), copies=bool(seed % 7),
    )  # fmt: skip
    experts = ExpertUses(
        _TOKENS, scale[2] + 2 * scale[3] * _TOKENS, 3 * scale[4] * _TOKENS, 20 * scale[5] * _TOKENS,
        drawn.choice([0.0, 1.0, 3.0], 40) if seed % 2 else np.full(40, 1.0),
    )  # fmt: skip
    if seed % 5 == 1:
        experts = replace(experts, cpu_ns=None)
    given = Steps(loads, drawn.uniform(0, 40, (1, layers)), drawn.uniform(0, 5, 1))
    several = run_bound._steps_bound(run_bound._StepsWriter(given, experts, machine))
    assert run_bound_ns(given, experts, machine) == pytest.approx(several, rel=1e-6)
