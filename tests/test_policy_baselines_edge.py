"""Fiddler, MoE-OnDemand and MoNDE for one sequence, as their papers and released code have them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.policy_machines import EXPERTS, assigned, migrated, started
from mistakes import refused
from ndpsim.policies.published.fiddler import least_longer_sum

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


@given(st.lists(st.integers(1, 60), min_size=17, max_size=60))
def test_of_many_experts_the_first_ones_by_tokens_are_best_where_copies_cost_the_same(tokens):
    # With n on the GPU it takes 70 n, whichever they are, and the CPU least if they have most tokens.
    costs = 7.0 * np.sort(tokens)[::-1]
    best = min(max(70.0 * n, costs[n:].sum()) for n in range(len(tokens) + 1))
    flags = least_longer_sum(np.full(len(tokens), 70.0), 7.0 * np.array(tokens), 0.0)
    assert max(70.0 * flags.sum(), 7.0 * np.array(tokens)[~flags].sum()) == best


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
