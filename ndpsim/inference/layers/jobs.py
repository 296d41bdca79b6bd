"""Jobs of a phase as they are collected, and the arrays that the event loop has of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.inference.events.state import CPU, RESOURCES, WHAT, Added, Jobs, Work

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Label(NamedTuple):
    """The description of a job, for records; see `JobRecord`.

    resource: of `RESOURCES`. what: of `WHAT`.
    """

    resource: str
    what: str
    expert: int = -1
    bytes: int = 0
    alone_ns: float = 0.0


class Beside(NamedTuple):
    """How host reads and relayouts affect an NDP job, and the job them.

    Attributes:
        row: of `SlowdownTable`.
        between: how far it is from there to the next.
        bus_ns: its activations and results have the channel.
        pause_ns: what paced reads of the channel lose by that.
    """

    row: int = 0
    between: float = 0.0
    bus_ns: float = 0.0
    pause_ns: float = 0.0


#: Columns of a job, with the values of most: `Jobs` and `Added` have the meaning of each.
_FLOATS = {
    "work_ns": 0.0,
    "left_ns": 0.0,
    "per_ns": 0.0,
    "between": 0.0,
    "bus_share": 0.0,
    "pause_share": 0.0,
    "start_ns": -1.0,
    "end_ns": -1.0,
    "allowed_ns": 0.0,
    "given_left_ns": 0.0,
    "given_start_ns": -1.0,
    "share": 1.0,
    "alone_ns": 0.0,
    "read_limit_gbps": 0.0,
}
_NUMBERS = {
    "kind": -1,
    "server": -1,
    "dimm": -1,
    "table": 0,
    "background": 0,
    "waits": 0,
    "first_after": -1,
    "cause": -1,
    "turn": -1,
    "given_waits": 0,
    "last_after": -1,
    "resource": 0,
    "what": 0,
    "expert": -1,
    "tokens": 0,
    "bytes": 0,
}
_USUAL_FLOATS = np.array([*_FLOATS.values()])[:, None]
_USUAL_NUMBERS = np.array([*_NUMBERS.values()])[:, None]
_DEPENDENCIES = 4  # of a job, at most, on average
_RESOURCES = {name: number for number, name in enumerate(RESOURCES)}
_WHAT = {name: number for number, name in enumerate(WHAT)}


class JobList:
    """Jobs of a phase in the order in which they were added, each with what it waits for.

    The arrays stay where they are from phase to phase, until there is no room in them: what kernels have of
    them is the same.

    Attributes:
        arrays, added: of the jobs; for the event loop, see `ready`.
    """

    arrays: Jobs
    added: Added

    def __init__(self) -> None:
        self._make_room(64)

    def __len__(self) -> int:
        return int(self.arrays.counts[0])

    def _make_room(self, most: int) -> None:
        self._floats = np.repeat(_USUAL_FLOATS, most, axis=1)
        self._numbers = np.repeat(_USUAL_NUMBERS, most, axis=1)
        columns: dict[str, NDArray[Any]] = {
            **dict(zip(_FLOATS, self._floats, strict=True)),
            **dict(zip(_NUMBERS, self._numbers, strict=True)),
            "counts": np.zeros(2, np.int64),
            "next_after": np.empty(_DEPENDENCIES * most, np.int64),
            "after": np.empty(_DEPENDENCIES * most, np.int64),
        }
        self.arrays = Jobs(**{name: columns[name] for name in Jobs._fields})
        self.added = Added(**{name: columns[name] for name in Added._fields})

    def reserve(self, more: int) -> None:
        """Make room for so many jobs more."""
        needed, before = len(self) + more, self.arrays
        if needed > len(before.work_ns):
            floats, numbers, count = self._floats, self._numbers, len(self)
            self._make_room(2 * needed)
            self._floats[:, :count], self._numbers[:, :count] = floats[:, :count], numbers[:, :count]
            for name in ("counts", "next_after", "after"):
                old = getattr(before, name)
                getattr(self.arrays, name)[: len(old)] = old

    def clear(self) -> None:
        """Begin a phase."""
        count = len(self)
        self._floats[:, :count], self._numbers[:, :count] = _USUAL_FLOATS, _USUAL_NUMBERS
        self.arrays.counts[:] = 0

    def add(
        self,
        label: Label,
        work_ns: float,
        after: Iterable[int] = (),
        *,
        kind: int = -1,
        per_ns: float = 0.0,
        left_ns: float = -1.0,
        start_ns: float = -1.0,
        background: bool = False,
    ) -> int:
        """Add a job that starts when all those `after` which it comes have ended; returns its number."""
        self.reserve(1)
        number, jobs, added = len(self), self.arrays, self.added
        jobs.counts[0] = number + 1
        jobs.work_ns[number] = work_ns
        jobs.per_ns[number], jobs.kind[number] = per_ns, kind
        jobs.background[number] = background
        resource = _RESOURCES[label.resource]
        jobs.server[number] = resource if resource <= CPU else -1
        added.given_left_ns[number] = work_ns if left_ns < 0 else left_ns
        added.given_start_ns[number] = start_ns
        added.resource[number], added.what[number] = resource, _WHAT[label.what]
        added.expert[number], added.bytes[number] = label.expert, label.bytes
        added.alone_ns[number] = label.alone_ns
        for before in after:
            self._let_wait(number, before)
        return number

    def _let_wait(self, job: int, before: int) -> None:
        jobs, added = self.arrays, self.added
        dependency, last = int(jobs.counts[1]), int(added.last_after[before])
        jobs.counts[1] = dependency + 1
        jobs.after[dependency], jobs.next_after[dependency] = job, -1
        if last < 0:
            jobs.first_after[before] = dependency
        else:
            jobs.next_after[last] = dependency
        added.last_after[before] = dependency
        added.given_waits[job] += 1

    def resources(self) -> list[str]:
        """The name of the resource of each job."""
        names = map(RESOURCES.__getitem__, self.added.resource[: len(self)].tolist())
        dimms = self.arrays.dimm[: len(self)].tolist()
        return [name if dimm < 0 else f"{name} {dimm}" for name, dimm in zip(names, dimms, strict=True)]

    def ready(self) -> Jobs:
        """All of them, none begun but those that have begun in an earlier phase."""
        jobs, added, count = self.arrays, self.added, len(self)
        jobs.left_ns[:count] = added.given_left_ns[:count]
        jobs.start_ns[:count] = added.given_start_ns[:count]
        jobs.waits[:count] = added.given_waits[:count]
        jobs.end_ns[:count], jobs.cause[:count], jobs.allowed_ns[:count] = -1.0, -1, 0.0
        return jobs


def make_work(most: int, servers: int, shared: int, dimms: int) -> Work:
    """Working arrays of the loop, for this many jobs at most; its clock and its sums are at 0."""

    def floats(*shape: int) -> Floats:
        return np.zeros(shape)

    def numbers(size: int) -> Ints:
        return np.zeros(size, dtype=np.int64)

    return Work(
        clock_ns=floats(1),
        busy_ns=floats(servers + shared),
        active=numbers(most),
        moving=numbers(most),
        speed=floats(most),
        limit=floats(most),
        use=floats(most, shared),
        in_use=numbers(shared),
        level=floats(shared),
        demand=floats(most),
        most=floats(most),
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
        counts=numbers(7),
        waiting=numbers(most),
        queued=numbers(servers),
        holder=numbers(servers),
        freed_by=numbers(servers),
    )
