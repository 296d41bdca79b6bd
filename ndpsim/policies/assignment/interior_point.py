"""Linear programmes of shares: the prices of their rows, by an interior point method.

A programme has the least `costs` @ x with a column for each x >= 0. The entries of the columns times x add up
to `right` in each row. The first columns are in groups of the same size, the ways of something, and the x of
a group add up to its count. Any prices of the rows give a lower bound, by weak duality.

The method is Mehrotra's predictor-corrector (SIAM Journal on Optimization 2, 1992, p. 575). Groups have no
row in its system of equations: they are eliminated from it. Rows of a column, and of a group, are near each
other, so that the system is a band.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, kernel, outlined
from ndpsim.base.sums import product_sum

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_ROUNDS = 60
_GAP = 1e-8  # between the cost of x and what prices prove, as a share of the cost
_TO_EDGE = 0.99  # of the way to where a variable becomes 0
_ENDLESS = 1e128  # in place of a pivot that is 0 but for rounding: its price stays
_LEAST_PIVOT = 1e-30


@by_reference
class Programme(NamedTuple):
    """Columns one after the other, those of groups first."""

    first: Ints  # [column + 1]: of its entries
    rows: Ints  # [entry], ascending in each column
    uses: Floats  # [entry]
    costs: Floats  # [column]
    right: Floats  # [row]
    counts: Floats  # [group]
    ways: int  # columns of each group
    lowest: Ints  # [group]: of its rows


@by_reference
class Point(NamedTuple):
    """Variables of the programme and of its dual, or steps of them."""

    x: Floats  # [column]
    slack: Floats  # [column]: of its cost
    prices: Floats  # [row]
    values: Floats  # [group]


@by_reference
class Scratch(NamedTuple):
    """Arrays to work with: what is left of the equations, and their system."""

    short: Floats  # [row]
    missing: Floats  # [group]
    wrong: Floats  # [column]
    wanted: Floats  # [column]: by how much the product of x and slack is to grow
    band: Floats  # [row, entries from the diagonal on]
    means: Floats  # [group, its rows]
    sums: Floats  # [group]


class Search:
    """A search for the best prices.

    Args:
        height: rows that a column or a group spans, at most.
    """

    def __init__(self, programme: Programme, height: int) -> None:
        columns, rows, groups = (len(of) for of in (programme.costs, programme.right, programme.counts))
        self._programme = programme
        self._point, self._step = (
            Point(np.ones(columns), np.ones(columns), np.zeros(rows), np.zeros(groups)) for _ in range(2)
        )
        self._work = Scratch(
            np.zeros(rows), np.zeros(groups), np.zeros(columns), np.zeros(columns),
            np.zeros((rows, height)), np.zeros((groups, height)), np.zeros(groups),
        )  # fmt: skip

    def prices(self) -> Floats:
        """The prices of the rows when the search ends, at the latest after `_MOST_ROUNDS`."""
        self._begin()
        programme, point, step, work = self._programme, self._point, self._step, self._work
        for _ in range(_MOST_ROUNDS):
            products = point.x * point.slack
            total = float(products.sum())
            if total <= _GAP * abs(product_sum(programme.costs, point.x)):
                break
            work.short[:], work.missing[:] = programme.right, programme.counts
            measure(programme, point, work)
            weigh(programme, point, work)
            self._direct(-products)
            along, down = (min(1.0, one) for one in self._longest())
            left = product_sum(point.x + along * step.x, point.slack + down * step.slack)
            centre = (left / total) ** 3 * total / len(products)
            self._direct(centre - products - step.x * step.slack)
            along, down = (min(1.0, _TO_EDGE * one) for one in self._longest())
            if not np.isfinite(step.prices).all():
                break
            lengths = along, down, down, down
            for values, steps, length in zip(point, step, lengths, strict=True):
                values += length * steps
        return point.prices

    def _begin(self) -> None:
        """Mehrotra's first point: least squares of x, and of slacks, moved above 0."""
        programme, point, step, work = self._programme, self._point, self._step, self._work
        weigh(programme, point, work)
        work.short[:], work.missing[:] = programme.right, programme.counts
        self._direct(np.zeros(len(point.x)))
        x = step.x + max(0.0, -1.5 * float(step.x.min()))
        work.short[:], work.missing[:], work.wrong[:] = 0.0, 0.0, -programme.costs
        self._direct(np.zeros(len(point.x)))
        slack = step.slack + max(0.0, -1.5 * float(step.slack.min()))
        products = 0.5 * product_sum(x, slack)
        point.x[:], point.slack[:] = x + products / slack.sum(), slack + products / x.sum()
        point.prices[:], point.values[:] = step.prices, step.values

    def _direct(self, wanted: Floats) -> None:
        """Find the step after which products of x and slack have grown by what is wanted."""
        self._work.wanted[:] = wanted
        direct(self._programme, self._point, self._work, self._step)

    def _longest(self) -> list[float]:
        """The multiples of the step at which an x, and a slack, becomes 0."""
        pairs = (self._point.x, self._step.x), (self._point.slack, self._step.slack)
        return [1 / max(float((-steps / values).max()), 1e-300) for values, steps in pairs]


