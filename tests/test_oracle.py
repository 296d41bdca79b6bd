"""The oracle: never beaten, the same each time, and what its improvement is made of."""

from __future__ import annotations

import itertools
import logging
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.policy_machines import ESTIMATES, EXPERTS, MACHINE
from builders.small_moe import MODEL, moe, plain
from ndpsim.inference.layers import rehearsals
from ndpsim.policies import (
    Assignment,
    LayerView,
    Migration,
    Part,
    Placement,
    PolicyParameters,
    choose_policy,
    policies,
)
from ndpsim.policies.answers import checked_assignment
from ndpsim.policies.choose import choose_policies
from ndpsim.policies.own.oracle import policy as oracle
from ndpsim.policies.own.oracle.improvement import Future, Sweeps
from ndpsim.policies.own.oracle.moves import LayerMoves, plan_of
from ndpsim.policies.own.oracle.policy import layouts
from ndpsim.policies.script import Answer, Rehearsal, Rehearsed, Script, Scripted, Visit, legal_assignment
from ndpsim.policies.views import LayerPlacement
from ndpsim.workload.models import MoeShape

SOME = "oracle:evaluations=40"
NONE = "oracle:evaluations=0"


def rehearsing(**options: Any) -> tuple[Rehearsal, Scripted]:
    """What a policy that rehearses is given, and the policy."""
    kept: list[tuple[Rehearsal, Scripted]] = []

    class Keeps(Scripted):
        name = "keeps"
        rehearses = True

        def rehearse(self, rehearsal: Rehearsal) -> None:
            kept.append((rehearsal, self))

    moe(Keeps, **options)
    return kept[0]


def replaying(script: Script) -> type[Scripted]:
    """A policy with the answers of a script."""

    class Replays(Scripted):
        name = "replays"

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.follow(script)

    return Replays


# The best that is known


@pytest.mark.parametrize(
    ("hw", "options"),
    [
        pytest.param("trimoe", {}, marks=pytest.mark.long),
        ("trimoe", {"batch": 4, "steps": 1}),
        ("edge", {"batch": 8, "steps": 2}),
        ("cxl", {"batch": 4, "steps": 2}),
        ("cache-7960x-4090", {"batch": 1, "prompt": 4}),
    ],
)
def test_no_policy_of_the_call_is_faster(hw, options):
    more = ["trimoe:prefetch=false"] if hw == "trimoe" else []
    best, *others = moe(SOME, "all", *more, hw=hw, **options).runs
    assert best.policy == "oracle"
    assert set(best.weight_bits.values()) <= {16, None}
    assert best.bound_ns <= best.moe_ns
    assert best.best_known_ns == best.time_ns
    for run in others:
        full = set(run.weight_bits.values()) <= {16, None}
        assert run.best_known_ns == (best.time_ns if full else None)
        assert not full or best.time_ns <= run.time_ns, run.policy
        assert run.speedup == best.time_ns / run.time_ns  # the first of the call, though it ran last
    assert sum(run.best_known_ns is not None for run in others) > 3


def test_a_run_of_the_call_that_nothing_else_finds_is_not_lost(monkeypatch):
    monkeypatch.setattr(oracle, "policies", lambda: {"monde": policies()["monde"]})
    rehearsal, policy = rehearsing(batch=16)
    sweeps = Sweeps(policy.machine, policy.estimates, rehearsal)
    found = sweeps.assignments(oracle._best(oracle._known(rehearsal)).script)
    alone = moe(NONE, batch=16).runs[0]
    assert found.time_ns < alone.time_ns
    best, replayed = moe(NONE, replaying(found.script), batch=16).runs
    assert best.time_ns == replayed.time_ns < alone.time_ns
    assert replayed.best_known_ns == replayed.time_ns


def test_without_the_oracle_nothing_is_the_best_known():
    assert moe("trimoe").runs[0].best_known_ns is None


def test_more_evaluations_never_end_with_a_longer_run():
    times = [moe(f"oracle:evaluations={count}", batch=16).runs[0].time_ns for count in (0, 3, 30)]
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]


