"""The expert program, written once, and what every run of it has: lanes, and a plain run beside it.

`expert_program` is a generator for one DIMM or device. It says what has to happen next, as one of the steps
below, and is sent back when that has happened, in ticks. Tiles are counted over all jobs. Whoever runs it
decides how: on lanes alone, behind a link, or beside the host's traffic, where the steps of several DIMMs'
programs interleave in time.

In its order, for every job of a queue and every tile of the job's tokens: the host writes the tile's
activations into the unit's buffer; gate and up rows are multiplied, and each hidden value is activated when
both its rows are summed; when all are, down rows are multiplied; results leave for the host as they are
known. What overlaps: weights are read ahead into the FIFOs at any time, also those of the next tile and of
the next job that is released; activation overlaps gate and up; results leave during down. The next tile's
activations take the place of the results and wait until those have left.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram import sink, state
from ndpsim.dram.engines import Controller, ScanController, make_controller
from ndpsim.dram.refresh_policies import Schedule
from ndpsim.results.expert import JobTime, Phase
from ndpsim.simulate.bus import ensure_same
from ndpsim.simulate.lane import Lane
from ndpsim.spec import Tables

__all__ = [
    "DOWN",
    "FIRST_CLOCK",
    "GATE_UP",
    "LAST_START",
    "Job",
    "LaneCounts",
    "MakeChannel",
    "MakeLane",
    "Multiply",
    "Program",
    "ReadResults",
    "Runner",
    "Spans",
    "Step",
    "WriteActivations",
    "compare_lanes",
    "expert_program",
    "fastest",
    "plain",
    "report_share",
    "run_in_step",
    "waiting_ns",
]

GATE_UP, DOWN = 0, 1  #: The regions of an expert.
FIRST_CLOCK = 1  #: Of a program: the clock of the first DRAM command.
LAST_START = 1 << 48  #: The last DRAM clock at which a run may begin.

_REGIONS = ("gate-up", "down")
_LATENCY_PLACES = 1  # single reads of a lane are not reported, only their sum

Ints = NDArray[np.int64]
MakeChannel = Callable[[Tables, state.Policy], Controller]
MakeLane = Callable[[Tables, state.Policy, Schedule], Controller]


class Job(NamedTuple):
    """One expert of a queue.

    `tiles`: the tokens of each tile. `release`: the tick before which nothing of the job is done: its
    activations are not written and its weights not read ahead.
    """

    tiles: tuple[int, ...]
    release: int = 0


class LaneCounts(NamedTuple):
    """What lanes that run alike have counted: how many they are, and of each of them the rest.

    `counter` (places in `dram.state`) and `issued` are those of its channel, `open_clocks` the clocks for
    which banks were open, summed over all banks, `skipped` the reads that were fast-forwarded; `busy` the
    ticks for which all its multipliers together had work.
    """

    lanes: int
    counter: list[int]
    issued: Ints
    open_clocks: int
    skipped: int
    busy: float


class WriteActivations(NamedTuple):
    """The host writes the activations of `tokens` tokens into the unit's buffer, from tick `start` on.

    Sent back: the tick at which the last has arrived (of a sharded expert, at this DIMM).
    """

    job: int
    tile: int
    tokens: int
    start: int


class Multiply(NamedTuple):
    """The weights of `region` of the job, the next in each lane's order of reading, are read and multiplied.

    They may be read into the FIFOs as soon as those before them have been read, but no multiplier starts on
    one before tick `release`. Rows of DOWN are results: whoever shares the bus to the host with others lets
    each group of `rows_per_message` results have it as it is known, with the rows before it. If nobody else
    uses the bus, `ReadResults` is early enough for that.

    Sent back: int64[row], the tick at which the sum of each row of the region is known.
    """

    job: int
    tile: int
    region: int
    tokens: int
    release: int


class ReadResults(NamedTuple):
    """The host reads the results, `tokens` messages of each group of rows, those known first first.

    `known`: int64[group], the tick at which each group of `rows_per_message` results, and all before it, are
    known. Sent back: the tick at which the host has the last, of all DIMMs that share the expert.
    """

    job: int
    tile: int
    tokens: int
    known: Ints


Step = WriteActivations | Multiply | ReadResults
#: A program under way: yields a step, is sent what the step asks for, returns the tick of its end.
Program = Generator[Step, Any, int]


@dataclass
class Spans:
    """When each phase of a program ran, in ticks; of several DIMMs from the first start to the last end."""

    of_phase: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def note(self, name: str, tile: int, start: int, end: int) -> None:
        """A phase of a tile ran on one DIMM."""
        key = name, tile
        before = self.of_phase.get(key, (start, end))
        self.of_phase[key] = min(before[0], start), max(before[1], end)

    def phases(self, ns: Callable[[int], float]) -> tuple[Phase, ...]:
        """In order of start; `ns` turns ticks into ns after the first DRAM command."""
        found = [
            Phase(name, tile, ns(start), ns(end)) for (name, tile), (start, end) in self.of_phase.items()
        ]
        return tuple(sorted(found, key=lambda phase: phase.start_ns))

    def job_times(self, jobs: Sequence[Job], ns: Callable[[int], float]) -> tuple[JobTime, ...]:
        """Of each job; `ns` as in `phases`."""
        ends = list(itertools.accumulate((len(job.tiles) for job in jobs), initial=0))
        return tuple(
            JobTime(
                sum(job.tiles),
                ns(self.of_phase["activations-in", first][0]),
                ns(self.of_phase["result-out", end - 1][1]),
            )
            for job, (first, end) in zip(jobs, itertools.pairwise(ends), strict=True)
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


def expert_program(
    jobs: Sequence[Job],
    rows_per_message: int,
    activated: Callable[[Ints, int], int],
    spans: Spans,
    start: int,
) -> Program:
    """The program of one DIMM or device; see the top of this module.

    Args:
        jobs: one after the other.
        rows_per_message: results of a token that leave together, in a burst or a packet.
        activated: of the ticks at which gate and up of each hidden value are known, and the tokens: the tick
            at which the last is activated.
        spans: for the phases; DIMMs that share an expert share it.
        start: the tick of the beginning.
    """
    at, tiles = start, itertools.count()
    for number, job in enumerate(jobs):
        at = max(at, job.release)
        for tokens, tile in zip(job.tiles, tiles, strict=False):
            arrived = yield WriteActivations(number, tile, tokens, at)
            spans.note("activations-in", tile, at, arrived)
            rows = yield from _multiply(spans, Multiply(number, tile, GATE_UP, tokens, arrived))
            ready = np.maximum(rows[::2], rows[1::2])  # gate and up rows alternate
            hidden = activated(ready, tokens)
            spans.note("activation", tile, int(ready[0]), hidden)
            rows = yield from _multiply(spans, Multiply(number, tile, DOWN, tokens, hidden))
            groups = np.maximum.reduceat(rows, np.arange(0, len(rows), rows_per_message))
            known = np.maximum.accumulate(groups)
            at = yield ReadResults(number, tile, tokens, known)
            spans.note("result-out", tile, int(known[0]), at)
    return at


def waiting_ns(jobs: Iterable[Job], times: Sequence[JobTime]) -> float:
    """For how long nothing was under way because the next of some jobs in turn was not released yet."""
    ends = [0.0, *(time.end_ns for time in times[:-1])]
    waits = zip(jobs, times, ends, strict=True)
    return sum((time.start_ns - end for job, time, end in waits if job.release), 0.0)


def _multiply(spans: Spans, step: Multiply) -> Generator[Multiply, Ints, Ints]:
    rows = yield step
    spans.note(_REGIONS[step.region], step.tile, step.release, int(rows.max()))
    return rows


def fastest(tables: Tables, policy: state.Policy, schedule: Schedule) -> Controller:
    """The fastest controller for a lane."""
    return make_controller(tables, policy, with_sink=True, latency_places=_LATENCY_PLACES, schedule=schedule)


def plain(tables: Tables, policy: state.Policy, schedule: Schedule) -> Controller:
    """The controller that looks at every request."""
    return ScanController(tables, policy, _LATENCY_PLACES, schedule)


class Runner(Protocol):
    """What answers the same step of each of some programs; see the steps for what is returned of each."""

    def write_activations(self, steps: Sequence[WriteActivations]) -> Sequence[int]: ...

    def multiply(self, steps: Sequence[Multiply]) -> Sequence[Ints]: ...

    def read_results(self, steps: Sequence[ReadResults]) -> Sequence[int]: ...


def run_in_step(programs: Sequence[Program], runner: Runner) -> int:
    """Run programs of the same steps, each step of all before the next; returns the tick of the end."""
    answers: dict[type, Callable[[Any], Sequence[Any]]] = {
        WriteActivations: runner.write_activations,
        Multiply: runner.multiply,
        ReadResults: runner.read_results,
    }
    steps = [next(program) for program in programs]
    while True:
        sent = answers[type(steps[0])](steps)
        try:
            steps = [program.send(one) for program, one in zip(programs, sent, strict=True)]
        except StopIteration as end:
            tick: int = end.value
            return tick


def compare_lanes(lanes: Iterable[tuple[Lane, Lane]]) -> None:
    """Make sure that each lane agrees with its plain run in all that is counted.

    Raises:
        MismatchError: one does not.
    """
    for number, (one, other) in enumerate(lanes):
        same = np.array_equal(one.sink.value[sink.COMPARED], other.sink.value[sink.COMPARED])
        others = [] if same else ["what the multipliers did"]
        ensure_same(f"lane {number}", one.channel, other.channel, others)


def report_share(total: int, progress: Callable[[float], None]) -> Callable[[int], None]:
    """A function that is told of bursts as they are read, and reports what share of `total` they are."""
    read = 0

    def report(bursts: int) -> None:
        nonlocal read
        read += bursts
        progress(read / total)

    progress(0.0)
    return report
