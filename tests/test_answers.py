"""Answers of a policy: which are legal, and what is said of the others."""

from __future__ import annotations

import timeit
from dataclasses import replace

import numpy as np
import pytest

from ndpsim.errors import InputError
from ndpsim.moe import load_model
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
    with pytest.raises(InputError) as caught:
        check("mine", *arguments)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("policy mine: ")
    return str(caught.value).removeprefix("policy mine: ")


# Assignments


def test_a_legal_assignment_comes_back_as_plain_lists():
    answer = Assignment(
        gpu=np.array([0, 6]), cpu=[Part(3, 1 / 3), 7], ndp=(np.int64(2), Part(3, 2 / 3)), estimated_ns=7
    )
    checked = checked_assignment("mine", layer_view(), answer, MACHINE)
    assert checked[:4] == ([(0, 1.0), (6, 1.0)], [(3, 1 / 3), (7, 1.0)], [(2, 1.0), (3, 2 / 3)], 7.0)
    assert checked[4:] == ({}, False, 0.0, [])
    assert (
        checked_assignment("mine", layer_view(), Assignment(cpu=[0, 2, 3, 6, 7]), MACHINE).estimated_ns
        is None
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Assignment(cpu=[2, 3, 6, 7]), "expert 0 has 12 tokens and no engine"),
        (Assignment(cpu=[0, 1, 2, 3, 6, 7]), "expert 1 has no tokens, and is assigned to the CPU"),
        (Assignment(cpu=[0, 2, 3, 6, 7, 8]), "expert 8 is not from 0 to 7"),
        (Assignment(gpu=[-1], cpu=[0, 2, 3, 6, 7]), "expert -1 is not from 0 to 7"),
        (Assignment(cpu=[0, 2, 3, 6, 7, 2]), "expert 2 is assigned to the CPU twice"),
        (Assignment(gpu=[2], cpu=[0, 2, 3, 6, 7]), "the shares of expert 2 add up to 2, not 1"),
        (
            Assignment(gpu=[Part(2, 0.5)], cpu=[0, Part(2, 0.25), 3, 6, 7]),
            "the shares of expert 2 add up to 0.75, not 1",
        ),
        (
            Assignment(cpu=[Part(0, float("nan"))]),
            "the share of expert 0 is nan, not a number above 0 up to 1",
        ),
        (Assignment(cpu=[Part(0, 0.0)]), "the share of expert 0 is 0.0, not a number above 0 up to 1"),
        (
            Assignment(cpu=[Part(0, 1e-5)]),
            "a share of 1e-05 of expert 0 is less than one of its 14336 columns",
        ),
        (
            Assignment(gpu=[2, 3], ndp=[6, 0, 7]),
            "expert 0 is assigned to the NDP units and lies striped over all DIMMs",
        ),
        (Assignment(cpu=[0.0, 2]), "an expert is 0.0, not a whole number"),
        (Assignment(cpu=[True, 2]), "an expert is True, not a whole number"),
        (Assignment(cpu="0236"), "cpu is '0236', not a list"),
        (
            Assignment(cpu=[0, 2, 3, 6, 7], estimated_ns=float("nan")),
            "estimated_ns is nan, not a number from 0",
        ),
        (
            Assignment(cpu=[0, 2, 3, 6, 7], details={"greedy": float("inf")}),
            "details['greedy'] is inf, not a number",
        ),
        (None, "assign gives None, not an Assignment"),
    ],
)
def test_an_illegal_assignment_is_refused_with_step_layer_and_expert(answer, words):
    assert refusal(checked_assignment, layer_view(), answer, MACHINE) == f"step 3, layer 2: {words}"


def test_engines_that_the_machine_has_not_are_refused():
    plain = replace(MACHINE, dimms=0, channel=())
    everywhere = Assignment(gpu=[0, 2, 3, 6], ndp=[7])
    words = "prefill, layer 2: expert 7 is assigned to the NDP units, and the machine has none"
    assert refusal(checked_assignment, layer_view(phase="prefill"), everywhere, plain) == words
    no_buffer = replace(MACHINE, expert_buffers=0)
    words = "step 3, layer 2: expert 0 is assigned to the GPU, is not there, and the GPU has no buffer for it"
    assert refusal(checked_assignment, layer_view(), everywhere, no_buffer) == words
    arriving = replace(layer_view(), arriving=frozen(np.ones(EXPERTS), np.bool_))
    checked_assignment("mine", arriving, everywhere, no_buffer)


