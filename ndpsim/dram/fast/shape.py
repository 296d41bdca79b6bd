"""The properties of a channel on the fast controller that never change."""

from __future__ import annotations

from typing import Any, NamedTuple

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
