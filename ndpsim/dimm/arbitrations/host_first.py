"""The host is first at every clock."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined
from ndpsim.dimm.state import HOST


class HostFirst(NamedTuple):
    """There are no parameters."""


ARBITRATION = HostFirst


@inlined
def usual_master(arbitration, records, rank, writes, clock):
    return HOST
