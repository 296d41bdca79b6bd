"""The cxl paper's algorithm 1, by hand; and on any machine with NDP units."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from builders.policy_machines import background_view, estimates, layer_view, machine
from mistakes import refused
from ndpsim.policies import check_policy, choose_policy
from ndpsim.policies.example import MACHINE
from ndpsim.policies.interface import Migration
from ndpsim.policies.published.cxl import Cxl, CxlParameters, read_losses
from ndpsim.policies.views import OfflineView
from ndpsim.workload.routing import Routing


def started(
    layers: int = 1, gpu_experts: int = 4, dimms: int = 1, experts: int = 8, name: str = "small", **given
):
    what = machine(experts, layers, gpu_experts, dimms, name=name)
    return Cxl(what, estimates(), CxlParameters(**given))


def offline(policy: Cxl, ids: list) -> OfflineView:
    """A trace of one decode step: ids [layer, token, k]."""
    chosen = np.array([ids], np.int16)
    trace = Routing(policy.machine.model.routed_experts, policy.machine.layers, chosen)
    return OfflineView(policy.machine, policy.estimates, trace, chosen.shape[2])


# Counts over eight experts: 3, 3, 2, 2, 1, 1, 0, 0 of 12; scores the other way round among equals.
PROMPT = [[0, 1], [0, 1], [0, 1], [2, 3], [2, 3], [4, 5]]
SCORES = [[0.1, 0.9], [0.1, 0.9], [0.1, 0.9], [0.4, 0.6], [0.4, 0.6], [0.5, 0.5]]


def after_prefill(policy: Cxl, resident: np.ndarray, scores=SCORES) -> list[Migration]:
    view = layer_view(PROMPT, np.flatnonzero(resident[0]), phase="prefill", scores=scores, experts=8)
    policy.assign(view)
    return list(policy.background(background_view(view, resident)))


def test_importance_mixes_normalised_counts_and_scores_of_the_prefill():
    policy = started(gpu_experts=2)
    after_prefill(policy, np.zeros((1, 8), np.bool_))
    # S by hand: counts / 12, score sums 0.3 2.7 0.8 1.2 0.5 0.5 of 6.
    by_hand = (
        0.5 * np.array([3, 3, 2, 2, 1, 1, 0, 0]) / 12
        + 0.5 * np.array([0.3, 2.7, 0.8, 1.2, 0.5, 0.5, 0, 0]) / 6
    )
    assert policy._importance()[0] == pytest.approx(by_hand)
    assert np.flatnonzero(policy.hot[0]).tolist() == [1, 3]  # 0.35 and 0.1833; expert 0 has 0.15


@pytest.mark.parametrize(
    ("alpha", "scores", "hot"), [(1.0, SCORES, [0, 1]), (0.0, SCORES, [1, 3]), (0.0, None, [0, 1])]
)
def test_alpha_weighs_the_two_and_without_scores_counts_decide(alpha, scores, hot):
    policy = started(gpu_experts=2, alpha=alpha)
    after_prefill(policy, np.zeros((1, 8), np.bool_), scores)
    assert np.flatnonzero(policy.hot[0]).tolist() == hot


def test_what_the_prefill_chose_is_fetched_once_in_place_of_what_lay_there():
    policy = started(gpu_experts=2)
    resident = np.zeros((1, 8), np.bool_)
    resident[0, [1, 7]] = True
    assert [(one.kind, one.expert) for one in after_prefill(policy, resident)] == [("evict", 7), ("fetch", 3)]
    view = layer_view([[0, 1]], [1, 3])
    assert not policy.background(background_view(view, resident))  # decode steps migrate nothing


def test_of_several_layers_only_the_end_of_the_prefill_decides():
    policy = started(layers=2, gpu_experts=2)
    view = layer_view(PROMPT, phase="prefill", layer=0)
    resident = np.zeros((2, 8), np.bool_)
    policy.assign(view)
    assert not policy.background(background_view(view, resident, next_layer=1))
    last = layer_view([[6, 7]] * 3, phase="prefill", layer=1)
    policy.assign(last)
    answer = policy.background(background_view(last, resident))
    assert [(one.kind, one.layer, one.expert) for one in answer] == [("fetch", 0, 0), ("fetch", 1, 6)]


def test_bits_fall_with_importance_and_spend_the_average_exactly(tmp_path):
    losses = np.array([[[8.0, 4, 2, 1]] * 8])
    losses[0, 0] = [80, 40, 0, 0]  # the first in order: 3 bits gain 80 at 2 steps
    np.savez(tmp_path / "loss.npz", loss=losses)
    policy = started(gpu_experts=2, alpha=1.0, bits=2, loss=str(tmp_path / "loss.npz"))
    resident = np.zeros((1, 8), np.bool_)
    resident[0, [6, 7]] = True  # the others are the cold ones after the decision below
    after_prefill(policy, resident)
    # On the GPU experts 0 and 1. Of 2 3 4 5 6 7 all alike R = 6 gives each 2 bits: 6 x 4 beats 6 + 4 x 4 for (3, 2 x 4, 1).
    assert policy.bits[0].tolist() == [16, 16, 2, 2, 2, 2, 2, 2]
    policy = started(gpu_experts=0, alpha=1.0, bits=2, loss=str(tmp_path / "loss.npz"))
    after_prefill(policy, np.zeros((1, 8), np.bool_))
    # Of all eight R = 8: expert 0 with 3 bits gains 80, six with 2 bits 4 each, the last none.
    assert policy.bits[0].tolist() == [3, 2, 2, 2, 2, 2, 2, 1]


def test_losses_of_an_array_are_those_of_the_layers_with_experts(tmp_path):
    layer, expert, bits = np.indices((4, 2, 4))
    np.savez(tmp_path / "loss.npz", loss=100 * layer + 10 * expert + bits)
    losses = read_losses(str(tmp_path / "loss.npz"), (1, 3), 2)
    assert losses[:, 1].tolist() == [[110, 111, 112, 113], [310, 311, 312, 313]]


def test_decode_computes_each_expert_on_the_device_that_has_it_in_its_bits():
    policy = started(gpu_experts=2, alpha=1.0, bits=3)
    after_prefill(policy, np.zeros((1, 8), np.bool_))
    answer = policy.assign(layer_view([[0, 2], [0, 6], [2, 7], [2, 6]], resident=[0, 1]))
    assert (list(answer.gpu), list(answer.cpu), list(answer.ndp)) == ([0], [], [2, 6, 7])
    assert answer.bits == {expert: int(policy.bits[0, expert]) for expert in (2, 6, 7)}
    assert policy.bits[0, 2:].mean() == 3
    # (3 tokens x b2 + 2 x b6 + 1 x b7) x 20 ns on the one DIMM, read in b of 16 bits.
    by_hand = 20 / 16 * (3 * answer.bits[2] + 2 * answer.bits[6] + answer.bits[7])
    assert answer.estimated_ns == pytest.approx(by_hand)


def test_each_layers_choice_may_move_as_soon_as_its_prefill_is_done():
    policy = started(layers=2, gpu_experts=4, migration="during")
    resident = np.zeros((2, 8), np.bool_)
    resident[0, 7] = True
    view = layer_view(PROMPT, [7], phase="prefill", layer=0)
    policy.assign(view)
    answer = policy.background(background_view(view, resident, next_layer=1, copied=[1, 2], gpu_free=3))
    assert [(one.kind, one.layer, one.expert) for one in answer] == [
        ("evict", 0, 7),
        ("keep", 0, 1),
        ("fetch", 0, 0),
    ]
    last = layer_view([[6, 7]] * 3, phase="prefill", layer=1)
    policy.assign(last)
    answer = policy.background(background_view(last, resident, copied=[1]))
    assert [(one.kind, one.layer, one.expert) for one in answer] == [("fetch", 1, 6), ("fetch", 1, 7)]


def test_what_moves_during_the_prefill_is_what_moves_after_it():
    chosen = []
    for migration in ("after", "during"):
        policy, resident = started(layers=2, gpu_experts=4, migration=migration), np.zeros((2, 8), np.bool_)
        for layer, ids in enumerate((PROMPT, [[6, 7], [6, 3]])):
            view = layer_view(ids, phase="prefill", layer=layer)
            policy.assign(view)
            policy.background(background_view(view, resident, next_layer=1 - layer))
        chosen.append((policy.hot.tolist(), policy.bits.tolist()))
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize(("arriving", "gpu"), [("wait", [0]), ("ndp", [])])
def test_an_expert_on_its_way_is_waited_for_or_read_in_full_where_it_lies(arriving, gpu):
    policy = started(gpu_experts=2, arriving=arriving)
    after_prefill(policy, np.zeros((1, 8), np.bool_))
    policy.hot[0, 0], policy.bits[0, 0] = True, 16
    answer = policy.assign(layer_view([[0, 6]], arriving=[0]))
    assert list(answer.gpu) == gpu
    assert answer.bits.get(0, 16) == 16


def test_full_precision_places_no_replicas_and_reads_all_bits():
    policy = started(bits=16)
    placed = policy.place(offline(policy, [[[0, 1]]]))
    assert placed.replicas == ()
    assert set(policy.assign(layer_view([[2, 3]])).bits.values()) == {16}
    few = Cxl(machine(bits=2), estimates(), CxlParameters(bits=3))
    assert few.place(offline(few, [[[0, 1]]])).replicas == (1,)
    assert few.bits.max() == 2  # weights of 2 bits are not read in more


def test_without_a_prefill_the_offline_trace_stands_for_it():
    policy = started(gpu_experts=2, dimms=4)
    placed = policy.place(offline(policy, [[[5, 6], [5, 6], [6, 4]]]))
    assert np.flatnonzero(placed.resident[0]).tolist() == [5, 6]
    assert placed.replicas == (1, 2, 3, 4)
    assert np.bincount(placed.dimm[0]).tolist() == [2, 2, 2, 2]
    assert len(set(placed.dimm[0, [4, 5, 6]])) == 3  # those with tokens on different DIMMs
    assert policy.bits[0, [0, 1, 2, 3, 4, 7]].mean() == 3


def test_the_paper_says_how_many_the_gpu_holds_and_memory_says_how_many_it_can():
    def layers(name: str, room: int, **given: int) -> list[int]:
        return started(layers=4, gpu_experts=room, name=name, **given).on_gpu

    assert layers("mixtral-8x7b", 100) == [4] * 4
    assert layers("mixtral-8x22b", 100) == [2] * 4
    assert layers("other", 100) == [8] * 4
    assert layers("other", 100, gpu_experts_per_layer=3) == [3] * 4
    assert layers("mixtral-8x22b", 6) == [1, 2, 1, 2]  # evenly
    assert layers("mixtral-8x22b", 0) == [0] * 4


def test_the_prefill_runs_in_full_precision_and_loads_what_balances_the_two():
    # NDP times 20 ns a token; copies 100 ns each; 10 tokens for expert 0, 2 for expert 1.
    policy = started(gpu_experts=0)
    ids = [[0, 7]] * 8 + [[0, 1]] * 2
    answer = policy.assign(layer_view(ids, phase="prefill"))
    # Loads 10, 8, 2. On the GPU none: 400; the first: max(100, 240 - 40 = 200); the first two: max(200, 40); three: 300.
    assert (list(answer.gpu), list(answer.ndp), answer.bits) == ([0], [7, 1], {})
    assert answer.estimated_ns == 200
    slow_reads = Cxl(machine(), estimates(localized_read_ns=250.0), CxlParameters())
    assert slow_reads.assign(layer_view(ids, phase="prefill")).estimated_ns == 250


@pytest.mark.parametrize("given", ["bits=2.3,budget=nearest", "migration=during"])
@pytest.mark.parametrize("dimms", [1, 3])
def test_as_many_experts_leave_as_come_on_one_dimm_and_on_many(given, dimms):
    there = dataclasses.replace(MACHINE, dimms=dimms, channel=(0,) * dimms, has_cpu=False, has_links=False)
    moved = check_policy(f"cxl:{given}", there).migrations
    assert moved.get("fetch", 0) + moved.get("keep", 0) == moved["evict"]


def test_averages_between_4_and_16_bits_and_machines_without_ndp_are_refused():
    with refused("invalid policy cxl:bits"):
        choose_policy("cxl:bits=5")
    with refused("conflict"):
        choose_policy("cxl").start(machine(dimms=0), estimates())
