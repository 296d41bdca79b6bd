"""The two controllers behind one face, and which of them runs a channel."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ndpsim.caching import cached_by_identity
from ndpsim.dram import controller
from ndpsim.dram.masks import controller as masks_controller
from ndpsim.dram.masks import state as masks
from ndpsim.dram.masks.every_step import EveryStep
from ndpsim.dram.masks.fast_forward import FastForward
from ndpsim.dram.masks.transition_table import can_fast_forward, make_table, no_table
from ndpsim.dram.sink import Sink
from ndpsim.dram.state import (
    CLOSED_AT,
    COUNTERS,
    LATENCIES,
    OPEN_CLOCKS,
    OPEN_ROW,
    Commands,
    Policy,
    Source,
    make_channel,
    schedule_of,
)
from ndpsim.spec import Tables

__all__ = [
    "Controller",
    "MaskController",
    "ScanController",
    "compare_channels",
    "make_controller",
    "open_clocks_of",
]

Ints = NDArray[np.int64]


class Controller(Protocol):
    """A channel at work.

    Attributes:
        tables: the device.
        value: counters, by the places in `dram.state`.
        latencies: int64[clocks], reads by latency, from arrival to the last beat; the last place has those
            that take longer, too.
        most_queued: no more requests than this can be on their way in the channel.
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

    def open_clocks(self, end: int) -> int:
        """Clocks for which banks had an open row before clock `end`, summed over the banks.

        `end`: not before the last command. A bank is open from its activation to its precharge.
        """

    def run(self, source: Source, sink: Sink, commands: Commands, until_served: int, until_taken: int) -> int:
        """See `dram.controller.run`."""


def open_clocks_of(rows: Ints, counted: int, end: int) -> int:
    """See `Controller.open_clocks`.

    Args:
        rows: int64[..., bank, field], the banks of one or more channels.
        counted: what they have counted at OPEN_CLOCKS.
    """
    still_open = np.count_nonzero(rows[..., OPEN_ROW] >= 0)
    yet_to_come = np.maximum(rows[..., CLOSED_AT] - end, 0).sum()
    return int(counted + still_open * end - yet_to_come)


class ScanController:
    """The general controller: looks at every request of a queue, of any length."""

    def __init__(self, tables: Tables, policy: Policy, latency_places: int = LATENCIES) -> None:
        self.tables, self._policy = tables, policy
        self._channel = make_channel(tables, policy, latency_places)
        self.value, self.latencies = self._channel.value[:COUNTERS], self._channel.latencies
        self.issued: Ints = self._channel.issued
        self.most_queued = self._channel.entry.shape[0] * self._channel.entry.shape[2]
        self.skipped = 0

    def open_clocks(self, end: int) -> int:
        """See `Controller.open_clocks`."""
        return open_clocks_of(self._channel.rows, int(self.value[OPEN_CLOCKS]), end)

    def run(self, source: Source, sink: Sink, commands: Commands, until_served: int, until_taken: int) -> int:
        """See `dram.controller.run`."""
        run: Any = controller.run
        channel = self._channel
        return int(run(self.tables, self._policy, source, channel, sink, commands, until_served, until_taken))


@cached_by_identity(16)
def _at_rest(tables: Tables) -> tuple[masks.Shape, dict[int, Ints]]:
    """The shape and, by refresh policy, the first state of a channel."""
    return masks.make_shape(tables), {}


_NO_TABLE = no_table()


class MaskController:
    """The fast controller (`masks.state.segments_needed`)."""

    def __init__(
        self, tables: Tables, policy: Policy, latency_places: int = LATENCIES, with_sink: bool = False
    ) -> None:
        self.tables, self._policy = tables, policy
        self._shape, rests = _at_rest(tables)
        rest = rests.get(policy.refresh)
        if rest is None:
            rest = rests[policy.refresh] = masks.make_state(tables, schedule_of(tables, policy))
        segments = masks.segments_needed(tables, policy, with_sink)
        self._in_steps = segments > 1 or type(policy.rows) is not type(self._shape.rows)
        if self._in_steps:
            self._shape = masks.make_shape(tables, policy.rows, segments)
        self._state = masks.copy_at_rest(rest, tables.ranks, segments)
        self.value, self.latencies = self._state[:COUNTERS], np.zeros(latency_places, dtype=np.int64)
        self.most_queued = 2 * segments * masks.SLOTS + masks.BANKS
        self._transition_tables: dict[tuple[int, ...], Ints] = {}  # by the shape and clocks of the sink

    @property
    def issued(self) -> Ints:
        """int64[command]: commands issued."""
        return masks.issued_commands(self._state, self.tables)

    @property
    def skipped(self) -> int:
        """Reads that were fast-forwarded instead of stepped through."""
        return int(self._state[masks.FAST_FORWARDED])

    def open_clocks(self, end: int) -> int:
        """See `Controller.open_clocks`."""
        counted = int(self.value[OPEN_CLOCKS]) + masks.open_banks(self._state) * end
        return (
            counted - masks.clocks_until_closed(self._state, self.tables.ranks, end)
            if self._in_steps
            else counted
        )

    def run(self, source: Source, sink: Sink, commands: Commands, until_served: int, until_taken: int) -> int:
        """See `dram.controller.run`."""
        run: Any = masks_controller.run
        if self._in_steps:
            skips: Any = EveryStep(_NO_TABLE)
        else:
            skips = FastForward(self._table_for(source, sink, commands))
        work = self._policy, self._shape, self._state, self.latencies, source, sink, commands, skips
        return int(run(*work, until_served, until_taken))

    def _table_for(self, source: Source, sink: Sink, commands: Commands) -> Ints:
        """The transitions recorded so far with such a sink."""
        if not can_fast_forward(source, commands):
            return _NO_TABLE
        key = sink.depth, sink.servers, sink.dram_ticks, sink.unit_ticks
        if key not in self._transition_tables:
            self._transition_tables[key] = make_table(self.tables, self._policy, sink.depth + sink.servers)
        return self._transition_tables[key]


def compare_channels(one: Controller, other: Controller) -> list[str]:
    """What two controllers that ran the same work differ in, in words; empty: nothing."""
    same = {
        "its counters": np.array_equal(one.value, other.value),
        "its commands": np.array_equal(one.issued, other.issued),
        "its latencies": np.array_equal(one.latencies, other.latencies),
    }
    return [name for name, equal in same.items() if not equal]


def make_controller(
    tables: Tables, policy: Policy, with_sink: bool = False, latency_places: int = LATENCIES
) -> Controller:
    """The fastest controller that can run a channel, at rest."""
    if masks.segments_needed(tables, policy, with_sink) > 0:
        return MaskController(tables, policy, latency_places, with_sink)
    return ScanController(tables, policy, latency_places)
