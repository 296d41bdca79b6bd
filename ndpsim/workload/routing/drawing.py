"""Draws the choices of tokens: k distinct experts each, where every expert has exactly the requested chance.

Experts are in random order on a line of length k, on which the length of an expert is its chance. A token
takes the expert at a random place in each of the k parts of length 1. An expert that extends over the border
of two parts is taken at most once: if it was taken in the first part, the place in the second is after it;
otherwise the place in the second is on it more often, so that its chance stays the same. (This is one draw
from each stratum, with units across borders: Fuller, JRSS B 32, 1970.) The order changes every few thousand
tokens, so that no experts tend to be chosen together.

A token that repeats another repeats all its choices. The load of an expert over time is the same as if each
choice were repeated independently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arrays import product_sum
from ndpsim.base.errors import InputError
from ndpsim.base.jit import inlined, kernel
from ndpsim.workload.routing.trace import Ids

# ---- Popularity of experts: limited to possible shares, changed by exchange, or with a given cosine


UNIT_BITS = 32
#: Chance 1 to be chosen by a token; chances are whole numbers of 1 / UNIT, so that sums are exact.
UNIT = 1 << UNIT_BITS


def class_counts(experts: int, first: float = 0.05, second: float = 0.25) -> tuple[int, int, int]:
    """Numbers of experts in three classes, from shares: at least one in the first, the rest in the third."""
    hot = min(max(1, round(first * experts)), experts)
    warm = min(round(second * experts), experts - hot)
    return hot, warm, experts - hot - warm


def shuffled(count: int, random: np.random.Generator) -> Ints:
    """The numbers below `count` in random order."""
    return np.argsort(random.random(count), kind="stable")


def filled(shares: Floats, experts_per_token: int) -> Floats:
    """Shares of a layer, limited to 1/k: any excess is spread over the others in proportion.

    Raises:
        InputError: fewer than k experts have a share above 0.
    """
    shares = shares / shares.sum()
    limit = 1 / experts_per_token
    full = np.zeros(len(shares), bool)
    while (over := (shares > limit * (1 + 1e-12)) & ~full).any():
        full |= over
        others = shares[~full].sum()
        if others <= 0:
            problem = (
                f"{np.count_nonzero(shares)} experts have a share, and a token chooses {experts_per_token}"
            )
            raise InputError(problem, "range", key="routing")
        shares = np.where(full, limit, shares * ((1 - limit * full.sum()) / others))
    return shares


def in_units(shares: Floats, experts_per_token: int) -> Ints:
    """The chance of each expert to be among a token's k: whole numbers that add up to k `UNIT`s."""
    wanted = np.minimum(shares * experts_per_token, 1.0) * UNIT
    chances = wanted.astype(np.int64)
    missing = experts_per_token * UNIT - int(chances.sum())
    for expert in np.argsort(chances - wanted, kind="stable"):  # the most rounded down first
        if missing == 0:
            break
        added = int(np.clip(missing, -chances[expert], UNIT - chances[expert])) if wanted[expert] else 0
        chances[expert] += added
        missing -= added
    return chances


