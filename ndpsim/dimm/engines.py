"""One interface to both arbiters of a channel's DIMMs, and the choice of the one that runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import no_way_on
from ndpsim.base.limits import ensure_fits
from ndpsim.dimm import arbiter, readable, stepping
from ndpsim.dimm.alone import Alone
from ndpsim.dimm.building import (
    JobReads,
    Stream,
    add_job,
    add_stream,
    make_buses,
    make_channels,
    make_claims,
    make_traffic,
    make_transfers,
    make_weights,
    request_slots,
)
from ndpsim.dimm.common import LATE, NOTHING, RECORD_FULL, REQUESTS_DONE, STUCK
from ndpsim.dimm.link.engine_state import Engine
from ndpsim.dimm.link.packing import BurstRequests
from ndpsim.dimm.readable_channels import ReadableControllers
from ndpsim.dimm.relayout import idle, make_relayout
from ndpsim.dimm.state import HOST, NDP, Agents, DimmSetup
from ndpsim.dram.engines import open_clocks_of
from ndpsim.dram.fast import state as fast
from ndpsim.dram.state import (
    COUNTERS,
    LATENCIES,
    OPEN_CLOCKS,
    OPEN_ROW,
    RECORD_FIELDS,
    REFRESH_SHIFT,
    REFRESHES,
    TAKEN,
    Commands,
    number_nodes,
    schedule_of,
)

Ints = NDArray[np.int64]
#: A bank of a rank of a channel, and its row: rank, bank group, bank, row.
OpenRow = tuple[int, int, int, int]

_FIRST_ROOM = 1 << 14  # initial room of a command trace


class SharedDimms:
    """The running DIMMs of a channel: lanes with weights to read, and buses with requests of the host.

    The memory was at rest before the start: refreshes that were due earlier are done.

    Args:
        lanes: number of lanes of the DIMMs with NDP units, which are first on the channel.
        buses: number of sub-channels.
        transfers: maximum number of waiting transfers of a DIMM.
        open_rows: rows that are open at the first clock.

    Attributes:
        agents: see `dimm.state`.
        recorded: the commands of the lanes, and of the host, by bus.
    """

    def __init__(
        self,
        setup: DimmSetup,
        lanes: int,
        buses: int,
        transfers: int,
        recording: bool,
        open_rows: Iterable[OpenRow] = (),
    ) -> None:
        dimms = lanes // buses // setup.dimm_ranks
        self.setup, self.dimms = setup, dimms
        self.agents = Agents(
            make_weights(setup, lanes, buses),
            make_transfers(dimms, transfers),
            make_traffic(buses),
            make_buses(setup, buses, dimms),
            make_claims(setup, lanes, buses),
            idle(lanes, request_slots(setup)),
        )
        room = _FIRST_ROOM if recording else 0
        self.recorded = [
            Commands(np.zeros((count, room, RECORD_FIELDS), np.int64), np.zeros(count, np.int64))
            for count in (lanes, buses)
        ]
        self._latencies = np.zeros((buses, 1, LATENCIES), dtype=np.int64)
        self._of_lanes = np.zeros((1, 1, 1), dtype=np.int64)  # no histogram of single reads of a lane
        self._sides: list[Any] = []  # arguments of kernels, until an array is replaced
        self._make_controllers(lanes, buses)
        for side in (NDP, HOST):
            self.values(side)[:, REFRESH_SHIFT] = setup.refresh_shift
        self._record_refreshes(self.clock)
        for rank, bankgroup, bank, row in open_rows:
            for bus in range(buses):
                lane = rank * buses + bus
                if lane < lanes:
                    self._open_row(NDP, lane, (0, bankgroup, bank, row), self.clock)
                self._open_row(HOST, bus, (rank, bankgroup, bank, row), self.clock)

    def add_job(self, dimm: int, job: JobReads) -> None:
        """Add a job: its weights are read after all others of its DIMM."""
        self.agents = self.agents._replace(weights=add_job(self.agents.weights, dimm, job))

    def add_stream(self, stream: Stream) -> int:
        """Add a stream of the host; returns its number."""
        if not self.agents.traffic.takes_part.any():
            # From now on refreshes are the host's.
            self._record_refreshes(self.clock)
        self.agents = self.agents._replace(traffic=add_stream(self.agents.traffic, stream))
        number = len(self.agents.traffic.first) - 1
        if number:
            more = np.zeros_like(self._latencies[:, :1])
            self._latencies, self._sides = np.concatenate((self._latencies, more), axis=1), []
        return number

    def add_relayout(
        self, engine: Engine, requests: BurstRequests, lane: NDArray[np.int32], many_reads: int, start: int
    ) -> None:
        """Add a relayout engine that begins after the clock `start`; an earlier one must be done.

        Args:
            lane, many_reads: see `dimm.relayout.make_relayout`.
        """
        lanes = len(self.agents.weights.length)
        slots = self._request_slots()
        relayout = make_relayout(engine, requests, lane, many_reads, lanes, slots, start)
        self.agents = self.agents._replace(relayout=relayout)

    def make_room_for_transfers(self, most: int) -> None:
        """Make room for this number of waiting transfers of each DIMM."""
        ready = self.agents.transfers.ready
        if most > ready.shape[1]:
            room = np.zeros((self.dimms, most), dtype=np.int64)
            room[:, : ready.shape[1]] = ready
            self.agents = self.agents._replace(transfers=self.agents.transfers._replace(ready=room))

    def end_streams(self) -> None:
        """End the streams of the host after the requests that its controllers have taken."""
        traffic = self.agents.traffic
        traffic.offered[:] = traffic.taken
        traffic.next[:] = -1
        traffic.admitted[:, 0] = self.values(HOST)[:, TAKEN]

    def put_transfers(self, dimm: int, direction: int, ticks: int, ready: Sequence[int]) -> None:
        """Replace the transfers of a DIMM: each takes `ticks`, and starts at `ready` at the earliest."""
        transfers, count = self.agents.transfers, len(ready)
        self.agents.buses.next_transfer[:, dimm] = 0
        transfers.ready[dimm, :count] = ready
        transfers.value[dimm] = count, ticks, direction, 1, 0, 0

    def run(self, goals: Sequence[int], until_clock: int) -> bool:
        """Run until a goal of `dimm.common` is reached, of a DIMM, the host or the relayout engine, in this
        order, none where `goals` end early; returns whether one was before `until_clock`."""
        goals = [*goals, *[NOTHING] * (self.dimms + 2 - len(goals))]
        while True:
            outcome = self._run(np.array(goals, dtype=np.int64), until_clock)
            if outcome == STUCK:
                raise no_way_on("refreshes pile up")
            if outcome != RECORD_FULL:
                return outcome != LATE
            ensure_fits(
                4 * sum(record.entry.nbytes for record in self.recorded), "a longer record of commands"
            )
            self.recorded = [
                Commands(np.concatenate((record.entry, np.zeros_like(record.entry)), axis=1), record.length)
                for record in self.recorded
            ]
            self._sides = []

    def run_host(self, until_clock: int) -> bool:
        """Run until all requests of the host that are offered are served."""
        return self.run([NOTHING] * self.dimms + [REQUESTS_DONE], until_clock)

    def run_relayout(self, until_clock: int) -> bool:
        """Run until the relayout engine is done."""
        return self.run([NOTHING] * (self.dimms + 1) + [REQUESTS_DONE], until_clock)

    def run_until(self, clock: int) -> None:
        """Run to a clock."""
        self.run([], clock)

    def _request_slots(self) -> int | None:
        """Slots of a lane's source for requests of the relayout engine; None: it has nothing else."""
        return request_slots(self.setup)

    def _make_controllers(self, lanes: int, buses: int) -> None:
        raise NotImplementedError

    def _open_row(self, side: int, number: int, opened: OpenRow, clock: int) -> None:
        raise NotImplementedError

    def _run(self, goals: Ints, until_clock: int) -> int:
        raise NotImplementedError

    def _record_refreshes(self, clock: int) -> None:
        """Refreshes that have fallen due before a clock are done, as far as the host keeps their time, or no
        controller has yet."""
        for side, tables in ((NDP, self.setup.lane_tables), (HOST, self.setup.host_tables)):
            values = self.values(side)
            before = schedule_of(tables, self.setup.policy).due_before(clock + self.setup.refresh_shift)
            values[:, REFRESHES] = np.maximum(values[:, REFRESHES], before)

    @property
    def clock(self) -> int:
        """The next clock."""
        return int(self.agents.claims.clock[0])

    def values(self, side: int) -> Ints:
        """int64[lane or bus, place]: the counters of the controllers of a side, `NDP` or `HOST`."""
        raise NotImplementedError

    def issued(self, side: int) -> Ints:
        """int64[lane or bus, command]: commands of a side, `NDP` or `HOST`."""
        raise NotImplementedError

    @property
    def host_latencies(self) -> Ints:
        """int64[bus, stream, clocks]: reads of the host by latency, from arrival to the last beat."""
        return self._latencies

    def open_clocks(self, end: int) -> Ints:
        """int64[lane]: clocks for which banks had an open row before clock `end`, summed over the banks."""
        raise NotImplementedError


