"""What a step of the fast controller has issued."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined


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
