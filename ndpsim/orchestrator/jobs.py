"""Jobs of a phase as they are collected, and the arrays that the event loop has of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.events.state import Jobs, Work

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Label(NamedTuple):
    """The kind of a job, for records; see `JobRecord`."""

    resource: str
    kind: str
    expert: int = -1
    share: float = 1.0
    tokens: int = 0
    bytes: int = 0
    alone_ns: float = 0.0
    read_limit_gbps: float = 0.0


class Beside(NamedTuple):
    """How host reads and relayouts affect an NDP job, and the job them.

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


#: Columns of a job, with the value of jobs that say nothing else: `Jobs` has the meaning of each.
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
}
_NUMBERS = {"kind": -1, "server": -1, "dimm": -1, "table": 0, "background": 0, "turn": -1, "cause": -1}
_PLACES = {name: place for place, name in enumerate((*_FLOATS, *_NUMBERS))}
#: Those that a job has which is added by itself.
_ONE_BY_ONE = [
    _PLACES[name]
    for name in ("work_ns", "left_ns", "per_ns", "start_ns", "kind", "server", "background", "turn")
]
_NONE = np.empty(0, np.int64)
_USUAL = np.array([*_FLOATS.values(), *_NUMBERS.values()], dtype=np.float64)[:, None]


class Labels(Sequence[Label]):
    """Labels of jobs that were added at once, each made when it is asked for.

    make: the label of a job by its place among them.
    """

    def __init__(self, count: int, make: Callable[[int], Label]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, job: int) -> Label:  # type: ignore[override]
        if job >= self._count:
            raise IndexError(job)
        return self._make(job)


class _Block(NamedTuple):
    """Jobs behind one another, and pairs of jobs that wait for each other.

    Attributes:
        labels: of each.
        columns: float64 [column, job].
        before, after: of each pair, the job that is waited for, and the one that waits.
    """

    labels: Sequence[Label]
    columns: Floats
    before: Ints
    after: Ints


class JobList:
    """Jobs in the order in which they were added, each with what it waits for."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._blocked = 0  # jobs of the blocks; those below come after them
        self._labels: list[Label] = []
        self._rows: list[tuple[float, ...]] = []
        self._before: list[int] = []
        self._after: list[int] = []

    def __len__(self) -> int:
        return self._blocked + len(self._rows)

    def add(
        self,
        label: Label,
        work_ns: float,
        after: Iterable[int] = (),
        *,
        server: int = -1,
        kind: int = -1,
        per_ns: float = 0.0,
        left_ns: float = -1.0,
        start_ns: float = -1.0,
        background: bool = False,
        turn: int = -1,
    ) -> int:
        """Add a job that starts when all those `after` which it comes have ended; returns its number.

        turn: it then also waits until its server is free; of those that wait, the lowest turn is first.
        """
        number = self._blocked + len(self._rows)
        self._labels.append(label)
        left_ns = work_ns if left_ns < 0 else left_ns
        self._rows.append((work_ns, left_ns, per_ns, start_ns, kind, server, background, turn))
        for one in after:
            self._before.append(one)
            self._after.append(number)
        return number

    def add_block(
        self,
        labels: Sequence[Label],
        work_ns: Floats,
        before: Ints | Sequence[int],
        after: Ints | Sequence[int],
        **columns: Floats | Ints | int,
    ) -> None:
        """Add many jobs at once.

        Args:
            work_ns: of each job.
            before, after: of each pair, the number of a job that is waited for, and of the one that waits.
            columns: further ones of `Jobs`, by name.
        """
        self._close()
        block = np.repeat(_USUAL, len(work_ns), axis=1)
        block[:2] = work_ns
        for name, values in columns.items():
            block[_PLACES[name]] = values
        pairs = np.asarray(before, np.int64), np.asarray(after, np.int64)
        self._blocks.append(_Block(labels, block, *pairs))
        self._blocked += len(work_ns)

    def _close(self) -> None:
        """Make a block of the jobs that were added one by one."""
        if not self._rows:
            return
        block = np.repeat(_USUAL, len(self._rows), axis=1)
        block[_ONE_BY_ONE] = np.array(self._rows, dtype=np.float64).T
        pairs = np.array(self._before, np.int64), np.array(self._after, np.int64)
        self._blocks.append(_Block(self._labels, block, *pairs))
        self._blocked += len(self._rows)
        self._labels, self._rows, self._before, self._after = [], [], [], []

    def labels(self) -> list[Label]:
        """Labels of all jobs."""
        return [*(label for block in self._blocks for label in block.labels), *self._labels]

    def label(self, job: int) -> Label:
        """Label of a job."""
        for block in self._blocks:
            if job < len(block.labels):
                return block.labels[job]
            job -= len(block.labels)
        return self._labels[job]

    def arrays(self) -> Jobs:
        """All of them, as the event loop takes them."""
        self._close()
        count = self._blocked
        columns = np.concatenate([_USUAL[:, :0], *[block.columns for block in self._blocks]], axis=1)
        whole = columns[len(_FLOATS) :].astype(np.int64)
        before = np.concatenate([_NONE, *[block.before for block in self._blocks]])
        after = np.concatenate([_NONE, *[block.after for block in self._blocks]])
        first = np.zeros(count + 1, dtype=np.int64)
        np.bincount(before, minlength=count).cumsum(out=first[1:])
        return Jobs(
            **dict(zip(_FLOATS, columns, strict=False)),
            **dict(zip(_NUMBERS, whole, strict=True)),
            waits=np.bincount(after, minlength=count),
            first_after=first,
            after=after[before.argsort(kind="stable")],
        )


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
        counts=numbers(3),
        waiting=numbers(most),
        holder=numbers(servers),
        freed_by=numbers(servers),
    )
