"""The systolic arrays of a memory device.

The arrays are shared out evenly over the lanes. The arrays of a lane stand side by side and work on the same
tokens and inputs for neighbouring outputs, in step: to what they take in they are one array of that many
times the columns. The lane feeds them tile after tile, a tile being the rows of weights of as many outputs
as they have columns; the lane's FIFO stands before them and they are its one server.

At a step a column takes in a weight (`fixed`: weights are brought to native bits on the way), or a word of
native bits, however many weights that is (`inverse-bits`; scales and zero points come in the same words).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ndpsim.errors import InputError
from ndpsim.ndp.array import Array, TileTiming, run_array, tile_timing
from ndpsim.ndp.array_plain import run_plain
from ndpsim.ndp.gemv import Tiling, fit_tokens

__all__ = ["SystolicUnit"]


@dataclass(frozen=True)
class SystolicUnit:
    """The arrays of a device as their parameters say; cycles are of their own clock.

    Attributes:
        arrays: of the device.
        array: what each is like.
        inverse_bits: an element works off a word of `native_bits` a cycle, else a weight.
        native_bits: bits of a weight that takes an element a cycle either way.
        buffer_bytes: activations and intermediate results.
        activation_bytes: bytes of one activation.
        fifo_bursts: bursts each lane's FIFO holds.
    """

    arrays: int
    array: Array
    inverse_bits: bool
    native_bits: int
    buffer_bytes: int
    activation_bytes: int
    fifo_bursts: int

    def outputs(self, lanes: int) -> int:
        """Outputs that the arrays of a lane work on at once: the rows of weights in a tile.

        Raises:
            InputError: the arrays cannot be shared out evenly.
        """
        if self.arrays % lanes:
            raise InputError(
                f"{self.arrays} arrays cannot be shared out evenly over the {lanes} channels of the device",
                key="ndp.systolic.arrays",
            )
        return self.arrays // lanes * self.array.columns

    def products_per_cycle(self, bits: int) -> Fraction:
        """Products of all elements together in a cycle, with weights of `bits` bits."""
        elements = self.arrays * self.array.rows * self.array.columns
        return elements * (Fraction(self.native_bits, bits) if self.inverse_bits else Fraction(1))

    def steps(self, columns: int, row_bits: int) -> int:
        """Steps in which a row of so many weights, `row_bits` bits in all, enters a column of an array."""
        return -(-row_bits // self.native_bits) if self.inverse_bits else columns

    def tile(self, tokens: int, hidden: int, intermediate: int) -> Tiling:
        """The fewest token tiles, as even as they can be.

        A token needs its `hidden` inputs and its `intermediate` values; its `hidden` results then take
        the place of its inputs. An element keeps one sum at a time, so that output-stationary arrays work
        on one token a row.

        Raises:
            InputError: not even one token fits.
        """
        per_token = (hidden + intermediate) * self.activation_bytes
        at_once = None if self.array.weight_stationary else self.array.rows
        return fit_tokens(tokens, per_token, self.buffer_bytes, "device", "ndp.systolic.buffer_kib", at_once)

    def timing(self, tokens: int, steps: int) -> TileTiming:
        """Cycles of a tile of rows that enter in so many steps, among others like it.

        Weight-stationary arrays take it in blocks of as many steps as they have rows.
        """
        if not self.array.weight_stationary:
            return tile_timing(self.array, tokens, steps)
        block = tile_timing(self.array, tokens, self.array.rows)
        return block._replace(cycles=-(-steps // self.array.rows) * block.cycles)

    def agrees_with_twin(self, tokens: int, steps: int) -> bool:
        """Whether an array and its plain twin multiply some tiles of such a shape alike, and rightly."""
        inputs = self.array.rows if self.array.weight_stationary else min(steps, 4 * self.array.rows)
        random = np.random.default_rng(steps)
        x = random.integers(-9, 10, (3, tokens, inputs))
        w = random.integers(-9, 10, (3, inputs, self.array.columns))
        run, plain = run_array(self.array, x, w), run_plain(self.array, x.tolist(), w.tolist())
        same = np.array_equal(run.product, plain.product) and np.array_equal(run.product, x @ w)
        return same and (run.entered.tolist(), run.known.tolist()) == (plain.entered, plain.known)
