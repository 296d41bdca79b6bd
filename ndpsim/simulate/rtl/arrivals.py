"""Kernels between the controller of a lane and a unit as hardware: bursts, and free places of FIFOs."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import kernel

HANDED_OVER = -1  # the time of a burst that the unit has


class Bursts(NamedTuple):
    """The bursts of a lane in a phase.

    Attributes:
        lanes, lane: of how many lanes it is which.
        row_bursts: bursts of a row over all lanes.
        columns: of how many columns of bursts one has a vector of activations in the lane's buffer.
        first_vector, tokens: the place of the first vector, and vectors of a column.
        phase: its number, 0 and 1 in turn.
    """

    lanes: int
    lane: int
    row_bursts: int
    columns: int
    first_vector: int
    tokens: int
    phase: int


@kernel
def take_arrivals(done, first, end, ticks, bursts, fields):
    """Take the bursts that have been read, in the order of their arrival.

    Args:
        done: int64[burst]: the DRAM clock at which it arrives, 0: not known. It becomes `HANDED_OVER`.
        first, end: those that can have been read.
        ticks: of the DRAM clock, and of the unit's.
        fields: int64[n, 5], the result, as `handshake.RunningUnit.add_bursts` has it.

    Returns:
        Their number, and the first burst that is not taken.
    """
    count = 0
    for burst in range(first, end):
        clock = done[burst]
        if clock > 0:
            n = count
            while n > 0 and fields[n - 1, 0] > clock:
                fields[n, 0], fields[n, 4] = fields[n - 1, 0], fields[n - 1, 4]
                n -= 1
            fields[n, 0], fields[n, 4] = clock, burst
            done[burst] = HANDED_OVER
            count += 1
    for n in range(count):
        number = fields[n, 4] * bursts.lanes + bursts.lane
        row, column = number // bursts.row_bursts, number % bursts.row_bursts
        fields[n, 0] = (fields[n, 0] * ticks[0] + ticks[1] - 1) // ticks[1]
        fields[n, 1] = row
        fields[n, 2] = bursts.first_vector + column // bursts.columns * bursts.tokens
        fields[n, 3], fields[n, 4] = bursts.phase, number
    while first < end and done[first] == HANDED_OVER:
        first += 1
    return count, first


@kernel
def set_credits(credit, known, given, taken, horizon):
    """Set the clocks from which the places of a FIFO are free.

    Args:
        credit: int64[place], the result; burst n has the place n modulo their number.
        known, given: int64[burst], of the first `given` bursts; those of others are not before `horizon`.
        taken: bursts that have been read.
    """
    depth = credit.shape[0]
    for burst in range(max(0, taken - depth), taken):
        credit[burst % depth] = known[burst] if burst < given else horizon