def exchanged(shares: Floats, share_of_experts: float, random: np.random.Generator) -> Floats:
    """Shares of a layer after random pairs of experts, on average this share of all, exchange theirs."""
    pairs = int(share_of_experts * len(shares) / 2 + random.random())
    order = shuffled(len(shares), random)[: 2 * min(pairs, len(shares) // 2)]
    changed = shares.copy()
    changed[order] = shares[order.reshape(-1, 2)[:, ::-1].ravel()]
    return changed


def cosine(first: Floats, second: Floats) -> float:
    """The cosine of the angle between two vectors."""
    product = product_sum(first, first) * product_sum(second, second)
    return product_sum(first, second) / math.sqrt(product)


def like(shares: Floats, wanted: float, random: np.random.Generator) -> Floats:
    """Shares of a layer whose cosine with `shares` is `wanted`: pairs exchange shares, the last pair in part.

    The most popular expert pairs with the least popular, and so on; which pairs exchange is random.

    Raises:
        InputError: even with all pairs exchanged the cosine is larger.
    """
    if wanted >= 1:
        return shares
    order = np.argsort(-shares, kind="stable")
    pairs = np.stack([order, order[::-1]], axis=1)[: len(shares) // 2]
    changed = shares.copy()
    for popular, rare in pairs[shuffled(len(pairs), random)]:
        if cosine(shares, changed) <= wanted:
            return changed
        before = changed.copy()
        changed[[popular, rare]] = shares[[rare, popular]]
        if cosine(shares, changed) < wanted:
            return _between(shares, before, changed, wanted)
    least = cosine(shares, changed)
    if least > wanted + 1e-9:
        problem = f"{wanted:g} is below {least:.3f}, the least that a popularity of these shares can have"
        raise InputError(problem, "range", key="prefill_cosine")
    return changed


def _between(shares: Floats, above: Floats, below: Floats, wanted: float) -> Floats:
    """The point between `above` and `below` whose cosine is `wanted`, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if cosine(shares, above + middle * (below - above)) > wanted:
            low = middle
        else:
            high = middle
    return above + low * (below - above)


# ---- Distinct experts of tokens, from random numbers; `ndpsim.workload.routing.drawing` has the method


class LineTables(NamedTuple):
    """Lines of experts, whose parts are 2 ** `unit_bits` long, and cells of them 2 ** `cell_bits`."""

    first: NDArray[np.int16]  # [layer, line, cell]: the expert that begins at each cell, or reaches into it
    ends: NDArray[np.int64]  # [layer, line, expert]: of experts on the line
    order: NDArray[np.int16]  # [layer, line, index]: the experts of a line in their order
    unit_bits: int
    cell_bits: int


@inlined
def mix(number):
    """A pseudorandom number: see `ndpsim.workload.routing.sequences.mixed`."""
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@inlined
def choose_of_token(draws, lines, layer, line, token, ids):
    """Fill the experts of a token in a layer, for a number from 0 to below 1 of each part."""
    unit, unit_bits, cell_bits, previous = 1 << lines.unit_bits, lines.unit_bits, lines.cell_bits, 0
    first, ends, order = lines.first[layer, line], lines.ends[layer, line], lines.order[layer, line]
    chosen = ids[layer, token]
    for part in range(len(draws)):
        border = part << unit_bits
        low = np.uint64(first[border >> cell_bits])
        size = ends[low] - border
        left = unit
        if low > 0:
            left = unit - (border - ends[low - np.uint64(1)])
        draw = draws[part]
        if left == unit:
            point = int(draw * unit)
        elif previous >= left:
            point = int(size + draw * (unit - size))
        else:
            rest = draw * left
            if rest >= size:
                rest = size + (rest - size) * (unit - size) / max(left - size, 1)
            point = int(rest)
        point = min(point, unit - 1)
        previous = point
        low = np.uint64(first[(border + point) >> cell_bits])
        while ends[low] <= border + point:
            low += np.uint64(1)
        chosen[part] = order[low]


@kernel
def choose(uniform, lines_of_tokens, lines, draws, ids):
    """Fill `ids` [layer, token, part] with distinct experts.

    Args:
        uniform: numbers from 0 to below 1, [layer, token, part].
        lines_of_tokens: which of a layer's lines each token has, [layer, token].
        lines: `LineTables`.
        draws: [part], to work with.
    """
    layers, tokens, parts = uniform.shape
    for layer in range(layers):
        for token in range(tokens):
            for part in range(parts):
                draws[part] = uniform[layer, token, part]
            choose_of_token(draws, lines, layer, lines_of_tokens[layer, token], token, ids)


@kernel
def choose_by_numbers(numbers, step, lines, draws, ids):
    """As `choose`, from a random number of each token in each layer.

    Args:
        numbers: [layer, token]; a token has one of the layer's lines by its number.
        step: between the numbers that are mixed for two parts.
        lines: `LineTables`.
        draws: [part], to work with.
    """
    layers, tokens, parts = ids.shape
    count = np.uint64(lines.ends.shape[1])
    for layer in range(layers):
        for token in range(tokens):
            number = numbers[layer, token]
            for part in range(parts):
                mixed = mix(number + np.uint64(part + 1) * step)
                draws[part] = float(mixed >> np.uint64(11)) * 2.0**-53
            choose_of_token(draws, lines, layer, int(number % count), token, ids)


# ---- Choices of tokens: k distinct experts each, every expert with exactly the requested chance


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CELL_BITS = UNIT_BITS - 7  # a search begins at the start of a cell, and seldom goes on
_ONE_ORDER = 2048  # tokens with the same order of experts


class Lines:
    """Lines with the experts of each layer, on which the length of an expert is its chance.

    Args:
        layers: the number of layers.
        lines: the number of lines of each layer; `set` fills each of them.
        experts, experts_per_token: of the model.
    """

    def __init__(self, layers: int, lines: int, experts: int, experts_per_token: int) -> None:
        self._order = np.empty((layers, lines, experts), np.int16)
        self._ends = np.empty((layers, lines, experts), np.int64)
        self._cells = np.arange(0, experts_per_token << UNIT_BITS, 1 << _CELL_BITS)
        self._first = np.empty((layers, lines, len(self._cells)), np.int16)
        self._tables = LineTables(self._first, self._ends, self._order, UNIT_BITS, _CELL_BITS)
        self._choices = experts_per_token

    def set(self, layer: int, line: int, order: Ints, chances: Ints) -> None:
        """Fill a line with all experts in this order; `chances`: of each expert, in parts of `UNIT`."""
        ends = np.cumsum(chances[order])
        self._order[layer, line], self._ends[layer, line] = order, ends
        self._first[layer, line] = np.searchsorted(ends, self._cells, side="right")

    def chosen(self, uniform: Floats, line: Ints) -> Ids:
        """The experts of tokens: int16 [layer, token, k].

        Args:
            uniform: numbers from 0 to below 1, [layer, token, k].
            line: which of a layer's lines each token has, [layer, token].
        """
        ids = np.empty(uniform.shape, np.int16)
        choose(uniform, line, self._tables, np.empty(uniform.shape[2]), ids)
        return ids

    def chosen_by_numbers(self, numbers: NDArray[np.uint64], step: np.uint64) -> Ids:
        """As `chosen`, from a random number of each token in each layer, [layer, token].

        step: between the numbers that are mixed for two choices.
        """
        ids = np.empty((*numbers.shape, self._choices), np.int16)
        choose_by_numbers(numbers, step, self._tables, np.empty(self._choices), ids)
        return ids


def draw(
    shares: Sequence[Floats],
    tokens: int,
    experts_per_token: int,
    token_stickiness: float,
    block_stickiness: float,
    random: np.random.Generator,
) -> Ids:
    """The experts of the tokens of a layer: int16 [block, token, k].

    Args:
        shares: shares of the selections by expert, for each block; a block is a step of a batch, or a prompt.
        tokens: the number of tokens of a block.
        token_stickiness: chance that a token repeats the previous one in its block.
        block_stickiness: chance that a token repeats the one at its place in the previous block.
    """
    drawn = np.empty((len(shares), tokens, experts_per_token), np.int16)
    first = 0
    while first < len(shares):
        last = first + 1
        while last < len(shares) and (last - first) * tokens < _ONE_ORDER and shares[last] is shares[first]:
            last += 1
        line = Lines(1, 1, len(shares[first]), experts_per_token)
        line.set(0, 0, shuffled(len(shares[first]), random), in_units(shares[first], experts_per_token))
        uniform = random.random((experts_per_token, (last - first) * tokens)).T
        chosen = line.chosen(np.ascontiguousarray(uniform)[None], np.zeros((1, len(uniform)), np.int64))
        drawn[first:last] = chosen.reshape(last - first, tokens, experts_per_token)
        first = last
    if token_stickiness == block_stickiness == 0:
        return drawn
    origins = _origins(len(shares), tokens, token_stickiness, block_stickiness, random)
    return drawn.reshape(-1, experts_per_token)[origins]


def _origins(
    blocks: int, tokens: int, token_stickiness: float, block_stickiness: float, random: np.random.Generator
) -> Ints:
    """The draw of each token, counted over all blocks: [block, token].

    Adjacent tokens that share a draw are a run. In the next block, a run stays whole or is drawn anew
    token by token, where each token may repeat the previous one. Both chances are then exactly as requested
    in every block.
    """
    repeats = random.random((blocks, tokens)) < token_stickiness
    stays = random.random((blocks, tokens)) < block_stickiness  # the first token of a run decides for it
    number = np.arange(tokens)
    origins = np.empty((blocks, tokens), np.int64)
    begins = ~repeats[0]
    first = np.maximum.accumulate(np.where(begins, number, 0))
    origins[0] = first
    for block in range(1, blocks):
        stayed = stays[block][first]
        begins = np.where(stayed, begins, ~repeats[block])
        first = np.maximum.accumulate(np.where(begins, number, 0))
        origins[block] = np.where(stayed, origins[block - 1], block * tokens + number)[first]
    return origins
