"""Distinct experts of tokens, from random numbers; `ndpsim.routing.drawing` has the method."""

from __future__ import annotations

from ndpsim._jit import kernel


@kernel
def choose(uniform, line, first, ends, order, unit, ids):
    """Fill `ids` [layer, token, part] with distinct experts.

    Args:
        uniform: numbers from 0 to below 1, [layer, token, part].
        line: which of a layer's lines each token has, [layer, token].
        first: the expert that begins at each part, or reaches into it, [layer, line, part].
        ends: of experts on the line, in parts of `unit`, [layer, line, expert].
        order: the expert at each place of a line, [layer, line, place].
    """
    layers, tokens, parts = uniform.shape
    for layer in range(layers):
        for token in range(tokens):
            of = line[layer, token]
            before = 0
            for part in range(parts):
                border = part * unit
                low = first[layer, of, part]
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
                high = first[layer, of, part + 1] if part + 1 < parts else ends.shape[2] - 1
                while low < high:
                    middle = (low + high) // 2
                    if ends[layer, of, middle] > place + border:
                        high = middle
                    else:
                        low = middle + 1
                ids[layer, token, part] = order[layer, of, low]
