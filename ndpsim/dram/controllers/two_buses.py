"""One command a clock on each of two command buses, as HBM has them.

The bus that the standard's commands name first, by their numbers, has its turn first. Each bus has the same
turn as the only one of `one_command`: the active requests, the head of the maintenance that waits, else the
queue, as far as their next command goes over this bus.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._jit import inlined
from ndpsim.dram import choosing
from ndpsim.dram import step as one
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.state import FAR
from ndpsim.spec.lower import BUS

__all__ = ["OfBus", "TwoBuses", "of"]


class TwoBuses(NamedTuple):
    """The parameters."""

    slots: int = 2

    @staticmethod
    def parts() -> str:
        """The module of the parts of kernels."""
        return __name__


class OfBus(NamedTuple):
    """The scheduler of a channel while it is a bus's turn."""

    scheduler: Any
    commands: NDArray[np.int64]  # of the channel's tables
    bus: int

    @staticmethod
    def parts() -> str:
        """The module of the parts of kernels."""
        return __name__


def of(options: Any) -> TwoBuses:
    """The parameters."""
    return TwoBuses()


@inlined
def step(rules, tables, policy, channel, sink, commands, clock):
    """See `dram.controller`."""
    issued, wake = False, FAR
    for bus in range(rules.slots):
        of_bus = one.scheduled_by(policy, OfBus(policy.scheduler, tables.commands, bus))
        of_turn = one.step(tables, of_bus, channel, sink, commands, None, credit_clock(sink), 0, clock)
        issued = issued or of_turn[0] >= 0
        wake = min(wake, of_turn[7])
    return issued, wake


# ---- See `choosing`


@inlined
def only_clocks_delay(scheduler):
    """So do buses, within a clock."""
    return False


@inlined
def takes(scheduler, command):
    """What goes over this bus."""
    return scheduler.commands[command, BUS] == scheduler.bus


@inlined
def look_over(scheduler, channel, queue):
    """As the scheduler does."""
    return choosing.look_over(scheduler.scheduler, channel, queue)


@inlined
def may_issue(scheduler, channel, queue, slot, command, overview):
    """What goes over this bus and the scheduler lets pass."""
    return takes(scheduler, command) and choosing.may_issue(
        scheduler.scheduler, channel, queue, slot, command, overview
    )


@inlined
def comes_before(scheduler, channel, queue, slot, other, overview):
    """As the scheduler says."""
    return choosing.comes_before(scheduler.scheduler, channel, queue, slot, other, overview)
