"""One server and a line of jobs."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def last_served(ready: Ints, service: int) -> int:
    """When the last of the jobs is done, one at a time in the order given, each taking `service`.

    ``done[n] = max(done[n - 1], ready[n]) + service``: one job finds the server idle for the last time, and
    from then on it is never idle, so the end is the latest that any job could make it.

    Args:
        ready: int64[n], when each job may begin at the earliest; at least one.
        service: the time each takes, in the same unit.
    """
    return int((ready + _served_within(len(ready), service)).max())


@functools.lru_cache(maxsize=16)
def _served_within(jobs: int, service: int) -> Ints:
    """How long it takes from the start of each of some jobs, without a pause, to the end of the last."""
    return service * np.arange(jobs, 0, -1)
