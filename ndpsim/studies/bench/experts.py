"""Rows with experts in one process, equal or all different, compared with the time of the hardware."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ndpsim.base.errors import MismatchError
from ndpsim.config import load_hardware
from ndpsim.simulate import ExpertResult, simulate_expert
from ndpsim.studies.bench.row import Benchmark, BenchRow, Results, TimedRuns, best_seconds, expect
from ndpsim.workload.models import load_model

_LEAST_RUNS = 20  # a call lasts a fraction of a millisecond


def work_of(result: ExpertResult) -> Results:
    """The work of a call."""
    return Results(round(result.weight_bursts * result.weight_reads), result.cycles, dict(result.commands))


@dataclass(frozen=True)
class ExpertCall(Benchmark):
    """`simulate_expert` with hardware and model loaded and kernels compiled.

    Attributes:
        hw, model: bundled names.
        tokens: tokens of the expert; requests are bursts of weights.
    """

    hw: str
    model: str
    tokens: int = 1

    def run(self, repeat: int) -> BenchRow:
        """Measure one expert.

        Raises:
            MismatchError: the pinned work or the plain run disagrees.
        """
        hardware, expert = load_hardware(self.hw), load_model(self.model).expert

        def call() -> ExpertResult:
            return simulate_expert(hardware, expert, self.tokens)

        def call_and_check() -> ExpertResult:
            try:
                return simulate_expert(hardware, expert, self.tokens, exact_check=True)
            except MismatchError as error:
                raise MismatchError(f"{self.name}: {error}") from None

        result = call_and_check()
        expect(self.name, work_of(result), self.pinned)
        seconds = best_seconds(call, max(repeat, _LEAST_RUNS))
        # A checked call also runs the plain controller: every lane by itself, every read step by step.
        plain_s = best_seconds(call_and_check, repeat) - seconds
        return BenchRow(
            self.name,
            work_of(result),
            seconds,
            ratio_plain=plain_s / seconds,
            simulated_s=result.time_ns / 1e9,
            fast_forwarded=result.fast_forwarded,
        )


@dataclass(frozen=True)
class UnlikeCalls(TimedRuns):
    """Different calls of `simulate_expert`, measured after a first call that is not; kernels are compiled.

    Only compiled kernels are left from earlier runs: hardware is read and weights are placed again.

    Attributes:
        calls: the tokens of each call, or of each of its experts in turn; the results of all are known.
    """

    calls: Sequence[int | tuple[int, ...]]

    def timed(self) -> BenchRow:
        hardware, expert = replace(load_hardware(self.hw)), load_model(self.model).expert
        simulate_expert(hardware, expert)
        began = time.perf_counter()
        results = [simulate_expert(hardware, expert, tokens) for tokens in self.calls]
        seconds = time.perf_counter() - began
        works = [work_of(result) for result in results]
        commands = sum((Counter(work.commands) for work in works), Counter[str]())
        requests, cycles = sum(work.requests for work in works), sum(work.cycles for work in works)
        forwarded = sum(run.fast_forwarded * work.requests for run, work in zip(results, works, strict=True))
        return BenchRow(
            self.name,
            Results(requests, cycles, dict(commands)),
            seconds,
            simulated_s=sum(result.time_ns for result in results) / 1e9,
            fast_forwarded=forwarded / requests,
        )
