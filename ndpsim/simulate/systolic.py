"""One expert on a memory device with systolic arrays: over the link, through the arrays and back.

The expert program of `simulate.expert`, with these differences. Activations and results cross the CXL link
in packets: a tile's activations as one message, its results each as soon as it and those that share its
packet are known. The weights lie in tiles on all channels of the device (`layout.tiles`), and each channel
feeds its own arrays (`ndp.systolic`). A tile's cycles are those of a run of the array, spread evenly over its
bursts and rounded up to 1/64 of a cycle; an array that waits for a burst is late by what it waited.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware
from ndpsim.dram import sink, state
from ndpsim.energy import UnitEnergy, transfer_nj
from ndpsim.errors import InputError, MismatchError
from ndpsim.kept import kept_by_identity
from ndpsim.layout import ExpertFormat, ExpertWeights, Region, Tiles
from ndpsim.link import Pipe
from ndpsim.ndp import ActivationUnit, Tiling
from ndpsim.ndp.systolic import SystolicUnit
from ndpsim.simulate.arrays import check_device_layout, place_tiles, systolic_unit
from ndpsim.simulate.lane import (
    Lane,
    LaneStream,
    check_refresh,
    command_room,
    decode_commands,
    ensure_recordable,
    ensure_streams_fit,
    name_commands,
    no_commands,
    run_channel,
)
from ndpsim.simulate.memory import controller_options
from ndpsim.simulate.power import DramPower, Energy, dram_power, unit_energy
from ndpsim.simulate.program import (
    DOWN,
    FIRST_CLOCK,
    GATE_UP,
    Job,
    MakeChannel,
    Multiply,
    ReadResults,
    Spans,
    WriteActivations,
    compare_lanes,
    expert_program,
    fastest,
    plain,
    report_share,
    run_in_step,
)
from ndpsim.simulate.result import ExpertResult, Phase
from ndpsim.simulate.stopwatch import Stopwatch
from ndpsim.simulate.weights import describe_weights
from ndpsim.spec import Device, Tables, lower
from ndpsim.units import Timebase, common_ticks, frequency_period_ps

__all__ = ["simulate_on_arrays"]

Ints = NDArray[np.int64]
Progress = Callable[[float], None]

_KEPT = 16  # hardware and placed experts that are kept for the next call
_PARTS = 64  # of a cycle of the arrays: the grain of a burst's time in them
_CHUNK = 1 << 17  # requests between two reports of progress


@dataclass(frozen=True, eq=False)
class _Machine:
    """A device, lowered: what the program of an expert runs on."""

    device: Device
    tables: Tables
    policy: state.Policy
    timebase: Timebase
    unit: SystolicUnit
    activation: ActivationUnit
    link: Pipe
    lanes: int
    outputs: int
    clock_mhz: float
    dram_power: DramPower
    unit_energy: UnitEnergy
    link_pj_per_bit: float | None
    described: Mapping[str, Any]  # for the result: the hardware as plain data

    @property
    def dram_ticks(self) -> int:
        return self.timebase.ticks[0]

    @property
    def part_ticks(self) -> int:
        return self.timebase.ticks[1]

    @property
    def cycle_ticks(self) -> int:
        return self.timebase.ticks[1] * _PARTS

    def to_ps(self, ticks: Ints) -> Ints:
        """Picoseconds, rounded up."""
        tick = self.timebase.tick_ps
        return -(-ticks * tick.numerator // tick.denominator)

    def to_ticks(self, ps: Ints) -> Ints:
        """Ticks, rounded up."""
        tick = self.timebase.tick_ps
        return -(-ps * tick.denominator // tick.numerator)


@kept_by_identity(_KEPT)
def _lower(hardware: Hardware) -> _Machine:
    ndp, system = hardware.ndp, hardware.system
    arrays, activation, link = ndp.systolic, ndp.activation, system.cxl
    assert arrays is not None, "chosen by the caller"
    assert link is not None, "checked when the file was read"
    if system.dimm.ranks > 1:
        raise InputError("not supported: channels of a device with more than one rank", key="dimm.ranks")
    device = hardware.lane_device()
    check_refresh(device, system.dram.refresh)
    unit = systolic_unit(arrays)
    return _Machine(
        device=device,
        tables=lower(device),
        policy=state.make_policy(controller_options(system.dram)),
        timebase=common_ticks(
            device.clock_ps,
            frequency_period_ps(arrays.clock_mhz) / _PARTS,
            frequency_period_ps(activation.clock_mhz),
        ),
        unit=unit,
        activation=ActivationUnit(activation.units, activation.cycles_per_value, activation.latency_cycles),
        link=Pipe(link.gbps, link.latency_ns, link.packet_bytes, link.header_bytes),
        lanes=hardware.lanes,
        outputs=unit.outputs(hardware.lanes),
        clock_mhz=arrays.clock_mhz,
        dram_power=dram_power(device, hardware.power_changes),
        unit_energy=unit_energy(hardware),
        link_pj_per_bit=link.pj_per_bit,
        described=hardware.to_dict(),
    )


@dataclass(frozen=True, eq=False)
class _Placed:
    """An expert's weights on the lanes of a device."""

    tiles: Tiles
    weights: ExpertWeights
    streams: tuple[LaneStream, ...]  # of lanes that run alike


