"""Statistics of routing: by hand on small traces, and those requested of a generator within their error."""

from __future__ import annotations

import dataclasses
import json
import pickle

import numpy as np
import pytest

import ndpsim
from mistakes import refused
from ndpsim.workload.models import load_model
from ndpsim.workload.routing import Routing, describe_routing, generate_routing
from ndpsim.workload.routing.activity import Estimate, estimate, groups_of, left_out, predicted
from ndpsim.workload.routing.drawing import class_counts
from ndpsim.workload.routing.statistics import DescribedLater, _drift

SEEDS = (1, 2, 3, 4, 5)

#: Layers of two models, few enough for a test.
V2, LITE = (
    dataclasses.replace(load_model(name), layers=layers, moe_layers=layers - 1)
    for name, layers in (("deepseek-v2", 7), ("deepseek-v2-lite", 5))
)


def trace_of(ids: object, experts: int, **more: object) -> Routing:
    """A trace of ids [step, token, k] in one layer."""
    return Routing(experts, (0,), np.array(ids, np.int16)[:, None], **more)


def test_what_is_described_later_is_what_is_described_at_once_and_only_the_trace_is_known_before():
    trace = trace_of([[[0], [1], [0]]], 4)
    at_once = describe_routing(trace, pairs=False).to_dict()
    later = DescribedLater(trace)
    assert later["trace"] == at_once["trace"]
    assert "_described" not in vars(later)
    assert later == at_once
    assert repr(later) == repr(at_once)
    assert pickle.loads(pickle.dumps(DescribedLater(trace))) == at_once


# ---- by hand ----


def test_shares_and_ranks_by_hand():
    ids = [
        [[0], [0], [0], [1], [1], [2], [3], [0], [0], [1]]
    ]  # 5, 3, 1, 1 of 10 selections, and none of 6 experts
    found = describe_routing(trace_of(ids, 10)).decode
    assert found.tokens == 10
    assert {name: one.value for name, one in found.shares.items()} == pytest.approx(
        {"hot": 0.5, "warm": 0.4, "cold": 0.1, "top_10": 0.5, "next_30": 0.5, "rest_60": 0.0}
    )
    assert [(one.experts, round(one.cumulative_share, 6)) for one in found.rank_curve[:4]] == [
        (1, 0.5),
        (2, 0.8),
        (3, 0.9),
        (4, 1.0),
    ]
    assert found.largest_over_mean.value == pytest.approx(5.0)
    assert found.unused == 6
    assert found.layers[0].hot == pytest.approx(0.5)


def test_what_no_token_chose_and_the_largest_load_are_of_all_layers():
    """Of four experts, tokens chose three in one layer and one in the other: 1 + 3; 2 and 4 of 4 selections."""
    ids = np.array([[[[0], [0], [1], [2]], [[3], [3], [3], [3]]]], np.int16)
    found = describe_routing(Routing(4, (0, 1), ids)).decode
    assert found.unused == 4
    assert found.largest_over_mean.value == pytest.approx((2 + 4) / 2)
    assert [(layer.layer, layer.hot) for layer in found.layers] == [(0, 0.5), (1, 1.0)]


def test_classes_have_at_least_one_hot_expert_and_all_together_all():
    assert class_counts(160) == (8, 40, 112)
    assert class_counts(128) == (6, 32, 90)
    assert class_counts(8) == (1, 2, 5)
    assert class_counts(1) == (1, 0, 0)
    assert class_counts(256, 0.1, 0.3) == (26, 77, 153)


def test_pairs_of_experts_by_hand():
    # 5 experts have 10 pairs: the most frequent one counts. Of 12 pairs of choices (0, 1) has 4.
    ids = [[[0, 1, 2], [1, 0, 3]], [[0, 1, 4], [1, 3, 0]]]
    found = describe_routing(trace_of(ids, 5)).co_activation
    assert found.top_pairs.value == pytest.approx(4 / 12)
    # The second choice of a pair is that of the token two before, the other step's; equal ones do not count.
    places = [(first, second) for second in range(3) for first in range(second)]
    tokens = zip(ids[0] + ids[1], ids[1] + ids[0], strict=True)
    pairs = [frozenset((own[i], other[j])) for own, other in tokens for i, j in places]
    pairs = [pair for pair in pairs if len(pair) == 2]
    most = max(pairs.count(pair) for pair in set(pairs))
    assert found.independent.value == pytest.approx(most / len(pairs))
    assert describe_routing(trace_of(ids, 5), pairs=False).co_activation is None
    assert describe_routing(trace_of([[[0], [1]]], 5)).co_activation is None


