"""A systolic array: `rows` x `columns` processing elements that pass values to neighbours, cycle by cycle.

An array multiplies *tiles*: activations of up to `rows` (output-stationary) or any number of
(weight-stationary) tokens by the weights of up to `columns` outputs. Values enter at the edges in *steps*
and move one element a cycle. Values for row r or column c enter r or c cycles later, so that matching values
meet. A step enters when it has arrived and the array has room; elements without values do nothing.

Output-stationary: a step is the weights of every column for one input, and that input of every token.
Weights move down, activations to the right, and element (r, c) sums token r's output c. When the last step
of a tile has passed its last element, the sums move down and out, one row a cycle. With one register an
array multiplies a tile and drains it before the next tile. With two registers each element stores its sum
aside, and the sums of a column leave while the next tile is multiplied; the last steps of two tiles are
therefore at least `rows` cycles apart.

Weight-stationary: a step is a row of weights, or `load_rows` rows at once, each for its own part of the rows.
They move down to their places. Then tokens pass: activations to the right, sums down and out. With one
register the next tile is loaded after the last sum has left. With two, its weights move into place after the
first token of the current tile, and its tokens follow as soon as the weights are in place.

This module computes the time of a tile from these rules; `tests/oracles/systolic_array.py` moves every value.
"""

from __future__ import annotations

from typing import NamedTuple


class Array(NamedTuple):
    """The shape of an array; see the top of this module.

    `weight_stationary`: else output-stationary. `registers`: stationary values an element has room for, 1 or
    2. `load_rows`: rows that load weights at the same time, if weight-stationary.
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


class TileTiming(NamedTuple):
    """Cycles of a tile in a long run of tiles in which no step is late.

    `cycles`: cycles for which its steps occupy the array's edge. `gap`: cycles after them until the next
    tile may begin. `latency`: cycles after them until its last sum.
    """

    cycles: int
    gap: int
    latency: int


def tile_timing(array: Array, tokens: int, inputs: int) -> TileTiming:
    """The timing of consecutive tiles with this number of tokens and inputs.

    Weight-stationary tiles have as many inputs as the array has rows.
    """
    # The last value reaches the last element after all elements on its way.
    crossing = array.rows + array.columns - 1
    if array.weight_stationary:
        out = tokens - 1 + crossing  # from the first token's cycle to the last sum, if the array is loaded
        if array.registers == 1:
            return TileTiming(array.load_steps + out, 0, 0)
        return TileTiming(max(array.load_steps, tokens), 0, out)
    out = crossing - 1 + array.rows  # from the last step to the last sum, which leaves after all rows
    gap = out if array.registers == 1 else max(array.rows - inputs, 0)
    return TileTiming(inputs, gap, out)
