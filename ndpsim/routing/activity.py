"""Numbers of experts that batches of tokens choose, and the accuracy of predicting loads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ndpsim.reported import quantity
from ndpsim.routing.shares import class_counts
from ndpsim.routing.trace import Routing, loads_of

#: The weight of the last step in the moving average of the TriMoE paper, equation 8.
EMA = 0.3

_AT_ONCE = 1 << 26  # maximum bytes of a table of choices


@dataclass(frozen=True)
class ActiveExperts:
    """Number of experts that `batch` tokens of a step choose together: mean, minimum and maximum."""

    batch: int
    mean: float
    least: int
    most: int


@dataclass(frozen=True)
class Prediction:
    """Accuracy of predicting a layer's loads in a step by a moving average over earlier steps.

    Attributes:
        weight: weight of the last step in the average.
        load_overlap: share of the selections that were predicted for their expert.
        hot_found: share of the 5% most chosen experts that are among the 5% with the highest average.
        class_accuracy: share of experts with a correctly predicted class: hot (5%), warm (25%) or cold.
    """

    weight: float = field(metadata=quantity("weight of the last step"))
    load_overlap: float = field(metadata=quantity("selections foretold", "%"))
    hot_found: float = field(metadata=quantity("hot experts found", "%"))
    class_accuracy: float = field(metadata=quantity("experts in the right class", "%"))


def active_by_batch(routing: Routing) -> tuple[ActiveExperts, ...]:
    """Active experts of batches of 1, 2, 4, ... neighbouring tokens of a step, and of all its tokens."""
    if not routing.ids.size:
        return ()
    sums: dict[int, list[float]] = {}
    for chosen in _tables(routing):
        for size, active in _doubling(chosen):
            total = sums.setdefault(size, [0.0, 0.0, float("inf"), 0.0])
            total[0] += float(active.sum())
            total[1] += active.size
            total[2] = min(total[2], float(active.min()))
            total[3] = max(total[3], float(active.max()))
    return tuple(
        ActiveExperts(size, total / count, int(least), int(most))
        for size, (total, count, least, most) in sorted(sums.items())
    )


def _tables(routing: Routing) -> Iterator[NDArray[np.bool_]]:
    """Whether a token chose an expert, [step, token, expert], for some steps of a layer at a time."""
    together = max(1, _AT_ONCE // (routing.batch * routing.experts))
    for row in range(len(routing.layers)):
        for first in range(0, routing.steps, together):
            ids = routing.ids[first : first + together, row]
            chosen = np.zeros((*ids.shape[:2], routing.experts), bool)
            np.put_along_axis(chosen, ids.astype(np.int64), True, axis=2)
            yield chosen


def _doubling(chosen: NDArray[np.bool_]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Active experts of each batch, by batch size; remaining tokens that fill no batch are omitted."""
    batch, size = chosen.shape[1], 1
    of_all = chosen.any(axis=1).sum(axis=1)
    while size < batch:
        yield size, chosen.sum(axis=2)
        pairs = chosen[:, : chosen.shape[1] // 2 * 2]
        chosen = pairs[:, ::2] | pairs[:, 1::2]
        size *= 2
    yield batch, of_all


def predicted(routing: Routing, weight: float = EMA) -> Prediction | None:
    """Accuracy of the moving average for all steps but the first; None if there is only one step."""
    if routing.steps < 2:
        return None
    found = []
    for row in range(len(routing.layers)):
        loads = loads_of(routing.ids[:, row], routing.experts).astype(np.float64)
        average = loads[0]
        for actual in loads[1:]:
            found.append(_compared(average, actual))
            average = weight * actual + (1 - weight) * average
    overlap, hot, classes = np.mean(found, axis=0)
    return Prediction(weight, float(overlap), float(hot), float(classes))


def _compared(average: NDArray[np.float64], actual: NDArray[np.float64]) -> tuple[float, float, float]:
    counts = class_counts(len(actual))
    of_rank = np.repeat(np.arange(3), counts)
    foretold, true = np.empty((2, len(actual)), np.int64)
    foretold[np.argsort(-average, kind="stable")] = of_rank
    true[np.argsort(-actual, kind="stable")] = of_rank
    hot = float((foretold[true == 0] == 0).mean())
    return float(np.minimum(average, actual).sum() / actual.sum()), hot, float((foretold == true).mean())
