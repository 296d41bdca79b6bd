"""Experts on a DIMM whose lanes take turns on command buses: a channel on which nothing else happens.

What `simulate_expert` asks of a run, as `simulate.alone` answers it where every lane has a bus of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram import state
from ndpsim.errors import InputError, MismatchError
from ndpsim.layout import ExpertWeights
from ndpsim.simulate.channel import ChannelRun, make_setup
from ndpsim.simulate.host_path import host_path
from ndpsim.simulate.machine import Machine, PlacedOnDimms
from ndpsim.simulate.program import Job, Spans

__all__ = ["LanesInTurn", "ensure_equal"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Controller:
    """What a lane's controller has counted."""

    value: Ints
    issued: Ints
    open_to: Callable[[int], int]
    skipped: int = 0

    def open_clocks(self, end: int) -> int:
        """See `dram.engines.Controller`."""
        return self.open_to(end)


@dataclass(frozen=True, eq=False)
class _Lane:
    channel: _Controller
    busy: float
    commands: state.Commands


@dataclass(frozen=True, eq=False)
class _Dimm:
    of_lane: list[_Lane]


class LanesInTurn:
    """The program of experts, one after the other, on one DIMM; see `simulate.alone.DimmsAlone`.

    Args:
        machine: the DIMM.
        expert: where the first lies, each behind the one before.
        weights: of each of them.
        recording: keep the command trace of every lane.
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
        readable: bool = False,
    ) -> None:
        if len(expert.of_dimm) > 1:
            problem = "an expert on several DIMMs whose ranks take turns on a command bus"
            raise InputError(f"not supported: {problem}", key="dimm.command_bus")
        self.machine, self.expert, self._weights = machine, expert, weights
        self.spans, self.path = Spans(), host_path(machine, expert)
        self.channel = ChannelRun(
            machine, make_setup(machine, "ndp-first", 1), 1, recording, readable=readable
        )

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

    def lanes(self) -> list[tuple[_Lane, int]]:
        """The lanes, each for itself."""
        return [(lane, 1) for lane in self.of_dimm[0].of_lane]

    @property
    def of_dimm(self) -> list[_Dimm]:
        """The DIMM."""
        dimms, busy = self.channel.dimms, self._busy()
        entry, length = dimms.recorded[0]

        def lane_of(lane: int) -> _Lane:
            def open_to(end: int) -> int:
                return int(dimms.open_clocks(end)[lane])

            controller = _Controller(dimms.lane_values[lane], dimms.lane_issued[lane], open_to)
            return _Lane(controller, float(busy[lane]), state.Commands(entry[lane], length[lane : lane + 1]))

        return [_Dimm([lane_of(lane) for lane in range(self.machine.lanes)])]

    def _busy(self) -> NDArray[np.float64]:
        """Ticks for which the multipliers of each lane had work, all of them."""
        weights, busy = self.channel.dimms.agents.weights, np.zeros(self.machine.lanes)
        of_step = weights.service[0] / weights.servers[0]
        busy += (np.diff(weights.ends, axis=1) * of_step).sum(axis=1)
        return busy


def ensure_equal(fast: LanesInTurn, fast_end: int, readable: LanesInTurn, readable_end: int) -> None:
    """Make sure that the readable arbiter agrees.

    Raises:
        MismatchError: it does not.
    """
    one, other = fast.channel.dimms, readable.channel.dimms
    same = np.array_equal(one.lane_issued, other.lane_issued)
    if (fast_end, fast.spans) != (readable_end, readable.spans) or not same:
        raise MismatchError(
            f"the readable run ends at tick {readable_end}, not {fast_end}, or in other phases"
        )
