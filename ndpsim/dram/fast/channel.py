"""A channel on the fast controller, with all that a step works with, and what a step returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined
from ndpsim.dram.fast.shape import Shape
from ndpsim.dram.sink import Sink
from ndpsim.dram.state import Commands, Policy, Source


class Channel(NamedTuple):
    """A channel and its controller."""

    policy: Policy
    shape: Shape
    state: Any  # its record, see `fields`
    latencies: NDArray[np.int64]  # [clocks]: reads by latency
    source: Source
    sink: Sink
    commands: Commands


class Issued(NamedTuple):
    """What a step has issued. Without a command, all before `next_ready` but the origin is -1."""

    origin: int  # of the command: NOWHERE: there was none
    command: int  # its class
    bank: int  # or the first of its banks
    row: int  # of a command for a request
    request: int  # likewise, its number
    next_ready: int  # without a command: the clock before which there is none
    blocked: int  # mask of the ranks on which a command is blocked


# Origins of a command.
NOWHERE, FROM_ACTIVE, FROM_MAINTENANCE, FROM_QUEUE = range(4)


@inlined
def issued(origin, command, bank, row, request, next_ready, blocked):
    """All fields as numbers of one type, so that each return of a step has the same type."""
    return Issued(origin, command, bank, row, request, next_ready, blocked)


@inlined
def nothing(next_ready, blocked):
    """A step without a command."""
    return issued(NOWHERE, -1, -1, -1, -1, next_ready, blocked)
