"""Reads of weights of a lane that also has requests of a relayout engine.

Reads of weights wait for the FIFO of the multipliers, but a relayout must not wait for the FIFO. Therefore a
lane with further requests of the engine takes a read of weights only if a slot of the FIFO is reserved for
it, and counts as refilling. Requests and reads of weights are taken in turn if both wait.

An argument `relayout` is the engine, or None; with None the function is compiled away.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dimm.relayout import START, has_requests
from ndpsim.dimm.staging import lane_credit
from ndpsim.dram.state import FAR, SERVED, TAKEN


@inlined
def next_fits_at(setup, weights, lane, value):
    """The clock from which the next read of weights that a lane takes has a slot of the FIFO."""
    return lane_credit(setup, weights, lane, value[TAKEN] - value[SERVED])


@inlined
def taken_fit_at(setup, weights, lane, value):
    """The clock from which all reads of weights that a lane has taken have slots of the FIFO; 0: none."""
    waiting = value[TAKEN] - value[SERVED]
    return 0 if waiting == 0 else lane_credit(setup, weights, lane, waiting - 1)


@inlined
def looks_for_room(relayout, setup, weights, lane, value, may_accept, clock):
    """Whether a lane has slots of the FIFO at `clock` for all reads of weights that it has taken, or for its
    next one, which it may accept; if not, it looks again when it has.
    """
    if relayout is None:
        return False
    room_at = next_fits_at(setup, weights, lane, value) if may_accept else FAR
    if relayout.promised[lane] == 0:
        room_at = min(room_at, taken_fit_at(setup, weights, lane, value))
    if room_at > clock:
        relayout.due[lane] = min(relayout.due[lane], room_at - relayout.value[START])
    return room_at <= clock


@inlined
def weights_are_next(relayout, lane):
    """Whether a lane's weights are next: true in every second call."""
    if relayout is None:
        return True
    weights_next = relayout.weights_next[lane] == 1
    relayout.weights_next[lane] = 0 if weights_next else 1
    return weights_next


@inlined
def may_take_weights(relayout, setup, weights, lane, value, clock):
    """Whether a lane may take its next read of weights; `value`: the counters of its controller."""
    if not has_requests(relayout, lane):
        return True
    return next_fits_at(setup, weights, lane, value) <= clock


@inlined
def update_promises(relayout, setup, weights, lane, value, clock):
    """Update whether all reads of weights that a lane has taken have a slot of the FIFO.

    Returns whether that has changed.
    """
    if relayout is None:
        return False
    before = relayout.promised[lane]
    if not has_requests(relayout, lane):
        relayout.promised[lane] = 0
    elif taken_fit_at(setup, weights, lane, value) <= clock:
        relayout.promised[lane] = 1
    return relayout.promised[lane] != before


@inlined
def is_promised(relayout, lane):
    """Whether no read in a lane's queues waits for the FIFO."""
    if relayout is None:
        return False
    return relayout.promised[lane] == 1
