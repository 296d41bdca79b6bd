"""Experts on the move, from when a policy decides it until they are there, over many layers."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ndpsim.base.errors import InputError
from ndpsim.inference.events.state import Jobs
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.jobs import JobList, Label
from ndpsim.inference.layers.location import Location
from ndpsim.inference.layers.placement import Places
from ndpsim.inference.layers.record import MigrationRecord, MovingRecord, moves_over
from ndpsim.inference.layers.transfers import Transfers
from ndpsim.inference.processors.devices import weight_bytes
from ndpsim.policies.interface import Migration
from ndpsim.policies.views import Machine

_TO_GPU = ("prefetch", "fetch")


@dataclass
class _Moving:
    """A migration under way, or waiting for others."""

    kind: str
    layer: int
    row: int
    expert: int
    to: int
    source: str
    target: str
    transfer: int
    bytes: int
    share: float  # of the full weights' bytes
    work_ns: float
    decided_ns: float
    left_ns: float
    start_ns: float = -1.0
    hidden_ns: float = 0.0
    job: int = -1

    @property
    def to_gpu(self) -> bool:
        return self.kind in _TO_GPU


class Migrations:
    """All migrations of a run.

    Copies to the GPU go one after the other, those that a layer waits for first; of relayouts and rebalances
    as many at once as a relayout unit moves experts.

    Attributes:
        done: those that have ended since `done` was emptied.
        moved: what was done in the last phase.
    """

    def __init__(
        self, places: Places, transfers: Transfers, costs: Costs, machine: Machine, at_once: int
    ) -> None:
        self._places, self._transfers, self._costs, self._machine = places, transfers, costs, machine
        self._at_once = at_once
        self._moving: list[_Moving] = []
        self._queue: list[_Moving] = []  # copies that are not among the jobs of the phase
        self._last = -1  # the last copy among them that nothing waits for
        self.done: list[MigrationRecord] = []
        self.moved: tuple[MovingRecord, ...] = ()

    def copy(self, places: Places) -> Migrations:
        """The same between two phases, which go on by themselves and change `places`."""
        other = copy.copy(self)
        other._places, other.done = places, list(self.done)
        other._moving = [replace(one) for one in self._moving]
        return other

    @property
    def under_way(self) -> int:
        """The number of migrations that are decided and not done."""
        return len(self._moving)

    def take_done(self) -> tuple[MigrationRecord, ...]:
        """`done`, which is empty from now on."""
        done, self.done = tuple(self.done), []
        return done

    def decide(self, migrations: Iterable[Migration], now_ns: float) -> None:
        """Take migrations that a policy has asked for, which have been checked before.

        Raises:
            InputError: a DIMM has no room for an expert.
        """
        for one in migrations:
            row = self._machine.layers.index(one.layer)
            place = one.layer, one.expert
            if one.kind == "evict":
                size = self._bytes_of(self._places.evict(row, one.expert))
                self._at_once_done("evict", *place, "gpu", "none", size, now_ns)
            elif one.kind == "keep":
                self._places.keep(row, one.expert)
                source = self._places.location(row, one.expert).name
                self._at_once_done("keep", *place, source, "gpu", 0, now_ns)
            else:
                self._moving.append(self._started(one, row, now_ns))

    def _at_once_done(
        self, kind: str, layer: int, expert: int, source: str, target: str, size: int, now_ns: float
    ) -> None:
        times = now_ns, now_ns, now_ns, 0.0
        self.done.append(MigrationRecord(kind, layer, expert, source, target, size, *times))

    def _started(self, one: Migration, row: int, now_ns: float) -> _Moving:
        places, transfers = self._places, self._transfers
        source, size = places.location(row, one.expert), self._bytes_of(one.bits)
        if one.kind in _TO_GPU:
            places.start_to_gpu(row, one.expert, one.bits)
            target, transfer = "gpu", transfers.copy(source)
            work_ns = transfers.copy_ns(size)
        else:
            goal = Location(one.to)
            if not places.start_move(row, one.expert, one.to):
                problem = (
                    f"layer {one.layer}: expert {one.expert} has {self._machine.expert_bytes:,} B, for which "
                    f"there is no room at {goal.name}"
                )
                raise InputError(problem, "too-large", key=f"policy: {one.kind}")
            target, transfer = goal.name, transfers.relayout(source, goal)
            work_ns = self._costs.relayout(source.name, target).time_ns
        return _Moving(
            one.kind,
            one.layer,
            row,
            one.expert,
            one.to,
            source.name,
            target,
            transfer,
            size,
            size / self._machine.expert_bytes,
            work_ns,
            now_ns,
            work_ns,
        )

    def _bytes_of(self, bits: int | None) -> int:
        """Bytes of an expert's weights, or of its replica of this many bits."""
        machine = self._machine
        if bits is None:
            return machine.expert_bytes
        return weight_bytes(machine.model.expert, bits)

    def add_jobs(self, jobs: JobList, awaited_row: int = -1, awaited: Sequence[int] = ()) -> dict[int, int]:
        """Add what is under way, or waits, to the jobs of a phase, except for copies that nothing waits for.

        Returns:
            The job of each expert of layer `awaited_row`, among those `awaited`, that is on its way to the
            GPU; such jobs are part of the foreground.
        """
        found: dict[int, int] = {}
        first: tuple[int, ...] = ()
        self._queue, self._last = [], -1
        relayouts: list[_Moving] = []
        for one in self._moving:
            if not one.to_gpu:
                relayouts.append(one)
            elif one.row == awaited_row and one.expert in awaited:
                found[one.expert] = self._add(jobs, one, first, background=False)
                first = (found[one.expert],)
            else:
                self._queue.append(one)
        added: list[int] = []
        for one in relayouts:
            before = added[-self._at_once :][:1] if len(added) >= self._at_once else ()
            added.append(self._add(jobs, one, before))
        return found

    def add_copies(self, jobs: JobList, count: int) -> None:
        """Add this many more of the copies that nothing waits for, each behind the one before it."""
        for moving in self._queue[:count]:
            self._last = self._add(jobs, moving, () if self._last < 0 else (self._last,))
        self._queue = self._queue[count:]

    def left_out(self, jobs: Jobs) -> bool:
        """Whether a copy that was not added would have begun in this phase."""
        return bool(self._queue) and (self._last < 0 or float(jobs.end_ns[self._last]) >= 0)

    def _add(self, jobs: JobList, one: _Moving, after: Iterable[int], background: bool = True) -> int:
        label = Label(moves_over(one.target), one.kind, one.expert, bytes=one.bytes, alone_ns=one.work_ns)
        one.job = jobs.add(
            label,
            one.work_ns,
            () if one.start_ns >= 0 else after,
            kind=one.transfer,
            per_ns=one.share / one.work_ns,
            left_ns=one.left_ns,
            start_ns=one.start_ns,
            background=background,
        )
        return one.job

    def note(self, jobs: Jobs, began_ns: float, now_ns: float, in_window: bool) -> None:
        """See what a phase from `began_ns` to `now_ns` has done, and let those end that are there."""
        if not self._moving:
            self.moved = ()
            return
        self.moved = tuple(self._moved(jobs, began_ns, now_ns))
        left: list[_Moving] = []
        for moving in self._moving:
            if moving.job < 0:
                left.append(moving)
                continue
            start_ns, end_ns = float(jobs.start_ns[moving.job]), float(jobs.end_ns[moving.job])
            moving.start_ns, moving.left_ns = start_ns, float(jobs.left_ns[moving.job])
            until = end_ns if end_ns >= 0 else now_ns
            if in_window and start_ns >= 0:
                moving.hidden_ns += max(until - max(start_ns, began_ns), 0.0)
            moving.job = -1
            if end_ns < 0:
                left.append(moving)
            else:
                self._end(moving, end_ns)
        self._moving = left

    def _moved(self, jobs: Jobs, began_ns: float, now_ns: float) -> Iterator[MovingRecord]:
        for one in self._moving:
            if one.job < 0:
                continue
            start_ns = max(float(jobs.start_ns[one.job]), began_ns)
            end_ns = float(jobs.end_ns[one.job])
            end_ns = end_ns if end_ns >= 0 else now_ns
            if jobs.start_ns[one.job] >= 0 and end_ns > start_ns:
                share = one.share * one.left_ns / one.work_ns
                part = float(jobs.allowed_ns[one.job]) / (end_ns - start_ns)
                yield MovingRecord(
                    one.layer, one.expert, one.source, one.target, share, start_ns, end_ns, min(part, 1.0)
                )

    def _end(self, one: _Moving, end_ns: float) -> None:
        if one.to_gpu:
            self._places.end_to_gpu(one.row, one.expert)
        else:
            self._places.end_move(one.row, one.expert, one.to)
        self.done.append(
            MigrationRecord(
                one.kind,
                one.layer,
                one.expert,
                one.source,
                one.target,
                one.bytes,
                one.decided_ns,
                one.start_ns,
                end_ns,
                min(one.hidden_ns, end_ns - one.start_ns),
            )
        )
