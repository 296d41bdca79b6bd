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

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ndpsim.routing.shares import UNIT, in_units, shuffled
from ndpsim.routing.trace import Ids

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


_ONE_ORDER = 2048  # tokens with the same order of experts


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
        chances = in_units(shares[first], experts_per_token)
        order = shuffled(len(chances), random)
        ends = np.cumsum(chances[order])
        places = _places(ends, random.random((experts_per_token, (last - first) * tokens)))
        chosen = order[np.searchsorted(ends, places, side="right")].T
        drawn[first:last] = chosen.reshape(last - first, tokens, experts_per_token)
        first = last
    if token_stickiness == block_stickiness == 0:
        return drawn
    origins = _origins(len(shares), tokens, token_stickiness, block_stickiness, random)
    return drawn.reshape(-1, experts_per_token)[origins]


def _places(ends: Ints, uniform: Floats) -> Ints:
    """A place in each part of the line, [part, token], never on the expert taken in the previous part."""
    borders = UNIT * np.arange(len(uniform))
    at_border = np.searchsorted(ends, borders, side="right")  # the expert at the border
    beyond = ends[at_border] - borders
    before = borders - np.where(at_border > 0, ends[at_border - 1], 0)
    places = np.empty(uniform.shape, np.int64)
    places[0] = uniform[0] * UNIT
    for part in range(1, len(uniform)):
        size, left, draw = int(beyond[part]), UNIT - int(before[part]), uniform[part]
        if left == UNIT:  # no expert extends over the border
            places[part] = draw * UNIT
            continue
        taken = places[part - 1] >= left
        rest = draw * left
        free = np.where(rest < size, rest, size + (rest - size) * (UNIT - size) / max(left - size, 1))
        places[part] = np.where(taken, size + draw * (UNIT - size), free)
    return np.minimum(places, UNIT - 1) + borders[:, None]


def _origins(
    blocks: int, tokens: int, token_stickiness: float, block_stickiness: float, random: np.random.Generator
) -> Ints:
    """The draw of each token, counted over all blocks: [block, token].

    Adjacent tokens that share a draw are a run. In the next block, a run stays whole or is drawn anew
    token by token, where each token may repeat the previous one. Both chances are then exactly as requested
    in every block.
    """
    repeats = random.random((blocks, tokens)) < token_stickiness
    repeats[:, 0] = False
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
