"""One server and a line of jobs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["served_in_order"]

Ints = NDArray[np.int64]


def served_in_order(ready: Ints, service: int) -> Ints:
    """When each job is done, one at a time in the order given, each taking `service`.

    ``done[n] = max(done[n - 1], ready[n]) + service``, written as a running maximum.

    Args:
        ready: int64[n], when each job may begin at the earliest.
        service: the time each takes, in the same unit.
    """
    waited = service * np.arange(len(ready), dtype=np.int64)
    done: Ints = np.maximum.accumulate(ready - waited) + waited + service
    return done
