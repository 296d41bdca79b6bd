"""The relayout engine of a channel's DIMMs, beside their NDP units and the host.

`link.engine` decides what is read and written, and when. Its requests go through the controllers of the
lanes: a lane takes them and its reads of weights in turn if both wait. DIMMs of other channels serve the
engine's requests at once.

The first argument of every function is the engine. Where nothing is moved it is `idle`; kernels are the same.
"""

from __future__ import annotations

import typing
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, inlined, outlined
from ndpsim.dimm.link.engine import advance, begin, known_until, read_issued, write_taken
from ndpsim.dimm.link.engine_state import Engine
from ndpsim.dimm.link.offers import (
    Offers,
    enqueue_offered,
    is_due,
    make_offers,
    next_change,
    next_offer,
    record_issued,
    record_taken,
)
from ndpsim.dimm.link.packing import BurstRequests, side_by_side
from ndpsim.dimm.staging import lane_credit, lane_source
from ndpsim.dimm.state import READ, WRITE
from ndpsim.dram.state import FAR, SERVED, TAKEN, Source

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

# Places in `Relayout.value`.
START, BEGUN, UNSERVED, LAST_SERVED = range(4)
_NONE = -1


@by_reference
class Slots(NamedTuple):
    """The first places of a lane's source, before its weights: waiting requests of the engine."""

    free: Ints  # [lane, n]: slots that no request has
    free_count: Ints  # [lane]
    request: Ints  # [lane, slot]


@by_reference
class Relayout(NamedTuple):
    """A relayout engine and its requests."""

    engine: Engine
    lane: Narrow  # [request]: of the channel, -1: of another channel
    place: Ints  # [request], as in `dram.state.Source`
    column: Narrow  # [request]
    offers: Offers
    due: Ints  # [lane]: the engine's clock from which it looks for a request; FAR: when more is offered
    left: Ints  # [lane]: requests that are not served, those not yet offered included
    slots: Any  # `Slots`; None: the lanes have no weights, and their source is all requests
    promised: Ints  # [lane]: 1 when all its reads of weights have a slot of the FIFO
    weights_next: Ints  # [lane]: 1 when its weights come next
    always: Ints  # [1]: its requests are admitted
    served: Ints  # [READ or WRITE, lane]: requests
    value: Ints  # by the places above; START is the clock before the engine's first


def make_slots(lanes: int, slots: int) -> Slots:
    """This many slots of each lane, without requests."""
    free = np.tile(np.arange(slots, dtype=np.int64), (lanes, 1))
    return Slots(free, np.full(lanes, slots, dtype=np.int64), np.full((lanes, slots), _NONE, dtype=np.int64))


def make_relayout(
    engine: Engine,
    requests: BurstRequests,
    lane: Narrow,
    many_reads: int,
    lanes: int,
    slots: int | None,
    start: int,
) -> Relayout:
    """An engine that begins after the clock `start`.

    Args:
        lane: [request], its lane of the channel's so many `lanes`, -1: it is another channel's.
        many_reads: see `link.offers`.
        slots: requests of a lane that can be taken and not yet served; None: lanes have nothing else to do.
    """
    count = len(lane)
    return Relayout(
        engine=engine,
        lane=lane,
        place=np.ascontiguousarray(requests.place),
        column=np.ascontiguousarray(requests.column),
        offers=make_offers(lane, len(engine.read_tick), lanes, many_reads),
        due=np.full(lanes, FAR),
        left=np.bincount(lane[lane >= 0], minlength=lanes).astype(np.int64),
        slots=None if slots is None else make_slots(lanes, slots),
        promised=np.zeros(lanes, dtype=np.int64),
        weights_next=np.zeros(lanes, dtype=np.int64),
        always=np.array([FAR]),
        served=np.zeros((2, lanes), dtype=np.int64),
        value=np.array([start, 0, count, 0], dtype=np.int64),
    )


def idle(lanes: int, slots: int) -> Relayout:
    """An engine that never begins, for lanes with this many slots each."""
    requests, engine = np.zeros(0, dtype=np.int32), _empty(Engine)
    # Kernels are compiled for strides: arrays of pieces lie side by side.
    pieces = side_by_side(2, piece_read=np.int32, piece_write=np.int32, piece_bits=np.int32)
    return Relayout(
        engine=engine._replace(packed=engine.packed._replace(**pieces)),
        lane=requests,
        place=np.zeros(0, dtype=np.int64),
        column=requests,
        offers=make_offers(requests, 0, lanes, 1),
        due=np.full(lanes, FAR),
        left=np.zeros(lanes, dtype=np.int64),
        slots=make_slots(lanes, slots),
        promised=np.zeros(lanes, dtype=np.int64),
        weights_next=np.zeros(lanes, dtype=np.int64),
        always=np.array([FAR]),
        served=np.zeros((2, lanes), dtype=np.int64),
        value=np.array([FAR, 0, 0, 0], dtype=np.int64),
    )


