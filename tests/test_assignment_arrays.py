"""Kernels for the arrays of an assignment, each beside the same in plain Python; and `Parts` as a sequence."""

from __future__ import annotations

import numpy as np
import pytest

from ndpsim.inference.layers.totals import ENGINES
from ndpsim.policies.assignment.expert_uses import CHANNELS_NS, CPU_NS, GROUPS_NS, fill_uses
from ndpsim.policies.assignment.least_maximum import CPU, GPU, NDP
from ndpsim.policies.assignment.parts import count_parts, list_ways
from ndpsim.policies.interface import Part, Parts


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
        table = random.random((2 * (most + 1), 3, GROUPS_NS + 1))
        table[:, [GPU, CPU], GROUPS_NS] = 0.0
        overheads = random.random((2 * groups, 3, GROUPS_NS + groups))
        tokens, there = random.integers(0, most + 1, count), random.random(count) < 0.5
        group = random.integers(0, groups, count)
        read_ns, typical_ns, cpu_delay_ns, to_gpu_ns, to_cpu_ns = random.random(5).tolist()
        beside = read_ns, typical_ns, cpu_delay_ns, to_gpu_ns, to_cpu_ns
        uses, overhead = np.full((2, count, 3, GROUPS_NS + groups), np.nan)
        fill_uses(table, overheads, tokens, there, group, *beside, uses, overhead)
        assert (overhead == overheads[there * groups + group]).all()
        for expert, row in enumerate(there * (most + 1) + tokens):
            expected = np.zeros((3, GROUPS_NS + groups))
            expected[:, :GROUPS_NS] = table[row, :, :GROUPS_NS]
            own = GROUPS_NS + group[expert]
            expected[GPU, [CPU_NS, own]] = (0.0, 0.0) if there[expert] else (cpu_delay_ns, to_gpu_ns)
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
        of_layer = loads, resident, arriving, dimm, shards, bits, 16.0
        arrays = [array for one in parts for array in (one.experts, one.shares)]
        count_parts(*of_layer, *arrays, sums, reads, turns)
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
