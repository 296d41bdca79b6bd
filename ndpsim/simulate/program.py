"""The expert program, written once: what happens on lanes, in which order, whatever else uses them.

A `Queue` runs the program for each expert in turn, on lanes that nothing else uses (`simulate.alone`) or on
those of a channel (`simulate.channel`), where the steps of several DIMMs' programs interleave in time.

In its order, for every job of a queue and every tile of the job's tokens: the host writes the tile's
activations into the unit's buffer; gate and up rows are multiplied, and each hidden value is activated when
both its rows are summed; when all are, down rows are multiplied; results leave for the host as they are
known. What overlaps: weights are read ahead into the FIFOs at any time, also those of the next tile and of
the next job that is released; activation overlaps gate and up; results leave during down. The next tile's
activations take the place of the results and wait until those have left.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ndpsim.results.expert import JobTime, Phase

GATE_UP, DOWN = 0, 1  #: The regions of an expert.
FIRST_CLOCK = 1  #: Of a program: the clock of the first DRAM command.

_REGIONS = ("gate-up", "down")

T = TypeVar("T")
Ints = NDArray[np.int64]
#: The tokens of each tile of a job, and its release: the tick before which nothing of it is done.
TilesFrom = tuple[tuple[int, ...], int]
#: Yields each thing that has to be awaited, and returns what was asked for.
Awaited = Generator[int, None, T]


@dataclass(frozen=True, eq=False)
class Job:
    """One expert of a queue.

    Attributes:
        tokens: the number of tokens of each tile.
        tiles: their numbers, counted over all jobs of the queue.
        release: the tick before which nothing of the job is done: its activations are not written and its
            weights not read ahead.
        expert: what the lanes have to know of it.
    """

    tokens: tuple[int, ...]
    tiles: range
    release: int = 0
    expert: Any = None


class Lanes(Protocol):
    """The lanes of a DIMM, or of several that share experts, as a program uses them; times are ticks.

    Lists are of the DIMMs that differ from each other. An answer that is not there yet is awaited.

    Attributes:
        rows_per_message: results of a token that leave together, in a burst or a packet.
        now: nothing happens before.
    """

    rows_per_message: int

    @property
    def now(self) -> int: ...

    def begin(self, job: Job) -> None:
        """A job begins: all further calls belong to it."""

    def write_activations(self, tokens: int, start: int) -> Awaited[list[int]]:
        """The host writes the activations of `tokens` tokens into the unit's buffer, from `start` on.

        Returns when the last has arrived.
        """

    def multiply(self, region: int, tokens: int, release: list[int]) -> Awaited[list[Ints]]:
        """The weights of `region` of the job, the next in each lane's order of reading, are multiplied.

        They may be read into the FIFOs as soon as those before them have been read, but no multiplier starts
        on one before `release`. Rows of DOWN are results: lanes that share the bus to the host with others
        let each group of `rows_per_message` results have it as it is known, with the rows before it. If
        nobody else uses the bus, `read_results` is early enough for that.

        Returns int64[row], when the sum of each row of the region is known.
        """

    def read_results(self, tokens: int, known: list[Ints]) -> Awaited[int]:
        """The host reads the results, `tokens` messages of each group of rows, those known first first.

        `known`: int64[group], when each group of `rows_per_message` results, and all before it, are known.
        Returns when the host has the last, of all DIMMs.
        """


class _Program:
    """The program of a queue.

    It does not know the queue, which holds its steps: memory would be freed late otherwise, by the search
    for cycles, and lanes have large arrays.

    Attributes:
        begun: how many jobs have begun; the others are those of `Queue`.
    """

    def __init__(self, lanes: Lanes, activated: Callable[[Ints, int], int]) -> None:
        self.lanes, self._activated = lanes, activated
        self.jobs: list[Job] = []
        self.of_phase: dict[tuple[str, int], tuple[int, int]] = {}
        self.end, self.begun = lanes.now, 0

    def run(self) -> Iterator[int]:
        """The program of all jobs that are there."""
        while self.begun < len(self.jobs):
            job = self.jobs[self.begun]
            self.begun += 1
            self.lanes.begin(job)
            at = max(self.end, self.lanes.now, job.release)
            for tile, tokens in zip(job.tiles, job.tokens, strict=True):
                at = yield from self._tile(tile, tokens, at)
            self.end = at

    def _tile(self, tile: int, tokens: int, start: int) -> Awaited[int]:
        """The program of a tile of tokens, see the top of this module; returns when it ends."""
        lanes, record = self.lanes, self._record
        arrived = yield from lanes.write_activations(tokens, start)
        record("activations-in", tile, [start], arrived)
        sums = yield from self._multiply(GATE_UP, tile, tokens, arrived)
        ready = [np.maximum(rows[::2], rows[1::2]) for rows in sums]  # gate and up rows alternate
        hidden = [self._activated(of_dimm, tokens) for of_dimm in ready]
        record("activation", tile, [int(of_dimm[0]) for of_dimm in ready], hidden)
        sums = yield from self._multiply(DOWN, tile, tokens, hidden)
        first = np.arange(0, len(sums[0]), lanes.rows_per_message)
        known = [np.maximum.accumulate(np.maximum.reduceat(rows, first)) for rows in sums]
        end = yield from lanes.read_results(tokens, known)
        record("result-out", tile, [int(of_dimm[0]) for of_dimm in known], [end])
        return end

    def _multiply(self, region: int, tile: int, tokens: int, release: list[int]) -> Awaited[list[Ints]]:
        sums = yield from self.lanes.multiply(region, tokens, release)
        self._record(_REGIONS[region], tile, release, [int(rows.max()) for rows in sums])
        return sums

    def _record(self, name: str, tile: int, starts: Sequence[int], ends: Sequence[int]) -> None:
        """A phase of a tile ran on DIMMs."""
        self.of_phase[name, tile] = min(starts), max(ends)


class Queue:
    """Experts in turn on the same lanes, and the program of the one that is under way; times are ticks.

    Args:
        lanes: that all of them are on.
        activated: of the ticks at which gate and up of each hidden value are known, and the tokens: the tick
            at which the last is activated.

    Attributes:
        jobs: all experts so far.
        of_phase: when each phase of each tile ran; of several DIMMs from the first start to the last end.
        goal: what the program waits for; None: no job is under way.
    """

    def __init__(self, lanes: Lanes, activated: Callable[[Ints, int], int]) -> None:
        self._program = program = _Program(lanes, activated)
        self.lanes, self.jobs, self.of_phase = lanes, program.jobs, program.of_phase
        self.goal: int | None = None
        self._steps = program.run()

    @property
    def end(self) -> int:
        """When the host had the last result of the last job that is done."""
        return self._program.end

    def add(self, tokens: tuple[int, ...], release: int, expert: Any = None) -> Job:
        """A job joins, see `Job`."""
        first = self.jobs[-1].tiles.stop if self.jobs else 0
        self.jobs.append(Job(tokens, range(first, first + len(tokens)), release, expert))
        return self.jobs[-1]

    def advance(self) -> None:
        """Begin the next job, or take the step after what was awaited."""
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
        """When a job's first activations began to come and the host had its last result; None: not yet."""
        start, _ = self.of_phase.get(("activations-in", job.tiles[0]), (None, None))
        _, end = self.of_phase.get(("result-out", job.tiles[-1]), (None, None))
        return start, end

    def job_times(self, ns: Callable[[int], float]) -> tuple[JobTime, ...]:
        """Times of all jobs, which are done; `ns` as in `phases`."""
        spans = [self.span_of(job) for job in self.jobs]
        return tuple(
            JobTime(sum(job.tokens), ns(start or 0), ns(end or 0))
            for job, (start, end) in zip(self.jobs, spans, strict=True)
        )

    def communication_ticks(self) -> int:
        """For how long activations or results were on their way and no DIMM multiplied."""
        total = 0
        for (name, tile), (start, end) in self.of_phase.items():
            if name == "activations-in":
                total += end - start
            elif name == "result-out":
                total += end - self.of_phase["down", tile][1]
        return total

    def waiting_ns(self, times: Sequence[JobTime]) -> float:
        """For how long nothing was under way because the next job was not released yet."""
        ends = [0.0, *(time.end_ns for time in times[:-1])]
        waits = zip(self.jobs, times, ends, strict=True)
        return sum((time.start_ns - end for job, time, end in waits if job.release), 0.0)