def _empty(kind: Any) -> Any:
    """A named tuple whose numbers are 0 and whose arrays are empty."""
    if kind is int:
        return 0
    if hasattr(kind, "_fields"):
        return kind(*map(_empty, typing.get_type_hints(kind).values()))
    return np.zeros(0, dtype=np.int32 if kind == Narrow else np.int64)


@inlined
def engine_due(relayout):
    """The clock of the engine's next event, as far as is known."""
    if relayout.value[BEGUN] == 0:
        return relayout.value[START] + 1
    times = relayout.engine.packets.times
    return FAR if times[1] >= FAR else times[1] // relayout.engine.dram_ticks + 1 + relayout.value[START]


@inlined
def count_served(relayout, clock):
    """Record that a request has been served, at an engine's clock."""
    relayout.value[UNSERVED] -= 1
    relayout.value[LAST_SERVED] = max(relayout.value[LAST_SERVED], clock + relayout.value[START])


@inlined
def serve_elsewhere(relayout, request):
    """A DIMM of another channel serves a request at the first clock at which it could be taken."""
    engine, reads = relayout.engine, relayout.engine.read_tick.shape[0]
    clock = engine.offered_at[request] + 1
    if request < reads:
        read_issued(engine, request, clock)
    else:
        write_taken(engine, request - reads, clock)
    count_served(relayout, clock)


@outlined
def forward_offered(relayout):
    """Requests that the engine offers go to their lanes, or are served elsewhere."""
    engine, own, n = relayout.engine, 0, 0
    while n < engine.offered_count[0]:
        request = engine.offered_requests[n]
        if relayout.lane[request] < 0:
            serve_elsewhere(relayout, request)
        else:
            engine.offered_requests[own] = request
            own += 1
        n += 1
    engine.offered_count[0] = own
    enqueue_offered(engine, relayout.offers, relayout.due)


@inlined
def offer_requests(relayout, clock):
    """Offer the engine's requests to the lanes, before the step at `clock`.

    Returns whether it has begun just now, and the clock before which the engine reaches no lane again.
    """
    engine, value = relayout.engine, relayout.value
    if clock <= value[START]:
        return False, value[START] + 1
    begins = value[BEGUN] == 0
    if begins:
        begin(engine)
        value[BEGUN] = 1
    tick = known_until(engine, clock - value[START])
    advance(engine, tick - 1)
    forward_offered(relayout)
    return begins, (tick + engine.dram_ticks - 1) // engine.dram_ticks + 1 + value[START]


@inlined
def is_relayout_done(relayout):
    """Whether all requests of the engine are served."""
    return requests_left(relayout) == 0


@inlined
def has_requests(relayout, lane):
    """Whether a lane has requests of the engine to serve, now or later."""
    return relayout.value[BEGUN] == 1 and relayout.left[lane] > 0


@inlined
def next_request(relayout, policy, lane, reads, writes, clock):
    """The request that a lane can take at `clock`, -1: none. reads, writes: those in its queues."""
    if not has_requests(relayout, lane):
        return _NONE
    read_room, write_room = reads < policy.read_slots, writes < policy.write_slots
    own_clock = clock - relayout.value[START]
    return next_offer(relayout.engine, relayout.offers, lane, read_room, write_room, own_clock)


@inlined
def lanes_due(relayout, bus, buses):
    """The clock from which a lane of a bus looks for requests; FAR: not known."""
    due = FAR
    if relayout.value[BEGUN] == 0:
        return due
    for lane in range(bus, relayout.due.shape[0], buses):
        due = min(due, relayout.due[lane])
    return due + relayout.value[START] if due < FAR else FAR


@inlined
def mask_due_lanes(relayout, bus, buses, ranks, clock):
    """The mask of the lanes of a bus that look for requests from `clock` on."""
    mask = 0
    if relayout.value[BEGUN] == 1:
        for rank in range(ranks):
            mask |= (relayout.due[rank * buses + bus] <= clock - relayout.value[START]) << rank
    return mask