def test_checking_a_layer_of_160_experts_takes_less_than_a_fifth_of_a_millisecond():
    machine = replace(MACHINE, model=replace(MODEL, routed_experts=160))
    lies = LayerPlacement(
        frozen(np.arange(160) % 4, np.int16), frozen(np.ones(160), np.int16), frozen(np.zeros(160), np.bool_)
    )
    view = LayerView(
        "decode", 0, 1, frozen(np.ones(160), np.int64), 160, lies, frozen(np.zeros(160), np.bool_)
    )
    answer = Assignment(gpu=list(range(50)), cpu=list(range(50, 90)), ndp=list(range(90, 160)))
    took = min(timeit.repeat(lambda: checked_assignment("mine", view, answer, machine), number=20, repeat=20))
    assert took / 20 < 200e-6


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
        (placed(dimm=((1, 3), 4)), "layer 2: expert 3 lies on DIMM 4 of 4"),
        (placed(dimm=((1, 3), -2)), "layer 2: expert 3 lies on DIMM -2 of 4"),
        (placed(shards=((0, 5), 0)), "layer 1: expert 5 lies over 0 DIMMs"),
        (placed(shards=((0, 5), 2)), "layer 1: expert 5 is striped, and has 2 shards; give 1"),
        (
            placed(dimm=((0, 5), 3), shards=((0, 5), 2)),
            "layer 1: expert 5 lies on 2 DIMMs from 3 of 4 on",
        ),
        (
            placed(resident=((0, slice(0, 4)), True)),
            "4 experts are to be in the GPU's memory, which has room for 3 of 1000 bytes",
        ),
        (Placement.striped(2, 7), "dimm has the shape (2, 7), not (2, 8) (layers, experts)"),
        (
            Placement(np.full((2, 8), 65536), np.ones((2, 8), int), np.zeros((2, 8), np.bool_)),
            "layer 1: expert 0 lies on DIMM 32767 of 4",
        ),
        (None, "gives None, not a Placement"),
    ],
)
def test_an_illegal_placement_is_refused(answer, words):
    assert refusal(checked_placement, answer, MACHINE) == f"place: {words}"


def test_arrays_of_a_placement_have_to_be_of_their_kind():
    lies = Placement.striped(2, EXPERTS)
    assert "not an array of whole numbers" in refusal(
        checked_placement, replace(lies, dimm=lies.dimm.astype(float)), MACHINE
    )
    assert "not an array of flags" in refusal(checked_placement, replace(lies, resident=lies.dimm), MACHINE)
    plain = replace(MACHINE, dimms=0, channel=())
    assert "no DIMM has an NDP unit" in refusal(checked_placement, placed(dimm=((0, 0), 0)), plain)
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
        ([("fetsh", 1, 0)], "unknown kind of migration 'fetsh'; did you mean 'fetch'?"),
        ([("prefetch", 3, 0)], "layer 3 of a migration is none of the run's layers with experts"),
        ([("prefetch", 1, 8)], "expert 8 is not from 0 to 7"),
        ([("prefetch", 1, 4)], "prefetch of expert 4 of layer 1: it is in the GPU's memory already"),
        ([("prefetch", 2, 5)], "prefetch of expert 5 of layer 2: it is moving already"),
        (
            [("prefetch", 1, 0), ("relayout", 1, 0, 1)],
            "relayout of expert 0 of layer 1: it is moving already",
        ),
        (
            [("prefetch", 1, 0), ("fetch", 1, 1), ("prefetch", 1, 2)],
            "prefetch of expert 2 of layer 1: the GPU's memory has no room for its 1000 bytes",
        ),
        ([("evict", 1, 5)], "evict of expert 5 of layer 1: it is not in the GPU's memory"),
        ([("evict", 1, 4), ("evict", 1, 4)], "evict of expert 4 of layer 1: it is not in the GPU's memory"),
        ([("relayout", 1, 1, 4)], "relayout of expert 1 of layer 1: there is no DIMM 4 among 4"),
        ([("relayout", 1, 1, 0)], "relayout of expert 1 of layer 1: it lies on DIMM 0 already"),
        ([("relayout", 1, 0)], "relayout of expert 0 of layer 1: it lies striped already"),
        ([("relayout", 1, 1, 2)], "relayout of expert 1 of layer 1: from DIMM 0 to DIMM 2 is a rebalance"),
        ([("rebalance", 1, 1)], "rebalance of expert 1 of layer 1: to or from striped is a relayout"),
        ([("rebalance", 1, 0, 2)], "rebalance of expert 0 of layer 1: to or from striped is a relayout"),
        (
            [("rebalance", 2, 2, 0)],
            "rebalance of expert 2 of layer 2: it lies over 2 DIMMs; a sharded expert does not move",
        ),
        (
            [("evict", 1, 4, -1, float("inf"))],
            "evict of expert 4 of layer 1: estimated_ns is inf, not a number from 0",
        ),
    ],
)
def test_an_illegal_migration_is_refused(asked, words):
    said = refusal(checked_migrations, background_view(), [Migration(*one) for one in asked], MACHINE)
    assert said.startswith(f"after step 3, layer 1: {words}")


def test_what_is_no_migration_is_refused():
    assert "background gives 3, not a Migration" in refusal(
        checked_migrations, background_view(), [3], MACHINE
    )
    assert "answer is None, not a list" in refusal(checked_migrations, background_view(), None, MACHINE)
    plain = replace(MACHINE, dimms=0, channel=())
    asked = [Migration("relayout", 1, 0, 0)]
    assert "has no NDP units" in refusal(checked_migrations, background_view(), asked, plain)