def test_pairs_are_independent_in_generated_routing_and_not_where_tokens_choose_blocks():
    drawn = generate_routing("skewed", V2, 512, 4, seed=1)
    found = describe_routing(drawn).co_activation
    assert found.top_pairs.value == pytest.approx(found.independent.value, rel=0.05)
    blocks = np.random.default_rng(1).integers(0, 16, (4, 1, 256)) * 4
    ids = (blocks[..., None] + np.arange(4)).astype(np.int16)
    found = describe_routing(trace_of(ids[:, 0].tolist(), 64)).co_activation
    assert found.top_pairs.value == 1
    assert found.independent.value < 0.6


def test_reuse_by_hand():
    ids = [[[0, 1], [1, 2], [1, 2], [4, 5]], [[0, 1], [2, 3], [4, 5], [5, 4]]]
    found = describe_routing(trace_of(ids, 6))
    assert found.token_reuse.reuse.value == pytest.approx((1 + 2 + 0 + 0 + 0 + 2) / 12)
    assert found.step_reuse.reuse.value == pytest.approx((2 + 1 + 0 + 2) / 8)
    # Every pair of different tokens of a step: (3 of the first step's 6 pairs share 1, 1 and 2), (1 shares 2).
    assert found.token_reuse.independent.value == pytest.approx((1 + 1 + 2 + 2) / (12 * 2))
    # Every token with the other three of the next step.
    shared = [len(set(a) & set(b)) for i, a in enumerate(ids[0]) for j, b in enumerate(ids[1]) if i != j]
    assert found.step_reuse.independent.value == pytest.approx(sum(shared) / (12 * 2))


def test_active_experts_by_hand():
    ids = [[[0, 1], [1, 2], [3, 4], [3, 4], [0, 1]]]
    found = describe_routing(trace_of(ids, 6)).active_experts
    assert [(one.batch, one.mean, one.least, one.most) for one in found] == [
        (1, 2.0, 2, 2),
        (2, 2.5, 2, 3),
        (4, 5.0, 5, 5),
        (5, 5.0, 5, 5),
    ]


def test_the_moving_average_by_hand():
    ids = [[[0], [0], [1], [1]], [[0], [1], [1], [1]], [[1], [1], [1], [1]]]
    # Loads 2 2, 1 3, 0 4; averages 2 2, then 0.3 * 1 + 0.7 * 2 = 1.7 and 2.3.
    found = predicted(trace_of(ids, 2))
    assert found.weight == 0.3
    assert found.load_overlap == pytest.approx(((1 + 2) / 4 + 2.3 / 4) / 2)
    assert found.hot_found == pytest.approx((0 + 1) / 2)  # in a tie the first expert goes first


def test_the_cosine_of_prefill_and_decode_by_hand():
    trace = trace_of(
        [[[0], [0], [1]]], 3, prefill_ids=np.array([[[0], [1], [1]]], np.int16), prompt_lengths=(1, 1, 1)
    )
    found = describe_routing(trace)
    assert found.prefill_cosine.value == pytest.approx((2 * 1 + 1 * 2) / 5)
    assert found.prefill_cosine.error is None
    assert found.prefill_overlap.value == 0.0


def test_prompts_are_apart_in_their_reuse():
    prefill = np.array([[[0], [0], [1], [1], [1]]], np.int16)
    trace = trace_of([[[0], [0]]], 3, prefill_ids=prefill, prompt_lengths=(2, 3))
    assert describe_routing(trace).prefill_reuse.reuse.value == pytest.approx(1.0)
    one_prompt = trace_of([[[0], [0]]], 3, prefill_ids=prefill, prompt_lengths=(5,))
    assert describe_routing(one_prompt).prefill_reuse.reuse.value == pytest.approx(3 / 4)


