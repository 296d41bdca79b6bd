"""Serving: what a step computes and what it allocates do not grow with the number of steps before it."""

from __future__ import annotations

import sys
import tracemalloc
from types import FrameType
from typing import Any

import numpy as np

from builders.small_moe import MODEL
from ndpsim.inference.serving.engine import DoneStep
from ndpsim.inference.serving.log import ServingObserver
from ndpsim.inference.serving.server import run_serving
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.workload.requests import Requests

OUTPUTS = 5, 6, 7, 8


class Counted(ServingObserver):
    """Counts of each step: calls of Python functions, and the bytes that it has allocated at most."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.allocated: list[int] = []
        self._calls = self._before = 0

    def profile(self, frame: FrameType, event: str, of: Any) -> None:
        self._calls += event == "call"

    def done(self, step: DoneStep) -> None:
        now, most = tracemalloc.get_traced_memory()
        self.calls.append(self._calls)
        self.allocated.append(most - self._before)
        tracemalloc.reset_peak()
        self._calls, self._before = 0, now


def test_a_step_computes_and_allocates_as_much_late_in_a_run_as_early():
    cache, counted = ResultCache(disk_bytes=0), Counted()

    def serve(requests: int, observer: ServingObserver | None = None) -> None:
        outputs = np.tile(OUTPUTS, requests // len(OUTPUTS))
        asked = Requests(np.zeros(requests), np.full(requests, 16), outputs, closed_loop=4)
        run_serving("dali-7532-3090", MODEL, asked, policy="on-demand", observer=observer, cache=cache)

    serve(8)  # kernels are compiled, and results cached
    tracemalloc.start()
    sys.setprofile(counted.profile)
    try:
        serve(100, counted)
    finally:
        sys.setprofile(None)
        tracemalloc.stop()
    for values, most in ((counted.calls, 1.02), (counted.allocated, 1.05)):
        _, early, _, late = (np.median(part) for part in np.array_split(values, 4))
        assert late < most * early