class ReadableDimms(SharedDimms):
    """Runs clock by clock, on the general controller."""

    def _make_controllers(self, lanes: int, buses: int) -> None:
        self._lanes = make_channels(self.setup.lane_tables, self.setup.policy, lanes)
        self._hosts = make_channels(self.setup.host_tables, self.setup.policy, buses)

    def _open_row(self, side: int, number: int, opened: OpenRow, clock: int) -> None:
        tables = (self.setup.lane_tables, self.setup.host_tables)[side]
        rank, bankgroup, bank, row = opened
        node = number_nodes(tables).first_bank + bank
        node += (rank * tables.bankgroups + bankgroup) * tables.banks_per_group
        channels = (self._lanes, self._hosts)[side]
        channels.rows[number, node, OPEN_ROW] = row
        channels.value[number, OPEN_CLOCKS] -= clock

    def _run(self, goals: Ints, until_clock: int) -> int:
        run: Any = readable.run
        tables = (self.setup.lane_tables, self.setup.host_tables)
        channels, latencies = (self._lanes, self._hosts), (self._of_lanes, self._latencies)
        each = zip(tables, channels, latencies, self.recorded, strict=True)
        sides = [ReadableControllers(*side) for side in each]
        return int(run(self.setup, self.agents, *sides, goals, until_clock))

    def values(self, side: int) -> Ints:
        return (self._lanes, self._hosts)[side].value[:, :COUNTERS]

    def issued(self, side: int) -> Ints:
        return (self._lanes, self._hosts)[side].issued

    def open_clocks(self, end: int) -> Ints:
        lanes = zip(self._lanes.rows, self._lanes.value[:, OPEN_CLOCKS], strict=True)
        return np.array([open_clocks_of(rows, int(counted), end) for rows, counted in lanes])


