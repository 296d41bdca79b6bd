"""Rows with an expert beside the host, and with a relayout, compared with the time of the hardware."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ndpsim.config import Hardware, load_hardware
from ndpsim.simulate import simulate_contention, simulate_relayout
from ndpsim.studies.bench.row import BenchRow, Results, TimedRuns
from ndpsim.workload.models import Expert, load_model

#: The DRAM commands of a call, the simulated time in ns, and the DRAM clock in ns.
Outcome = tuple[Mapping[str, int], float, float]


def beside_host(hardware: Hardware, expert: Expert) -> Outcome:
    """An expert beside saturating host traffic."""
    result = simulate_contention(hardware, expert)
    return result.commands, result.ndp_time_ns, result.clock_ns


def relayout_of_four(hardware: Hardware, expert: Expert) -> Outcome:
    """Four experts from one DIMM each to stripes over all, and the same by the host."""
    result = simulate_relayout(hardware, expert, experts=4)
    return result.commands, result.time_ns, result.clock_ns


@dataclass(frozen=True)
class ChannelCall(TimedRuns):
    """A call, measured after a first call that is not. Only compiled kernels are left from earlier runs.

    Attributes:
        call: the measured call, on hardware that is read again; requests are reads and writes of lanes.
    """

    call: Callable[[Hardware, Expert], Outcome]

    def timed(self) -> BenchRow:
        hardware, expert = replace(load_hardware(self.hw)), load_model(self.model).expert
        began = time.perf_counter()
        commands, time_ns, clock_ns = self.call(hardware, expert)
        seconds = time.perf_counter() - began
        known = hardware.lane_device().standard.commands
        requests = sum(commands.get(command.name, 0) for command in known if command.reads or command.writes)
        work = Results(requests, round(time_ns / clock_ns), dict(commands))
        return BenchRow(self.name, work, seconds, simulated_s=time_ns / 1e9)
