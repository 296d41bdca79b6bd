"""A layer with experts under a policy when the times of experts are known: what the orchestrator takes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ndpsim.devtools.bench.row import Row, Work, expect
from ndpsim.orchestrator.run import run_moe

_BATCH, _STEPS = 128, 4


@dataclass(frozen=True)
class PolicyLayers:
    """A layer of `run_moe`, with its window, the policy's decision and its bound, after a run not measured.

    It is the mean over all decode steps but the first. Processor time is taken, not wall time.

    Attributes:
        name, about: see `Benchmark`.
        hw, model, policy: bundled names.
        pinned: what must come out of a layer: requests are pairs of a token and an expert, cycles are ns.
    """

    name: str
    about: str
    hw: str
    model: str
    policy: str
    pinned: Work

    def run(self, repeat: int) -> Row:
        """See `Benchmark`.

        Raises:
            MismatchError: the pinned work disagrees.
        """
        self._run()
        runs = [self._run() for _ in range(repeat)]
        work = runs[0][1]
        expect(self.name, work, self.pinned)
        return Row(self.name, work, min(seconds for seconds, _ in runs), simulated_s=work.cycles / 1e9)

    def _run(self) -> tuple[float, Work]:
        """The seconds of a layer, and what came out of it."""
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
        return seconds, Work(run.pairs // len(ends), round(run.layer_ns["mean"]), {})
