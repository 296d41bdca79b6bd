"""The next of many events: a tree whose leaves are ticks; each inner node is the earlier of its two children.

Node 1 is the earliest of all; nodes 2n and 2n + 1 are below node n; the leaves are the second half of the
array. Of equal ticks the leaf with the lowest number comes first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined
from ndpsim.dram.fast.words import assume_nonnegative

#: A tick after all events.
FAR = 1 << 62


def make_times(leaves: int) -> NDArray[np.int64]:
    """A tree with at least this number of leaves, all FAR."""
    return np.full(2 << max(leaves - 1, 0).bit_length(), FAR, dtype=np.int64)


@inlined
def set_time(times, leaf, tick):
    """The event of a leaf is at a tick."""
    node = assume_nonnegative(times.shape[0] // 2 + leaf)
    times[node] = tick
    while node > 1:
        tick = min(tick, times[node ^ 1])
        node = assume_nonnegative(node >> 1)
        if times[node] == tick:
            return
        times[node] = tick


@inlined
def first_leaf(times):
    """The leaf whose event is first."""
    node, half, tick = 1, times.shape[0] // 2, times[1]
    while node < half:
        node = assume_nonnegative(2 * node)
        node += times[node] != tick
    return node - half