# ---- errors ----


def test_the_error_of_a_mean_is_students():
    values = np.array([3.0, 5.0, 4.0, 8.0, 1.0, 2.0, 9.0, 4.0])
    means = np.append(values.mean(), (values.sum() - values) / 7)
    student = 2.365  # 95% with 7 degrees of freedom, from a table
    assert estimate(means[None]).error == pytest.approx(student * values.std(ddof=1) / np.sqrt(8), rel=5e-3)


def test_what_is_left_out_is_left_out():
    assert left_out(np.array([[1, 2], [3, 4], [5, 6]])).tolist() == [[9, 12], [8, 10], [6, 8], [4, 6]]
    assert left_out(np.array([[1, 2]])).tolist() == [[1, 2]]
    assert groups_of(3).tolist() == [0, 0, 0]
    assert np.bincount(groups_of(40)).tolist() == [3, 2, 3, 2] * 4


def within(estimate, asked: float) -> float:
    """How many times its error an estimate is off."""
    return abs(estimate.value - asked) / estimate.error


@pytest.mark.parametrize("batch", [64, 512])
def test_shares_that_are_asked_are_found(batch):
    asked = {"hot": 0.30, "warm": 0.45, "cold": 0.25}
    off = []
    for seed in SEEDS:
        spec = "skewed:hot_share=0.30,warm_share=0.45,token_stickiness=0.2,step_stickiness=0.3"
        found = describe_routing(generate_routing(spec, V2, batch, 8, seed=seed)).decode.shares
        off += [within(found[name], share) for name, share in asked.items()]
        assert all(found[name].value == pytest.approx(share, abs=0.025) for name, share in asked.items())
    assert np.mean(np.array(off) <= 1) >= 0.8
    assert max(off) < 2


@pytest.mark.parametrize(("by_token", "by_step"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.4), (0.25, 0.35)])
def test_stickiness_that_is_asked_is_found(by_token, by_step):
    off = []
    for seed in SEEDS:
        spec = f"skewed:token_stickiness={by_token},step_stickiness={by_step}"
        found = describe_routing(generate_routing(spec, LITE, 128, 8, prompt=16, seed=seed))
        assert found.token_reuse.stickiness.value == pytest.approx(by_token, abs=0.03)
        assert found.step_reuse.stickiness.value == pytest.approx(by_step, abs=0.03)
        off += [
            within(found.token_reuse.stickiness, by_token),
            within(found.step_reuse.stickiness, by_step),
            within(found.prefill_reuse.stickiness, by_token),
        ]
    assert np.mean(np.array(off) <= 1) >= 0.8
    assert max(off) < 2


@pytest.mark.parametrize("wanted", [0.57, 0.87, 0.955, 1.0])
def test_the_cosine_of_prefill_and_decode_that_is_asked_is_found(wanted):
    off = []
    for seed in SEEDS:
        trace = generate_routing(f"skewed:prefill_cosine={wanted}", LITE, 128, 8, prompt=8, seed=seed)
        found = describe_routing(trace).prefill_cosine
        assert found.value == pytest.approx(wanted, abs=0.02)
        off.append(within(found, wanted))
    assert max(off) < 2


def test_drift_without_each_group_is_that_of_the_others():
    by_step = np.random.default_rng(3).poisson(
        [40, 20, 10, 5, 3, 2, 1, 1], (6, 4, 8)
    )  # [group, step, expert]
    of_all, *without = _drift(by_step).tolist()
    for left in range(6):
        others = by_step.copy()
        others[left] = 0  # which no similarity of loads sees
        assert without[left] == pytest.approx(_drift(others)[0])
    assert len({of_all, *without}) == 7


@pytest.mark.parametrize("asked", [0.0, 0.02, 0.1])
def test_drift_that_is_asked_is_found_and_shares_of_a_step_stay(asked):
    off = []
    for seed in SEEDS[:3]:
        found = describe_routing(generate_routing(f"skewed:step_drift={asked}", V2, 512, 8, seed=seed))
        assert found.step_drift.value == pytest.approx(asked, abs=0.01)
        assert found.step_drift.error > 0
        off += [
            within(found.decode.step_shares[name], share) for name, share in (("hot", 0.22), ("cold", 0.08))
        ]
    assert max(off) < 2


