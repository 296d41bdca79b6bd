"""What a channel on the fast controller is, which never changes, and what its step has issued."""

from __future__ import annotations

from typing import Any, NamedTuple

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


#: `Shape.refresh_in_window` if the window (tFAW) does not count refreshes of banks.
NOT_IN_WINDOW = -1 << 20


class Shape(NamedTuple):
    """The properties of a channel that never change, except for its distances."""

    ranks: int
    bankgroups: int  # numbered as in `fields`
    banks_per_group: int
    group_shift: int  # bits of a bank's number in its group, as requests name it
    other_half: int  # 1: groups 2 n and 2 n + 1 are one, 0: each is one
    first_bank: int  # its number among all nodes, see `dram.state.Nodes`
    window: int  # its longest distance (tFAW)
    refresh_in_window: int  # clocks by which REFSB ends later than an ACT would, in the window (tFAW)
    read_latency: int
    burst: int
    refresh_interval: int
    refresh_cycles: int
    activate_to_refresh: int  # clocks from ACT to REFSB of the rank, see `dram.choosing.delays_refresh`
    refresh_after_third: int  # see `state._refresh_after_third`
    queues: Any  # `OneChunk` or `Chunks`
    rows: Any  # of the row policy
    groups_at_once: int  # of PRESB and REFSB
    pair: int  # from a bank that REFSB refreshes to the other one of the pair; 0: it takes no pair
    step: Any  # of the standard's controller