def test_a_sweep_that_ends_with_a_longer_run_is_dropped():
    empty = Script(Placement.striped(1, 2), {})

    class Worse:
        layers = 0

        def assignments(self, script: Script) -> Rehearsed:
            self.layers += 1
            return Rehearsed(2.0, script)

    class OneLayer:
        loads = dict.fromkeys([Visit("decode", 0, 1)])

    run, worse = Rehearsed(1.0, empty), Worse()
    assert oracle._Improvement(worse, OneLayer(), 100).swept(run, "assignments") is run
    assert worse.layers == 1


def test_the_same_call_gives_the_same_run():
    assert plain(moe(SOME, batch=16, steps=1)) == plain(moe(SOME, batch=16, steps=1))


def test_all_does_not_stand_for_it_but_it_can_be_named_beside():
    assert "oracle" not in [one.name for one, _ in choose_policies(["all"])]
    assert [one.name for one, _ in choose_policies(["oracle", "all"])].count("oracle") == 1


def test_foresight_is_tried_with_and_without(monkeypatch):
    class Foreseeing(policies()["monde"]):  # type: ignore[misc]
        name = "foreseeing"

        class Parameters(PolicyParameters):
            foresight: bool = True

    monkeypatch.setattr(oracle, "policies", lambda: {"foreseeing": Foreseeing})
    assert [one.parameters.foresight for one in oracle._candidates()] == [False, True]


def test_how_long_it_takes_is_said_beforehand_once(monkeypatch, caplog):
    monkeypatch.setattr(rehearsals, "_LONG_S", 0.0)
    shares: list[float] = []
    with caplog.at_level(logging.WARNING, "ndpsim"):
        moe("oracle:evaluations=40", "trimoe", batch=4, steps=1, progress=shares.append)
    told = [record.getMessage() for record in caplog.records if "more whole runs" in record.getMessage()]
    assert len(told) == 1
    assert re.fullmatch(r"oracle: up to 4[12] more whole runs, some .*s in all", told[0])
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


# Scripts


@pytest.mark.parametrize("prompt", [None, 4])
def test_a_run_replayed_takes_the_same_time_to_the_bit(prompt):
    rehearsal, _ = rehearsing(prompt=prompt, batch=16)
    asked = [
        *map(choose_policy, policies()),
        choose_policy("dali:charge=5000"),
        choose_policy("trimoe:budget=together"),
    ]
    for chosen in asked:
        if chosen.policy.rehearses:
            continue
        run = rehearsal.run_policy(chosen)
        again = rehearsal.run_script(run.script)
        assert again.time_ns == run.time_ns, chosen.name
        assert again.script.answers == run.script.answers, chosen.name


def test_a_copy_of_a_stage_goes_on_by_itself():
    rehearsal, policy = rehearsing(batch=16, gpu_experts=16)
    visits, layers = list(rehearsal.loads), policy.machine.layers
    copies = [Migration("prefetch", layer, expert) for layer in layers for expert in range(15)]
    answers = dict.fromkeys(visits, Answer()) | {visits[0]: Answer(gate=tuple(copies))}
    script = Script(Placement.striped(len(layers), 16), answers)
    run = rehearsal.run_script(script)
    stage, moving = rehearsal.stage(script), 0
    for visit in visits:
        assert stage.visit == visit
        moving += stage.moving.any()
        other = stage.copy()
        more = [Migration("prefetch", layer, 15) for layer in layers]
        evicted = [Migration("evict", layer, expert) for layer in layers for expert in range(4)]
        moves = stage.moving.copy()
        other.go_on(Answer(end=(*evicted, *more)))
        assert (stage.moving == moves).all()
        while other.visit is not None:
            other.go_on(Answer())
        stage.go_on(answers[visit])
    assert moving > 2
    assert stage.rehearsed().time_ns == run.time_ns
    assert stage.rehearsed().script.answers == run.script.answers


