"""Statistics of runs: latencies of reads, and counters over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HISTOGRAM_BINS = 40


def read_latencies(latencies: Any, total: int, clock_ns: float) -> dict[str, float] | None:
    """Mean, percentiles (nearest rank) and maximum of read latencies in ns; None without reads.

    Args:
        latencies: int64[channel, clocks], reads by latency; longer reads are counted in the last place.
        total: sum of all latencies, in clocks.
    """
    reads = np.sum(latencies, axis=0)
    count = int(np.sum(reads))
    if count == 0:
        return None
    upto = np.cumsum(reads)
    figures = {"mean": total / count * clock_ns}
    for percent in (50, 90, 99):
        figures[f"p{percent}"] = int(np.searchsorted(upto, -(-count * percent // 100))) * clock_ns
    figures["max"] = int(np.flatnonzero(reads)[-1]) * clock_ns
    return figures


def latency_histogram(reads: Ints, clock_ns: float) -> tuple[dict[str, float], ...]:
    """Reads by latency, in equal steps from the shortest to the longest.

    `reads`: int64[clocks], as in `read_latencies`.
    """
    seen = np.flatnonzero(reads)
    if not len(seen):
        return ()
    shortest, longest = int(seen[0]), int(seen[-1])
    step = -(-(longest - shortest + 1) // _HISTOGRAM_BINS)
    return tuple(
        {
            "from_ns": clock * clock_ns,
            "to_ns": (clock + step) * clock_ns,
            "reads": int(reads[clock : clock + step].sum()),
        }
        for clock in range(shortest, longest + 1, step)
    )


def latency_distribution(reads: Ints, clock_ns: float) -> tuple[dict[str, float], ...]:
    """The number of reads up to a latency, at equal shares of reads, and at smaller ones for the slowest."""
    upto = np.cumsum(reads)
    count = int(upto[-1])
    if count == 0:
        return ()
    longer = [count * tenth // 10 ** (decade + 2) for decade in range(19) for tenth in range(10, 101)]
    ranks = np.unique([count, 1, *(count - reads for reads in longer if reads > 0)])
    found = np.unique(np.searchsorted(upto, ranks[ranks > 0]))
    return tuple({"ns": clock * clock_ns, "reads": int(upto[clock])} for clock in found.tolist())


_MOST = 400  # initial and approximate final number of samples

Ints = NDArray[np.int64]


def sample_clocks(cycles: int, refresh_interval: int, most: int = _MOST) -> Fraction:
    """Clocks between at most `most` samples of a run that lasts about `cycles`.

    These are whole refresh intervals, or exactly a half, a quarter, ... of one, so that refreshes always have
    the same place between samples: their pattern remains visible, without false patterns. Samples are taken
    at the next whole clock.
    """
    wanted = max(1, -(-cycles // most))
    if wanted >= refresh_interval:
        return Fraction(-(-wanted // refresh_interval) * refresh_interval)
    return Fraction(refresh_interval, 1 << ((refresh_interval // wanted).bit_length() - 1))


def equal_clocks(cycles: int, width: Fraction) -> Ints:
    """The clocks 0, `width`, 2 `width`, ..., each rounded down, and `cycles`."""
    count = math.ceil(cycles / width)
    number = np.arange(count, dtype=np.int64)
    return np.append(number * width.numerator // width.denominator, cycles)


class Samples:
    """Values of counters, which only rise from 0, at equally spaced times from the clock `start` on."""

    def __init__(self, counters: int, start: int, width: Fraction | int) -> None:
        self.width = Fraction(width)
        self._clocks, self._counts = [start], [(0,) * counters]

    @property
    def next_clock(self) -> int:
        """The clock of the next sample."""
        passed = (self._clocks[-1] - self._clocks[0]) // self.width
        return self._clocks[0] + math.ceil((passed + 1) * self.width)

    def record(self, clock: int, counts: Sequence[int]) -> None:
        """Record the values of the counters; if there are too many samples, every other one is dropped."""
        if clock == self._clocks[-1]:
            return
        self._clocks.append(clock)
        self._counts.append(tuple(counts))
        if len(self._clocks) == 2 * _MOST + 1:
            del self._clocks[1::2], self._counts[1::2]
            self.width *= 2

    def rises(self) -> tuple[Ints, Ints]:
        """Clocks, int64[sample + 1], and the increase of each counter between them, [counter, sample]."""
        return np.array(self._clocks), np.diff(np.array(self._counts), axis=0).T
