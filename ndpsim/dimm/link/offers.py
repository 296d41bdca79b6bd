"""The choice of the next request that a relayout unit offers to a lane.

A controller writes as long as writes arrive, and each change between reading and writing costs a turnaround.
Therefore the unit decides when a lane writes. If both can be taken, reads come before writes, each in the
order in which the engine offers them. A lane is in one of three modes:

- in `BOTH` its writes are offered, too. It ends when `many_reads` reads are pending: other nodes would
  otherwise wait for their data until the writing ends.
- in `HOLD` writes wait until all pending reads have issued. After the first of them has issued, the
  controller reads. Then a few writes, `early_writes`, are offered: they free places for packets, and are too
  few for the controller to begin to write.
- in `DRAIN` writes are offered until `many_writes` of them are taken, or none is left. It begins when this
  number has been collected, but only while the lane has more than twice as many remaining reads as writes.
  Such a lane always has reads, and single writes would interrupt them each time. If a lane has fewer reads,
  they come first, because other lanes wait for their data.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, inlined
from ndpsim.dimm.link.packing import side_by_side
from ndpsim.dram.fast.vectors import assume_nonnegative

Narrow = NDArray[np.int32]

_READS, _WRITES = 0, 1
_NONE = -1
BOTH, HOLD, DRAIN = range(3)


@by_reference
class Offers(NamedTuple):
    """Requests that wait for their lane, in lists."""

    lane: Narrow  # [request]
    reads: int  # requests that are reads; they come first
    many_reads: int
    many_writes: int
    early_writes: int
    after: Narrow  # [request]: the next one of its list, -1: none
    first: Narrow  # [lane, 0 or 1]: the first read, or write, that the lane has not taken
    last: Narrow  # [lane, 0 or 1]
    # Of each lane, side by side in memory:
    uncounted: Narrow  # the first read that is not pending; -1: none
    under_way: Narrow  # reads that are offered and have not issued
    collected: Narrow  # writes that are offered and not taken
    last_of_many: Narrow  # the last of the first `many_writes` of these; -1: none
    reads_left: Narrow  # reads that have not issued, later ones included
    writes_left: Narrow  # writes that are not taken, later ones included
    mode: Narrow
    may_take: Narrow  # writes that it may still take in DRAIN or HOLD; -1: no read has issued
    mode_set_at: NDArray[np.int64]  # [lane]: the clock at which its mode was set last


def make_offers(lane: Narrow, reads: int, lanes: int, many_reads: int) -> Offers:
    """No requests yet; `lane`: of each, in order of their numbers, -1: none of these."""

    zeros = ("under_way", "collected", "reads_left", "writes_left", "mode", "may_take")
    none = ("uncounted", "last_of_many")
    # Arrays of a single lane would be contiguous, and kernels would be compiled again for this type.
    by_lane = side_by_side(max(lanes, 2), **dict.fromkeys(zeros + none, np.int32))
    for name, values in by_lane.items():
        values[:] = _NONE if name in none else 0
    for name, requests in (("reads_left", lane[:reads]), ("writes_left", lane[reads:])):
        by_lane[name][:] = np.bincount(requests[requests >= 0], minlength=max(lanes, 2))
    first = np.full((lanes, 2), _NONE, dtype=np.int32)
    return Offers(
        lane=lane,
        reads=reads,
        many_reads=many_reads,
        many_writes=2 * many_reads,
        early_writes=many_reads // 4,
        after=np.empty(len(lane), dtype=np.int32),
        first=first,
        last=first.copy(),
        mode_set_at=np.full(lanes, -1, dtype=np.int64),
        **by_lane,
    )


@inlined
def make_due(due, lane, clock):
    """A lane is due at a clock, or is before."""
    due[lane] = min(due[lane], clock)


@inlined
def enqueue_offered(engine, offers, due):
    """Put requests that the engine offers on the lists of their lanes, which are due then; due: [lane]."""
    for n in range(engine.offered_count[0]):
        request = assume_nonnegative(engine.offered_requests[n])
        lane, kind = assume_nonnegative(offers.lane[request]), _WRITES if request >= offers.reads else _READS
        offers.after[request] = _NONE
        if offers.first[lane, kind] < 0:
            offers.first[lane, kind] = request
            make_due(due, lane, engine.offered_at[request] + 1)
        else:
            offers.after[assume_nonnegative(offers.last[lane, kind])] = request
        offers.last[lane, kind] = request
        if kind == _WRITES:
            offers.collected[lane] += 1
            if offers.collected[lane] == offers.many_writes:
                offers.last_of_many[lane] = request
                make_due(due, lane, engine.offered_at[request] + 1)
        elif offers.uncounted[lane] < 0:
            offers.uncounted[lane] = request
    engine.offered_count[0] = 0


@inlined
def is_offered(engine, request, clock):
    """Whether there is a request and it can be taken at `clock`."""
    return request >= 0 and engine.offered_at[request] < clock


@inlined
def count_reads(engine, offers, lane, clock):
    """Count the pending reads."""
    while is_offered(engine, offers.uncounted[lane], clock):
        offers.under_way[lane] += 1
        offers.uncounted[lane] = offers.after[offers.uncounted[lane]]


@inlined
def may_drain(engine, offers, lane, clock):
    """Whether a lane that drains its writes can go on: it may take another, and one is offered."""
    return offers.may_take[lane] > 0 and is_offered(engine, offers.first[lane, _WRITES], clock)


@inlined
def must_drain(engine, offers, lane, clock):
    """Whether many writes are offered to a lane that has far more reads to come."""
    if offers.last_of_many[lane] < 0 or offers.reads_left[lane] <= 2 * offers.writes_left[lane]:
        return False
    return is_offered(engine, offers.last_of_many[lane], clock)


@inlined
def set_mode(engine, offers, lane, clock):
    """Count the pending reads of a lane and set its mode; again, before something changes, gives the same."""
    count_reads(engine, offers, lane, clock)
    offers.mode_set_at[lane] = clock
    mode, under_way = offers.mode[lane], offers.under_way[lane]
    if mode == DRAIN and not may_drain(engine, offers, lane, clock):
        mode, offers.may_take[lane] = HOLD if under_way > 0 else BOTH, _NONE
    if mode != DRAIN and must_drain(engine, offers, lane, clock):
        mode, offers.may_take[lane] = DRAIN, offers.many_writes
    if mode == HOLD and under_way == 0:
        mode = BOTH
    if mode == BOTH and under_way >= offers.many_reads:
        mode, offers.may_take[lane] = HOLD, _NONE
    offers.mode[lane] = mode


@inlined
def next_offer(engine, offers, lane, read_room, write_room, clock):
    """The request that a lane takes at `clock`, -1: none; rooms: whether its queues have slots."""
    set_mode(engine, offers, lane, clock)
    read, write = offers.first[lane, _READS], offers.first[lane, _WRITES]
    if read_room and is_offered(engine, read, clock):
        return read
    may_write = offers.mode[lane] != HOLD or offers.may_take[lane] > 0
    if write_room and may_write and is_offered(engine, write, clock):
        return write
    return _NONE


@inlined
def is_due(engine, offers, lane, read_room, write_room, clock):
    """Whether a lane may be offered a request at `clock`, or its mode may change then, as far as is known."""
    mode, write = offers.mode[lane], offers.first[lane, _WRITES]
    if mode != DRAIN and must_drain(engine, offers, lane, clock):
        return True
    if mode == HOLD and offers.under_way[lane] == 0:
        return True
    if read_room and is_offered(engine, offers.first[lane, _READS], clock):
        return True
    may_write = mode != HOLD or offers.may_take[lane] > 0
    return write_room and may_write and is_offered(engine, write, clock)


@inlined
def next_change(engine, offers, lane, clock):
    """The first clock after `clock` at which another request is offered to a lane, or `clock` if none is."""
    change = clock
    for request in (offers.first[lane, _READS], offers.first[lane, _WRITES], offers.last_of_many[lane]):
        if request >= 0 and engine.offered_at[request] >= clock:
            next_clock = engine.offered_at[request] + 1
            change = next_clock if change == clock else min(change, next_clock)
    return change


@inlined
def record_taken(offers, lane, request):
    """A lane has taken the request that was offered."""
    kind = _WRITES if request >= offers.reads else _READS
    offers.first[lane, kind] = offers.after[request]
    if kind == _WRITES:
        offers.writes_left[lane] -= 1
        offers.may_take[lane] -= 1
        offers.collected[lane] -= 1
        if offers.last_of_many[lane] >= 0:
            offers.last_of_many[lane] = offers.after[offers.last_of_many[lane]]


@inlined
def record_issued(engine, offers, lane, clock):
    """A read of a lane issues at `clock`, after the lane has looked for requests, if it was due."""
    if offers.mode_set_at[lane] < clock:
        set_mode(engine, offers, lane, clock)
    offers.under_way[lane] -= 1
    offers.reads_left[lane] -= 1
    if offers.mode[lane] == HOLD and offers.may_take[lane] < 0:
        offers.may_take[lane] = offers.early_writes
