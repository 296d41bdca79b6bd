"""An expert beside the host, and experts that move, against the time the hardware needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ndpsim.config import Hardware, load_hardware
from ndpsim.devtools.bench.row import Row, Work, expect
from ndpsim.moe import Expert, load_model
from ndpsim.simulate import simulate_contention, simulate_relayout

#: The DRAM commands of a call, and how long the hardware needs and a DRAM clock lasts, in ns.
Outcome = tuple[Mapping[str, int], float, float]


def beside_host(hardware: Hardware, expert: Expert) -> Outcome:
    """An expert while the host asks for all that it can get."""
    result = simulate_contention(hardware, expert)
    return result.commands, result.ndp_time_ns, result.clock_ns


def relayout_of_four(hardware: Hardware, expert: Expert) -> Outcome:
    """Four experts from one DIMM each to stripes over all, and the same by the host."""
    result = simulate_relayout(hardware, expert, experts=4)
    return result.commands, result.time_ns, result.clock_ns


@dataclass(frozen=True)
class ChannelCall:
    """A call after one that is not measured; of earlier runs nothing is left but compiled kernels.

    Attributes:
        name, about: see `Benchmark`.
        hw, model: bundled names.
        call: what is measured, on hardware that is read anew.
        pinned: what must come out; requests are reads and writes of lanes.
    """

    name: str
    about: str
    hw: str
    model: str
    call: Callable[[Hardware, Expert], Outcome]
    pinned: Work

    def run(self, repeat: int) -> Row:
        """See `Benchmark`.

        Raises:
            MismatchError: the pinned work disagrees.
        """
        self._run()
        runs = [self._run() for _ in range(repeat)]
        commands, time_ns, clock_ns = runs[0][1]
        known = load_hardware(self.hw).lane_device().standard.commands
        requests = sum(commands.get(one.name, 0) for one in known if one.reads or one.writes)
        work = Work(requests, round(time_ns / clock_ns), dict(commands))
        expect(self.name, work, self.pinned)
        return Row(self.name, work, min(seconds for seconds, _ in runs), simulated_s=time_ns / 1e9)

    def _run(self) -> tuple[float, Outcome]:
        """The seconds of the call, and what it came to."""
        hardware, expert = replace(load_hardware(self.hw)), load_model(self.model).expert
        began = time.perf_counter()
        outcome = self.call(hardware, expert)
        return time.perf_counter() - began, outcome
