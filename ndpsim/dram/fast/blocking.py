"""Rules that delay the commands of a controller on ranks that it shares with other masters.

The first master on a rank keeps the second from the banks that it waits for, and from data in the other
direction than its own next data there. A taken command bus delays all others. If a controller does not share
its ranks, `blocking` is None, and all of this is compiled away.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined
from ndpsim.dram.fast.fields import BANKS_PER_RANK, WRITES
from ndpsim.dram.state import BUS_TAKEN, HOST_WAITS, REFRESH_PENDING, WRITE_MODE


class Blocking(NamedTuple):
    """The other masters of the ranks of a controller."""

    states: NDArray[np.void]  # [controller]
    number: int  # in `states`, of the other master of rank 0,
    stride: int  # and the distance to the other master of the next rank
    offset: int  # difference of a bank's numbers in its rank and in the other master's channel
    second: NDArray[np.int64]  # [rank]: 1 if the other master is first
    # [rank]: its next column command, 1: it reads, 2: it writes, 0: there is none; BUS_TAKEN and the like
    direction: NDArray[np.int64]


@inlined
def is_bus_taken(blocking, rank):
    """Whether another master occupies the command bus of a rank."""
    if blocking is None:
        return False
    return blocking.direction[rank] & BUS_TAKEN != 0


@inlined
def is_wanted(first, direction, bank):
    """Whether the first master waits for a bank, or to refresh it while only its own requests wait."""
    rank, bit = bank // BANKS_PER_RANK, 1 << bank % BANKS_PER_RANK
    if (first.pinned_banks[rank] & ~first.pinned_by_other[rank] | first.awaits_refresh[rank]) & bit != 0:
        return True
    return direction & REFRESH_PENDING == 0 and first.of_bank[0, first.value[WRITE_MODE] & 1, bank] != 0


@inlined
def is_blocked(blocking, queue, is_active, bank):
    """Whether a request has to wait for another master of its rank, or for a command bus."""
    if blocking is None:
        return False
    rank = bank // BANKS_PER_RANK
    direction = blocking.direction[rank]
    if direction & BUS_TAKEN or (not is_active and direction & HOST_WAITS):
        return True
    if not blocking.second[rank]:
        return False
    turns = direction & (1 if queue == WRITES else 2) != 0
    first = blocking.states[blocking.number + rank * blocking.stride]
    wanted = is_wanted(first, direction, bank % BANKS_PER_RANK + blocking.offset)
    if is_active:
        return turns and not wanted
    return turns or wanted
