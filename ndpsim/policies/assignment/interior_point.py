"""Linear programmes of shares: the prices of their rows, by an interior point method.

A programme has the least `costs` @ x with a column for each x >= 0. The entries of the columns times x add up
to `right` in each row. The first columns are in groups of the same size, the ways of something, and the x of
a group add up to its count. Any prices of the rows give a lower bound, by weak duality.

The method is Mehrotra's predictor-corrector (SIAM Journal on Optimization 2, 1992, p. 575). Groups have no
row in its system of equations: they are eliminated from it. Rows of a column, and of a group, are near each
other, so that the system is a band.

Eight groups whose first row is the same are a block, and are computed side by side: with any width of a
processor's vectors the sums have the same order. A block with fewer groups has some without entries beside
them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, inlined, instruction, kernel, outlined

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LANES = 8  # groups of a block
_MOST_ROUNDS = 60
_GAP = 1e-8  # between the cost of x and what prices prove, as a share of the cost
_TO_EDGE = 0.99  # of the way to where a variable becomes 0
_ENDLESS = 1e128  # in place of a pivot that is 0 but for rounding: its price stays
_LEAST_PIVOT = 1e-30


@by_reference
class Programme(NamedTuple):
    """Columns one after the other: of blocks, [block, way, lane], then others; see `programme_of`."""

    uses: Floats  # [block, entry, lane]
    way: Ints  # [entry], ascending
    row: Ints  # [entry]: from the first row of its block, ascending in each way
    lowest: Ints  # [block]: its first row, ascending
    counts: Floats  # [block, lane]
    ways: int
    costs: Floats  # [column]
    right: Floats  # [row]
    first: Ints  # [other column + 1]: of its entries
    rows: Ints  # [entry of others], ascending in each column
    other_uses: Floats  # [entry of others]


@by_reference
class Point(NamedTuple):
    """Variables of the programme and of its dual, or steps of them."""

    x: Floats  # [column]
    slack: Floats  # [column]: of its cost
    prices: Floats  # [row]
    values: Floats  # [block, lane]


@by_reference
class Scratch(NamedTuple):
    """Arrays to work with: what is left of the equations, and their system."""

    short: Floats  # [row]
    missing: Floats  # [block, lane]
    wrong: Floats  # [column]
    wanted: Floats  # [column]: by how much the product of x and slack is to grow
    shares: Floats  # [column]: 1 / slack
    begun: Floats  # [column]: the first x
    band: Floats  # [row, entries from the diagonal on], with room for a vector behind each row
    means: Floats  # [block, its rows, lane]
    of_sums: Floats  # [block, lane]: 1 / the sum of its weights
    system: Floats  # [its rows, its rows, lane]: of blocks with the same rows
    sums: Floats  # [its rows, lane]: the same
    scaled: Floats  # [its rows, lane]
    lanes: Floats  # [lane]
    weights: Floats  # [way, lane]
    products: Floats  # [entry, lane]
    height: int  # entries of a row of the band


def programme_of(
    rows: Ints,
    columns: Ints,
    uses: Floats,
    costs: Floats,
    right: Floats,
    counts: Floats,
    lowest: Ints,
    ways: int,
) -> Programme:
    """The programme of entries in any order.

    Args:
        costs: of each column. Those of groups come first, a group after the other, way by way.
        lowest: the first row of each group, ascending.
    """
    _, first, of_first = np.unique(lowest, return_index=True, return_counts=True)
    blocks = -(-of_first // _LANES)
    begins = np.cumsum(blocks) - blocks
    in_first = np.arange(len(lowest)) - np.repeat(first, of_first)
    block, lane = np.repeat(begins, of_first) + in_first // _LANES, in_first % _LANES
    count, groups = int(blocks.sum()), len(lowest)
    of_groups = columns < groups * ways
    group, way = np.divmod(columns[of_groups], ways)
    row = rows[of_groups] - lowest[group]
    most = int(row.max(initial=0)) + 1
    kinds, kind = np.unique(way * most + row, return_inverse=True)
    all_uses = np.zeros((count, len(kinds), _LANES))
    all_uses[block[group], kind.ravel(), lane[group]] = uses[of_groups]
    all_counts = np.full((count, _LANES), float(ways))  # what has no entries keeps its x of 1
    all_counts[block, lane] = counts
    of_block = np.zeros((count, ways, _LANES))
    of_block[block, :, lane] = costs[: groups * ways].reshape(groups, ways)
    other, rows, uses = columns[~of_groups] - groups * ways, rows[~of_groups], uses[~of_groups]
    order = np.lexsort((rows, other))
    of_other = np.bincount(other, minlength=len(costs) - groups * ways)
    return Programme(
        all_uses,
        kinds // most,
        kinds % most,
        np.repeat(lowest[first], blocks),
        all_counts,
        ways,
        np.append(of_block, costs[groups * ways :]),
        right,
        np.append(0, np.cumsum(of_other)),
        rows[order],
        uses[order],
    )


class Search:
    """A search for the best prices."""

    def __init__(self, programme: Programme) -> None:
        columns, rows, blocks = len(programme.costs), len(programme.right), len(programme.counts)
        of_block = int(programme.row.max(initial=0)) + 1
        first, last = programme.first[:-1], programme.first[1:] - 1
        spans = programme.rows[last] - programme.rows[first] + 1
        height = max(of_block, int(spans.max(initial=1)))
        self._programme = programme
        self._point, self._step = (
            Point(np.ones(columns), np.ones(columns), np.zeros(rows), np.zeros((blocks, _LANES)))
            for _ in range(2)
        )
        self._work = Scratch(
            short=np.zeros(rows),
            missing=np.zeros((blocks, _LANES)),
            wrong=np.zeros(columns),
            wanted=np.zeros(columns),
            shares=np.zeros(columns),
            begun=np.zeros(columns),
            band=np.zeros((rows + height, height + _LANES)),
            means=np.zeros((blocks, of_block, _LANES)),
            of_sums=np.zeros((blocks, _LANES)),
            system=np.zeros((of_block, of_block, _LANES)),
            sums=np.zeros((of_block, _LANES)),
            scaled=np.zeros((of_block, _LANES)),
            lanes=np.zeros(_LANES),
            weights=np.zeros((programme.ways, _LANES)),
            products=np.zeros((len(programme.way), _LANES)),
            height=height,
        )

    def prices(self) -> Floats:
        """The prices of the rows when the search ends, at the latest after `_MOST_ROUNDS`."""
        search(self._programme, self._point, self._step, self._work)
        return self._point.prices


# ---- Instructions on vectors: their places are counted over all of an array, and are not checked

_fields_of: Any = cgutils.create_struct_proxy  # Numba's functions have no types
_FORM, _HALF = ir.VectorType(ir.DoubleType(), _LANES), ir.IntType(32)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
    data = _fields_of(kind)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [place]), _FORM.as_pointer())


def _add(context: Any, builder: Any, kind: Any, values: Any, to: Any, factor: Any, vector: Any) -> Any:
    """Add the product of two vectors to one in memory."""
    to = _pointer(context, builder, kind, values, to)
    vector = builder.fmul(factor, builder.load(vector, align=8))
    builder.store(builder.fadd(builder.load(to, align=8), vector), to, align=8)
    return context.get_dummy_value()


def _add_products(values: Any, to: Any, one: Any, place: Any, other: Any, other_place: Any) -> None:
    product = one.reshape(-1)[place : place + _LANES] * other.reshape(-1)[other_place : other_place + _LANES]
    values.reshape(-1)[to : to + _LANES] += product


@instruction(_add_products)
def add_products(typing_context, values, to, one, place, other, other_place):
    """Add the products of a vector of `one` and a vector of `other` to a vector of `values`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds, (values, to, one, place, other, other_place) = signature.args, arguments
        factor = builder.load(_pointer(context, builder, kinds[2], one, place), align=8)
        other = _pointer(context, builder, kinds[4], other, other_place)
        return _add(context, builder, kinds[0], values, to, factor, other)

    return types.none(values, types.int64, one, types.int64, other, types.int64), generate


