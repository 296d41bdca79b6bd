"""DALI: its assignments against brute force, its algorithms by hand, its prefetching against plain sums."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.policies.cpu_gpu import TwoEngines, beam, greedy, optimal, times_of
from ndpsim.policies.interface import Estimates

TOKENS = np.arange(65)

# A copy takes 100 ns, an expert on the GPU next to nothing, on the CPU 30 ns and 10 a token.
ESTIMATES = Estimates(
    gpu_ns=np.where(TOKENS > 0, 4.0 + TOKENS, 0.0),
    cpu_ns=np.where(TOKENS > 0, 30.0 + 10 * TOKENS, 0.0),
    ndp_ns=np.full(65, np.inf),
    ndp_error=0.0,
    pcie_ns=100.0,
    striped_read_ns=40.0,
    localized_read_ns=80.0,
    to_striped_ns=0.0,
    to_localized_ns=0.0,
    rebalance_ns=0.0,
    window_ns=50.0,
    shared_ns=0.0,
    token_ns=1.0,
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
    experts = times_of(loads, there, arrives, Estimates(**{**vars(ESTIMATES), "gpu_ns": slow_gpu}))
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
