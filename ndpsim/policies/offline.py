"""What a policy learns: statistics of an offline trace before the first step, and of the router's scores."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.policies.views import Flags, Floats, Ints, OfflineView, Scores, Shorts
from ndpsim.workload.routing.trace import loads_of


def mean_loads(view: OfflineView) -> Floats:
    """Mean number of tokens of each expert in a decode step of the run's batch: [layer, expert].

    For a trace without decode steps, the prefill's selections, scaled to the batch.
    """
    trace, experts = view.trace, view.machine.model.routed_experts
    rows = [trace.row(layer) for layer in view.machine.layers]
    if trace.ids.size:
        loads = loads_of(trace.ids[:, rows], experts).mean(axis=0)
        return np.asarray(loads * (view.batch / trace.batch))
    assert trace.prefill_ids is not None
    loads = loads_of(trace.prefill_ids[rows], experts)
    return np.asarray(loads * (view.batch / trace.prefill_tokens))


def following(view: OfflineView) -> Floats:
    """The share of expert f in the next layer's selections of tokens that chose expert e in a layer.

    [layer, e, f], with one layer less than the run has; 0 for experts that the trace never chose.
    """
    trace, choices, experts = view.trace, view.trace.experts, view.machine.model.routed_experts
    rows = [trace.row(layer) for layer in view.machine.layers]
    ids = trace.ids if trace.ids.size else trace.prefill_ids
    assert ids is not None
    shares = np.zeros((len(rows) - 1, experts, experts))
    for index, (row, later) in enumerate(itertools.pairwise(rows)):
        first = ids[..., row, :, :].reshape(-1, ids.shape[-1], 1).astype(np.int64)
        then = ids[..., later, :, :].reshape(-1, 1, ids.shape[-1])
        pairs = np.bincount((first * choices + then).ravel(), minlength=choices * choices)
        counts = pairs.reshape(choices, choices)
        of_all = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        shares[index] = of_all[:experts, :experts]
    return shares


def hottest(loads: Floats, count: int) -> Flags:
    """Flags [layer, expert] of the `count` experts with most tokens; ties go to the first."""
    flags = np.zeros(loads.size, np.bool_)
    flags[descending(loads.ravel())[: max(count, 0)]] = True
    return flags.reshape(loads.shape)


def hottest_of_each(loads: Floats, slots: Sequence[int]) -> Flags:
    """Flags [layer, expert] of the `slots` experts of each layer with most tokens; ties go to the first."""
    ranks = np.argsort(np.argsort(-loads, axis=1, kind="stable"), axis=1)
    return np.asarray(ranks < np.array(slots)[:, None])


def spread(work: Floats, dimms: int) -> Shorts:
    """DIMMs of a layer's experts: by work, most first, each goes to the DIMM with the least work so far.

    No DIMM gets more experts than in an equal division, so that all fit.
    """
    sums, counts = np.zeros(dimms), np.zeros(dimms, np.int64)
    most = -(-len(work) // dimms)
    chosen = np.empty(len(work), np.int16)
    for expert in descending(work).tolist():
        dimm = int(np.argmin(np.where(counts < most, sums, np.inf)))
        chosen[expert] = dimm
        sums[dimm] += work[expert]
        counts[dimm] += 1
    return chosen


def halves(view: OfflineView, most_layers: int) -> tuple[Floats, list[tuple[int, Ints]]]:
    """Mean loads of the first half of the offline trace's steps, and loads of some layers of the second half.

    Returns:
        Loads by row of `Machine.layers` and expert; rows with the loads of one step each, spread evenly, some
        `most_layers`. None of these where the trace has one step.
    """
    trace = view.trace
    if trace.steps < 2:
        return mean_loads(view), []
    rows = [trace.row(layer) for layer in view.machine.layers]
    experts = view.machine.model.routed_experts
    loads = loads_of(trace.ids[:, rows], experts)
    first, others = loads[: trace.steps // 2], loads[trace.steps // 2 :].reshape(-1, experts)
    chosen = range(0, len(others), max(1, len(others) // most_layers))
    return first.mean(axis=0), [(index % len(rows), others[index]) for index in chosen]


def descending(worth: NDArray[Any], among: Ints | None = None) -> Ints:
    """The numbers of experts, those with the largest worth first; of equal ones the first.

    among: only these experts; equal ones stay in order; None: all.
    """
    if among is None:
        return (-worth).argsort(kind="stable")
    return among[(-worth[among]).argsort(kind="stable")]


def score_sums(ids: Shorts, scores: NDArray[np.floating[Any]], experts: int) -> Floats:
    """The sum of each expert's scores over all tokens that chose it, [expert].

    ids, scores: of each token's choices, [token, k].
    """
    sums = np.bincount(ids.ravel().astype(np.int64), scores.ravel(), minlength=experts)
    return sums[:experts].astype(np.float64)


def ranked_above(ids: Shorts, scores: NDArray[np.floating[Any]] | None, experts: int) -> tuple[Ints, Floats]:
    """The expert of each choice of all tokens, and the share of the token's scores ranked above it.

    ids, scores: of each token's choices, [token, k]; without scores each choice weighs the same.
    experts: those with weights; choices of others are left out, but count among those above.
    """
    tokens, choices = ids.shape
    weights = np.full((tokens, choices), 1 / choices) if scores is None else scores.astype(np.float64)
    order = np.argsort(-weights, axis=1, kind="stable")
    ranked = np.take_along_axis(weights, order, axis=1)
    sums = ranked.sum(axis=1, keepdims=True)
    shares = np.divide(ranked, sums, out=np.full_like(ranked, 1 / choices), where=sums > 0)
    above = np.cumsum(shares, axis=1) - shares
    chosen = np.take_along_axis(ids, order, axis=1).ravel().astype(np.int64)
    return chosen[chosen < experts], above.ravel()[chosen < experts]


def least_above(chosen: Ints, above: Floats, experts: int) -> Floats:
    """The least share by expert that `ranked_above` has for its choices; infinite without any."""
    least = np.full(experts, np.inf)
    np.minimum.at(least, chosen, above)
    return least


# ---- The moving average of TriMoE's equation 8, a predictor of stated accuracy, and counts of predictions


class LoadPredictor:
    """An exponential moving average of each expert's load: EMA(t) = alpha F(t) + (1 - alpha) EMA(t - 1).

    `loads`: float32 [layer, expert], its whole state: 38.4 kB for 60 layers of 160 experts, the paper's 38
    KB.
    """

    def __init__(self, layers: int, experts: int, alpha: float) -> None:
        self.alpha = alpha
        self.loads = np.zeros((layers, experts), np.float32)

    def begin(self, loads: Floats) -> None:
        """EMA(0) of all layers."""
        self.loads[:] = loads

    def update(self, row: int, loads: Ints) -> None:
        """A step's loads of a layer."""
        average = self.loads[row]
        average += self.alpha * (loads - average)


