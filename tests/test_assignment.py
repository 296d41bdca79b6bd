"""Kernels of assignments against plain twins, brute force, and layers solved by hand."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mistakes import refused
from ndpsim.inference.layers.totals import ENGINES
from ndpsim.policies.assignment.bottleneck import DIMM, NOWHERE
from ndpsim.policies.assignment.expert_uses import (
    CHANNELS_NS,
    CPU_NS,
    GROUPS_NS,
    MISSING,
    PLACES,
    LayerTimes,
)
from ndpsim.policies.assignment.least_maximum import CPU, GPU, NDP, Chosen, Problem, make_room
from ndpsim.policies.assignment.parts import LayerWeights, Sums, count_parts
from ndpsim.policies.interface import Part, Parts
from ndpsim.policies.published.cxl import bit_budget, prefix_split, read_losses
from oracles.assignment_kernels import fill_uses, least_maximum, list_ways, schedule
from oracles.bottleneck import Layer as ScheduledLayer
from oracles.bottleneck import schedule as readable_schedule
from oracles.least_maximum import Layer
from oracles.least_maximum import least_maximum as readable


def alike(*arrays: np.ndarray) -> np.ndarray:
    """For each expert the first one with the same values in all arrays [expert, ...]."""
    rows = [b"".join(array[expert].tobytes() for array in arrays) for expert in range(len(arrays[0]))]
    return np.array([rows.index(row) for row in rows], np.int64)


def found(layer: Layer) -> tuple[list[int], dict[int, tuple[int, int]], float, np.ndarray]:
    """Ways, second ways with parts, the largest load, and all loads, by the kernel."""
    count, _, resources = layer.uses.shape
    choice, second, moved, counts = (np.zeros(n, np.int64) for n in (count, count, count, 3))
    loads = np.zeros(resources)
    given = layer.uses, layer.overhead, layer.allowed, layer.base, layer.opening, layer.here
    problem = Problem(*given, alike(layer.uses, layer.overhead, layer.allowed))
    chosen = Chosen(choice, second, moved, loads, counts, make_room(count, resources))
    most = least_maximum(problem, layer.splits, layer.parts, chosen)
    pairs = enumerate(zip(second.tolist(), moved.tolist(), strict=True))
    return choice.tolist(), {expert: pair for expert, pair in pairs if pair[0] >= 0}, most, loads


def drawn(seed: int, most_experts: int = 12, splits: int = 3) -> Layer:
    """Whole numbers, so that sums are exact in any order; in every second layer some experts are alike."""
    random = np.random.default_rng(seed)
    count, resources = int(random.integers(1, most_experts + 1)), int(random.integers(3, 7))
    uses = random.integers(0, 40, (count, 3, resources)) * (random.random((count, 3, resources)) < 0.5)
    uses[:, range(3), range(3)] = random.integers(1, 60, (count, 3))
    overhead = np.floor(uses * (random.random(uses.shape) < 0.3) / 4)
    if seed % 2:
        kinds = random.integers(0, count, count)
        uses, overhead = uses[kinds], overhead[kinds]
    allowed = np.ones((count, 3), np.bool_)
    allowed[:, CPU], allowed[:, NDP] = random.random(2) < 0.8
    here = int(random.integers(0, count + 1))
    return Layer(
        uses.astype(float),
        overhead,
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


def test_resources_that_are_equally_full_are_relieved_together():
    """Four residents of 10 on the GPU, and four of 10 on the CPU: 40 and 40. An expert on NDP units takes 5 of theirs,
    and 1 of both others: no single move is allowed. With 2, 2 and 4 of them: 24, 24 and 20.
    """
    layer = made([(10, 10, 5)] * 8, here=4)
    layer.uses[:4, CPU, CPU] = layer.uses[4:, GPU, GPU] = 90
    layer.uses[:, NDP, [0, 1]] = 1
    choice, _, most, loads = found(layer)
    assert [choice.count(way) for way in (GPU, CPU, NDP)] == [2, 2, 4]
    assert (most, loads.tolist()) == (24, [24, 24, 20])


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


# ---- Schedules of TriMoE's kernel: against their plain twin


def drawn_schedule(seed: int) -> ScheduledLayer:
    """Whole numbers, so that sums are exact in any order; few of them, so that many are equal."""
    random = np.random.default_rng(seed)
    experts, dimms, most = (int(random.integers(1, limit)) for limit in (12, 5, 40))
    dimm = [None if at == dimms else at for at in random.integers(0, dimms + 1, experts).tolist()]
    time = random.integers(1, most + 1, (3, experts)).astype(float)
    time[1, random.random(experts) < 0.2] = math.inf
    time[2, [at is None for at in dimm]] = math.inf
    read = random.integers(0, 10, (2, experts)).astype(float)
    loads = random.integers(0, 3, experts).tolist()
    return ScheduledLayer(time.tolist(), read.tolist(), dimm, loads, dimms, float(random.integers(0, 10)))


@given(st.integers(0, 1 << 32), st.sampled_from([0, 1, 3, 100]))
@settings(deadline=None, max_examples=300)
def test_the_kernel_makes_the_schedules_of_its_readable_twin(seed: int, limit: int) -> None:
    layer = drawn_schedule(seed)
    devices, busy = np.zeros(len(layer.loads), np.int64), np.zeros(DIMM + layer.dimms + 1)
    busy[0] = layer.shared
    memory = np.array([DIMM + (layer.dimms if at is None else at) for at in layer.dimm])
    moves, greedy = schedule(
        np.array(layer.time), np.array(layer.read), memory, np.array(layer.loads), limit, devices, busy,
        np.zeros_like(busy),
    )  # fmt: skip
    on, moved = readable_schedule(layer, limit)
    assert devices.tolist() == [on.get(expert, NOWHERE) for expert in range(len(devices))]
    busy[DIMM:] += busy[-1]
    assert busy[:-1].tolist() == layer.busy(on)
    assert (moves, greedy) == (moved, max(layer.busy(readable_schedule(layer, 0)[0])))


# ---- Kernels for the arrays of an assignment, each beside the same in plain Python; and `Parts` as a sequence


def test_experts_are_listed_way_by_way_with_their_shares():
    random, split = np.random.default_rng(3), 0
    for _ in range(100):
        count, parts = int(random.integers(0, 9)), int(random.integers(2, 17))
        order, choice = random.permutation(count), random.integers(0, 3, count)
        second = np.where(random.random(count) < 0.5, (choice + random.integers(1, 3, count)) % 3, -1)
        moved = np.where(second >= 0, random.integers(1, parts, count), 0)
        experts, shares, ends = np.empty(2 * count, np.int64), np.empty(2 * count), np.empty(3, np.int64)
        list_ways(order, choice, second, moved, parts, experts, shares, ends)
        of_each: list[list[tuple[int, float]]] = [[], [], []]
        for expert, way, other, some in zip(order, choice, second, moved, strict=True):
            of_each[way].append((expert, 1 - some / parts))
            if other >= 0:
                of_each[other].append((expert, some / parts))
                split += 1
        assert [*zip(experts[: ends[2]], shares, strict=False)] == [part for way in of_each for part in way]
        assert ends.tolist() == np.cumsum([len(way) for way in of_each]).tolist()
    assert split


def test_uses_of_experts_follow_from_the_tables():
    random = np.random.default_rng(4)
    for _ in range(50):
        count, groups, most = (int(random.integers(1, high)) for high in (9, 4, 12))
        table = random.random((PLACES * (most + 1), 3, GROUPS_NS + 1))
        table[:, [GPU, CPU], GROUPS_NS] = 0.0
        overheads = random.random((PLACES * groups, 3, GROUPS_NS + groups))
        tokens, places = random.integers(0, most + 1, count), random.integers(0, PLACES, count)
        group = random.integers(0, groups, count)
        read_ns, typical_ns, cpu_delay_ns, to_gpu_ns, to_cpu_ns = random.random(5).tolist()
        times = LayerTimes(read_ns, typical_ns, cpu_delay_ns, to_gpu_ns, to_cpu_ns)
        uses, overhead = np.full((2, count, 3, GROUPS_NS + groups), np.nan)
        fill_uses(table, overheads, tokens, places, group, times, uses, overhead)
        assert (overhead == overheads[places * groups + group]).all()
        for expert, row in enumerate(places * (most + 1) + tokens):
            expected = np.zeros((3, GROUPS_NS + groups))
            expected[:, :GROUPS_NS] = table[row, :, :GROUPS_NS]
            own = GROUPS_NS + group[expert]
            expected[GPU, [CPU_NS, own]] = (
                (cpu_delay_ns, to_gpu_ns) if places[expert] == MISSING else (0.0, 0.0)
            )
            expected[CPU, own], expected[NDP, own] = to_cpu_ns, table[row, NDP, GROUPS_NS]
            expected[NDP, CPU_NS] = table[row, NDP, CHANNELS_NS] * read_ns / typical_ns
            assert (uses[expert] == expected).all()


def test_parts_are_the_list_that_they_stand_for():
    parts, listed = Parts(np.array([4, 2, 7]), np.array([1.0, 0.25, 1.0])), [4, Part(2, 0.25), 7]
    assert [*parts] == listed
    assert (parts[1], parts[-2:], len(parts), 7 in parts) == (listed[1], listed[-2:], 3, True)
    assert not Parts(np.empty(0, np.int64), np.empty(0))
    with pytest.raises(ValueError, match="shape"):
        Parts(parts.experts, parts.shares[:2])


def random_parts(random: np.random.Generator, experts: int) -> list[Parts]:
    """Some of the experts on each of three engines."""
    some = [np.flatnonzero(random.random(experts) < 0.5) for _ in range(3)]
    return [Parts(of_engine, random.random(len(of_engine))) for of_engine in some]


def test_sums_over_layers_are_those_of_the_parts():
    random, experts, dimms = np.random.default_rng(5), 9, 6
    sums, reads, turns = np.zeros((4, 3)), np.zeros(dimms + 1), np.full(dimms + 1, -1)
    engines: dict[str, list[float]] = {name: [0.0, 0.0, 0.0] for name in ENGINES}
    read: dict[int, float] = {}
    for _ in range(30):
        loads, bits = random.integers(0, 5, experts), random.choice([4.0, 16.0], experts)
        resident, arriving = random.random((2, experts)) < 0.3
        dimm = random.integers(-1, dimms, experts).astype(np.int16)
        shards = np.where(dimm < 0, 1, random.integers(1, dimms + 1, experts)).astype(np.int16)
        parts = random_parts(random, experts)
        layer = LayerWeights(loads, resident, arriving, dimm, shards, bits, 16.0)
        count_parts(layer, *((one.experts, one.shares) for one in parts), Sums(sums, reads, turns))
        for name, one in zip(("gpu", "cpu", "ndp"), parts, strict=True):
            for expert, share in one.listed():
                there = resident[expert] or arriving[expert]
                engine = name if name != "gpu" else "gpu_hit" if there else "gpu_miss"
                pairs = loads[expert] * share
                more = share, pairs, pairs * bits[expert]
                engines[engine] = [before + now for before, now in zip(engines[engine], more, strict=True)]
                if engine in ("gpu_miss", "cpu"):
                    place = 0 if dimm[expert] < 0 else int(shards[expert])
                    read[place] = read.get(place, 0.0) + share * bits[expert] / 16.0
    assert sums.tolist() == [*engines.values()]
    assert {place: reads[place] for place in np.argsort(turns).tolist() if turns[place] >= 0} == read
    assert turns[[*read]].tolist() == [*range(len(read))]


# ---- PrefixSplit against all possible assignments; tables of losses, bundled and from files


@functools.cache
def in_order(experts: int) -> dict[int, list[tuple[int, ...]]]:
    """Of all 4^experts assignments, those in which none has more bits than one before it, by steps above 1."""
    found: dict[int, list[tuple[int, ...]]] = {}
    for bits in itertools.product((1, 2, 3, 4), repeat=experts):
        if all(earlier >= later for earlier, later in itertools.pairwise(bits)):
            found.setdefault(sum(bits) - experts, []).append(bits)
    return found


def brute_force(losses: np.ndarray, budget: int) -> tuple[object, list[tuple[int, ...]]]:
    """The least total loss of all assignments that spend the budget, and all with that loss, exactly."""
    table = [[Fraction(loss) for loss in row] for row in losses.tolist()]
    totals = {
        bits: sum((row[one - 1] for row, one in zip(table, bits, strict=True)), Fraction(0))
        for bits in in_order(len(table))[budget]
    }
    least = min(totals.values())
    return least, [bits for bits, total in totals.items() if total == least]


@pytest.mark.parametrize("experts", range(8))
def test_no_assignment_of_up_to_seven_experts_loses_less_whatever_the_budget(experts):
    random = np.random.default_rng(experts)
    for budget in range(3 * experts + 1):
        mean = 1 + Fraction(budget, max(experts, 1))
        for most in (1, 3, 1000):  # few different numbers make many ties; none of the tables is monotone
            losses = random.integers(-most, most + 1, (experts, 4))
            split = prefix_split(losses, float(mean))
            _, best = brute_force(losses, budget)
            assert split == min(best, key=lambda bits: (bits.count(4), bits.count(3)))


@given(st.data())
def test_any_average_and_any_losses_get_the_best_split_of_the_whole_number_below(data):
    experts = data.draw(st.integers(1, 7))
    # Multiples of 1/64 up to 2^20: sums of doubles are exact, as those of fractions are.
    losses = data.draw(arrays(np.int64, (experts, 4), elements=st.integers(-(2**26), 2**26))) / 64
    mean = data.draw(st.floats(1, 4))
    budget = math.floor(experts * (Fraction(mean) - 1) + Fraction(1, 10**9))
    split = prefix_split(losses, mean)
    least, best = brute_force(losses, budget)
    assert split in best
    assert sum(split) - experts == budget
    assert sum(Fraction(row[bits - 1]) for row, bits in zip(losses.tolist(), split, strict=True)) == least


def test_a_budget_that_is_no_whole_number_goes_to_the_one_below_or_the_nearest():
    # 4 x (2.4 - 1) = 5.6 and 4 x (2.375 - 1) = 5.5, 4 x (2.35 - 1) = 5.4.
    assert [bit_budget(4, mean) for mean in (2.4, 2.375, 2.35)] == [5, 5, 5]
    assert [bit_budget(4, mean, "nearest") for mean in (2.4, 2.375, 2.35)] == [6, 6, 5]
    assert [bit_budget(experts, 1 + 1.1, "floor") for experts in (10, 30)] == [
        11,
        33,
    ]  # 2.1 - 1 < 1.1 in doubles
    assert [bit_budget(5, mean) for mean in (0.0, 1.0, 4.0, 9.0)] == [0, 0, 15, 15]


def test_more_bits_go_where_they_gain_most_as_far_as_the_order_allows():
    # A hand-solved case: R = 3 x (2 - 1) = 3. (2, 2, 2) gains 4 + 4 + 4, (3, 2, 1) 5 + 4, (4, 1, 1) 6.
    equal = np.array([[10, 6, 5, 4]] * 3)
    assert prefix_split(equal, 2) == (2, 2, 2)
    # Expert 0 now gains 16 by 4 bits: (4, 1, 1) gains 16, (3, 2, 1) 5 + 4, (2, 2, 2) 12.
    assert prefix_split(np.array([[20, 16, 15, 4], *equal[1:].tolist()]), 2) == (4, 1, 1)
    # That the last expert would gain most changes nothing: none has more bits than one before it.
    assert prefix_split(np.array([*equal[1:].tolist(), [20, 16, 15, 0]]), 2) == (2, 2, 2)


@pytest.mark.parametrize("losses", [np.zeros((2, 3)), np.zeros(4), np.array([[0, 1, 2, np.nan]])])
def test_losses_of_another_shape_or_not_finite_are_refused(losses):
    with refused("form losses"):
        prefix_split(losses, 2)


# Tables


def test_the_bundled_table_says_that_it_is_synthetic_and_obeys_the_rule_in_its_header():
    losses = read_losses(None, (0, 5), 20)
    assert losses.shape == (2, 20, 4)
    for expert, bits in itertools.product(range(20), (1, 2, 3, 4)):
        sensitivity = 0.5 + (7 * (expert % 16) % 16) / 16
        assert losses[1, expert, bits - 1] == pytest.approx(sensitivity * 4.0**-bits, rel=1e-7)
    file = Path(__file__).parent.parent / "ndpsim/policies/published/quantisation_loss_synthetic.csv"
    assert file.read_text().startswith("# Synthetic: no model was quantised")


def test_tables_by_layer_are_read_from_csv_and_npz_alike(tmp_path):
    losses = np.random.default_rng(1).random((4, 3, 4))
    np.savez(tmp_path / "t.npz", loss=losses)
    lines = [
        f"{layer},{expert},{bits},{float(losses[layer, expert, bits - 1])!r}"
        for layer, expert, bits in itertools.product((1, 3), range(3), (4, 1, 2, 3))
    ]
    (tmp_path / "t.csv").write_text("\n".join(["# measured", "layer,expert,bits,loss", *lines]))
    for name in ("t.npz", "t.csv"):
        assert np.array_equal(read_losses(str(tmp_path / name), (1, 3), 3), losses[[1, 3]])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("no.csv", None, "unreadable no.csv"),
        ("a.csv", b"\xff\xfe", "form a.csv:1"),
        ("a.npz", b"no archive", "unreadable a.npz"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_in_one_line(tmp_path, name, content, words):
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with refused(words):
        read_losses(str(file), (0,), 1)


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"other": np.zeros((1, 1, 4))}, "missing a.npz"),
        ({"loss": np.zeros((1, 2, 4))}, "form a.npz loss"),
        ({"loss": np.full((1, 1, 4), np.inf)}, "range a.npz loss"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays, expected):
    np.savez(tmp_path / "a.npz", **arrays)
    with refused(expected):
        read_losses(str(tmp_path / "a.npz"), (0,), 1)