def test_what_reads_fewer_bits_or_knows_no_contention_is_not_compared():
    placement = Placement.striped(1, 2)
    visit = Visit("decode", 0, 1)

    def script(answer: Answer, **others: Any) -> Script:
        return Script(placement, {visit: answer}, **others)

    assert script(Answer(Assignment(gpu=[0]))).comparable
    assert not script(Answer(Assignment(gpu=[0], bits={0: 4}))).comparable
    assert not script(Answer(Assignment(gpu=[0]), gate=(Migration("prefetch", 1, 0, bits=4),))).comparable
    assert not script(Answer(Assignment(gpu=[0])), contention=False).comparable


LIES = st.lists(st.integers(-1, 1), min_size=EXPERTS, max_size=EXPERTS)
LOADS = st.lists(st.integers(0, 100), min_size=EXPERTS, max_size=EXPERTS)
FLAGS = st.lists(st.booleans(), min_size=EXPERTS, max_size=EXPERTS)


def view_of(loads: list[int], lies: list[int], resident: list[bool]) -> LayerView:
    placement = LayerPlacement(
        np.array(lies, np.int16), np.ones(EXPERTS, np.int16), np.array(resident, np.bool_)
    )
    return LayerView("decode", 0, 1, np.array(loads), 100, placement, np.zeros(EXPERTS, np.bool_))


@given(LOADS, LIES, FLAGS, LIES, st.lists(st.sampled_from(["gpu", "cpu", "ndp", "both"]), min_size=EXPERTS))
def test_an_assignment_becomes_legal_and_stays_as_it_is_where_it_is(loads, lies, resident, before, engines):
    active = [expert for expert in range(EXPERTS) if loads[expert]]
    lists: dict[str, list[Part]] = {"gpu": [], "cpu": [], "ndp": []}
    for expert in active:
        if engines[expert] == "both":
            lists["gpu"].append(Part(expert, 0.25))
            lists["ndp" if before[expert] >= 0 else "cpu"].append(Part(expert, 0.75))
        else:
            engine = "cpu" if engines[expert] == "ndp" and before[expert] < 0 else engines[expert]
            lists[engine].append(Part(expert))
    written = Assignment(**lists)
    view = view_of(loads, lies, resident)
    legal = legal_assignment(written, view, MACHINE, ESTIMATES)
    checked_assignment("test", view, legal, MACHINE)
    if all(lies[one.expert] >= 0 for one in written.ndp):
        assert legal is written


def test_experts_that_are_no_longer_on_their_way_are_not_awaited():
    view = view_of([1] * EXPERTS, [-1] * EXPERTS, [True] * EXPERTS)
    legal = legal_assignment(Assignment(cpu=range(EXPERTS), awaits=[2]), view, MACHINE, ESTIMATES)
    assert list(legal.awaits) == []
    checked_assignment("test", view, legal, MACHINE)


# Moves


@given(LOADS, LIES, FLAGS)
def test_every_move_is_legal_and_changes_something(loads, lies, resident):
    view = view_of(loads, lies, resident)
    start = legal_assignment(Assignment(), view, MACHINE, ESTIMATES)
    ends = {"gpu": 3.0, "cpu": 0.0, "ndp 0": 0.0, "ndp 1": 0.0}
    ends |= {name: 100.0 for name, parts in (("gpu", start.gpu), ("cpu", start.cpu)) if parts}
    for changed in LayerMoves(view, MACHINE, ESTIMATES).proposed(start, ends):
        checked_assignment("test", view, changed, MACHINE)
        assert plan_of(changed) != plan_of(start) or list(plan_of(changed)["gpu"]) != list(
            plan_of(start)["gpu"]
        )


def ends_of(plan: dict[str, dict[int, float]], loads: list[int]) -> dict[str, float]:
    """GPU and CPU one expert after the other: `ESTIMATES`, with all experts resident."""
    return {
        "gpu": sum(share * loads[one] for one, share in plan["gpu"].items()),
        "cpu": sum(share * max(4 * loads[one], 8) for one, share in plan["cpu"].items()),
    }


