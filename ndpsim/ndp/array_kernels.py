"""The registers of a systolic array, moved cycle by cycle; see `ndp.array` for what moves where."""

from __future__ import annotations

from ndpsim._jit import inlined, kernel

__all__ = ["MOVING", "PLANES", "STEP", "TOKEN", "output_stationary", "weight_stationary"]

# Planes of an array's registers, one value an element each.
ACTIVATION, STEP, WEIGHT, SUM, ASIDE, NEXT, MOVING, TOKEN = range(8)
PLANES = 8

_NONE = -1


@inlined
def take_step(ring, cycle, delay):
    """The step that entered the array `delay` cycles ago, -1: none."""
    return ring[(cycle - delay) % ring.shape[0]] if cycle >= delay else _NONE


# ---- Output-stationary


@inlined
def may_enter(step, steps, cycle, arrival, entered, known, rows, registers):
    """Whether a step may enter an output-stationary array."""
    if arrival[step] > cycle:
        return False
    tile, place = step // steps, step % steps
    if tile == 0:
        return True
    if registers == 1:
        return place > 0 or 0 < known[tile - 1] <= cycle
    return place < steps - 1 or cycle - entered[tile * steps - 1] >= rows


@inlined
def add_product(pe, row, column, steps, registers):
    """An element multiplies what it holds; True when that was the last step of a tile."""
    step = pe[STEP, row, column]
    if step < 0:
        return False
    if step % steps == 0:
        pe[SUM, row, column] = 0
    pe[SUM, row, column] += pe[ACTIVATION, row, column] * pe[WEIGHT, row, column]
    if step % steps < steps - 1:
        return False
    if registers == 2:
        pe[ASIDE, row, column] = pe[SUM, row, column]
    return True


@inlined
def drain(pe, plane, column, tile, left, product):
    """The sums of a column move down; the lowest leaves. left: rows that are still to leave.

    An element passes on as many sums as there are elements above it, then it keeps its next one.
    """
    rows = pe.shape[1]
    if left - 1 < product.shape[1]:
        product[tile, left - 1, column] = pe[plane, rows - 1, column]
    for row in range(rows - 1, rows - left, -1):
        pe[plane, row, column] = pe[plane, row - 1, column]