@functools.lru_cache(maxsize=_KEPT)
def _place(machine: _Machine, weights: ExpertWeights) -> _Placed:
    tiles = place_tiles(machine.unit, machine.device, machine.lanes, weights)
    alike = tiles.alike()
    ensure_streams_fit([tiles.share(lanes[0]).total for lanes in alike], sum(map(len, tiles.bursts)))
    return _Placed(tiles, weights, tuple(_stream(machine.tables, tiles, lanes) for lanes in alike))


def _stream(tables: Tables, tiles: Tiles, lanes: range) -> LaneStream:
    place, bankgroup, bank, row, column = tiles.coordinates(lanes[0])
    reads = np.zeros_like(place)
    source = state.make_source(
        tables, reads, bankgroup, bank, row, column, reads, place, period=tables.bankgroups
    )
    first, last = tiles.tile_of_bursts(lanes[0]), tiles.tile_of_bursts(lanes[-1])
    every = np.arange(sum(map(len, tiles.bursts)))
    rows = (first, last, np.searchsorted(first, every, "right") - 1)
    return LaneStream(
        lanes, tiles.share(lanes[0]), source, sink.Rows(*(each.astype(np.int32) for each in rows))
    )


class _Run(NamedTuple):
    """Bursts that hold the arrays equally long."""

    bursts: int
    ticks: int  # for which each holds them
    gap_ticks: int  # that pass behind the last of them before the arrays take the next


class _TileWork(NamedTuple):
    """What a tile of weights costs its arrays."""

    service_ticks: int  # of each of its bursts
    gap_ticks: int
    latency_ticks: int  # from the end of its last burst to its last sum


