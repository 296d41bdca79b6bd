"""The moving average of TriMoE's equation 8, a predictor of stated accuracy, and counts of predictions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ndpsim.policies.offline import descending, least_above, ranked_above
from ndpsim.policies.views import Floats, Ints, Scores, Shorts


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
        ranked: list[float] = least_above(*ranked_above(ids, scores), len(loads))[order[:count]].tolist()
        return tuple(ranked)

    def _order(self, loads: Ints) -> tuple[Ints, int]:
        """All experts, those with most tokens first, and the number of predicted ones."""
        return descending(loads), min(self.count, int(np.count_nonzero(loads)))
