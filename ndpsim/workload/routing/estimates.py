"""Values with their sampling error, the expected difference to another sample from the same source of tokens.

The error is that of Student's distribution at 95% for the standard error of the jackknife, plus twice its
bias: sequences are in groups, each of which is omitted once (Efron and Tibshirani, An Introduction to the
Bootstrap, chapter 11). Neighbouring tokens are in the same group, since they are not independent. Bias
matters if experts are ranked by the same counts that are then added up: the most popular experts of a small
sample are partly so by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.reported import Figure
from ndpsim.base.units import PLUS_MINUS

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
