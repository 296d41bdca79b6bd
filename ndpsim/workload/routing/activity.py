"""Numbers of experts that batches of tokens choose, and the accuracy of predicting loads.

The error is that of Student's distribution at 95% for the standard error of the jackknife, plus twice its
bias: sequences are in groups, each of which is omitted once (Efron and Tibshirani, An Introduction to the
Bootstrap, chapter 11). Neighbouring tokens are in the same group, since they are not independent. Bias
matters if experts are ranked by the same counts that are then added up: the most popular experts of a small
sample are partly so by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.reported import Figure, quantity
from ndpsim.base.units import PLUS_MINUS
from ndpsim.workload.routing.drawing import class_counts
from ndpsim.workload.routing.trace import Routing, loads_of

_GROUPS = 16
_FEWEST = 4


@dataclass(frozen=True)
class Estimate(Figure):
    """The mean of a value over layers.

    Attributes:
        value: the mean.
        error: error of the mean, within which are about 95 of 100 samples; None with too few sequences.
        least, most: the extremes over layers.
    """

    value: float
    error: float | None
    least: float
    most: float

    def in_unit(self, unit: str) -> str:
        """The value with its error: ``22.01% ± 0.06%``, ``0.301 ± 0.002``."""
        factor, form = (100, "z.2f") if unit == "%" else (1, "z.3f")
        numbers = (self.value,) if self.error is None else (self.value, self.error)
        return f" {PLUS_MINUS} ".join(f"{factor * number:{form}}{unit}" for number in numbers)


def _student(freedom: int) -> float:
    """The number of standard errors that contain 95% of samples (Abramowitz and Stegun 26.7.5, two terms)."""
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def groups_of(count: int) -> NDArray[np.int64]:
    """The group of each of `count` sequences, steps or tokens; a single group if they are too few."""
    groups = min(_GROUPS, count)
    return np.arange(count) * groups // count if groups >= _FEWEST else np.zeros(count, np.int64)


def left_out(by_group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums of [group, ...] over all groups, then over all but each one: [1 + groups, ...]."""
    total = by_group.sum(axis=0, keepdims=True)
    return np.concatenate([total, total - by_group]) if len(by_group) > 1 else total


def estimate(by_layer: NDArray[np.float64]) -> Estimate:
    """An estimate from values [layer, 1 + groups], with columns as from `left_out`."""
    whole, without = by_layer[:, 0], by_layer[:, 1:].mean(axis=0)
    groups, error = len(without), None
    value = float(whole.mean())
    if groups:
        bias = (groups - 1) * (float(without.mean()) - value)
        variance = (groups - 1) * float(without.var())
        error = _student(groups - 1) * variance**0.5 + 2 * abs(bias)
    return Estimate(value, error, float(whole.min()), float(whole.max()))


#: The weight of the last step in the moving average of the TriMoE paper, equation 8.
EMA = 0.3

_TOP_PAIRS = 0.1
_AT_ONCE = 1 << 26  # maximum bytes of a table of choices
_ONES = np.array([byte.bit_count() for byte in range(256)], np.uint8)  # in a byte


@dataclass(frozen=True)
class ActiveExperts:
    """Number of experts that `batch` tokens of a step choose together: mean, minimum and maximum."""

    batch: int
    mean: float
    least: int
    most: int


@dataclass(frozen=True)
class LoadPrediction:
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


@dataclass(frozen=True)
class CoActivation:
    """How concentrated the pairs of experts are that a token chooses together in a layer.

    Attributes:
        top_pairs: share of all pairs of choices that the most frequent 10% of the pairs of experts have.
        independent: the same share if one choice of each pair is replaced by that of another token: the
            popularity of experts alone, with the same chance of few samples.
    """

    top_pairs: Estimate = field(metadata=quantity("of the most frequent 10% of pairs", "%"))
    independent: Estimate = field(metadata=quantity("if choices were independent", "%"))


