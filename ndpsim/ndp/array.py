"""A systolic array: `rows` x `columns` processing elements that pass values to neighbours, cycle by cycle.

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

How long a tile takes follows from that, and is worked out here; `ndp.array_plain` moves every value.
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

    `cycles`: for which its steps occupy the array's edge. `gap`: from then until the next tile may begin.
    `latency`: from then to its last sum.
    """

    cycles: int
    gap: int
    latency: int


def tile_timing(array: Array, tokens: int, inputs: int) -> TileTiming:
    """How tiles of so many tokens and inputs follow each other.

    Weight-stationary tiles have as many inputs as the array has rows.
    """
    # What enters last meets the last element after those that it passes on its way, and itself.
    crossing = array.rows + array.columns - 1
    if array.weight_stationary:
        out = tokens - 1 + crossing  # from the first token's cycle, the array being loaded, to the last sum
        if array.registers == 1:
            return TileTiming(array.load_steps + out, 0, 0)
        return TileTiming(max(array.load_steps, tokens), 0, out)
    out = crossing - 1 + array.rows  # from the last step to the last sum, which leaves after all rows
    gap = out if array.registers == 1 else max(array.rows - inputs, 0)
    return TileTiming(inputs, gap, out)
