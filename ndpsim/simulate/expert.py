"""One expert on one DIMM or on several, from its activations' arrival to its results' departure.

The expert program is in `simulate.program`. On several DIMMs (`sharded:N`) each runs it on its slice. The
host writes the activations to every DIMM, to those of a channel burst by burst in turn, and reads from each
its partial sums, which on a channel leave in the order in which they are known; it adds them as they come. A
tile ends when it has them all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim._later import import_home
from ndpsim.arguments import flag, progress_function, text, whole_number
from ndpsim.config import Hardware, load_hardware
from ndpsim.dram import sink, state
from ndpsim.errors import InputError, MismatchError
from ndpsim.layout import ExpertFormat, ExpertWeights, parse_layout
from ndpsim.moe import Expert, MoeShape
from ndpsim.ndp import Tiling, last_served
from ndpsim.simulate.lane import (
    Lane,
    command_room,
    decode_commands,
    ensure_recordable,
    name_commands,
    no_commands,
)
from ndpsim.simulate.machine import (
    Machine,
    Placed,
    PlacedOnDimms,
    every_lane,
    lower_machine,
    place_on_dimms,
)
from ndpsim.simulate.power import Energy
from ndpsim.simulate.program import (
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
from ndpsim.simulate.result_cache import Lookup, ResultCache
from ndpsim.simulate.stopwatch import Stopwatch
from ndpsim.simulate.weights import named_weights

__all__ = ["MAX_TOKENS", "simulate_expert"]

Ints = NDArray[np.int64]
Progress = Callable[[float], None]

#: Most tokens of one call; more belong into a batch of calls.
MAX_TOKENS = 16384

# Imported when first used, as other units than the GEMV unit are.
_OTHER_ENGINES = {"ndpsim.simulate.systolic": ("simulate_on_arrays",)}
_IDLE = {"refresh": state.IDLE_REFRESH, "fifo": state.IDLE_CREDIT, "rows": state.IDLE_ROW}


class _Program:
    """The expert program under way on a DIMM, or on DIMMs that run alike; times are ticks."""

    def __init__(self, machine: Machine, placed: Placed, recording: bool, make_channel: MakeChannel) -> None:
        self.machine, self.placed, self.regions = machine, placed, placed.dealing.regions
        depth, ticks = machine.gemv.fifo_bursts, (machine.dram_ticks, machine.gemv_ticks)
        servers = placed.work[GATE_UP].servers
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
        self.host_bursts = 0  # over the channel's bus, both ways

    def write(self, step: WriteActivations) -> int:
        """The host writes the activations of a tile; returns when the last has arrived."""
        machine = self.machine
        sent_bytes = step.tokens * self.regions[GATE_UP].columns * machine.gemv.activation_bytes
        bursts = -(-sent_bytes // machine.device.burst_bytes)
        self.host_bursts += bursts
        latency = machine.device.timings["nCWL"] * machine.dram_ticks
        return step.start + latency + machine.bus_ticks(bursts * self.placed.on_channel)

    def multiply(self, step: Multiply, report: Callable[[int], None]) -> Ints:
        """Read a region and multiply; returns when each of its rows is summed, whatever those before it."""
        machine, work = self.machine, self.placed.work[step.region]
        service = step.tokens * work.pass_cycles * machine.gemv_ticks
        for lane in self.lanes:
            lane.read_region(step.region, step.release, service, work.servers, report)
        of_region = self.placed.rows[step.region]
        done = functools.reduce(np.maximum, (lane.sink.done[of_region] for lane in self.lanes))
        rows: Ints = done + machine.gemv.adder_tree_cycles * machine.gemv_ticks
        return rows


class _Programs:
    """The programs of all DIMMs of an expert under way; times are ticks."""

    def __init__(
        self, machine: Machine, expert: PlacedOnDimms, recording: bool, make_channel: MakeChannel
    ) -> None:
        self.machine, self.expert = machine, expert
        self.spans = Spans()
        self.each = [_Program(machine, placed, recording, make_channel) for placed in expert.placed]
        self.of_dimm = [self.each[number] for number in expert.of_dimm]
        self.io_ticks = 0  # the busiest channel's bus

    def run(self, tiling: Tiling, progress: Progress) -> int:
        """All tiles; returns when the host has the last result."""
        total = len(tiling.tokens) * sum(lane.stream.share.total for one in self.each for lane in one.lanes)
        self.report = report_share(total, progress)
        machine = self.machine
        programs = [
            expert_program(
                [Job(tiling.tokens)],
                machine.device.burst_bytes // machine.gemv.activation_bytes,
                functools.partial(machine.activation.done, cycle_ticks=machine.activation_ticks),
                self.spans,
                FIRST_CLOCK * machine.dram_ticks,
            )
            for _ in self.each
        ]
        end = run_in_step(programs, self)
        for program in self.each:
            for lane in program.lanes:
                lane.refresh_until(-(-end // machine.dram_ticks))
        return end

    def multiply(self, steps: Sequence[Multiply]) -> list[Ints]:
        """Every DIMM reads a region and multiplies."""
        return [one.multiply(step, self.report) for one, step in zip(self.each, steps, strict=True)]

    def write_activations(self, steps: Sequence[WriteActivations]) -> list[int]:
        """The host writes the activations of a tile to all DIMMs; returns when each has its last."""
        arrived = [one.write(step) for one, step in zip(self.each, steps, strict=True)]
        latency = self.machine.device.timings["nCWL"] * self.machine.dram_ticks
        self.io_ticks += max(arrived) - steps[0].start - latency
        return arrived

    def read_results(self, steps: Sequence[ReadResults]) -> list[int]:
        """Results of a channel's DIMMs leave in the order in which they are known; returns when all have."""
        machine, tokens = self.machine, steps[0].tokens
        ends = []
        for on_channel in self.expert.channels:
            known = np.concatenate([steps[of].known for of in on_channel])
            ends.append(last_served(np.sort(known), machine.bus_ticks(tokens)))
        for one, step in zip(self.each, steps, strict=True):
            one.host_bursts += tokens * len(step.known)
        self.io_ticks += max(map(len, self.expert.channels)) * len(steps[0].known) * machine.bus_ticks(tokens)
        return [max(ends) + machine.device.timings["nCL"] * machine.dram_ticks] * len(steps)

    def phases(self) -> tuple[Phase, ...]:
        """In order of start."""
        origin, to_ns = FIRST_CLOCK * self.machine.dram_ticks, self.machine.timebase.to_ns
        return self.spans.phases(lambda tick: to_ns(tick - origin))

    def lanes(self) -> list[tuple[Lane, int]]:
        """Lanes that hold weights, and for how many each stands."""
        return [
            (lane, self.expert.of_dimm.count(number) * len(lane.stream.lanes))
            for number, program in enumerate(self.each)
            for lane in program.lanes
        ]