def co_activation(routing: Routing) -> CoActivation | None:
    """Experts that tokens choose together, in decode, else in prefill; None if a token has one expert."""
    by_layer: NDArray[np.int16] | None = routing.prefill_ids
    if routing.ids.size:
        by_layer = routing.ids.transpose(1, 0, 2, 3).reshape(len(routing.layers), -1, routing.ids.shape[-1])
    if by_layer is None or by_layer.shape[-1] < 2 or by_layer.shape[1] < 2:
        return None
    found = [
        [
            _top_pairs(chosen, other, routing.experts)
            for other in (chosen, np.roll(chosen, len(chosen) // 2, axis=0))
        ]
        for chosen in by_layer.astype(np.int64)
    ]
    shares = np.array(found)
    return CoActivation(*(estimate(shares[:, [which]]) for which in (0, 1)))


def _top_pairs(first: NDArray[np.int64], second: NDArray[np.int64], experts: int) -> float:
    """The share of the most frequent 10% of pairs of experts, of choices [token, k] in two columns."""
    one, two = np.triu_indices(first.shape[1], 1)
    low, high = np.minimum(first[:, one], second[:, two]), np.maximum(first[:, one], second[:, two])
    _, counts = np.unique((low * experts + high)[low != high], return_counts=True)
    top = max(1, round(_TOP_PAIRS * experts * (experts - 1) / 2))
    return float(np.sort(counts)[-top:].sum() / max(counts.sum(), 1))


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


def _tables(routing: Routing) -> Iterator[NDArray[np.uint8]]:
    """The experts of each token as bits, [step, token, byte], for some steps of a layer at a time."""
    steps = max(1, _AT_ONCE // (routing.batch * routing.experts))
    for row in range(len(routing.layers)):
        for first in range(0, routing.steps, steps):
            ids = routing.ids[first : first + steps, row]
            chosen = np.zeros((*ids.shape[:2], routing.experts), bool)
            np.put_along_axis(chosen, ids.astype(np.int64), True, axis=2)
            yield np.packbits(chosen, axis=2)


def _doubling(chosen: NDArray[np.uint8]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Active experts of each batch, by batch size; remaining tokens that fill no batch are omitted."""
    batch, size = chosen.shape[1], 1
    whole = _ONES[np.bitwise_or.reduce(chosen, axis=1)].sum(axis=1)
    while size < batch:
        yield size, _ONES[chosen].sum(axis=2)
        pairs = chosen[:, : chosen.shape[1] // 2 * 2]
        chosen = pairs[:, ::2] | pairs[:, 1::2]
        size *= 2
    yield batch, whole


def predicted(routing: Routing, weight: float = EMA) -> LoadPrediction | None:
    """Accuracy of the moving average for all steps but the first; None if there is only one step."""
    if routing.steps < 2:
        return None
    compared = []
    for row in range(len(routing.layers)):
        loads = loads_of(routing.ids[:, row], routing.experts).astype(np.float64)
        averages = loads[:-1].copy()
        for step in range(1, len(averages)):
            averages[step] = weight * loads[step] + (1 - weight) * averages[step - 1]
        compared.append(_compared(averages, loads[1:]))
    overlap, hot, classes = np.concatenate(compared, axis=1).mean(axis=1)
    return LoadPrediction(weight, float(overlap), float(hot), float(classes))


def _compared(averages: NDArray[np.float64], actual: NDArray[np.float64]) -> NDArray[np.float64]:
    """The three numbers of `LoadPrediction` for loads [step, expert]: [number, step]."""
    counts = class_counts(actual.shape[1])
    class_by_rank = np.repeat(np.arange(3), counts)[None]
    foretold, true = np.empty((2, *actual.shape), np.int64)
    for classes, loads in ((foretold, averages), (true, actual)):
        np.put_along_axis(classes, np.argsort(-loads, axis=1, kind="stable"), class_by_rank, axis=1)
    overlap = np.minimum(averages, actual).sum(axis=1) / actual.sum(axis=1)
    hot = ((foretold == 0) & (true == 0)).sum(axis=1) / counts[0]
    return np.stack([overlap, hot, (foretold == true).mean(axis=1)])
