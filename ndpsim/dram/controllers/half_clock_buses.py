"""A row bus and a column bus on a clock of which controllers count the halves, as in HBM3.

On a rising edge, an odd tick, each bus may have a command, the column bus first; active requests, the head of
the maintenance that waits, and the queue have their turns on each as in `one_command`. On a falling edge only
the row bus may have one, of those that may issue on any tick. If it comes just behind the row command of a
rising edge, it is for another rank or, where neither addresses a whole rank, for another bank.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._jit import inlined
from ndpsim.dram import choosing
from ndpsim.dram import step as one
from ndpsim.dram.maintenance import own_place
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.state import BANK, PRIORITY, RANK, Policy
from ndpsim.spec.lower import BUS, CYCLES, ON_ANY_TICK, SCOPE
from ndpsim.spec.standard import ACTIVATE, ONE_BANK, READ

__all__ = ["HalfClockBuses", "OfEdge", "of"]

# What is remembered: the last row command of a rising edge.
_CLOCK, _COMMAND, _RANK, _BANK = range(4)

_NONE = -1


class HalfClockBuses(NamedTuple):
    """The parameters."""

    slots: int = 2
    words: int = 4

    @staticmethod
    def parts() -> str:
        """The module of the parts of kernels."""
        return __name__


class OfEdge(NamedTuple):
    """The scheduler of a channel while it is a bus's turn on an edge."""

    scheduler: Any
    commands: NDArray[np.int64]  # of the channel's tables
    bus: int
    is_falling: int
    rank: int  # no command to this one, -1: to any,
    bank: int  # or to this one only, -1: to all of the rank
    keeps_maintenance: int  # from the maintenance that waits

    @staticmethod
    def parts() -> str:
        """The module of the parts of kernels."""
        return __name__


def of(options: Any) -> HalfClockBuses:
    """The parameters."""
    return HalfClockBuses()


@inlined
def step(rules, tables, policy, channel, sink, commands, clock):
    """See `dram.controller`."""
    row_bus = tables.commands[ACTIVATE, BUS]
    if clock % 2 == 0:
        issued, wake = turn(rules, tables, policy, channel, sink, commands, row_bus, True, clock)
        return issued, min(wake, clock + 1)  # what has to wait for the rising edge is not in `wake`
    column_bus = tables.commands[READ, BUS]
    issued, wake = turn(rules, tables, policy, channel, sink, commands, column_bus, False, clock)
    of_rows, wake_of_rows = turn(rules, tables, policy, channel, sink, commands, row_bus, False, clock)
    return issued or of_rows, min(wake, wake_of_rows)


@inlined
def turn(rules, tables, policy, channel, sink, commands, bus, is_falling, clock):
    """A bus's turn on an edge: whether it had a command, else when it may have one."""
    entry, value, own = channel.entry, channel.value, own_place(channel.value)
    rank, bank = _NONE, _NONE
    if is_falling and clock - value[own + _CLOCK] == tables.commands[value[own + _COMMAND], CYCLES]:
        rank = value[own + _RANK]
        if tables.commands[value[own + _COMMAND], SCOPE] == ONE_BANK:
            bank = value[own + _BANK]
    of_head = channel.size[PRIORITY] > 0 and is_kept(
        rank, bank, entry[PRIORITY, RANK, 0], entry[PRIORITY, BANK, 0]
    )
    of_edge = Policy(
        OfEdge(policy.scheduler, tables.commands, bus, int(is_falling), rank, bank, int(of_head)),
        policy.row_cap,
        policy.refresh,
        policy.read_slots,
        policy.write_slots,
        policy.write_mode_from,
        policy.write_mode_below,
        policy.rows,
        rules,
    )
    issued = one.step(tables, of_edge, channel, sink, commands, None, credit_clock(sink), 0, clock)
    if issued[0] >= 0 and not is_falling and tables.commands[issued[1], BUS] != tables.commands[READ, BUS]:
        value[own + _CLOCK], value[own + _COMMAND] = clock, issued[1]
        value[own + _RANK], value[own + _BANK] = issued[2], issued[4]
    return issued[0] >= 0, issued[7]


@inlined
def is_kept(rank, bank, of_rank, of_bank):
    """Whether what has to wait, a bank of a rank or all of it, is this bank."""
    return rank == of_rank and (bank == _NONE or bank == of_bank)


# ---- See `choosing`


@inlined
def only_clocks_delay(scheduler):
    """So do edges, and buses within a tick."""
    return False


@inlined
def goes(scheduler, command):
    """Whether a command goes over this bus on this edge."""
    if scheduler.commands[command, BUS] != scheduler.bus:
        return False
    return scheduler.is_falling == 0 or scheduler.commands[command, ON_ANY_TICK] == 1


@inlined
def takes(scheduler, command):
    """What goes now, and does not come too close behind a row command."""
    return goes(scheduler, command) and scheduler.keeps_maintenance == 0


@inlined
def look_over(scheduler, channel, queue):
    """As the scheduler does."""
    return choosing.look_over(scheduler.scheduler, channel, queue)


@inlined
def may_issue(scheduler, channel, queue, slot, command, overview):
    """What goes now, does not come too close behind a row command, and the scheduler lets pass."""
    rank, bank = channel.entry[queue, RANK, slot], channel.entry[queue, BANK, slot]
    if not goes(scheduler, command) or is_kept(scheduler.rank, scheduler.bank, rank, bank):
        return False
    return choosing.may_issue(scheduler.scheduler, channel, queue, slot, command, overview)


@inlined
def comes_before(scheduler, channel, queue, slot, other, overview):
    """As the scheduler says."""
    return choosing.comes_before(scheduler.scheduler, channel, queue, slot, other, overview)
