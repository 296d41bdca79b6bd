"""Functions that both arbiters call: those of the chosen arbitration.

A kernel serves all arbitrations. Their modules override the functions here by the same names; the first
argument of their own is the named tuple of their parameters. The records of an arbitration on a bus are
int64[rank, `RECORDS`], initially 0; the last row is for all ranks together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ndpsim.base.jit import inlined
from ndpsim.dimm.arbitrations import arbitrations
from ndpsim.dimm.state import HOST
from ndpsim.dram.state import FAR

#: Number of integers that an arbitration may record for each rank.
RECORDS = 4


def dispatched(point: Callable[..., Any]) -> Any:
    """The function of the chosen arbitration, or this one if its module has none."""
    call = inlined(point)
    for number, module in enumerate(arbitrations().values()):
        if own := getattr(module, point.__name__, None):
            call = _chosen(number, own, call)
    return call


def _chosen(number: int, own: Any, otherwise: Any) -> Any:
    """The function of the arbitration in a place where that is chosen, else another."""

    @inlined
    def call(arbitration, *others):
        if arbitration.chosen == number:
            return own(arbitration.parameters[number], *others)
        return otherwise(arbitration, *others)

    return call


@dispatched
def usual_master(arbitration, records, rank, writes, clock):
    """The master that is first on a rank at a clock if no request has waited for too long: HOST or NDP.

    writes: whether the host's controller serves writes now, and not reads.
    """
    return HOST


@dispatched
def master_changes_at(arbitration, records, rank, clock):
    """The next clock at which another master may be first without a command or request before it."""
    return FAR


@dispatched
def host_waits(arbitration):
    """Whether the host waits whenever the unit is first and has requests, even if it does not delay the unit.

    Requests of the host whose rows are activated do not wait.
    """
    return False


@dispatched
def record_request(arbitration, records, rank, reads, clock):
    """The host's controller has queued a request for a rank; returns whether masters may change now."""
    return False


@dispatched
def record_data(arbitration, records, rank, reads, clock):
    """The host's controller has issued a column command to a rank; the returned value has no meaning."""
    return False