def _compare(fast: _Programs, fast_end: int, plain: _Programs, plain_end: int) -> None:
    """Make sure that two runs of the programs agree in all that is counted."""
    if (fast_end, fast.spans) != (plain_end, plain.spans):
        raise MismatchError(f"the plain run ends at tick {plain_end}, not {fast_end}, or in other phases")
    pairs = [
        pair
        for one, other in zip(fast.each, plain.each, strict=True)
        for pair in zip(one.of_lane, other.of_lane, strict=True)
    ]
    compare_lanes(pairs, "multipliers")


def simulate_expert(
    hw: str | PathLike[str] | Hardware = "trimoe",
    model: str | PathLike[str] | MoeShape | Expert = "qwen3-235b-a22b",
    tokens: int = 1,
    layout: str = "localized",
    bits: int | ExpertFormat = 16,
    sets: Sequence[str] = (),
    record_commands: bool = False,
    exact_check: bool = False,
    progress: Progress | None = None,
    cache: bool | ResultCache = False,
) -> ExpertResult:
    """Simulate one expert of a model on one DIMM, or on several, cycle by cycle.

    Args:
        hw: a bundled hardware name, a path of a hardware file, or a loaded `Hardware`.
        model: a bundled model name, a path of a Hugging Face config.json, what `load_model` returns, or an
            `Expert`.
        tokens: tokens that go through the expert, 1 to `MAX_TOKENS`.
        layout: where the weights lie: "localized", or "sharded:N" over N DIMMs.
        bits: bits of a weight, 16, 8, 4, 3, 2 or 1, or the format of each matrix.
        sets: changes to the hardware, "dimm.ranks=2".
        record_commands: keep the command trace of every lane.
        exact_check: run once more with every lane on its own, every read stepped through and every queue
            scanned, and compare.
        progress: called with the share of the work that is done, first with 0 when all is checked; None:
            nothing is called.
        cache: True, or a `ResultCache`, to find the result there where the very same was simulated before;
            with `record_commands` or `exact_check` everything is simulated.

    Raises:
        InputError: an argument, the hardware or the model makes no sense, or does not fit.
        MismatchError: the exact check found a difference.
    """
    stopwatch = Stopwatch()
    tokens, layout = whole_number(tokens, "tokens", 1, MAX_TOKENS), text(layout, "layout")
    record_commands, exact_check = flag(record_commands, "record_commands"), flag(exact_check, "exact_check")
    progress = progress_function(progress)
    if parse_layout(layout)[0] == "striped":
        raise InputError(
            "striped spreads each row of weights over all DIMMs, and a DIMM multiplies only rows of its own: "
            "relayout it into localized or sharded:N first, or let the host read it",
            key="layout",
        )
    hardware = load_hardware(hw, sets)
    weights, model_name = named_weights(model, bits)
    lookup = Lookup(
        ExpertResult,
        cache,
        record_commands or exact_check,
        (hardware, weights, tokens, layout),
        {"model": model_name},
    )
    if (found := lookup.find(stopwatch, progress)) is not None:
        return found
    if hardware.ndp.systolic is not None:
        simulate_on_arrays = import_home(__name__, _OTHER_ENGINES, "simulate_on_arrays")
        result: ExpertResult = simulate_on_arrays(
            hardware, weights, model_name, tokens, layout, record_commands, exact_check, progress
        )
        return lookup.store(result)

    with hardware.errors_at_origins():
        machine = lower_machine(hardware)
        expert = place_on_dimms(machine, layout, weights)
        tiling = machine.gemv.tile(tokens, weights.hidden, expert.slice)
    if record_commands:
        ensure_recordable(expert.bursts * len(tiling.tokens))
    programs = _Programs(machine, expert, record_commands, fastest)
    end = programs.run(tiling, progress)
    if exact_check:
        plainly = _Programs(machine, every_lane(machine, expert), False, plain)
        _compare(programs, end, plainly, plainly.run(tiling, lambda share: None))
    config = {
        "hardware": machine.described,
        **expert.described,
        "model": model_name,
        "tokens": tokens,
        "layout": layout,
    }
    return lookup.store(_result(programs, tiling, end, config, weights, stopwatch))


