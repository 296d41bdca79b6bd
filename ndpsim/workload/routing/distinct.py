"""Distinct experts of tokens, from random numbers; `ndpsim.workload.routing.drawing` has the method."""

from __future__ import annotations

from ndpsim.base.jit import kernel


@kernel
def choose(uniform, line, first, ends, order, unit_bits, cell_bits, ids):
    """Fill `ids` [layer, token, part] with distinct experts.

    Parts are 2 ** `unit_bits` long, cells of them 2 ** `cell_bits`.

    Args:
        uniform: numbers from 0 to below 1, [layer, token, part].
        line: which of a layer's lines each token has, [layer, token].
        first: the expert that begins at each cell, or reaches into it, [layer, line, cell].
        ends: of experts on the line, [layer, line, expert].
        order: the expert at each place of a line, [layer, line, place].
    """
    unit = 1 << unit_bits
    layers, tokens, parts = uniform.shape
    for layer in range(layers):
        for token in range(tokens):
            of = line[layer, token]
            before = 0
            for part in range(parts):
                border = part << unit_bits
                low = first[layer, of, border >> cell_bits]
                size = ends[layer, of, low] - border
                left = unit
                if low > 0:
                    left = unit - (border - ends[layer, of, low - 1])
                draw = uniform[layer, token, part]
                if left == unit:
                    place = int(draw * unit)
                elif before >= left:
                    place = int(size + draw * (unit - size))
                else:
                    rest = draw * left
                    if rest >= size:
                        rest = size + (rest - size) * (unit - size) / max(left - size, 1)
                    place = int(rest)
                place = min(place, unit - 1)
                before = place
                low = first[layer, of, (border + place) >> cell_bits]
                while ends[layer, of, low] <= border + place:
                    low += 1
                ids[layer, token, part] = order[layer, of, low]
