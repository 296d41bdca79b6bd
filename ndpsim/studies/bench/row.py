"""Rows of the benchmark; a row counts only if its results are the known ones."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar

from ndpsim.base.arguments import choice, several
from ndpsim.base.errors import MismatchError


@dataclass(frozen=True)
class Results:
    """The results that a row must have, from every program.

    Attributes:
        requests: reads and writes.
        cycles: DRAM clocks to the last beat of read data, the last command or the last result.
        commands: DRAM commands by kind.
    """

    requests: int
    cycles: int
    commands: Mapping[str, int]


@dataclass(frozen=True)
class BenchRow:
    """One row, measured.

    Attributes:
        name: the name of the row.
        work: the results; `Results` has the units.
        seconds: the time of the best run.
        ratio_plain: how many times faster than the plain implementation; None where there is none.
        ratio_ramulator: how many times faster than Ramulator 2.1; None where it was not run.
        simulated_s: the simulated time; None if the row does not simulate a machine.
        fast_forwarded: the share of reads that fast-forward skipped; None if it is not known.
        ratio_rtl: the speed, over that of the hardware in it alone; None where there is none.
    """

    name: str
    work: Results
    seconds: float
    ratio_plain: float | None = None
    ratio_ramulator: float | None = None
    simulated_s: float | None = None
    fast_forwarded: float | None = None
    ratio_rtl: float | None = None

    @property
    def rate_mps(self) -> float:
        """Million requests a second."""
        return self.work.requests / self.seconds / 1e6

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "name": self.name,
            "requests": self.work.requests,
            "seconds": self.seconds,
            "rate_mps": self.rate_mps,
            "ratio_plain": self.ratio_plain,
            "ratio_ramulator": self.ratio_ramulator,
            "ratio_rtl": self.ratio_rtl,
            "cycles": self.work.cycles,
            "commands": dict(self.work.commands),
            "simulated_s": self.simulated_s,
            "fast_forwarded": self.fast_forwarded,
        }


@dataclass(frozen=True)
class Benchmark(ABC):
    """A row that can be measured.

    Attributes:
        name: the name of its row.
        about: the work, in a few words.
        pinned: the known results.
    """

    name: str
    about: str
    pinned: Results

    @property
    def missing(self) -> str:
        """What the row needs and this machine has not; "": nothing."""
        return ""

    @abstractmethod
    def run(self, repeat: int) -> BenchRow:
        """Measure `repeat` runs after a first run that is not measured.

        Raises:
            MismatchError: the results differ from the known ones.
        """


@dataclass(frozen=True)
class TimedRuns(Benchmark):
    """A row whose runs measure their own time, with a bundled machine and model."""

    hw: str
    model: str

    @abstractmethod
    def timed(self) -> BenchRow:
        """One run."""

    def run(self, repeat: int) -> BenchRow:
        self.timed()
        fastest = min((self.timed() for _ in range(repeat)), key=lambda row: row.seconds)
        expect(self.name, fastest.work, self.pinned)
        return fastest


def expect(name: str, got: Results, pinned: Results) -> None:
    """Make sure that row `name` has the known results.

    Raises:
        MismatchError: it has not; the message names the row and the difference.
    """
    for field in fields(Results):
        did, known = getattr(got, field.name), getattr(pinned, field.name)
        if did != known:
            raise MismatchError(f"{name}: {field.name} came out as {did}, pinned is {known}")


def best_seconds(run: Callable[[], object], repeat: int, clock: Callable[[], float] | None = None) -> float:
    """Time of the fastest of `repeat` runs by a clock; None: wall time."""
    clock, seconds = clock or time.perf_counter, []
    for _ in range(repeat):
        began = clock()
        run()
        seconds.append(clock() - began)
    return min(seconds)


class Named(Protocol):
    """A row of a table."""

    @property
    def name(self) -> str:
        """Its name."""


R = TypeVar("R", bound=Named)


def rows_named(names: Sequence[str], table: Sequence[R]) -> list[R]:
    """The rows of a table with these names, in its order; none: all.

    Raises:
        InputError: there is no such row.
    """
    known = [row.name for row in table]
    wanted = several(names, "row", lambda name, key: choice(name, key, known, "row"))
    return [row for row in table if not wanted or row.name in wanted]