class FastDimms(SharedDimms):
    """Runs from event to event, on the fast controller."""

    def _make_controllers(self, lanes: int, buses: int) -> None:
        # Numba compiles for each type. Without a host, its controllers have the type of the lanes. A further
        # record gives one controller the same type of array as several.
        alone = isinstance(self.setup.sharing, Alone)
        tables = (self.setup.lane_tables, self.setup.lane_tables if alone else self.setup.host_tables)
        self._shapes = tuple(fast.make_shape(table) for table in tables)
        counts = zip(tables, (lanes, 0 if alone else buses), strict=True)
        records = [fast.make_states(table, self.setup.policy, count + 1) for table, count in counts]
        self._values = tuple(record["value"] for record in records)
        self._states = tuple(record[:-1] for record in records)
        self._wakeups = stepping.make_wakeups(buses)

    def _request_slots(self) -> int | None:
        return None if isinstance(self.setup.sharing, Alone) else request_slots(self.setup)

    def _open_row(self, side: int, number: int, opened: OpenRow, clock: int) -> None:
        rank, bankgroup, bank, row = opened
        fast.open_row(self._states[side][number], rank, bankgroup, bank, row, clock)

    def _run(self, goals: Ints, until_clock: int) -> int:
        run: Any = arbiter.run
        if not self._sides:
            latencies = self._of_lanes, self._latencies
            each = self._shapes, self._states, self._values, latencies, self.recorded
            self._sides = [stepping.FastControllers(*side) for side in zip(*each, strict=True)]
        return int(run(self.setup, self.agents, *self._sides, self._wakeups, goals, until_clock))

    def values(self, side: int) -> Ints:
        return self._states[side]["value"][:, :COUNTERS]

    def issued(self, side: int) -> Ints:
        tables = (self.setup.lane_tables, self.setup.host_tables)[side]
        return fast.issued_commands(self._states[side], tables)

    def open_clocks(self, end: int) -> Ints:
        still_open = np.array([fast.open_banks(state) for state in self._states[0]])
        clocks: Ints = self.values(NDP)[:, OPEN_CLOCKS] + still_open * end
        return clocks


def make_dimms(setup: DimmSetup, *others: Any, **named: Any) -> SharedDimms:
    """The fastest arbiter that can run such a channel; arguments as for `SharedDimms`."""
    with_weights = not isinstance(setup.sharing, Alone)
    fits = fast.fits(setup.lane_tables, setup.policy, with_weights) and fast.fits(
        setup.host_tables, setup.policy, False
    )
    return (FastDimms if fits else ReadableDimms)(setup, *others, **named)
