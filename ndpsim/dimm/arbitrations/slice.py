"""Host and NDP unit are first in turns of `clocks` clocks, beginning with the host."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined
from ndpsim.dimm.state import HOST, NDP


class Slice(NamedTuple):
    """The parameters."""

    clocks: int = 1000  # of a slot


ARBITRATION = Slice


@inlined
def usual_master(arbitration, records, rank, writes, clock):
    return NDP if (clock - 1) // arbitration.clocks % 2 else HOST


@inlined
def master_changes_at(arbitration, records, rank, clock):
    """The beginning of the next slot."""
    return ((clock - 1) // arbitration.clocks + 1) * arbitration.clocks + 1
