"""A host channel under way: experts on its DIMMs, and what the host reads and writes there, on one clock.

Each DIMM runs the programs of its experts (`simulate.program`) one after the other; their steps interleave
with those of the other DIMMs and with the host's requests, in `dimm`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ndpsim.dimm import common
from ndpsim.dimm import state as shared
from ndpsim.dimm.arbitrations import make_arbitration
from ndpsim.dimm.engines import OpenRow, ReadableDimms, SharedDimms, make_dimms
from ndpsim.dimm.relayout import LAST_SERVED, Relayout
from ndpsim.dram import state
from ndpsim.dram.controllers.one_command import OneCommand
from ndpsim.errors import InputError
from ndpsim.layout import ExpertWeights
from ndpsim.results.expert import JobTime, Phase
from ndpsim.simulate.lane import decode_commands, merge_commands
from ndpsim.simulate.machine import Machine, Placed, every_lane, place_on_dimms
from ndpsim.simulate.program import (
    DOWN,
    FIRST_CLOCK,
    Job,
    Multiply,
    ReadResults,
    Spans,
    Step,
    WriteActivations,
    expert_program,
)
from ndpsim.simulate.relayout_run import Lowered
from ndpsim.spec import lower
from ndpsim.spec.standard import READ, READ_AP, WRITE, WRITE_AP
from ndpsim.traces import CommandTrace

__all__ = ["ChannelRun", "QueuedExpert", "make_setup"]

Ints = NDArray[np.int64]

_STARVATION_CLOCKS = 16384  # clocks: long beside row changes and refreshes, short beside an expert
_DATA = [READ, WRITE, READ_AP, WRITE_AP]


def make_setup(
    machine: Machine, arbitration: str, slice_clocks: int, start_clock: int = FIRST_CLOCK
) -> shared.Setup:
    """What a channel with such DIMMs runs under. Clocks count from 1, which is `start_clock` to refresh.

    Raises:
        InputError: the ranks of a sub-channel are in lock step.
    """
    if machine.lock_step:
        problem = "ranks in lock step (broadcast) beside the host, or with experts on several DIMMs"
        raise InputError(f"not supported: {problem}", key="dimm.command_bus")
    standard = machine.device.standard
    if not isinstance(machine.policy.step, OneCommand):
        problem = f"not supported: ranks that host and NDP share under the controller {standard.controller}"
        raise InputError(problem, key="dram.standard")
    geometry, device = machine.geometry, machine.device
    host_ranks = len(geometry.dimms_of(0)) * geometry.ranks
    of_command = [command.cycles for command in standard.by_number]
    return shared.Setup(
        lane_tables=machine.tables,
        host_tables=lower(dataclasses.replace(machine.device, ranks=host_ranks)),
        policy=machine.policy,
        arbitration=make_arbitration(
            f"slice:clocks={slice_clocks}" if arbitration == "slice" else arbitration
        ),
        starvation_clocks=_STARVATION_CLOCKS,
        read_latency=device.clocks("nCL"),
        write_latency=device.clocks("nCWL"),
        dram_ticks=machine.dram_ticks,
        unit_ticks=machine.unit_ticks,
        fifo_bursts=machine.unit.fifo_bursts,
        dimm_ranks=geometry.ranks,
        dimm_of_rank=np.arange(host_ranks) // geometry.ranks,
        refresh_shift=start_clock - FIRST_CLOCK,
        command_clocks=np.array(of_command, dtype=np.int64) * machine.shared_commands,
    )


@dataclass(eq=False)
class QueuedExpert:
    """An expert in the queue of a DIMM.

    Attributes:
        dimm: which, on the channel.
        weights, placed: what it is, and where it lies.
        job: its tokens, and its release.
        first_step: of its reads, see `dimm.state.Weights`.
        spans: when its phases ran.
        end: the tick at which the host has its last result; None: not yet.
    """

    dimm: int
    weights: ExpertWeights
    placed: Placed
    job: Job
    first_step: int
    spans: Spans = field(default_factory=Spans)
    end: int | None = None


class _Program:
    """The experts of a DIMM, one after the other; times are ticks."""

    def __init__(self, machine: Machine, dimms: SharedDimms, dimm: int, start: int) -> None:
        self.machine, self.dimms, self.dimm = machine, dimms, dimm
        self.goal, self.end = common.NOTHING, start
        self.waiting: list[QueuedExpert] = []
        self._expert: QueuedExpert | None = None
        self._activated = functools.partial(machine.activation.done, cycle_ticks=machine.activation_ticks)
        self.values_per_burst = machine.device.burst_bytes // machine.unit.activation_bytes

    @property
    def is_done(self) -> bool:
        return self._expert is None and not self.waiting

    def begin_next(self) -> None:
        """Begin the next expert, if there is one and no other under way."""
        if self._expert is None and self.waiting:
            self._expert = expert = self.waiting.pop(0)
            now = self.dimms.clock * self.machine.dram_ticks
            start = max(self.end, now)
            self._program = expert_program(
                [expert.job], self.values_per_burst, self._activated, expert.spans, start
            )
            self._prepare(next(self._program))

    def go_on(self) -> None:
        """Take the steps whose goal is reached."""
        while self.goal != common.NOTHING and self._is_reached():
            try:
                self._prepare(self._program.send(self._result()))
            except StopIteration as stop:
                assert self._expert is not None
                self.end = self._expert.end = stop.value
                self.goal, self._expert = common.NOTHING, None
                self.begin_next()

    def _is_reached(self) -> bool:
        agents, dimm = self.dimms.agents, self.dimm
        if self.goal == common.WEIGHTS_READ:
            return bool(agents.weights.value[dimm, shared.BURSTS_LEFT] == 0)
        return bool((agents.buses.at[:, dimm] >= agents.transfers.value[dimm, shared.TRANSFERS]).all())

    def _prepare(self, step: Step) -> None:
        """Ask for what a step needs."""
        self.step, machine, expert = step, self.machine, self._expert
        assert expert is not None
        self.goal = common.TRANSFERS_DONE
        if isinstance(step, WriteActivations):
            columns = expert.placed.interleaving.regions[0].columns
            bursts = -(-step.tokens * columns // self.values_per_burst)
            ready = step.start + machine.device.clocks("nCWL") * machine.dram_ticks
            self.dimms.put_transfers(self.dimm, shared.WRITE, machine.bus_ticks(bursts), [ready])
        elif isinstance(step, Multiply):
            self.goal = common.WEIGHTS_READ
            self._multiply(step, expert)

    def _multiply(self, step: Multiply, expert: QueuedExpert) -> None:
        machine, placed, dimm = self.machine, expert.placed, self.dimm
        weights, transfers = self.dimms.agents.weights, self.dimms.agents.transfers
        groups = placed.groups[step.region]
        weights.left[dimm, groups] = _bursts_of_groups(placed)[groups]
        region = placed.interleaving.regions[step.region]
        last = groups.stop if step.region == DOWN else groups.start
        weights.value[dimm] = region.bursts, groups.start, last, groups.start, 0
        if step.region == DOWN:
            self.dimms.put_transfers(dimm, shared.READ, machine.bus_ticks(step.tokens), [])
            latency = int(self._summed(step, np.zeros(1, dtype=np.int64))[0])
            transfers.value[dimm, shared.TRANSFER_GROUPS] = self.values_per_burst
            transfers.value[dimm, shared.TRANSFER_LATENCY] = latency
        (run,) = machine.unit.runs(
            placed.interleaving, step.region, 0, placed.interleaving.share(0), step.tokens
        )
        number = expert.first_step + 2 * step.tile + step.region
        weights.service[dimm, number] = run.parts * machine.part_ticks
        weights.release[dimm, number] = step.release

    def _summed(self, step: Multiply, done: Ints) -> Ints:
        assert self._expert is not None
        interleaving = self._expert.placed.interleaving
        return self.machine.unit.summed(interleaving, step.region, step.tokens, done, self.machine.unit_ticks)

    def _result(self) -> int | Ints:
        """What the step asks for that is done."""
        machine, agents = self.machine, self.dimms.agents
        if isinstance(self.step, Multiply):
            assert self._expert is not None
            return self._summed(
                self.step, agents.weights.done[self.dimm, self._expert.placed.groups[self.step.region]].copy()
            )
        end = int(agents.buses.end[:, self.dimm].max())
        if isinstance(self.step, ReadResults):
            end += machine.device.clocks("nCL") * machine.dram_ticks
        return end


@functools.lru_cache(maxsize=16)
def _bursts_of_groups(placed: Placed) -> Ints:
    """Bursts that belong to each group, over all lanes."""
    counts: Ints = np.zeros(placed.groups[-1].stop + 1, dtype=np.int64)
    for stream in placed.streams:
        counts += np.bincount(stream.groups.first_group, minlength=len(counts))
        counts -= np.bincount(stream.groups.last_group + 1, minlength=len(counts))
    return np.cumsum(counts)[:-1]


class ChannelRun:
    """A channel under way.

    Args:
        machine: its DIMMs.
        setup: what they run under.
        dimms: how many of them, the first, may run experts.
        recording: keep all commands.
        open_rows: see `dimm.engines.SharedDimms`.
        readable: on the readable arbiter.
    """

    def __init__(
        self,
        machine: Machine,
        setup: shared.Setup,
        dimms: int,
        recording: bool,
        open_rows: Iterable[OpenRow] = (),
        readable: bool = False,
    ) -> None:
        self.machine, self.setup = machine, setup
        lanes, buses = dimms * machine.lanes, machine.host_buses
        make = ReadableDimms if readable else make_dimms
        self.dimms = make(setup, lanes, buses, 1, recording, open_rows)
        start = FIRST_CLOCK * machine.dram_ticks
        self.programs = [_Program(machine, self.dimms, dimm, start) for dimm in range(dimms)]
        self.experts: list[QueuedExpert] = []
        self.first_free_place = [0] * dimms  # of all lanes of a DIMM
        self.relayouts: list[Relayout] = []
        self.waves: list[Lowered] = []  # of each

    def add_expert(self, dimm: int, weights: ExpertWeights, tokens: int, release: int = 0) -> QueuedExpert:
        """An expert joins the queue of a DIMM, and its weights lie behind those that are there.

        Raises:
            InputError: they do not fit, or the unit cannot multiply them.
        """
        unit = self.machine.unit
        placed, end = _placed_on_lanes(self.machine, weights, self.first_free_place[dimm])
        job = Job(unit.tile(tokens, weights.hidden, weights.intermediate).tokens, release)
        self.first_free_place[dimm] = end
        regions = range(len(placed.groups))
        bursts = np.array([stream.share.bursts for stream in placed.streams], dtype=np.int64)
        reads = shared.JobReads(
            sources=[stream.source for stream in placed.streams],
            groups=[stream.groups for stream in placed.streams],
            regions=bursts,
            servers=[unit.servers(placed.interleaving, region) for region in regions],
            tiles=len(job.tiles),
            group_count=placed.groups[-1].stop,
            read_from=-(-job.release // self.machine.dram_ticks),
        )
        expert = QueuedExpert(dimm, weights, placed, job, int(self.dimms.agents.weights.steps[dimm]))
        self.dimms.add_job(dimm, reads)
        results = -(-placed.interleaving.regions[DOWN].rows // self.programs[dimm].values_per_burst)
        self.dimms.make_room_for_transfers(results)
        self.experts.append(expert)
        self.programs[dimm].waiting.append(expert)
        return expert

    def run(self, until_clock: int = state.FAR) -> bool:
        """Run until all experts are done; returns whether they are before `until_clock`."""
        for program in self.programs:
            program.begin_next()
        while not all(program.is_done for program in self.programs):
            goals = [program.goal for program in self.programs]
            if not self.dimms.run([*goals, common.NOTHING], until_clock):
                return False
            for program in self.programs:
                program.go_on()
        return True

    def add_relayout(self, wave: Lowered, start: int) -> None:
        """A relayout begins behind the clock `start`; DIMMs of other channels read and write at once."""
        geometry, lanes = self.machine.geometry, self.machine.lanes
        own = np.full(geometry.dimms, -1, dtype=np.int64)
        on_channel = np.array(geometry.dimms_of(0))[: len(self.programs)]
        own[on_channel] = np.arange(len(on_channel))
        dimm, of_dimm = np.divmod(wave.requests.lane.astype(np.int64), lanes)
        lane = np.where(own[dimm] < 0, -1, own[dimm] * lanes + of_dimm).astype(np.int32)
        self.dimms.add_relayout(wave.engine, wave.requests, lane, wave.access.many_reads, start)
        self.relayouts.append(self.dimms.agents.relayout)
        self.waves.append(wave)

    def finish_relayout(self) -> None:
        """Run until the last data of what moves is written."""
        self.dimms.run_relayout(state.FAR)
        if self.relayouts:
            self.run_until(max(self.dimms.clock, self.end_of(self.relayouts[-1])))

    def end_of(self, relayout: Relayout) -> int:
        """The clock by which all data of a relayout that is done have been written."""
        device = self.machine.device
        return int(relayout.value[LAST_SERVED]) + device.clocks("nCWL") + device.burst_clocks

    def run_until(self, clock: int) -> None:
        """Go on to a clock, whether or not there is anything to do."""
        if self.run(clock):
            self.dimms.run([common.NOTHING] * (len(self.programs) + 1), clock)

    def has_streams_that_end(self) -> bool:
        """Whether the host asks for anything that has an end."""
        return bool((self.dimms.agents.traffic.offered < state.FAR).any())

    @property
    def end(self) -> int:
        """The tick at which the last of the experts that are done ended."""
        return max(program.end for program in self.programs)

    def moved(self) -> tuple[int, int]:
        """Bursts so far: read by the NDP units, and read and written by the host on their ranks."""
        ndp, host = self.moved_by_lane().sum(axis=1).tolist()
        return ndp, host

    def moved_by_lane(self) -> Ints:
        """int64[owner, lane]: the same of each lane."""
        of_units = self.dimms.lane_issued[:, _DATA].sum(axis=1)
        for relayout in self.relayouts:
            of_units -= relayout.served.sum(axis=0)
        return np.stack((of_units, self.of_host[:, _DATA].sum(axis=1)))

    @property
    def of_host(self) -> Ints:
        """int64[lane, command]: the host's commands to the lanes' ranks."""
        return self.dimms.agents.claims.host_issued

    @property
    def host_cycles(self) -> int:
        """To the last beat of data that the host read, or its last command; 0: there was none."""
        of_reads = self.dimms.host_values[:, state.DATA_END]
        of_commands = self.dimms.agents.buses.value[:, shared.LAST_COLUMN_CLOCK]
        return max(0, int(of_reads.max()), int(of_commands.max()))

    def issued(self) -> Ints:
        """int64[command]: commands to the ranks of the lanes."""
        issued: Ints = self.dimms.lane_issued.sum(axis=0) + self.of_host.sum(axis=0)
        return issued

    def phases(self, dimm: int) -> tuple[Phase, ...]:
        """Of the experts of a DIMM, in order of start, in ns after the first clock; tiles are counted over
        all of them."""
        found, tiles = [], 0
        for expert in self.experts:
            if expert.dimm == dimm:
                phases = expert.spans.phases(self.after_start_ns)
                found += [dataclasses.replace(phase, tile=phase.tile + tiles) for phase in phases]
                tiles += len(expert.job.tiles)
        return tuple(sorted(found, key=lambda phase: phase.start_ns))

    def job_time(self, expert: QueuedExpert) -> JobTime:
        """When an expert that is done ran, in ns after the first clock."""
        start, _ = expert.spans.of_phase["activations-in", 0]
        assert expert.end is not None
        ends = (self.after_start_ns(tick) for tick in (start, expert.end))
        return JobTime(sum(expert.job.tiles), *ends)

    def clock_ns(self, clock: int) -> float:
        """The time of a clock, in ns after the first."""
        return self.after_start_ns(clock * self.machine.dram_ticks)

    def after_start_ns(self, tick: int) -> float:
        """The time of a tick, in ns after the first clock."""
        return self.machine.timebase.to_ns(tick - FIRST_CLOCK * self.machine.dram_ticks)

    def commands_of_lanes(self) -> Iterator[CommandTrace]:
        """The commands of each lane, whoever issued them, at clocks as refresh counts them."""
        by_lane, by_bus = self.dimms.recorded
        buses, standard, shift = len(by_bus.length), self.machine.device.standard, self.setup.refresh_shift
        of_host = [
            decode_commands(_one(by_bus, bus), self.setup.host_tables, standard, shift)
            for bus in range(buses)
        ]
        for lane in range(len(by_lane.length) if by_lane.entry.size else 0):
            rank, bus = divmod(lane, buses)
            own = decode_commands(_one(by_lane, lane), self.setup.lane_tables, standard, shift)
            yield merge_commands(own, of_host[bus], rank)


def _one(recorded: state.Commands, number: int) -> state.Commands:
    """The commands of one channel."""
    return state.Commands(recorded.entry[number], recorded.length[number : number + 1])


@functools.lru_cache(maxsize=32)
def _placed_on_lanes(machine: Machine, weights: ExpertWeights, base: int) -> tuple[Placed, int]:
    """An expert on one DIMM, every lane on its own, and the first free place behind it."""
    expert = place_on_dimms(machine, "localized", weights, base)
    return every_lane(machine, expert).placed[0], expert.end
