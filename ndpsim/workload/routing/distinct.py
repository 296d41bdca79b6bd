"""Distinct experts of tokens, from random numbers; `ndpsim.workload.routing.drawing` has the method."""

from __future__ import annotations

from ndpsim.base.jit import kernel


@kernel
def choose(uniform, lines, first, ends, order, unit_bits, cell_bits, ids):
    """Fill `ids` [layer, token, part] with distinct experts.

    Parts are 2 ** `unit_bits` long, cells of them 2 ** `cell_bits`.

    Args:
        uniform: numbers from 0 to below 1, [layer, token, part].
        lines: which of a layer's lines each token has, [layer, token].
        first: the expert that begins at each cell, or reaches into it, [layer, line, cell].
        ends: of experts on the line, [layer, line, expert].
        order: the experts of a line in their order, [layer, line, index].
    """
    unit = 1 << unit_bits
    layers, tokens, parts = uniform.shape
    for layer in range(layers):
        for token in range(tokens):
            line = lines[layer, token]
            previous = 0
            for part in range(parts):
                border = part << unit_bits
                low = first[layer, line, border >> cell_bits]
                size = ends[layer, line, low] - border
                left = unit
                if low > 0:
                    left = unit - (border - ends[layer, line, low - 1])
                draw = uniform[layer, token, part]
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
