"""One channel of a trace: it runs the requests in its buffer as far as it needs no later ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ndpsim.base.limits import ensure_fits
from ndpsim.dram import state
from ndpsim.dram.controllers import own_counters
from ndpsim.dram.engines import Controller
from ndpsim.dram.fast.transition_table import SPAN
from ndpsim.dram.shares import Shares, drop_before, source_of
from ndpsim.dram.spec import Standard
from ndpsim.dram.spec.standard import READ, READ_AP, WRITE, WRITE_AP
from ndpsim.simulate.lane import Bus, Ints, name_commands
from ndpsim.simulate.memory import Memory
from ndpsim.simulate.program import IdleTime

_CHUNK = 1 << 18  # requests of a run; fast-forward looks up anew after each
_CHUNKS_BUFFERED = 16  # of all channels
_LEAST_CHUNK = 1 << 14  # requests, as many as `state.repeating_period` looks at
_BYTES_OF_A_REFRESH = 256  # bytes of memory for a recorded refresh


def _chunk_of(channels: int, most_queued: int) -> int:
    """Requests of a run of each of several channels; many channels have shorter ones, to save memory."""
    return max(min(_CHUNK, _CHUNKS_BUFFERED * _CHUNK // channels), _LEAST_CHUNK, 4 * most_queued)


def room_of(channels: int, most_queued: int) -> int:
    """Requests for which the buffer of each channel has room: more than a chunk, and those that are kept."""
    return _chunk_of(channels, most_queued) * 5 // 4 + 6 * most_queued + 4 * SPAN


class TraceChannel(Bus):
    """One channel, and the requests in its buffer.

    Args:
        memory: all channels.
        shares: the buffers of all channels.
        number: the number of the channel.
        recording: keep the commands.
        channel: its idle controller.
        file: the file of the requests, for messages.

    Attributes:
        count: requests so far.
        served: requests served in whole chunks.
        accepted: counters at the clock that accepts the last request.
    """

    def __init__(
        self,
        memory: Memory,
        shares: Shares,
        number: int,
        recording: bool,
        channel: Controller,
        file: str | None = None,
    ) -> None:
        super().__init__(channel.tables, channel, source_of(shares, number), recording)
        self._memory, self._shares, self._number, self._file = memory, shares, number, file
        self._idle = IdleTime(channel.tables, memory.policy, channel)
        self._chunk = _chunk_of(memory.channels, channel.most_queued)
        self._window = 2 * channel.most_queued
        self._timed = shares.cycle.shape[1] > 0
        # In skipped time refreshes would not lower the counters of refresh management.
        self._skips = self._timed and not recording and memory.policy.rfm.threshold == 0
        self._pauses: list[int] = []  # requests after idle time to skip
        self._shifted = 0  # requests whose cycles have been reduced by the skipped clocks
        self._last_cycle = self.served = 0
        self.accepted: dict[str, Any] | None = None

    def run_ahead(self) -> None:
        """Run the chunks that end before any request that is not in the buffer, and drop what they served."""
        self._receive()
        self._run_chunks(self.count - self.channel.most_queued - 2 * SPAN)
        self._drop_served()

    def run_to_end(self) -> None:
        """Run to the end, first to the clock that accepts the last request; no more requests come."""
        self._receive()
        if self.count == 0:
            return
        self._run_chunks(self.count)
        self.run(state.FAR, until_taken=self.count)
        self.accepted = counters_now(self, self._memory.device.standard)
        self.run()
        self.served = self.count

    # ---- Requests

    @property
    def _dropped(self) -> int:
        """The number of the request that would be the first in the buffer, if none before it were kept."""
        value = self.channel.value
        return int(value[state.TAKEN] - value[state.PLACE])

    def _receive(self) -> None:
        """Take note of the requests that were put into the buffer."""
        before, dropped = self.count, self._dropped
        period = self.source.period if self.channel.value[state.TAKEN] else None
        source = source_of(self._shares, self._number, period)
        self.count = dropped + len(source.place)
        source.admitted[0] = self.count
        self.source = source
        cycle = source.cycle[before - dropped :]
        if not len(cycle):
            return
        if self._skips:
            pauses = self._idle.long_pauses(cycle, self._last_cycle)
            self._pauses += [before + pause for pause in pauses]
        self._last_cycle = int(cycle[-1])
        if self.commands.entry.size:
            refreshes = self._idle.refreshes_until(self._last_cycle)
            ensure_fits(
                refreshes * _BYTES_OF_A_REFRESH, f"a record of {refreshes} refreshes", file=self._file
            )

    def _drop_served(self) -> None:
        """Drop the requests that have left, but for the last ones and those in between with older ones."""
        value, numbers = self.channel.value, self.channel.request_numbers()
        first = int(value[state.PLACE]) - self._window
        if first <= 0:
            return
        older = np.unique(np.concatenate([part.ravel() for part in numbers]))
        older = older[(older >= 0) & (older < first)]
        # Spans of fast-forward begin where they began: at the same remainder of the request's number.
        unused = int(value[state.TAKEN] - self._window - len(older)) % SPAN
        kept = np.concatenate((np.zeros(unused, dtype=np.int64), older))
        for part in numbers:
            part[...] = np.where(
                part < first, unused + np.searchsorted(older, part), part - first + len(kept)
            )
        drop_before(self._shares, self._number, kept, first)
        value[state.PLACE] = len(kept) + self._window

    # ---- Running

    def _run_chunks(self, available: int) -> None:
        """Run whole chunks that are served with the first `available` requests, and skip idle time.

        A run may only be interrupted between steps while requests remain to be accepted.
        """
        while True:
            pause = self._pauses[0] if self._pauses else None
            end = self.count if pause is None else pause
            self._shift_cycles(end)
            if pause is not None:  # requests after a pause are not accepted before it
                cycle = int(self.source.cycle[pause - self._dropped])
                self.channel.value[state.PAUSE] = cycle - self._idle.clocks
            last = min(end, self.count - self.channel.most_queued)
            last = last if pause is not None else min(last, available)
            while self.served + self._chunk < last:
                self.run(self.served + self._chunk)
                self.served += self._chunk
            if pause is None:
                return
            self.run(pause)
            self._skip_idle_time(pause)
            self._pauses.pop(0)

    def _shift_cycles(self, end: int) -> None:
        """Reduce the cycles of the requests before number `end` by the skipped clocks."""
        if self._idle.clocks > 0:
            dropped = self._dropped
            self.source.cycle[max(self._shifted - dropped, 0) : end - dropped] -= self._idle.clocks
        self._shifted = end

    def _skip_idle_time(self, request: int) -> None:
        """Skip idle time before a request, if all earlier ones are served."""
        value = self.channel.value
        if value[state.SERVED] == request:
            self._idle.skip(int(value[state.PAUSE]), self.run_until)
        value[state.PAUSE] = state.FAR

    # ---- Results

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
