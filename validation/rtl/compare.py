"""A GEMV unit as hardware against the model of it, clock by clock, in the closed loop with the DRAM.

`compare` runs an expert twice on a machine: with the unit of `ndpsim.dimm.units.gemv`, and with the hardware.
It compares every DRAM command of every lane, the clock at which each burst leaves the FIFO, the clock at
which each row is summed, the clocks at which a FIFO is full, the idle time of each lane by reason, and the
phases. The sums themselves are compared with a product of integers in the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ndpsim.dimm.layout import ExpertWeights
from ndpsim.dram import sink, state
from ndpsim.simulate.alone import LanesAlone, plain
from ndpsim.simulate.lane import Lane
from ndpsim.simulate.machine import NdpMachine, PlacedOnDimms, every_lane
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.simulate.rtl.handshake import RunningUnit
from ndpsim.simulate.rtl.loop import LanesWithUnit

IDLE = {"refresh": state.IDLE_REFRESH, "fifo": state.IDLE_CREDIT, "rows": state.IDLE_ROW}


class ObservedLanes(LanesAlone):
    """Lanes with the model of the unit, which keep the time of each burst.

    Attributes:
        starts: by phase and lane, the tick at which each burst left the FIFO, in the order of arrival.
        known: by phase, the tick at which each row is summed.
    """

    def __init__(self, machine: NdpMachine, expert: PlacedOnDimms) -> None:
        super().__init__(machine, every_lane(machine, expert), True, FIRST_CLOCK, plain)
        self.starts: list[list[Any]] = []
        self.known: list[Any] = []
        ticks = machine.dram_ticks, machine.unit_ticks
        for lane in self.lanes:
            groups = sink.a_group_each(len(lane.source.place))
            lane.sink = sink.make_sink(machine.unit.fifo_bursts, lane.sink.servers, *ticks, groups)

    def _multiplied(self, region: int, tokens: int, placed: Any, lanes: Any, release: int) -> Any:
        self._read(region, tokens, placed, lanes, release)
        interleaving, machine = placed.interleaving, self.machine
        of_region = interleaving.regions[region]
        row_bursts = of_region.bursts // of_region.rows
        done, starts = np.zeros(of_region.rows, dtype=np.int64), []
        for number, lane in enumerate(self.lanes):
            first = sum(lane.stream.share.bursts[:region])
            finish = lane.sink.done[first : first + lane.stream.share.bursts[region]]
            row = (np.arange(len(finish)) * len(self.lanes) + number) // row_bursts
            np.maximum.at(done, row, finish)
            starts.append(np.sort(finish - int(lane.sink.value[sink.SERVICE])))
        self.starts.append(starts)
        self.known.append(machine.unit.summed(interleaving, region, tokens, done, machine.unit_ticks))
        return self.known[-1]


@dataclass(frozen=True, eq=False)
class Compared:
    """Both runs, and the differences in words; empty if there are none."""

    model: ObservedLanes
    hardware: LanesWithUnit
    differences: list[str]
    full_clocks: int
    clocks: int


def compare(
    machine: NdpMachine, weights: ExpertWeights, tokens: int, expert: PlacedOnDimms, unit: RunningUnit
) -> Compared:
    """Run an expert with the model and with the hardware, and compare."""
    tiles = machine.unit.tile(tokens, weights.hidden, expert.slice)
    model, loop = ObservedLanes(machine, expert), LanesWithUnit(machine, expert, True, FIRST_CLOCK, unit)
    queues = [lanes.run_queue([(tiles, 0)], lambda share: None) for lanes in (model, loop)]
    differences: list[str] = []
    for number, record in enumerate(loop.records):
        _compare_phase(differences, machine, number, record, model)
    full = [0, 0]
    for lane, pair in enumerate(zip(model.lanes, loop.lanes, strict=True)):
        _compare_lane(differences, lane, pair)
        clocks = [full_clocks(machine, runs, lane) for runs in (_of_model(model), _of_unit(loop))]
        full = [full[side] + len(clocks[side]) for side in (0, 1)]
        if not np.array_equal(*clocks):
            differences.append(f"lane {lane}: the FIFO is full at other clocks")
    if queues[0].of_phase != queues[1].of_phase:
        differences.append(f"phases: {queues[0].of_phase} in the model, {queues[1].of_phase} in hardware")
    return Compared(model, loop, differences, full[1], machine.clock_after(queues[1].end))


def _compare_phase(
    differences: list[str], machine: NdpMachine, number: int, record: Any, model: ObservedLanes
) -> None:
    for lane, starts in enumerate(model.starts[number]):
        what = f"phase {number}, lane {lane}, burst"
        _first_difference(differences, what, starts, record.starts_of(lane), machine)
    _first_difference(differences, f"phase {number}, row", model.known[number], record.known, machine)


def _first_difference(differences: list[str], what: str, ticks: Any, edges: Any, machine: NdpMachine) -> None:
    own = edges * machine.unit_ticks
    if np.array_equal(ticks, own):
        return
    if len(ticks) != len(own):
        differences.append(f"{what}: {len(ticks)} in the model, {len(own)} in hardware")
        return
    first = int(np.flatnonzero(ticks != own)[0])
    clock = ticks[first] / machine.unit_ticks
    differences.append(f"{what} {first}: clock {clock:g} in the model, {edges[first]} in hardware")


def _compare_lane(differences: list[str], number: int, pair: tuple[Lane, Lane]) -> None:
    traces = [lane.commands.entry[: lane.commands.length[0]] for lane in pair]
    if not np.array_equal(*traces):
        same = min(map(len, traces))
        rows = np.flatnonzero((traces[0][:same] != traces[1][:same]).any(axis=1))
        where = f"command {rows[0]}" if len(rows) else "the number of commands"
        differences.append(f"lane {number}: {where} differs")
    for reason, place in IDLE.items():
        clocks = [int(lane.channel.value[place]) for lane in pair]
        if clocks[0] != clocks[1]:
            differences.append(
                f"lane {number}: {clocks[0]} clocks idle for {reason}, {clocks[1]} in hardware"
            )


def _of_model(lanes: ObservedLanes) -> tuple[Any, list[Any]]:
    return lanes, [
        np.concatenate([starts[lane] for starts in lanes.starts]) for lane in range(len(lanes.lanes))
    ]


def _of_unit(lanes: LanesWithUnit) -> tuple[Any, list[Any]]:
    unit_ticks = lanes.machine.unit_ticks
    return lanes, [
        np.concatenate([record.starts_of(lane) for record in lanes.records]) * unit_ticks
        for lane in range(len(lanes.lanes))
    ]


def full_clocks(machine: NdpMachine, run: tuple[Any, list[Any]], lane: int) -> Any:
    """The clocks at which the FIFO of a lane has no place for a further read."""
    lanes, starts = run
    commands = lanes.lanes[lane].commands
    entry = commands.entry[: commands.length[0]]
    names = machine.device.standard.names
    reads = entry[np.isin(entry[:, 1], [names.index(name) for name in names if name in ("RD", "RDA")]), 0]
    freed = -(-starts[lane] // machine.dram_ticks)
    last = int(max(reads.max(), freed.max())) + 2
    # A read takes its place with its clock; from the clock at which the burst has left it is free again.
    held = np.cumsum(np.bincount(reads + 1, minlength=last) - np.bincount(freed, minlength=last))
    return np.flatnonzero(held >= machine.unit.fifo_bursts)
