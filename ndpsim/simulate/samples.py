"""Sampling times of a run, for curves over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

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
