"""Published baselines by hand: Fiddler, MoE-OnDemand, MoNDE, Pre-gated MoE and HOBBIT."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.policy_machines import (
    EXPERTS,
    assigned,
    background_view,
    estimates,
    layer_view,
    machine,
    migrated,
    started,
)
from mistakes import refused
from ndpsim.policies import choose_policy
from ndpsim.policies.published.fiddler import least_longer_sum
from ndpsim.policies.published.hobbit import Hobbit, HobbitParameters
from ndpsim.policies.published.pre_gated import Pregated, PregatedParameters
from ndpsim.policies.views import OfflineView
from ndpsim.workload.routing import Routing

# Fiddler


def test_fiddler_holds_the_most_popular_experts_of_all_layers_and_changes_nothing():
    policy, placement = started("fiddler", gpu_experts=3)
    assert np.argwhere(placement.resident).tolist() == [[0, 0], [0, 1], [1, 2]]
    assert (placement.dimm == -1).all()
    assert migrated(policy, placement, [1] * 6, copied=[3]) == []
    assert not started("fiddler:residents=none")[1].resident.any()


def test_fiddler_sends_a_missing_expert_where_it_is_cheaper():
    policy, placement = started("fiddler", gpu_experts=1)
    # On the CPU 4 t, at least 8; on the GPU 20 + t: equal at no whole number, 6 on the CPU, 7 on the GPU.
    answer = assigned(policy, placement, [50, 6, 7, 1, 0, 40])
    assert (answer.gpu, answer.cpu, answer.sequential) == ([0, 2, 5], [1, 3], True)
    assert answer.estimated_ns == 3 + 50 + 27 + 60 + 24 + 8


def test_fiddler_by_the_constants_of_its_code_leaves_fewer_than_ten_tokens_to_the_cpu():
    policy, placement = started("fiddler:constants=code,residents=none")
    answer = assigned(policy, placement, [9, 10, 11, 1, 0, 0])
    assert (answer.gpu, answer.cpu) == ([1, 2], [0, 3])


def test_fiddler_by_the_comment_in_its_code_minimises_the_larger_sum():
    # 7 x (9 + 9 + 9 + 9 + 9) = 315 against 70 each: by the sum all on the CPU, by the larger 140 and 189.
    loads = [9, 9, 9, 9, 9, 0]
    policy, placement = started("fiddler:constants=code,residents=none")
    assert assigned(policy, placement, loads).gpu == []
    policy, placement = started("fiddler:constants=code,residents=none,objective=max,overlap=true")
    answer = assigned(policy, placement, loads)
    assert (len(answer.gpu), len(answer.cpu), answer.sequential) == (2, 3, False)
    # Copies 40, the GPU 3 + 18, the CPU 3 x 36.
    assert answer.estimated_ns == 108
    # By the machine's times: the GPU 2 x (20 + 9) = 58, 3: 87; the CPU 108, 72.
    policy, placement = started("fiddler:residents=none,objective=max")
    assert len(assigned(policy, placement, loads).gpu) == 3
    # Behind the 60 of a resident: with none of four copied the CPU has 144, one: 89 and 108, two: 118 and 72.
    policy, placement = started("fiddler:objective=max", gpu_experts=1)
    answer = assigned(policy, placement, [60, 9, 9, 9, 9, 0])
    assert (len(answer.gpu), len(answer.cpu)) == (1 + 1, 3)


def test_fiddler_as_the_edge_paper_describes_it_computes_on_the_cpu():
    policy, placement = started("fiddler:experts=cpu,residents=none")
    answer = assigned(policy, placement, [100, 1, 1, 0, 0, 0])
    assert (answer.gpu, answer.cpu) == ([], [0, 1, 2])


COSTS = st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), max_size=7)


@given(COSTS, st.floats(0, 50))
def test_no_other_set_has_a_smaller_larger_sum(costs, begun):
    on_gpu, on_cpu = (np.array([pair[engine] for pair in costs]) for engine in (0, 1))
    best = min(
        max(begun + sum(on_gpu[list(chosen)]), sum(on_cpu) - sum(on_cpu[list(chosen)]))
        for count in range(len(costs) + 1)
        for chosen in itertools.combinations(range(len(costs)), count)
    )
    flags = least_longer_sum(on_gpu, on_cpu, begun)
    assert max(begun + on_gpu[flags].sum(), on_cpu[~flags].sum()) == pytest.approx(best)


@given(st.lists(st.integers(1, 60), min_size=17, max_size=60), st.sampled_from([0.0, 35.0, 700.0]))
def test_of_many_experts_the_first_ones_by_tokens_are_best_where_copies_cost_the_same(tokens, begun):
    # With n on the GPU it takes 70 n, whichever they are, and the CPU least if they have most tokens.
    costs = 7.0 * np.sort(tokens)[::-1]
    best = min(max(begun + 70.0 * n, costs[n:].sum()) for n in range(len(tokens) + 1))
    flags = least_longer_sum(np.full(len(tokens), 70.0), 7.0 * np.array(tokens), begun)
    assert max(begun + 70.0 * flags.sum(), 7.0 * np.array(tokens)[~flags].sum()) == best


# MoE-OnDemand


def test_on_demand_copies_every_activated_expert_and_overlaps_nothing():
    policy, placement = started("on-demand")
    assert not placement.resident.any()
    answer = assigned(policy, placement, [0, 4, 0, 1, 9, 0])
    assert (answer.gpu, answer.sequential) == ([1, 3, 4], True)
    assert answer.estimated_ns == 3 + 14 + 3 * 20
    assert migrated(policy, placement, [0, 4, 0, 1, 9, 0], free=4, copied=[1, 3, 4]) == []


def test_on_demand_with_a_cache_gives_up_what_was_used_longest_ago():
    """Against a separate LRU list over random layers."""
    policy, placement = started("on-demand:cache=lru", gpu_experts=5)
    resident = np.zeros((2, EXPERTS), np.bool_)
    random, recent, seen = np.random.default_rng(1), list[tuple[int, int]](), set()
    for step in range(60):
        row = step % 2
        loads = np.bincount(random.choice(EXPERTS, 2, replace=False), minlength=EXPERTS)
        lies = replace(placement, resident=resident.copy())
        assert assigned(policy, lies, loads.tolist(), row).gpu == np.flatnonzero(loads).tolist()
        active = np.flatnonzero(loads).tolist()
        copied = [expert for expert in active if not resident[row, expert]]
        answer = migrated(policy, lies, loads.tolist(), row + 1, 5 - int(resident.sum()), copied=copied)
        for kind, layer, expert in answer:
            assert resident[layer - 1, expert] == (kind == "evict")
            resident[layer - 1, expert] = kind == "keep"
            seen.add(kind)
        # Hits were used now; what was copied is new; the oldest goes.
        recent = [place for place in recent if place not in [(row, one) for one in active]]
        recent = (recent + [(row, one) for one in active])[-5:]
        assert sorted(map(tuple, np.argwhere(resident).tolist())) == sorted(recent)
    assert seen == {"evict", "keep"}


def test_baselines_say_what_they_need():
    with refused("conflict"):
        started("fiddler", has_cpu=False)
    started("on-demand", dimms=0, channel=(), has_cpu=False)


# MoNDE, for one sequence


def test_monde_of_the_edge_paper_loads_by_bandwidths_and_holds_nothing():
    policy, placement = started("monde:variant=bandwidth,placement=cyclic,residents=none")
    assert not placement.resident.any()
    assert placement.dimm.tolist() == [[0, 1, 0, 1, 0, 1]] * 2
    # 5 x (1 / 20) / (1 / 20 + 2 / 15) = 1.36: one of five is loaded, the others on their DIMMs.
    answer = assigned(policy, placement, [1, 1, 1, 0, 1, 1])
    assert (answer.gpu, answer.ndp, answer.sequential) == ([0], [1, 2, 4, 5], False)
    assert migrated(policy, placement, [1, 1, 1, 0, 1, 1], free=4) == []


def test_monde_scales_its_rule_by_what_would_have_been_best_in_steps_before():
    policy, placement = started("monde:variant=bandwidth,placement=cyclic,residents=none")
    # By the rule 6 / 20 / (1 / 20 + 2 / 15) = 1.64 of six; each takes 15 on a DIMM, a copy 30 from a channel.
    # 0: 45. 1: max(30, 45). 2: max(40, 30, 30). 3: max(60, 60, 30). Best are 2.
    flat = [1, 1, 1, 1, 1, 1]
    for step, count in (0, 2), (1, 2):
        assert len(assigned(policy, placement, flat, step=step).gpu) == count
    assert policy.alpha == pytest.approx(2 / (6 * 0.05 / (0.05 + 2 / 15)))
    # Two experts, on one DIMM each: 15, with one copy 30. Best is none: 2 of 1.64 + 0.55 + 1.64.
    assert len(assigned(policy, placement, [1, 1, 0, 0, 0, 0], step=1).gpu) == 1
    assert len(assigned(policy, placement, [1, 1, 0, 0, 0, 0], step=1).gpu) == 1
    assert len(assigned(policy, placement, [1, 1, 0, 0, 0, 0], step=2).gpu) == 0
    # In a prefill, and where alpha is given, nothing is scaled by the past.
    assert len(assigned(policy, placement, [1, 1, 0, 0, 0, 0], phase="prefill").gpu) == 1


def test_monde_migrates_as_often_as_asked_the_hottest_in_place_of_the_coldest():
    policy, placement = started("monde:migrations=0.4")
    assert np.argwhere(placement.resident).tolist() == [[0, 0], [0, 1], [1, 2], [1, 4]]
    # Layer 1 had 9 8 3 2 1 1 tokens offline; 3 has most of those missing after 6 more.
    loads = [0, 1, 0, 6, 0, 0]
    assert migrated(policy, placement, loads) == []
    assert migrated(policy, placement, [0] * 6) == []  # 0.8
    assert migrated(policy, placement, [0] * 6) == [("evict", 1, 0), ("prefetch", 1, 3)]  # 1.2
    # 0.2 are left; 7 tokens make 3. With room nothing has to leave, and what moves is left alone.
    asked = migrated(policy, placement, [0] * 6, tokens=7, free=1, moving=[(0, 0), (0, 3)])
    assert asked == [
        ("prefetch", 1, 2),
        ("evict", 1, 1),
        ("prefetch", 1, 4),
        ("evict", 2, 4),
        ("prefetch", 1, 5),
    ]
    assert policy.due == pytest.approx(0)


def test_monde_counts_but_does_not_migrate_in_the_prefill():
    policy, placement = started("monde:migrations=1")
    assert migrated(policy, placement, [0, 0, 0, 0, 50, 0], tokens=50, phase="prefill") == []
    assert migrated(policy, placement, [0] * 6)[-1] == ("prefetch", 1, 4)
    assert migrated(*started("monde"), [0] * 6, tokens=100) == []


# ---- Pre-gated MoE: the experts of the next layer are fetched; on a machine where nothing takes time, and by hand


def pregated(layers: int = 3, gpu_experts: int = 4, **given: object) -> Pregated:
    return Pregated(machine(8, layers, gpu_experts, dimms=0), estimates(), PregatedParameters(**given))


def asked_of_pregated(policy: Pregated, view, resident, moment="gate", **given) -> list[tuple[str, int, int]]:
    return [
        (one.kind, one.layer, one.expert)
        for one in policy.background(background_view(view, resident, moment=moment, **given))
    ]


def loads(*experts: int) -> list[int]:
    return np.bincount(experts, minlength=8).tolist()


def test_the_next_layers_experts_are_fetched_beside_this_layers_and_those_of_the_last_given_up():
    policy, resident = pregated(), np.zeros((3, 8), np.bool_)
    assert policy.moments == ("gate",)
    resident[0, [1, 2]] = resident[1, 4] = True
    view = layer_view([[4, 6]], [4], layer=1)
    assert policy.assign(view).gpu == [4, 6]
    # Most tokens first: expert 5 has two. Expert 4 of this layer stays while it is computed.
    assert asked_of_pregated(policy, view, resident, next_layer=2, gpu_free=1, next_loads=loads(3, 5, 5), in_use=[4, 6]) == [
        ("evict", 0, 1), ("evict", 0, 2), ("prefetch", 2, 5), ("prefetch", 2, 3),
    ]  # fmt: skip


def test_the_first_layer_of_a_step_fetches_its_own_and_the_last_fetches_nothing():
    policy, resident = pregated(), np.zeros((3, 8), np.bool_)
    view = layer_view([[1, 2]], layer=2)
    assert asked_of_pregated(policy, view, resident, gpu_free=4, next_loads=loads(3, 5)) == []
    answer = policy.assign(layer_view([[3, 5]], step=1))
    assert (answer.gpu, answer.cpu, answer.ndp) == ([3, 5], (), ())
    assert answer.estimated_ns == 200  # two copies


def test_the_prefill_loads_on_demand():
    policy, resident = pregated(), np.zeros((3, 8), np.bool_)
    view = layer_view([[1, 2]], phase="prefill")
    assert asked_of_pregated(policy, view, resident, next_layer=1, gpu_free=4, next_loads=loads(3, 5)) == []


def test_without_room_for_all_of_a_layer_the_rest_is_loaded_when_it_is_needed():
    policy, resident = pregated(gpu_experts=1), np.zeros((3, 8), np.bool_)
    view = layer_view([[1, 2]])
    assert asked_of_pregated(policy, view, resident, next_layer=1, gpu_free=1, next_loads=loads(3, 5)) == [
        ("prefetch", 1, 3)
    ]
    answer = policy.assign(layer_view([[3, 5]], arriving=[3], layer=1))
    assert answer.gpu == [3, 5]
    assert answer.estimated_ns == 100


@pytest.mark.parametrize(("cache", "victim"), [("lfu", 1), ("lru", 0)])
def test_a_cache_gives_up_what_was_used_least_often_or_least_lately(cache, victim):
    policy, resident = pregated(layers=2, gpu_experts=2, cache=cache), np.zeros((2, 8), np.bool_)
    resident[0, [0, 1]] = True
    for chosen in ([0, 2], [0, 2], [1, 2]):
        view = layer_view([chosen], [0, 1])
        policy.assign(view)
    assert asked_of_pregated(policy, view, resident, next_layer=1, next_loads=loads(4)) == [
        ("evict", 0, victim),
        ("prefetch", 1, 4),
    ]


def test_counts_begin_anew_after_the_prefill():
    policy = pregated(cache="lfu")
    policy.assign(layer_view([[0, 2]] * 3, phase="prefill"))
    policy.assign(layer_view([[1, 2]]))
    assert policy.worth[0, :3].tolist() == [0, 1, 1]


def test_a_cache_gives_up_nothing_that_the_layer_computes():
    policy, resident = pregated(layers=2, gpu_experts=2, cache="lru"), np.zeros((2, 8), np.bool_)
    assert policy.moments == ("gate", "end")
    resident[0, [0, 1]] = True
    policy.assign(layer_view([[0, 1]], [0, 1]))
    view = layer_view([[0, 2]], [0, 1])
    policy.assign(view)
    wanted = dict(next_layer=1, next_loads=loads(4, 5))
    assert asked_of_pregated(policy, view, resident, in_use=[0, 2], **wanted) == [
        ("evict", 0, 1),
        ("prefetch", 1, 4),
    ]


def test_a_cache_holds_what_was_loaded_on_demand_but_not_in_place_of_what_comes_next():
    policy, resident = pregated(layers=2, gpu_experts=2, cache="lru"), np.zeros((2, 8), np.bool_)
    resident[1, [4, 5]] = True
    view = layer_view([[0, 1]])
    policy.assign(view)
    after = dict(moment="end", next_layer=1, copied=[0, 1])
    assert asked_of_pregated(policy, view, resident, next_loads=loads(4, 5), **after) == []
    assert asked_of_pregated(policy, view, resident, next_loads=loads(4), **after) == [
        ("evict", 1, 5),
        ("keep", 0, 0),
    ]


# ---- HOBBIT: precision by scores, priorities by hand, and what stays in the GPU's memory


def hobbit(layers: int = 2, gpu_experts: int = 2, bits: int = 16, **given: object) -> Hobbit:
    return Hobbit(machine(8, layers, gpu_experts, dimms=0, bits=bits), estimates(), HobbitParameters(**given))


def asked_of_hobbit(policy: Hobbit, view, resident, **given) -> list[tuple[str, int, int]]:
    return [
        (one.kind, one.layer, one.expert)
        for one in policy.background(background_view(view, resident, **given))
    ]


# Ranked above: expert 3 nothing, 1 0.5, 0 0.5 + 0.25, 2 0.95.
IDS, SCORES = [[0, 1, 2, 3]], [[0.2, 0.25, 0.05, 0.5]]


def test_what_ranks_behind_0_6_of_the_scores_comes_in_a_quarter_of_the_bits():
    policy = hobbit()
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
    assert hobbit(**given).assign(layer_view(IDS, scores=SCORES)).bits == bits


def test_scores_are_normalised_and_an_expert_is_as_precise_as_its_most_demanding_token_needs():
    scaled = [[10 * score for score in SCORES[0]], [0.1, 0.2, 0.7, 0.0]]
    # The second token ranks 2, 1, 0, 3: 0 has 0.9 above it, 1 0.7, 2 nothing.
    assert hobbit().assign(layer_view(IDS * 2, scores=scaled)).bits == {0: 4}


def test_without_scores_each_choice_weighs_the_same():
    assert hobbit().assign(layer_view([[5, 4]])).bits == {}  # 0 and 0.5 above
    assert hobbit().assign(layer_view([[3, 4, 5, 6]])).bits == {6: 4}  # 0.75 above, of equals the last


def test_what_is_there_or_on_its_way_is_used_in_full():
    answer = hobbit().assign(layer_view(IDS, resident=[2], arriving=[0], scores=SCORES))
    assert answer.gpu == [2, 0, 1, 3]
    assert answer.bits == {}


def test_weights_of_8_bits_come_in_2_and_those_of_2_in_no_fewer():
    for bits, low in ((8, (2,)), (2, ())):
        policy = hobbit(bits=bits)
        trace = Routing(8, (0, 1), np.array([[[[0, 1]], [[2, 3]]]], np.int16))
        assert policy.place(OfflineView(policy.machine, policy.estimates, trace, 1)).replicas == low
        assert set(policy.assign(layer_view(IDS, scores=SCORES)).bits.values()) == set(low)


def test_priorities_add_up_as_noted():
    policy = hobbit(layers=4)
    for chosen in ([0, 1], [0, 2]):
        policy.assign(layer_view([chosen], scores=[[0.7, 0.3]]))  # the second has 0.7 above it
    priority = policy._priority(0)
    # Of 2 tokens. Expert 0: lru 2/2, lfu 2/2, lhu 2/2; 1: 1/2, 1/2, 0; 2: 2/2, 1/2, 0; three layers come before it.
    near = 0.2 * (1 - 3 / 4)
    assert priority[0, :4] == pytest.approx([0.8 + near, 0.2 + near, 0.3 + near, near])
    assert priority[1, 0] == pytest.approx(0.2)  # the next layer
    policy = hobbit(layers=4, layer_distance="printed")
    assert policy._priority(1)[:, 0] == pytest.approx(0.2 * (1 - np.array([1, 0, 3, 2]) / 4))


def test_records_count_tokens():
    policy = hobbit(layers=1)
    policy.assign(
        layer_view([[0, 1], [0, 2], [1, 0]], scores=[[0.7, 0.3], [0.7, 0.3], [0.5, 0.5]], phase="prefill")
    )
    assert policy.tokens == 3
    assert policy.uses[0, :4].tolist() == [3, 2, 1, 0]
    assert policy.full_uses[0, :4].tolist() == [3, 1, 0, 0]  # the third token's second has 0.5 above it
    assert policy.last[0, :4].tolist() == [3, 3, 3, 0]


def test_a_token_counts_once_and_not_in_each_layer():
    policy = hobbit(layers=2)
    for layer in (0, 1):
        policy.assign(replace(layer_view(IDS, scores=SCORES), layer=layer))
    assert policy.tokens == 1


def test_full_copies_stay_in_place_of_the_least_priority_and_predictions_are_fetched():
    policy, resident = hobbit(), np.zeros((2, 8), np.bool_)
    resident[0, 0] = resident[1, 6] = True
    view = layer_view([[0, 1]], [0], scores=[[0.6, 0.4]])
    policy.assign(view)
    # Layer 1 comes next, so that expert 6, never used, has 0.2; those of layer 0 have 0.8 + 0.1.
    assert asked_of_hobbit(policy, view, resident, next_layer=1, copied=[1]) == [
        ("evict", 1, 6),
        ("keep", 0, 1),
    ]
    gate = dict(moment="gate", next_layer=1, predicted=[6, 7], above=[0.0, 0.5])
    assert asked_of_hobbit(policy, view, resident, **gate) == [("evict", 0, 0), ("prefetch", 1, 7)]
    assert asked_of_hobbit(policy, view, resident, **gate, in_use=[0]) == []
    # Neither what is predicted nor what was prefetched makes room.
    resident[0, 0] = False
    resident[1, 7] = True
    assert asked_of_hobbit(policy, view, resident, **gate) == []
    assert asked_of_hobbit(policy, view, resident, next_layer=1, copied=[1]) == [
        ("evict", 1, 6),
        ("keep", 0, 1),
    ]


def test_a_prefetch_is_as_precise_as_its_score_asks_for_and_few_bits_serve_one_layer():
    policy, resident = hobbit(gpu_experts=4, low_bits=2), np.zeros((2, 8), np.bool_)
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
    assert asked_of_hobbit(policy, coming, resident, moment="gate", in_use=[3, 5]) == []
    assert asked_of_hobbit(policy, coming, resident, gpu_free=1) == [("evict", 1, 5)]


def test_few_bits_that_come_after_their_layer_are_left_alone_while_they_are_used():
    policy, resident = hobbit(gpu_experts=4, low_bits=2), np.zeros((2, 8), np.bool_)
    gate = dict(next_layer=1, gpu_free=4, moment="gate", predicted=[5], above=[0.7])
    assert asked_of_hobbit(policy, layer_view([[0, 1]]), resident, **gate) == [("prefetch", 1, 5)]
    moving = resident.copy()
    moving[1, 5] = True
    assert asked_of_hobbit(policy, layer_view([[3, 4]], layer=1), resident, moving=moving) == []
    resident[1, 5] = True
    again = layer_view([[5, 4]], [5], layer=1)
    assert asked_of_hobbit(policy, again, resident, moment="gate", in_use=[5, 4]) == []
    assert asked_of_hobbit(policy, again, resident) == [("evict", 1, 5)]


def test_a_full_copy_of_an_expert_stays_if_its_few_bits_made_room_for_a_kv_cache():
    policy, resident = hobbit(gpu_experts=4, low_bits=2), np.zeros((2, 8), np.bool_)
    gate = dict(next_layer=1, gpu_free=4, moment="gate", predicted=[5], above=[0.7])
    assert asked_of_hobbit(policy, layer_view([[0, 1]]), resident, **gate) == [("prefetch", 1, 5)]
    again = layer_view([[5, 4]], layer=1)  # 5 has arrived after its layer, and was evicted by the engine
    assert asked_of_hobbit(policy, again, resident, gpu_free=4, copied=[5]) == [("keep", 1, 5)]
    resident[1, 5] = True
    assert asked_of_hobbit(policy, layer_view([[0, 1]]), resident, gpu_free=3) == []


def test_the_predictor_says_what_a_wrong_experts_place_asks_for():
    policy = hobbit(accuracy=0.0)
    ids, scores = np.array([[4, 6]], np.int16), np.array([[0.3, 0.7]], np.float32)
    loads = np.bincount(ids.ravel(), minlength=8)
    predicted = policy.stated_predictor.predict(loads, 0, 1)
    assert not set(predicted) & {4, 6}
    assert policy.stated_predictor.above(loads, ids, scores) == pytest.approx((0.7, 0.0))


def test_no_copy_stays_in_place_of_an_expert_with_as_much_priority():
    policy, resident = hobbit(layers=1), np.zeros((1, 8), np.bool_)
    view = layer_view([[0, 1]], [0])
    policy.assign(view)
    resident[0, 0] = True
    assert asked_of_hobbit(policy, view, resident, copied=[1]) == []
    policy.assign(layer_view([[1, 2]]))
    assert asked_of_hobbit(policy, view, resident, copied=[1]) == [("evict", 0, 0), ("keep", 0, 1)]


def test_in_the_prefill_copies_stay_in_place_of_the_same_layers_and_nothing_is_prefetched():
    policy, resident = hobbit(), np.zeros((2, 8), np.bool_)
    resident[0, 0] = resident[1, 6] = True
    view = layer_view([[1, 2]] * 3 + [[0, 2]], [0], phase="prefill")
    policy.assign(view)
    # Expert 2 has four tokens, 1 three and 0 one; the first of them takes the place of 0, the other finds none.
    assert asked_of_hobbit(policy, view, resident, next_layer=1, predicted=[7], copied=[1, 2]) == [
        ("evict", 0, 0),
        ("keep", 0, 2),
    ]


def test_what_was_prefetched_may_go_when_its_layer_is_done():
    policy, resident = hobbit(gpu_experts=1), np.zeros((2, 8), np.bool_)
    first = layer_view([[0, 1]])
    policy.assign(first)
    assert asked_of_hobbit(
        policy, first, resident, next_layer=1, predicted=[7], above=[0.0], gpu_free=1, moment="gate"
    ) == [("prefetch", 1, 7)]
    resident[1, 7] = True
    assert asked_of_hobbit(policy, first, resident, next_layer=1, copied=[1]) == []
    done = layer_view([[3, 4]], layer=1)
    policy.assign(done)
    assert asked_of_hobbit(policy, done, resident, copied=[3]) == [("evict", 1, 7), ("keep", 1, 3)]


def test_it_says_how_often_its_predictor_was_right():
    policy = hobbit(accuracy=1.0)
    assert policy.prediction() is None
    policy.stated_predictor.predict(np.array([3, 2, 0, 0, 0, 0, 0, 0]), 0, 1)
    assert policy.prediction() == {"accuracy": 1.0, "counted": {"experts": 2}}


def test_thresholds_the_wrong_way_round_are_refused():
    with refused("invalid policy hobbit"):
        choose_policy("hobbit:t1=0.95")
