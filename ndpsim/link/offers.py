"""What a relayout unit offers a lane next, of the requests that the engine has handed out for it.

Reads go before writes where both can be taken, each in the order in which they were handed out. Controllers
write as long as writes come; a DIMM that is written could then not be read from, and what waits for its data
would wait until the writing ends. So when as many reads of a lane are under way as `many_reads`, its writes
wait until all of these have issued.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._by_reference import by_reference
from ndpsim._jit import inlined
from ndpsim.dram.fast.words import assume_nonnegative

__all__ = ["Offers", "make_offers", "next_change", "next_offer", "note_issued", "note_taken", "take_handed"]

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

_READS, _WRITES = 0, 1
_NONE = -1


@by_reference
class Offers(NamedTuple):
    """Requests that wait for their lane, in lists."""

    lane: Narrow  # [request]
    reads: int  # requests that are reads; they come first
    many_reads: int
    after: Narrow  # [request]: the next one of its list, -1: none
    first: Narrow  # [lane, 0 or 1]: the first read, or write, that the lane has not taken
    last: Narrow  # [lane, 0 or 1]
    uncounted: Narrow  # [lane]: the first read that is not among those under way, -1: none
    under_way: Ints  # [lane]: reads that are offered and have not issued
    writes_wait: Ints  # [lane]: 1: for these reads


def make_offers(lane: Narrow, reads: int, lanes: int, many_reads: int) -> Offers:
    """No requests yet; `lane`: of each, in order of their numbers."""

    def zeros() -> Ints:
        return np.zeros(lanes, dtype=np.int64)

    first, uncounted = np.full((lanes, 2), _NONE, dtype=np.int32), np.full(lanes, _NONE, dtype=np.int32)
    after = np.empty(len(lane), dtype=np.int32)
    return Offers(lane, reads, many_reads, after, first, first.copy(), uncounted, zeros(), zeros())


@inlined
def take_handed(engine, offers, due):
    """Put requests that the engine has handed out on the lists of their lanes; these are due then."""
    for n in range(engine.handed_count[0]):
        request = assume_nonnegative(engine.handed[n])
        lane, kind = assume_nonnegative(offers.lane[request]), _WRITES if request >= offers.reads else _READS
        offers.after[request] = _NONE
        if offers.first[lane, kind] < 0:
            offers.first[lane, kind] = request
            due[lane] = min(due[lane], engine.offered_at[request] + 1)
        else:
            offers.after[assume_nonnegative(offers.last[lane, kind])] = request
        offers.last[lane, kind] = request
        if kind == _READS and offers.uncounted[lane] < 0:
            offers.uncounted[lane] = request
    engine.handed_count[0] = 0


@inlined
def is_offered(engine, request, clock):
    """Whether there is a request and it can be taken at `clock`."""
    return request >= 0 and engine.offered_at[request] < clock


@inlined
def count_reads(engine, offers, lane, clock):
    """Count the reads under way; where they have become many, writes wait."""
    while is_offered(engine, offers.uncounted[lane], clock):
        offers.under_way[lane] += 1
        offers.uncounted[lane] = offers.after[offers.uncounted[lane]]
    if offers.under_way[lane] >= offers.many_reads:
        offers.writes_wait[lane] = 1


@inlined
def next_offer(engine, offers, lane, read_room, write_room, clock):
    """The request that a lane takes at `clock`, -1: none; rooms: whether its queues have slots."""
    count_reads(engine, offers, lane, clock)
    read, write = offers.first[lane, _READS], offers.first[lane, _WRITES]
    if read_room and is_offered(engine, read, clock):
        return read
    if write_room and offers.writes_wait[lane] == 0 and is_offered(engine, write, clock):
        return write
    return _NONE


@inlined
def next_change(engine, offers, lane, clock):
    """The first clock after `clock` at which another request is offered to a lane, or `clock` if none is."""
    change = clock
    for kind in range(2):
        request = offers.first[lane, kind]
        if request >= 0 and engine.offered_at[request] >= clock:
            at = engine.offered_at[request] + 1
            change = at if change == clock else min(change, at)
    return change


@inlined
def note_taken(offers, lane, request):
    """A lane has taken the request that was offered."""
    offers.first[lane, _WRITES if request >= offers.reads else _READS] = offers.after[request]


@inlined
def note_issued(offers, lane):
    """A read of a lane has issued."""
    offers.under_way[lane] -= 1
    if offers.under_way[lane] == 0:
        offers.writes_wait[lane] = 0
