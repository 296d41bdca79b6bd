"""The requests that a relayout unit offers to a lane, against a plain implementation of the rules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, kernel
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

LANES, CLOCKS, NEVER = 2, 160, 1 << 40
AHEAD = 8  # clocks for which the engine knows what it offers


@by_reference
class Handed(NamedTuple):
    """What a relayout's engine offers."""

    offered_requests: NDArray[np.int32]
    offered_count: NDArray[np.int64]
    offered_at: NDArray[np.int64]


class Events(NamedTuple):
    """What happens: by clock, and where it matters by lane.

    Attributes:
        number: of requests that the engine offers.
        read_room, write_room: whether the lane's queue has a slot.
        issued: reads that the lane may issue.
    """

    number: NDArray[np.int64]
    read_room: NDArray[np.bool_]
    write_room: NDArray[np.bool_]
    issued: NDArray[np.int64]


@kernel
def play(handed, offers, due, order, events, waiting, taken, was_due, at_every_clock):
    """Let lanes take what they are offered; writes `taken` and `was_due` by clock and lane.

    If not at every clock, a lane looks only when it is due, or when its rooms differ or a read has issued.
    """
    begin = 0
    for clock in range(taken.shape[0]):
        for lane in range(taken.shape[1]):
            rooms = events.read_room[clock, lane], events.write_room[clock, lane]
            others = events.read_room[clock - 1, lane], events.write_room[clock - 1, lane]
            looks = at_every_clock or due[lane] <= clock or rooms != others
            was_due[clock, lane] = is_due(handed, offers, lane, rooms[0], rooms[1], clock)
            if looks:
                request = next_offer(handed, offers, lane, rooms[0], rooms[1], clock)
                taken[clock, lane] = request
                if request >= 0:
                    record_taken(offers, lane, request)
                    if request < offers.reads:
                        waiting[lane] += 1
            issued = min(waiting[lane], events.issued[clock, lane])
            for _ in range(issued):
                record_issued(handed, offers, lane, clock)
                waiting[lane] -= 1
            if looks or issued > 0:
                due[lane] = next_change(handed, offers, lane, clock + 1)
                if is_due(handed, offers, lane, rooms[0], rooms[1], clock + 1):
                    due[lane] = clock + 1
                elif due[lane] == clock + 1:  # no request is known that will be offered
                    due[lane] = NEVER
        if clock % AHEAD == 0:
            for later in range(clock, clock + AHEAD):
                end = min(len(order), begin + events.number[later])
                for place in range(begin, end):
                    handed.offered_requests[handed.offered_count[0]] = order[place]
                    handed.offered_at[order[place]] = later
                    handed.offered_count[0] += 1
                begin = end
            enqueue_offered(handed, offers, due)


class Lane:
    """The rules as the docstring of `ndpsim.dimm.link.offers` has them, with plain lists."""

    def __init__(self, many_reads: int, reads: int, writes: int) -> None:
        self.many_reads, self.many_writes, self.early_writes = many_reads, 2 * many_reads, many_reads // 4
        self.reads_left, self.writes_left = reads, writes
        self.reads: list[tuple[int, int]] = []  # offered and not taken: the clock, and the request
        self.writes: list[tuple[int, int]] = []
        self.read_clocks: list[int] = []  # of all that were offered
        self.issued, self.mode = 0, "both"
        self.allowed: int | None = None  # writes in this mode; None: no read has issued in it

    def offer(self, clock: int, request: int, is_write: bool) -> None:
        (self.writes if is_write else self.reads).append((clock, request))
        if not is_write:
            self.read_clocks.append(clock)

    def next(self, clock: int, read_room: bool, write_room: bool) -> int:
        pending = sum(at < clock for at in self.read_clocks) - self.issued
        reads = [request for at, request in self.reads if at < clock]
        writes = [request for at, request in self.writes if at < clock]
        if self.mode == "drain" and (self.allowed == 0 or not writes):
            self.mode, self.allowed = ("hold" if pending else "both"), None
        if (
            self.mode != "drain"
            and len(writes) >= self.many_writes
            and self.reads_left > 2 * self.writes_left
        ):
            self.mode, self.allowed = "drain", self.many_writes
        if self.mode == "hold" and not pending:
            self.mode = "both"
        if self.mode == "both" and pending >= self.many_reads:
            self.mode, self.allowed = "hold", None
        if read_room and reads:
            del self.reads[0]
            return reads[0]
        if write_room and writes and (self.mode != "hold" or self.allowed):
            del self.writes[0]
            self.writes_left -= 1
            if self.allowed is not None:
                self.allowed -= 1
            return writes[0]
        return -1

    def issue(self) -> None:
        self.issued += 1
        self.reads_left -= 1
        if self.mode == "hold" and self.allowed is None:
            self.allowed = self.early_writes


def played(
    offers: Offers, order: NDArray[np.int32], events: Events, at_every_clock: bool
) -> tuple[list[list[int]], list[list[bool]]]:
    """What the lanes have taken, and whether they were due, by clock and lane."""
    handed = Handed(np.zeros(len(order), np.int32), np.zeros(1, np.int64), np.zeros(len(order), np.int64))
    taken, was_due = np.full((CLOCKS, LANES), -1, np.int64), np.zeros((CLOCKS, LANES), np.bool_)
    due, waiting = np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)
    play(handed, offers, due, order, events, waiting, taken, was_due, at_every_clock)
    return taken.tolist(), was_due.tolist()


def expected(offers: Offers, order: NDArray[np.int32], events: Events) -> list[list[int]]:
    """The same as `played`, without whether they were due, by the plain rules."""
    of_lane = [np.flatnonzero(offers.lane == lane) for lane in range(LANES)]
    lanes = [
        Lane(offers.many_reads, int((own < offers.reads).sum()), int((own >= offers.reads).sum()))
        for own in of_lane
    ]
    taken, waiting, offered = [], [0] * LANES, iter(order.tolist())
    for clock in range(CLOCKS):
        row = []
        for number, lane in enumerate(lanes):
            request = lane.next(clock, events.read_room[clock, number], events.write_room[clock, number])
            row.append(request)
            waiting[number] += 0 <= request < offers.reads
            for _ in range(min(waiting[number], events.issued[clock, number])):
                lane.issue()
                waiting[number] -= 1
        taken.append(row)
        for _, request in zip(range(events.number[clock]), offered, strict=False):
            lanes[offers.lane[request]].offer(clock, request, request >= offers.reads)
    return taken


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), many_reads=st.sampled_from([1, 2, 4, 8]))
def test_a_lane_is_offered_what_the_rules_say_also_when_it_looks_only_when_it_is_due(seed, many_reads):
    random = np.random.default_rng(seed)
    reads, writes = random.integers(1, 200), random.integers(0, 80)
    lane = random.integers(0, LANES, reads + writes).astype(np.int32)
    order = random.permutation(reads + writes).astype(np.int32)
    read_room, write_room, issued, offered = random.uniform(0.1, 1, 4)
    events = Events(
        random.poisson(3 * offered**2, CLOCKS),
        *(
            (random.random((CLOCKS // 20, LANES)) < room).repeat(20, axis=0)
            for room in (read_room, write_room)
        ),
        random.poisson(2 * issued**3, (CLOCKS, LANES)),
    )

    def offers() -> Offers:
        return make_offers(lane, reads, LANES, many_reads)

    taken, was_due = played(offers(), order, events, True)
    assert taken == expected(offers(), order, events)
    for clock in range(CLOCKS):
        for one in range(LANES):
            assert was_due[clock][one] or taken[clock][one] < 0
    assert played(offers(), order, events, False)[0] == taken
