"""One expert on one DIMM, from its activations' arrival to its results' departure.

The expert program of a tile of tokens, in its order: the host writes the tile's activations into the
buffer chip; gate and up rows are multiplied, and each hidden value is activated when both its rows are
known; when all are, down rows are multiplied; results leave for the host as they complete. What overlaps:
weights are read ahead into the FIFOs at any time; activation overlaps gate and up; results leave during
down. The next tile's activations take the place of the results and wait until those have left.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware, load_hardware
from ndpsim.dram import sink, state
from ndpsim.dram.engines import Controller, ScanController, compare_channels, make_controller
from ndpsim.errors import InputError, MismatchError
from ndpsim.kept import kept_by_identity
from ndpsim.layout import BITS, Dealing, expert_regions, parse_layout
from ndpsim.moe import Expert, load_model
from ndpsim.ndp import ActivationUnit, GemvUnit, Tiling, served_in_order
from ndpsim.simulate.lane import (
    Lane,
    LaneStream,
    check_refresh,
    command_room,
    decode_commands,
    lane_streams,
    name_commands,
    no_commands,
)
from ndpsim.simulate.memory import controller_options
from ndpsim.simulate.result import ExpertResult, Phase
from ndpsim.spec import Device, Tables, lower
from ndpsim.units import Timebase, common_ticks, frequency_period_ps

__all__ = ["BITS", "MAX_TOKENS", "simulate_expert"]

Ints = NDArray[np.int64]
Progress = Callable[[float], None]
MakeChannel = Callable[[Tables, state.Policy], Controller]

#: Most tokens of one call; more belong into a batch of calls.
MAX_TOKENS = 16384

_GATE_UP, _DOWN = 0, 1  # the regions of an expert
_KEPT = 16  # hardware and placed experts that are kept for the next call
_FIRST_CLOCK = 1  # of the program: the clock of the first DRAM command


@dataclass(frozen=True, eq=False)
class _Machine:
    """A DIMM, lowered: what the program of an expert runs on."""

    device: Device
    tables: Tables
    policy: state.Policy
    timebase: Timebase
    gemv: GemvUnit
    activation: ActivationUnit
    lanes: int
    lane_peak_gbps: float
    host_buses: int
    described: Mapping[str, Any]  # for the result: the hardware as plain data

    @property
    def dram_ticks(self) -> int:
        return self.timebase.ticks[0]

    @property
    def gemv_ticks(self) -> int:
        return self.timebase.ticks[1]

    @property
    def activation_ticks(self) -> int:
        return self.timebase.ticks[2]

    def bus_ticks(self, bursts: int) -> int:
        """Time on the buses to the host for bursts that all of them share."""
        return -(-bursts // self.host_buses) * self.tables.burst * self.dram_ticks


@kept_by_identity(_KEPT)
def _lower(hardware: Hardware) -> _Machine:
    gemv, activation = hardware.ndp.gemv, hardware.ndp.activation
    dram, device = hardware.system.dram, hardware.lane_device()
    check_refresh(device, dram.refresh)
    return _Machine(
        device=device,
        tables=lower(device),
        policy=state.make_policy(controller_options(dram)),
        timebase=common_ticks(
            device.clock_ps, frequency_period_ps(gemv.clock_mhz), frequency_period_ps(activation.clock_mhz)
        ),
        gemv=GemvUnit(
            multipliers=gemv.multipliers,
            values_per_multiplier=gemv.values_per_multiplier,
            native_bits=gemv.native_bits,
            bit_serial_cycles=gemv.bit_serial_cycles,
            adder_tree_cycles=gemv.adder_tree_cycles,
            buffer_bytes=gemv.buffer_kib * 1024,
            activation_bytes=gemv.activation_bytes,
            fifo_bursts=gemv.fifo_bursts,
        ),
        activation=ActivationUnit(activation.units, activation.cycles_per_value, activation.latency_cycles),
        lanes=hardware.lanes,
        lane_peak_gbps=device.peak_gbps,
        host_buses=hardware.system.dimm.subchannels,
        described=hardware.to_dict(),
    )


@dataclass(frozen=True, eq=False)
class _Placed:
    """An expert's weights on the lanes of a DIMM."""

    layout: Dealing
    streams: tuple[LaneStream, ...]  # of lanes that run alike


