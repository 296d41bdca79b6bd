"""The expert program: the sequence of actions on lanes, independent of other users of the lanes.

A `Queue` runs the program for each expert in turn, on lanes without other users (`simulate.alone`) or on
those of a channel (`simulate.channel`), where the steps of several DIMMs' programs interleave.

For every job of a queue and every tile of the job's tokens, the host writes the tile's activations into the
unit's buffer. Gate and up rows are multiplied, and each hidden value is activated when both its rows are
summed. When all are activated, down rows are multiplied, and results leave for the host as soon as they are
known. Weights may be read ahead into the FIFOs at any time, including those of the next tile and of the next
released job. Activation overlaps gate and up, and transfer of results overlaps down. The next tile's
activations use the buffer of the results, and so wait until these have left.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram import state
from ndpsim.dram.engines import Controller
from ndpsim.dram.spec import Tables
from ndpsim.dram.spec.lower import CLOCKS
from ndpsim.simulate.results.expert import JobTime, Phase

# ---- Idle time of a channel: whole refresh periods without requests are skipped


#: Fewer idle periods of the refresh schedule are simulated, which takes less time than to skip them.
LEAST_PERIODS = 4096


class IdleTime:
    """Skipped idle time of a channel.

    A channel without requests reaches a state that repeats, shifted, after every period of its refresh
    schedule, once it owes no refresh, and earlier commands no longer constrain it. From then on, requests
    that arrive whole periods later find the same state as now. They therefore arrive now, and the clocks and
    refreshes of the skipped periods are added to the channel's counts. No row is open then, since all banks
    were refreshed.

    Attributes:
        period: clocks of the refresh schedule; 0: without refreshes, controllers skip idle time themselves.
        clocks: the number of skipped clocks.
        issued: commands in skipped clocks, int64[command].
    """

    def __init__(self, tables: Tables, policy: state.Policy, channel: Controller) -> None:
        schedule = state.schedule_of(tables, policy)
        self.period, self._is_elastic = schedule.period if schedule.turns else 0, policy.postpones > 0
        self.clocks = 0
        self.issued = np.zeros(len(tables.commands), dtype=np.int64)
        self._channel, self._turns = channel, len(schedule.turns)
        self._first_turn = schedule.turns[0].clock if schedule.turns else 0
        windows = tables.windows[:, CLOCKS:]
        self._longest = int(max(tables.gap.max(), tables.sibling_gap.max(), windows.max(initial=0)))
        self._in_period = np.zeros_like(self.issued)
        for turn in schedule.turns:
            self._in_period[turn.command] += tables.ranks if turn.rank < 0 else 1

    def long_pauses(self, cycle: NDArray[np.int64], before: int) -> list[int]:
        """The timed requests that may have idle time before them to skip; `before`: the cycle before."""
        if self.period == 0 or self._is_elastic:
            return []
        least = LEAST_PERIODS * self.period + self._longest
        return np.flatnonzero(np.diff(cycle, prepend=before) > least).tolist()

    def refreshes_until(self, clock: int) -> int:
        """The approximate number of refreshes before a clock."""
        return clock // self.period * int(self._in_period.sum()) if self.period else 0

    def skip(self, until: int, run_until: Callable[[int], None]) -> None:
        """Skip as much as possible of the time before `until`, a clock of the channel.

        Args:
            run_until: runs the channel, which has no requests, up to a clock.
        """
        start = int(self._channel.value[state.CLOCK])
        wait = 2 * self.period + self._longest
        # The time for refreshes that requests delayed is not known beforehand.
        starts = (self._before_refresh(start + (16 << tries) * self.period) for tries in count())
        for caught_up in takewhile(lambda clock: clock + wait + self.period < until, starts):
            run_until(caught_up)
            if not self._owes_none():
                continue
            settled = self._before_refresh(caught_up + wait)
            run_until(settled)
            periods = (until - settled) // self.period
            if periods > 0 and self._owes_none():
                self.clocks += periods * self.period
                self.issued += periods * self._in_period
            return

    def _before_refresh(self, clock: int) -> int:
        """The first clock, from this one on, at which the first turn of the schedule is due."""
        return clock + (self._first_turn - clock) % self.period

    def _owes_none(self) -> bool:
        """Whether all due refreshes of whole periods have been issued."""
        periods, rest = divmod(int(self._channel.value[state.REFRESHES]), self._turns)
        due = self._in_period > 0
        return rest == 0 and bool((self._channel.issued[due] == periods * self._in_period[due]).all())


# ---- Programs


INWARD, DOWN = 0, 1  #: The regions of an expert: gate and up, and down.
FIRST_CLOCK = 1  #: The clock of a program's first DRAM command.

T = TypeVar("T")
Ints = NDArray[np.int64]
#: The tokens of each tile of a job, and its release, the tick before which it may not begin.
TilesFrom = tuple[tuple[int, ...], int]
#: Yields each awaited event, and returns the answer.
Awaited = Generator[int, None, T]


@dataclass(frozen=True, eq=False)
class Job:
    """One expert of a queue.

    Attributes:
        tokens: the number of tokens of each tile.
        tiles: the numbers of the tiles, counted over all jobs of the queue.
        matrices: their names, of which the last is down.
        release: the tick before which its activations are not written and its weights not read ahead.
        expert: its data for the lanes.
    """

    tokens: tuple[int, ...]
    tiles: range
    matrices: tuple[str, ...]
    release: int = 0
    expert: Any = None


class Lanes(Protocol):
    """The interface of a program to the lanes of a DIMM, or of several that share experts; times are ticks.

    Lists have an element for each different DIMM. A program awaits answers that are not available yet.

    Attributes:
        rows_per_message: results of a token that leave together, in a burst or a packet.
        now: the earliest time of an event.
    """

    rows_per_message: int

    @property
    def now(self) -> int: ...

    def begin(self, job: Job) -> None:
        """Begin a job, to which all further calls belong."""

    def write_activations(self, tokens: int, start: int) -> Awaited[list[int]]:
        """Write the activations of `tokens` tokens from the host into the unit's buffer, from `start` on.

        Returns the time at which the last has arrived.
        """

    def multiply(self, region: int, tokens: int, release: list[int]) -> Awaited[list[Ints]]:
        """Multiply the weights of `region` of the job, which is the next one to be read in each lane.

        Weights may be read into the FIFOs as soon as earlier ones have been read, but no multiplier starts
        before `release`. Rows of DOWN are results: lanes that share the bus to the host with others transfer
        each group of `rows_per_message` results as soon as it and all earlier rows are known. If the bus has
        no other users, `read_results` may do so later.

        Returns the times at which the sum of each row of the region is known, int64[row].
        """

    def read_results(self, tokens: int, known: list[Ints]) -> Awaited[int]:
        """Read the results to the host, `tokens` messages of each group of rows, in the order of `known`.

        `known`: the times at which each group of `rows_per_message` results, and all before it, are known:
        int64[group]. Returns the time at which the host has the last result of all DIMMs.
        """


class _Program:
    """The program of a queue.

    It has no reference to the queue, which holds its steps: otherwise memory, with the large arrays of lanes,
    would be freed late, by garbage collection.

    Attributes:
        begun: the number of jobs that have begun; for others see `Queue`.
    """

    def __init__(self, lanes: Lanes, activated: Callable[[Ints, int], int]) -> None:
        self.lanes, self._activated = lanes, activated
        self.jobs: list[Job] = []
        self.of_phase: dict[tuple[str, int], tuple[int, int]] = {}
        self.end, self.begun = lanes.now, 0

    def run(self) -> Iterator[int]:
        """The program of all added jobs."""
        while self.begun < len(self.jobs):
            job = self.jobs[self.begun]
            self.begun += 1
            self.lanes.begin(job)
            start = max(self.end, self.lanes.now, job.release)
            for tile, tokens in zip(job.tiles, job.tokens, strict=True):
                start = yield from self._tile(tile, tokens, start, job.matrices[:-1])
            self.end = start

    def _tile(self, tile: int, tokens: int, start: int, inward: tuple[str, ...]) -> Awaited[int]:
        """The program of a tile of tokens, see the docstring of this module; returns when it ends."""
        lanes, record = self.lanes, self._record
        arrived = yield from lanes.write_activations(tokens, start)
        record("activations-in", tile, [start], arrived)
        sums = yield from self._multiply(INWARD, "-".join(inward), tile, tokens, arrived)
        of_each = [[rows[first :: len(inward)] for first in range(len(inward))] for rows in sums]
        ready = [functools.reduce(np.maximum, rows) for rows in of_each]  # gate and up rows alternate
        hidden = [self._activated(of_dimm, tokens) for of_dimm in ready]
        record("activation", tile, [int(of_dimm[0]) for of_dimm in ready], hidden)
        sums = yield from self._multiply(DOWN, "down", tile, tokens, hidden)
        first = np.arange(0, len(sums[0]), lanes.rows_per_message)
        known = [np.maximum.accumulate(np.maximum.reduceat(rows, first)) for rows in sums]
        end = yield from lanes.read_results(tokens, known)
        record("result-out", tile, [int(of_dimm[0]) for of_dimm in known], [end])
        return end

    def _multiply(
        self, region: int, name: str, tile: int, tokens: int, release: list[int]
    ) -> Awaited[list[Ints]]:
        sums = yield from self.lanes.multiply(region, tokens, release)
        self._record(name, tile, release, [int(rows.max()) for rows in sums])
        return sums

    def _record(self, name: str, tile: int, starts: Sequence[int], ends: Sequence[int]) -> None:
        """Record a phase of a tile on DIMMs."""
        self.of_phase[name, tile] = min(starts), max(ends)


class Queue:
    """Experts in turn on the same lanes, with the running program; times are ticks.

    Args:
        lanes: the lanes of all experts.
        activated: computes the tick at which the last hidden value is activated, from the ticks at which gate
            and up of each are known, and the number of tokens.

    Attributes:
        jobs: all experts so far.
        of_phase: times of each phase of each tile; with several DIMMs, from the first start to the last end.
        goal: the event for which the program waits; None: no job is running.
    """

    def __init__(self, lanes: Lanes, activated: Callable[[Ints, int], int]) -> None:
        self._program = program = _Program(lanes, activated)
        self.lanes, self.jobs, self.of_phase = lanes, program.jobs, program.of_phase
        self.goal: int | None = None
        self._steps = program.run()

    @property
    def end(self) -> int:
        """The time at which the host had the last result of the last finished job."""
        return self._program.end

    def add(
        self, tokens: tuple[int, ...], release: int, matrices: tuple[str, ...], expert: Any = None
    ) -> Job:
        """Add a job, see `Job`."""
        first = self.jobs[-1].tiles.stop if self.jobs else 0
        self.jobs.append(Job(tokens, range(first, first + len(tokens)), matrices, release, expert))
        return self.jobs[-1]

    def advance(self) -> None:
        """Begin the next job, or take the step after the awaited event."""
        if self.goal is None:
            self._steps = self._program.run()
        self.goal = next(self._steps, None)

    def phases(self, ns: Callable[[int], float]) -> tuple[Phase, ...]:
        """Phases in order of their start; `ns` turns ticks into ns after the first DRAM command."""
        found = [
            Phase(name, tile, ns(start), ns(end)) for (name, tile), (start, end) in self.of_phase.items()
        ]
        return tuple(sorted(found, key=lambda phase: phase.start_ns))

    def span_of(self, job: Job) -> tuple[int | None, int | None]:
        """The times of a job's first activations and of its last result at the host; None before."""
        start, _ = self.of_phase.get(("activations-in", job.tiles[0]), (None, None))
        _, end = self.of_phase.get(("result-out", job.tiles[-1]), (None, None))
        return start, end

    def job_times(self, ns: Callable[[int], float]) -> tuple[JobTime, ...]:
        """Times of all jobs, which must be finished; `ns` as in `phases`."""
        spans = [self.span_of(job) for job in self.jobs]
        return tuple(
            JobTime(sum(job.tokens), ns(start or 0), ns(end or 0))
            for job, (start, end) in zip(self.jobs, spans, strict=True)
        )

    def communication_ticks(self) -> int:
        """Time during which activations or results were transferred and no DIMM multiplied."""
        total = 0
        for (name, tile), (start, end) in self.of_phase.items():
            if name == "activations-in":
                total += end - start
            elif name == "result-out":
                total += end - self.of_phase["down", tile][1]
        return total

    def waiting_ns(self, times: Sequence[JobTime]) -> float:
        """Time during which nothing ran because the next job was not released yet."""
        ends = [0.0, *(time.end_ns for time in times[:-1])]
        waits = zip(self.jobs, times, ends, strict=True)
        return sum((time.start_ns - end for job, time, end in waits if job.release), 0.0)