def _tile_work(machine: _Machine, region: Region, rows: range, bursts: int, tokens: int) -> _TileWork:
    """What the tile of some rows of a region costs."""
    turns = {region.formats[row % len(region.formats)] for row in rows[: len(region.formats)]}
    steps = max(machine.unit.steps(region.columns, of_row.row_bits(region.columns)) for of_row in turns)
    timing = machine.unit.timing(tokens, steps)
    service = -(-timing.cycles * _PARTS // bursts) * machine.part_ticks
    return _TileWork(service, timing.gap * machine.cycle_ticks, timing.latency * machine.cycle_ticks)


@functools.lru_cache(maxsize=8 * _KEPT)
def _work_of(machine: _Machine, tiles: Tiles, region: int, tokens: int) -> list[_TileWork]:
    """What each tile of a region costs."""
    of_region, bursts = tiles.regions[region], tiles.bursts[region].tolist()
    known: dict[tuple[int, int, int], _TileWork] = {}
    works = []
    for tile, count in enumerate(bursts):
        rows = range(of_region.rows)[tile * tiles.rows : (tile + 1) * tiles.rows]
        key = rows[0] % len(of_region.formats), len(rows), count
        if key not in known:
            known[key] = _tile_work(machine, of_region, rows, count, tokens)
        works.append(known[key])
    return works


@functools.lru_cache(maxsize=32 * _KEPT)
def _runs(machine: _Machine, tiles: Tiles, region: int, tokens: int, lane: int) -> list[_Run]:
    """What a lane's arrays do with its tiles of a region, as few runs as there can be."""
    works, runs = _work_of(machine, tiles, region, tokens), list[_Run]()
    for tile in tiles.lane_tiles(lane, region):
        bursts, work = int(tiles.bursts[region][tile]), works[tile]
        if runs and runs[-1][1:] == (work.service_ticks, 0) == work[:2]:
            runs[-1] = runs[-1]._replace(bursts=runs[-1].bursts + bursts)
        else:
            runs.append(_Run(bursts, work.service_ticks, work.gap_ticks))
    return runs


class _ArrayLane(Lane):
    """The lanes of a stream under way, each before its arrays. `gap_ticks`: passed between tiles so far."""

    gap_ticks = 0

    def read_runs(
        self, region: int, runs: Sequence[_Run], release: int, report: Callable[[int], None]
    ) -> None:
        """Read the next region: `sink.done` tells when the bursts of each tile have passed, in ticks.

        Args:
            region: which, counted from 0; regions are read in turn, again and again.
            runs: what the arrays do with them.
            release: the tick before which the arrays may not start on it.
            report: called with the number of bursts read, now and then.
        """
        served = int(self.channel.value[state.SERVED])
        self.source.admitted[0] = served + self.stream.share.bursts[region]
        for run in runs:
            self.sink.value[sink.RELEASE], self.sink.value[sink.SERVICE] = release, run.ticks
            end = served + run.bursts
            for until in (*range(served + _CHUNK, end, _CHUNK), end):
                self.commands = run_channel(self.channel, self.source, self.sink, self.commands, until)
                report(until - served)
                served = until
            release = int(self.sink.value[sink.FINISHED]) + run.gap_ticks
            self.gap_ticks += run.gap_ticks


class _Program:
    """The expert program under way; times are ticks."""

    def __init__(
        self,
        machine: _Machine,
        placed: _Placed,
        streams: Sequence[LaneStream],
        recording: bool,
        make_channel: MakeChannel,
    ) -> None:
        self.machine, self.tiles, self.weights = machine, placed.tiles, placed.weights
        self.lanes = [
            _ArrayLane(
                stream,
                make_channel(machine.tables, machine.policy),
                sink.make_sink(
                    machine.unit.fifo_bursts, 1, machine.dram_ticks, machine.cycle_ticks, stream.rows
                ),
                command_room() if recording else no_commands(),
            )
            for stream in streams
        ]
        self.of_lane = [lane for lane in self.lanes for _ in lane.stream.lanes]
        self.spans = Spans()
        self.io_ps = Fraction(0)
        self.moved_bytes = 0

    def send(self, ready: Ints, size_bytes: Ints) -> int:
        """Send messages over the link, one way; returns when the last has arrived."""
        arrived = self.machine.link.arrivals(self.machine.to_ps(ready), size_bytes)
        self.io_ps += self.machine.link.busy_ps(size_bytes)
        self.moved_bytes += int(size_bytes.sum())
        return int(self.machine.to_ticks(arrived)[-1])

    def write_activations(self, steps: Sequence[WriteActivations]) -> list[int]:
        """The host sends the activations of a tile; returns when the last has arrived."""
        (step,) = steps
        size = step.tokens * self.tiles.regions[GATE_UP].columns * self.machine.unit.activation_bytes
        return [self.send(np.array([step.start]), np.array([size]))]

    def multiply(self, steps: Sequence[Multiply]) -> list[Ints]:
        """Read a region and multiply; returns when the sums of each of its rows are known."""
        (step,) = steps
        region, tokens = step.region, step.tokens
        works = _work_of(self.machine, self.tiles, region, tokens)
        for lane in self.lanes:
            runs = _runs(self.machine, self.tiles, region, tokens, lane.stream.lanes[0])
            lane.read_runs(region, runs, step.release, self.report)
        first = sum(len(before) for before in self.tiles.bursts[:region])
        done = np.max([lane.sink.done[first : first + len(works)] for lane in self.lanes], axis=0)
        known = np.maximum.accumulate(done + np.array([work.latency_ticks for work in works]))
        return [np.repeat(known, self.tiles.rows)[: self.tiles.regions[region].rows]]

    @property
    def rows_per_message(self) -> int:
        """Results of a token in a packet."""
        return max(1, self.machine.link.packet_bytes // self.machine.unit.activation_bytes)

    def read_results(self, steps: Sequence[ReadResults]) -> list[int]:
        """Results leave in packets, each when its last row is known; returns when the host has the last."""
        (step,) = steps
        in_packet, value_bytes = self.rows_per_message, self.machine.unit.activation_bytes
        left = self.tiles.regions[DOWN].rows - in_packet * np.arange(len(step.known))
        sizes = np.minimum(left, in_packet) * value_bytes
        return [self.send(np.repeat(step.known, step.tokens), np.repeat(sizes, step.tokens))]

    def run(self, tiling: Tiling, progress: Progress) -> int:
        """All token tiles; returns when the host has the last result."""
        total = len(tiling.tokens) * sum(lane.stream.share.total for lane in self.lanes)
        self.report = report_share(total, progress)
        machine = self.machine
        activated = functools.partial(machine.activation.done, cycle_ticks=machine.timebase.ticks[2])
        start = FIRST_CLOCK * machine.dram_ticks
        program = expert_program([Job(tiling.tokens)], self.rows_per_message, activated, self.spans, start)
        end = run_in_step([program], self)
        for lane in self.lanes:
            lane.refresh_until(-(-end // machine.dram_ticks))
        return end

    def phases(self) -> tuple[Phase, ...]:
        """In order of start."""
        origin, to_ns = FIRST_CLOCK * self.machine.dram_ticks, self.machine.timebase.to_ns
        return self.spans.phases(lambda tick: to_ns(tick - origin))

    def mean_over_lanes(self, place: int) -> float:
        """A counter of the lanes' channels, averaged over the lanes."""
        return sum(lane.count(place) for lane in self.of_lane) / self.machine.lanes


def _compare(fast: _Program, fast_end: int, plain: _Program, plain_end: int) -> None:
    """Make sure that two runs of a program agree in all that is counted."""
    if (fast_end, fast.spans) != (plain_end, plain.spans):
        raise MismatchError(f"the plain run ends at tick {plain_end}, not {fast_end}, or in other phases")
    compare_lanes(zip(fast.of_lane, plain.of_lane, strict=True), "arrays")


def _check(program: _Program, placed: _Placed, tiling: Tiling, end: int) -> None:
    """Run everything once more the plain way, and compare."""
    machine, tiles = program.machine, placed.tiles
    for tokens in set(tiling.tokens):
        for region in tiles.regions:
            steps = machine.unit.steps(region.columns, region.formats[0].row_bits(region.columns))
            if not machine.unit.agrees_with_twin(tokens, steps):
                raise MismatchError("an array differs from its plain twin")
    every = [_stream(machine.tables, tiles, range(lane, lane + 1)) for lane in range(machine.lanes)]
    plainly = _Program(machine, placed, every, False, plain)
    _compare(program, end, plainly, plainly.run(tiling, lambda share: None))


def simulate_on_arrays(
    hardware: Hardware,
    weights: ExpertWeights,
    model: str | None,
    tokens: int,
    layout: str,
    record_commands: bool = False,
    exact_check: bool = False,
    progress: Progress = lambda share: None,
) -> ExpertResult:
    """`simulate_expert` on hardware with systolic arrays; see there.

    Args:
        hardware: it has `ndp.systolic`.
        weights: what to simulate; `model`: the name of what it is from, for the result.
        tokens: that go through it.
        layout: "localized": on the device, over all its channels.
        record_commands, exact_check, progress: as `simulate_expert` has them.

    Raises:
        InputError: the hardware or the layout makes no sense, or the expert does not fit.
        MismatchError: the exact check found a difference.
    """
    stopwatch = Stopwatch()
    check_device_layout(layout)
    with hardware.errors_at_origins():
        machine = _lower(hardware)
        placed = _place(machine, weights)
        tiling = machine.unit.tile(tokens, weights.hidden, weights.intermediate)
    if record_commands:
        ensure_recordable(sum(int(of.sum()) for of in placed.tiles.bursts) * len(tiling.tokens))
    program = _Program(machine, placed, placed.streams, record_commands, fastest)
    end = program.run(tiling, progress)
    if exact_check:
        _check(program, placed, tiling, end)
    config = {
        "hardware": machine.described,
        **describe_weights(weights, model),
        "tokens": tokens,
        "layout": layout,
    }
    return _result(program, tiling, end, config, stopwatch)


def _peak_gflops(machine: _Machine, written: ExpertFormat) -> float:
    """Of matrices of equal size, one after the other, with every element at work."""
    cycles = sum(1 / machine.unit.products_per_cycle(matrix.bits) for matrix in written.matrices)
    products = len(written.matrices) / Fraction(cycles)
    return float(2 * products * 1000 / frequency_period_ps(machine.clock_mhz))


def _busy(program: _Program, cycles: int) -> dict[str, float]:
    """The share of the time for which memory, arrays and link are busy."""
    ticks = cycles * program.machine.dram_ticks
    lanes = [lane for lane in program.lanes if lane.stream.share.total]
    streamed = max(lane.count(state.DATA_END) for lane in lanes) - FIRST_CLOCK
    held = min(lane.count(state.IDLE_CREDIT) for lane in lanes)
    arrays = max(int(lane.sink.value[sink.BUSY]) + lane.gap_ticks for lane in lanes)
    return {
        "memory": (streamed - held) / cycles,
        "compute": arrays / ticks,
        "io": float(program.io_ps / (ticks * program.machine.timebase.tick_ps)),
    }


def _energy(
    program: _Program, products: int, read_bytes: int, issued: Ints, cycles: int, time_ns: float
) -> Energy:
    """The energy of the device and its link, and what it rests on."""
    machine, formats = program.machine, program.weights.format.matrices
    open_clocks = sum(lane.channel.open_clocks(cycles + FIRST_CLOCK) for lane in program.of_lane)
    native = machine.unit.products_per_cycle(machine.unit.native_bits)
    shares = [native / machine.unit.products_per_cycle(matrix.bits) for matrix in formats]
    units = machine.unit_energy.split(
        products * float(sum(shares)) / len(shares),
        products * machine.unit.activation_bytes,
        read_bytes,
        products // len(formats) // program.weights.hidden,
        time_ns,
    )
    link = {"link": transfer_nj(program.moved_bytes, machine.link_pj_per_bit)}
    return machine.dram_power.split(issued, cycles * machine.lanes, open_clocks, {**units, **link})


def _result(
    program: _Program, tiling: Tiling, end: int, config: dict[str, Any], stopwatch: Stopwatch
) -> ExpertResult:
    machine, tiles, reads = program.machine, program.tiles, len(tiling.tokens)
    clock_ns = machine.timebase.to_ns(machine.dram_ticks)
    cycles = -(-end // machine.dram_ticks) - FIRST_CLOCK
    time_ns = machine.timebase.to_ns(cycles * machine.dram_ticks)
    streamed = max(lane.count(state.DATA_END) for lane in program.lanes if lane.stream.share.total)
    streamed_ns = machine.timebase.to_ns((streamed - FIRST_CLOCK) * machine.dram_ticks)
    weight_bytes = sum(region.bytes for region in tiles.regions)
    weight_bursts = sum(int(of_region.sum()) for of_region in tiles.bursts)
    products = sum(region.rows * region.columns for region in tiles.regions) * sum(tiling.tokens)
    peak_gbps = machine.lanes * machine.device.peak_gbps
    bandwidth_gbps = weight_bytes * reads / streamed_ns
    idle_ns = {
        name: program.mean_over_lanes(place) * clock_ns
        for name, place in (
            ("refresh", state.IDLE_REFRESH),
            ("fifo", state.IDLE_CREDIT),
            ("rows", state.IDLE_ROW),
        )
    }
    busy = _busy(program, cycles)
    issued = np.sum([lane.channel.issued for lane in program.of_lane], axis=0)
    energy_nj, energy_note = _energy(program, products, weight_bytes * reads, issued, cycles, time_ns)
    skipped = sum(lane.channel.skipped for lane in program.of_lane)
    return ExpertResult(
        time_ns=time_ns,
        cycles=cycles,
        clock_ns=clock_ns,
        tokens=sum(tiling.tokens),
        weight_bytes=weight_bytes,
        weight_bursts=weight_bursts,
        weight_reads=reads,
        bandwidth_gbps=bandwidth_gbps,
        peak_bandwidth_gbps=peak_gbps,
        peak_fraction=bandwidth_gbps / peak_gbps,
        gflops=2 * products / time_ns,
        peak_gflops=_peak_gflops(machine, program.weights.format),
        bound=max(busy, key=lambda name: busy[name]),
        busy=busy,
        phases=program.phases(),
        commands=name_commands(issued),
        dimms=1,
        lanes=machine.lanes,
        lanes_simulated=len(program.lanes),
        stall_ns=idle_ns["fifo"],
        idle_ns=idle_ns,
        communication_ns=machine.timebase.to_ns(program.spans.communication_ticks()),
        communication_bytes=program.moved_bytes,
        fast_forwarded=skipped / (reads * weight_bursts),
        token_tiles=tiling.tokens,
        energy_nj=energy_nj,
        energy_note=energy_note,
        config=config,
        wall_s=stopwatch.wall_s(),
        compile_s=stopwatch.compile_s(),
        command_traces=tuple(
            decode_commands(lane.commands, machine.tables)
            for lane in program.of_lane
            if lane.commands.entry.size
        ),
    )
