"""One command a clock, as Ramulator's GenericDDR."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim._jit import inlined
from ndpsim.dram.choosing import choose
from ndpsim.dram.issuing import issue
from ndpsim.dram.sink import credit_clock

__all__ = ["OneCommand", "of"]


class OneCommand(NamedTuple):
    """The parameters."""

    slots: int = 1

    @staticmethod
    def parts() -> str:
        """The module of the parts of kernels."""
        return __name__


def of() -> OneCommand:
    """The parameters."""
    return OneCommand()


@inlined
def step(rules, tables, policy, channel, sink, commands, clock):
    """See `dram.controller`."""
    queue, slot, command, wake = choose(tables, policy, channel, credit_clock(sink), clock)
    if slot >= 0:
        issue(tables, policy, channel, sink, commands, queue, slot, command, clock)
    return slot >= 0, wake
