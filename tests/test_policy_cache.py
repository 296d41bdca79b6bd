"""The expert cache against closed formulas, plain caches of its own tests, and by hand."""

from __future__ import annotations

import functools
import itertools
from collections import OrderedDict, deque
from collections.abc import Sequence
from math import comb

import numpy as np
import pytest

from builders.policy_machines import background_view, estimates, layer_view, machine
from mistakes import refused
from ndpsim.policies import choose_policy
from ndpsim.policies.published.cache import CacheParameters, ExpertCache
from ndpsim.policies.views import OfflineView
from ndpsim.workload.routing import Routing, generate_routing


def started(slots: int, layers: int = 1, experts: int = 8, **given: object) -> ExpertCache:
    what = machine(experts, layers, gpu_experts=slots, dimms=0)
    return ExpertCache(what, estimates(), CacheParameters(**given))


class Replay:
    """A GPU's memory without time: a fetch ends after `delay` further layers."""

    def __init__(self, policy: ExpertCache, delay: int = 0) -> None:
        self.policy, self.delay, self.visit = policy, delay, 0
        layers, experts = len(policy.machine.layers), policy.machine.model.routed_experts
        trace = Routing(
            experts, policy.machine.layers, np.tile([[[0, 1]]], (1, layers, 1, 1)).astype(np.int16)
        )
        placed = policy.place(OfflineView(policy.machine, policy.estimates, trace, 1))
        self.resident = placed.resident.copy()
        self.moving = np.zeros_like(self.resident)
        self.due: deque[tuple[int, int, int]] = deque()

    def layer(self, chosen: Sequence[Sequence[int]], row: int = 0, step: int = 0, phase: str = "decode"):
        """One visit: the assignment and the migrations."""
        while self.due and self.due[0][0] <= self.visit:
            _, layer, expert = self.due.popleft()
            self.moving[layer, expert], self.resident[layer, expert] = False, True
        self.visit += 1
        view = layer_view(
            chosen, np.flatnonzero(self.resident[row]), np.flatnonzero(self.moving[row]),
            experts=self.resident.shape[1], layer=row, step=step, phase=phase,
        )  # fmt: skip
        answer = self.policy.assign(view)
        moves = self.policy.background(background_view(view, self.resident.copy(), moving=self.moving.copy()))
        for one in moves:
            assert not self.moving[one.layer, one.expert]
            if one.kind == "evict":
                assert self.resident[one.layer, one.expert]
                self.resident[one.layer, one.expert] = False
            else:
                assert not self.resident[one.layer, one.expert]
                self.moving[one.layer, one.expert] = True
                self.due.append((self.visit + self.delay, one.layer, one.expert))
        assert (self.resident | self.moving).sum() <= self.policy.machine.gpu_experts
        return answer, moves

    def run(self, ids: np.ndarray) -> list[tuple[int, ...]]:
        """Hits of each visit; ids [step, layer, k]."""
        return [
            tuple(self.layer([of_layer], row, step)[0].gpu)
            for step, of_step in enumerate(ids.tolist())
            for row, of_layer in enumerate(of_step)
        ]


def sticky(steps: int, layers: int, experts: int, seed: int) -> np.ndarray:
    """A generated trace of one sequence in which choices recur: ids [step, layer, 2]."""
    shape = machine(experts, layers).model
    return generate_routing("skewed:step_stickiness=0.3", shape, 1, steps, 0, seed).ids[:, :, 0]


# Closed formulas of section IV-D


@pytest.mark.parametrize(("experts", "ways"), [(8, 2), (8, 4), (8, 7), (16, 8), (16, 5), (5, 1)])
def test_a_random_set_is_hit_as_often_as_the_papers_formulas_say(experts, ways):
    replay = Replay(started(ways, experts=experts, ways=ways, replacement="random"))
    for pair in itertools.combinations(range(experts), 2):  # each once: what is uniform, without chance
        replay.layer([pair])
    n, M = experts, ways
    counts = replay.policy.cache_counts()
    assert counts["any_hit_rate"] == pytest.approx(1 - (n - M) / n * (n - M - 1) / (n - 1))
    assert counts["all_hit_rate"] == pytest.approx(M / n * (M - 1) / (n - 1))
    assert counts["hit_rate"] == pytest.approx(M / n)
    assert counts["hits"] + counts["misses"] == 2 * comb(n, 2)


