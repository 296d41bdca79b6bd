"""Pre-gated MoE: the experts of the next layer are fetched; on a machine where nothing takes time, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from builders.policy_machines import background_view, estimates, layer_view, machine
from ndpsim.policies.published.pre_gated import Pregated, PregatedParameters


def started(layers: int = 3, gpu_experts: int = 4, **given: object) -> Pregated:
    return Pregated(machine(8, layers, gpu_experts, dimms=0), estimates(), PregatedParameters(**given))


def asked(policy: Pregated, view, resident, moment="gate", **given) -> list[tuple[str, int, int]]:
    return [
        (one.kind, one.layer, one.expert)
        for one in policy.background(background_view(view, resident, moment=moment, **given))
    ]


def loads(*experts: int) -> list[int]:
    return np.bincount(experts, minlength=8).tolist()


def test_the_next_layers_experts_are_fetched_beside_this_layers_and_those_of_the_last_given_up():
    policy, resident = started(), np.zeros((3, 8), np.bool_)
    assert policy.moments == ("gate",)
    resident[0, [1, 2]] = resident[1, 4] = True
    view = layer_view([[4, 6]], [4], layer=1)
    assert policy.assign(view).gpu == [4, 6]
    # Most tokens first: expert 5 has two. Expert 4 of this layer stays while it is computed.
    assert asked(policy, view, resident, next_layer=2, gpu_free=1, next_loads=loads(3, 5, 5), in_use=[4, 6]) == [
        ("evict", 0, 1), ("evict", 0, 2), ("prefetch", 2, 5), ("prefetch", 2, 3),
    ]  # fmt: skip


def test_the_first_layer_of_a_step_fetches_its_own_and_the_last_fetches_nothing():
    policy, resident = started(), np.zeros((3, 8), np.bool_)
    view = layer_view([[1, 2]], layer=2)
    assert asked(policy, view, resident, gpu_free=4, next_loads=loads(3, 5)) == []
    answer = policy.assign(layer_view([[3, 5]], step=1))
    assert (answer.gpu, answer.cpu, answer.ndp) == ([3, 5], (), ())
    assert answer.estimated_ns == 200  # two copies


def test_the_prefill_loads_on_demand():
    policy, resident = started(), np.zeros((3, 8), np.bool_)
    view = layer_view([[1, 2]], phase="prefill")
    assert asked(policy, view, resident, next_layer=1, gpu_free=4, next_loads=loads(3, 5)) == []


def test_without_room_for_all_of_a_layer_the_rest_is_loaded_when_it_is_needed():
    policy, resident = started(gpu_experts=1), np.zeros((3, 8), np.bool_)
    view = layer_view([[1, 2]])
    assert asked(policy, view, resident, next_layer=1, gpu_free=1, next_loads=loads(3, 5)) == [
        ("prefetch", 1, 3)
    ]
    answer = policy.assign(layer_view([[3, 5]], arriving=[3], layer=1))
    assert answer.gpu == [3, 5]
    assert answer.estimated_ns == 100


@pytest.mark.parametrize(("cache", "victim"), [("lfu", 1), ("lru", 0)])
def test_a_cache_gives_up_what_was_used_least_often_or_least_lately(cache, victim):
    policy, resident = started(layers=2, gpu_experts=2, cache=cache), np.zeros((2, 8), np.bool_)
    resident[0, [0, 1]] = True
    for chosen in ([0, 2], [0, 2], [1, 2]):
        view = layer_view([chosen], [0, 1])
        policy.assign(view)
    assert asked(policy, view, resident, next_layer=1, next_loads=loads(4)) == [
        ("evict", 0, victim),
        ("prefetch", 1, 4),
    ]


def test_counts_begin_anew_after_the_prefill():
    policy = started(cache="lfu")
    policy.assign(layer_view([[0, 2]] * 3, phase="prefill"))
    policy.assign(layer_view([[1, 2]]))
    assert policy.worth[0, :3].tolist() == [0, 1, 1]


def test_a_cache_gives_up_nothing_that_the_layer_computes():
    policy, resident = started(layers=2, gpu_experts=2, cache="lru"), np.zeros((2, 8), np.bool_)
    assert policy.moments == ("gate", "end")
    resident[0, [0, 1]] = True
    policy.assign(layer_view([[0, 1]], [0, 1]))
    view = layer_view([[0, 2]], [0, 1])
    policy.assign(view)
    wanted = dict(next_layer=1, next_loads=loads(4, 5))
    assert asked(policy, view, resident, in_use=[0, 2], **wanted) == [("evict", 0, 1), ("prefetch", 1, 4)]


def test_a_cache_holds_what_was_loaded_on_demand_but_not_in_place_of_what_comes_next():
    policy, resident = started(layers=2, gpu_experts=2, cache="lru"), np.zeros((2, 8), np.bool_)
    resident[1, [4, 5]] = True
    view = layer_view([[0, 1]])
    policy.assign(view)
    after = dict(moment="end", next_layer=1, copied=[0, 1])
    assert asked(policy, view, resident, next_loads=loads(4, 5), **after) == []
    assert asked(policy, view, resident, next_loads=loads(4), **after) == [("evict", 1, 5), ("keep", 0, 0)]
