"""Threads for simulations, whose kernels run without the interpreter lock."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

_MOST = 4  # some simulations of a large expert need 100 MB each


def simulation_threads() -> ThreadPoolExecutor:
    """A thread for each processor, within limits."""
    return ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST))
