"""One server and a line of jobs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["last_served"]

Ints = NDArray[np.int64]


def last_served(ready: Ints, service: int) -> int:
    """When the last of the jobs is done, one at a time in the order given, each taking `service`.

    ``done[n] = max(done[n - 1], ready[n]) + service``: one job finds the server idle for the last time, and
    from then on it is never idle, so the end is the latest that any job could make it.

    Args:
        ready: int64[n], when each job may begin at the earliest; at least one.
        service: the time each takes, in the same unit.
    """
    yet_to_serve = np.arange(len(ready), 0, -1)
    return int((ready + service * yet_to_serve).max())