def _result(
    programs: _Programs,
    tiling: Tiling,
    end: int,
    config: dict[str, Any],
    weights: ExpertWeights,
    stopwatch: Stopwatch,
) -> ExpertResult:
    machine, expert = programs.machine, programs.expert
    to_ns, clock_ns = machine.timebase.to_ns, machine.timebase.to_ns(machine.dram_ticks)
    tokens, reads, dimms = sum(tiling.tokens), len(tiling.tokens), len(expert.of_dimm)
    cycles = -(-end // machine.dram_ticks) - FIRST_CLOCK
    time_ns = to_ns(cycles * machine.dram_ticks)
    lanes = programs.lanes()
    counts = [(lane.channel.value.tolist(), count) for lane, count in lanes]
    used = [counter for counter, _ in counts if counter[state.READS_SERVED]]
    streamed = max(counter[state.DATA_END] for counter in used) - FIRST_CLOCK
    peak_gbps = dimms * machine.lanes * machine.lane_peak_gbps
    bandwidth_gbps = expert.bytes * reads / to_ns(streamed * machine.dram_ticks)
    skipped = sum(lane.channel.skipped * count for lane, count in lanes)
    issued: Ints = functools.reduce(np.add, (lane.channel.issued * count for lane, count in lanes))
    idle_ns = {
        name: sum(counter[place] * count for counter, count in counts) / (dimms * machine.lanes) * clock_ns
        for name, place in _IDLE.items()
    }
    busy = {
        "memory": (streamed - min(counter[state.IDLE_CREDIT] for counter in used)) / cycles,
        "compute": max(lane.busy for lane, _ in lanes) / (cycles * machine.dram_ticks),
        "io": programs.io_ticks / (cycles * machine.dram_ticks),
    }
    energy_nj, energy_note = _energy(programs, weights, tokens, reads, issued, cycles, time_ns)
    return ExpertResult(
        time_ns=time_ns,
        cycles=cycles,
        clock_ns=clock_ns,
        tokens=tokens,
        weight_bytes=expert.bytes,
        weight_bursts=expert.bursts,
        weight_reads=reads,
        bandwidth_gbps=bandwidth_gbps,
        peak_bandwidth_gbps=peak_gbps,
        peak_fraction=bandwidth_gbps / peak_gbps,
        gflops=2 * 3 * weights.hidden * weights.intermediate * tokens / time_ns,
        peak_gflops=expert.peak_gflops,
        bound=max(busy, key=busy.__getitem__),
        busy=busy,
        phases=programs.phases(),
        commands=name_commands(issued),
        dimms=dimms,
        lanes=dimms * machine.lanes,
        lanes_simulated=len(lanes),
        stall_ns=idle_ns["fifo"],
        idle_ns=idle_ns,
        communication_ns=to_ns(programs.spans.communication_ticks()),
        communication_bytes=dimms * 2 * weights.hidden * tokens * machine.gemv.activation_bytes,
        fast_forwarded=skipped / (reads * expert.bursts),
        token_tiles=tiling.tokens,
        energy_nj=energy_nj,
        energy_note=energy_note,
        config=config,
        wall_s=stopwatch.wall_s(),
        compile_s=stopwatch.compile_s(),
        command_traces=tuple(
            decode_commands(lane.commands, machine.tables)
            for program in programs.of_dimm
            for lane in program.of_lane
            if lane.commands.entry.size
        ),
    )


def _energy(
    programs: _Programs,
    weights: ExpertWeights,
    tokens: int,
    reads: int,
    issued: Ints,
    cycles: int,
    time_ns: float,
) -> Energy:
    """The energy of the DIMMs, and what it rests on."""
    machine, expert = programs.machine, programs.expert
    dimms = len(expert.of_dimm)
    open_clocks = sum(
        lane.channel.open_clocks(cycles + FIRST_CLOCK) * count for lane, count in programs.lanes()
    )
    products = tokens * weights.hidden * weights.intermediate  # of a matrix
    units = machine.unit_energy.split(
        products * expert.pass_cycles / machine.gemv.bit_serial_cycles,
        len(weights.format.matrices) * products * machine.gemv.activation_bytes,
        reads * expert.bytes,
        tokens * weights.intermediate,
        dimms * time_ns,
    )
    host_bursts = sum(program.host_bursts for program in programs.of_dimm)
    host = {"host": machine.dram_power.io_nj(host_bursts)}
    return machine.dram_power.split(issued, cycles * machine.lanes * dimms, open_clocks, {**units, **host})
