"""DALI: its assignments against brute force, its algorithms by hand, its prefetching against plain sums."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.policy_machines import estimates, flags
from builders.policy_machines import machine as plain_machine
from mistakes import refused
from ndpsim.policies import choose_policy, views
from ndpsim.policies.offloading import cache_slots
from ndpsim.policies.published.dali import (
    Dali,
    DaliParameters,
    TwoEngines,
    beam,
    greedy,
    load_residual,
    optimal,
    times_of,
)
from ndpsim.workload.routing import Routing

TOKENS = np.arange(65)

# A copy takes 100 ns, an expert on the GPU next to nothing, on the CPU 30 ns and 10 a token.
ESTIMATES = estimates(
    gpu_ns=np.where(TOKENS > 0, 4.0 + TOKENS, 0.0),
    cpu_ns=np.where(TOKENS > 0, 30.0 + 10 * TOKENS, 0.0),
    window_ns=50.0,
)


# ---- assignments (equations 3 to 9)


def two(gpu, cpu, missing=None, room=None):
    """Experts with these times; all missing, and room for all, where nothing else is said."""
    missing = np.ones(len(gpu), np.bool_) if missing is None else np.array(missing, np.bool_)
    return TwoEngines(np.array(gpu, float), np.array(cpu, float), missing, len(gpu) if room is None else room)


def by_brute_force(experts: TwoEngines) -> float:
    """The least makespan over all assignments that equation 9 allows."""
    best = np.inf
    for chosen in itertools.product([False, True], repeat=len(experts.gpu_ns)):
        on_gpu = np.array(chosen, np.bool_)
        if (on_gpu & experts.missing).sum() <= experts.room:
            gpu = sum(time for time, there in zip(experts.gpu_ns, chosen, strict=True) if there)
            cpu = sum(time for time, there in zip(experts.cpu_ns, chosen, strict=True) if not there)
            best = min(best, max(gpu, cpu))
    return best


def test_times_are_those_of_equations_4_to_6():
    loads = np.array([0, 3, 3, 3, 64, 1])
    there = np.array([True, True, False, True, False, False])
    arrives = np.array([0.0, 0.0, 0.0, 25.0, 0.0, 0.0])
    slow_gpu = np.where(TOKENS == 64, 300.0, ESTIMATES.gpu_ns)
    experts = times_of(loads, there, arrives, views.Estimates(**{**vars(ESTIMATES), "gpu_ns": slow_gpu}))
    # No tokens; resident: computing alone; a copy; 25 ns of a copy are left; computing longer than a copy.
    assert experts.gpu_ns.tolist() == [0, 7, 100, 25, 300, 100]
    # Computing, and reading the weights where that takes longer: 40 of one token either way.
    assert experts.cpu_ns.tolist() == [0, 60, 60, 60, 670, 40]
    assert experts.missing.tolist() == [False, False, True, False, True, True]
    assert experts.room == 3


def test_greedy_is_algorithm_1_step_by_step():
    # Differences 60, 50, 40, 10, 0, and one without tokens. In this order:
    # 2: GPU 40 <= CPU 100: GPU.  0: GPU 40 + 100 > 50: CPU.  4: GPU 40 + 10 <= 50 + 50: GPU (50 | 50).
    # 3: GPU 50 + 20 > 50 + 10: CPU (50 | 60).  1: GPU 50 + 30 <= 60 + 30: GPU (80 | 60).
    experts = two([100, 30, 40, 20, 10, 0], [50, 30, 100, 10, 50, 0])
    assert greedy(experts).tolist() == [False, True, True, False, True, False]
    assert experts.makespan_ns(greedy(experts)) == 80


def test_equal_sums_go_to_the_gpu_and_equal_differences_to_the_first_expert():
    assert greedy(two([10], [10])).tolist() == [True]
    # Both differ by 10. The first takes the GPU (10 <= 20), then 10 + 10 <= 20: the second, too.
    assert greedy(two([10, 10], [20, 20])).tolist() == [True, True]
    assert greedy(two([10, 11], [20, 21])).tolist() == [True, True]
    # Three like experts: 10 | 0, 20 <= 15 fails: CPU, 20 <= 30: GPU.
    assert greedy(two([10, 10, 10], [15, 15, 15])).tolist() == [True, False, True]


def test_equation_9_sends_what_has_no_room_to_the_cpu():
    experts = two([1, 1, 1], [50, 60, 70], missing=[True, True, False], room=1)
    assert greedy(experts).tolist() == [False, True, True]
    assert beam(experts).tolist() == [False, True, True]
    assert optimal(experts, scipy.optimize).tolist() == [False, True, True]


def test_beam_search_finds_what_greedy_misses():
    # Greedy: 12 and 11 to the GPU (12 <= 13, 23 > 12: no), and so on; the beam holds two ways open.
    found = []
    random = np.random.default_rng(3)
    for _ in range(50):
        gpu = random.integers(1, 30, 6).astype(float)
        cpu = random.integers(1, 30, 6).astype(float)
        experts = two(gpu, cpu)
        found.append(experts.makespan_ns(greedy(experts)) - experts.makespan_ns(beam(experts)))
    assert max(found) > 0
    assert np.mean(found) > 0


times = st.integers(0, 40).map(float)


@st.composite
def layers(draw, most=12):
    count = draw(st.integers(1, most))
    rows = draw(st.lists(st.tuples(times, times, st.booleans()), min_size=count, max_size=count))
    active = [(gpu, cpu, there) if gpu and cpu else (0.0, 0.0, there) for gpu, cpu, there in rows]
    gpu, cpu, missing = zip(*active, strict=True)
    return two(gpu, cpu, missing, draw(st.integers(0, count)))


@given(layers())
@settings(max_examples=60)
def test_optimal_equals_brute_force_and_nothing_beats_it(experts):
    best = by_brute_force(experts)
    found = optimal(experts, scipy.optimize)
    assert experts.makespan_ns(found) == pytest.approx(best, rel=1e-9)
    for other in (greedy(experts), beam(experts)):
        assert (other & experts.missing).sum() <= experts.room
        assert experts.makespan_ns(other) >= best
    assert (found & experts.missing).sum() <= experts.room


@given(layers(most=6))
def test_a_beam_as_wide_as_all_assignments_is_optimal(experts):
    assert experts.makespan_ns(beam(experts, 64)) == by_brute_force(experts)


def test_a_layer_of_128_experts_is_solved_within_its_gap():
    random = np.random.default_rng(1)
    experts = two(random.uniform(5, 10, 128), random.uniform(2, 30, 128))
    makespan = experts.makespan_ns(optimal(experts, scipy.optimize, gap=1e-3, nodes=1000))
    shares = scipy.optimize.linprog(
        np.append(np.zeros(128), 1),
        np.array([[*experts.gpu_ns, -1], [*-experts.cpu_ns, -1]]),
        [0, -experts.cpu_ns.sum()],
        bounds=[(0, 1)] * 128 + [(0, None)],
    )
    assert shares.fun <= makespan <= shares.fun * 1.002


# ---- the policy by hand


def machine(experts=8, layers=3, gpu_experts=6, hidden=4, family="mixtral") -> views.Machine:
    return plain_machine(experts, layers, gpu_experts, dimms=0, hidden=hidden, family=family)


def placed(of: views.Machine, **parameters) -> tuple[Dali, views.Placement]:
    """The policy under way with its first placement; expert e has e tokens offline."""
    policy = Dali(of, ESTIMATES, DaliParameters(**parameters))
    experts, layers = of.model.routed_experts, len(of.layers)
    ids = np.repeat(np.arange(experts, dtype=np.int16), np.arange(experts))
    trace = Routing(experts, of.layers, np.tile(ids[None, None, :, None], (1, layers, 1, 1)))
    return policy, policy.place(views.OfflineView(of, ESTIMATES, trace, trace.batch))


def routed(loads, resident=()) -> views.LayerView:
    """A decode layer with these tokens by expert."""
    lies = views.LayerPlacement(np.full(8, -1, np.int16), np.ones(8, np.int16), flags(8, resident))
    return views.LayerView("decode", 0, 1, np.array(loads), sum(loads), lies, np.zeros(8, np.bool_))


def shown(policy: Dali, placement: views.Placement, layer: int, loads, step=0, free=0, moving=(), **more):
    """What the policy is shown of a decode layer; `moment="gate"`: when it is routed, not when it is done."""
    on_the_way = np.zeros_like(placement.resident)
    for place in moving:
        on_the_way[place] = True
    layers = policy.machine.layers
    following = layers[(layer + 1) % len(layers)]
    return views.BackgroundView(
        "decode", step, layer, following, np.array(loads), placement, on_the_way, free, **more
    )


def apply(placement: views.Placement, migrations) -> list[tuple[str, int, int]]:
    """Does all of them at once."""
    for one in migrations:
        placement.resident[one.layer, one.expert] = one.kind != "evict"
    return [(one.kind, one.layer, one.expert) for one in migrations]


def test_memory_decides_how_many_experts_a_layer_caches():
    assert cache_slots(machine(gpu_experts=8), 1.0) == [3, 3, 2]
    assert cache_slots(machine(gpu_experts=8), 1.0, 1) == [3, 2, 2]
    assert cache_slots(machine(gpu_experts=24), 0.5, 1) == [4, 4, 4]
    assert cache_slots(machine(gpu_experts=1), 0.5, 2) == [0, 0, 0]
    policy, placement = placed(machine(gpu_experts=8))  # two places: for the prefetched expert that
    assert placement.resident.sum(axis=1).tolist() == [2, 2, 2]  # is computed, and for the one that comes
    assert policy.free == 2


def test_the_first_cache_is_random_by_its_seed_or_has_the_hottest():
    several = [placed(machine(gpu_experts=10), seed=seed)[1].resident.tobytes() for seed in (1, 1, 2)]
    assert several[0] == several[1] != several[2]
    _, placement = placed(machine(gpu_experts=8), initial="hottest")
    assert placement.resident.nonzero()[1].tolist() == [6, 7] * 3


def test_mixtral_replaces_and_prefetches_one_expert_and_models_of_many_experts_more():
    few, many = (Dali(machine(experts=count), ESTIMATES, DaliParameters()) for count in (8, 64))
    assert (few.u, few.prefetch, many.u, many.prefetch) == (1, 1, 8, 4)


@pytest.mark.parametrize(("family", "accuracy"), [("qwen3_moe", 0.933), ("deepseek_v2", 0.795)])
def test_predictions_are_as_often_right_as_table_5_says(family, accuracy):
    policy = Dali(machine(family=family), ESTIMATES, DaliParameters())
    assert policy.stated_predictor is not None
    assert policy.stated_predictor.accuracy == accuracy
    assert Dali(machine(), ESTIMATES, DaliParameters(prefetch=0)).stated_predictor is None


def test_a_layer_is_assigned_by_algorithm_1_and_charged_as_asked():
    policy, _ = placed(machine(gpu_experts=7), initial="hottest", charge=250.0)
    found = policy.assign(routed([0, 9, 1, 1, 20, 0, 5, 5], resident=[6, 7]))
    # GPU: 100 of each copy, 9 of experts 6 and 7. CPU: 120, 40, 40, 230, 80, 80 of 1, 2, 3, 4, 6, 7.
    # By difference: 4 (130) GPU 100; 6 (71) CPU 80; 7 (71) GPU 109; 2 (60) CPU 120; 3 (60) CPU 160; 1 (20)
    # GPU 209 against 280.
    assert list(found.gpu) == [7, 4, 1]
    assert list(found.cpu) == [6, 2, 3]
    assert (found.estimated_ns, found.planning) == (209, 250.0)
    assert policy.spare_ns == 9  # beside the copies of 4 and 1


def test_the_gpu_takes_no_more_missing_experts_than_its_memory_has_room_for():
    counts, view = [], routed([64] * 8)
    for memory in ("held", "streamed"):  # streamed: 7 copies of 100 ns against one of 670 on the CPU
        policy, _ = placed(machine(gpu_experts=0), gpu_memory=memory)
        counts.append(len(policy.assign(view).gpu))
    assert counts == [2, 7]  # held: in the 2 buffers


def test_room_of_a_replaced_expert_is_that_of_the_expert_that_replaces_it():
    policy, placement = placed(machine(gpu_experts=6), gpu_memory="held", prefetch=0, w=1, u=1)
    assert len(policy.background(shown(policy, placement, 0, [1] * 8))) == 2
    assert len(policy.assign(routed([64] * 8)).gpu) == 2  # the buffers


# ---- algorithm 2


def test_the_cache_follows_the_tokens_of_a_window():
    policy, placement = placed(machine(gpu_experts=6), initial="hottest", prefetch=0, w=2)
    assert placement.resident[0].nonzero()[0].tolist() == [6, 7]
    steps = [[9, 0, 0, 4, 0, 0, 3, 1], [0, 0, 0, 8, 0, 0, 0, 1]]
    assert policy.background(shown(policy, placement, 0, steps[0])) == []
    # Sums: 9 and 12 of experts 0 and 3 outside, 3 and 2 of 6 and 7 inside.
    moved = apply(placement, policy.background(shown(policy, placement, 0, steps[1], 1)))
    assert moved == [("evict", 0, 7), ("fetch", 0, 3)]
    # Scores begin at zero again: expert 3 with 12 tokens before has none now.
    policy.background(shown(policy, placement, 0, [0, 0, 5, 0, 0, 0, 1, 0], 2))
    moved = apply(placement, policy.background(shown(policy, placement, 0, [0] * 8, 3)))
    assert moved == [("evict", 0, 3), ("fetch", 0, 2)]
    assert policy.background(shown(policy, placement, 1, steps[0])) == []  # layers count for themselves


def test_line_11_as_printed_gives_up_the_experts_with_most_tokens():
    policy, placement = placed(machine(gpu_experts=6), initial="hottest", prefetch=0, w=1, evict="topk")
    moved = policy.background(shown(policy, placement, 0, [9, 0, 0, 4, 0, 0, 3, 1]))
    assert apply(placement, moved) == [("evict", 0, 6), ("fetch", 0, 0)]


@pytest.mark.parametrize(("first", "fires"), [("skip", [2, 5, 8]), ("fire", [0, 3, 6, 9])])
def test_line_9_fires_after_each_window_or_at_the_first_step_too(first, fires):
    policy, placement = placed(machine(gpu_experts=6), prefetch=0, w=3, first=first)
    found = [
        step
        for step in range(10)
        if apply(placement, policy.background(shown(policy, placement, 0, range(8), step)))
    ]
    assert found == fires


def test_swaps_that_gain_nothing_can_be_left_out():
    for swap, expected in (("always", 2), ("better", 1)):
        policy, placement = placed(machine(gpu_experts=6), initial="hottest", prefetch=0, w=1, u=2, swap=swap)
        # Outside 9 and 3 tokens, inside 2 and 3: of equal scores neither is better.
        moved = policy.background(shown(policy, placement, 0, [9, 3, 0, 0, 0, 0, 3, 2]))
        assert [one.kind for one in moved] == ["evict"] * expected + ["fetch"] * expected


def test_as_many_experts_are_replaced_as_u_says_and_no_more_than_there_are():
    policy, placement = placed(machine(gpu_experts=9), initial="hottest", prefetch=0, w=1, u=2)
    moved = apply(placement, policy.background(shown(policy, placement, 0, [8, 7, 6, 0, 0, 1, 2, 3])))
    assert moved == [("evict", 0, 5), ("evict", 0, 6), ("fetch", 0, 0), ("fetch", 0, 1)]
    policy, placement = placed(machine(gpu_experts=9), initial="hottest", prefetch=0, w=1, u=8)
    kinds = [one.kind for one in policy.background(shown(policy, placement, 0, [8, 7, 6, 0, 0, 1, 2, 3]))]
    assert kinds == ["evict"] * 3 + ["fetch"] * 3


# ---- prefetching (section 4.2)


def test_predicted_experts_that_are_not_there_are_prefetched_at_the_gate_and_given_up_after_their_layer():
    policy, placement = placed(machine(gpu_experts=11), initial="hottest", prefetch=2, replace=False)
    assert placement.resident.sum(axis=1).tolist() == [3, 2, 2]
    assert policy.moments == ("gate", "end")
    gate = dict(moment="gate")
    view = shown(policy, placement, 0, [1] * 8, free=4, predicted=(7, 3), **gate)
    assert apply(placement, policy.background(view)) == [("prefetch", 1, 3)]  # 7 is cached
    assert apply(placement, policy.background(shown(policy, placement, 0, [1] * 8, free=3))) == []
    # Expert 3 stays while its layer computes it.
    view = shown(policy, placement, 1, [1] * 8, free=3, predicted=(2, 4), **gate)
    assert apply(placement, policy.background(view)) == [("prefetch", 2, 2), ("prefetch", 2, 4)]
    # Behind the last layer nothing is prefetched.
    view = shown(policy, placement, 2, [1] * 8, free=1, predicted=(0, 1), **gate)
    assert apply(placement, policy.background(view)) == [("evict", 1, 3)]
    view = shown(policy, placement, 0, [1] * 8, free=2, **gate)
    assert apply(placement, policy.background(view)) == [("evict", 2, 2), ("evict", 2, 4)]


def test_a_prefetched_expert_that_the_cache_takes_stays():
    policy, placement = placed(machine(gpu_experts=8), initial="hottest", prefetch=1, w=1)
    view = shown(policy, placement, 0, [1] * 8, free=2, predicted=(2,), moment="gate")
    apply(placement, [one for one in policy.background(view) if one.layer == 1])
    found = policy.background(shown(policy, placement, 1, [0, 0, 9, 0, 0, 0, 1, 2], free=0))
    assert apply(placement, found) == [("evict", 1, 6)]
    assert placement.resident[1].nonzero()[0].tolist() == [2, 7]


def test_an_expert_on_its_way_costs_what_is_left_of_its_copy():
    policy, placement = placed(machine(gpu_experts=8, layers=2), initial="hottest", prefetch=2, replace=False)
    view = shown(policy, placement, 0, [1] * 8, free=4, predicted=(0, 1), moment="gate")
    policy.background(view)
    # Copies of 100 ns one after the other, of which 50 fit between the layers.
    assert policy.left_ns == {(1, 0): 50, (1, 1): 100}
    # Beside a layer that is believed to take 120 ns, without copies of its own, 170 fit.
    policy.spare_ns = 120
    policy.background(view)
    assert policy.left_ns == {(1, 0): 0, (1, 1): 30}
    # A copy that is under way goes first.
    policy.background(replace(view, moving=np.arange(16).reshape(2, 8) == 5))
    assert policy.left_ns == {(1, 0): 30, (1, 1): 100}


def test_predictions_are_counted_when_their_layer_comes():
    policy, placement = placed(machine(gpu_experts=9), prefetch=2, replace=False)
    assert policy.prediction() is None
    policy.background(shown(policy, placement, 0, [1] * 8, free=2, predicted=(0, 3), moment="gate"))
    policy.assign(routed([5, 6, 0, 2, 0, 0, 0, 0]))
    found = policy.prediction()
    assert found is not None
    assert found["accuracy"] == 0.5
    assert found["counted"]["experts"] == 2


# ---- residual-based predictions (equations 10 and 11)


@pytest.fixture
def states(tmp_path):
    """Hidden states of 2 steps, 3 layers and 5 tokens, the gates, and a calibration set."""
    random = np.random.default_rng(5)
    arrays = {
        "hidden": random.normal(size=(2, 3, 5, 4)).astype(np.float32),
        "gates": random.normal(size=(3, 8, 4)).astype(np.float32),
        "calibration": random.normal(size=(3, 50, 4)).astype(np.float32),
    }
    file = tmp_path / "states.npz"
    np.savez(file, **arrays)
    return file, arrays


def test_next_loads_follow_from_equations_10_and_11(states):
    file, arrays = states
    found = load_residual(str(file), machine())
    for step, row in itertools.product(range(2), range(2)):
        expected = [0] * 8
        for token in range(5):
            moved = [
                sum(float(after[d]) - float(before[d]) for before, after in zip(*pair, strict=True)) / 50
                for pair in [(arrays["calibration"][row], arrays["calibration"][row + 1])]
                for d in range(4)
            ]
            state = [float(arrays["hidden"][step, row, token, d]) + moved[d] for d in range(4)]
            logits = [sum(state[d] * float(w[d]) for d in range(4)) for w in arrays["gates"][row + 1]]
            for expert in sorted(range(8), key=lambda one: -logits[one])[:2]:
                expected[expert] += 1
        assert found.loads(step, row).tolist() == expected


def test_residuals_can_be_given_and_change_what_is_expected(states, tmp_path):
    _, arrays = states
    residuals = np.zeros((3, 4))
    residuals[0] = 1000 * arrays["gates"][1, 6]
    np.savez(tmp_path / "r.npz", hidden=arrays["hidden"], gates=arrays["gates"], residuals=residuals)
    found = load_residual(str(tmp_path / "r.npz"), machine())
    order = np.argsort(-arrays["gates"][1] @ arrays["gates"][1, 6])
    assert set(np.flatnonzero(found.loads(0, 0))) == set(order[:2].tolist())


def test_predictions_use_hidden_states_of_the_layer_that_is_done_alone(states, tmp_path):
    file, arrays = states
    changed = arrays["hidden"].copy()
    changed[0, 1:] = 9
    changed[1] = -9
    np.savez(tmp_path / "other.npz", **{**arrays, "hidden": changed})
    one, other = (load_residual(str(path), machine()) for path in (file, tmp_path / "other.npz"))
    assert one.loads(0, 0).tolist() == other.loads(0, 0).tolist()
    assert one.loads(0, 1).tolist() != other.loads(0, 1).tolist()


def test_experts_expected_from_hidden_states_are_prefetched(states):
    file, _ = states
    policy = Dali(machine(gpu_experts=9), ESTIMATES, DaliParameters(residual=str(file), prefetch=2))
    assert policy.stated_predictor is None
    placement = views.Placement.striped(3, 8)
    moved = policy.background(shown(policy, placement, 0, [1] * 8, step=1, free=2, moment="gate"))
    loads = policy.residual.loads(1, 0)
    assert {one.expert for one in moved} == set(np.argsort(-loads, kind="stable")[:2].tolist())
    view = shown(policy, placement, 0, [1] * 8, step=2, free=2, moment="gate")
    with refused("conflict policy dali"):
        policy.background(view)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"gates": np.zeros((3, 7, 4))}, "form wrong.npz policy dali:residual: gates"),
        ({"gates": np.zeros((3, 8, 5))}, "form wrong.npz policy dali:residual: gates"),
        ({"hidden": np.zeros((2, 2, 5, 4))}, "form wrong.npz policy dali:residual: hidden"),
        ({"hidden": np.zeros((2, 3, 5))}, "form wrong.npz policy dali:residual: hidden"),
        ({"hidden": np.zeros((0, 3, 5, 4))}, "form wrong.npz policy dali:residual: hidden"),
        ({"calibration": np.zeros((4, 9, 4))}, "form wrong.npz policy dali:residual: calibration"),
        ({"residuals": np.zeros((2, 4))}, "form wrong.npz policy dali:residual: residuals"),
        ({"residuals": np.full((3, 4), np.nan)}, "type wrong.npz policy dali:residual: residuals"),
        ({"gates": np.zeros((3, 8, 4), int)}, "type wrong.npz policy dali:residual: gates"),
        ({"gates": None}, "missing wrong.npz policy dali:residual"),
        ({"calibration": None}, "missing wrong.npz policy dali:residual"),
    ],
)
def test_a_file_that_does_not_fit_the_run_is_one_line(states, tmp_path, wrong, words):
    _, arrays = states
    given = {name: array for name, array in {**arrays, **wrong}.items() if array is not None}
    np.savez(tmp_path / "wrong.npz", **given)
    with refused(words):
        load_residual(str(tmp_path / "wrong.npz"), machine())


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 cut off", b"text"])
def test_a_file_that_is_no_npz_is_one_line(tmp_path, content):
    file = tmp_path / "states.npz"
    if content is not None:
        file.write_bytes(content)
    with refused("unreadable states.npz policy dali:residual"):
        load_residual(str(file), machine())


def test_a_run_of_another_batch_than_the_files_is_refused(states):
    file, _ = states
    with refused("conflict states.npz policy dali:residual: hidden"):
        placed(machine(gpu_experts=6), residual=str(file))


# ---- what is refused


def test_without_scipy_only_the_optimal_assignment_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    Dali(machine(), ESTIMATES, DaliParameters())
    with refused("not-installed policy dali"):
        Dali(machine(), ESTIMATES, DaliParameters(assignment="optimal"))


@pytest.mark.parametrize(
    ("value", "code"), [("-1", "invalid"), ("often", "range"), ("nan", "range"), ("inf", "range")]
)
def test_a_charge_is_a_time_or_how_it_is_found(value, code):
    with refused(f"{code} policy dali:charge"):
        choose_policy(f"dali:charge={value}")


def test_a_machine_without_a_cpu_is_refused():
    with refused("conflict"):
        choose_policy("dali").start(replace(machine(), has_cpu=False), ESTIMATES)
