"""The search for the least maximum: against its plain twin, brute force, and layers solved by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.policies.assignment.least_maximum import CPU, GPU, NDP, least_maximum
from oracles.least_maximum import Layer
from oracles.least_maximum import least_maximum as readable


def found(layer: Layer) -> tuple[list[int], dict[int, tuple[int, int]], float, np.ndarray]:
    """Ways, second ways with parts, the largest load, and all loads, by the kernel."""
    count, _, resources = layer.uses.shape
    choice, second, moved, counts = (np.zeros(n, np.int64) for n in (count, count, count, 3))
    loads, sums = np.zeros(resources), np.zeros((count + 1, 3, resources))
    most = least_maximum(
        layer.uses, layer.overhead, layer.allowed, layer.base, layer.opening, layer.here, layer.splits,
        layer.parts, choice, second, moved, loads, counts, sums,
    )  # fmt: skip
    pairs = enumerate(zip(second.tolist(), moved.tolist(), strict=True))
    return choice.tolist(), {expert: pair for expert, pair in pairs if pair[0] >= 0}, most, loads


def drawn(seed: int, most_experts: int = 12, splits: int = 3) -> Layer:
    """Whole numbers, so that sums are exact in any order."""
    random = np.random.default_rng(seed)
    count, resources = int(random.integers(1, most_experts + 1)), int(random.integers(3, 7))
    uses = random.integers(0, 40, (count, 3, resources)) * (random.random((count, 3, resources)) < 0.5)
    uses[:, range(3), range(3)] = random.integers(1, 60, (count, 3))
    allowed = np.ones((count, 3), np.bool_)
    allowed[:, CPU], allowed[:, NDP] = random.random(2) < 0.8
    here = int(random.integers(0, count + 1))
    return Layer(
        uses.astype(float),
        np.floor(uses * (random.random(uses.shape) < 0.3) / 4),
        allowed,
        random.integers(0, 20, resources).astype(float),
        (random.integers(0, 10, (3, resources)) * (random.random((3, resources)) < 0.5)).astype(float),
        here,
        splits,
    )


@given(st.integers(0, 1 << 32))
@settings(deadline=None, max_examples=150)
def test_the_kernel_finds_what_its_readable_twin_finds(seed):
    layer = drawn(seed)
    choice, second, most, loads = found(layer)
    assert (choice, second) == readable(layer)[:2]
    assert loads == pytest.approx(layer.loads(choice, second), rel=1e-12, abs=1e-9)
    assert most == loads.max()


@given(st.integers(0, 1 << 32))
@settings(deadline=None, max_examples=80)
def test_no_choice_is_illegal_and_none_beats_the_best_of_all(seed):
    layer = drawn(seed, most_experts=6, splits=0)
    choice, second, most, _ = found(layer)
    assert not second
    assert all(layer.allowed[expert, way] for expert, way in enumerate(choice))
    ways = [np.flatnonzero(allowed).tolist() for allowed in layer.allowed]
    best = min(float(layer.loads(list(each)).max()) for each in itertools.product(*ways))
    assert best <= most + 1e-9


def test_the_search_is_near_the_best_of_all():
    """Over 200 layers of up to six experts: the best in most, 2% above it on average."""
    ratios = []
    for seed in range(200):
        layer = drawn(seed, most_experts=6, splits=0)
        ways = [np.flatnonzero(allowed).tolist() for allowed in layer.allowed]
        best = min(float(layer.loads(list(each)).max()) for each in itertools.product(*ways))
        ratios.append(found(layer)[2] / best)
    assert np.mean(ratios) < 1.02
    assert np.mean(np.array(ratios) < 1 + 1e-9) > 0.8


@given(st.integers(0, 1 << 32))
@settings(deadline=None, max_examples=80)
def test_more_splits_are_never_worse(seed):
    layers = [drawn(seed, splits=splits) for splits in range(4)]
    times = [found(layer)[2] for layer in layers]
    assert times == sorted(times, reverse=True)


def made(rows: list[tuple[float, float, float]], here: int = 0, **others: object) -> Layer:
    """Experts that take each way's own resource, and nothing else, for so long."""
    uses = np.zeros((len(rows), 3, 3))
    uses[:, range(3), range(3)] = rows
    plain = dict(
        overhead=np.zeros_like(uses),
        allowed=np.ones((len(rows), 3), np.bool_),
        base=np.zeros(3),
        opening=np.zeros((3, 3)),
        here=here,
    )
    return Layer(uses, **(plain | others))  # type: ignore[arg-type]


def test_experts_are_shared_out_over_engines_as_by_hand():
    """12, 6 and 4: 1 x 12, 2 x 6 and 3 x 4 take 12 each."""
    choice, _, most, loads = found(made([(12, 6, 4)] * 6))
    assert [choice.count(way) for way in (GPU, CPU, NDP)] == [1, 2, 3]
    assert (most, loads.tolist()) == (12, [12, 12, 12])


def test_an_expert_is_split_so_that_both_ways_end_together():
    """1 of 4 parts to the CPU: 3/4 of 8 on the GPU, 1/4 of 24 on the CPU."""
    allowed = np.array([[True, True, False]])
    choice, second, most, _ = found(made([(8, 24, 1)], here=1, allowed=allowed, splits=1, parts=4))
    assert (choice, second, most) == ([GPU], {0: (CPU, 1)}, 6)


def test_the_overhead_of_a_part_is_paid_in_full():
    """With 4 of the CPU's 24 for any part: 4 + 20 s = 8 (1 - s) at a seventh; 1 of 8 parts: 7 and 6.5."""
    layer = made([(8, 24, 1)], here=1, allowed=np.array([[True, True, False]]), splits=1, parts=8)
    layer.overhead[0, CPU, CPU] = 4
    _, second, most, loads = found(layer)
    assert second == {0: (CPU, 1)}
    assert (most, loads.tolist()) == (7, [7, 6.5, 0])


def test_a_way_that_costs_more_to_open_than_it_saves_is_not_taken():
    layer = made([(10, 1, 1)] * 2, here=2, opening=np.diag([0.0, 30.0, 30.0]))
    assert found(layer)[0] == [GPU, GPU]
    layer.opening[CPU, CPU] = 5
    assert found(layer)[2] == 7  # both to the CPU
