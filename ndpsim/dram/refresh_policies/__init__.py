"""Refresh policies, one module each: which refreshes fall due when.

A module's `turns(channel)` lists what falls due in one interval (tREFI) or more, and names a refresh by what
it takes: one bank, one bank of every group, or a rank. Which command does that is said by the standard.
Controllers know a policy by its turns alone, as integers behind their counters (`dram.state.put_schedule`).
No policy is compiled, and each may ask for any refresh that the standard has.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from ndpsim.plugins import option_names
from ndpsim.spec.standard import RANK_ORDERS

#: The policies by their number in `dram.state.Policy`.
NAMES = option_names("dram/refresh_policies", "all-bank")


class NoSuchRefreshError(LookupError):
    """A policy asks for a refresh that the standard does not have."""


class Refreshed(NamedTuple):
    """A channel that is refreshed."""

    ranks: int
    bankgroups: int  # of a rank
    banks_per_group: int
    commands: Mapping[
        int, tuple[int, int]
    ]  # by what they take: number of the command, clocks of its interval
    orders: Mapping[int, str] = MappingProxyType({})  # likewise: one of `RANK_ORDERS`, by default the first

    def interval(self, scope: int) -> int:
        """How often the refresh of a scope falls due, in clocks (tREFI, tREFIpb).

        Raises:
            NoSuchRefreshError: no command refreshes so much.
        """
        if scope not in self.commands:
            raise NoSuchRefreshError
        return self.commands[scope][1]

    def rank_order(self, scope: int) -> str:
        """The order that a due refresh of a scope in one rank imposes on the other ranks (`RANK_ORDERS`)."""
        return self.orders.get(scope, RANK_ORDERS[0])


class Turn(NamedTuple):
    """One refresh falls due, of one rank or of each."""

    clock: int  # at which it does, counted so that the interval ends at the clock `interval`
    scope: int  # `spec.standard.ONE_BANK`, `SAME_BANKS` or `WHOLE_RANK`
    rank: int = -1  # -1: every rank, one after the other
    bank: int = -1  # of SAME_BANKS the number in every group, of ONE_BANK that in the rank, group after group
    after: int = 0  # so many clocks later than `clock`, which stands for it in the interval


class Due(NamedTuple):
    """A turn as a controller takes it: of a command."""

    clock: int
    command: int
    rank: int
    bank: int


class Schedule(NamedTuple):
    """The turns of a policy on a channel, in their order; they come again each `period` clocks."""

    turns: tuple[Due, ...]
    period: int

    def due_before(self, clock: int) -> int:
        """How many refreshes fall due before a clock."""
        periods, rest = divmod(clock - 1, self.period)
        return periods * len(self.turns) + sum(turn.clock <= rest for turn in self.turns)

    def seen_from(self, clock: int) -> Schedule:
        """The schedule for a run whose clock 1 is at `clock`; earlier refreshes are done."""
        turns = (turn._replace(clock=(turn.clock - clock) % self.period + 1) for turn in self.turns)
        return Schedule(tuple(sorted(turns, key=lambda turn: turn.clock)), self.period)


def make_schedule(name: str, channel: Refreshed) -> Schedule:
    """The schedule of the policy of this name; its period is the least number of intervals for all turns.

    Raises:
        NoSuchRefreshError: the channel's standard does not have such a refresh.
    """
    policy: Any = import_module(f"{__name__}.{name.replace('-', '_')}")
    turns: list[Turn] = policy.turns(channel)
    if not turns:
        return Schedule((), 1)
    interval = channel.interval(turns[-1].scope)
    due = tuple(Due(t.clock + t.after, channel.commands[t.scope][0], t.rank, t.bank) for t in turns)
    return Schedule(due, -(-turns[-1].clock // interval) * interval)
