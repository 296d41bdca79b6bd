"""The NDP unit is first at every clock."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined
from ndpsim.dimm.state import NDP


class NdpFirst(NamedTuple):
    """There are no parameters."""


ARBITRATION = NdpFirst


@inlined
def usual_master(arbitration, records, rank, writes, clock):
    return NDP
