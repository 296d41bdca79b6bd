"""Generators of routing: every expert has the requested chance, and each token k different experts."""

from __future__ import annotations

import bisect
import json
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ndpsim
from mistakes import refused
from ndpsim.workload.models import load_model, model_names
from ndpsim.workload.routing import default_routing, generate_routing
from ndpsim.workload.routing.counts import BUNDLED
from ndpsim.workload.routing.drawing import UNIT, Lines, cosine, draw, exchanged, filled, in_units, like
from ndpsim.workload.routing.sequences import mixed
from ndpsim.workload.routing.spec import COMMON, parse_spec

SEEDS = (1, 2, 3)


def source(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@st.composite
def shares_and_k(draw):
    experts = draw(st.integers(1, 40))
    k = draw(st.integers(1, experts))
    weights = draw(st.lists(st.floats(1e-6, 1.0), min_size=experts, max_size=experts))
    return np.array(weights), k


# ---- shares that can be ----


@given(shares_and_k())
def test_no_share_is_above_one_of_k_and_none_is_lost(given):
    weights, k = given
    shares = filled(weights, k)
    assert shares.sum() == pytest.approx(1)
    assert shares.max() <= (1 + 1e-9) / k
    below = shares < (1 - 1e-9) / k
    assert (
        np.ptp(shares[below] / weights[below]) <= 1e-6 * max((shares[below] / weights[below]).max(), 1)
        if below.any()
        else True
    )


def test_what_is_above_the_limit_goes_to_the_others_in_proportion():
    assert filled(np.array([8.0, 1.0, 1.0]), 2) == pytest.approx([0.5, 0.25, 0.25])
    assert filled(np.array([6.0, 3.0, 0.6, 0.4]), 3) == pytest.approx([1 / 3, 1 / 3, 0.2, 2 / 15])


def test_fewer_experts_than_a_token_chooses_are_refused():
    with refused("range routing"):
        filled(np.array([0.5, 0.5, 0.0, 0.0]), 3)


@given(shares_and_k())
def test_chances_add_up_exactly(given):
    weights, k = given
    shares = filled(weights, k)
    chances = in_units(shares, k)
    assert int(chances.sum()) == k * UNIT
    assert chances.min() >= 0
    assert chances.max() <= UNIT
    assert np.abs(chances - shares * k * UNIT).max() <= 64


# ---- draws ----


@given(shares_and_k(), st.integers(0, 1000))
def test_a_token_has_k_different_experts(given, seed):
    weights, k = given
    ids = draw([filled(weights, k)] * 2, 30, k, 0.0, 0.0, source(seed))
    assert ids.shape == (2, 30, k)
    assert ids.min() >= 0
    assert ids.max() < len(weights)
    assert all(len(set(token)) == k for block in ids.tolist() for token in block)


def chosen_by_hand(ends: list[int], numbers: list[float]) -> list[int]:
    """The experts of a token, in the order of a line: one in each part of it, none twice."""
    chosen = []
    place = 0
    for part, number in enumerate(numbers):
        border = part * UNIT
        on_border = bisect.bisect_right(ends, border)
        before = border - (ends[on_border - 1] if on_border else 0)
        after = ends[on_border] - border
        if part == 0 or before == 0:
            place = int(number * UNIT)
        elif place >= UNIT - before:  # the expert on the border is taken
            place = int(after + number * (UNIT - after))
        else:
            rest = number * (UNIT - before)
            further = max(UNIT - before - after, 1)
            place = int(rest if rest < after else after + (rest - after) * (UNIT - after) / further)
        place = min(place, UNIT - 1)
        chosen.append(bisect.bisect_right(ends, border + place))
    return chosen


@given(shares_and_k(), st.integers(0, 1000))
def test_kernel_chooses_as_by_hand_on_lines_of_several_layers(given, seed):
    weights, k = given
    lines, ends = Lines(2, 3, len(weights), k), {}
    for layer, line in np.ndindex(2, 3):
        chances = in_units(filled(weights ** (1 + layer), k), k)
        order = source(line).permutation(len(chances))
        lines.set(layer, line, order, chances)
        ends[layer, line] = order, np.cumsum(chances[order]).tolist()
    uniform = np.minimum(source(seed).random((2, 20, k)).round(seed % 3 + 1), np.nextafter(1, 0))
    of = source(seed + 1).integers(0, 3, (2, 20))
    ids = lines.chosen(uniform, of)
    for layer, token in np.ndindex(2, 20):
        order, ends_of_line = ends[layer, int(of[layer, token])]
        by_hand = order[chosen_by_hand(ends_of_line, uniform[layer, token].tolist())]
        assert by_hand.tolist() == ids[layer, token].tolist()
    numbers, step = source(seed).integers(0, 1 << 64, (2, 20), np.uint64), np.uint64((seed << 44) + 7)
    mixed_numbers = mixed(numbers[..., None] + np.arange(1, k + 1, dtype=np.uint64) * step)
    uniform = (mixed_numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53
    ids = lines.chosen(uniform, (numbers % np.uint64(3)).astype(np.int64))
    assert (lines.chosen_by_numbers(numbers, step) == ids).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("experts", "k", "evenness"), [(160, 6, 0.3), (8, 2, 0.3), (5, 4, 1.0), (64, 8, 0.1)]
)
def test_every_expert_has_its_chance(experts, k, evenness, seed):
    shares = filled(source(seed).dirichlet(np.full(experts, evenness)) + 1e-6, k)
    tokens = 400 * 100
    ids = draw([shares] * 400, 100, k, 0.0, 0.0, source(seed + 50))
    found = np.bincount(ids.ravel(), minlength=experts) / tokens
    error = np.sqrt(np.maximum(shares * k * (1 - shares * k), 0) / tokens)
    assert (np.abs(found - shares * k) <= 4.5 * error + 2 / tokens).all()


@pytest.mark.parametrize("blocks", [[np.full(6, 1 / 6) for _ in range(300)], [np.full(6, 1 / 6)] * 3000])
def test_any_experts_that_can_be_are_chosen_together(blocks):
    """The order of experts changes with their shares, and every few thousand tokens."""
    ids = draw(blocks, 20, 3, 0.0, 0.0, source(4))
    sets = Counter(frozenset(token) for block in ids.tolist() for token in block)
    assert set(sets) == {frozenset(one) for one in combinations(range(6), 3)}


def test_an_expert_without_a_share_is_never_chosen():
    shares = np.array([0.0, 0.3, 0.3, 0.0, 0.4])
    assert set(np.unique(draw([shares] * 20, 50, 2, 0.0, 0.0, source(1)))) == {1, 2, 4}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("by_token", "by_block"), [(0.3, 0.0), (0.0, 0.4), (0.3, 0.4), (0.6, 0.2)])
