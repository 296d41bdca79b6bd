"""The shared DIMM once more, written to be read: one step for every clock, no shortcut.

It must issue the same commands at the same clocks as `engine` and carry the same data over the buses; tests
hold the two together. The weights of all lanes are one step of the program that may start at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from ndpsim.dram.sharing.state import HOST_FIRST, READ, SLICE, WRITE
from numpy.typing import NDArray

from ndpsim.dram.plain import PlainController, PlainSink, Request
from ndpsim.dram.state import Policy
from ndpsim.spec import COMMANDS, Tables
from ndpsim.spec.standard import PREPB, RD, WR

__all__ = ["HostRequest", "PlainDimm", "PlainLane"]


class HostRequest(NamedTuple):
    """A request of the host: not made before the clock `due`, for a lane."""

    due: int
    lane: int
    request: Request


class _Owner(PlainController):
    """A lane's channel as one of its owners sees it."""

    other: _Owner

    def _is_held(self, place: tuple[int, int, int]) -> bool:
        return bool(self.active or self.other.active) and self.banks[place].active > 0

    def has_credit(self) -> bool:
        """Whether a read that issues now has a place for its data."""
        return self.sink is None or self.sink.has_room(self.clock)

    def oldest(self, queue: list[Request], may_go: Callable[[Request], bool]) -> tuple[Request, int] | None:
        """The oldest ready request of a queue that may go, and its command."""
        hits: dict[tuple[int, int, int], int] = {}
        for request in queue if self.policy.row_hit_first else []:
            if self.banks[request.place].open_row == request.row:
                hits[request.place] = min(request.arrived, hits.get(request.place, request.arrived))
        best: tuple[Request, int] | None = None
        for request in filter(may_go, queue):
            command = self._next_command(request)
            if command == PREPB and queue is not self.active and self._is_held(request.place):
                continue
            if command == PREPB and hits.get(request.place, request.arrived + 1) <= request.arrived:
                continue
            if command == RD and not self.has_credit():
                continue
            if self._is_ready(command, request) and (best is None or request.arrived < best[0].arrived):
                best = request, command
        return best


@dataclass
class PlainLane:
    """A lane and its two owners."""

    tables: Tables
    policy: Policy
    arbitration: int
    slice_clocks: int
    patience: int
    sink: PlainSink
    weights: deque[Request]
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.ndp = _Owner(self.tables, self.policy, self.sink)
        self.host = _Owner(self.tables, self.policy)
        self.ndp.other, self.host.other = self.host, self.ndp
        for shared in ("banks", "ready", "acts", "trace"):
            setattr(self.host, shared, getattr(self.ndp, shared))
        self.last_column: int | None = None
        self.hungry = False
        self.opened_by: dict[tuple[int, int, int], _Owner] = {}

    def step(self, clock: int) -> tuple[Request, int] | None:
        """Issue at most one command; returns the host's read and its clock, if it was one."""
        if self.weights and self.ndp.offer(self.weights[0]):
            self.weights.popleft()
        self.ndp.clock = self.host.clock = clock
        self.ndp._refresh()
        self.ndp._close_capped_rows()
        chosen = self._choose(clock)
        if chosen is None:
            return None
        owner, queue, request, command = chosen
        self._count(owner, queue, request, command)
        owner._issue(queue, request, command)
        return (request, clock) if command == RD and owner is self.host else None

    # ---- whose command comes next ----

    def _note_hunger(self, clock: int) -> None:
        room = self.sink.has_room(clock)
        if self.sink.depth - len(self.sink.fifo) > (self.sink.depth - 1) // 2:
            self.hungry = True
        elif not room:
            self.hungry = False

    def _is_late(self, owner: _Owner, clock: int) -> bool:
        return any(
            clock - request.arrived > self.patience for request in [*owner.active, *self._queue_of(owner)]
        )

    def _first(self, clock: int) -> _Owner:
        if not self.hungry:
            return self.host
        late = [owner for owner in (self.ndp, self.host) if self._is_late(owner, clock)]
        if len(late) == 1:
            return late[0]
        if self.arbitration == SLICE:
            return self.ndp if (clock - 1) // self.slice_clocks % 2 else self.host
        return self.host if self.arbitration == HOST_FIRST else self.ndp

    def _queue_of(self, owner: _Owner) -> list[Request]:
        return owner.writes if owner is self.host and owner.write_mode else owner.reads

    def _choose(self, clock: int) -> tuple[_Owner, list[Request], Request, int] | None:
        refreshing = bool(self.ndp.priority)
        if not refreshing:
            self._set_write_mode()
        self._note_hunger(clock)
        first = self._first(clock)
        second = first.other
        waits_in = [first.active] if refreshing else [first.active, self._queue_of(first)]
        for queue in waits_in:
            found = first.oldest(queue, lambda request: True)
            if found:
                return first, queue, *found
        wanted = [request for queue in waits_in for request in queue]
        banks = {request.place for request in wanted}
        open_for = {request.final for request in wanted if first.banks[request.place].open_row == request.row}

        def turns(request: Request) -> bool:
            return (WR if request.final == RD else RD) in open_for

        found = second.oldest(second.active, lambda request: request.place in banks or not turns(request))
        if found:
            return second, second.active, *found
        if refreshing:
            head = self._refresh_command()
            return head and (self.ndp, self.ndp.priority, *head)
        queue = self._queue_of(second)
        found = second.oldest(queue, lambda request: request.place not in banks and not turns(request))
        return found and (second, queue, *found)

    def _refresh_command(self) -> tuple[Request, int] | None:
        ndp, head = self.ndp, self.ndp.priority[0]
        command = ndp._next_command(head)
        held = any(ndp._is_held(place) for place in ndp._banks_of(command, head))
        held = held and (bool(self.host.active) or ndp.has_credit())
        if (COMMANDS[command].closes and held) or not ndp._is_ready(command, head):
            return None
        return head, command

    def _set_write_mode(self) -> None:
        host, reads = self.host, self.host.reads or self.ndp.reads
        if host.write_mode:
            host.write_mode = not (len(host.writes) < self.policy.write_mode_below and reads)
        else:
            host.write_mode = len(host.writes) > self.policy.write_mode_from or not reads

    def _count(self, owner: _Owner, queue: list[Request], request: Request, command: int) -> None:
        if command in (RD, WR):
            self.counts["turnarounds"] += self.last_column not in (None, command)
            self.last_column = command
        elif COMMANDS[command].opens:
            self.opened_by[request.place] = owner
        elif command == PREPB and queue is not owner.priority and self.opened_by[request.place] is not owner:
            self.counts["lost by the NDP unit" if owner is self.host else "lost by the host"] += 1


