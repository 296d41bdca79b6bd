"""Host and NDP unit are first by turns, for so many clocks each, beginning with the host."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim._jit import inlined
from ndpsim.dimm.state import HOST, NDP

__all__ = ["ARBITRATION"]


class Slice(NamedTuple):
    """The parameters."""

    clocks: int = 1000  # of a turn

    @staticmethod
    def parts() -> str:
        """The module of the parts of kernels."""
        return __name__


ARBITRATION = Slice


@inlined
def usual_owner(arbitration, notes, rank, writes, clock):
    """See `dimm.turns`."""
    return NDP if (clock - 1) // arbitration.clocks % 2 else HOST


@inlined
def owner_changes_at(arbitration, notes, rank, clock):
    """See `dimm.turns`."""
    return ((clock - 1) // arbitration.clocks + 1) * arbitration.clocks + 1
