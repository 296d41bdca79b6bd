"""The systolic arrays of a memory device.

The arrays are divided evenly between the lanes. The arrays of a lane process the same tokens and inputs for
neighbouring outputs in lockstep, so they act as one array with the sum of their columns. The lane feeds them
tile by tile. A tile has the rows of weights of as many outputs as they have columns. The lane's FIFO is in
front of the arrays, which are its only server.

At each step a column receives one weight (`fixed`: weights are converted to native bits before), or a word of
native bits with any number of weights (`inverse-bits`; scales and zero points are in the same words).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.dimm.layout import (
    ExpertWeights,
    Geometry,
    Interleaving,
    LaneShare,
    TiledInterleaving,
    TiledLayout,
    Tiles,
    expert_regions,
)
from ndpsim.dimm.units.unit import MultiplierUnit, Run

# ---- A systolic array: `rows` x `columns` processing elements that pass values to neighbours, cycle by
# cycle
#
# An array multiplies *tiles*: activations of up to `rows` (output-stationary) or any number of (weight-
# stationary) tokens by the weights of up to `columns` outputs. Values enter at the edges in *steps* and move
# one element a cycle. Values for row r or column c enter r or c cycles later, so that matching values meet. A
# step enters when it has arrived and the array has room; elements without values do nothing.
#
# Output-stationary: a step is the weights of every column for one input, and that input of every token.
# Weights move down, activations to the right, and element (r, c) sums token r's output c. When the last step
# of a tile has passed its last element, the sums move down and out, one row a cycle. With one register an
# array multiplies a tile and drains it before the next tile. With two registers each element stores its sum
# aside, and the sums of a column leave while the next tile is multiplied; the last steps of two tiles are
# therefore at least `rows` cycles apart.
#
# Weight-stationary: a step is a row of weights, or `load_rows` rows at once, each for its own part of the
# rows. They move down to their places. Then tokens pass: activations to the right, sums down and out. With
# one register the next tile is loaded after the last sum has left. With two, its weights move into place
# after the first token of the current tile, and its tokens follow as soon as the weights are in place.
#
# This module computes the time of a tile from these rules; `tests/oracles/systolic_array.py` moves every
# value.


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


# ---- The systolic arrays of a memory device


Ints = NDArray[np.int64]


class _TileCosts(NamedTuple):
    """The cycles that the arrays spend on the tiles of a region: int64[tile] each."""

    bursts: Ints
    parts: Ints  # parts of a cycle for which each of its bursts holds them
    gap: Ints  # cycles from the end of its last burst to the next tile
    latency: Ints  # cycles from there to its last sum


@dataclass(frozen=True)
class SystolicUnit(MultiplierUnit):
    """The arrays of a device; cycles are cycles of their own clock.

    Attributes:
        arrays: the number of arrays of the device.
        array: the parameters of each array.
        inverse_bits: whether an element processes a word of `native_bits` a cycle, instead of a weight.
        native_bits: bits of a weight that an element multiplies in one cycle in both cases.

    A tile's cycles are spread evenly over its bursts and rounded up to a part of a cycle; an array that waits
    for a burst is late by what it waited.
    """

    PARTS: ClassVar[int] = 64

    arrays: int
    array: Array
    inverse_bits: bool
    native_bits: int

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> Self:
        array = Array(
            section["rows"],
            section["columns"],
            section["dataflow"] == "weight-stationary",
            section["stationary_registers"],
            section["load_rows"],
        )
        inverse_bits = section["low_bit_throughput"] == "inverse-bits"
        return super().of({**section, "array": array, "inverse_bits": inverse_bits})

    def outputs(self, lanes: int) -> int:
        """Number of outputs that the arrays of a lane compute at once: the rows of weights in a tile.

        Raises:
            InputError: the arrays cannot be divided evenly.
        """
        if self.arrays % lanes:
            raise InputError(
                f"{self.arrays} arrays cannot be shared out evenly over the {lanes} channels of the device",
                "conflict",
                key="ndp.systolic.arrays",
            )
        return self.arrays // lanes * self.array.columns

    def products_per_cycle(self, bits: int) -> Fraction:
        """Products of all elements together in a cycle, with weights of `bits` bits."""
        elements = self.arrays * self.array.rows * self.array.columns
        return elements * (Fraction(self.native_bits, bits) if self.inverse_bits else Fraction(1))

    def steps(self, columns: int, row_bits: int) -> int:
        """Steps in which a row of weights, of `row_bits` bits in all, enters a column of an array."""
        return -(-row_bits // self.native_bits) if self.inverse_bits else columns

    @property
    def tokens_at_once(self) -> int | None:
        """An element has one sum at a time, so output-stationary arrays have one token for each row."""
        return None if self.array.weight_stationary else self.array.rows

    def timing(self, tokens: int, steps: int) -> TileTiming:
        """Timing of a tile whose rows enter in `steps` steps, among equal tiles.

        Weight-stationary arrays process it in blocks with as many steps as they have rows.
        """
        if not self.array.weight_stationary:
            return tile_timing(self.array, tokens, steps)
        block = tile_timing(self.array, tokens, self.array.rows)
        return block._replace(cycles=-(-steps // self.array.rows) * block.cycles)

    def place(self, layout: str, geometry: Geometry, weights: ExpertWeights, base: int) -> TiledLayout:
        if layout != "localized":
            problem = f"'{layout}' is for several DIMMs; a device has localized"
            raise InputError(problem, "unsupported", key="layout")
        if geometry.ranks > 1:
            problem = "not supported: channels of a device with more than one rank"
            raise InputError(problem, "unsupported", key="dimm.ranks")
        device, lanes = geometry.device, geometry.lanes
        regions = expert_regions(weights.hidden, weights.intermediate, weights.format, device.burst_bytes)
        tiles = Tiles(regions, device, lanes, self.outputs(lanes), base)
        return TiledLayout(geometry, weights, tiles, self.native_bits if self.inverse_bits else 0)

    def reads_of(self, interleaving: Interleaving, lane: int, share: LaneShare) -> object:
        return tuple(bursts[lane :: interleaving.lanes].tobytes() for bursts in _tiles(interleaving).bursts)

    def groups(self, interleaving: Interleaving, lanes: range, share: LaneShare) -> tuple[Ints, Ints]:
        """A group is a tile."""
        tiles = _tiles(interleaving)
        return tiles.tiles_for_bursts(lanes[0]), tiles.tiles_for_bursts(lanes[-1])

    def group_counts(self, interleaving: Interleaving) -> tuple[int, ...]:
        return tuple(map(len, _tiles(interleaving).bursts))

    def runs(
        self, interleaving: Interleaving, region: int, lane: int, share: LaneShare, tokens: int
    ) -> tuple[Run, ...]:
        return _runs(self, interleaving, region, lane, tokens)

    def summed(
        self, interleaving: Interleaving, region: int, tokens: int, done: Ints, cycle_ticks: int
    ) -> Ints:
        known = np.maximum.accumulate(done + _costs(self, interleaving, region, tokens).latency * cycle_ticks)
        rows: Ints = np.repeat(known, _tiles(interleaving).rows)[: interleaving.regions[region].rows]
        return rows

    def cycles_for_product(self, lanes: int, burst_bytes: int, bits: int) -> Fraction:
        return 1 / self.products_per_cycle(bits)

    def native_share(self, bits: int) -> Fraction:
        return self.products_per_cycle(self.native_bits) / self.products_per_cycle(bits)


UNIT = SystolicUnit


def _tiles(interleaving: Interleaving) -> Tiles:
    assert isinstance(interleaving, TiledInterleaving), "placed by the unit"
    return interleaving.tiles


@functools.lru_cache(maxsize=256)
def _costs(unit: SystolicUnit, interleaving: Interleaving, region: int, tokens: int) -> _TileCosts:
    tiles = _tiles(interleaving)
    tiled, bursts, turns = (
        interleaving.regions[region],
        tiles.bursts[region],
        len(interleaving.regions[region].formats),
    )
    first = np.arange(len(bursts)) * tiles.rows
    kinds = np.stack((first % turns, np.minimum(tiled.rows - first, tiles.rows), bursts))
    different, number = np.unique(kinds, axis=1, return_inverse=True)
    costs = []
    for turn, rows, count in different.T.tolist():
        formats = {tiled.formats[(turn + row) % turns] for row in range(min(rows, turns))}
        steps = max(unit.steps(tiled.columns, form.row_bits(tiled.columns)) for form in formats)
        timing = unit.timing(tokens, steps)
        costs.append((-(-timing.cycles * unit.PARTS // count), timing.gap, timing.latency))
    return _TileCosts(bursts, *np.array(costs)[number.ravel()].T)


@functools.lru_cache(maxsize=1024)
def _runs(
    unit: SystolicUnit, interleaving: Interleaving, region: int, lane: int, tokens: int
) -> tuple[Run, ...]:
    """The minimum number of runs: tiles without a gap and with equal costs are one run."""
    bursts, parts, gap, _ = (
        each[lane :: interleaving.lanes] for each in _costs(unit, interleaving, region, tokens)
    )
    if not len(bursts):
        return ()
    before = np.concatenate(([1], gap[:-1]))
    begins = np.flatnonzero((np.diff(parts, prepend=-1) != 0) | (before != 0) | (gap != 0))
    counts = np.add.reduceat(bursts, begins)
    return tuple(map(Run, counts.tolist(), parts[begins].tolist(), gap[begins].tolist()))