@dataclass
class _PlainBus:
    """A bus to the host; `free` is a tick."""

    bubble: NDArray[np.int64]
    free: int = 0
    direction: int | None = None
    rank: int = -1
    requests: deque[HostRequest] = field(default_factory=deque)
    returns: deque[tuple[int, int, int]] = field(default_factory=deque)  # ready clock, arrival, rank
    jobs: deque[int] = field(default_factory=deque)  # ready ticks
    under_way: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    latencies: Counter[int] = field(default_factory=Counter)

    def free_from(self, direction: int, rank: int, dram_ticks: int) -> int:
        """The tick from which it can carry a transfer."""
        if self.direction is None:
            return 0
        return self.free + int(self.bubble[self.direction, direction, int(rank != self.rank)]) * dram_ticks

    def carry(self, direction: int, rank: int, end: int) -> None:
        """It carries a transfer until a tick."""
        self.counts["turnarounds"] += self.direction == 1 - direction
        self.counts["rank switches"] += self.direction is not None and rank != self.rank
        self.direction, self.rank, self.free = direction, rank, end


@dataclass
class PlainDimm:
    """Lanes and buses; `step` once a clock, beginning with clock 1."""

    tables: Tables
    policy: Policy
    lanes: list[PlainLane]
    requests: list[deque[HostRequest]]  # by bus
    bubble: NDArray[np.int64]
    column_latency: int
    dram_ticks: int
    job_ticks: int = 0
    job_direction: int = WRITE
    jobs: list[int] = field(default_factory=list)
    clock: int = 0

    def __post_init__(self) -> None:
        self.buses = [
            _PlainBus(self.bubble, requests=requests, jobs=deque(self.jobs)) for requests in self.requests
        ]

    def step(self) -> None:
        """A clock: buses, then lanes."""
        self.clock += 1
        for bus in self.buses:
            self._carry_jobs(bus)
            self._carry_return(bus)
            self._take_request(bus)
        for number, lane in enumerate(self.lanes):
            read = lane.step(self.clock)
            if read:
                ready = self.clock + self.column_latency
                self._return(number, ready, read[0].arrived)

    def _return(self, lane: int, ready: int, arrived: int) -> None:
        count = len(self.buses)
        self.buses[lane % count].returns.append((ready, arrived, lane // count))

    def _carry_jobs(self, bus: _PlainBus) -> None:
        of_buffer = len(self.lanes) // len(self.buses)
        while bus.jobs and bus.jobs[0] <= self.clock * self.dram_ticks:
            ready = max(bus.jobs.popleft(), bus.free_from(self.job_direction, of_buffer, self.dram_ticks))
            bus.carry(self.job_direction, of_buffer, ready + self.job_ticks)

    def _carry_return(self, bus: _PlainBus) -> None:
        if not bus.returns:
            return
        ready, arrived, rank = bus.returns[0]
        if ready > self.clock or bus.free_from(READ, rank, self.dram_ticks) > self.clock * self.dram_ticks:
            return
        bus.returns.popleft()
        end = self.clock + self.tables.burst
        bus.carry(READ, rank, end * self.dram_ticks)
        bus.under_way -= 1
        bus.counts["reads"] += 1
        bus.latencies[end - arrived] += 1

    def _take_request(self, bus: _PlainBus) -> None:
        if not bus.requests or bus.requests[0].due > self.clock:
            return
        _, number, request = bus.requests[0]
        rank, host, write = number // len(self.buses), self.lanes[number].host, request.final == WR
        if write and bus.free_from(WRITE, rank, self.dram_ticks) > self.clock * self.dram_ticks:
            return
        if not write and bus.under_way == self.policy.read_slots:
            return
        forwarded = host.counts["forwarded"]
        if not host.offer(request):
            return
        bus.requests.popleft()
        bus.counts["taken"] += 1
        if write:
            bus.counts["writes"] += 1
            bus.carry(WRITE, rank, (self.clock + self.tables.burst) * self.dram_ticks)
            return
        bus.under_way += 1
        if host.counts["forwarded"] > forwarded:
            self._return(number, self.clock, self.clock - 1)