def test_both_kinds_of_stickiness_are_as_asked_together(by_token, by_block, seed):
    """A draw out of so many experts is told from any other, so that equal tokens are repeats."""
    ids = draw([np.full(400, 1 / 400)] * 40, 400, 8, by_token, by_block, source(seed))
    tokens = (ids[:, 1:] == ids[:, :-1]).all(-1)
    blocks = (ids[1:] == ids[:-1]).all(-1)
    # Every block is as sticky as the last: there is no time in which the stickiness sets in.
    for part in (slice(0, 8), slice(32, 40)):
        assert tokens[part].mean() == pytest.approx(by_token, abs=0.04)
    assert tokens.mean() == pytest.approx(by_token, abs=0.02)
    assert blocks.mean() == pytest.approx(by_block, abs=0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_stickiness_leaves_the_chances_as_they_are(seed):
    shares = filled(source(seed).dirichlet(np.full(20, 0.5)) + 1e-3, 3)
    ids = draw([shares] * 30, 1000, 3, 0.3, 0.3, source(seed + 9))
    found = np.bincount(ids.ravel(), minlength=20) / (30 * 1000)
    effective = 30 * 1000 * (0.7 / 1.3) ** 2
    error = np.sqrt(shares * 3 * (1 - shares * 3) / effective)
    assert np.abs((found - shares * 3) / np.maximum(error, 1e-6)).max() < 4.5


# ---- popularity ----


@given(shares_and_k(), st.floats(0, 1), st.integers(0, 99))
def test_exchanged_popularity_is_the_same_popularity(given, share, seed):
    weights, _ = given
    changed = exchanged(weights, share, source(seed))
    assert sorted(changed) == sorted(weights)
    assert (changed != weights).mean() <= share + 2 / len(weights)


def test_as_many_exchange_in_the_mean_as_asked():
    weights = np.arange(1.0, 161.0)
    found = [(exchanged(weights, 0.08, source(seed)) != weights).mean() for seed in range(400)]
    assert np.mean(found) == pytest.approx(0.08, abs=0.001)


@pytest.mark.parametrize("wanted", [1.0, 0.999, 0.95, 0.7, 0.4])
def test_a_like_popularity_has_the_cosine_that_is_asked(wanted):
    shares = np.array([0.22 / 8] * 8 + [0.7 / 40] * 40 + [0.08 / 112] * 112)
    changed = like(shares, wanted, source(3))
    assert cosine(shares, changed) == pytest.approx(wanted, abs=1e-9)
    assert changed.sum() == pytest.approx(1)
    assert (np.sort(changed) != np.sort(shares)).sum() <= 2


def test_a_cosine_below_the_least_possible_is_refused():
    with refused("range prefill_cosine"):
        like(np.array([0.4, 0.3, 0.3]), 0.1, source(1))


# ---- skewed ----


def shares_of(spec: str, model: str = "deepseek-v2", seed: int = 1) -> np.ndarray:
    """The popularity that a generator asks for, [layer, expert]."""
    from ndpsim.workload.routing.spec import RoutingShape

    shape, parsed = load_model(model), parse_spec(spec)
    layers = tuple(layer for layer in range(shape.layers) if layer not in shape.dense_layers)
    randoms = [source(seed + layer) for layer in layers]
    of = RoutingShape(shape.routed_experts, shape.experts_per_token, layers)
    return parsed.generator.shares(of, parsed.name, parsed.settings, frozenset(parsed.stated), randoms)


def test_skewed_has_the_classes_of_the_trimoe_paper():
    for row in shares_of("skewed"):
        ordered = np.sort(row)[::-1]
        assert [part.sum() for part in np.split(ordered, [8, 48])] == pytest.approx([0.22, 0.70, 0.08])
        assert len(np.unique(ordered.round(12))) == 3


def test_each_layer_has_popular_experts_of_its_own():
    hottest = [frozenset(np.argsort(-row)[:8]) for row in shares_of("skewed")]
    assert len(set(hottest)) == 59


def test_one_hot_expert_is_never_less_popular_than_a_warm_one():
    (row, *_) = shares_of("skewed", "mixtral-8x7b")  # 1 hot, 2 warm and 5 cold experts
    assert np.sort(row)[::-1] == pytest.approx([0.92 / 3] * 3 + [0.08 / 5] * 5)


def test_classes_that_are_given_and_cannot_be_are_refused():
    with refused("range routing skewed:hot_share, warm_share"):
        shares_of("skewed:hot_share=0.6,warm_share=0.3", "mixtral-8x7b")
    with refused("range routing skewed:hot_share, warm_share"):
        shares_of("skewed:hot_share=0.6,warm_share=0.5")
    with refused("range routing skewed:hot_experts, warm_experts"):
        shares_of("skewed:hot_experts=0.6,warm_experts=0.5")


# ---- counts and ranks ----


def test_counted_layers_have_their_counts():
    content = json.loads((BUNDLED / "olmoe-1b-7b.json").read_text())
    trace = generate_routing("popularity:olmoe-1b-7b:data=arxiv", batch=2000, steps=2)
    assert trace.layers == tuple(range(16))
    for row, layer in enumerate(content["layers"]):
        counts = np.array(content["counts"]["arxiv"][row])
        found = trace.loads(0, layer) + trace.loads(1, layer)
        chance = 8 * counts / counts.sum()
        error = np.sqrt(np.maximum(4000 * chance * (1 - chance), 1))
        assert np.abs((found - 4000 * chance) / error).max() < 4.5


def test_layers_that_were_not_counted_have_the_nearest_ones_counts_in_another_order():
    content = json.loads((BUNDLED / "mixtral-8x7b.json").read_text())
    shares = shares_of("popularity:mixtral-8x7b", "mixtral-8x7b")
    counted = np.array(content["counts"]["c4"]) / np.sum(content["counts"]["c4"], axis=1, keepdims=True)
    assert shares[[0, 7, 15]] == pytest.approx(counted)
    for layer, nearest in ((3, 0), (4, 1), (11, 1), (12, 2), (31, 2)):
        assert sorted(shares[layer]) == pytest.approx(sorted(counted[nearest]))
    assert len({tuple(row.round(9)) for row in shares}) > 25


def test_all_layers_of_mixtral_instruct_were_counted():
    content = json.loads((BUNDLED / "mixtral-8x7b-instruct.json").read_text())
    for data in ("high-school-biology", "machine-learning"):
        counts = np.array(content["counts"][data])
        shares = shares_of(f"popularity:mixtral-8x7b-instruct:data={data}", "mixtral-8x7b")
        assert shares == pytest.approx(counts / counts.sum(axis=1, keepdims=True))


def test_bundled_counts_say_where_they_are_from():
    for file in BUNDLED.glob("*.json"):
        assert "Apache-2.0" in json.loads(file.read_text())["source"]
    notice = (BUNDLED / "NOTICE").read_text()
    assert all(file.name in notice for file in BUNDLED.iterdir() if file.suffix in (".json", ".csv"))
    assert "Apache License" in (BUNDLED / "LICENSE-APACHE-2.0").read_text()


@pytest.mark.parametrize(
    ("spec", "model", "top_10", "next_30"),
    # Means over layers, as the source of the curve gives them for its own number of experts.
    [
        ("ranks:glm-4.5-air", "glm-4.5-air", 0.218, 0.366),
        ("ranks:glm-4.5-air:data=code", "glm-4.5-air", 0.227, 0.372),
        ("ranks:qwen3-235b-a22b", "qwen3-235b-a22b", 0.341, 0.446),
        ("ranks:qwen3-235b-a22b:data=code", "qwen3-235b-a22b", 0.359, 0.437),
    ],
)
def test_rank_curves_have_the_published_shares(spec, model, top_10, next_30):
    for row in shares_of(spec, model):
        ordered = np.sort(row)[::-1]
        assert ordered[:13].sum() == pytest.approx(top_10, abs=0.002)
        assert ordered[13:51].sum() == pytest.approx(next_30, abs=0.002)


def test_a_rank_curve_fits_any_number_of_experts():
    for row in shares_of("ranks:deepseek-v3:data=decode", "deepseek-v2"):
        ordered = np.sort(row)[::-1]
        assert ordered[:16].sum() == pytest.approx(0.2875, abs=0.002)
        assert (np.diff(ordered) <= 1e-12).all()


def test_counts_of_a_file_are_taken_as_bundled_ones(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"experts_per_token": 2, "layers": [1, 2], "counts": [[5, 3, 2], [1, 1, 2]]}))
    trace = generate_routing(f"popularity:{path}", batch=3000, steps=1)
    path.write_text(path.read_text().replace("experts_per_token", "top_k"))
    assert generate_routing(f"popularity:{path}", batch=3000, steps=1) == trace
    assert (trace.experts, trace.layers, trace.experts_per_token) == (3, (1, 2), 2)
    assert trace.loads(0, 1) / 6000 == pytest.approx([0.5, 0.3, 0.2], abs=0.02)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[", "form counts.json:1"),
        ("[[1, 2], [3]]", "form counts.json counts[1]"),
        ("[[1, -2]]", "range counts.json counts[0][1]"),
        ("[[1, 0.5]]", "range counts.json counts[0][1]"),
        ("[[0, 0]]", "invalid counts.json counts[0]"),
        ('{"counts": [[1, 2]], "layers": [1, 2]}', "form counts.json layers"),
        ('{"counts": [[1, 2]], "experts_per_token": "2"}', "range counts.json experts_per_token"),
        ('{"counts": [[1, 2]], "experts_per_token": 0}', "range counts.json experts_per_token"),
        ('{"counts": [[1, 2]], "layers": [1], "model_layers": 1}', "range counts.json model_layers"),
        ('{"count": [[1, 2]]}', "missing counts.json"),
        ('{"counts": {}}', "form counts.json counts"),
        (f"[{[1] * 8}]", "missing model"),
    ],
)
def test_counts_that_are_none_are_refused(content, words, tmp_path):
    path = tmp_path / "counts.json"
    path.write_text(content)
    with refused(words):
        generate_routing(f"popularity:{path}")


