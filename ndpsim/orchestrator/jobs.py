"""Jobs of a phase as they are collected, and the arrays that the event loop has of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.events.state import Jobs, Kinds, Slowdown, Work

Floats = NDArray[np.float64]


class Label(NamedTuple):
    """What a job is, for records; see `JobRecord`."""

    resource: str
    kind: str
    expert: int = -1
    share: float = 1.0
    tokens: int = 0
    bytes: int = 0
    alone_ns: float = 0.0
    read_limit_gbps: float = 0.0


class Beside(NamedTuple):
    """Of an NDP job, what host reads and relayouts are to it, and it to them.

    Attributes:
        row: of `Slowdown`.
        between: how far it is from there to the next.
        bus_ns: its activations and results have the channel.
        pause_ns: what paced reads of the channel lose by that.
    """

    row: int = 0
    between: float = 0.0
    bus_ns: float = 0.0
    pause_ns: float = 0.0


class _Row(NamedTuple):
    work_ns: float
    left_ns: float
    per_ns: float
    kind: int
    server: int
    dimm: int
    table: int
    between: float
    bus_share: float
    pause_share: float
    background: int
    start_ns: float
    turn: int


_ALONE = Beside()


class JobList:
    """Jobs in the order in which they were added, each with what it waits for."""

    def __init__(self) -> None:
        self.labels: list[Label] = []
        self._rows: list[_Row] = []
        self._before: list[int] = []
        self._after: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        label: Label,
        work_ns: float,
        after: Iterable[int] = (),
        *,
        server: int = -1,
        kind: int = -1,
        per_ns: float = 0.0,
        dimm: int = -1,
        beside: Beside = _ALONE,
        left_ns: float = -1.0,
        start_ns: float = -1.0,
        background: bool = False,
        turn: int = -1,
    ) -> int:
        """Add a job that starts when all those `after` which it comes have ended; returns its number.

        turn: it then also waits until its server is free; of those that wait, the lowest turn is first.
        """
        number = len(self._rows)
        self.labels.append(label)
        left_ns = work_ns if left_ns < 0 else left_ns
        row, between, bus_ns, pause_ns = beside
        shares = (bus_ns / work_ns, pause_ns / work_ns) if bus_ns else (0.0, 0.0)
        self._rows.append(
            _Row(
                work_ns,
                left_ns,
                per_ns,
                kind,
                server,
                dimm,
                row,
                between,
                *shares,
                int(background),
                start_ns,
                turn,
            )
        )
        for one in after:
            self._before.append(one)
            self._after.append(number)
        return number

    def arrays(self) -> Jobs:
        """All of them, as the event loop takes them."""
        count = len(self._rows)
        columns = dict(zip(_Row._fields, zip(*self._rows, strict=True), strict=True)) if count else {}
        before = np.array(self._before, dtype=np.int64)
        after = np.array(self._after, dtype=np.int64)
        first = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(before, minlength=count), out=first[1:])

        def floats(name: str) -> Floats:
            return np.array(columns.get(name, ()), dtype=np.float64)

        def numbers(name: str) -> NDArray[np.int64]:
            return np.array(columns.get(name, ()), dtype=np.int64)

        return Jobs(
            floats("work_ns"),
            floats("left_ns"),
            floats("per_ns"),
            numbers("kind"),
            numbers("server"),
            numbers("dimm"),
            numbers("table"),
            floats("between"),
            floats("bus_share"),
            floats("pause_share"),
            numbers("background"),
            np.bincount(after, minlength=count).astype(np.int64),
            first,
            after[np.argsort(before, kind="stable")],
            floats("start_ns"),
            np.full(count, -1.0),
            np.full(count, -1, dtype=np.int64),
            np.zeros(count),
            numbers("turn"),
        )


def make_work(jobs: Jobs, kinds: Kinds, slowdown: Slowdown, clock_ns: float, busy_ns: Floats) -> Work:
    """What the loop works with, for these jobs, from a clock on; it adds to `busy_ns`."""
    count, shared, dimms = len(jobs.work_ns), kinds.shared_ns.shape[1], len(slowdown.channel)

    def floats(*shape: int) -> Floats:
        return np.zeros(shape)

    def numbers(size: int) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)

    servers = len(busy_ns) - shared
    return Work(
        clock_ns=np.array([clock_ns]),
        busy_ns=busy_ns,
        active=numbers(count),
        moving=numbers(count),
        speed=floats(count),
        limit=floats(count),
        use=floats(count, shared),
        level=floats(shared),
        demand=floats(count),
        most=floats(count),
        unit=numbers(dimms),
        longer=floats(dimms),
        streams=floats(shared),
        used=floats(shared),
        bus_left=floats(shared),
        pace_left=floats(shared),
        channel_gbps=floats(shared),
        host_weight=floats(dimms),
        channel_weight=floats(shared),
        channel_squares=floats(shared),
        column=numbers(shared),
        part=floats(shared),
        many=floats(shared),
        moved_gbps=floats(dimms, 2),
        counts=numbers(3),
        waiting=numbers(count),
        holder=numbers(servers),
        freed_by=numbers(servers),
    )