@kernel
def weigh(programme, point, work):
    """The system of equations at a point."""
    first, rows, uses, ways = programme.first, programme.rows, programme.uses, programme.ways
    band, means = work.band, work.means
    band[:] = 0.0
    means[:] = 0.0
    work.sums[:] = 0.0
    for at in range(len(point.x)):
        weight, group = point.x[at] / point.slack[at], at // ways
        for entry in range(first[at], first[at + 1]):
            row, weighted = rows[entry], weight * uses[entry]
            for other in range(entry, first[at + 1]):
                band[row, rows[other] - row] += weighted * uses[other]
            if group < len(work.sums):
                means[group, row - programme.lowest[group]] += weighted
        if group < len(work.sums):
            work.sums[group] += weight
    height = means.shape[1]
    for group in range(len(work.sums)):
        for place in range(height):
            share = means[group, place] / work.sums[group]
            if share != 0.0:
                row = programme.lowest[group] + place
                for other in range(place, height):
                    band[row, other - place] -= share * means[group, other]
    eliminate(band)


@outlined
def eliminate(band):
    """The triangular form of a symmetric band."""
    size, width = band.shape
    for row in range(size):
        if band[row, 0] < _LEAST_PIVOT:
            band[row, 0] = _ENDLESS
        for off in range(1, min(width, size - row)):
            share = band[row, off] / band[row, 0]
            if share != 0.0:
                for other in range(off, width):
                    band[row + off, other - off] -= share * band[row, other]


@outlined
def substitute(band, values):
    """Solve for values by the triangular form of a band, in their place."""
    size, width = band.shape
    for row in range(size):
        share = values[row] / band[row, 0]
        for off in range(1, min(width, size - row)):
            values[row + off] -= share * band[row, off]
    for row in range(size - 1, -1, -1):
        value = values[row]
        for off in range(1, min(width, size - row)):
            value -= band[row, off] * values[row + off]
        values[row] = value / band[row, 0]


@kernel
def measure(programme, point, work):
    """Take what a point has off the equations of `work`, and find what is wrong with its slacks."""
    first, rows, uses, ways = programme.first, programme.rows, programme.uses, programme.ways
    for at in range(len(point.x)):
        reduced, group = programme.costs[at] - point.slack[at], at // ways
        for entry in range(first[at], first[at + 1]):
            work.short[rows[entry]] -= uses[entry] * point.x[at]
            reduced += uses[entry] * point.prices[rows[entry]]
        if group < len(work.missing):
            work.missing[group] -= point.x[at]
            reduced -= point.values[group]
        work.wrong[at] = -reduced


@kernel
def direct(programme, point, work, step):
    """Newton's step from a point to where all equations hold."""
    first, rows, uses, ways = programme.first, programme.rows, programme.uses, programme.ways
    prices, values, means = step.prices, step.values, work.means
    groups, height = means.shape
    for row in range(len(prices)):
        prices[row] = -work.short[row]
    for group in range(groups):
        values[group] = work.missing[group]
    for at in range(len(point.x)):
        change = (work.wanted[at] + point.x[at] * work.wrong[at]) / point.slack[at]
        for entry in range(first[at], first[at + 1]):
            prices[rows[entry]] += uses[entry] * change
        if at // ways < groups:
            values[at // ways] -= change
    for group in range(groups):
        share = values[group] / work.sums[group]
        for place in range(height):
            if means[group, place] != 0.0:
                prices[programme.lowest[group] + place] += share * means[group, place]
    substitute(work.band, prices)
    for group in range(groups):
        value = values[group]
        for place in range(height):
            if means[group, place] != 0.0:
                value += means[group, place] * prices[programme.lowest[group] + place]
        values[group] = value / work.sums[group]
    for at in range(len(point.x)):
        change = -work.wrong[at]
        for entry in range(first[at], first[at + 1]):
            change += uses[entry] * prices[rows[entry]]
        if at // ways < groups:
            change -= values[at // ways]
        step.slack[at] = change
        step.x[at] = (work.wanted[at] - point.x[at] * change) / point.slack[at]
