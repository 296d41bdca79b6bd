"""Refresh policies, each a module of its name here: which refreshes fall due when.

A module's `turns(ranks, banks_per_group, interval)` lists what falls due in one interval (tREFI) or more.
Controllers know a policy by its turns alone, as integers behind their counters (`dram.state.put_schedule`):
no policy is compiled, and a policy may ask for any refresh that the standard has.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from ndpsim.plugins import option_names

__all__ = ["NAMES", "Schedule", "Turn", "make_schedule"]

#: The policies by their number in `dram.state.Policy`.
NAMES = option_names("dram/refresh_policies", "all-bank")


class Turn(NamedTuple):
    """One refresh falls due, of one rank or of each."""

    clock: int  # at which it does, counted so that the interval ends at the clock `interval`
    command: int  # its number in `spec.COMMANDS`
    rank: int = -1  # -1: every rank, one after the other
    bank: int = -1  # the number in every bank group of the banks that it refreshes; -1: all banks of the rank


class Schedule(NamedTuple):
    """The turns of a policy on a channel, in their order; they come again each `period` clocks."""

    turns: tuple[Turn, ...]
    period: int

    def due_before(self, clock: int) -> int:
        """How many refreshes fall due before a clock."""
        periods, rest = divmod(clock - 1, self.period)
        return periods * len(self.turns) + sum(turn.clock <= rest for turn in self.turns)

    def seen_from(self, clock: int) -> Schedule:
        """The same to who counts clocks from 1 at `clock`: what falls due before is done."""
        turns = (turn._replace(clock=(turn.clock - clock) % self.period + 1) for turn in self.turns)
        return Schedule(tuple(sorted(turns, key=lambda turn: turn.clock)), self.period)


def make_schedule(name: str, ranks: int, banks_per_group: int, interval: int) -> Schedule:
    """The schedule of the policy of this name; its period is the least number of intervals for all turns."""
    policy: Any = import_module(f"{__name__}.{name.replace('-', '_')}")
    turns = tuple(policy.turns(ranks, banks_per_group, interval))
    last = turns[-1].clock if turns else interval
    return Schedule(turns, -(-last // interval) * interval)