@inlined
def looks_for_offers(relayout, policy, lane, reads, writes, clock):
    """Whether a lane looks for a request of the engine at `clock`; if not, it does when more is offered."""
    relayout.due[lane] = FAR
    if not has_requests(relayout, lane):
        return False
    engine, offers, own_clock = relayout.engine, relayout.offers, clock - relayout.value[START]
    if is_due(engine, offers, lane, reads < policy.read_slots, writes < policy.write_slots, own_clock):
        return True
    change = next_change(engine, offers, lane, own_clock)
    if change > own_clock:
        relayout.due[lane] = change
    return False


@inlined
def requests_left(relayout):
    """Requests of the engine that are not served yet."""
    return relayout.value[UNSERVED]


@inlined
def admit_all(relayout, source):
    """A lane's source, with all requests of the engine admitted."""
    return Source(source.place, source.column, source.address, source.cycle, relayout.always, source.period)


@inlined
def enqueue_request(relayout, weights, lane, request, clock):
    """A lane takes a request at `clock`; returns its place in the lane's source."""
    engine, reads = relayout.engine, relayout.engine.read_tick.shape[0]
    record_taken(relayout.offers, lane, request)
    if request >= reads:
        write_taken(engine, request - reads, clock - relayout.value[START])
    return fill_slot(relayout.slots, relayout, weights, lane, request)


@inlined
def fill_slot(slots, relayout, weights, lane, request):
    """Put a request into a lane's source, if it is not there; returns its place."""
    if slots is None:
        return request
    slots.free_count[lane] -= 1
    slot = slots.free[lane, slots.free_count[lane]]
    slots.request[lane, slot] = request
    weights.place[lane, slot] = relayout.place[request]
    weights.column[lane, slot] = relayout.column[request]
    return slot


@inlined
def is_slot(slots, index):
    """Whether a place in a lane's source is a request of the engine."""
    if slots is None:
        return True
    return index < slots.free.shape[1]


@inlined
def empty_slot(slots, lane, slot):
    """Free a place in a lane's source; returns its request."""
    if slots is None:
        return slot
    slots.free[lane, slots.free_count[lane]] = slot
    slots.free_count[lane] += 1
    return slots.request[lane, slot]


@inlined
def source_of(relayout, weights, lane):
    """The reads and writes of a lane, as a source."""
    return source_with(relayout.slots, relayout, weights, lane)


@inlined
def source_with(slots, relayout, weights, lane):
    """`source_of` around an engine."""
    if slots is not None:
        return lane_source(weights, lane)
    cycle = weights.address[:0]
    # No burst is read or written twice: any number can be its address.
    return Source(relayout.place, relayout.column, relayout.place, cycle, weights.admitted[lane], 0)


@inlined
def is_relayouts(relayout, slot):
    """Whether a place in a lane's source has a request of the engine."""
    return is_slot(relayout.slots, slot)


@inlined
def record_served_request(relayout, lane, slot, clock):
    """The column command of a request of the engine has issued at `clock`."""
    request, own_clock = empty_slot(relayout.slots, lane, slot), clock - relayout.value[START]
    relayout.left[lane] -= 1
    if request < relayout.engine.read_tick.shape[0]:
        read_issued(relayout.engine, request, own_clock)
        record_issued(relayout.engine, relayout.offers, lane, own_clock)
        relayout.served[READ, lane] += 1
    else:
        relayout.served[WRITE, lane] += 1
    count_served(relayout, own_clock)


# ---- Reads of weights of a lane that also has requests of a relayout engine
#
# Reads of weights wait for the FIFO of the multipliers, but a relayout must not wait for it. Therefore a lane
# with further requests of the engine takes a read of weights only if a slot of the FIFO is reserved for it,
# and counts as refilling.


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
    room_at = next_fits_at(setup, weights, lane, value) if may_accept else FAR
    if relayout.promised[lane] == 0:
        room_at = min(room_at, taken_fit_at(setup, weights, lane, value))
    if room_at > clock:
        relayout.due[lane] = min(relayout.due[lane], room_at - relayout.value[START])
    return room_at <= clock


@inlined
def weights_are_next(relayout, lane):
    """Whether a lane's weights are next: true in every second call."""
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
    before = relayout.promised[lane]
    if not has_requests(relayout, lane):
        relayout.promised[lane] = 0
    elif taken_fit_at(setup, weights, lane, value) <= clock:
        relayout.promised[lane] = 1
    return relayout.promised[lane] != before


@inlined
def is_promised(relayout, lane):
    """Whether no read in a lane's queues waits for the FIFO."""
    return relayout.promised[lane] == 1