def test_counts_that_a_model_cannot_have_are_refused(tmp_path):
    path = tmp_path / "counts.json"
    path.write_text("[[9, 1, 1, 1, 1, 1, 1, 1]]")
    with refused("range counts.json"):
        generate_routing(f"popularity:{path}", "mixtral-8x7b")
    path.write_text("[[9, 0, 0, 0, 0, 0, 0, 0]]")
    with refused("range counts.json"):
        generate_routing(f"popularity:{path}", "mixtral-8x7b")
    with refused("conflict olmoe-1b-7b.json"):
        generate_routing("popularity:olmoe-1b-7b", "mixtral-8x7b")


# ---- traces ----


@pytest.mark.parametrize(
    "spec", ["skewed:token_stickiness=0.1,step_stickiness=0.2,step_drift=0.01", "ranks:deepseek-v3"]
)
def test_the_same_seed_gives_the_same_trace(spec):
    def trace(seed):
        return generate_routing(spec, "deepseek-v2-lite", batch=16, steps=3, prompt=4, seed=seed)

    assert trace(5) == trace(5)
    assert not np.array_equal(trace(5).ids, trace(6).ids)
    assert not np.array_equal(trace(5).prefill_ids, trace(6).prefill_ids)


def test_tokens_of_a_prompt_stick_and_prompts_do_not():
    prompts, tokens = 8, 200
    spec = "skewed:token_stickiness=0.5"
    trace = generate_routing(spec, "deepseek-v2-lite", batch=prompts, steps=1, prompt=tokens)
    ids = trace.prefill_ids.reshape(-1, prompts, tokens, 6)
    assert (ids[:, :, 1:] == ids[:, :, :-1]).all(-1).mean() == pytest.approx(0.5, abs=0.02)
    assert (ids[:, 1:] == ids[:, :-1]).all(-1).mean() < 0.01


