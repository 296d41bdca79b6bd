"""The controller once more, written to be read: one step for every clock, no shortcut.

It knows the same tables and policy as `controller` and must issue the same commands at the same clocks
and count the same events; tests hold the two together. Use `controller` for work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ndpsim.dram.state import ALL_BANK, SAME_BANK, STAGGERED, Policy
from ndpsim.spec import COMMANDS, Tables
from ndpsim.spec.standard import ACT, PREAB, PREPB, PRESB, RD, RDA, REFAB, REFSB, WR, WRA

__all__ = ["PlainController", "PlainSink", "Request"]

_NONE = -1


@dataclass(eq=False)
class Request:
    """A read, a write, or (`arrived` -1) a maintenance command for a bank or a whole rank."""

    final: int
    rank: int
    bankgroup: int = _NONE
    bank: int = _NONE
    row: int = _NONE
    column: int = _NONE
    address: int = _NONE
    arrived: int = -1
    started: bool = False

    @property
    def place(self) -> tuple[int, int, int]:
        """The bank addressed."""
        return self.rank, self.bankgroup, self.bank


@dataclass
class _Bank:
    open_row: int | None = None
    active: int = 0
    accesses: int = 0
    closing: bool = False


class PlainSink:
    """A FIFO of `depth` bursts and `servers` that hold each for `service` ticks; see `dram.sink`."""

    def __init__(self, depth: int, servers: int, dram_ticks: int, unit_ticks: int, service: int) -> None:
        self.depth, self.dram_ticks, self.unit_ticks, self.service = depth, dram_ticks, unit_ticks, service
        self.fifo: list[int] = []  # ticks of arrival, oldest first, of bursts promised a slot
        self.busy_until = [0] * servers
        self.tick = 0
        self.finished: list[int] = []

    def has_room(self, clock: int) -> bool:
        """Whether a read issued at `clock` is promised a slot."""
        while self.tick <= clock * self.dram_ticks:
            self._edge()
            self.tick += self.unit_ticks
        return len(self.fifo) < self.depth

    def expect(self, clock: int) -> None:
        """A burst will arrive at `clock`."""
        self.fifo.append(clock * self.dram_ticks)

    def drain(self) -> list[int]:
        """Let the servers finish; returns when each burst was done, in ticks."""
        while self.fifo:
            self._edge()
            self.tick += self.unit_ticks
        return self.finished

    def _edge(self) -> None:
        for server, busy in enumerate(self.busy_until):
            if busy <= self.tick and self.fifo and self.fifo[0] <= self.tick:
                self.fifo.pop(0)
                self.busy_until[server] = self.tick + self.service
                self.finished.append(self.tick + self.service)


@dataclass
class PlainController:
    """One channel. Offer requests with `offer`, then `step`, once a clock, beginning with clock 1."""

    tables: Tables
    policy: Policy
    sink: PlainSink | None = None
    clock: int = 0
    reads: list[Request] = field(default_factory=list)
    writes: list[Request] = field(default_factory=list)
    active: list[Request] = field(default_factory=list)
    priority: list[Request] = field(default_factory=list)
    write_mode: bool = False
    same_banks: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    latencies: Counter[int] = field(default_factory=Counter)
    trace: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        t, count = self.tables, len(COMMANDS)
        self.banks = {
            (rank, group, bank): _Bank()
            for rank in range(t.ranks)
            for group in range(t.bankgroups)
            for bank in range(t.banks_per_group)
        }
        # The earliest clock of each command at each node: (), (rank,), (rank, group), (rank, group, bank).
        self.ready: dict[tuple[int, ...], np.ndarray] = {
            place[:depth]: np.zeros(count, dtype=np.int64) for place in self.banks for depth in range(4)
        }
        self.acts: dict[int, list[int]] = {rank: [] for rank in range(t.ranks)}
        self.hit_since: dict[tuple[int, int, int], int] = {}

    # ---- what the front end does ----

    def offer(self, request: Request) -> bool:
        """Take a request, if it can be taken, before the step of the next clock."""
        if any(write.address == request.address for write in self.writes):
            self.counts["coalesced" if request.final == WR else "forwarded"] += 1
            self.counts["served"] += 1
            if request.final == RD:
                self.counts["read_latency"] += 1
                self.latencies[1] += 1
            return True
        queue, slots = (
            (self.writes, self.policy.write_slots)
            if request.final == WR
            else (self.reads, self.policy.read_slots)
        )
        if len(queue) >= slots:
            return False
        request.arrived = self.clock
        queue.append(request)
        return True

    # ---- a clock ----

    def step(self) -> None:
        """Advance the clock by one and issue at most one command."""
        self.clock += 1
        self.counts["read_queue"] += len(self.reads)
        self.counts["write_queue"] += len(self.writes)
        self._refresh()
        self._close_capped_rows()
        chosen = self._choose()
        if chosen is not None:
            self._issue(*chosen)

    def _refresh(self) -> None:
        t, ranks = self.tables, range(self.tables.ranks)
        if self.policy.refresh == ALL_BANK and self.clock % t.refresh_interval == 0:
            self.priority += [Request(REFAB, rank, started=True) for rank in ranks]
        if self.policy.refresh == STAGGERED:
            for rank in ranks:
                offset = (rank + 1) * (t.refresh_interval // t.ranks)
                if self.clock >= offset and (self.clock - offset) % t.refresh_interval == 0:
                    self.priority.append(Request(REFAB, rank, started=True))
        if self.policy.refresh == SAME_BANK:
            while (self.same_banks + 1) * t.refresh_interval // t.banks_per_group == self.clock:
                bank = self.same_banks % t.banks_per_group
                self.priority += [Request(REFSB, rank, bank=bank, started=True) for rank in ranks]
                self.same_banks += 1

    def _close_capped_rows(self) -> None:
        if not self.policy.row_cap:
            return
        for place, bank in self.banks.items():
            capped = bank.accesses >= self.policy.row_cap and not bank.closing
            if capped and self._is_ready(PREPB, Request(PREPB, *place)):
                self.priority.append(Request(PREPB, *place, started=True))
                bank.closing = True

    # ---- choosing ----

    def _choose(self) -> tuple[list[Request], Request, int] | None:
        ready = self._oldest_ready(self.active, lambda request: False)
        if ready:
            return self.active, *ready
        if self.priority:
            head = self.priority[0]
            command = self._next_command(head)
            held = any(self._is_held(place) for place in self._banks_of(command, head))
            held = held and (self.sink is None or self.sink.has_room(self.clock))
            if (COMMANDS[command].closes and held) or not self._is_ready(command, head):
                return None
            return self.priority, head, command
        self._set_write_mode()
        queue = self.writes if self.write_mode else self.reads
        ready = self._oldest_ready(queue, lambda request: self._is_held(request.place))
        return (queue, *ready) if ready else None

    def _oldest_ready(
        self, queue: list[Request], held: Callable[[Request], bool]
    ) -> tuple[Request, int] | None:
        hits: dict[tuple[int, int, int], int] = {}
        for request in queue:
            if self.policy.row_hit_first and self.banks[request.place].open_row == request.row:
                hits[request.place] = min(request.arrived, hits.get(request.place, request.arrived))
        best: tuple[Request, int] | None = None
        for request in queue:
            command = self._next_command(request)
            if command == PREPB and (
                held(request) or hits.get(request.place, request.arrived + 1) <= request.arrived
            ):
                continue
            if command == RD and self.sink is not None and not self.sink.has_room(self.clock):
                continue
            if self._is_ready(command, request) and (best is None or request.arrived < best[0].arrived):
                best = request, command
        return best

    def _next_command(self, request: Request) -> int:
        if request.final in (REFAB, REFSB):
            banks = self._banks_of(request.final, request)
            if all(self.banks[place].open_row is None for place in banks):
                return request.final
            return PREAB if request.final == REFAB else PRESB
        if request.final == PREPB:
            return PREPB
        row = self.banks[request.place].open_row
        return ACT if row is None else request.final if row == request.row else PREPB

    def _set_write_mode(self) -> None:
        if self.write_mode:
            self.write_mode = not (len(self.writes) < self.policy.write_mode_below and self.reads)
        else:
            self.write_mode = len(self.writes) > self.policy.write_mode_from or not self.reads

    def _is_held(self, place: tuple[int, int, int]) -> bool:
        return bool(self.active) and self.banks[place].active > 0

    # ---- timing ----

    def _banks_of(self, command: int, request: Request) -> list[tuple[int, int, int]]:
        """The banks that a command takes."""
        scope = COMMANDS[command].scope
        if scope == "bank":
            return [request.place]
        of_rank = [place for place in self.banks if place[0] == request.rank]
        return [place for place in of_rank if scope == "rank" or place[2] == request.bank]

    def _nodes_of(self, command: int, request: Request) -> list[tuple[int, ...]]:
        """The nodes at which a command's distances are counted."""
        scope = COMMANDS[command].scope
        nodes: list[tuple[int, ...]] = [(), (request.rank,)]
        if scope == "bank":
            nodes.append((request.rank, request.bankgroup))
        if scope != "rank":
            nodes += self._banks_of(command, request)
        return nodes

    def _is_ready(self, command: int, request: Request) -> bool:
        return all(self.ready[node][command] <= self.clock for node in self._nodes_of(command, request))

    def _note_timing(self, command: int, request: Request) -> None:
        for place in self._nodes_of(command, request):
            node = self.ready[place]
            np.maximum(node, self.clock + self.tables.gap[len(place), command], out=node)
        for other in range(self.tables.ranks):
            if other != request.rank:
                node = self.ready[(other,)]
                np.maximum(node, self.clock + self.tables.sibling_gap[command], out=node)
        if command == ACT:
            acts = self.acts[request.rank]
            acts.append(self.clock)
            if len(acts) >= 4:
                node = self.ready[(request.rank,)]
                node[ACT] = max(node[ACT], acts[-4] + self.tables.activate_window)

    # ---- issuing ----

    def _issue(self, queue: list[Request], request: Request, command: int) -> None:
        if self.policy.row_cap and command in (RD, WR):
            closing = RDA if command == RD else WRA
            capped = self.banks[request.place].accesses >= self.policy.row_cap
            if capped and self._is_ready(closing, request):
                command = closing
        if not request.started:
            row = self.banks[request.place].open_row
            self.counts["misses" if row is None else "hits" if row == request.row else "conflicts"] += 1
            request.started = True
        self._note_timing(command, request)
        self._note_rows(command, request)
        if queue is self.priority and self.sink is not None and not self.sink.has_room(self.clock):
            self._take_back()
        self._record(command, request)
        self._move_on(queue, request, command)

    def _note_rows(self, command: int, request: Request) -> None:
        for place in self._banks_of(command, request):
            bank = self.banks[place]
            if command == ACT:
                bank.open_row = request.row
                self.counts["open_clocks"] -= self.clock
            elif command in (RD, WR):
                bank.accesses += 1
            elif COMMANDS[command].closes:
                if bank.open_row is not None:
                    self.counts["open_clocks"] += self._closes_at(command, place)
                bank.open_row, bank.accesses, bank.closing = None, 0, False

    def _closes_at(self, command: int, place: tuple[int, int, int]) -> int:
        """When a command closes a bank: an auto-precharge, as soon as a PREpb could have followed it."""
        if command not in (RDA, WRA):
            return self.clock
        after = self.tables.gap[3, RD if command == RDA else WR, PREPB]
        return int(max(self.ready[place][PREPB], self.clock + after))

    def _record(self, command: int, request: Request) -> None:
        scope = COMMANDS[command].scope
        to_column = COMMANDS[command].reads or COMMANDS[command].writes
        self.trace.append(
            (
                self.clock,
                command,
                request.rank,
                request.bankgroup if scope == "bank" else _NONE,
                _NONE if scope == "rank" else request.bank,
                request.row if to_column or command == ACT else _NONE,
                request.column if to_column else _NONE,
            )
        )

    def _move_on(self, queue: list[Request], request: Request, command: int) -> None:
        if command == ACT:
            if len(self.active) < len(self.banks):
                self.banks[request.place].active += 1
                if queue is not self.active:
                    queue.remove(request)
                    self.active.append(request)
        elif command in (RD, RDA, WR, WRA):
            if queue is self.active:
                self.banks[request.place].active -= 1
            queue.remove(request)
            self.counts["served"] += 1
            if command in (RD, RDA):
                self._note_read(request)
        elif command in (REFAB, REFSB) or (queue is self.priority and command == PREPB):
            queue.remove(request)

    def _take_back(self) -> None:
        """Return to the read queue the active requests whose row was closed while the sink had no room."""
        for request in [one for one in self.active if self.banks[one.place].open_row is None]:
            self.banks[request.place].active -= 1
            self.active.remove(request)
            self.reads.append(request)

    def _note_read(self, request: Request) -> None:
        end = self.clock + self.tables.read_latency
        self.counts["read_latency"] += end - request.arrived
        self.latencies[end - request.arrived] += 1
        if self.sink is not None:
            self.sink.expect(end)
