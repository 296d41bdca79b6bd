"""Draws the choices of tokens: k distinct experts each, every expert with just the chance that is asked.

A token's k choices are a systematic sample (Madow, 1949): experts stand in random order on a line, each as long as
its chance, and the token takes those at u, u + 1, ..., u + k - 1 for one random u below 1. No chance is above 1, so
that no expert is met twice. Which experts are chosen together says nothing: the order is another in every block.

A token that repeats does so with all of its choices. What an expert gets over time is the same as if each choice
were repeated by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ndpsim.routing.popularity import UNIT, in_units, shuffled
from ndpsim.routing.trace import Ids

__all__ = ["draw"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
        tokens: of a block.
        token_stickiness: chance that a token repeats the one before it in its block.
        block_stickiness: chance that a token repeats that of the block before it.
    """
    drawn = np.empty((len(shares), tokens, experts_per_token), np.int16)
    chances, last = np.zeros(0, np.int64), None
    ahead = UNIT * np.arange(experts_per_token)
    for block, of_block in enumerate(shares):
        if of_block is not last:
            chances, last = in_units(of_block, experts_per_token), of_block
        order = shuffled(len(chances), random)
        points = (random.random(tokens) * UNIT).astype(np.int64)[:, None] + ahead
        drawn[block] = order[np.searchsorted(np.cumsum(chances[order]), points, side="right")]
    if token_stickiness == block_stickiness == 0:
        return drawn
    origins = _origins(len(shares), tokens, token_stickiness, block_stickiness, random)
    return drawn.reshape(-1, experts_per_token)[origins]


def _origins(
    blocks: int, tokens: int, token_stickiness: float, block_stickiness: float, random: np.random.Generator
) -> Ints:
    """Which draw each token has, counted over all blocks: [block, token].

    Tokens next to each other that share a draw are a run. From block to block whole runs stay or break up, and a
    token that is free repeats the one before it: so each of the two chances is just what was asked, in all blocks.
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
