"""Distinct experts of tokens, from random numbers; `ndpsim.workload.routing.drawing` has the method."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined, kernel


class LineTables(NamedTuple):
    """Lines of experts, whose parts are 2 ** `unit_bits` long, and cells of them 2 ** `cell_bits`."""

    first: NDArray[np.int64]  # [layer, line, cell]: the expert that begins at each cell, or reaches into it
    ends: NDArray[np.int64]  # [layer, line, expert]: of experts on the line
    order: NDArray[np.int16]  # [layer, line, index]: the experts of a line in their order
    unit_bits: int
    cell_bits: int


@inlined
def mix(number):
    """A pseudorandom number: see `ndpsim.workload.routing.replayed.mixed`."""
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@inlined
def choose_of_token(draws, lines, layer, line, token, ids):
    """Fill the experts of a token in a layer, for a number from 0 to below 1 of each part."""
    unit, unit_bits, cell_bits = 1 << lines.unit_bits, lines.unit_bits, lines.cell_bits
    first, ends, order, previous = lines.first, lines.ends, lines.order, 0
    for part in range(len(draws)):
        border = part << unit_bits
        low = first[layer, line, border >> cell_bits]
        size = ends[layer, line, low] - border
        left = unit
        if low > 0:
            left = unit - (border - ends[layer, line, low - 1])
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
        low = first[layer, line, (border + point) >> cell_bits]
        while ends[layer, line, low] <= border + point:
            low += 1
        ids[layer, token, part] = order[layer, line, low]


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
