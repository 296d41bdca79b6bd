"""The systolic array of `ndpsim.dimm.units.systolic`, element by element in plain code, to check its timing.

Every value has its identity. Each cycle all registers are computed from those of the cycle before. A value
that is overwritten before its use is an error, not a wrong product.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ndpsim.dimm.units.systolic import Array, TileTiming

Multiply = Callable[[Any, Any], Any]
Matrix = Sequence[Sequence[Any]]


class PlainRun(NamedTuple):
    """The results of a run.

    `product[tile][token][column]`. `entered`: the cycle, from 0, in which each step of all tiles entered.
    `known`: for each tile, the cycle at which its last sum left.
    """

    product: list[list[list[Any]]]
    entered: list[int]
    known: list[int]

    def timing(self, array: Array) -> TileTiming:
        """Timing of the third of at least four tiles, whose beginning and end are typical."""
        steps = len(self.entered) // len(self.known)
        begin, last, following = self.entered[2 * steps], self.entered[3 * steps - 1], self.entered[3 * steps]
        if array.weight_stationary:
            return TileTiming(following - begin, 0, self.known[2] - following)
        return TileTiming(steps, following - begin - steps, self.known[2] - last - 1)


class _Value(NamedTuple):
    """A moving value. `number`: input of a weight, token of an activation or a sum."""

    tile: int
    number: int
    value: Any


class _Element:
    """The registers of an element; None: empty.

    `activation` moves right. Output-stationary: `weight` moves down, `sum` stays, and `aside` is a complete
    sum. Weight-stationary: `moving` is a weight that moves down, `home` one that has arrived, `weight` the
    one in use; `sum` moves down.
    """

    def __init__(self) -> None:
        self.activation: _Value | None = None
        self.weight: _Value | None = None
        self.sum: _Value | None = None
        self.aside: _Value | None = None
        self.moving: _Value | None = None
        self.home: _Value | None = None


class _Plain(ABC):
    """A running array."""

    def __init__(self, array: Array, x: Sequence[Matrix], w: Sequence[Matrix], multiply: Multiply) -> None:
        self.array, self.x, self.w, self.multiply = array, x, w, multiply
        self.tokens, self.inputs, self.outputs = len(x[0]), len(w[0]), len(w[0][0])
        self.elements = self._empty()
        self.before = self.elements
        self.cycle = 0
        self.entered: list[int] = []
        self.out: list[dict[tuple[int, int], Any]] = [{} for _ in x]
        self.known: list[int] = []

    def _empty(self) -> list[list[_Element]]:
        return [[_Element() for _ in range(self.array.columns)] for _ in range(self.array.rows)]

    @abstractmethod
    def steps(self) -> int:
        """Steps of a tile."""

    @abstractmethod
    def has_room(self) -> bool:
        """Whether the array has room for the next step."""

    @abstractmethod
    def let_tokens_in(self) -> None:
        """Let a token enter, if tokens are separate from steps and the array has room."""

    @abstractmethod
    def move(self) -> None:
        """Move all values in the elements by a cycle."""

    def leave(self, sum_: _Value, column: int, sums: int) -> None:
        """A sum leaves at the end of this cycle; `sums`: sums of a tile."""
        assert (sum_.number, column) not in self.out[sum_.tile], "a sum came out twice"
        self.out[sum_.tile][sum_.number, column] = sum_.value
        if len(self.out[sum_.tile]) == sums:
            self.known.append(self.cycle + 1)

    def weight_of(self, tile: int, place: int, column: int) -> Any:
        """A weight; 0 outside a tile that is smaller than the array."""
        return self.w[tile][place][column] if place < self.inputs and column < self.outputs else 0

    def activation_of(self, tile: int, token: int, place: int) -> Any:
        """An activation; 0 outside a tile that is smaller than the array."""
        return self.x[tile][token][place] if token < self.tokens and place < self.inputs else 0

    def run(self, arrival: Sequence[int]) -> PlainRun:
        """Run until the last sum of the last tile has left."""
        while len(self.known) < len(self.x):
            self.let_tokens_in()
            count = len(self.entered)
            if count < len(self.x) * self.steps() and arrival[count] <= self.cycle and self.has_room():
                self.entered.append(self.cycle)
            self.before, self.elements = self.elements, self._empty()
            self.move()
            self.cycle += 1
        product = [
            [[of_tile[token, column] for column in range(self.outputs)] for token in range(self.tokens)]
            for of_tile in self.out
        ]
        return PlainRun(product, self.entered, self.known)


class _OutputStationary(_Plain):
    def __init__(self, array: Array, x: Sequence[Matrix], w: Sequence[Matrix], multiply: Multiply) -> None:
        super().__init__(array, x, w, multiply)
        self.leaving: list[int | None] = [None] * array.columns  # the tile that each column drains
        self.step_at: dict[int, int] = {}

    def steps(self) -> int:
        return self.inputs

    def let_tokens_in(self) -> None:
        pass  # a token's inputs are the steps

    def has_room(self) -> bool:
        tile, place = divmod(len(self.entered), self.inputs)
        if tile == 0:
            return True
        if self.array.registers == 1:
            return place > 0 or (len(self.known) == tile and self.known[-1] <= self.cycle)
        return place < self.inputs - 1 or self.entered[tile * self.inputs - 1] + self.array.rows <= self.cycle

    def _entering(self, delay: int) -> tuple[int, int] | None:
        """(tile, input) of the step that entered this number of cycles ago."""
        step = self.step_at.get(self.cycle - delay)
        return None if step is None else divmod(step, self.inputs)

    def move(self) -> None:
        if self.entered and self.entered[-1] == self.cycle:
            self.step_at[self.cycle] = len(self.entered) - 1
        every = [(row, column) for row in range(self.array.rows) for column in range(self.array.columns)]
        for row, column in every:
            self._drain(row, column)
        for row, column in every:
            self._multiply(row, column)
        for row, column in every:
            self._begin_to_leave(row, column)

    def _drain(self, row: int, column: int) -> None:
        sum_ = self.before[row][column].aside
        if sum_ is None:
            return
        below = row + 1 if sum_.tile == self.leaving[column] else row
        if below == self.array.rows:
            self.leave(sum_, column, self.array.rows * self.array.columns)
            return
        assert self.elements[below][column].aside is None, "a sum ran into another"
        self.elements[below][column].aside = sum_

    def _multiply(self, row: int, column: int) -> None:
        new, old = self.elements[row][column], self.before[row][column]
        if column > 0:
            new.activation = self.before[row][column - 1].activation
        elif step := self._entering(row):
            new.activation = _Value(*step, self.activation_of(step[0], row, step[1]))
        if row > 0:
            new.weight = self.before[row - 1][column].weight
        elif step := self._entering(column):
            new.weight = _Value(*step, self.weight_of(step[0], step[1], column))
        new.sum = old.sum
        if new.weight is None or new.activation is None:
            assert new.weight is new.activation, "a value met nothing"
            return
        assert new.weight[:2] == new.activation[:2], "values met that do not belong together"
        tile, place, weight = new.weight
        first = place == 0
        assert first or (old.sum is not None and old.sum.tile == tile), "a sum was lost"
        total = 0 if first or old.sum is None else old.sum.value
        new.sum = _Value(tile, row, total + self.multiply(new.activation.value, weight))
        if self.array.registers == 1:
            assert new.aside is None, "a sum was written over"
        if place == self.inputs - 1:
            assert new.aside is None, "a sum was written over"
            new.aside = new.sum

    def _begin_to_leave(self, row: int, column: int) -> None:
        weight = self.elements[row][column].weight
        done = weight is not None and weight.number == self.inputs - 1 and row == self.array.rows - 1
        if weight is None or not done:
            return
        if self.array.registers == 2:
            self.leaving[column] = weight.tile
        elif column == self.array.columns - 1:
            self.leaving = [weight.tile] * self.array.columns


class _WeightStationary(_Plain):
    def __init__(self, array: Array, x: Sequence[Matrix], w: Sequence[Matrix], multiply: Multiply) -> None:
        super().__init__(array, x, w, multiply)
        self.step_at: dict[int, int] = {}
        self.token_at: dict[int, int] = {}
        self.passed: list[int] = []  # the cycle in which each token entered

    def steps(self) -> int:
        return self.array.load_steps

    def has_room(self) -> bool:
        tile, place = divmod(len(self.entered), self.steps())
        if tile == 0 or place > 0:
            return True
        if self.array.registers == 1:
            return len(self.known) == tile and self.known[-1] <= self.cycle
        first = (tile - 1) * self.tokens
        return len(self.passed) > first and self.passed[first] <= self.cycle

    def let_tokens_in(self) -> None:
        tile = len(self.passed) // self.tokens
        if tile < len(self.x) and len(self.entered) >= (tile + 1) * self.steps():
            self.token_at[self.cycle] = len(self.passed)
            self.passed.append(self.cycle)

    def move(self) -> None:
        if self.entered and self.entered[-1] == self.cycle:
            self.step_at[self.cycle] = len(self.entered) - 1
        for row in range(self.array.rows):
            for column in range(self.array.columns):
                self._multiply(row, column)
                self._load(row, column)

    def _load(self, row: int, column: int) -> None:
        new, old, steps = self.elements[row][column], self.before[row][column], self.steps()
        if new.home is None:
            new.home = old.home
        first = row - row % steps
        if row > first:
            coming = self.before[row - 1][column].moving
        else:
            step = self.step_at.get(self.cycle - row - column)
            coming = None
            if step is not None:
                tile, place = divmod(step, steps)
                target = first + steps - 1 - place
                coming = _Value(tile, target, self.weight_of(tile, target, column))
        if coming is None:
            return
        used = new.weight is not None and new.home is not None and new.weight.tile == new.home.tile
        assert new.home is None or used, "a weight was written over before it was used"
        if self.array.registers == 1:
            assert new.activation is None, "a weight was written over while it was used"
        if coming.number == row:
            new.home = coming
        else:
            new.moving = coming

    def _multiply(self, row: int, column: int) -> None:
        new, old = self.elements[row][column], self.before[row][column]
        new.weight, new.home = old.weight, old.home
        if column > 0:
            new.activation = self.before[row][column - 1].activation
        else:
            token = self.token_at.get(self.cycle - row)
            if token is not None:
                tile, number = divmod(token, self.tokens)
                new.activation = _Value(tile, number, self.activation_of(tile, number, row))
        if new.activation is None:
            return
        tile, token, activation = new.activation
        if token == 0:
            new.weight = old.home
        assert new.weight is not None, "a weight is missing"
        assert (new.weight.tile, new.weight.number) == (tile, row), "an activation met a wrong weight"
        above = self.before[row - 1][column].sum if row > 0 else _Value(tile, token, 0)
        assert above is not None, "a sum is missing"
        assert above[:2] == (tile, token), "sums met that do not belong together"
        sum_ = _Value(tile, token, above.value + self.multiply(activation, new.weight.value))
        if row == self.array.rows - 1:
            self.leave(sum_, column, self.tokens * self.array.columns)
        new.sum = sum_


def run_plain(
    array: Array,
    x: Sequence[Matrix],
    w: Sequence[Matrix],
    arrival: Sequence[int] | None = None,
    multiply: Multiply = operator.mul,
) -> PlainRun:
    """Multiply tiles in an array.

    Args:
        array: its shape.
        x: [tile][token][input]; output-stationary arrays take `rows` tokens at most, weight-stationary ones
            `rows` inputs.
        w: [tile][input][column], of at most `columns` outputs.
        arrival: for each step, the cycle from which it can enter; None: no limit. A step is an input of an
            output-stationary tile, or one of `Array.load_steps`.
        multiply: the product of two entering values, which may be words of several weights; outside a tile
            that is smaller than the array the value is 0.
    """
    kind = _WeightStationary if array.weight_stationary else _OutputStationary
    run = kind(array, x, w, multiply)
    return run.run(arrival if arrival is not None else [0] * (len(x) * run.steps()))