@kernel
def output_stationary(x, w, arrival, registers, pe, ring, leaving, product, entered, known):
    """Multiply tiles. x: [tile, token, step], w: [tile, step, column]; see `ArrayRun` for what is written.

    pe: registers at rest; ring: int64[rows + columns] of -1; leaving: int64[2, column], the tile that each
    column drains and how many rows of it, zeros.
    """
    tiles, tokens, steps = x.shape
    rows, columns = pe.shape[1], pe.shape[2]
    step, out, cycle = 0, 0, 0
    while out < tiles:
        ring[cycle % ring.shape[0]] = _NONE
        if step < tiles * steps and may_enter(step, steps, cycle, arrival, entered, known, rows, registers):
            ring[cycle % ring.shape[0]] = step
            entered[step] = cycle
            step += 1
        for column in range(columns):
            if leaving[1, column] > 0:
                plane = ASIDE if registers == 2 else SUM
                drain(pe, plane, column, leaving[0, column], leaving[1, column], product)
                leaving[1, column] -= 1
                if leaving[1, column] == 0 and column == columns - 1:
                    known[out] = cycle + 1
                    out += 1
        # From the last element to the first, so that each finds its neighbours as the cycle began.
        for row in range(rows - 1, -1, -1):
            for column in range(columns - 1, -1, -1):
                if column > 0:
                    pe[ACTIVATION, row, column] = pe[ACTIVATION, row, column - 1]
                else:
                    now = take_step(ring, cycle, row)
                    there = now >= 0 and row < tokens
                    pe[ACTIVATION, row, 0] = x[now // steps, row, now % steps] if there else 0
                if row > 0:
                    pe[STEP, row, column] = pe[STEP, row - 1, column]
                    pe[WEIGHT, row, column] = pe[WEIGHT, row - 1, column]
                else:
                    now = take_step(ring, cycle, column)
                    pe[STEP, 0, column] = now
                    pe[WEIGHT, 0, column] = w[now // steps, now % steps, column] if now >= 0 else 0
                last = add_product(pe, row, column, steps, registers)
                if last and row == rows - 1 and registers == 2:
                    leaving[0, column], leaving[1, column] = pe[STEP, row, column] // steps, rows
                elif last and row == rows - 1 and column == columns - 1:
                    for every in range(columns):
                        leaving[0, every], leaving[1, every] = pe[STEP, row, column] // steps, rows
        cycle += 1


# ---- Weight-stationary


@inlined
def may_load(step, steps, cycle, arrival, known, first_token, registers):
    """Whether a step of weights may enter: the registers it will pass are no longer needed."""
    if arrival[step] > cycle:
        return False
    tile = step // steps
    if tile == 0 or step % steps > 0:
        return True
    if registers == 1:
        return 0 < known[tile - 1] <= cycle
    return 0 <= first_token[tile - 1] <= cycle


@inlined
def move_weights(pe, w, ring, cycle, row, column, steps):
    """A row of weights moves on through an element, or into the place where it stays."""
    place, above = row % steps, row - 1
    step = _NONE
    if place == 0:
        step = take_step(ring, cycle, row + column)
        if step >= 0:
            source = row + steps - 1 - step % steps
            there = source < w.shape[1]
            pe[NEXT, row, column] = w[step // steps, source, column] if there else 0
    elif pe[MOVING, above, column] >= 0:
        step = pe[MOVING, above, column]
        pe[NEXT, row, column] = pe[NEXT, above, column]
    # The weights of the lowest row of a part enter first; a row that has come home moves no further.
    pe[MOVING, row, column] = step if step >= 0 and step % steps < steps - 1 - place else _NONE


@inlined
def pass_token(pe, x, ring, cycle, row, column, tokens):
    """An element multiplies the activation that comes from the left and adds to the sum from above."""
    if column > 0:
        token, activation = pe[TOKEN, row, column - 1], pe[ACTIVATION, row, column - 1]
    else:
        token, activation = take_step(ring, cycle, row), 0
        if token >= 0:
            activation = x[token // tokens, token % tokens, row]
    if token >= 0 and token % tokens == 0:
        pe[WEIGHT, row, column] = pe[NEXT, row, column]
    pe[TOKEN, row, column], pe[ACTIVATION, row, column] = token, activation
    above = pe[SUM, row - 1, column] if row > 0 else 0
    pe[SUM, row, column] = above + activation * pe[WEIGHT, row, column]
    return token


@kernel
def weight_stationary(x, w, arrival, registers, steps, pe, rings, first_token, product, entered, known):
    """Multiply tiles. x: [tile, token, row], w: [tile, row, column]; see `ArrayRun` for what is written.

    steps: of loading a tile. pe: registers at rest; rings: int64[2, rows + columns] of -1; first_token:
    int64[tile] of -1, the cycle in which the first token of each entered.
    """
    tiles, tokens = x.shape[0], x.shape[1]
    rows, columns = pe.shape[1], pe.shape[2]
    step, token, out, cycle = 0, 0, 0, 0
    while out < tiles:
        now = cycle % rings.shape[1]
        rings[0, now] = rings[1, now] = _NONE
        # The weights of a tile are in place before its first token, wherever that is by then.
        if token < tiles * tokens and step >= (token // tokens + 1) * steps:
            rings[1, now] = token
            if token % tokens == 0:
                first_token[token // tokens] = cycle
            token += 1
        if step < tiles * steps and may_load(step, steps, cycle, arrival, known, first_token, registers):
            rings[0, now] = step
            entered[step] = cycle
            step += 1
        # From the last element to the first, so that each finds its neighbours as the cycle began.
        for row in range(rows - 1, -1, -1):
            for column in range(columns - 1, -1, -1):
                passing = pass_token(pe, x, rings[1], cycle, row, column, tokens)
                move_weights(pe, w, rings[0], cycle, row, column, steps)
                if passing >= 0 and row == rows - 1:
                    product[passing // tokens, passing % tokens, column] = pe[SUM, row, column]
                    if column == columns - 1 and passing % tokens == tokens - 1:
                        known[out] = cycle + 1
                        out += 1
        cycle += 1