@functools.lru_cache(maxsize=_KEPT)
def _place(machine: _Machine, layout: str, hidden: int, intermediate: int, bits: int) -> _Placed:
    regions = expert_regions(hidden, intermediate, bits, machine.device.burst_bytes)
    placed = Dealing(regions, machine.device, machine.lanes)
    alike = itertools.groupby(range(machine.lanes), placed.share)
    groups = [list(lanes) for _, lanes in alike]
    return _Placed(
        placed, lane_streams(machine.tables, placed, [range(lanes[0], lanes[-1] + 1) for lanes in groups])
    )


def _every_lane(machine: _Machine, placed: _Placed) -> _Placed:
    """The same with every lane on its own."""
    lanes = [range(lane, lane + 1) for lane in range(machine.lanes)]
    return _Placed(placed.layout, lane_streams(machine.tables, placed.layout, lanes))


class _Program:
    """The expert program under way; times are ticks."""

    def __init__(
        self, machine: _Machine, placed: _Placed, bits: int, recording: bool, make_channel: MakeChannel
    ) -> None:
        self.machine, self.layout = machine, placed.layout
        servers, self.pass_cycles = machine.gemv.burst_work(machine.lanes, machine.device.burst_bytes, bits)
        depth, ticks = machine.gemv.fifo_bursts, (machine.dram_ticks, machine.gemv_ticks)
        self.lanes = [
            Lane(
                stream,
                make_channel(machine.tables, machine.policy),
                sink.make_sink(depth, servers, *ticks, stream.rows),
                command_room() if recording else no_commands(),
            )
            for stream in placed.streams
        ]
        self.of_lane = [lane for lane in self.lanes for _ in lane.stream.lanes]
        self.servers = servers
        self.phases: list[Phase] = []
        self.io_ticks = 0

    def note(self, name: str, tile: int, start: int, end: int) -> None:
        """Remember a phase."""
        origin = _FIRST_CLOCK * self.machine.dram_ticks
        ns = [self.machine.timebase.to_ns(at - origin) for at in (start, end)]
        self.phases.append(Phase(name, tile, *ns))

    def activations_in(self, tile: int, tokens: int, start: int) -> int:
        """The host writes the activations of a tile; returns when the last has arrived."""
        machine = self.machine
        bursts = -(
            -tokens
            * self.layout.regions[_GATE_UP].columns
            * machine.gemv.activation_bytes
            // machine.device.burst_bytes
        )
        on_bus = machine.bus_ticks(bursts)
        end = start + machine.device.timings["nCWL"] * machine.dram_ticks + on_bus
        self.io_ticks += on_bus
        self.note("activations-in", tile, start, end)
        return end

    def multiply(
        self, region: int, tile: int, tokens: int, release: int, report: Callable[[int], None]
    ) -> Ints:
        """Read a region and multiply; returns when the sum of each of its rows is known."""
        machine = self.machine
        service = tokens * self.pass_cycles * machine.gemv_ticks
        first = sum(before.rows for before in self.layout.regions[:region])
        after = first + self.layout.regions[region].rows
        for lane in self.lanes:
            lane.read_region(region, release, service, report)
        done = functools.reduce(np.maximum, (lane.sink.done[first:after] for lane in self.lanes))
        rows: Ints = np.maximum.accumulate(done) + machine.gemv.adder_tree_cycles * machine.gemv_ticks
        self.note(self.layout.regions[region].name, tile, release, int(rows[-1]))
        return rows

    def activate(self, tile: int, tokens: int, rows: Ints) -> int:
        """SiLU(gate) x up of every hidden value; returns when the last is known."""
        known = rows[1::2]  # gate and up rows alternate, and up comes second
        end = self.machine.activation.done(known, tokens, self.machine.activation_ticks)
        self.note("activation", tile, int(known[0]), end)
        return end

    def results_out(self, tile: int, tokens: int, rows: Ints) -> int:
        """Results leave in bursts, each when its last row is known; returns when the host has the last."""
        machine = self.machine
        per_burst = machine.device.burst_bytes // machine.gemv.activation_bytes
        known = rows[np.minimum(np.arange(0, len(rows), per_burst) + per_burst, len(rows)) - 1]
        on_bus = machine.bus_ticks(tokens)
        latency = machine.device.timings["nCL"] * machine.dram_ticks
        end = int(served_in_order(known, on_bus)[-1]) + latency
        self.io_ticks += on_bus * len(known)
        self.note("result-out", tile, int(known[0]), end)
        return end

    def run(self, tiling: Tiling, progress: Progress) -> int:
        """All tiles; returns when the host has the last result."""
        total = len(tiling.tokens) * sum(lane.stream.share.total for lane in self.lanes)
        read = 0

        def report(bursts: int) -> None:
            nonlocal read
            read += bursts
            progress(read / total)

        progress(0.0)

        at = _FIRST_CLOCK * self.machine.dram_ticks
        for tile, tokens in enumerate(tiling.tokens):
            at = self.activations_in(tile, tokens, at)
            at = self.activate(tile, tokens, self.multiply(_GATE_UP, tile, tokens, at, report))
            at = self.results_out(tile, tokens, self.multiply(_DOWN, tile, tokens, at, report))
        return at

    def mean_over_lanes(self, places: Sequence[int]) -> dict[int, float]:
        """Counters of the lanes' channels, averaged over the lanes."""
        return {
            place: sum(lane.count(place) * len(lane.stream.lanes) for lane in self.lanes) / self.machine.lanes
            for place in places
        }


