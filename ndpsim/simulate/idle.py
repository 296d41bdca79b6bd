"""Idle time of a channel: whole refresh periods without requests are skipped."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, takewhile

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram import state
from ndpsim.dram.engines import Controller
from ndpsim.dram.spec import Tables
from ndpsim.dram.spec.lower import CLOCKS

#: Fewer idle periods of the refresh schedule are simulated, which takes less time than to skip them.
LEAST_PERIODS = 4096


class IdleTime:
    """Skipped idle time of a channel.

    A channel without requests reaches a state that repeats, shifted, after every period of its refresh
    schedule, once it owes no refresh, and earlier commands no longer constrain it. From then on, requests
    that arrive whole periods later find the same state as now. They therefore arrive now, and the clocks and
    refreshes of the skipped periods are added to the channel's counts. No row is open then, since all banks
    were refreshed.

    Attributes:
        period: clocks of the refresh schedule; 0: without refreshes, controllers skip idle time themselves.
        clocks: the number of skipped clocks.
        issued: commands in skipped clocks, int64[command].
    """

    def __init__(self, tables: Tables, policy: state.Policy, channel: Controller) -> None:
        schedule = state.schedule_of(tables, policy)
        self.period, self._is_elastic = schedule.period if schedule.turns else 0, policy.postpones > 0
        self.clocks = 0
        self.issued = np.zeros(len(tables.commands), dtype=np.int64)
        self._channel, self._turns = channel, len(schedule.turns)
        self._first_turn = schedule.turns[0].clock if schedule.turns else 0
        windows = tables.windows[:, CLOCKS:]
        self._longest = int(max(tables.gap.max(), tables.sibling_gap.max(), windows.max(initial=0)))
        self._in_period = np.zeros_like(self.issued)
        for turn in schedule.turns:
            self._in_period[turn.command] += tables.ranks if turn.rank < 0 else 1

    def long_pauses(self, cycle: NDArray[np.int64]) -> list[int]:
        """The timed requests that may have idle time before them to skip."""
        if self.period == 0 or self._is_elastic:
            return []
        least = LEAST_PERIODS * self.period + self._longest
        return np.flatnonzero(np.diff(cycle, prepend=0) > least).tolist()

    def refreshes_until(self, clock: int) -> int:
        """The approximate number of refreshes before a clock."""
        return clock // self.period * int(self._in_period.sum()) if self.period else 0

    def skip(self, until: int, run_until: Callable[[int], None]) -> None:
        """Skip as much as possible of the time before `until`, a clock of the channel.

        Args:
            run_until: runs the channel, which has no requests, up to a clock.
        """
        start = int(self._channel.value[state.CLOCK])
        wait = 2 * self.period + self._longest
        # The time for refreshes that requests delayed is not known beforehand.
        starts = (self._before_refresh(start + (16 << tries) * self.period) for tries in count())
        for caught_up in takewhile(lambda clock: clock + wait + self.period < until, starts):
            run_until(caught_up)
            if not self._owes_none():
                continue
            settled = self._before_refresh(caught_up + wait)
            run_until(settled)
            periods = (until - settled) // self.period
            if periods > 0 and self._owes_none():
                self.clocks += periods * self.period
                self.issued += periods * self._in_period
            return

    def _before_refresh(self, clock: int) -> int:
        """The first clock, from this one on, at which the first turn of the schedule is due."""
        return clock + (self._first_turn - clock) % self.period

    def _owes_none(self) -> bool:
        """Whether all due refreshes of whole periods have been issued."""
        periods, rest = divmod(int(self._channel.value[state.REFRESHES]), self._turns)
        due = self._in_period > 0
        return rest == 0 and bool((self._channel.issued[due] == periods * self._in_period[due]).all())
