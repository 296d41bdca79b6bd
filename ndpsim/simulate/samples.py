"""Counters read at equal times of a run, for curves of what happened over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Samples", "sample_clocks"]

_MOST = 400  # times at first, and about so many at the end

Ints = NDArray[np.int64]


def sample_clocks(cycles: int, refresh_interval: int) -> int:
    """Clocks between samples of a run that lasts about `cycles`.

    Whole refresh intervals, or a half of one, a quarter, ..., so that the pattern of refreshes stays visible.
    """
    wanted = max(1, -(-cycles // _MOST))
    if wanted >= refresh_interval:
        return -(-wanted // refresh_interval) * refresh_interval
    parts = 1 << ((refresh_interval // wanted).bit_length() - 1)
    return -(-refresh_interval // parts)


class Samples:
    """What some counters, which only rise from 0, had risen to at equal times from the clock `start` on."""

    def __init__(self, counters: int, start: int, width: int) -> None:
        self.width = width
        self._clocks, self._counts = [start], [(0,) * counters]

    @property
    def next_clock(self) -> int:
        """The clock of the next sample."""
        return self._clocks[-1] + self.width

    def note(self, clock: int, counts: Sequence[int]) -> None:
        """What the counters have risen to; where samples become too many, every other one is dropped."""
        if clock == self._clocks[-1]:
            return
        self._clocks.append(clock)
        self._counts.append(tuple(counts))
        if len(self._clocks) == 2 * _MOST + 1:
            del self._clocks[1::2], self._counts[1::2]
            self.width *= 2

    def rises(self) -> tuple[Ints, Ints]:
        """Clocks, int64[sample + 1], and by how much each counter rose between them: [counter, sample]."""
        return np.array(self._clocks), np.diff(np.array(self._counts), axis=0).T
