"""Experts on lanes and buses that nothing else uses; equal lanes are simulated once.

With several DIMMs (`sharded:N`), each runs the program on its slice. The host writes the activations to every
DIMM, reads the partial sums of each, and adds them as they arrive. A tile ends when the host has all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ndpsim.base.arguments import Progress
from ndpsim.dimm import common
from ndpsim.dimm import state as shared
from ndpsim.dimm.engines import SharedDimms
from ndpsim.dimm.layout import ExpertWeights
from ndpsim.dram import sink, state
from ndpsim.dram.engines import Controller, ScanController, make_controller
from ndpsim.dram.refresh_policies import Schedule
from ndpsim.dram.spec import Tables
from ndpsim.dram.traces import CommandTrace
from ndpsim.simulate.host import host_path
from ndpsim.simulate.lane import Ints, Lane, LaneCounts, command_traces, ensure_same
from ndpsim.simulate.machine import NdpMachine, Placed, PlacedOnDimms, every_lane
from ndpsim.simulate.program import DOWN, FIRST_CLOCK, INWARD, Awaited, Job, Queue, TilesFrom

# ---- The lanes of a DIMM for the program of an expert


class QueuedExpert(NamedTuple):
    """An expert in the queue of a DIMM: its weights, and their place in each lane."""

    dimm: int
    weights: ExpertWeights
    placed: Placed


class DimmLanes:
    """The lanes of a DIMM of a channel; see `program.Lanes`.

    Attributes:
        host_bursts: bursts of activations and results of finished tiles.
    """

    def __init__(self, machine: NdpMachine, dimms: SharedDimms, dimm: int) -> None:
        self.machine, self.dimms, self.dimm = machine, dimms, dimm
        self.rows_per_message = machine.values_per_burst
        self.host_bursts = self._step = 0

    @property
    def now(self) -> int:
        """The tick of the next clock."""
        return self.dimms.clock * self.machine.dram_ticks

    def is_reached(self, goal: int) -> bool:
        """Whether the awaited event has happened."""
        agents, dimm = self.dimms.agents, self.dimm
        if goal == common.WEIGHTS_READ:
            return bool(agents.weights.value[dimm, shared.BURSTS_LEFT] == 0)
        return bool(
            (agents.buses.next_transfer[:, dimm] >= agents.transfers.value[dimm, shared.TRANSFERS]).all()
        )

    def begin(self, job: Job) -> None:
        expert: QueuedExpert = job.expert
        self._placed, self._hidden = expert.placed, expert.weights.hidden

    def write_activations(self, tokens: int, start: int) -> Awaited[list[int]]:
        machine, bursts = self.machine, self._activation_bursts(tokens)
        ready = start + machine.device.write_latency * machine.dram_ticks
        self.dimms.put_transfers(self.dimm, shared.WRITE, machine.bus_ticks(bursts), [ready])
        yield common.TRANSFERS_DONE
        return [self._transferred()]

    def multiply(self, region: int, tokens: int, release: list[int]) -> Awaited[list[Ints]]:
        machine, placed, dimm, unit = self.machine, self._placed, self.dimm, self.machine.unit
        weights, transfers = self.dimms.agents.weights, self.dimms.agents.transfers
        groups, interleaving = placed.groups[region], placed.interleaving
        summed = functools.partial(unit.summed, interleaving, region, tokens, cycle_ticks=machine.unit_ticks)
        weights.left[dimm, groups] = _bursts_of_groups(placed)[groups]
        last = groups.stop if region == DOWN else groups.start
        weights.value[dimm] = interleaving.regions[region].bursts, groups.start, last, groups.start, 0
        if region == DOWN:
            self.dimms.put_transfers(dimm, shared.READ, machine.bus_ticks(tokens), [])
            transfers.value[dimm, shared.TRANSFER_GROUPS] = self.rows_per_message
            transfers.value[dimm, shared.GROUP_SPACING] = unit.row_spacing(tokens) * machine.unit_ticks
            transfers.value[dimm, shared.TRANSFER_LATENCY] = int(summed(np.zeros(1, dtype=np.int64))[0])
        (run,) = unit.runs(interleaving, region, 0, interleaving.share(0), tokens)
        weights.service[dimm, self._step] = run.parts * machine.part_ticks
        weights.release[dimm, self._step] = release[0]
        self._step += 1
        yield common.WEIGHTS_READ
        return [summed(self.dimms.agents.weights.done[dimm, groups].copy())]

    def read_results(self, tokens: int, known: list[Ints]) -> Awaited[int]:
        yield common.TRANSFERS_DONE
        hidden, per_burst = self._hidden, self.rows_per_message
        self.host_bursts += self._activation_bursts(tokens) + tokens * -(-hidden // per_burst)
        return self._transferred() + self.machine.device.read_latency * self.machine.dram_ticks

    def _activation_bursts(self, tokens: int) -> int:
        return -(-tokens * self._hidden // self.rows_per_message)

    def _transferred(self) -> int:
        """The end of the last transfer."""
        return int(self.dimms.agents.buses.end[:, self.dimm].max())


@functools.lru_cache(maxsize=16)
def _bursts_of_groups(placed: Placed) -> Ints:
    """Bursts of each group, over all lanes."""
    counts: Ints = np.zeros(placed.groups[-1].stop + 1, dtype=np.int64)
    for stream in placed.streams:
        counts += np.bincount(stream.groups.first_group, minlength=len(counts))
        counts -= np.bincount(stream.groups.last_group + 1, minlength=len(counts))
    return np.cumsum(counts)[:-1]


# ---- A lane that shares nothing


_LATENCY_PLACES = 1  # only the sum of a lane's reads is reported

MakeLane = Callable[[Tables, state.Policy, Schedule], Controller]


def fastest(tables: Tables, policy: state.Policy, schedule: Schedule) -> Controller:
    """The fastest controller for a lane."""
    return make_controller(tables, policy, with_sink=True, latency_places=_LATENCY_PLACES, schedule=schedule)


def plain(tables: Tables, policy: state.Policy, schedule: Schedule) -> Controller:
    """The controller that considers every request."""
    return ScanController(tables, policy, _LATENCY_PLACES, schedule)


class LanesAlone:
    """The running lanes of an expert's DIMMs; see `program.Lanes`.

    Args:
        machine: a DIMM.
        expert: location of the queue's first expert. The others follow, each from the next row of the banks.
        recording: keep the command trace of every lane.
        start_clock: the DRAM clock at which the run begins, for refreshes; clocks of the run count from
            `FIRST_CLOCK`.
        make_channel: makes the controller of a lane.
    """

    def __init__(
        self,
        machine: NdpMachine,
        expert: PlacedOnDimms,
        recording: bool,
        start_clock: int,
        make_channel: MakeLane = fastest,
    ) -> None:
        self.machine, self.expert, self.start_clock = machine, expert, start_clock
        self.path, self.now = host_path(machine, expert), FIRST_CLOCK * machine.dram_ticks
        self.rows_per_message, self._begun = self.path.values_per_message, 0
        self._make_channel, self._recording = make_channel, recording
        self.dimms = [self._lanes_of(placed) for placed in expert.placed]  # different DIMMs
        self.lanes = [lane for dimm in self.dimms for lane in dimm]

    def _lanes_of(self, placed: Placed) -> list[Lane]:
        """The lanes of a DIMM, or of equal DIMMs."""
        machine, schedule = self.machine, self.machine.schedule.seen_from(self.start_clock)
        unit, ticks = machine.unit, (machine.dram_ticks, machine.unit_ticks)
        servers = unit.servers(placed.interleaving, INWARD)
        return [
            Lane(
                stream,
                machine.tables,
                self._make_channel(machine.tables, machine.policy, schedule),
                self._recording,
                sink.make_sink(unit.fifo_bursts, servers, *ticks, stream.merged_groups[0]),
            )
            for stream in placed.streams
        ]

    def run_queue(self, jobs: Sequence[TilesFrom], progress: Progress) -> Queue:
        """Run experts in turn, from the tokens of the tiles and the release of each; returns their queue."""
        queue = Queue(self, self.machine.activated)
        for tokens, release in jobs:
            queue.add(tokens, release, self.expert.weights.format.names)
        tiles = sum(len(tokens) for tokens, _ in jobs)
        total = tiles * sum(lane.stream.share.total for lane in self.lanes)
        read = 0

        def report(bursts: int) -> None:
            nonlocal read
            read += bursts
            progress(read / total)

        self._report = report
        progress(0.0)
        queue.advance()  # nothing is awaited
        for lane in self.lanes:
            lane.refresh_until(self.machine.clock_after(queue.end))
        return queue

    def begin(self, job: Job) -> None:
        """Begin the next expert, whose reads are those of the first, this many rows further."""
        for lane in self.lanes:
            lane.refresh_until(self.machine.clock_after(job.release))
            if self._begun:
                lane.begin(self._begun * (self.expert.end // self.machine.row_places))
        self._begun += 1

    def write_activations(self, tokens: int, start: int) -> Awaited[list[int]]:
        yield from ()
        return self.path.write(start, tokens * self.expert.weights.hidden)

    def multiply(self, region: int, tokens: int, release: list[int]) -> Awaited[list[Ints]]:
        """See `program.Lanes`; sums of rows do not depend on earlier rows."""
        yield from ()
        of_each = zip(self.expert.placed, self.dimms, release, strict=True)
        return [self._multiplied(region, tokens, *dimm) for dimm in of_each]

    def _multiplied(
        self, region: int, tokens: int, placed: Placed, lanes: Iterable[Lane], release: int
    ) -> Ints:
        self._read(region, tokens, placed, lanes, release)
        done = functools.reduce(np.maximum, (lane.done(placed.groups[region]) for lane in lanes))
        return self.machine.unit.summed(placed.interleaving, region, tokens, done, self.machine.unit_ticks)

    def _read(self, region: int, tokens: int, placed: Placed, lanes: Iterable[Lane], release: int) -> None:
        """Read a region on lanes."""
        machine, interleaving, unit = self.machine, placed.interleaving, self.machine.unit
        servers = unit.servers(interleaving, region)
        for lane in lanes:
            stream = lane.stream
            runs = [
                (run.bursts, run.parts * machine.part_ticks, run.gap_cycles * machine.unit_ticks)
                for run in unit.runs(interleaving, region, stream.lanes[0], stream.share, tokens)
            ]
            lane.read_region(region, runs, servers, release, self._report)

    def read_results(self, tokens: int, known: list[Ints]) -> Awaited[int]:
        yield from ()
        return self.path.read(known, self.expert.weights.hidden, tokens)

    def count_until(self, clock: int) -> list[LaneCounts]:
        """Counts of the lanes so far, one for the lanes of a stream."""
        return [
            LaneCounts(
                self.expert.of_dimm.count(number) * len(lane.stream.lanes),
                lane.channel.value.tolist(),
                lane.channel.issued,
                lane.channel.open_clocks(clock),
                lane.channel.skipped,
                lane.busy,
            )
            for number, dimm in enumerate(self.dimms)
            for lane in dimm
        ]

    def command_traces(self) -> tuple[CommandTrace, ...]:
        """The commands of each lane, if recorded, with clocks of the refresh schedule."""
        lanes = [lane for number in self.expert.of_dimm for lane in _one_by_one(self.dimms[number])]
        return command_traces(lanes, self.machine.device.standard, self.start_clock - FIRST_CLOCK)

    def plain_twin(self) -> LanesAlone:
        """The same lanes before any work, each by itself on the plain controller."""
        every = every_lane(self.machine, self.expert)
        return LanesAlone(self.machine, every, False, self.start_clock, plain)

    def ensure_same(self, again: LanesAlone) -> None:
        """Check that all counts of each lane equal those of a plain twin that has run.

        Raises:
            MismatchError: a count differs.
        """
        for dimm, plain_dimm in zip(self.dimms, again.dimms, strict=True):
            for number, lanes in enumerate(zip(_one_by_one(dimm), plain_dimm, strict=True)):
                ensure_same(f"lane {number}", *lanes)


def _one_by_one(lanes: Iterable[Lane]) -> list[Lane]:
    """The simulated lane for each lane of a DIMM."""
    return [lane for lane in lanes for _ in lane.stream.lanes]
