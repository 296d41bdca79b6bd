"""One command a clock, as Ramulator's GenericDDR."""

from __future__ import annotations

from typing import Any, NamedTuple

from ndpsim.base.jit import inlined
from ndpsim.dram import step as one
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.spec import Tables


class OneCommand(NamedTuple):
    """The parameters."""

    slots: int = 1

    def on(self, tables: Tables) -> OneCommand | None:
        """The parameters on the fast controller, which supports no stacks with this class."""
        return None if tables.groups_per_stack else self


def of(options: Any, choices: frozenset[str]) -> OneCommand:
    """The parameters."""
    return OneCommand()


@inlined
def step(rules, channel, clock):
    issued = one.step(channel, None, credit_clock(channel.sink), 0, clock)
    return issued.queue >= 0, issued.next_ready
