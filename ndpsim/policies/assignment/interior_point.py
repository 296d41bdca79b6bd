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

from ndpsim.base.arrays import product_sum
from ndpsim.base.jit import by_reference, inlined, kernel, outlined

Floats = NDArray[np.float64]
Places = NDArray[np.uint64]  # indices that Numba need not compare with 0

_MOST_ROUNDS = 60
_GAP = 1e-8  # between the cost of x and what prices prove, as a share of the cost
_TO_EDGE = 0.99  # of the way to where a variable becomes 0
_ENDLESS = 1e128  # in place of a pivot that is 0 but for rounding: its price stays
_LEAST_PIVOT = 1e-30


@by_reference
class Programme(NamedTuple):
    """Columns one after the other, those of groups first."""

    first: Places  # [column + 1]: of its entries
    rows: Places  # [entry], ascending in each column
    uses: Floats  # [entry]
    costs: Floats  # [column]
    right: Floats  # [row]
    counts: Floats  # [group]
    ways: int  # columns of each group
    lowest: Places  # [group]: of its rows


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
    shares: Floats  # [column]: 1 / slack


class Search:
    """A search for the best prices.

    Args:
        height: rows that a column spans, at most.
        of_group: rows that a group spans, at most.
    """

    def __init__(self, programme: Programme, height: int, of_group: int) -> None:
        columns, rows, groups = (
            len(values) for values in (programme.costs, programme.right, programme.counts)
        )
        self._programme = programme
        self._point, self._step = (
            Point(np.ones(columns), np.ones(columns), np.zeros(rows), np.zeros(groups)) for _ in range(2)
        )
        self._work = Scratch(
            np.zeros(rows), np.zeros(groups), np.zeros(columns), np.zeros(columns),
            np.zeros((rows, height)), np.zeros((groups, of_group)), np.zeros(groups),
            np.zeros(columns),
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
    first, rows, uses = programme.first, programme.rows, programme.uses
    ways, lowest, x, slack = programme.ways, programme.lowest, point.x, point.slack
    band, means, sums, shares = work.band, work.means, work.sums, work.shares
    band[:] = 0.0
    for column in range(len(x)):
        shares[column] = 1.0 / slack[column]
    for group in range(len(sums)):
        mean, base, total = means[group], lowest[group], 0.0
        mean[:] = 0.0
        for column in range(ways * group, ways * group + ways):
            weight = x[column] * shares[column]
            total += weight
            for entry in range(first[column], first[column + 1]):
                mean[rows[entry] - base] += weight * uses[entry]
            weigh_column(first[column], first[column + 1], rows, uses, weight, band)
        sums[group] = total
        for place in range(len(mean)):
            share = mean[place] / total
            if share != 0.0:
                above, below = mean[place:], band[base + place]
                for other in range(len(above)):
                    below[other] -= share * above[other]
    for column in range(ways * len(sums), len(x)):
        weigh_column(first[column], first[column + 1], rows, uses, x[column] * shares[column], band)
    eliminate(band)


@inlined
def weigh_column(begin, end, rows, uses, weight, band):
    """Add the products of a column's entries."""
    for entry in range(begin, end):
        row, lowest, weighted = band[rows[entry]], rows[entry], weight * uses[entry]
        for other in range(entry, end):
            row[rows[other] - lowest] += weighted * uses[other]


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
                above, below = band[row, off:], band[row + off]
                for place in range(len(above)):
                    below[place] -= share * above[place]


@outlined
def substitute(band, values):
    """Solve for values by the triangular form of a band, in their place."""
    size, width = band.shape
    for row in range(size):
        share, below = values[row] / band[row, 0], values[row:]
        for off in range(1, min(width, size - row)):
            below[off] -= share * band[row, off]
    for row in range(size - 1, -1, -1):
        value = values[row]
        for off in range(1, min(width, size - row)):
            value -= band[row, off] * values[row + off]
        values[row] = value / band[row, 0]


@kernel
def measure(programme, point, work):
    """Take what a point has off the equations of `work`, and find what is wrong with its slacks."""
    first, rows, uses, ways = programme.first, programme.rows, programme.uses, programme.ways
    costs, x, slack, prices = programme.costs, point.x, point.slack, point.prices
    short, missing, wrong = work.short, work.missing, work.wrong
    for column in range(len(x)):
        reduced = costs[column] - slack[column]
        for entry in range(first[column], first[column + 1]):
            short[rows[entry]] -= uses[entry] * x[column]
            reduced += uses[entry] * prices[rows[entry]]
        wrong[column] = -reduced
    for group in range(len(missing)):
        for column in range(ways * group, ways * group + ways):
            missing[group] -= x[column]
            wrong[column] += point.values[group]


@kernel
def direct(programme, point, work, step):
    """Newton's step from a point to where all equations hold."""
    first, rows, uses, ways = programme.first, programme.rows, programme.uses, programme.ways
    lowest, prices, values, x, slack = programme.lowest, step.prices, step.values, step.x, step.slack
    means, sums, shares, wanted, wrong = work.means, work.sums, work.shares, work.wanted, work.wrong
    for row in range(len(prices)):
        prices[row] = -work.short[row]
    for column in range(len(x)):
        change = (wanted[column] + point.x[column] * wrong[column]) * shares[column]
        x[column] = change
        for entry in range(first[column], first[column + 1]):
            prices[rows[entry]] += uses[entry] * change
    for group in range(len(values)):
        value = work.missing[group]
        for column in range(ways * group, ways * group + ways):
            value -= x[column]
        values[group], share, of_rows = value, value / sums[group], prices[lowest[group] :]
        for place in range(means.shape[1]):
            of_rows[place] += share * means[group, place]
    substitute(work.band, prices)
    for column in range(len(x)):
        change = -wrong[column]
        for entry in range(first[column], first[column + 1]):
            change += uses[entry] * prices[rows[entry]]
        slack[column] = change
    for group in range(len(values)):
        value, of_rows = values[group], prices[lowest[group] :]
        for place in range(means.shape[1]):
            value += means[group, place] * of_rows[place]
        values[group] = value / sums[group]
        for column in range(ways * group, ways * group + ways):
            slack[column] -= values[group]
    for column in range(len(x)):
        x[column] = (wanted[column] - point.x[column] * slack[column]) * shares[column]
