"""A layer with experts under a policy when the times of experts are known: what the orchestrator takes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ndpsim.devtools.bench.row import TimedRuns, Work
from ndpsim.orchestrator.run import run_moe

_BATCH, _STEPS = 128, 4


@dataclass(frozen=True)
class PolicyLayers(TimedRuns):
    """A layer of `run_moe`, with its window, the policy's decision and its bound, after a run not measured.

    It is the mean over all decode steps but the first. Processor time is taken, not wall time.

    Attributes:
        policy: a bundled name; requests are pairs of a token and an expert of a layer, cycles are ns.
    """

    policy: str

    def timed(self) -> tuple[float, Work, float]:
        """See `TimedRuns`; of a layer."""
        ends: list[float] = []
        result = run_moe(
            self.hw,
            self.model,
            [self.policy],
            batch=_BATCH,
            steps=_STEPS,
            progress=lambda share: ends.append(time.process_time()),
        )
        run, first = result.runs[0], len(ends) // _STEPS
        seconds = (ends[-1] - ends[first - 1]) / (len(ends) - first)
        work = Work(run.pairs // len(ends), round(run.layer_ns["mean"]), {})
        return seconds, work, work.cycles
