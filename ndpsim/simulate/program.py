"""What every expert program has, whatever unit it runs on: two regions, lanes, and a plain run beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ndpsim.dram import sink, state
from ndpsim.dram.engines import Controller, ScanController, compare_channels, make_controller
from ndpsim.errors import MismatchError
from ndpsim.simulate.lane import Lane
from ndpsim.spec import Tables

__all__ = [
    "DOWN",
    "FIRST_CLOCK",
    "GATE_UP",
    "MakeChannel",
    "compare_lanes",
    "fastest",
    "plain",
    "report_share",
]

GATE_UP, DOWN = 0, 1  #: The regions of an expert.
FIRST_CLOCK = 1  #: Of a program: the clock of the first DRAM command.

_LATENCY_PLACES = 1  # nobody asks how long single reads of a lane took, only for their sum

MakeChannel = Callable[[Tables, state.Policy], Controller]


def fastest(tables: Tables, policy: state.Policy) -> Controller:
    """The fastest controller for a lane."""
    return make_controller(tables, policy, with_sink=True, latency_places=_LATENCY_PLACES)


def plain(tables: Tables, policy: state.Policy) -> Controller:
    """The controller that looks at every request."""
    return ScanController(tables, policy, _LATENCY_PLACES)


def compare_lanes(lanes: Iterable[tuple[Lane, Lane]], unit: str) -> None:
    """Make sure that each lane agrees with its plain run in all that is counted; `unit` has their data.

    Raises:
        MismatchError: one does not.
    """
    for number, (one, other) in enumerate(lanes):
        different = compare_channels(one.channel, other.channel)
        if not np.array_equal(one.sink.value[sink.COMPARED], other.sink.value[sink.COMPARED]):
            different.append(f"what the {unit} did")
        if different:
            raise MismatchError(f"lane {number} differs from its plain run in {', '.join(different)}")


def report_share(total: int, progress: Callable[[float], None]) -> Callable[[int], None]:
    """A function that is told of bursts as they are read, and reports what share of `total` they are."""
    read = 0

    def report(bursts: int) -> None:
        nonlocal read
        read += bursts
        progress(read / total)

    progress(0.0)
    return report
