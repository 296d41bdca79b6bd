"""The bound of a layer: below what any assignment reaches, and close to the best relaxed one."""

from __future__ import annotations

import itertools
import timeit
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndpsim.policies.bound import BoundTimes, bound_ns

# An expert of t tokens takes 2 t on the GPU, 3 t on the CPU and 20 t on an NDP unit; 30 over PCIe, 4 by the host.
_TOKENS = np.arange(2001.0)
TIMES = BoundTimes(2 * _TOKENS, 3 * _TOKENS, 20 * _TOKENS, 30.0, 4.0, 0.0, 4)


def relaxed(loads: np.ndarray, times: BoundTimes, room: int) -> float:
    """The best time of the linear programme, written down again: variables hit, miss, CPU, NDP and the time."""
    optimize = pytest.importorskip("scipy.optimize")
    tokens = loads[loads > 0]
    count = len(tokens)
    zero, one = np.zeros(count), np.ones(count)
    gpu = times.gpu_ns[tokens]
    cpu = zero if times.cpu_ns is None else times.cpu_ns[tokens]
    ndp = zero if times.ndp_ns is None else times.ndp_ns[tokens] / times.ndp_units
    above = [
        [gpu, gpu, zero, zero],
        [zero, times.pcie_ns * one, zero, zero],
        [zero, zero, cpu, zero],
        [zero, zero, zero, ndp],
        [zero, times.read_ns * one, times.read_ns * one, zero],
        [one, zero, zero, zero],
    ]
    matrix = np.array([[*np.concatenate(row), last] for row, last in zip(above, [-1] * 5 + [0], strict=True)])
    each = np.hstack([np.eye(count)] * 4 + [np.zeros((count, 1))])
    free = [(0, 1)] * (2 * count)
    free += [(0, 0 if times.cpu_ns is None else 1)] * count + [(0, 0 if times.ndp_ns is None else 1)] * count
    solved = optimize.linprog(
        [0] * (4 * count) + [1], matrix, [-times.shared_ns, 0, 0, 0, 0, room], each, one, [*free, (0, None)]
    )
    return float(solved.fun)


@pytest.mark.parametrize(
    ("loads", "room", "expected"),
    [
        # One token, with room on the GPU: shares g there, c on the CPU, n on NDP units end together. The CPU
        # waits for the host's channels: 2 g = 4 c = 5 n.
        ([1], 1, 1 / (1 / 2 + 1 / 4 + 1 / 5)),
        # No room: it comes over PCIe in 30. The host's channels carry 4 (m + c), and NDP units take 5 n: with
        # nothing else slower 4 (1 - n) = 5 n.
        ([1], 0, 20 / 9),
        ([0, 0, 0], 2, 0.0),
    ],
)
def test_bounds_worked_out_by_hand(loads, room, expected):
    bound = bound_ns(np.array(loads), TIMES, room)
    assert 0.99 * expected <= bound <= expected * (1 + 1e-12)


def test_engines_that_are_not_there_do_not_help():
    loads = np.array([10, 0, 5])
    gpu_only = replace(TIMES, cpu_ns=None, ndp_ns=None, shared_ns=7.0)
    assert bound_ns(loads, gpu_only, 2) == pytest.approx(7 + 2 * 15, rel=0.01)
    assert bound_ns(loads, gpu_only, 1) == pytest.approx(7 + 2 * 15, rel=0.01)  # PCIe is idle meanwhile
    assert bound_ns(loads, gpu_only, 0) == pytest.approx(2 * 30, rel=0.01)
    assert bound_ns(loads, replace(gpu_only, pcie_ns=0.0, read_ns=0.0), 0) == pytest.approx(37, rel=0.01)
    assert bound_ns(np.array([0, 0]), gpu_only, 0) == 7.0
    no_pcie = replace(gpu_only, pcie_ns=np.inf)
    assert bound_ns(loads, no_pcie, 2) == 7 + 2 * 15
    assert bound_ns(loads, no_pcie, 0) == 7.0  # nothing can compute them: what is there is no bound of it
    assert bound_ns(loads, replace(no_pcie, cpu_ns=3 * _TOKENS), 0) == pytest.approx(3 * 15, rel=0.01)
    free = replace(gpu_only, gpu_ns=0 * _TOKENS, pcie_ns=0.0, read_ns=0.0)
    assert bound_ns(loads, free, 0) == 7.0


@st.composite
def layers(draw, most_experts: int = 40):
    """Loads, times of all magnitudes, and room."""
    loads = draw(st.lists(st.integers(0, 2000), min_size=1, max_size=most_experts))

    def magnitude(low: float, high: float) -> float:
        return 10 ** draw(st.floats(low, high))

    def times(low: float, high: float) -> np.ndarray:
        return np.maximum(magnitude(low, high), magnitude(low - 2, high - 1) * _TOKENS)

    return (
        np.array(loads),
        BoundTimes(
            times(2, 5),
            draw(st.sampled_from([None, times(3, 6)])),
            draw(st.sampled_from([None, times(4, 7)])),
            magnitude(4, 6),
            magnitude(3, 6),
            draw(st.sampled_from([0.0, magnitude(0, 6)])),
            draw(st.integers(1, 16)),
        ),
        draw(st.integers(0, 45)),
    )


@given(layers())
def test_the_bound_is_never_above_the_relaxed_optimum_and_within_5_percent_of_it(layer):
    loads, times, room = layer
    if not loads.any():
        assert bound_ns(loads, times, room) == times.shared_ns
        return
    best = relaxed(loads, times, room)
    assert 0.95 * best <= bound_ns(loads, times, room) <= best * (1 + 1e-7)


@given(layers(most_experts=4))
def test_no_whole_assignment_is_faster(layer):
    loads, times, room = layer
    tokens = loads[loads > 0]
    bound = bound_ns(loads, times, room)
    for ways in itertools.product(range(4), repeat=len(tokens)):
        chosen = np.array(ways)
        if (chosen == 0).sum() > room:
            continue
        if (times.cpu_ns is None and (chosen == 2).any()) or (times.ndp_ns is None and (chosen == 3).any()):
            continue
        gpu = times.shared_ns + times.gpu_ns[tokens[chosen < 2]].sum()
        cpu = 0.0 if times.cpu_ns is None else times.cpu_ns[tokens[chosen == 2]].sum()
        ndp = 0.0 if times.ndp_ns is None else times.ndp_ns[tokens[chosen == 3]].sum() / times.ndp_units
        host = times.read_ns * ((chosen == 1) | (chosen == 2)).sum()
        assert max(gpu, cpu, ndp, host, times.pcie_ns * (chosen == 1).sum()) >= bound * (1 - 1e-9)


def test_more_tokens_or_less_room_never_lower_the_bound_by_more_than_its_gap():
    loads = np.arange(60) % 17
    bounds = [bound_ns(loads, TIMES, room) for room in (0, 5, 20, 60)]
    assert all(later <= before * 1.011 for before, later in itertools.pairwise(bounds))
    assert bound_ns(loads + 1, TIMES, 5) * 1.011 >= bounds[1]


def test_160_experts_take_less_than_a_few_milliseconds():
    loads = np.random.default_rng(1).poisson(np.geomspace(0.5, 200, 160))
    took = min(timeit.repeat(lambda: bound_ns(loads, TIMES, 20), number=5, repeat=10)) / 5
    assert took < 4e-3  # 0.6 ms on a quiet machine