def test_a_prefill_has_the_cosine_to_decode_that_is_asked():
    def loads(ids, layers):
        return [np.bincount(ids[row].ravel(), minlength=64).astype(float) for row in range(layers)]

    for asked in (1.0, 0.6):
        spec = f"skewed:prefill_cosine={asked}"
        trace = generate_routing(spec, "deepseek-v2-lite", batch=512, steps=8, prompt=8)
        layers = len(trace.layers)
        pairs = zip(loads(trace.prefill_ids, layers), loads(trace.ids.swapaxes(0, 1), layers), strict=True)
        assert np.mean([cosine(first, second) for first, second in pairs]) == pytest.approx(asked, abs=0.03)


def test_the_popularity_of_a_step_drifts_on_from_that_of_the_step_before(monkeypatch):
    """Each step exchanges the shares of eight pairs of 160 experts."""
    drawn = []

    def noted(shares, *arguments):
        drawn.append(shares)
        return draw(shares, *arguments)

    monkeypatch.setattr("ndpsim.workload.routing.generate.draw", noted)
    generate_routing("ranks:deepseek-v3:step_drift=0.1", "deepseek-v2", batch=1, steps=4)
    for first, *others in drawn:
        for before, after in zip([first, *others], others, strict=False):
            assert (before != after).sum() <= 16
    assert np.mean([(shares[0] != shares[3]).sum() for shares in drawn]) > 20


