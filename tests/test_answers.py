"""Answers of a policy: which are legal, and what is said of the others."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from mistakes import mistake
from ndpsim.base.errors import InputError
from ndpsim.policies import (
    Assignment,
    BackgroundView,
    LayerPlacement,
    LayerView,
    Machine,
    Migration,
    Part,
    Placement,
)
from ndpsim.policies.answers import checked_assignment, checked_migrations, checked_placement
from ndpsim.policies.answers.asking import Call
from ndpsim.policies.answers.assignment import legal_parts, parts_one_by_one
from ndpsim.policies.interface import Parts
from ndpsim.workload.models import load_model

EXPERTS = 8
MODEL = replace(load_model("mixtral-8x7b"), routed_experts=EXPERTS)
MACHINE = Machine(MODEL, (1, 2), 1000, 4, (0, 0, 1, 1), 3, 2)


def frozen(values: object, kind: type) -> np.ndarray:
    array = np.array(values, kind)
    array.setflags(write=False)
    return array


def layer_view(
    loads=(12, 0, 3, 1, 0, 0, 5, 1), dimm=(-1, 0, 1, 2, 3, -1, 0, 2), machine=MACHINE, phase="decode"
) -> LayerView:
    lies = LayerPlacement(
        frozen(dimm, np.int16), frozen(np.ones(EXPERTS), np.int16), frozen(np.zeros(EXPERTS), np.bool_)
    )
    return LayerView(phase, 3, 2, frozen(loads, np.int64), 11, lies, frozen(np.zeros(EXPERTS), np.bool_))


def background_view(resident=((0, 4),), moving=((1, 5),), gpu_free=2) -> BackgroundView:
    lies = Placement.striped(2, EXPERTS)
    lies.dimm[:] = [-1, 0, 1, 2, 3, -1, 0, 2]
    lies.shards[1, 2] = 2
    on_the_way = np.zeros((2, EXPERTS), np.bool_)
    for place in resident:
        lies.resident[place] = True
    for place in moving:
        on_the_way[place] = True
    return BackgroundView("decode", 3, 1, 2, frozen(np.ones(EXPERTS), np.int64), lies, on_the_way, gpu_free)


def refusal(check, *arguments) -> str:
    """The mistake, and the numbers that its line has: of experts, layers, DIMMs and bytes."""
    with pytest.raises(InputError) as caught:
        check("mine", *arguments)
    numbers = re.findall(r"-?\d+(?:\.\d+)?(?:e-\d+)?", caught.value.problem)
    return " ".join((mistake(caught.value), *numbers))


# Assignments


def test_a_legal_assignment_comes_back_as_arrays():
    answer = Assignment(
        gpu=np.array([0, 6]), cpu=[Part(3, 1 / 3), 7], ndp=(np.int64(2), Part(3, 2 / 3)), estimated_ns=7
    )
    checked = checked_assignment("mine", layer_view(), answer, MACHINE)
    lists = [parts.listed() for parts in checked[:3]]
    assert lists == [[(0, 1.0), (6, 1.0)], [(3, 1 / 3), (7, 1.0)], [(2, 1.0), (3, 2 / 3)]]
    assert checked[3:] == (7.0, {}, False, 0.0, [])
    assert (
        checked_assignment("mine", layer_view(), Assignment(cpu=[0, 2, 3, 6, 7]), MACHINE).estimated_ns
        is None
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Assignment(cpu=[2, 3, 6, 7]), "policy policy mine: step 3, layer 2 0 12"),
        (Assignment(cpu=[0, 1, 2, 3, 6, 7]), "policy policy mine: step 3, layer 2 1"),
        (Assignment(cpu=[0, 2, 3, 6, 7, 8]), "policy policy mine: step 3, layer 2 8 0 7"),
        (Assignment(gpu=[-1], cpu=[0, 2, 3, 6, 7]), "policy policy mine: step 3, layer 2 -1 0 7"),
        (Assignment(cpu=[0, 2, 3, 6, 7, 2]), "policy policy mine: step 3, layer 2 2"),
        (Assignment(gpu=[2], cpu=[0, 2, 3, 6, 7]), "policy policy mine: step 3, layer 2 2 2 1"),
        (
            Assignment(gpu=[Part(2, 0.5)], cpu=[0, Part(2, 0.25), 3, 6, 7]),
            "policy policy mine: step 3, layer 2 2 0.75 1",
        ),
        (Assignment(cpu=[Part(0, float("nan"))]), "policy policy mine: step 3, layer 2 0 0 1"),
        (Assignment(cpu=[Part(0, 0.0)]), "policy policy mine: step 3, layer 2 0 0.0 0 1"),
        (Assignment(cpu=[Part(0, 1e-5)]), "policy policy mine: step 3, layer 2 1e-05 0 14336"),
        (Assignment(gpu=[2, 3], ndp=[6, 0, 7]), "policy policy mine: step 3, layer 2 0"),
        (Assignment(cpu=[0.0, 2]), "policy policy mine: step 3, layer 2 0.0"),
        (Assignment(cpu=[True, 2]), "policy policy mine: step 3, layer 2"),
        (Assignment(cpu="0236"), "policy policy mine: step 3, layer 2 0236"),
        (Assignment(cpu=[0, 2, 3, 6, 7], estimated_ns=float("nan")), "policy policy mine: step 3, layer 2 0"),
        (
            Assignment(cpu=[0, 2, 3, 6, 7], details={"greedy": float("inf")}),
            "policy policy mine: step 3, layer 2",
        ),
        (
            Assignment(cpu=[0, 2, 3, 6, 7], details={"greedy": 10**400}),
            "policy policy mine: step 3, layer 2 100000000000000000 0000000000000000000",
        ),
        (None, "policy policy mine: step 3, layer 2"),
    ],
)
def test_an_illegal_assignment_is_refused_with_step_layer_and_expert(answer, words):
    assert refusal(checked_assignment, layer_view(), answer, MACHINE) == words


def random_lists(random: Random) -> list[list[Any]]:
    """Experts 0 to 7, with tokens but for 1, 4 and 5, on three engines, and now and then a mistake."""
    lists: list[list[Any]] = [[], [], []]
    for expert in (0, 2, 3, 6, 7):
        if random.random() < 0.7:
            random.choice(lists).append(expert)
            continue
        share = random.choice([0.25, 0.5, 1 / 3])
        for engine, part in zip(random.sample(lists, 2), (share, 1 - share), strict=True):
            engine.append(Part(expert, part))
    if random.random() < 0.6:
        wrong = [1, 8, -1, 1 << 70, True, 0.5, None, 6, Part(2, 0.5), Part(3, 1.5), Part(3, float("nan"))]
        more = [Part(7, 1e-9), Part(True, 1.0), Part(9, 1.0), Part(6, 1), Part(0, "1"), Part(0, -0.5)]
        random.choice(lists).append(random.choice([*wrong, *more]))
    return lists


def test_lists_are_legal_at_once_where_they_are_one_by_one():
    view, columns, seen = layer_view(), MODEL.expert_intermediate, set()
    dimm = np.zeros(len(view.loads), np.int16)
    for seed in range(600):
        lists = random_lists(Random(seed))
        at_once = legal_parts(lists, view.loads, dimm, columns)
        try:
            one_by_one = parts_one_by_one(lists, view.loads.tolist(), columns, Call("mine", "step 3"))
        except InputError:
            assert at_once is None, lists
        else:
            assert at_once is not None, lists
            assert [of.listed() for of in at_once] == [of.listed() for of in one_by_one]
            assert legal_parts(at_once, view.loads, dimm, columns) == at_once
        seen.add(at_once is None)
    assert seen == {True, False}


def test_engines_that_the_machine_has_not_are_refused():
    plain = replace(MACHINE, dimms=0, channel=())
    everywhere = Assignment(gpu=[0, 2, 3, 6], ndp=[7])
    words = "policy policy mine: prefill, layer 2 7"
    assert refusal(checked_assignment, layer_view(phase="prefill"), everywhere, plain) == words
    no_buffer = replace(MACHINE, expert_buffers=0)
    words = "policy policy mine: step 3, layer 2 0"
    assert refusal(checked_assignment, layer_view(), everywhere, no_buffer) == words
    arriving = replace(layer_view(), arriving=frozen(np.ones(EXPERTS), np.bool_))
    checked_assignment("mine", arriving, everywhere, no_buffer)
    words, no_cpu = "policy policy mine: step 3, layer 2 0", replace(MACHINE, has_cpu=False)
    assert refusal(checked_assignment, layer_view(), Assignment(cpu=[0, 2, 3, 6, 7]), no_cpu) == words


# Placements


def placed(**changes: object) -> Placement:
    lies = Placement.striped(2, EXPERTS)
    for name, (place, value) in changes.items():
        getattr(lies, name)[place] = value
    return lies


def test_a_legal_placement_comes_back_as_a_copy_that_cannot_be_written():
    mine = placed(dimm=((1, 3), 2), shards=((1, 3), 2), resident=((0, slice(0, 3)), True))
    checked = checked_placement("mine", mine, MACHINE)
    assert (checked.dimm == mine.dimm).all()
    assert (checked.shards == mine.shards).all()
    assert (checked.resident == mine.resident).all()
    mine.dimm[0, 0] = 3
    assert checked.dimm[0, 0] == -1
    with pytest.raises(ValueError, match="read-only"):
        checked.resident[0, 0] = False


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (placed(dimm=((1, 3), 4)), "policy policy mine: place 2 3 4 4"),
        (placed(dimm=((1, 3), -2)), "policy policy mine: place 2 3 -2 4"),
        (placed(shards=((0, 5), 0)), "policy policy mine: place 1 5 0"),
        (placed(shards=((0, 5), 2)), "policy policy mine: place 1 5 2 1"),
        (placed(dimm=((0, 5), 3), shards=((0, 5), 2)), "policy policy mine: place 1 5 2 3 4"),
        (placed(resident=((0, slice(0, 4)), True)), "policy policy mine: place 4 3 1000"),
        (Placement.striped(2, 7), "policy policy mine: place 2 7 2 8"),
        (replace(Placement.striped(2, 8), replicas=(0,)), "policy policy mine: place 0 1 16 16"),
        (
            Placement(np.full((2, 8), 65536), np.ones((2, 8), int), np.zeros((2, 8), np.bool_)),
            "policy policy mine: place 1 0 32767 4",
        ),
        (None, "policy policy mine: place"),
    ],
)
def test_an_illegal_placement_is_refused(answer, words):
    assert refusal(checked_placement, answer, MACHINE) == words


def test_arrays_of_a_placement_have_to_be_of_their_kind():
    lies = Placement.striped(2, EXPERTS)
    for wrong in (replace(lies, dimm=lies.dimm.astype(float)), replace(lies, resident=lies.dimm)):
        assert refusal(checked_placement, wrong, MACHINE).startswith("policy policy mine: place")
    plain = replace(MACHINE, dimms=0, channel=())
    assert refusal(checked_placement, placed(dimm=((0, 0), 0)), plain) == "policy policy mine: place 1 0 0 -1"
    checked_placement("mine", lies, plain)


# Migrations


def test_legal_migrations_come_back_in_their_order():
    asked = [
        Migration("evict", 1, 4),
        Migration("prefetch", np.int64(2), np.int64(0), estimated_ns=np.float64(3)),
        Migration("fetch", 2, 3),
        Migration("prefetch", 1, 7),
        Migration("relayout", 1, 0, 2),
        Migration("relayout", 1, 1),
        Migration("rebalance", 1, 6, 3),
    ]
    checked = checked_migrations("mine", background_view(), asked, MACHINE)
    assert checked == asked
    assert checked_migrations("mine", background_view(), (), MACHINE) == []


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ([("fetsh", 1, 0)], "? fetch"),
        ([("prefetch", 3, 0)], "3"),
        ([("prefetch", 1, 8)], "8 0 7"),
        ([("prefetch", 1, 4)], "4 1"),
        ([("prefetch", 2, 5)], "5 2"),
        ([("prefetch", 1, 0), ("relayout", 1, 0, 1)], "0 1"),
        (
            [("prefetch", 1, 0), ("fetch", 1, 1), ("prefetch", 1, 2)],
            "2 1 1000",
        ),
        ([("evict", 1, 5)], "5 1"),
        ([("evict", 1, 4), ("evict", 1, 4)], "4 1"),
        ([("relayout", 1, 1, 4)], "1 1 4 4"),
        ([("relayout", 1, 1, 0)], "1 1 0"),
        ([("relayout", 1, 0)], "0 1"),
        ([("relayout", 1, 1, 2)], "1 1 0 2"),
        ([("rebalance", 1, 1)], "1 1"),
        ([("rebalance", 1, 0, 2)], "0 1"),
        ([("rebalance", 2, 2, 0)], "2 2 2"),
        ([("evict", 1, 4, -1, float("inf"))], "4 1 0"),
    ],
)
def test_an_illegal_migration_is_refused(asked, words):
    given = [Migration(*one) for one in asked]
    wrong = refusal(checked_migrations, background_view(), given, MACHINE)
    assert wrong == f"policy policy mine: after step 3, layer 1 {words}"


def test_what_is_no_migration_is_refused():
    plain, place = replace(MACHINE, dimms=0, channel=()), "policy policy mine: after step 3, layer 1"
    for asked, machine, numbers in (
        ([3], MACHINE, " 3"),
        (None, MACHINE, ""),
        ([Migration("relayout", 1, 0, 0)], plain, " 0 1"),
    ):
        assert refusal(checked_migrations, background_view(), asked, machine) == place + numbers


def test_arrays_of_another_type_are_taken_one_by_one_or_refused():
    whole, floats = np.ones(5), np.array([0.0, 2, 3, 6, 7])
    short = Parts(np.array([0, 2, 3, 6, 7], np.int16), whole)
    checked = checked_assignment("mine", layer_view(), Assignment(gpu=short), MACHINE)
    assert checked.gpu.listed() == [(0, 1.0), (2, 1.0), (3, 1.0), (6, 1.0), (7, 1.0)]
    refusal(checked_assignment, layer_view(), Assignment(gpu=Parts(floats, whole)), MACHINE)
    refusal(checked_assignment, layer_view(), Assignment(gpu=Parts(np.array([0, 2]), np.ones(2))), MACHINE)
