"""Checks of command buses that several lanes of a DIMM share, in turn or in lock step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.audit.report import Violation
from ndpsim.dram.spec import Device
from ndpsim.dram.traces import CommandTrace

#: How the ranks of a sub-channel get their commands: each over its own bus, in turn over one bus, or all
#: ranks the same commands at once.
COMMAND_BUSES = ("private", "shared", "broadcast")

Ints = NDArray[np.int64]


class CommandBuses(NamedTuple):
    """The lanes of a trace that share a command bus.

    Lane ``n`` of a DIMM is rank ``n // subchannels`` behind sub-channel ``n % subchannels``; lanes are
    counted DIMM after DIMM.
    """

    kind: str = "private"  # one of `COMMAND_BUSES`
    ranks: int = 1  # of a DIMM
    subchannels: int = 1  # of a DIMM

    def lanes_by_bus(self, lanes: int) -> Iterator[range]:
        """The lanes of each sub-channel of each DIMM, of this many lanes."""
        of_dimm = self.ranks * self.subchannels
        for first in range(0, lanes, of_dimm):
            for subchannel in range(first, first + self.subchannels):
                yield range(subchannel, min(first + of_dimm, lanes), self.subchannels)


def _said(trace: CommandTrace, index: int) -> str:
    kind = int(trace.command[index])
    name = trace.names[kind] if 0 <= kind < len(trace.names) else f"command number {kind}"
    return f"{name} lane {trace.rank[index]}"


def _violation(trace: CommandTrace, index: int, rule: str, shortfall: int, detail: str) -> Violation:
    clock, command = int(trace.clock[index]), _said(trace, index)
    message = f"line {index + 2}: {command} at clock {clock}: {rule}: {detail}"
    return Violation(index, clock, rule, command, shortfall, message)


def _in_turn(trace: CommandTrace, device: Device, lanes: range, limit: int) -> tuple[int, list[Violation]]:
    """Commands of lanes with one bus that overlap on it."""
    places = np.flatnonzero(np.isin(trace.rank, lanes))
    places = places[np.argsort(trace.clock[places], kind="stable")]
    cycles = np.array([*(command.cycles for command in device.standard.by_number), 1])
    clock = trace.clock[places]
    held = cycles[trace.numbered(device.standard.names)[places]]
    short = (clock + held)[:-1] - clock[1:]
    found = np.flatnonzero(short > 0)
    violations = []
    for n in found[:limit].tolist():
        before, index = int(places[n]), int(places[n + 1])
        detail = (
            f"{short[n]} clocks too early, {_said(trace, before)} at clock {clock[n]} (line {before + 2}) "
            f"holds the bus of its sub-channel for {held[n]}"
        )
        violations.append(_violation(trace, index, "shared command bus", int(short[n]), detail))
    return len(found), violations


def _in_lock_step(
    trace: CommandTrace, device: Device, lanes: range, limit: int
) -> tuple[int, list[Violation]]:
    """Commands of lanes that differ from those of the first lane on their bus."""
    columns = trace.columns()[[0, 1, 3, 4, 5, 6]]  # all but the rank, which is the lane
    first = np.flatnonzero(trace.rank == lanes[0])
    count, violations = 0, []
    for lane in lanes[1:]:
        own = np.flatnonzero(trace.rank == lane)
        both = min(len(first), len(own))
        differ = np.flatnonzero((columns[:, first[:both]] != columns[:, own[:both]]).any(axis=0)).tolist()
        longer = own if len(own) > both else first
        count += len(differ) + len(longer) - both
        for n in differ[:limit]:
            there = f"{_said(trace, int(first[n]))} at clock {trace.clock[first[n]]} (line {first[n] + 2})"
            detail = f"not what the ranks of the sub-channel obey together, {there}"
            violations.append(_violation(trace, int(own[n]), "broadcast command bus", 0, detail))
        for index in longer[both:][:limit].tolist():
            detail = f"lanes {lanes[0]} and {lane} have not equally many commands"
            violations.append(_violation(trace, index, "broadcast command bus", 0, detail))
    return count, violations


_FIND = {"shared": _in_turn, "broadcast": _in_lock_step}


def bus_violations(
    trace: CommandTrace, device: Device, lanes: int, buses: CommandBuses, limit: int
) -> tuple[int, list[Violation]]:
    """Violations of the buses that lanes share; lanes are counted in the trace's rank column.

    Returns how many commands break a rule, and the first of them on each bus, `limit` at most.
    """
    if buses.kind not in _FIND:
        return 0, []
    count, violations = 0, list[Violation]()
    for of_bus in buses.lanes_by_bus(lanes):
        found, first = _FIND[buses.kind](trace, device, of_bus, limit)
        count += found
        violations += first
    return count, violations
