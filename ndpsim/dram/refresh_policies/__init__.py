"""Refresh policies, one module each: the times at which refreshes are due.

A module's `turns(channel)` lists the refreshes that are due in one interval (tREFI) or more. A refresh has a
scope: one bank, one bank of every group, or a rank. The standard has the command for each scope. Controllers
read the turns as integers after their counters (`dram.state.put_schedule`). Policies are not compiled, and
may use any refresh of the standard. With `ELASTIC = True` in its module, the turns of a policy, which are of
all ranks, may be postponed and pulled in as the standard allows (`dram.elastic`). With `ANY_ORDER = True`,
where all turns are of one kind of bank refresh, a controller may exchange the banks of turns of a rank within
a round (`dram.maintenance.choose_bank`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from ndpsim.base.plugins import option_names
from ndpsim.dram.spec.standard import PAUSES_FROM, RANK_ORDERS

#: The policies by their number in `dram.state.Policy`.
NAMES = option_names("dram/refresh_policies", "all-bank")


def is_elastic(name: str) -> bool:
    """Whether the policy of this name postpones refreshes and pulls them in (`dram.elastic`)."""
    return getattr(_module(name), "ELASTIC", False)


def takes_any_order(name: str) -> bool:
    """Whether the banks of a round may be refreshed in any order."""
    return getattr(_module(name), "ANY_ORDER", False)


def _module(name: str) -> Any:
    return import_module(f"{__name__}.{name.replace('-', '_')}")


class NoSuchRefreshError(LookupError):
    """A policy needs a refresh that the standard does not have."""


class Round(NamedTuple):
    """Refreshes of single banks of a rank between two pauses."""

    banks: int = 0  # 0: there are no pauses
    pause: int = 0  # clocks
    counts_from: str = PAUSES_FROM[0]


class Refreshed(NamedTuple):
    """The channel of a refresh policy."""

    ranks: int
    bankgroups: int  # of a rank
    banks_per_group: int
    commands: Mapping[int, tuple[int, int]]  # by scope: number of the command, clocks of its interval
    orders: Mapping[int, str] = MappingProxyType({})  # by scope: one of `RANK_ORDERS`, by default the first
    rounds: Mapping[int, Round] = MappingProxyType({})  # by scope: by default none

    def interval(self, scope: int) -> int:
        """The interval of the refresh of a scope in clocks (tREFI, tREFIpb).

        Raises:
            NoSuchRefreshError: no command has this scope.
        """
        if scope not in self.commands:
            raise NoSuchRefreshError
        return self.commands[scope][1]

    def rank_order(self, scope: int) -> str:
        """The order that a due refresh of a scope in one rank imposes on the other ranks (`RANK_ORDERS`)."""
        return self.orders.get(scope, RANK_ORDERS[0])

    def round(self, scope: int) -> Round:
        """The round after which the refreshes of a scope pause."""
        return self.rounds.get(scope, Round())


class Turn(NamedTuple):
    """A refresh that is due, of one rank or of each rank."""

    clock: int  # the clock at which it is due; the interval ends at the clock `interval`
    scope: int  # `spec.standard.ONE_BANK`, `SAME_BANKS`, `WHOLE_RANK` or `BANK_PAIR`
    rank: int = -1  # -1: every rank, one after the other
    bank: int = (
        -1
    )  # SAME_BANKS: the number in every group; otherwise the number in the rank, of a pair the first
    after: int = 0  # clocks by which it is later than `clock`
    ends_round: bool = False  # whether the pause of its scope follows


class Due(NamedTuple):
    """A turn for a controller, with the number of its command."""

    clock: int
    command: int
    rank: int
    bank: int
    pause: int = 0  # clocks after the issue of this one, and of all before it, before the next is due


class Schedule(NamedTuple):
    """The turns of a policy on a channel, in order; they repeat every `period` clocks."""

    turns: tuple[Due, ...]
    period: int

    def due_before(self, clock: int) -> int:
        """The number of refreshes that are due before a clock."""
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
    turns: list[Turn] = _module(name).turns(channel)
    if not turns:
        return Schedule((), 1)
    interval = channel.interval(turns[-1].scope)
    due = tuple(_due(channel, turn) for turn in turns)
    return Schedule(due, max(-(-turns[-1].clock // interval) * interval, _least_period(channel, turns)))


def _due(channel: Refreshed, turn: Turn) -> Due:
    """A turn for a controller."""
    its_round = channel.round(turn.scope)
    pause = its_round.pause if turn.ends_round and its_round.counts_from == PAUSES_FROM[0] else 0
    return Due(turn.clock + turn.after, channel.commands[turn.scope][0], turn.rank, turn.bank, pause)


def _least_period(channel: Refreshed, turns: list[Turn]) -> int:
    """The period in which the pauses fit that count from the clock at which a refresh is due.

    Such a pause only concerns the banks of its round, which begins once in a period.
    """
    its_round = channel.round(turns[-1].scope)
    last = next((turn for turn in turns if turn.ends_round), None)
    if its_round.counts_from == PAUSES_FROM[0] or last is None:
        return 0
    return last.clock + last.after - turns[0].clock + its_round.pause
