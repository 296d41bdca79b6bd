"""HOBBIT: precision by scores, priorities by hand, and what stays in the GPU's memory."""

from __future__ import annotations

import numpy as np
import pytest

from builders.policy_machines import background_view, estimates, layer_view, machine
from mistakes import refused
from ndpsim.policies import choose_policy
from ndpsim.policies.published.hobbit import Hobbit, HobbitParameters
from ndpsim.policies.views import OfflineView
from ndpsim.workload.routing import Routing


def started(layers: int = 2, gpu_experts: int = 2, bits: int = 16, **given: object) -> Hobbit:
    return Hobbit(machine(8, layers, gpu_experts, dimms=0, bits=bits), estimates(), HobbitParameters(**given))


def asked(policy: Hobbit, view, resident, **given) -> list[tuple[str, int, int]]:
    return [
        (one.kind, one.layer, one.expert)
        for one in policy.background(background_view(view, resident, **given))
    ]


# Ranked above: expert 3 nothing, 1 0.5, 0 0.5 + 0.25, 2 0.95.
IDS, SCORES = [[0, 1, 2, 3]], [[0.2, 0.25, 0.05, 0.5]]


def test_what_ranks_behind_0_6_of_the_scores_comes_in_a_quarter_of_the_bits():
    policy = started()
    answer = policy.assign(layer_view(IDS, scores=SCORES))
    assert answer.gpu == [0, 1, 2, 3]
    assert answer.bits == {0: 4, 2: 4}
    # 0.95 is above T2.
    assert answer.details == {"skipped_in_the_paper": 1, "prefetched_in_too_few_bits": 0}
    assert answer.estimated_ns == 2 * 100 + 2 * 25


@pytest.mark.parametrize(
    ("given", "bits"),
    [
        ({"t1": 0.4}, {0: 4, 1: 4, 2: 4}),
        ({"t1": 0.5}, {0: 4, 2: 4}),
        ({"t1": 0.8}, {2: 4}),
        ({"low_bits": 2}, {0: 2, 2: 2}),
        ({"t1": 1, "t2": 1}, {}),
    ],
)
def test_thresholds_and_bits_can_be_set(given, bits):
    assert started(**given).assign(layer_view(IDS, scores=SCORES)).bits == bits


def test_scores_are_normalised_and_an_expert_is_as_precise_as_its_most_demanding_token_needs():
    scaled = [[10 * score for score in SCORES[0]], [0.1, 0.2, 0.7, 0.0]]
    # The second token ranks 2, 1, 0, 3: 0 has 0.9 above it, 1 0.7, 2 nothing.
    assert started().assign(layer_view(IDS * 2, scores=scaled)).bits == {0: 4}


def test_without_scores_each_choice_weighs_the_same():
    assert started().assign(layer_view([[5, 4]])).bits == {}  # 0 and 0.5 above
    assert started().assign(layer_view([[3, 4, 5, 6]])).bits == {6: 4}  # 0.75 above, of equals the last


def test_what_is_there_or_on_its_way_is_used_in_full():
    answer = started().assign(layer_view(IDS, resident=[2], arriving=[0], scores=SCORES))
    assert answer.gpu == [2, 0, 1, 3]
    assert answer.bits == {}


def test_weights_of_8_bits_come_in_2_and_those_of_2_in_no_fewer():
    for bits, low in ((8, (2,)), (2, ())):
        policy = started(bits=bits)
        trace = Routing(8, (0, 1), np.array([[[[0, 1]], [[2, 3]]]], np.int16))
        assert policy.place(OfflineView(policy.machine, policy.estimates, trace, 1)).replicas == low
        assert set(policy.assign(layer_view(IDS, scores=SCORES)).bits.values()) == set(low)