def test_a_trace_is_pinned_whatever_numpy_is_installed():
    trace = generate_routing(
        "skewed:step_stickiness=0.3", "deepseek-v2-lite", batch=4, steps=2, prompt=2, seed=7
    )
    assert trace.ids[1, 0].tolist() == PINNED
    assert int(trace.ids.sum(dtype=np.int64)) == PINNED_SUM
    assert int(trace.prefill_ids.sum(dtype=np.int64)) == PINNED_PREFILL


PINNED = [[18, 35, 14, 52, 40, 28], [9, 15, 48, 2, 40, 28], [9, 15, 53, 47, 40, 3], [9, 15, 48, 51, 29, 28]]
PINNED_SUM = 39479
PINNED_PREFILL = 40777


def test_dense_layers_have_no_choices():
    trace = generate_routing("skewed", "deepseek-v2", batch=2, steps=1)
    assert trace.layers == tuple(range(1, 60))


def test_the_offline_trace_has_the_popularity_but_for_the_drift():
    def loads(spec, offline):
        trace = generate_routing(spec, "deepseek-v2", batch=512, steps=8, offline=offline)
        return np.array([sum(trace.loads(step, layer) for step in range(8)) for layer in trace.layers], float)

    judged = loads("skewed", False)
    for share in (0.0, 0.08, 0.5):
        offline = loads(f"skewed:drift={share}", True)
        assert not np.array_equal(judged, offline)
        found = np.mean([cosine(one, other) for one, other in zip(judged, offline, strict=True)])
        concentration = 0.22**2 / 8 + 0.7**2 / 40 + 0.08**2 / 112
        by_chance = (1 / concentration - 1) / 159
        assert found == pytest.approx(1 - share * (1 - by_chance), abs=0.03)


