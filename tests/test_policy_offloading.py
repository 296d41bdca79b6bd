"""What llama.cpp, KTransformers, MoE-Lightning and HybriMoE decide, by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.policy_machines import estimates, flags
from builders.policy_machines import machine as plain_machine
from mistakes import refused
from ndpsim.policies import PolicyParameters, choose_policy, policies
from ndpsim.policies.answers import checked_migrations
from ndpsim.policies.offline import halves
from ndpsim.policies.offloading import Offloading
from ndpsim.policies.published.hybrimoe import _both_ends
from ndpsim.policies.views import (
    STRIPED,
    BackgroundView,
    LayerPlacement,
    LayerView,
    Machine,
    OfflineView,
    Placement,
)
from ndpsim.workload.routing import Routing

TOKENS = np.arange(1001)

# A copy takes 100 ns; on the GPU an expert takes 10 ns, on the CPU 30 and 10 a token.
ESTIMATES = estimates(
    gpu_ns=np.where(TOKENS > 0, 10.0, 0.0),
    cpu_ns=np.where(TOKENS > 0, 30.0 + 10 * TOKENS, 0.0),
    striped_read_ns=20.0,
    window_ns=50.0,
    shared_ns=5.0,
)


def machine(layers=4, experts=4, gpu_experts=8, first=0) -> Machine:
    return plain_machine(experts, layers, gpu_experts, dimms=0, first=first)


def started(asked: str, of: Machine | None = None, shares=None, batch=10, prompt=0):
    """The policy under way, and its first placement; `shares`: offline tokens by expert and layer."""
    of = machine() if of is None else of
    policy = choose_policy(asked).start(of, ESTIMATES)
    counts = np.tile([4, 3, 2, 1], (len(of.layers), 1)) if shares is None else np.array(shares)
    ids = np.stack([np.repeat(np.arange(len(row), dtype=np.int16), row) for row in counts])
    trace = Routing(of.model.routed_experts, of.layers, ids[None, :, :, None])
    return policy, policy.place(OfflineView(of, ESTIMATES, trace, batch, prompt))


def gated(loads, resident=(), arriving=(), layer=0, phase="decode", tokens=None) -> LayerView:
    """A layer whose tokens are routed."""
    count = len(loads)
    there = flags(count, resident)
    placement = LayerPlacement(np.full(count, STRIPED, np.int16), np.ones(count, np.int16), there)
    tokens = max(loads) if tokens is None else tokens
    return LayerView(phase, 0, layer, np.array(loads), tokens, placement, flags(count, arriving))


def done(policy, placement, layer, ids, free=0, copied=(), scores=None, phase="decode", moving=()):
    """A layer, as `background` is shown it when it is done."""
    of = policy.machine
    ids = np.array(ids, np.int16)
    flags, under_way = np.zeros(of.model.routed_experts, np.bool_), np.zeros_like(placement.resident)
    flags[list(copied)] = True
    for place in moving:
        under_way[place] = True
    following = of.layers[(of.layers.index(layer) + 1) % len(of.layers)]
    loads = np.bincount(ids.ravel(), minlength=len(flags))
    scores = None if scores is None else np.array(scores, np.float32)
    return BackgroundView(phase, 0, layer, following, loads, placement, under_way, free, ids, scores, flags)


def answered(policy, view) -> list[tuple[str, int, int]]:
    """Migrations, found legal, as (kind, layer, expert)."""
    migrations = policy.background(view)
    checked_migrations(policy.name, view, migrations, policy.machine)
    return [(one.kind, one.layer, one.expert) for one in migrations]


@pytest.mark.parametrize("name", ["llama-cpp", "ktransformers", "moe-lightning", "hybrimoe"])
def test_baselines_need_a_cpu_and_no_ndp_unit(name):
    with refused("conflict"):
        choose_policy(name).start(replace(machine(), has_cpu=False), ESTIMATES)
    assert choose_policy(name).policy.engines == ("gpu", "cpu")


def test_the_gpu_has_no_call_in_a_layer_of_which_it_has_no_expert():
    """Of the 5 ns of shared experts, 2 are the call that routed experts share."""
    policy = choose_policy("hybrimoe").start(machine(), replace(ESTIMATES, call_ns=2.0))
    view = gated([1, 2, 0, 0])
    assert policy.times_ns(view, [], [0, 1]) == (5 - 2, 0, 40 + 50)
    assert policy.times_ns(view, [0], [1]) == (5 + 10, 100, 50)


def test_a_trace_has_two_halves():
    """One token of each of two layers: expert 0 in two steps, then expert 1."""
    ids = np.array([0, 0, 1, 1], np.int16).reshape(4, 1, 1, 1).repeat(2, axis=1)
    view = OfflineView(machine(layers=2), ESTIMATES, Routing(4, (0, 1), ids), 1, 0)
    loads, others = halves(view, 4)
    assert loads.tolist() == [[1, 0, 0, 0]] * 2
    assert [(row, counts.tolist()) for row, counts in others] == [(row, [0, 1, 0, 0]) for row in (0, 1, 0, 1)]


# ---- llama.cpp


def test_llama_cpp_has_the_last_layers_on_the_gpu_as_far_as_they_fit():
    of = machine(gpu_experts=11)
    assert started("llama-cpp", of)[1].resident.all(axis=1).tolist() == [False, False, True, True]
    assert started("llama-cpp", of)[1].resident.sum() == 8
    assert started("llama-cpp:gpu_share=0.25", of)[1].resident.sum(axis=1).tolist() == [0, 0, 0, 4]


def test_n_cpu_moe_counts_the_models_layers_dense_ones_among_them():
    _, placement = started("llama-cpp:n_cpu_moe=4", machine(gpu_experts=8, first=1))
    assert placement.resident.sum(axis=1).tolist() == [0, 0, 0, 4]
    with refused("too-large policy llama-cpp:n_cpu_moe"):
        started("llama-cpp:n_cpu_moe=2", machine(gpu_experts=8, first=1))


def test_llama_cpp_computes_a_layer_on_one_engine_and_nothing_overlaps():
    policy, _ = started("llama-cpp")
    found = policy.assign(gated([3, 0, 2, 1], tokens=3))
    assert (found.gpu, found.cpu, found.sequential) == ([], [0, 2, 3], True)
    assert found.estimated_ns == 5 + 60 + 50 + 40
    found = policy.assign(gated([3, 0, 2, 1], resident=range(4), tokens=3))
    assert (found.gpu, found.cpu, found.sequential) == ([0, 2, 3], [], True)
    assert found.estimated_ns == 5 + 30


@pytest.mark.parametrize(("settings", "at"), [("", 32), ("offload_tokens=7", 7), ("offload=false", None)])
def test_llama_cpp_copies_the_chosen_experts_of_large_batches(settings, at):
    policy, _ = started(f"llama-cpp:{settings}")
    sizes = range(1, 100)
    copied = [size for size in sizes if policy.assign(gated([size, 0, size, 0], tokens=size)).gpu]
    assert copied == ([] if at is None else list(range(at, 100)))
    if at:
        found = policy.assign(gated([at, 0, at, 0], tokens=at))
        assert (found.gpu, found.cpu, found.estimated_ns) == ([0, 2], [], 5 + 2 * (100 + 10))


# ---- KTransformers

SHARES = [[7, 1, 1, 1], [1, 1, 1, 7], [4, 3, 2, 1], [5, 3, 1, 1]]


@pytest.mark.parametrize(
    ("settings", "on_gpu"),
    [
        ("", [(0, 0), (1, 3), (2, 0), (2, 1), (3, 0), (3, 1)]),
        ("strategy=uniform", [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 0)]),
        ("strategy=front-loading", [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]),
        ("gpu_share=0.25,strategy=front-loading", [(0, 0), (0, 1), (0, 2), (0, 3)]),
        ("gpu_share=0.125", [(0, 0), (1, 3)]),
    ],
)
def test_ktransformers_places_experts_by_its_strategy(settings, on_gpu):
    _, placement = started(f"ktransformers:{settings}", machine(gpu_experts=6), SHARES)
    assert [tuple(place) for place in np.argwhere(placement.resident).tolist()] == on_gpu


def test_ktransformers_places_at_random_with_the_codes_seed():
    _, placement = started("ktransformers:strategy=random", machine(gpu_experts=6), SHARES)
    expected = sorted(np.random.default_rng(42).permutation(16)[:6].tolist())
    assert np.flatnonzero(placement.resident).tolist() == expected


def test_ktransformers_computes_on_both_at_once_and_fetches_nothing():
    policy, placement = started("ktransformers")
    found = policy.assign(gated([3, 0, 2, 1], resident=[2, 3], tokens=500))
    assert (found.gpu, found.cpu, found.sequential) == ([2, 3], [0], False)
    assert found.estimated_ns == 60
    assert answered(policy, done(policy, placement, 0, [[0, 1]], phase="prefill")) == []


def test_a_long_prefill_renews_what_ktransformers_has_on_the_gpu():
    policy, placement = started("ktransformers:update_tokens=3")
    placement.resident[:] = False
    placement.resident[0, [0, 3]] = True
    loads = [1, 5, 3, 0]
    found = policy.assign(gated(loads, resident=[0, 3], phase="prefill", tokens=3))
    assert (found.gpu, found.cpu) == ([0, 1, 2], [])
    short = policy.assign(gated(loads, resident=[0, 3], phase="prefill", tokens=2))
    assert (short.gpu, short.cpu) == ([0], [1, 2])
    ids = [[1, 2]] * 3 + [[0, 1]] + [[1, 1]]
    moved = answered(policy, done(policy, placement, 0, ids, copied=[1, 2], phase="prefill"))
    assert moved == [("evict", 0, 3), ("evict", 0, 0), ("keep", 0, 1), ("keep", 0, 2)]
    assert (
        answered(policy, done(policy, placement, 0, ids, copied=[1, 2])) == []
    )  # decode steps change nothing


# ---- MoE-Lightning


def test_moe_lightning_places_as_many_of_each_layer_and_searches_the_rest_before_the_run():
    policy, placement = started("moe-lightning:variant=placement", machine(gpu_experts=4), batch=10)
    assert placement.resident.nonzero()[1].tolist() == [0, 0, 0, 0]
    # Of 10 tokens with 2 choices, 8, 6, 4 and 2 are expected. Missing: 1, 2 and 3, on the CPU 90, 70 and 50.
    # None copied: 210; one: 100 over PCIe, 120 on the CPU; two: 200.
    for loads in ([8, 6, 4, 2], [2, 4, 6, 8], [0, 1, 10, 9]):
        found = policy.assign(gated(loads, resident=[0], tokens=10))
        assert set(found.gpu) == {expert for expert in (0, 1) if loads[expert]}
        assert set(found.cpu) == {expert for expert in (2, 3) if loads[expert]}
    # A prefill of 100 tokens is another search: 80, 60, 40, 20; on the CPU 630, 430, 230: two copied, 230.
    assert list(policy.assign(gated([80, 60, 40, 20], resident=[0], tokens=100)).gpu) == [0, 1, 2]


@given(st.lists(st.integers(1, 40), min_size=5, max_size=5), st.integers(1, 60), st.integers(0, 5))
def test_moe_lightnings_search_is_the_best_prefix(shares, tokens, slots):
    of = machine(layers=1, experts=5, gpu_experts=slots)
    policy, placement = started("moe-lightning:variant=placement", of, [shares])
    loads = np.array(shares) / sum(shares) * tokens * 2
    there = placement.resident[0]

    def expected(time_ns, load):
        return float(np.interp(load, TOKENS, time_ns))

    ends = []
    missing = sorted(np.flatnonzero(~there).tolist(), key=lambda one: -loads[one])
    for count in range(len(missing) + 1):
        on_gpu = [*np.flatnonzero(there).tolist(), *missing[:count]]
        gpu = 5 + sum(expected(ESTIMATES.gpu_ns, loads[one]) for one in on_gpu)
        link = sum(100 * min(1, loads[one]) for one in missing[:count])
        cpu = sum(expected(ESTIMATES.cpu_ns, loads[one]) for one in missing[count:])
        ends.append(max(gpu, link, cpu))
    found = policy._on_gpu(0, tokens)
    taken = int((found & ~there).sum())
    assert set(missing[:taken]) == set(np.flatnonzero(found & ~there).tolist())
    assert ends[taken] == pytest.approx(min(ends))


def test_streaming_holds_a_part_of_each_layer_beside_two_buffers_of_the_rest():
    # r of 4 experts in each of 4 layers, and 2 x (4 - r): 8, 10, 12 for r = 0, 1, 2.
    for room, held in ((7, 0), (8, 0), (9, 0), (10, 1), (11, 1), (12, 2), (16, 4)):
        _, placement = started("moe-lightning", machine(gpu_experts=room))
        assert placement.resident.sum(axis=1).tolist() == [held] * 4


def test_streaming_brings_all_of_the_next_layer_beside_this_one_and_leaves_the_cpu_alone():
    policy, placement = started("moe-lightning", machine(gpu_experts=10))
    assert policy.moments == ("gate",)
    moved = answered(policy, done(policy, placement, 0, [[0, 1]], free=6))
    assert moved == [("prefetch", 1, 1), ("prefetch", 1, 2), ("prefetch", 1, 3)]
    placement.resident[1, [1, 2]] = True
    view = done(policy, placement, 1, [[0, 1]], free=3, moving=[(1, 3)])
    assert answered(policy, view) == [("prefetch", 2, 1), ("prefetch", 2, 2), ("prefetch", 2, 3)]
    # Two layers on, those of the layer that is done have gone.
    placement.resident[2, [1, 2, 3]] = True
    view = done(policy, placement, 2, [[0, 1]], free=0, moving=[(1, 3)])
    assert answered(policy, view) == [
        ("evict", 1, 1), ("evict", 1, 2), ("prefetch", 3, 1), ("prefetch", 3, 2),
    ]  # fmt: skip
    found = policy.assign(gated([5, 1, 2, 3], resident=[0, 1], arriving=[3], layer=1))
    assert (list(found.gpu), list(found.cpu)) == ([0, 1, 3, 2], [])
    # The layer waits for all of its weights, also for those that no token has chosen.
    assert policy.assign(gated([5, 1, 2, 0], resident=[0, 1], arriving=[2, 3], layer=1)).awaits == [2, 3]


def test_what_streaming_has_brought_for_the_layer_that_comes_stays():
    policy, placement = started("moe-lightning", machine(gpu_experts=10))
    placement.resident[2, 3] = True
    moved = answered(policy, done(policy, placement, 1, [[0, 1]], free=5))
    assert moved == [("prefetch", 2, 1), ("prefetch", 2, 2)]


# ---- HybriMoE


def by_hand(gpu, cpu, missing, copy):
    """The schedule from both ends, expert by expert, with whole lists of what each engine has."""
    left = list(range(len(gpu)))
    on_gpu: list[int] = []
    on_cpu: list[int] = []

    def ends(taken):
        now, copied = 0.0, 0.0
        for expert in taken:
            if missing[expert]:
                copied += copy
                now = max(now, copied)
            now += gpu[expert]
        return now

    while left:
        next_gpu = ends([*on_gpu, left[0]])
        if next_gpu <= sum(cpu[one] for one in on_cpu) + cpu[left[-1]]:
            on_gpu.append(left.pop(0))
        else:
            on_cpu.append(left.pop())
    return len(on_gpu)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 30), st.booleans()), max_size=9), st.integers(0, 20)
)
def test_gpu_and_cpu_take_experts_from_both_ends(rows, copy):
    rows = sorted(rows, key=lambda row: row[2])
    gpu, cpu, missing = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    arrays = np.array(gpu, float), np.array(cpu, float), np.array(missing, np.bool_)
    assert _both_ends(*arrays, float(copy), 0.0, 0.0) == by_hand(gpu, cpu, missing, copy)


def test_hybrimoe_sorts_what_is_there_before_what_is_missing():
    policy, _ = started("hybrimoe")
    # Order 3, 2 (there), 1, 0. GPU begins at 5: 15 <= 40 of expert 0: 3. 25 <= 40: 2. Then expert 1 would end
    # at 110, expert 0 on the CPU at 40, and expert 1 at 40 + 60: CPU.
    found = policy.assign(gated([1, 3, 4, 9], resident=[2, 3], tokens=9))
    assert (list(found.gpu), list(found.cpu)) == ([3, 2], [0, 1])
    assert found.estimated_ns == 100
    # With 30 tokens expert 1 would take 330 on the CPU.
    found = policy.assign(gated([1, 30, 4, 9], resident=[2, 3], tokens=30))
    assert (list(found.gpu), list(found.cpu)) == ([3, 2, 1], [0])


@pytest.mark.parametrize(("settings", "on_gpu"), [("", [0, 4, 3]), (",threshold=5", [0, 4, 3, 2])])
def test_with_a_threshold_missing_experts_with_many_tokens_go_to_the_gpu(settings, on_gpu):
    policy, _ = started(f"hybrimoe:schedule=threshold{settings}", machine(experts=5), [[5, 4, 3, 2, 1]] * 4)
    # 7 tokens take 100 on the CPU, no more than a copy does; 8 take 110.
    found = policy.assign(gated([1, 2, 7, 8, 9], resident=[0], tokens=9))
    assert (list(found.gpu), sorted(found.cpu)) == (on_gpu, sorted({0, 1, 2, 3, 4} - set(on_gpu)))


def test_the_codes_constants_count_a_token_as_twice_an_expert_on_the_gpu():
    policy, _ = started("hybrimoe:constants=code")
    # All missing. GPU: 0.4179 + 0.5 = 0.918 <= 0.79 + 1: expert 1; 1.418 <= 1.79: expert 0.
    # Then 1.918 > 1.79 of expert 3 on the CPU; 1.918 <= 2.79: expert 2.
    found = policy.assign(gated([5, 9, 3, 1], tokens=9))
    assert (list(found.gpu), list(found.cpu)) == ([1, 0, 2], [3])


def test_hybrimoe_computes_a_prefill_on_the_gpu_or_schedules_it():
    loads = [1, 1, 1, 1]
    of_code = started("hybrimoe")[0].assign(gated(loads, phase="prefill"))
    assert (len(of_code.gpu), len(of_code.cpu)) == (4, 0)
    scheduled = started("hybrimoe:prefill=schedule")[0].assign(gated(loads, phase="prefill"))
    assert (len(scheduled.gpu), len(scheduled.cpu)) == (1, 3)  # 115 against 120; 120 <= 115 fails before


def test_scores_are_halved_and_get_half_of_the_first_tokens_weights():
    policy, placement = started("hybrimoe", machine(gpu_experts=4))
    answered(policy, done(policy, placement, 0, [[2, 1], [0, 3]], scores=[[0.8, 0.2], [0.9, 0.1]]))
    assert policy.scores[0].tolist() == pytest.approx([0, 0.1, 0.4, 0])
    answered(policy, done(policy, placement, 0, [[1, 0]], scores=[[0.6, 0.4]]))
    assert policy.scores[0].tolist() == pytest.approx([0.2, 0.35, 0.2, 0])
    answered(policy, done(policy, placement, 1, [[1, 0]]))  # without weights, each choice is worth as much
    assert policy.scores[1].tolist() == pytest.approx([0.25, 0.25, 0, 0])
    policy, placement = started("hybrimoe:rows=all", machine(gpu_experts=4))
    answered(policy, done(policy, placement, 0, [[2, 1], [0, 2]], scores=[[0.8, 0.2], [0.9, 0.1]]))
    assert policy.scores[0].tolist() == pytest.approx([0.225, 0.05, 0.225, 0])


def test_copied_experts_stay_in_place_of_the_lowest_scores():
    policy, placement = started("hybrimoe", machine(gpu_experts=8))
    assert placement.resident[0].nonzero()[0].tolist() == [0, 1]
    policy.scores[0] = [0.8, 0.4, 0.0, 0.0]
    view = done(policy, placement, 0, [[2, 3]], scores=[[0.9, 0.1]], copied=[2])
    assert answered(policy, view) == [("evict", 0, 1), ("keep", 0, 2)]
    # As many as there are slots: of three, the two with the highest scores.
    view = done(policy, placement, 0, [[3, 2]], copied=[1, 2, 3])
    placement.resident[0] = [True, False, False, False]
    moved = answered(policy, replace(view, gpu_free=1))
    assert [kind for kind, *_ in moved] == ["evict", "keep", "keep"]
    assert moved[0] == ("evict", 0, 0)


def test_a_prefill_preloads_two_layers_ahead_in_place_of_the_layer_that_is_done():
    # 2 of 4 experts of each layer are cached; the buffer has room for 2 layers' other 2.
    policy, placement = started("hybrimoe:cache_share=0.5", machine(gpu_experts=12), prompt=7)
    assert placement.resident.sum(axis=1).tolist() == [2] * 4

    def after(layer, free, moment="end"):
        view = done(policy, placement, layer, [[0, 1], [2, 3]], free, phase="prefill")
        return answered(policy, replace(view, moment=moment))

    assert after(0, 4, "gate") == []
    assert after(0, 4) == [("prefetch", 2, 2), ("prefetch", 2, 3)]
    assert after(1, 2) == [("prefetch", 3, 2), ("prefetch", 3, 3)]
    placement.resident[2:] = True
    assert after(2, 0) == [("evict", 2, 2), ("evict", 2, 3)]
    # The last layer's go when it is done.
    assert after(3, 2) == [("evict", 3, 2), ("evict", 3, 3)]


def test_what_a_prefill_preloaded_goes_once_and_makes_room_for_a_copy():
    policy, placement = started("hybrimoe:cache_share=0.5", machine(gpu_experts=12), prompt=7)
    policy.preloaded = [(0, 2)]  # arrived when its layer was done
    placement.resident[0] = [False, True, True, False]
    policy.scores[0] = [0.0, 0.8, 0.0, 0.8]
    view = done(policy, placement, 0, [[1, 3]], copied=[3])
    assert answered(policy, view) == [("evict", 0, 2), ("keep", 0, 3)]


def test_a_prefills_buffer_takes_no_more_than_half_of_the_memory():
    for prompt, held in ((0, [2, 2, 1, 1]), (7, [1, 1, 1, 0])):
        _, placement = started("hybrimoe", machine(gpu_experts=6), prompt=prompt)
        assert placement.resident.sum(axis=1).tolist() == held


@pytest.mark.parametrize("free", [0, 4])  # no more than the slots of the layer
def test_hybrimoe_fetches_the_highest_scores_of_the_next_layer_where_asked(free):
    for size, expected in ((0, []), (1, []), (2, [("evict", 1, 1), ("prefetch", 1, 3)])):
        policy, placement = started(f"hybrimoe:prefetch_size={size}", machine(gpu_experts=8))
        policy.scores[1] = [0.5, 0.1, 0.2, 0.4]
        view = done(policy, placement, 0, [[0, 1]], free)
        assert answered(policy, replace(view, moment="gate")) == expected
        assert answered(policy, view) == []


def test_no_layer_ever_holds_more_than_its_slots():
    of = machine(gpu_experts=6)
    policy, placement = started("hybrimoe:prefetch_size=4", of)
    random = np.random.default_rng(2)
    for step, row in itertools.product(range(20), range(4)):
        ids = np.array([random.permutation(4)[:2] for _ in range(3)])
        copied = [one for one in np.unique(ids).tolist() if not placement.resident[row, one]]
        free = 6 - int(placement.resident.sum())
        moment = random.choice(["gate", "end"])
        view = done(
            policy,
            Placement(*(np.array(a) for a in (placement.dimm, placement.shards, placement.resident))),
            row,
            ids,
            free,
            copied if moment == "end" else [],
        )
        view = replace(view, moment=moment)
        for kind, layer, expert in answered(policy, view):
            placement.resident[layer, expert] = kind != "evict"
        assert (placement.resident.sum(axis=1) <= policy.slots).all(), step


# ---- the base of policies that copy experts to the GPU


def test_a_victim_leaves_for_what_is_worth_more_and_ends_the_replacement_otherwise():
    policy, _ = started("ktransformers")
    worth = np.array([[3.0, 1.0, 2.0, 2.0]])
    wanted, victims = [(0, 0), (0, 2), (0, 0)], [(0, 1), (0, 3), (0, 1)]
    found = policy.replacing("prefetch", wanted, victims, 0, worth)
    assert [(one.kind, one.expert) for one in found] == [("evict", 1), ("prefetch", 0)]
    assert [one.estimated_ns for one in found] == [0.0, 100.0]
    assert len(policy.replacing("keep", wanted, victims, 0)) == 6
    assert [one.kind for one in policy.replacing("keep", wanted, (), 2)] == ["keep", "keep"]


def test_a_policy_that_computes_on_the_gpu_alone_needs_nothing_else():
    class OnGpu(Offloading[PolicyParameters]):
        """A policy."""

        engines = ("gpu",)

    class Beside(OnGpu):
        """Another."""

        engines = ("gpu", "ndp")

    class Stated(OnGpu):
        """A third."""

        engines = ("gpu", "cpu")
        needs = ()

    assert (OnGpu.needs, Beside.needs, Stated.needs, Offloading.needs) == ((), ("ndp",), (), ("cpu",))
    assert {name: policies()[name].needs for name in ("hobbit", "cxl", "fiddler")} == {
        "hobbit": (),
        "cxl": ("ndp",),
        "fiddler": ("cpu",),
    }
