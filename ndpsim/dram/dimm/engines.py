"""The two arbiters of a shared DIMM behind one face, and which of them runs a DIMM."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram.dimm import arbiter, readable
from ndpsim.dram.dimm.common import LATE, RECORD_FULL, STUCK
from ndpsim.dram.dimm.state import (
    Setup,
    Traffic,
    Weights,
    bus_bubbles,
    make_buses,
    make_channels,
    make_claims,
    make_transfers,
)
from ndpsim.dram.dimm.stepping import make_asked
from ndpsim.dram.engines import open_clocks_of
from ndpsim.dram.masks import state as masks
from ndpsim.dram.state import COUNTERS, LATENCIES, OPEN_CLOCKS, RECORD_FIELDS, Commands, number_nodes
from ndpsim.limits import ensure_fits

__all__ = ["FastDimm", "ReadableDimm", "SharedDimm", "make_dimm"]

Ints = NDArray[np.int64]

_FIRST_ROOM = 1 << 14  # commands a trace has room for at first


class SharedDimm:
    """A DIMM under way: lanes with weights to read, and buses with requests of the host.

    Attributes:
        buses, transfers, claims: see `dram.dimm.state`.
        recorded: the commands of the lanes, and of the host, by bus.
    """

    def __init__(
        self,
        setup: Setup,
        lanes: int,
        buses: int,
        weights: Weights,
        traffic: Traffic,
        jobs: int,
        recording: bool,
    ) -> None:
        self.setup, self.weights, self.traffic = setup, weights, traffic
        bubbles = bus_bubbles(setup.host_tables, setup.read_latency, setup.write_latency)
        self.buses, self.transfers = make_buses(buses, bubbles), make_transfers(jobs)
        lane_nodes, host_nodes = number_nodes(setup.lane_tables).total, number_nodes(setup.host_tables).total
        self.claims = make_claims(lanes, buses, lane_nodes, host_nodes, setup.host_tables.ranks)
        room = _FIRST_ROOM if recording else 0
        self.recorded = [
            Commands(np.zeros((count, room, RECORD_FIELDS), np.int64), np.zeros(count, np.int64))
            for count in (lanes, buses)
        ]

    def run(self, goal: int, until_clock: int) -> bool:
        """Run until a goal of `dram.dimm.common`; returns whether it was reached before `until_clock`."""
        while True:
            outcome = self._run(goal, until_clock)
            if outcome == STUCK:
                raise RuntimeError("the controller cannot go on: refreshes pile up")
            if outcome != RECORD_FULL:
                return outcome != LATE
            ensure_fits(4 * sum(one.entry.nbytes for one in self.recorded), "a longer record of commands")
            self.recorded = [
                Commands(np.concatenate((one.entry, np.zeros_like(one.entry)), axis=1), one.length)
                for one in self.recorded
            ]

    def _run(self, goal: int, until_clock: int) -> int:
        raise NotImplementedError

    @property
    def clock(self) -> int:
        """The next clock."""
        return int(self.claims.clock[0])

    @property
    def lane_values(self) -> Ints:
        """int64[lane, place]: the counters of the lanes' controllers."""
        raise NotImplementedError

    @property
    def host_values(self) -> Ints:
        """int64[bus, place]: the counters of the host's controllers."""
        raise NotImplementedError

    @property
    def lane_issued(self) -> Ints:
        """int64[lane, command]: commands of the NDP unit."""
        raise NotImplementedError

    @property
    def host_issued(self) -> Ints:
        """int64[bus, command]: commands of the host."""
        raise NotImplementedError

    @property
    def host_latencies(self) -> Ints:
        """int64[bus, clocks]: reads of the host by latency, from arrival to the last beat."""
        raise NotImplementedError

    def open_clocks(self, end: int) -> int:
        """Clocks for which banks of the DIMM had an open row before clock `end`, summed over the banks."""
        raise NotImplementedError


class ReadableDimm(SharedDimm):
    """Clock by clock, on the general controller."""

    def __init__(self, setup: Setup, lanes: int, buses: int, *others: Any) -> None:
        super().__init__(setup, lanes, buses, *others)
        self.lanes = make_channels(setup.lane_tables, setup.policy, lanes, 1)
        self.hosts = make_channels(setup.host_tables, setup.policy, buses, LATENCIES)

    def _run(self, goal: int, until_clock: int) -> int:
        run: Any = readable.run
        return int(
            run(
                self.setup,
                self.lanes,
                self.hosts,
                self.weights,
                self.buses,
                self.transfers,
                self.traffic,
                self.claims,
                *self.recorded,
                goal,
                until_clock,
            )
        )

    @property
    def lane_values(self) -> Ints:
        return self.lanes.value

    @property
    def host_values(self) -> Ints:
        return self.hosts.value

    @property
    def lane_issued(self) -> Ints:
        return self.lanes.issued

    @property
    def host_issued(self) -> Ints:
        return self.hosts.issued

    @property
    def host_latencies(self) -> Ints:
        return self.hosts.latencies

    def open_clocks(self, end: int) -> int:
        return open_clocks_of(self.lanes.rows, int(self.lanes.value[:, OPEN_CLOCKS].sum()), end)


class FastDimm(SharedDimm):
    """From one clock at which something can happen to the next, on the fast controller."""

    def __init__(self, setup: Setup, lanes: int, buses: int, *others: Any) -> None:
        super().__init__(setup, lanes, buses, *others)
        tables = (setup.lane_tables, setup.host_tables)
        self._shapes = tuple(masks.make_shape(one) for one in tables)
        self._states = tuple(
            masks.make_states(one, count) for one, count in zip(tables, (lanes, buses), strict=True)
        )
        self._latencies = np.zeros(1, np.int64), np.zeros((buses, LATENCIES), np.int64)
        self._asked = make_asked(lanes, buses)

    def _run(self, goal: int, until_clock: int) -> int:
        run: Any = arbiter.run
        return int(
            run(
                self.setup,
                self._shapes,
                self._states,
                self._latencies,
                self.weights,
                self.buses,
                self.transfers,
                self.traffic,
                self.claims,
                self._asked,
                *self.recorded,
                goal,
                until_clock,
            )
        )

    @property
    def lane_values(self) -> Ints:
        return self._states[0][:, :COUNTERS]

    @property
    def host_values(self) -> Ints:
        return self._states[1][:, :COUNTERS]

    @property
    def lane_issued(self) -> Ints:
        return np.array([masks.issued_commands(state) for state in self._states[0]])

    @property
    def host_issued(self) -> Ints:
        return np.array([masks.issued_commands(state) for state in self._states[1]])

    @property
    def host_latencies(self) -> Ints:
        return self._latencies[1]

    def open_clocks(self, end: int) -> int:
        still_open = sum(masks.open_banks(state) for state in self._states[0])
        return int(self.lane_values[:, OPEN_CLOCKS].sum()) + still_open * end


def make_dimm(setup: Setup, *others: Any) -> SharedDimm:
    """The fastest that can run such a DIMM, at rest before clock 1."""
    fits = masks.fits(setup.lane_tables, setup.policy, True) and masks.fits(
        setup.host_tables, setup.policy, False
    )
    return (FastDimm if fits else ReadableDimm)(setup, *others)