# Plain caches


def plain_lru(ids: np.ndarray, first: list[list[int]], hits_count: bool = True) -> list[tuple[int, ...]]:
    """Hits; with `hits_count=False` of a FIFO."""
    sets = [OrderedDict.fromkeys(one) for one in first]
    found = []
    for of_step in ids.tolist():
        for row, chosen in enumerate(of_step):
            hits = tuple(expert for expert in chosen if expert in sets[row])
            for expert in hits if hits_count else ():
                sets[row].move_to_end(expert)
            for expert in chosen:
                if expert not in hits:
                    sets[row].popitem(last=False)
                    sets[row][expert] = None
            found.append(hits)
    return found


plain_fifo = functools.partial(plain_lru, hits_count=False)


def plain_counter(ids: np.ndarray, first: list[list[int]]) -> list[tuple[int, ...]]:
    tags, counts = [list(one) for one in first], [[0] * len(one) for one in first]
    found = []
    for of_step in ids.tolist():
        for row, chosen in enumerate(of_step):
            hits = tuple(expert for expert in chosen if expert in tags[row])
            for expert in hits:
                counts[row][tags[row].index(expert)] += 1
            for expert in chosen:
                if expert not in hits:
                    way = int(np.argmin(counts[row]))
                    tags[row][way] = expert
                    counts[row][way] = max(counts[row]) + 1
            found.append(hits)
    return found


@pytest.mark.parametrize("ways", [2, 3, 5, 8])
@pytest.mark.parametrize(
    ("replacement", "plain"), [("lru", plain_lru), ("fifo", plain_fifo), ("counter", plain_counter)]
)
def test_replacement_hits_what_a_plain_cache_hits_layer_by_layer(replacement, plain, ways):
    for seed in range(3):
        ids = sticky(60, 3, 8, seed)
        policy = started(3 * ways, 3, ways=ways, replacement=replacement, protect=False, quota=None)
        first = [list(index.experts) for index in policy.indexes]
        expected = plain(ids, first)
        assert Replay(policy).run(ids) == expected
        hits = sum(map(len, expected))
        assert 0 < hits == policy.cache_counts()["hits"]


def test_lru_sparing_what_was_just_used_is_lru():
    ids = sticky(200, 1, 8, 5)
    runs = [Replay(started(3, ways=3, protect=protect)).run(ids) for protect in (True, False)]
    assert runs[0] == runs[1]


# By hand


def test_indexes_cover_the_first_layers_and_hold_as_many_as_fit():
    assert [len(started(56, 32, ways=M).indexes) for M in (2, 3, 4, 5, 6, 7)] == [28, 18, 14, 11, 9, 8]
    assert [len(started(58, 32, ways=M).indexes) for M in range(2, 9)] == [29, 19, 14, 11, 9, 8, 7]  # [code]
    assert len(started(56, 3, ways=4).indexes) == 3
    assert len(started(3, 3, ways=4).indexes) == 0
    assert [len(index.experts) for index in started(56, 4, ways=50).indexes] == [8] * 4


def test_a_miss_runs_on_the_cpu_and_is_fetched_for_the_next_token():
    replay = Replay(started(2, ways=2))
    a, b = replay.policy.indexes[0].experts
    other = next(expert for expert in range(8) if expert not in (a, b))
    answer, moves = replay.layer([[other, b]])
    assert (answer.gpu, answer.cpu) == ([b], [other])
    assert [(one.kind, one.expert) for one in moves] == [("evict", a), ("fetch", other)]
    answer, moves = replay.layer([[other, b]])
    assert (answer.gpu, answer.cpu, moves) == ([other, b], [], [])
    # GPU 10 + 1 each: 22 ns; the CPU computes 12 ns and reads 40.
    assert answer.estimated_ns == 22