def test_priorities_add_up_as_noted():
    policy = started(layers=4)
    for chosen in ([0, 1], [0, 2]):
        policy.assign(layer_view([chosen], scores=[[0.7, 0.3]]))  # the second has 0.7 above it
    priority = policy._priority(0)
    # Of 2 tokens. Expert 0: lru 2/2, lfu 2/2, lhu 2/2; 1: 1/2, 1/2, 0; 2: 2/2, 1/2, 0; three layers come before it.
    near = 0.2 * (1 - 3 / 4)
    assert priority[0, :4] == pytest.approx([0.8 + near, 0.2 + near, 0.3 + near, near])
    assert priority[1, 0] == pytest.approx(0.2)  # the next layer
    policy = started(layers=4, layer_distance="printed")
    assert policy._priority(1)[:, 0] == pytest.approx(0.2 * (1 - np.array([1, 0, 3, 2]) / 4))


def test_records_count_tokens():
    policy = started(layers=1)
    policy.assign(
        layer_view([[0, 1], [0, 2], [1, 0]], scores=[[0.7, 0.3], [0.7, 0.3], [0.5, 0.5]], phase="prefill")
    )
    assert policy.tokens == 3
    assert policy.uses[0, :4].tolist() == [3, 2, 1, 0]
    assert policy.full_uses[0, :4].tolist() == [3, 1, 0, 0]  # the third token's second has 0.5 above it
    assert policy.last[0, :4].tolist() == [3, 3, 3, 0]


def test_full_copies_stay_in_place_of_the_least_priority_and_predictions_are_fetched():
    policy, resident = started(), np.zeros((2, 8), np.bool_)
    resident[0, 0] = resident[1, 6] = True
    view = layer_view([[0, 1]], [0], scores=[[0.6, 0.4]])
    policy.assign(view)
    # Layer 1 comes next, so that expert 6, never used, has 0.2; those of layer 0 have 0.8 + 0.1.
    assert asked(policy, view, resident, next_layer=1, copied=[1]) == [("evict", 1, 6), ("keep", 0, 1)]
    gate = dict(moment="gate", next_layer=1, predicted=[6, 7], above=[0.0, 0.5])
    assert asked(policy, view, resident, **gate) == [("evict", 0, 0), ("prefetch", 1, 7)]
    assert asked(policy, view, resident, **gate, in_use=[0]) == []
    # Neither what is predicted nor what was prefetched makes room.
    resident[0, 0] = False
    resident[1, 7] = True
    assert asked(policy, view, resident, **gate) == []
    assert asked(policy, view, resident, next_layer=1, copied=[1]) == [("evict", 1, 6), ("keep", 0, 1)]


def test_a_prefetch_is_as_precise_as_its_score_asks_for_and_few_bits_serve_one_layer():
    policy, resident = started(gpu_experts=4, low_bits=2), np.zeros((2, 8), np.bool_)
    assert policy.moments == ("gate", "end")
    view = layer_view([[0, 1]])
    policy.assign(view)
    shown = dict(next_layer=1, gpu_free=4, moment="gate", predicted=[3, 4, 5], above=[0.0, 0.6, 0.61])
    answer = policy.background(background_view(view, resident, **shown))
    assert [(one.kind, one.expert, one.bits) for one in answer] == [
        ("prefetch", 3, None), ("prefetch", 4, None), ("prefetch", 5, 2),
    ]  # fmt: skip
    assert [one.estimated_ns for one in answer] == [100, 100, 12.5]  # a copy of 2 of 16 bits
    resident[1, 3:6] = True
    coming = layer_view([[3, 5]], [3, 4, 5], layer=1, scores=[[0.3, 0.7]])
    used = policy.assign(coming)
    assert (used.gpu, used.bits) == ([3, 5], {})
    assert used.details["prefetched_in_too_few_bits"] == 1  # 5 has nothing above it
    assert asked(policy, coming, resident, moment="gate", in_use=[3, 5]) == []
    assert asked(policy, coming, resident, gpu_free=1) == [("evict", 1, 5)]


