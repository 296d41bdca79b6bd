"""Rows with the processor time of whole runs of `moe`, and of a layer in `moe` and `serve`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ndpsim.inference.layers.run import run_moe
from ndpsim.inference.serving.server import run_serving
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.studies.bench.row import BenchRow, Results, TimedRuns
from ndpsim.workload.models import load_model

_BATCH, _STEPS = 128, 4
_REQUESTS = "poisson:rate=20,requests=64,input_tokens=512,output_tokens=64"


@dataclass(frozen=True)
class _Layers(TimedRuns):
    policy: str

    def _run(self, function: Callable[..., Any], *options: Any, **named: Any) -> tuple[Any, list[float]]:
        """The result of the function, and the processor time at each report of its progress."""
        ends: list[float] = []
        named["progress"] = lambda share: ends.append(time.process_time())
        return function(self.hw, self.model, *options, **named), ends


class PolicyLayers(_Layers):
    """A layer of `run_moe` with its window, decision and bound, measured after a first run that is not.

    The row is the mean processor time, not wall time, over all decode steps except the first.

    Attributes:
        policy: a bundled name; requests are pairs of a token and an expert of a layer, cycles are ns.
    """

    def timed(self) -> BenchRow:
        result, ends = self._run(run_moe, [self.policy], batch=_BATCH, steps=_STEPS)
        run, first = result.runs[0], len(ends) // _STEPS
        seconds = (ends[-1] - ends[first - 1]) / (len(ends) - first)
        work = Results(run.pairs // len(ends), round(run.layer_ns["mean"]), {})
        return BenchRow(self.name, work, seconds, simulated_s=work.cycles / 1e9)


@dataclass(frozen=True)
class WholeRun(TimedRuns):
    """A `run_moe` with its defaults, measured after a first run that is not.

    The row is the processor time of all threads, not wall time.

    Attributes:
        policy: a bundled name; requests are pairs of a token and an expert, cycles the mean ns of a layer.
        is_cold: nothing was simulated before, except results that come with ndpsim.
    """

    policy: str
    is_cold: bool

    def timed(self) -> BenchRow:
        cache = ResultCache(disk_bytes=0) if self.is_cold else True
        began = time.process_time()
        run = run_moe(self.hw, self.model, [self.policy], cache=cache).runs[0]
        seconds = time.process_time() - began
        work = Results(run.pairs, round(run.layer_ns["mean"]), {})
        return BenchRow(self.name, work, seconds, simulated_s=run.time_ns / 1e9)


@dataclass(frozen=True)
class ServedLayers(_Layers):
    """A layer of `run_serving` with its window, routing and decision, measured after a first run that is not.

    The row is the mean processor time, not wall time, over all steps except the first.

    Attributes:
        policy: a bundled name; requests are output tokens, cycles are the ns of a step.
        gpu_experts: experts of each layer in the GPU's memory.
    """

    gpu_experts: int

    def timed(self) -> BenchRow:
        result, ends = self._run(run_serving, _REQUESTS, self.policy, gpu_experts=self.gpu_experts)
        layers = (len(ends) - 1) * load_model(self.model).moe_layers
        work = Results(result.output_tokens, round(result.time_ns / result.steps), {})
        return BenchRow(self.name, work, (ends[-1] - ends[0]) / layers, simulated_s=work.cycles / 1e9)
