"""Experts on lanes and buses that nothing else uses: what answers the steps of their program.

On several DIMMs (`sharded:N`) each runs the program on its slice. The host writes the activations to every
DIMM and reads from each its partial sums, which it adds as they come. A tile ends when it has them all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram import sink
from ndpsim.errors import MismatchError
from ndpsim.simulate.host_path import host_path
from ndpsim.simulate.lane import Lane, command_room, decode_commands, no_commands
from ndpsim.simulate.machine import Machine, Placed, PlacedOnDimms, every_lane
from ndpsim.simulate.program import (
    DOWN,
    FIRST_CLOCK,
    GATE_UP,
    Job,
    LaneCounts,
    MakeLane,
    Multiply,
    ReadResults,
    Spans,
    WriteActivations,
    compare_lanes,
    expert_program,
    plain,
    report_share,
    run_in_step,
)
from ndpsim.traces import CommandTrace

__all__ = ["DimmsAlone"]

Ints = NDArray[np.int64]


class _Dimm:
    """The lanes of a DIMM, or of DIMMs that run alike."""

    def __init__(
        self,
        machine: Machine,
        placed: Placed,
        recording: bool,
        make_channel: MakeLane,
        start_clock: int,
    ) -> None:
        schedule = machine.schedule.seen_from(start_clock)
        self.machine, self.placed = machine, placed
        ticks = machine.dram_ticks, machine.unit_ticks
        servers = machine.unit.servers(placed.interleaving, GATE_UP)
        self.lanes = [
            Lane(
                stream,
                make_channel(machine.tables, machine.policy, schedule),
                sink.make_sink(machine.unit.fifo_bursts, servers, *ticks, stream.merged_groups[0]),
                command_room() if recording else no_commands(),
            )
            for stream in placed.streams
        ]
        self.of_lane = [lane for lane in self.lanes for _ in lane.stream.lanes]

    def begin(self, first_row: int, clock: int) -> None:
        """Read the expert that lies so many rows behind the first, in the same way, from a clock on."""
        for lane in self.lanes:
            lane.refresh_until(clock)
            if first_row:
                lane.begin(first_row)

    def multiply(self, step: Multiply, report: Callable[[int], None]) -> Ints:
        """Read a region and multiply; returns when each of its rows is summed, whatever those before it."""
        machine, interleaving, region = self.machine, self.placed.interleaving, step.region
        unit = machine.unit
        servers, groups = unit.servers(interleaving, region), self.placed.groups[region]
        for lane in self.lanes:
            stream = lane.stream
            runs = [
                (run.bursts, run.parts * machine.part_ticks, run.gap_cycles * machine.unit_ticks)
                for run in unit.runs(interleaving, region, stream.lanes[0], stream.share, step.tokens)
            ]
            lane.read_region(region, runs, servers, step.release, report)
        done = functools.reduce(np.maximum, (lane.done(groups) for lane in self.lanes))
        return unit.summed(interleaving, region, step.tokens, done, machine.unit_ticks)


class DimmsAlone:
    """The program of experts, one after the other, under way; times are ticks.

    Args:
        machine: what each DIMM is.
        expert: where the first lies. Each lies behind the one before, from the next row of the banks on.
        recording: keep the command trace of every lane.
        make_channel: makes the controller of a lane.
        start_clock: the DRAM clock at which it begins, by which refreshes fall due; clocks of the run count
            from `FIRST_CLOCK`.
    """

    def __init__(
        self,
        machine: Machine,
        expert: PlacedOnDimms,
        recording: bool,
        make_channel: MakeLane,
        start_clock: int = FIRST_CLOCK,
    ) -> None:
        self.machine, self.expert, self.start_clock = machine, expert, start_clock
        self.spans, self.path = Spans(), host_path(machine, expert)
        self.each = [_Dimm(machine, placed, recording, make_channel, start_clock) for placed in expert.placed]
        self.of_dimm = [self.each[number] for number in expert.of_dimm]

    def run(self, jobs: Sequence[Job], progress: Callable[[float], None]) -> int:
        """Jobs, one for each expert in turn; returns when the host has the last result."""
        machine, path = self.machine, self.path
        tiles = sum(len(job.tiles) for job in jobs)
        total = tiles * sum(lane.stream.share.total for dimm in self.each for lane in dimm.lanes)
        self._report, self._jobs, self._job = report_share(total, progress), jobs, -1
        activated = functools.partial(machine.activation.done, cycle_ticks=machine.activation_ticks)
        start = FIRST_CLOCK * machine.dram_ticks
        programs = [
            expert_program(jobs, path.values_per_message, activated, self.spans, start) for _ in self.each
        ]
        end = run_in_step(programs, self)
        for dimm in self.each:
            for lane in dimm.lanes:
                lane.refresh_until(-(-end // machine.dram_ticks))
        return end

    def write_activations(self, steps: Sequence[WriteActivations]) -> list[int]:
        """See `program.Runner`."""
        step = steps[0]
        if step.job != self._job:
            self._job = step.job
            clock = -(-self._jobs[step.job].release // self.machine.dram_ticks)
            for dimm in self.each:
                dimm.begin(step.job * (self.expert.end // self.machine.row_places), clock)
        hidden = self.each[0].placed.interleaving.regions[GATE_UP].columns
        return self.path.write(step.start, step.tokens * hidden)

    def multiply(self, steps: Sequence[Multiply]) -> list[Ints]:
        """See `program.Runner`."""
        return [dimm.multiply(step, self._report) for dimm, step in zip(self.each, steps, strict=True)]

    def read_results(self, steps: Sequence[ReadResults]) -> list[int]:
        """See `program.Runner`."""
        hidden = self.each[0].placed.interleaving.regions[DOWN].rows
        end = self.path.read([step.known for step in steps], hidden, steps[0].tokens)
        return [end] * len(steps)

    def count_until(self, clock: int) -> list[LaneCounts]:
        """What the lanes have counted, those of a stream as one."""
        return [
            LaneCounts(
                self.expert.of_dimm.count(number) * len(lane.stream.lanes),
                lane.channel.value.tolist(),
                lane.channel.issued,
                lane.channel.open_clocks(clock),
                lane.channel.skipped,
                lane.busy,
            )
            for number, dimm in enumerate(self.each)
            for lane in dimm.lanes
        ]

    def command_traces(self) -> tuple[CommandTrace, ...]:
        """The commands of each lane, where recorded, at clocks as refresh counts them."""
        shift = self.start_clock - FIRST_CLOCK
        return tuple(
            decode_commands(lane.commands, self.machine.tables, self.machine.device.standard, shift)
            for dimm in self.of_dimm
            for lane in dimm.of_lane
            if lane.commands.entry.size
        )

    def compare_with_plain(self, jobs: Sequence[Job], end: int) -> None:
        """Run the jobs once more, every lane on its own and on the plain controller, and compare.

        Raises:
            MismatchError: something that is counted differs.
        """
        every = every_lane(self.machine, self.expert)
        again = DimmsAlone(self.machine, every, False, plain, self.start_clock)
        plain_end = again.run(jobs, lambda share: None)
        if (end, self.spans) != (plain_end, again.spans):
            raise MismatchError(f"the plain run ends at tick {plain_end}, not {end}, or in other phases")
        for one, other in zip(self.each, again.each, strict=True):
            compare_lanes(zip(one.of_lane, other.of_lane, strict=True))
