"""Draws the choices of tokens: k distinct experts each, every expert with just the chance that is asked.

Experts stand in random order on a line that is k long, each as long as its chance, and a token takes one at
a random place in each of the k parts of length 1. An expert that reaches from one part into the next is taken
in one of them at most: where it was taken in the first, the place in the second lies beyond it, and otherwise
on it the more often, so that its chance stays what it is. (One draw a stratum, with units across borders:
Fuller, JRSS B 32, 1970.) Which experts are chosen together says nothing: the order is a new one every few
thousand tokens.

A token that repeats does so with all of its choices. What an expert gets over time is the same as if each
choice were repeated by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ndpsim.routing.shares import UNIT, in_units, shuffled
from ndpsim.routing.trace import Ids

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


_ONE_ORDER = 2048  # tokens


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
        shares: of the selections by expert, for each block; a block is a step of a batch, or a prompt.
        tokens: the number of tokens of a block.
        token_stickiness: chance that a token repeats the one before it in its block.
        block_stickiness: chance that a token repeats that of the block before it.
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
    """A place in each part of the line, [part, token], none on the expert taken in the part before."""
    borders = UNIT * np.arange(len(uniform))
    at_border = np.searchsorted(ends, borders, side="right")  # the expert that begins there, or reaches over
    beyond = ends[at_border] - borders
    before = borders - np.where(at_border > 0, ends[at_border - 1], 0)
    places = np.empty(uniform.shape, np.int64)
    places[0] = uniform[0] * UNIT
    for part in range(1, len(uniform)):
        size, left, draw = int(beyond[part]), UNIT - int(before[part]), uniform[part]
        if left == UNIT:  # none reaches over the border
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

    Tokens next to each other that share a draw are a run. From block to block a run stays as a whole or is
    drawn anew token by token, each of which may repeat the one before it. Both chances are then just what
    was asked, in every block.
    """
    repeats = random.random((blocks, tokens)) < token_stickiness
    repeats[:, 0] = False
    stays = random.random((blocks, tokens)) < block_stickiness  # of a run, what its first token says
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