def _fastest(tables: Tables, policy: state.Policy) -> Controller:
    return make_controller(tables, policy, with_sink=True)


def _plain(tables: Tables, policy: state.Policy) -> Controller:
    return ScanController(tables, policy)


def _compare(fast: _Program, fast_end: int, plain: _Program, plain_end: int) -> None:
    """Make sure that two runs of a program agree in all that is counted."""
    if (fast_end, fast.phases) != (plain_end, plain.phases):
        raise MismatchError(f"the plain run ends at tick {plain_end}, not {fast_end}, or in other phases")
    for number, (one, other) in enumerate(zip(fast.of_lane, plain.of_lane, strict=True)):
        different = compare_channels(one.channel, other.channel)
        if not np.array_equal(one.sink.value[sink.COMPARED], other.sink.value[sink.COMPARED]):
            different.append("what the multipliers did")
        if different:
            raise MismatchError(f"lane {number} differs from its plain run in {', '.join(different)}")


def _expert(model: str | Expert) -> tuple[Expert, str | None]:
    if isinstance(model, Expert):
        return model, None
    shape = load_model(model)
    return shape.expert, shape.name


def _checked(value: Any, allowed: Sequence[int] | range, name: str, words: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise InputError(f"{value!r} is not {words}", key=name)
    return value


def simulate_expert(
    hw: str | Hardware = "trimoe",
    model: str | Expert = "qwen3-235b-a22b",
    tokens: int = 1,
    layout: str = "localized",
    bits: int = 16,
    sets: Sequence[str] = (),
    record_commands: bool = False,
    exact_check: bool = False,
    progress: Progress = lambda share: None,
) -> ExpertResult:
    """Simulate one expert of a model on one DIMM, cycle by cycle.

    Args:
        hw: a bundled hardware name, a path of a hardware file, or a loaded `Hardware`.
        model: a bundled model name, a path of a Hugging Face config.json, or an `Expert`.
        tokens: tokens that go through the expert, 1 to `MAX_TOKENS`.
        layout: where the weights lie: "localized".
        bits: bits of a weight: 16, 8, 4, 3, 2 or 1.
        sets: changes to the hardware, "dimm.ranks=2".
        record_commands: keep the command trace of every lane.
        exact_check: run once more with every lane on its own, every read stepped through and every queue
            scanned, and compare.
        progress: called with the share of the work that is done, first with 0 when all is checked.

    Raises:
        InputError: an argument, the hardware or the model makes no sense, or does not fit.
        MismatchError: the exact check found a difference.
    """
    began = time.perf_counter()
    _checked(tokens, range(1, MAX_TOKENS + 1), "tokens", f"a whole number from 1 to {MAX_TOKENS}")
    _checked(bits, BITS, "bits", f"one of {', '.join(map(str, BITS))}")
    if parse_layout(layout)[0] != "localized":
        raise InputError(f"'{layout}' is not a layout of one DIMM", key="layout")
    if isinstance(hw, Hardware) and sets:
        raise InputError("give changes when loading the hardware, not afterwards", key="sets")
    hardware = hw if isinstance(hw, Hardware) else load_hardware(hw, sets)
    expert, model_name = _expert(model)

    machine = _lower(hardware)
    placed = _place(machine, layout, expert.hidden, expert.intermediate, bits)
    tiling = machine.gemv.tile(tokens, expert.hidden, expert.intermediate)
    program = _Program(machine, placed, bits, record_commands, _fastest)
    end = program.run(tiling, progress)
    if exact_check:
        plain = _Program(machine, _every_lane(machine, placed), bits, False, _plain)
        _compare(program, end, plain, plain.run(tiling, lambda share: None))

    config = {
        "hardware": machine.described,
        "model": model_name,
        "hidden": expert.hidden,
        "intermediate": expert.intermediate,
        "tokens": tokens,
        "bits": bits,
        "layout": layout,
    }
    return _result(program, tiling, end, config, tokens, began)


def _result(
    program: _Program, tiling: Tiling, end: int, config: dict[str, Any], tokens: int, began: float
) -> ExpertResult:
    machine, regions = program.machine, program.layout.regions
    device, clock_ns = machine.device, machine.timebase.to_ns(machine.dram_ticks)
    cycles = -(-end // machine.dram_ticks) - _FIRST_CLOCK
    time_ns = machine.timebase.to_ns(cycles * machine.dram_ticks)
    lanes = [lane for lane in program.lanes if lane.stream.share.total]
    streamed = max(lane.count(state.DATA_END) for lane in lanes) - _FIRST_CLOCK
    weight_bytes = sum(region.bytes for region in regions)
    reads = len(tiling.tokens)
    peak_gbps = machine.lanes * machine.lane_peak_gbps
    bandwidth_gbps = weight_bytes * reads / machine.timebase.to_ns(streamed * machine.dram_ticks)
    operations = 2 * sum(region.rows * region.columns for region in regions) * tokens
    tick_ps = machine.timebase.tick_ps
    products = 2 * program.servers * machine.lanes * device.burst_bytes * 8 * tick_ps.denominator
    peak_gflops = (
        products * 1000 / (program.pass_cycles * config["bits"] * machine.gemv_ticks * tick_ps.numerator)
    )
    skipped = sum(lane.channel.skipped * len(lane.stream.lanes) for lane in program.lanes)
    issued = np.sum([lane.channel.issued * len(lane.stream.lanes) for lane in program.lanes], axis=0)
    idle = program.mean_over_lanes((state.IDLE_REFRESH, state.IDLE_CREDIT, state.IDLE_ROW))
    busy_ticks = max(int(lane.sink.value[sink.BUSY]) for lane in lanes)
    busy = {
        "memory": (streamed - min(lane.count(state.IDLE_CREDIT) for lane in lanes)) / cycles,
        "compute": busy_ticks / (program.servers * cycles * machine.dram_ticks),
        "io": program.io_ticks / (cycles * machine.dram_ticks),
    }
    return ExpertResult(
        time_ns=time_ns,
        cycles=cycles,
        clock_ns=clock_ns,
        tokens=tokens,
        weight_bytes=weight_bytes,
        weight_bursts=sum(region.bursts for region in regions),
        weight_reads=reads,
        bandwidth_gbps=bandwidth_gbps,
        peak_bandwidth_gbps=peak_gbps,
        peak_fraction=bandwidth_gbps / peak_gbps,
        gflops=operations / time_ns,
        peak_gflops=peak_gflops,
        bound=max(busy, key=lambda name: busy[name]),
        busy=busy,
        phases=tuple(sorted(program.phases, key=lambda phase: phase.start_ns)),
        commands=name_commands(issued),
        lanes=machine.lanes,
        lanes_simulated=len(program.lanes),
        stall_ns=idle[state.IDLE_CREDIT] * clock_ns,
        idle_ns={
            "refresh": idle[state.IDLE_REFRESH] * clock_ns,
            "fifo": idle[state.IDLE_CREDIT] * clock_ns,
            "rows": idle[state.IDLE_ROW] * clock_ns,
        },
        fast_forwarded=skipped / (reads * sum(region.bursts for region in regions)),
        token_tiles=tiling.tokens,
        energy_nj=None,
        config=config,
        wall_s=time.perf_counter() - began,
        command_traces=tuple(
            decode_commands(lane.commands, machine.tables)
            for lane in program.of_lane
            if lane.commands.entry.size
        ),
    )