@given(st.lists(st.integers(1, 100), min_size=EXPERTS, max_size=EXPERTS))
def test_two_engines_share_out_their_experts_as_well_as_any_whole_assignment(loads):
    view = view_of(loads, [-1] * EXPERTS, [True] * EXPERTS)
    start = Assignment(gpu=list(range(EXPERTS)), cpu=[])
    ends = ends_of(plan_of(start), loads)
    gpu_place, cpu_place = ("gpu", 0, 0), ("cpu", 0, 0)
    ended = {gpu_place: ends["gpu"], cpu_place: ends["cpu"]}
    moves = LayerMoves(view, MACHINE, ESTIMATES)
    shared_out = moves._pooled(plan_of(start), ended, gpu_place, cpu_place)
    least = np.inf
    for on_gpu in itertools.product([True, False], repeat=EXPERTS):
        plan = {"gpu": {}, "cpu": {}}
        for expert, of_gpu in enumerate(on_gpu):
            plan["gpu" if of_gpu else "cpu"][expert] = 1.0
        least = min(least, max(ends_of(plan, loads).values()))
    # Shares are sixteenths, of 4 ns a token at most.
    assert max(ends_of(shared_out, loads).values()) <= least + max(loads) / 4


@given(st.integers(0, 7), st.lists(LOADS, min_size=8, max_size=8), FLAGS, FLAGS)
def test_what_is_needed_last_is_found_as_by_looking_through_all_visits(number, loads, first, second):
    visits = [Visit("decode", step, layer) for step in range(4) for layer in (1, 2)]
    future = Future(MACHINE, dict(zip(visits, map(np.array, loads), strict=True)))
    among = np.array([first, second])

    def next_use(row: int, expert: int) -> tuple[int, int]:
        for later in range(number + 1, len(visits)):
            if visits[later].layer == row + 1 and loads[later][expert]:
                return later, loads[later][expert]
        return len(visits), 0

    uses = {(row, e): next_use(row, e) for row, e in np.argwhere(among).tolist()}
    uses = {place: use for place, use in uses.items() if use[0] > number + 1}
    found = future.needed_last(number, among)
    assert found == min(uses, key=lambda place: (-uses[place][0], uses[place][1], place), default=None)


# Whole runs, against all there are

TINY: MoeShape = replace(MODEL, layers=3, moe_layers=2, routed_experts=4)


def least_ns(rehearsal: Rehearsal, placement: Placement) -> float:
    """The shortest run with this placement, with every expert on one engine and nothing that moves."""
    stage = rehearsal.stage(Script(placement, {}))
    while stage.visit is not None:
        active = np.flatnonzero(stage.view.loads).tolist()
        after = []
        for engines in itertools.product(("gpu", "cpu", "ndp"), repeat=len(active)):
            lists = {
                name: [e for e, on in zip(active, engines, strict=True) if on == name]
                for name in set(engines)
            }
            after.append(stage.copy())
            after[-1].go_on(Answer(Assignment(**lists)))
        stage = min(after, key=lambda one: one.clock_ns)
    return stage.clock_ns


@pytest.mark.parametrize("batch", [2, 12, pytest.param(64, marks=pytest.mark.long)])
@pytest.mark.parametrize("gpu_experts", [0, 1])
def test_a_sweep_is_at_most_2_percent_behind_all_assignments_of_whole_experts(batch, gpu_experts):
    options = {"model": TINY, "batch": batch, "steps": 1, "gpu_experts": gpu_experts}
    rehearsal, policy = rehearsing(**options)
    sweeps = Sweeps(policy.machine, policy.estimates, rehearsal)
    for placement in itertools.islice(layouts(policy.machine, policy.estimates, rehearsal.loads), 2):
        script = Script(placement, dict.fromkeys(rehearsal.loads, Answer()))
        assert sweeps.assignments(script).time_ns <= 1.02 * least_ns(rehearsal, placement)
    best = moe("oracle", **options).runs[0]
    assert best.time_ns <= 1.02 * least_ns(rehearsal, placement)
