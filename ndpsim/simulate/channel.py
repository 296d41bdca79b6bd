"""A running host channel: experts on its DIMMs, and reads and writes of the host, on one clock.

Each DIMM has a queue of experts (`simulate.program`), whose steps interleave in `dimm` with those of other
DIMMs and with the host's requests.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ndpsim.base.arguments import Progress
from ndpsim.base.errors import InputError, MismatchError
from ndpsim.dimm import common
from ndpsim.dimm import state as shared
from ndpsim.dimm.arbitrations import make_arbitration
from ndpsim.dimm.building import JobReads
from ndpsim.dimm.concurrent import Shared
from ndpsim.dimm.engines import OpenRow, ReadableDimms, make_dimms
from ndpsim.dimm.layout import ExpertWeights
from ndpsim.dimm.relayout import Relayout
from ndpsim.dram import state
from ndpsim.dram.spec import lower
from ndpsim.dram.spec.standard import READ, READ_AP, WRITE, WRITE_AP
from ndpsim.dram.traces import CommandTrace
from ndpsim.simulate.alone import DimmLanes, QueuedExpert
from ndpsim.simulate.host import host_path
from ndpsim.simulate.lane import Ints, LaneCounts, channel_commands, decode_commands, merge_commands
from ndpsim.simulate.machine import NdpMachine, Placed, PlacedOnDimms, every_lane, place_on_dimms
from ndpsim.simulate.power import Energy
from ndpsim.simulate.program import DOWN, FIRST_CLOCK, Job, Queue, TilesFrom
from ndpsim.simulate.relayout_run import Wave, last_data

_STARVATION_CLOCKS = 16384  # clocks, many more than for row changes and refreshes, few for an expert
_DATA = [READ, WRITE, READ_AP, WRITE_AP]


def _make_setup(machine: NdpMachine, arbitration: str, start_clock: int) -> shared.DimmSetup:
    """The setup of a channel with these DIMMs. Clocks count from 1, which is `start_clock` for refreshes."""
    geometry, device, standard = machine.geometry, machine.device, machine.device.standard
    if machine.lock_step:
        problem = "ranks in lock step (broadcast) beside the host, or with experts on several DIMMs"
        raise InputError(f"not supported: {problem}", "unsupported", key="dimm.command_bus")
    if not machine.shares_ranks:
        problem = f"not supported: ranks or command buses that are shared, under {standard.controller}"
        raise InputError(problem, "unsupported", key="dram.standard")
    host_ranks = len(geometry.dimms_of(0)) * geometry.ranks
    of_command = [command.cycles for command in standard.by_number]
    return shared.DimmSetup(
        sharing=Shared(),
        lane_tables=machine.tables,
        host_tables=lower(dataclasses.replace(machine.device, ranks=host_ranks)),
        policy=machine.policy,
        arbitration=make_arbitration(arbitration),
        starvation_clocks=_STARVATION_CLOCKS,
        read_latency=device.read_latency,
        write_latency=device.write_latency,
        dram_ticks=machine.dram_ticks,
        unit_ticks=machine.unit_ticks,
        fifo_bursts=machine.unit.fifo_bursts,
        dimm_ranks=geometry.ranks,
        dimm_of_rank=np.arange(host_ranks) // geometry.ranks,
        refresh_shift=start_clock - FIRST_CLOCK,
        command_clocks=np.array(of_command, dtype=np.int64) * machine.shared_commands,
    )


class Channel:
    """A running channel.

    Args:
        machine: its DIMMs.
        arbitration: the arbitration between NDP units and the host, ``NAME:KEY=VALUE,...``.
        dimms: number of DIMMs, from the first, that may run experts.
        recording: keep all commands.
        start_clock: the DRAM clock at the start, for refreshes.
        open_rows: see `dimm.engines.SharedDimms`.
        readable: use the readable arbiter.

    Raises:
        InputError: the ranks of a sub-channel are in lock step, or the controller issues several commands at
            once.

    Attributes:
        queues: the queue of each DIMM that may run experts.
        experts: all jobs, in the order in which they were added.
        first_free_place: the first free place in all lanes of each DIMM.
        relayouts, waves: relayouts, in the order in which they were added.
    """

    def __init__(
        self,
        machine: NdpMachine,
        arbitration: str,
        dimms: int = 1,
        recording: bool = False,
        start_clock: int = FIRST_CLOCK,
        open_rows: Iterable[OpenRow] = (),
        readable: bool = False,
    ) -> None:
        self.machine = machine
        self.setup = setup = _make_setup(machine, arbitration, start_clock)
        lanes, buses = dimms * machine.lanes, machine.host_buses
        make = ReadableDimms if readable else make_dimms
        self.dimms = make(setup, lanes, buses, 1, recording, open_rows)
        self.lanes = [DimmLanes(machine, self.dimms, dimm) for dimm in range(dimms)]
        self.queues = [Queue(of_dimm, machine.activated) for of_dimm in self.lanes]
        self.experts: list[Job] = []
        self.first_free_place = [0] * dimms
        self.relayouts: list[Relayout] = []
        self.waves: list[Wave] = []

    # Adding work.

    def add_expert(self, dimm: int, weights: ExpertWeights, tokens: int, release: int = 0) -> None:
        """Add an expert to the queue of a DIMM; its weights are stored after those of earlier experts.

        Raises:
            InputError: the weights do not fit, or the unit cannot multiply them.
        """
        unit = self.machine.unit
        placed, end = _placed_on_lanes(self.machine, weights, self.first_free_place[dimm])
        tiles = unit.tile(tokens, weights.hidden, weights.intermediate)
        self.first_free_place[dimm] = end
        reads = JobReads(
            sources=[stream.source for stream in placed.streams],
            groups=[stream.groups for stream in placed.streams],
            regions=np.array([stream.share.bursts for stream in placed.streams], dtype=np.int64),
            servers=[unit.servers(placed.interleaving, region) for region in range(len(placed.groups))],
            tiles=len(tiles),
            group_count=placed.groups[-1].stop,
            read_from=self.machine.clock_after(release),
        )
        self.dimms.add_job(dimm, reads)
        results = -(-placed.interleaving.regions[DOWN].rows // self.machine.values_per_burst)
        self.dimms.make_room_for_transfers(results)
        added = QueuedExpert(dimm, weights, placed)
        self.experts.append(self.queues[dimm].add(tiles, release, weights.format.names, added))

    def add_relayout(self, wave: Wave, start: int) -> None:
        """Add a relayout that begins after the clock `start`; DIMMs of other channels have no delays."""
        geometry, lanes = self.machine.geometry, self.machine.lanes
        own = np.full((geometry.dimms, lanes), -1, dtype=np.int32)
        on_channel = list(geometry.dimms_of(0))[: len(self.queues)]
        own[on_channel] = np.arange(own[on_channel].size).reshape(-1, lanes)
        lane = own.ravel()[wave.requests.lane]
        self.dimms.add_relayout(wave.engine, wave.requests, lane, wave.access.many_reads, start)
        self.relayouts.append(self.dimms.agents.relayout)
        self.waves.append(wave)

    # Running it.

    def run(self, until_clock: int = state.FAR) -> bool:
        """Run until all experts are done, at most until a clock; returns whether they are done."""
        for queue in self.queues:
            if queue.goal is None:
                queue.advance()
        while any(queue.goal is not None for queue in self.queues):
            goals = [common.NOTHING if queue.goal is None else queue.goal for queue in self.queues]
            if not self.dimms.run(goals, until_clock):
                return False
            for queue, lanes in zip(self.queues, self.lanes, strict=True):
                while queue.goal is not None and lanes.is_reached(queue.goal):
                    queue.advance()
        return True

    def run_until(self, clock: int) -> None:
        """Advance to a clock, even without work."""
        if self.run(clock):
            self.dimms.run_until(clock)

    def run_to_end(self) -> None:
        """Run all experts, and stop at the clock of the last result."""
        self.run()
        self.run_until(max(self.dimms.clock, self.machine.clock_after(self.end)))

    def finish_relayout(self) -> None:
        """Run until the last data of the relayout is written."""
        self.dimms.run_relayout(state.FAR)
        if self.relayouts:
            self.run_until(max(self.dimms.clock, last_data(self.machine.device, self.relayouts[-1])))

    # Results.

    def has_streams_that_end(self) -> bool:
        """Whether any stream of the host has an end."""
        return bool((self.dimms.agents.traffic.offered < state.FAR).any())

    @property
    def end(self) -> int:
        """The tick at which the last finished expert ended."""
        return max(queue.end for queue in self.queues)

    def moved(self) -> tuple[int, int]:
        """Bursts so far: read by the NDP units, and read and written by the host on their ranks."""
        ndp, host = self.moved_by_lane().sum(axis=1).tolist()
        return ndp, host

    def moved_by_lane(self) -> Ints:
        """Bursts of each lane so far: int64[master, lane]."""
        of_units = self.dimms.issued(shared.NDP)[:, _DATA].sum(axis=1)
        for relayout in self.relayouts:
            of_units -= relayout.served.sum(axis=0)
        return np.stack((of_units, self.dimms.agents.claims.host_issued[:, _DATA].sum(axis=1)))

    def issued(self) -> Ints:
        """Commands to the ranks of the lanes: int64[command]."""
        of_units, of_host = self.dimms.issued(shared.NDP), self.dimms.agents.claims.host_issued
        issued: Ints = of_units.sum(axis=0) + of_host.sum(axis=0)
        return issued

    def energy(self, others: Mapping[str, float | None]) -> Energy:
        """Energy so far of the ranks, with all commands to them, and of other components."""
        clock = self.dimms.clock
        rank_clocks = (clock - FIRST_CLOCK) * self.machine.lanes * len(self.queues)
        open_clocks = int(self.dimms.open_clocks(clock).sum())
        return self.machine.dram_power.split(self.issued(), rank_clocks, open_clocks, others)

    def clock_ns(self, clock: int) -> float:
        """The time of a clock, in ns after the first."""
        return self.machine.clocks_ns(clock - FIRST_CLOCK)

    def command_traces(self) -> tuple[CommandTrace, ...]:
        """All commands to each lane, if recorded, with clocks of the refresh schedule."""
        by_lane, by_bus = self.dimms.recorded
        buses, standard, shift = len(by_bus.length), self.machine.device.standard, self.setup.refresh_shift
        host_tables = self.setup.host_tables
        of_host = [
            decode_commands(channel_commands(by_bus, bus), host_tables, standard, shift)
            for bus in range(buses)
        ]
        traces = []
        for lane in range(len(by_lane.length) if by_lane.entry.size else 0):
            rank, bus = divmod(lane, buses)
            own = decode_commands(channel_commands(by_lane, lane), self.setup.lane_tables, standard, shift)
            traces.append(merge_commands(own, of_host[bus], rank))
        return tuple(traces)


class LanesInTurn(Channel):
    """Experts in turn on a DIMM whose lanes share command buses, with nothing else on its channel.

    Args:
        machine, expert, recording, start_clock: as for `simulate.alone.LanesAlone`.
        plain: use the readable arbiter.

    Raises:
        InputError: an expert is on several DIMMs.
    """

    def __init__(
        self,
        machine: NdpMachine,
        expert: PlacedOnDimms,
        recording: bool,
        start_clock: int,
        plain: bool = False,
    ) -> None:
        if len(expert.of_dimm) > 1:
            problem = "an expert on several DIMMs whose ranks take turns on a command bus"
            raise InputError(f"not supported: {problem}", "unsupported", key="dimm.command_bus")
        super().__init__(machine, "ndp-first", 1, recording, start_clock, readable=plain)
        self.expert, self.start_clock, self.path = expert, start_clock, host_path(machine, expert)

    def run_queue(self, jobs: Sequence[TilesFrom], progress: Progress) -> Queue:
        progress(0.0)
        for tokens, release in jobs:
            self.add_expert(0, self.expert.weights, sum(tokens), release)
        self.run_to_end()
        hidden = self.expert.weights.hidden
        messages = np.zeros(-(-hidden // self.path.values_per_message), dtype=np.int64)
        for tile in (tile for tokens, _ in jobs for tile in tokens):  # the path counts its bursts
            self.path.write(0, tile * hidden)
            self.path.read([messages], hidden, tile)
        progress(1.0)
        return self.queues[0]

    def count_until(self, clock: int) -> list[LaneCounts]:
        """Counts of each lane so far."""
        dimms, weights = self.dimms, self.dimms.agents.weights
        busy = (np.diff(weights.ends, axis=1) * (weights.service[0] / weights.servers[0])).sum(axis=1)
        values, issued = dimms.values(shared.NDP).tolist(), dimms.issued(shared.NDP)
        counted = zip(values, issued, dimms.open_clocks(clock).tolist(), busy.tolist(), strict=True)
        return [LaneCounts(1, value, ints, clocks, 0, ticks) for value, ints, clocks, ticks in counted]

    def plain_twin(self) -> LanesInTurn:
        """The same lanes before any work, on the readable arbiter."""
        return LanesInTurn(self.machine, self.expert, False, self.start_clock, plain=True)

    def ensure_same(self, again: LanesInTurn) -> None:
        """Check that the lanes of a plain twin that has run issued the same commands.

        Raises:
            MismatchError: a command differs.
        """
        if not np.array_equal(self.dimms.issued(shared.NDP), again.dimms.issued(shared.NDP)):
            raise MismatchError("lanes that take turns differ from their readable run in their commands")


@functools.lru_cache(maxsize=32)
def _placed_on_lanes(machine: NdpMachine, weights: ExpertWeights, base: int) -> tuple[Placed, int]:
    """An expert on one DIMM, with each lane separate, and the first free place after it."""
    expert = place_on_dimms(machine, "localized", weights, base)
    return every_lane(machine, expert).placed[0], expert.end