def _add_multiple(values: Any, to: Any, number: Any, other: Any, place: Any) -> None:
    values.reshape(-1)[to : to + _LANES] += number * other.reshape(-1)[place : place + _LANES]


@instruction(_add_multiple)
def add_multiple(typing_context, values, to, number, other, place):
    """Add a multiple of a vector of `other` to a vector of `values`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds, (values, to, number, other, place) = signature.args, arguments
        one = builder.insert_element(ir.Constant(_FORM, ir.Undefined), number, ir.Constant(_HALF, 0))
        places = ir.Constant(ir.VectorType(_HALF, _LANES), [0] * _LANES)
        factor = builder.shuffle_vector(one, one, places)
        other = _pointer(context, builder, kinds[3], other, place)
        return _add(context, builder, kinds[0], values, to, factor, other)

    return types.none(values, types.int64, types.float64, other, types.int64), generate


# ---- The search


@kernel
def search(programme, point, step, work):
    """Move the point, all of whose x and slacks are 1, to the best prices."""
    total, cost = begin(programme, point, step, work)
    for _ in range(_MOST_ROUNDS):
        if total <= _GAP * abs(cost):
            break
        weigh(programme, point, work)
        x_ends, slack_ends, of_x, of_slack, of_both = direct(programme, point, work, step, 0.0, 1.0, 0.0)
        along, down = min(1.0, 1.0 / x_ends), min(1.0, 1.0 / slack_ends)
        left = (total + along * of_x + down * of_slack + along * down * of_both) / total
        centre = left * left * left * total / len(point.x)
        x_ends, slack_ends, _, _, _ = direct(programme, point, work, step, centre, 1.0, 1.0)
        if not are_finite(step.prices):
            break
        along, down = min(1.0, _TO_EDGE / x_ends), min(1.0, _TO_EDGE / slack_ends)
        total, cost = move(programme, point, step, work, along, down)


@inlined
def are_finite(values):
    """Whether all are finite."""
    for value in values:
        if not abs(value) < np.inf:
            return False
    return True


@outlined
def begin(programme, point, step, work):
    """Mehrotra's first point: least squares of x, and of slacks, moved above 0.

    Returns:
        As `move`.
    """
    x, slack, begun, columns = point.x, point.slack, work.begun, len(point.x)
    weigh(programme, point, work)
    for row in range(len(work.short)):
        work.short[row] = programme.right[row]
    for block in range(len(work.missing)):
        for lane in range(_LANES):
            work.missing[block, lane] = programme.counts[block, lane]
    direct(programme, point, work, step, 0.0, 0.0, 0.0)
    least = 0.0
    for column in range(columns):
        begun[column] = step.x[column]
        least = min(least, begun[column])
        work.wrong[column] = -programme.costs[column]
    below, least = least, 0.0
    work.short[:] = 0.0
    work.missing[:] = 0.0
    direct(programme, point, work, step, 0.0, 0.0, 0.0)
    for column in range(columns):
        least = min(least, step.slack[column])
    products = sum_x = sum_slack = 0.0
    for column in range(columns):
        x[column], slack[column] = begun[column] - 1.5 * below, step.slack[column] - 1.5 * least
        sum_x += x[column]
        sum_slack += slack[column]
        products += x[column] * slack[column]
    for column in range(columns):
        x[column] += 0.5 * products / sum_slack
        slack[column] += 0.5 * products / sum_x
        step.slack[column] = 0.0
    return move(programme, point, step, work, 0.0, 1.0)


@outlined
def weigh(programme, point, work):
    """The system of equations at a point."""
    uses, way, row, ways, lowest = (
        programme.uses, programme.way, programme.row, programme.ways, programme.lowest,
    )  # fmt: skip
    x, shares, means, system, lanes = point.x, work.shares, work.means, work.system, work.lanes
    weights, products, band, entries, rows = work.weights, work.products, work.band, len(way), len(work.sums)
    blocks = len(lowest)
    band[:] = 0.0
    means[:] = 0.0
    for column in range(len(x)):
        shares[column] = 1.0 / point.slack[column]
    for block in range(blocks):
        columns, of_uses, of_means = _LANES * ways * block, _LANES * entries * block, _LANES * rows * block
        for lane in range(_LANES):
            total = 0.0
            for one in range(ways):
                column = columns + _LANES * one + lane
                weights[one, lane] = x[column] * shares[column]
                total += weights[one, lane]
            work.of_sums[block, lane] = 1.0 / total
            lanes[lane] = -1.0 / total
        products[:] = 0.0
        work.scaled[:] = 0.0
        for entry in range(entries):
            weight, used = _LANES * way[entry], of_uses + _LANES * entry
            add_products(products, _LANES * entry, weights, weight, uses, used)
            add_products(means, of_means + _LANES * row[entry], weights, weight, uses, used)
            before = entry
            while before >= 0 and way[before] == way[entry]:
                to = _LANES * (rows * row[before] + row[entry])
                add_products(system, to, products, _LANES * before, uses, used)
                before -= 1
        for place in range(rows):
            add_products(work.scaled, _LANES * place, means, of_means + _LANES * place, lanes, 0)
            for other in range(place, rows):
                to = _LANES * (rows * place + other)
                add_products(system, to, work.scaled, _LANES * place, means, of_means + _LANES * other)
        if is_last(lowest, block):
            for place in range(rows):
                for other in range(place, rows):
                    band[lowest[block] + place, other - place] += taken(system[place, other])
    for other in range(len(programme.first) - 1):
        column = _LANES * ways * blocks + other
        weight, last = x[column] * shares[column], programme.first[other + 1]
        for entry in range(programme.first[other], last):
            here, weighted = programme.rows[entry], weight * programme.other_uses[entry]
            for following in range(entry, last):
                there = programme.rows[following]
                band[here, there - here] += weighted * programme.other_uses[following]
    eliminate(band, work.height)


@inlined
def is_last(lowest, block):
    """Whether no block with the same rows follows."""
    return block + 1 == len(lowest) or lowest[block + 1] != lowest[block]


@inlined
def taken(lanes):
    """The sum of the numbers of a vector, which are 0 from then on."""
    total = 0.0
    for lane in range(_LANES):
        total += lanes[lane]
        lanes[lane] = 0.0
    return total


@outlined
def eliminate(band, height):
    """The triangular form of a symmetric band."""
    width = band.shape[1]
    for row in range(len(band) - height):
        if band[row, 0] < _LEAST_PIVOT:
            band[row, 0] = _ENDLESS
        of_pivot = 1.0 / band[row, 0]
        for off in range(1, height):
            share = band[row, off] * of_pivot
            if share != 0.0:
                for place in range(0, height - off, _LANES):
                    add_multiple(band, (row + off) * width + place, -share, band, row * width + off + place)


@inlined
def substitute(band, values, height):
    """Solve for values by the triangular form of a band, in their place."""
    size = len(values)
    for row in range(size):
        share = values[row] / band[row, 0]
        for off in range(1, min(height, size - row)):
            values[row + off] -= share * band[row, off]
    for row in range(size - 1, -1, -1):
        value = values[row]
        for off in range(1, min(height, size - row)):
            value -= band[row, off] * values[row + off]
        values[row] = value / band[row, 0]


@outlined
def direct(programme, point, work, step, centre, share, curvature):
    """Newton's step from a point to where all equations hold.

    The products of x and slack become `centre`, but for 1 - `share` of themselves, and less `curvature` times
    the product of the step before.

    Returns:
        1 / the multiples of the step at which an x, and a slack, becomes 0; the sums of the products of the
        step of x with slack, of x with the step of slack, and of both steps.
    """
    ways, lowest, blocks, rows = programme.ways, programme.lowest, len(programme.lowest), len(work.sums)
    x, slack, shares, prices, means = point.x, point.slack, work.shares, step.prices, work.means
    wanted, wrong, changes, values = work.wanted, work.wrong, step.slack, step.values
    for column in range(len(x)):
        second = curvature * step.x[column] * step.slack[column]
        wanted[column] = centre - share * x[column] * slack[column] - second
        step.x[column] = (wanted[column] + x[column] * wrong[column]) * shares[column]
    for number in range(len(prices)):
        prices[number] = -work.short[number]
    for block in range(blocks):
        columns = _LANES * ways * block
        for lane in range(_LANES):
            value = work.missing[block, lane]
            for one in range(ways):
                value -= step.x[columns + _LANES * one + lane]
            values[block, lane] = value
            work.lanes[lane] = value * work.of_sums[block, lane]
        add_uses(work.sums, programme, block, step.x)
        for place in range(rows):
            add_products(work.sums, _LANES * place, work.lanes, 0, means, _LANES * (rows * block + place))
        if is_last(lowest, block):
            for place in range(rows):
                prices[lowest[block] + place] += taken(work.sums[place])
    add_other_uses(prices, programme, step.x, 1.0)
    substitute(work.band, prices, work.height)
    for column in range(len(x)):
        changes[column] = -wrong[column]
    for block in range(blocks):
        for place in range(rows):
            price = prices[lowest[block] + place]
            add_multiple(values, _LANES * block, price, means, _LANES * (rows * block + place))
        for lane in range(_LANES):
            values[block, lane] *= work.of_sums[block, lane]
    add_prices(changes, programme, prices, values, 1.0)
    of_x = of_slack = of_both = 0.0
    x_ends = slack_ends = 1e-300
    for column in range(len(x)):
        change = changes[column]
        of_column = (wanted[column] - x[column] * change) * shares[column]
        step.x[column] = of_column
        if -of_column > x_ends * x[column]:
            x_ends = -of_column / x[column]
        if -change * shares[column] > slack_ends:
            slack_ends = -change * shares[column]
        of_x += of_column * slack[column]
        of_slack += change * x[column]
        of_both += change * of_column
    return x_ends, slack_ends, of_x, of_slack, of_both


@inlined
def add_uses(sums, programme, block, x):
    """Add the entries of a block times x to the sums of its rows."""
    entries = len(programme.way)
    for entry in range(entries):
        used = _LANES * (entries * block + entry)
        column = _LANES * (programme.ways * block + programme.way[entry])
        add_products(sums, _LANES * programme.row[entry], programme.uses, used, x, column)


@inlined
def add_other_uses(rows, programme, x, sign):
    """Add the entries of other columns times x to the rows."""
    before = _LANES * programme.ways * len(programme.lowest)
    for other in range(len(programme.first) - 1):
        for entry in range(programme.first[other], programme.first[other + 1]):
            rows[programme.rows[entry]] += sign * programme.other_uses[entry] * x[before + other]


@inlined
def add_prices(costs, programme, prices, values, sign):
    """Add prices of the entries of each column to its cost, and take off the value of its group."""
    way, ways, lowest, entries = programme.way, programme.ways, programme.lowest, len(programme.way)
    for block in range(len(lowest)):
        columns = _LANES * ways * block
        for one in range(ways):
            for lane in range(_LANES):
                costs[columns + _LANES * one + lane] -= sign * values[block, lane]
        for entry in range(entries):
            price, used = prices[lowest[block] + programme.row[entry]], _LANES * (entries * block + entry)
            add_multiple(costs, columns + _LANES * way[entry], sign * price, programme.uses, used)
    before = _LANES * ways * len(lowest)
    for other in range(len(programme.first) - 1):
        for entry in range(programme.first[other], programme.first[other + 1]):
            price = prices[programme.rows[entry]]
            costs[before + other] += sign * programme.other_uses[entry] * price


@outlined
def move(programme, point, step, work, along, down):
    """Move a point along a step, and find what is left of the equations there.

    Returns:
        The sum of the products of x and slack, and the cost of x.
    """
    costs, x, slack, prices, values = programme.costs, point.x, point.slack, point.prices, point.values
    short, missing, wrong, lowest = work.short, work.missing, work.wrong, programme.lowest
    blocks, ways = len(lowest), programme.ways
    for row in range(len(short)):
        prices[row] += down * step.prices[row]
        short[row] = programme.right[row]
    total = cost = 0.0
    for column in range(len(x)):
        x[column] += along * step.x[column]
        slack[column] += down * step.slack[column]
        total += x[column] * slack[column]
        cost += costs[column] * x[column]
        wrong[column] = slack[column] - costs[column]
    for block in range(blocks):
        for lane in range(_LANES):
            values[block, lane] += down * step.values[block, lane]
            left = programme.counts[block, lane]
            for one in range(ways):
                left -= x[_LANES * (ways * block + one) + lane]
            missing[block, lane] = left
        add_uses(work.sums, programme, block, x)
        if is_last(lowest, block):
            for place in range(len(work.sums)):
                short[lowest[block] + place] -= taken(work.sums[place])
    add_other_uses(short, programme, x, -1.0)
    add_prices(wrong, programme, prices, values, -1.0)
    return total, cost
