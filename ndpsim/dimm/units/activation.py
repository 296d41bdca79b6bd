"""The activation unit: SiLU(gate) x up, value by value as rows complete."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndpsim.dimm.units.pipeline import last_served


@dataclass(frozen=True)
class ActivationUnit:
    """Pipelined function units in parallel; cycles are cycles of their own clock.

    Attributes:
        units: number of values at once.
        cycles_per_value: cycles between two values of one unit.
        latency_cycles: cycles from a value's start to its result.
    """

    units: int
    cycles_per_value: int
    latency_cycles: int

    def done(self, ready: NDArray[np.int64], tokens: int, cycle_ticks: int) -> int:
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