def test_few_bits_that_come_after_their_layer_are_left_alone_while_they_are_used():
    policy, resident = started(gpu_experts=4, low_bits=2), np.zeros((2, 8), np.bool_)
    gate = dict(next_layer=1, gpu_free=4, moment="gate", predicted=[5], above=[0.7])
    assert asked(policy, layer_view([[0, 1]]), resident, **gate) == [("prefetch", 1, 5)]
    moving = resident.copy()
    moving[1, 5] = True
    assert asked(policy, layer_view([[3, 4]], layer=1), resident, moving=moving) == []
    resident[1, 5] = True
    again = layer_view([[5, 4]], [5], layer=1)
    assert asked(policy, again, resident, moment="gate", in_use=[5, 4]) == []
    assert asked(policy, again, resident) == [("evict", 1, 5)]


def test_a_full_copy_of_an_expert_stays_if_its_few_bits_made_room_for_a_kv_cache():
    policy, resident = started(gpu_experts=4, low_bits=2), np.zeros((2, 8), np.bool_)
    gate = dict(next_layer=1, gpu_free=4, moment="gate", predicted=[5], above=[0.7])
    assert asked(policy, layer_view([[0, 1]]), resident, **gate) == [("prefetch", 1, 5)]
    again = layer_view([[5, 4]], layer=1)  # 5 has arrived after its layer, and was evicted by the engine
    assert asked(policy, again, resident, gpu_free=4, copied=[5]) == [("keep", 1, 5)]
    resident[1, 5] = True
    assert asked(policy, layer_view([[0, 1]]), resident, gpu_free=3) == []


def test_the_predictor_says_what_a_wrong_experts_place_asks_for():
    policy = started(accuracy=0.0)
    ids, scores = np.array([[4, 6]], np.int16), np.array([[0.3, 0.7]], np.float32)
    loads = np.bincount(ids.ravel(), minlength=8)
    predicted = policy.stated_predictor.predict(loads, 0, 1)
    assert not set(predicted) & {4, 6}
    assert policy.stated_predictor.above(loads, ids, scores) == pytest.approx((0.7, 0.0))


def test_no_copy_stays_in_place_of_an_expert_with_as_much_priority():
    policy, resident = started(layers=1), np.zeros((1, 8), np.bool_)
    view = layer_view([[0, 1]], [0])
    policy.assign(view)
    resident[0, 0] = True
    assert asked(policy, view, resident, copied=[1]) == []
    policy.assign(layer_view([[1, 2]]))
    assert asked(policy, view, resident, copied=[1]) == [("evict", 0, 0), ("keep", 0, 1)]


def test_in_the_prefill_copies_stay_in_place_of_the_same_layers_and_nothing_is_prefetched():
    policy, resident = started(), np.zeros((2, 8), np.bool_)
    resident[0, 0] = resident[1, 6] = True
    view = layer_view([[1, 2]] * 3 + [[0, 2]], [0], phase="prefill")
    policy.assign(view)
    # Expert 2 has four tokens, 1 three and 0 one; the first of them takes the place of 0, the other finds none.
    assert asked(policy, view, resident, next_layer=1, predicted=[7], copied=[1, 2]) == [
        ("evict", 0, 0),
        ("keep", 0, 2),
    ]


def test_what_was_prefetched_may_go_when_its_layer_is_done():
    policy, resident = started(gpu_experts=1), np.zeros((2, 8), np.bool_)
    first = layer_view([[0, 1]])
    policy.assign(first)
    assert asked(
        policy, first, resident, next_layer=1, predicted=[7], above=[0.0], gpu_free=1, moment="gate"
    ) == [("prefetch", 1, 7)]
    resident[1, 7] = True
    assert asked(policy, first, resident, next_layer=1, copied=[1]) == []
    done = layer_view([[3, 4]], layer=1)
    policy.assign(done)
    assert asked(policy, done, resident, copied=[3]) == [("evict", 1, 7), ("keep", 1, 3)]


def test_it_says_how_often_its_predictor_was_right():
    policy = started(accuracy=1.0)
    assert policy.prediction() is None
    policy.stated_predictor.predict(np.array([3, 2, 0, 0, 0, 0, 0, 0]), 0, 1)
    assert policy.prediction() == {"accuracy": 1.0, "counted": {"experts": 2}}


def test_thresholds_the_wrong_way_round_are_refused():
    with refused("invalid policy hobbit"):
        choose_policy("hobbit:t1=0.95")