@pytest.mark.parametrize("data", ["c4", "book", "arxiv", "tulu"])
def test_counts_of_olmoe_are_found_again(data):
    """The shares of the top 10%, next 30% and rest of the three layers that were counted."""
    from ndpsim.workload.routing.counts import BUNDLED

    table = np.array(json.loads((BUNDLED / "olmoe-1b-7b.json").read_text())["counts"][data])
    trace = generate_routing(f"popularity:olmoe-1b-7b:data={data}", batch=512, steps=8)
    trace = Routing(64, (0, 7, 15), trace.ids[:, [0, 7, 15]])
    found = describe_routing(trace).decode.shares
    ordered = np.sort(table / table.sum(axis=1, keepdims=True))[:, ::-1]
    for name, part in zip(("top_10", "next_30", "rest_60"), np.split(ordered, [6, 25], axis=1), strict=True):
        assert within(found[name], part.sum(axis=1).mean()) < 2


def test_batches_of_deepseek_v3_have_about_the_published_active_experts():
    model = dataclasses.replace(load_model("deepseek-v3"), layers=8, moe_layers=7, dense_layers=(0,))
    trace = generate_routing("ranks:deepseek-v3:data=decode", model, batch=512, steps=2)
    found = {one.batch: one.mean for one in describe_routing(trace).active_experts}
    for batch, published in {32: 145, 64: 198, 128: 235, 256: 252, 512: 255}.items():
        assert found[batch] == pytest.approx(published, rel=0.03)


# ---- any trace ----


@pytest.mark.parametrize(
    "trace",
    [
        trace_of([[[0]]], 1),
        trace_of([[[0, 1]], [[1, 0]]], 2),
        trace_of([[[step % 3]] for step in range(40)], 4),
        trace_of(np.zeros((0, 0, 2)), 3, prefill_ids=np.array([[[0, 1]]], np.int16), prompt_lengths=(1,)),
        generate_routing("skewed", "mixtral-8x7b", batch=3, steps=2, prompt=3),
        generate_routing("skewed", "mixtral-8x7b", batch=20, steps=0, prompt=2),
    ],
    ids=["one token", "all experts", "one sequence", "a prompt token", "three sequences", "no decode"],
)
def test_any_trace_is_described_and_shown(trace, capsys):
    from ndpsim.report.pictures.moe import routing_figure
    from ndpsim.report.workload import print_routing

    found = describe_routing(trace)
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["trace"]["experts"] == trace.experts
    assert found == describe_routing(trace)
    print_routing(found)
    assert "share of selections" in capsys.readouterr().out
    assert routing_figure(found).axes
    assert repr(found).startswith("RoutingStatistics")


def test_one_group_that_is_left_out_changes_no_figure_of_all():
    trace = generate_routing("skewed", "mixtral-8x7b", batch=40, steps=3, prompt=2)
    found = describe_routing(trace)
    loads = np.array([[trace.loads(step, layer) for layer in trace.layers] for step in range(3)]).sum(axis=0)
    top = np.sort(loads, axis=1)[:, ::-1] / loads.sum(axis=1, keepdims=True)
    assert found.decode.shares["hot"].value == pytest.approx(top[:, 0].mean())
    assert found.decode.shares["hot"].least == pytest.approx(top[:, 0].min())
    assert found.decode.shares["hot"].most == pytest.approx(top[:, 0].max())


def test_what_is_no_trace_is_refused():
    with refused("type routing"):
        ndpsim.describe_routing("trace.npz")


def test_a_figure_is_written_with_its_error_in_the_same_unit():
    figure = Estimate(0.22014, 0.00058, 0.2, 0.25)
    assert figure.in_unit("%") == "22.01% \N{PLUS-MINUS SIGN} 0.06%"
    assert figure.in_unit("") == "0.220 \N{PLUS-MINUS SIGN} 0.001"
    assert dataclasses.replace(figure, error=None).in_unit("%") == "22.01%"