def test_layers_beyond_the_indexes_run_on_the_cpu_and_are_not_counted():
    replay = Replay(started(2, layers=2, ways=2))
    answer, moves = replay.layer([[0, 1]], row=1)
    assert (answer.gpu, answer.cpu, moves) == ([], [0, 1], [])
    assert replay.policy.cache_counts()["misses"] == 0


@pytest.mark.parametrize(("in_flight", "gpu", "hits"), [("hit", [6, 7], 2), ("miss", [], 0)])
def test_an_expert_on_its_way_is_a_hit_or_a_miss(in_flight, gpu, hits):
    policy = started(2, ways=2, in_flight=in_flight)
    policy.indexes[0].experts = [0, 1]
    replay = Replay(policy, delay=5)
    replay.layer([[6, 7]])
    answer, moves = replay.layer([[6, 7]])
    assert answer.gpu == gpu
    assert not moves  # both ways are being written: there is no victim
    assert policy.cache_counts()["hits"] == hits


def test_an_expert_that_arrives_while_its_layer_is_computed_is_not_fetched_again():
    policy = started(2, ways=2, in_flight="miss")
    policy.indexes[0].experts = [0, 6]  # 6 was fetched before, and is on its way
    view = layer_view([[6, 7]], resident=[0], arriving=[6], experts=8)
    assert policy.assign(view).cpu == [6, 7]
    resident = np.zeros((1, 8), dtype=bool)
    resident[0, [0, 6]] = True  # and now it is here
    moves = policy.background(background_view(view, resident, moving=np.zeros_like(resident)))
    assert [(one.kind, one.expert) for one in moves] == [("evict", 0), ("fetch", 7)]


@pytest.mark.parametrize(("quota", "fetches"), [(64, 63), (4, 3), (1, 0), (0, 0), (None, 80)])
def test_so_many_fetches_a_token_are_within_the_quota(quota, fetches):
    policy = started(80, layers=40, ways=2, quota=quota)
    for index in policy.indexes:
        index.experts = [0, 1]
    replay = Replay(policy)
    for step in range(2):  # the second token has a quota of its own
        moves = [
            one for row in range(40) for one in replay.layer([[2 + 2 * step, 3 + 2 * step]], row, step)[1]
        ]
        assert sum(one.kind == "fetch" for one in moves) == fetches


def test_what_a_token_has_just_used_is_no_victim_unless_as_released():
    for protect, victim in ((True, 1), (False, 0)):
        policy = started(2, ways=2, replacement="fifo", protect=protect)
        policy.indexes[0].experts = [0, 1]
        _, moves = Replay(policy).layer([[0, 5]])
        assert moves[0].expert == victim


@pytest.mark.parametrize(("multi_row", "there"), [("cpu", False), ("cache", True)])
def test_prefill_and_several_sequences_leave_the_cache_alone_unless_asked(multi_row, there):
    policy = started(2, ways=2, multi_row=multi_row)
    policy.indexes[0].experts = [0, 1]
    for phase, chosen in (("prefill", [[0, 5]]), ("decode", [[0, 1], [0, 6]])):
        answer, moves = Replay(policy).layer(chosen, phase=phase)
        assert (0 in answer.gpu, bool(moves)) == (there, there)
    assert (policy.cache_counts()["hits"] > 0) == there


def test_in_sequence_the_estimates_of_gpu_and_cpu_add_up():
    policy = started(2, ways=2, execution="sequential")
    policy.indexes[0].experts = [0, 1]
    answer, _ = Replay(policy).layer([[0, 5]])
    assert (answer.sequential, answer.estimated_ns) == (True, 11 + 40)


def test_a_machine_without_a_cpu_for_experts_is_refused():
    with refused("conflict"):
        choose_policy("cache").start(machine(has_cpu=False), estimates())
