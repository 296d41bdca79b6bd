"""One channel of a trace and its share of the requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ndpsim.base.limits import ensure_fits
from ndpsim.dram import state
from ndpsim.dram.controllers import own_counters
from ndpsim.dram.engines import Controller, make_controller
from ndpsim.dram.mapping import Coordinates
from ndpsim.dram.spec import Standard, lower
from ndpsim.dram.spec.standard import READ, READ_AP, WRITE, WRITE_AP
from ndpsim.dram.state import repeating_period
from ndpsim.dram.traces import Requests
from ndpsim.simulate.idle import IdleTime
from ndpsim.simulate.lane import Bus, Ints, MakeChannel, name_commands
from ndpsim.simulate.memory import Memory

_CHUNK = 1 << 18  # requests between two reports of progress
_BYTES_OF_A_REFRESH = 256  # bytes of memory for a recorded refresh


class TraceChannel(Bus):
    """One channel and its share of the requests."""

    def __init__(
        self,
        memory: Memory,
        requests: Requests,
        places: Coordinates,
        chosen: Any,
        recording: bool,
        make_channel: MakeChannel = make_controller,
    ) -> None:
        tables = lower(memory.device)
        rank, bankgroup, bank, row, column, _ = (values[chosen] for values in places)
        address = address_of(places, memory) if requests.address is None else requests.address
        cycle = None if requests.cycle is None else requests.cycle[chosen]
        source = state.make_source(
            tables, rank, bankgroup, bank, row, column, requests.write[chosen], address[chosen], cycle
        )
        source = source._replace(period=repeating_period(source.place))
        policy = memory.policy
        channel = make_channel(tables, policy)
        super().__init__(tables, channel, source, recording)
        self._memory = memory
        self.accepted: dict[str, Any] | None = None
        self._idle = IdleTime(tables, policy, channel)
        if recording and cycle is not None and len(cycle):
            refreshes = self._idle.refreshes_until(int(cycle[-1]))
            needed = refreshes * _BYTES_OF_A_REFRESH
            ensure_fits(needed, f"a record of {refreshes} refreshes", file=requests.file)
        # In skipped time refreshes would not lower the counters of refresh management.
        steps = recording or cycle is None or policy.rfm.threshold > 0
        pauses = [] if steps else self._idle.long_pauses(source.cycle)
        self._pauses = [*pauses, self.count]
        if pauses:
            self.source = source._replace(cycle=source.cycle.copy())

    def run_reporting(self, report: Callable[[int], None]) -> None:
        """Run to the end, first to the clock that accepts the last request."""
        if self.count == 0:
            return
        first = reported = 0
        for end in self._pauses:
            if self._idle.clocks > 0:
                self.source.cycle[first:end] -= self._idle.clocks
            if end < self.count:  # requests after a pause are not accepted before it
                self.channel.value[state.PAUSE] = self.source.cycle[end] - self._idle.clocks
            # A run may only be interrupted between steps while requests remain to be accepted.
            for until in range(reported + _CHUNK, min(end, self.count - self.channel.most_queued), _CHUNK):
                self.run(until_served=until)
                report(_CHUNK)
                reported += _CHUNK
            if end < self.count:
                self.run(until_served=end)
                self._skip_idle_time(end)
            first = end
        self.run(state.FAR, until_taken=self.count)
        self.accepted = counters_now(self, self._memory.device.standard)
        self.run()
        report(self.count - reported)

    def _skip_idle_time(self, request: int) -> None:
        """Skip idle time before a request, if all earlier ones are served."""
        value = self.channel.value
        if value[state.SERVED] == request:
            self._idle.skip(int(value[state.PAUSE]), self.run_until)
        value[state.PAUSE] = state.FAR

    @property
    def value(self) -> Ints:
        """The channel's counters, with skipped idle time."""
        value = self.channel.value.copy()
        value[[state.CLOCK, state.COUNTED_UNTIL]] += self._idle.clocks
        return value

    @property
    def issued(self) -> Ints:
        """int64[command]: commands issued."""
        return self.channel.issued + self._idle.issued

    @property
    def cycles(self) -> int:
        """Clocks to the last beat of read data, or the last command."""
        return super().cycles + self._idle.clocks

    def open_clocks(self, end: int) -> int:
        """See `dram.engines.Controller`."""
        return self.channel.open_clocks(end - self._idle.clocks)

    @property
    def bytes_moved(self) -> int:
        """Bytes over the data bus."""
        columns = int(self.issued[[READ, WRITE, READ_AP, WRITE_AP]].sum())
        return columns * self._memory.device.burst_bytes


def counters(channels: Sequence[TraceChannel | Controller], standard: Standard) -> dict[str, Any]:
    """The counters of a result, summed over channels."""
    value = np.sum([channel.value for channel in channels], axis=0)
    return {
        "row_hits": int(value[state.ROW_HITS]),
        "row_misses": int(value[state.ROW_MISSES]),
        "row_conflicts": int(value[state.ROW_CONFLICTS]),
        "reads_forwarded": int(value[state.FORWARDED]),
        "writes_coalesced": int(value[state.COALESCED]),
        "commands": name_commands(np.sum([channel.issued for channel in channels], axis=0), standard),
    }


def counters_now(channel: TraceChannel | Controller, standard: Standard) -> dict[str, Any]:
    """The counters of a channel at its clock, with the additional ones of the standard's controller."""
    value, names = channel.value, own_counters(standard.controller)
    return {
        "cycles": int(value[state.CLOCK]) - 1,
        **counters([channel], standard),
        **{name: int(value[state.OWN_COUNTERS + number]) for number, name in enumerate(names)},
    }


def sizes_in_address(memory: Memory) -> dict[str, int]:
    """The number of parts of each kind in the next larger part: channels, ranks, ..., columns."""
    device = memory.device
    return {
        "channel": memory.channels,
        "rank": device.ranks,
        "bankgroup": device.bankgroups,
        "bank": device.banks_per_group,
        "row": device.rows,
        "column": device.bursts_per_row,
    }


def address_of(places: Coordinates, memory: Memory) -> Ints:
    """A unique number for every burst, for requests with coordinates."""
    return np.ravel_multi_index((places.channel, *places[:-1]), tuple(sizes_in_address(memory).values()))
