"""Experts on a DIMM whose lanes take turns on command buses: a channel on which nothing else happens.

What `simulate_expert` asks of a run, as `simulate.alone` answers it where every lane has a bus of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError, MismatchError
from ndpsim.layout import ExpertWeights
from ndpsim.simulate.channel import ChannelRun, make_setup
from ndpsim.simulate.host_path import host_path
from ndpsim.simulate.machine import Machine, PlacedOnDimms
from ndpsim.simulate.program import FIRST_CLOCK, Job, LaneCounts, Spans
from ndpsim.traces import CommandTrace

__all__ = ["LanesInTurn"]

Ints = NDArray[np.int64]


class LanesInTurn:
    """The program of experts, one after the other, on one DIMM; see `simulate.alone.DimmsAlone`.

    Args:
        machine: the DIMM.
        expert: where the first lies, each behind the one before.
        weights: of each of them.
        recording: keep the command trace of every lane.
        start_clock: see `simulate.alone.DimmsAlone`.
        readable: on the readable arbiter.

    Raises:
        InputError: an expert is on several DIMMs.
    """

    def __init__(
        self,
        machine: Machine,
        expert: PlacedOnDimms,
        weights: ExpertWeights,
        recording: bool,
        start_clock: int = FIRST_CLOCK,
        readable: bool = False,
    ) -> None:
        if len(expert.of_dimm) > 1:
            problem = "an expert on several DIMMs whose ranks take turns on a command bus"
            raise InputError(f"not supported: {problem}", key="dimm.command_bus")
        self.machine, self.expert, self._weights = machine, expert, weights
        self.start_clock = start_clock
        self.spans, self.path = Spans(), host_path(machine, expert)
        setup = make_setup(machine, "ndp-first", 1, start_clock)
        self.channel = ChannelRun(machine, setup, 1, recording, readable=readable)

    def run(self, jobs: Sequence[Job], progress: Callable[[float], None]) -> int:
        """Jobs, one for each expert; returns when the host has the last result."""
        progress(0.0)
        run, hidden = self.channel, self._weights.hidden
        for job in jobs:
            run.add_expert(0, self._weights, sum(job.tiles), job.release)
        run.run()
        run.run_until(-(-run.end // self.machine.dram_ticks))
        tiles = 0
        for expert in run.experts:
            for (name, tile), (start, end) in expert.spans.of_phase.items():
                self.spans.note(name, tiles + tile, start, end)
            tiles += len(expert.job.tiles)
            for tokens in expert.job.tiles:
                self.path.write(0, tokens * hidden)
                self.path.read(
                    [np.zeros(-(-hidden // self.path.values_per_message), np.int64)], hidden, tokens
                )
        progress(1.0)
        return run.end

    def count_until(self, clock: int) -> list[LaneCounts]:
        """What the lanes have counted, each for itself."""
        dimms = self.channel.dimms
        counted = zip(
            dimms.lane_values.tolist(), dimms.lane_issued, dimms.open_clocks(clock), self._busy(), strict=True
        )
        return [
            LaneCounts(1, value, issued, int(open_clocks), 0, float(busy))
            for value, issued, open_clocks, busy in counted
        ]

    def command_traces(self) -> tuple[CommandTrace, ...]:
        """The commands of each lane, where recorded."""
        return tuple(self.channel.commands_of_lanes())

    def compare_with_plain(self, jobs: Sequence[Job], end: int) -> None:
        """Run the jobs once more on the readable arbiter, and compare.

        Raises:
            MismatchError: something that is counted differs.
        """
        again = LanesInTurn(self.machine, self.expert, self._weights, False, self.start_clock, readable=True)
        plain_end = again.run(jobs, lambda share: None)
        same = np.array_equal(self.channel.dimms.lane_issued, again.channel.dimms.lane_issued)
        if (end, self.spans) != (plain_end, again.spans) or not same:
            raise MismatchError(f"the readable run ends at tick {plain_end}, not {end}, or in other phases")

    def _busy(self) -> NDArray[np.float64]:
        """Ticks for which the multipliers of each lane had work, all of them."""
        weights = self.channel.dimms.agents.weights
        of_step = weights.service[0] / weights.servers[0]
        busy: NDArray[np.float64] = (np.diff(weights.ends, axis=1) * of_step).sum(axis=1)
        return busy