def test_a_prompt_changes_nothing_in_decode():
    one, other = (generate_routing("skewed", "mixtral-8x7b", batch=4, steps=2, prompt=n) for n in (0, 5))
    assert np.array_equal(one.ids, other.ids)


def test_the_default_is_what_was_measured_of_a_model_else_skewed():
    defaults = {name: default_routing(load_model(name)) for name in model_names()}
    assert defaults["mixtral-8x7b"] == "popularity:mixtral-8x7b"
    assert defaults["glm-4.5-air"] == "ranks:glm-4.5-air"
    assert defaults["qwen3-235b-a22b"] == "ranks:qwen3-235b-a22b"
    assert defaults["deepseek-v2"] == "skewed"
    assert {parse_spec(spec).generator.name for spec in defaults.values()} == {
        "popularity",
        "ranks",
        "skewed",
    }


def test_a_spec_is_written_as_it_is_read():
    for text in ("skewed", "skewed:hot_share=0.3,drift=0.1", "ranks:glm-4.5-air:data=code,step_drift=0.01"):
        assert str(parse_spec(text)) == text
    assert {one.name for one in COMMON} <= set(parse_spec("skewed").settings)


@pytest.mark.parametrize("file", ["my:counts.json", "counts=2.json"])
@pytest.mark.parametrize("data", ["", "code"])
def test_a_file_in_a_spec_may_have_a_colon_or_an_equals_sign_in_its_name(file, data):
    spec = parse_spec(f"popularity:{file}" + (f":data={data}" if data else ""))
    assert (spec.name, spec.settings["data"]) == (file, data)


def test_a_layer_is_the_same_whatever_other_layers_there_are(tmp_path):
    for layers in ([0, 1, 2], [2]):
        content = {"experts_per_token": 2, "layers": layers, "counts": [[5, 3, 2, 4]] * len(layers)}
        (tmp_path / f"{len(layers)}.json").write_text(json.dumps(content))
    three, one = (
        generate_routing(f"popularity:{tmp_path}/{n}.json", batch=5, steps=2, prompt=2) for n in (3, 1)
    )
    assert np.array_equal(three.ids[:, 2], one.ids[:, 0])
    assert np.array_equal(three.prefill_ids[2], one.prefill_ids[0])


def test_memory_is_bounded_before_it_is_taken(monkeypatch):
    monkeypatch.setenv("NDPSIM_MEMORY_GIB", "0.005")
    with refused("too-large batch"):
        ndpsim.generate_routing("skewed", "deepseek-v2", batch=512, steps=16)
