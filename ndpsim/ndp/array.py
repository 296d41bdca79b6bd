"""A systolic array, cycle by cycle: `rows` x `columns` processing elements that pass values to neighbours.

An array multiplies *tiles*: activations of up to `rows` (output-stationary) or any number of
(weight-stationary) tokens by the weights of up to `columns` outputs. Values enter at the edges in *steps*
and move one element a cycle; what enters row r or column c waits r or c cycles before, so that what belongs
together meets. A step enters when it is there and the array has room; elements that have nothing do nothing.

Output-stationary: a step is the weights of every column for one input, and that input of every token.
Weights move down, activations to the right, and element (r, c) sums token r's output c. When the last step
of a tile has passed its last element, the sums move down and out, one row a cycle. With one register an
array works off a tile, drains it and only then takes the next. With two, each element lays its sum aside
and the sums of a column leave while the next tile is under way; the last steps of two tiles are therefore
at least `rows` cycles apart.

Weight-stationary: a step is a row of weights, or `load_rows` of them at once, each into its own part of the
rows. They move down until each is where it stays. Then tokens pass: activations to the right, sums down and
out. With one register the next tile is loaded when the last sum is out. With two, its weights move into
place behind the first token of the tile under way, and its tokens follow as soon as they are there.

Cycles are counted from 0; a thing is *known* at the end of its cycle, so at the count of cycles until then.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.ndp.array_kernels import MOVING, PLANES, STEP, TOKEN, output_stationary, weight_stationary

__all__ = ["Array", "ArrayRun", "TileTiming", "run_array", "tile_timing"]

Ints = NDArray[np.int64]

_NONE = -1


class Array(NamedTuple):
    """The shape of an array; see the top of this module.

    `weight_stationary`: else output-stationary. `registers`: stationary values an element has room for, 1
    or 2. `load_rows`: rows that take weights from outside at once, if weight-stationary.
    """

    rows: int
    columns: int
    weight_stationary: bool = False
    registers: int = 1
    load_rows: int = 1

    @property
    def load_steps(self) -> int:
        """Steps in which the weights of a weight-stationary tile enter."""
        return -(-self.rows // self.load_rows)


class ArrayRun(NamedTuple):
    """What tiles came to.

    `product`: int64[tile, token, column]. `entered`: int64[step], the cycle in which each step entered, over
    all tiles. `known`: int64[tile], the cycles until the last sum of each tile was out.
    """

    product: Ints
    entered: Ints
    known: Ints


def run_array(array: Array, x: Ints, w: Ints, arrival: Ints | None = None) -> ArrayRun:
    """Multiply tiles in an array.

    Args:
        array: its shape.
        x: int64[tile, token, input]; output-stationary arrays take `rows` tokens at most, weight-stationary
            ones `rows` inputs.
        w: int64[tile, input, column], of at most `columns` outputs.
        arrival: int64[step], the cycle from which each step can enter; None: all at once. A step is an
            input of an output-stationary tile, or one of `Array.load_steps`.
    """
    tiles, tokens, inputs = x.shape
    steps = array.load_steps if array.weight_stationary else inputs
    wide = np.zeros((tiles, inputs, array.columns), np.int64)
    wide[:, :, : w.shape[2]] = w
    high = x if not array.weight_stationary else np.zeros((tiles, tokens, array.rows), np.int64)
    if array.weight_stationary:
        high[:, :, :inputs] = x
    pe = np.zeros((PLANES, array.rows, array.columns), np.int64)
    pe[[STEP, MOVING, TOKEN]] = _NONE
    product = np.zeros((tiles, tokens, array.columns), np.int64)
    entered, known = np.zeros(tiles * steps, np.int64), np.zeros(tiles, np.int64)
    there = np.zeros(tiles * steps, np.int64) if arrival is None else arrival
    size = array.rows + array.columns
    if array.weight_stationary:
        rings, first_token = np.full((2, size), _NONE), np.full(tiles, _NONE)
        weight_stationary(
            high, wide, there, array.registers, steps, pe, rings, first_token, product, entered, known
        )
    else:
        ring, leaving = np.full(size, _NONE), np.zeros((2, array.columns), np.int64)
        output_stationary(high, wide, there, array.registers, pe, ring, leaving, product, entered, known)
    return ArrayRun(product[:, :, : w.shape[2]], entered, known)


class TileTiming(NamedTuple):
    """Cycles of a tile in a long run of tiles, of which every step is there in time.

    `cycles`: for which its steps occupy the array's edge. `gap`: from then until the next tile may begin.
    `latency`: from then to its last sum.
    """

    cycles: int
    gap: int
    latency: int


_TILES = 4  # the third of them begins and ends like all that follow


@functools.lru_cache(maxsize=256)
def tile_timing(array: Array, tokens: int, inputs: int) -> TileTiming:
    """How tiles of so many tokens and inputs follow each other, from a run of the array.

    Of very many inputs of an output-stationary tile, those in the middle are left out: each enters a cycle
    after the one before. Weight-stationary tiles have as many inputs as the array has rows.
    """
    few = array.rows if array.weight_stationary else min(inputs, 4 * (array.rows + array.columns))
    zeros = np.zeros((_TILES, tokens, few), np.int64)
    run = run_array(array, zeros, np.zeros((_TILES, few, 1), np.int64))
    entered = run.entered.reshape(_TILES, -1)
    interval, known = int(entered[3, 0] - entered[2, 0]), int(run.known[2])
    if array.weight_stationary:
        return TileTiming(interval, 0, known - int(entered[2, 0]) - interval)
    return TileTiming(inputs, interval - few, known - int(entered[2, -1]) - 1)
