"""One interface to both controllers, and the choice of the one that runs a channel."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram import controller
from ndpsim.dram.fast import controller as fast_controller
from ndpsim.dram.fast import split_activation
from ndpsim.dram.fast import state as fast
from ndpsim.dram.fast.every_step import EveryStep
from ndpsim.dram.fast.fast_forward import FastForward
from ndpsim.dram.fast.fields import BANKS, SLOTS
from ndpsim.dram.fast.transition_table import can_fast_forward, make_table, no_table
from ndpsim.dram.refresh_policies import Schedule
from ndpsim.dram.sink import Sink
from ndpsim.dram.spec import Tables
from ndpsim.dram.state import (
    CLOSED_AT,
    COUNTERS,
    INDEX,
    LATENCIES,
    OPEN_CLOCKS,
    OPEN_ROW,
    Channel,
    Commands,
    Policy,
    Source,
    make_state,
    schedule_of,
)

Ints = NDArray[np.int64]


class Controller(Protocol):
    """A channel and its controller.

    Attributes:
        tables: the device.
        value: counters, by the places in `dram.state`.
        latencies: int64[clocks], reads by latency, from arrival to the last beat; the last place has those
            that take longer, too.
        most_queued: maximum number of requests in the channel.
    """

    tables: Tables
    value: Ints
    latencies: Ints
    most_queued: int

    @property
    def issued(self) -> Ints:
        """int64[command]: commands issued."""

    @property
    def skipped(self) -> int:
        """Reads that were fast-forwarded instead of stepped through."""

    def request_numbers(self) -> list[Ints]:
        """Views of all numbers of requests in the source that the state has; those of requests that have
        left are without meaning.
        """

    def open_clocks(self, end: int) -> int:
        """Clocks for which banks had an open row before clock `end`, summed over the banks.

        `end`: not before the last command. A bank is open from its activation to its precharge.
        """

    def run(self, source: Source, sink: Sink, commands: Commands, until_served: int, until_taken: int) -> int:
        """Run from step to step; arguments and result are those of `dram.controller.run`."""


def open_clocks_of(rows: Ints, counted: int, end: int) -> int:
    """See `Controller.open_clocks`.

    Args:
        rows: int64[..., bank, field], the banks of one or more channels.
        counted: their counters at OPEN_CLOCKS.
    """
    still_open = np.count_nonzero(rows[..., OPEN_ROW] >= 0)
    yet_to_come = np.maximum(rows[..., CLOSED_AT] - end, 0).sum()
    return int(counted + still_open * end - yet_to_come)


class ScanController:
    """The general controller: it examines every request of a queue, of any length."""

    def __init__(
        self,
        tables: Tables,
        policy: Policy,
        latency_places: int = LATENCIES,
        schedule: Schedule | None = None,
    ) -> None:
        self.tables, self._policy = tables, policy
        self._state = make_state(tables, policy, schedule)
        self.value, self.latencies = self._state.value[:COUNTERS], np.zeros(latency_places, dtype=np.int64)
        self.issued: Ints = self._state.issued
        self.most_queued = self._state.entry.shape[0] * self._state.entry.shape[2]
        self.skipped = 0

    def request_numbers(self) -> list[Ints]:
        return [self._state.entry[:, INDEX]]

    def open_clocks(self, end: int) -> int:
        return open_clocks_of(self._state.rows, int(self.value[OPEN_CLOCKS]), end)

    def run(self, source: Source, sink: Sink, commands: Commands, until_served: int, until_taken: int) -> int:
        run: Any = controller.run
        channel = Channel(self._policy, self.tables, self._state, self.latencies, source, sink, commands)
        return int(run(channel, until_served, until_taken))


_NO_TABLE = no_table()


class FastController:
    """The fast controller (`fast.state.chunks_needed`)."""

    def __init__(
        self,
        tables: Tables,
        policy: Policy,
        latency_places: int = LATENCIES,
        with_sink: bool = False,
        schedule: Schedule | None = None,
    ) -> None:
        self.tables, self._policy = tables, policy
        chunks = fast.chunks_needed(tables, policy, with_sink)
        due = schedule_of(tables, policy) if schedule is None else schedule
        self._pauses = any(turn.pause > 0 for turn in due.turns)
        self._in_steps = chunks > 1 or policy.row_cap > 0
        self._shape = fast.make_shape(tables, policy.rows, chunks, fast.step_on(policy, tables))
        self._numbers = fast.other_numbers(tables)
        # The kernel gets the array, because Numba needs 25 microseconds to find the address of a record.
        self._states = fast.make_states(tables, policy, 1, chunks, schedule)
        self._state = self._states[0]
        self.value, self.latencies = self._state["value"][:COUNTERS], np.zeros(latency_places, dtype=np.int64)
        self.most_queued = 2 * chunks * SLOTS + BANKS + 1
        self._transition_tables: dict[tuple[int, ...], Ints] = {}  # by the shape and clocks of the sink

    @property
    def issued(self) -> Ints:
        """int64[command]: commands issued."""
        return fast.issued_commands(self._state, self.tables)

    @property
    def skipped(self) -> int:
        """Reads that were fast-forwarded instead of stepped through."""
        return int(self._state["fast_forwarded"])

    def request_numbers(self) -> list[Ints]:
        state = self._state
        return [state["slot_request"], state["active_request"], *split_activation.request_numbers(state)]

    def open_clocks(self, end: int) -> int:
        counted = int(self.value[OPEN_CLOCKS]) + fast.open_banks(self._state) * end
        return counted - fast.clocks_until_closed(self._state, self.tables.ranks, end)

    def run(self, source: Source, sink: Sink, commands: Commands, until_served: int, until_taken: int) -> int:
        run: Any = fast_controller.run
        if self._in_steps:
            skips: Any = EveryStep(_NO_TABLE)
        else:
            skips = FastForward(self._table_for(source, sink, commands))
        channel = Channel(self._policy, self._shape, self._states, self.latencies, source, sink, commands)
        recorded = int(commands.length[0])
        outcome = int(run(channel, skips, until_served, until_taken))
        if self._numbers is not None:
            new = commands.entry[recorded : commands.length[0], 1]
            new[:] = self._numbers[fast.CLASS_OF_COMMAND[new]]
        return outcome

    def _table_for(self, source: Source, sink: Sink, commands: Commands) -> Ints:
        """The table of transitions recorded so far with such a sink."""
        if self._policy.rfm.threshold > 0 or self._pauses or not can_fast_forward(source, commands):
            return _NO_TABLE
        if self._policy.any_order:
            return _NO_TABLE  # transitions do not know which bank comes next
        key = sink.depth, sink.servers, sink.dram_ticks, sink.unit_ticks
        if key not in self._transition_tables:
            self._transition_tables[key] = make_table(self.tables, self._policy, sink.depth + sink.servers)
        return self._transition_tables[key]


def compare_channels(first: Controller, second: Controller) -> list[str]:
    """The difference between two controllers after the same work, in words; empty if there is none."""
    same = {
        "its counters": np.array_equal(first.value, second.value),
        "its commands": np.array_equal(first.issued, second.issued),
        "its latencies": np.array_equal(first.latencies, second.latencies),
    }
    return [name for name, equal in same.items() if not equal]


def make_controller(
    tables: Tables,
    policy: Policy,
    with_sink: bool = False,
    latency_places: int = LATENCIES,
    schedule: Schedule | None = None,
) -> Controller:
    """The fastest controller that can run a channel, at rest.

    `schedule`: the times of its refreshes; None: those of the policy.
    """
    if fast.chunks_needed(tables, policy, with_sink) > 0:
        return FastController(tables, policy, latency_places, with_sink, schedule)
    return ScanController(tables, policy, latency_places, schedule)
