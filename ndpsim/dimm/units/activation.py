"""The activation unit: SiLU(gate) x up, value by value as rows complete."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ActivationUnit:
    """Pipelined function units in parallel; cycles are cycles of their own clock.

    Attributes:
        units: number of values at once.
        cycles_per_value: cycles between two values of one unit, for which its input register holds a value.
        latency_cycles: cycles from then to the result.
    """

    units: int
    cycles_per_value: int
    latency_cycles: int

    def done(self, ready: Ints, tokens: int, cycle_ticks: int) -> int:
        """The tick at which the last value is activated.

        Args:
            ready: int64[n], the tick at which gate and up of each of n rows are known, in order of
                processing. tokens: values of every row, one for each token.
            cycle_ticks: ticks in a cycle of the unit.
        """
        service = -(-tokens // self.units) * self.cycles_per_value
        # Service takes whole cycles: rounding the end to an edge equals rounding each start.
        end = last_served(ready, service * cycle_ticks)
        return (-(-end // cycle_ticks) + self.latency_cycles) * cycle_ticks


def last_served(ready: Ints, service: int) -> int:
    """The end of the last job, if jobs run one at a time in the given order, each for `service`.

    ``done[n] = max(done[n - 1], ready[n]) + service``. After the last job that finds the server idle there is
    no pause. The end is therefore the maximum, over jobs, of the end without a pause after this job's start.

    Args:
        ready: int64[n], the earliest start of each job; at least one.
        service: the time of each job, in the same unit.
    """
    return int((ready + _served_within(len(ready), service)).max())


@functools.lru_cache(maxsize=16)
def _served_within(jobs: int, service: int) -> Ints:
    """The time from the start of each of some jobs to the end of the last one, without a pause."""
    return service * np.arange(jobs, 0, -1)