@dataclass
class Predictions:
    """The number of predictions, and of right ones."""

    right: int = 0
    made: int = 0

    def add(self, right: int, made: int) -> None:
        """Add predictions and right ones."""
        self.right += right
        self.made += made

    @property
    def share(self) -> float | None:
        """The share of right predictions; None: there were none."""
        return self.right / self.made if self.made else None


@dataclass
class StatedPredictor:
    """Predicts the experts of the next layer with most tokens, with the accuracy that its paper measured.

    It represents predictors that need the model's weights. It predicts each of the `count` experts with most
    tokens with a probability of `accuracy`, and otherwise an expert that is none of them. The draw depends on
    `seed`, step and layer only.

    Attributes:
        ranks: it predicts scores, too; see `BackgroundView.predicted_above`.
        predictions: the number of predicted experts, and of right ones.
    """

    accuracy: float
    count: int
    seed: int = 0
    ranks: bool = False
    predictions: Predictions = field(default_factory=Predictions)

    def predict(self, loads: Ints, step: int, layer: int) -> tuple[int, ...]:
        """Experts, in the order of their predicted tokens.

        loads: tokens by expert of the layer that is predicted, `layer` of `step`.
        """
        order, count = self._order(loads)
        random = np.random.default_rng((self.seed, step, layer))
        right = random.random(count) < self.accuracy
        others = iter(random.permutation(order[count:]).tolist())
        predicted = [
            expert if found else next(others, expert)
            for expert, found in zip(order[:count].tolist(), right.tolist(), strict=True)
        ]
        self.predictions.add(len(set(predicted) & set(order[:count].tolist())), count)
        return tuple(predicted)

    def above(self, loads: Ints, ids: Shorts, scores: Scores | None) -> tuple[float, ...]:
        """The share of scores that rank above each expert of `predict`, or above the one that it replaces.

        ids, scores: of the layer that is predicted, [token, k].
        """
        if not self.ranks:
            return ()
        order, count = self._order(loads)
        chosen, above = ranked_above(ids, scores, len(loads))
        return tuple(least_above(chosen, above, len(loads))[order[:count]].tolist())

    def _order(self, loads: Ints) -> tuple[Ints, int]:
        """All experts, those with most tokens first, and the number of predicted ones."""
        return descending(loads), min(self.count, int(np.count_nonzero(loads)))
