"""One server with a queue of jobs."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


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
