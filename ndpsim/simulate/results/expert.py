"""The result of an expert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ndpsim.base.reported import Reported, quantity
from ndpsim.dram.traces import CommandTrace


@dataclass(frozen=True)
class Phase:
    """A stretch of the expert program, in ns after the first DRAM command.

    `name` is one of "activations-in", "gate-up", "activation", "down", "result-out"; `tile` counts over all
    experts, as `token_tiles` does.
    """

    name: str
    tile: int
    start_ns: float
    end_ns: float


@dataclass(frozen=True)
class JobTime:
    """One expert of a queue: its tokens, and when it ran, in ns after the first DRAM command.

    It runs from the start of its first activations to its last result at the host.
    """

    tokens: int
    start_ns: float
    end_ns: float


@dataclass(frozen=True)
class OverRefresh:
    """The same run, started at DRAM clocks spread evenly over one refresh period.

    Attributes:
        mean_ns, least_ns, most_ns: the mean and the extremes of the times.
        mean_energy_nj: by component, as `ExpertResult.energy_nj`.
        start_clocks: the clocks at which it was started.
        times_ns: `time_ns` of the run from each start clock.
    """

    mean_ns: float
    least_ns: float
    most_ns: float
    mean_energy_nj: Mapping[str, float | None] | None
    start_clocks: tuple[int, ...]
    times_ns: tuple[float, ...]


@dataclass(frozen=True, eq=False, repr=False)
class ExpertResult(Reported):
    """One expert, or several in turn, on one or several DIMMs; counts are sums over all of them.

    Attributes:
        time_ns: the time from the first DRAM command to the last result at the host.
        cycles: the same in DRAM clocks, the last one whole.
        clock_ns: the DRAM clock, 2 / rate.
        tokens: tokens sent through the experts.
        jobs: tokens and times of each expert in turn.
        weight_bytes: bytes of weights, each counted once.
        weight_bursts: bursts that hold them.
        weight_reads: number of reads of each weight, one a token tile; for several experts the mean.
        bandwidth_gbps: weight bytes read, over the time from the first command to the last beat of weights,
            without times in which no expert was released.
        peak_bandwidth_gbps: limit of all lanes together.
        peak_fraction: `bandwidth_gbps` over `peak_bandwidth_gbps`.
        gflops: operations (a product and a sum are two) over `time_ns`.
        peak_gflops: limit of the multipliers at these bits of a weight.
        bound: "memory", "compute" or "io": the resource that is busy longest.
        busy: share of `time_ns` in which each resource is busy: `memory` (DRAM, without the time in which
            full FIFOs delayed reads), `compute` (multipliers), `io` (the bus or link to the host).
        phases: the expert program, in order of start.
        commands: DRAM commands by kind, over all lanes, until the last result is at the host; refreshes after
            the last read, and of lanes without weights, are included.
        dimms: DIMMs that share each expert.
        lanes: lanes of all of them.
        lanes_simulated: distinct lanes; equal lanes are simulated once.
        stall_ns: time in which a full FIFO delayed reads, mean over the lanes.
        idle_ns: idle time of a lane's data bus while weights were read, by cause, mean over the lanes:
            `refresh`, `fifo` (equals `stall_ns`), `rows` (row changes, bus turnaround, empty queue).
        communication_ns: time without products because activations were on their way to the DIMMs, or the
            last results to the host.
        communication_bytes: activations written to the DIMMs and results read from them; several DIMMs get
            the same activations, and their results are partial sums that the host adds up.
        fast_forwarded: share of the reads that fast-forward skipped; results are exact.
        token_tiles: tokens of each tile.
        energy_nj: over `time_ns` by component: of the DRAM (`energy.split`; `io` are the data pins between
            its chips and the buffer chip), of the GEMV and activation units (`ndp_...`), and of the data pins
            to the host (`host`); then the `total` of known components. A component is None if the hardware
            file does not have it; the mapping is None if the DRAM's currents are not known.
        energy_note: source of the DRAM's energy, or the reason why it is not known.
        config: everything that was used: hardware, model, weights, layout.
        wall_s: duration of the call, without `compile_s`; almost 0 for a result from a cache.
        compile_s: duration of compiling kernels for it; 0 if they were in the cache.
        command_traces: the commands of each lane, if requested; clocks count from clock 0, as for refreshes.
        over_refresh: times over start clocks in a refresh period, if requested; all other fields are from the
            first start clock.
    """

    time_ns: float = field(metadata=quantity("time", beside=("cycles", "clock_ns")))
    cycles: int = field(metadata=quantity("clock cycles"))
    clock_ns: float = field(metadata=quantity("clock period"))
    tokens: int
    jobs: tuple[JobTime, ...] = field(repr=False)
    weight_bytes: int = field(metadata=quantity("weights", beside=("weight_bursts", "weight_reads")))
    weight_bursts: int = field(repr=False, metadata=quantity("DRAM bursts"))
    weight_reads: int | float = field(metadata=quantity("reads of each weight"))
    bandwidth_gbps: float = field(
        metadata=quantity("bandwidth", whole="peak_bandwidth_gbps", share="peak_fraction")
    )
    peak_bandwidth_gbps: float = field(metadata=quantity("peak bandwidth"))
    peak_fraction: float = field(metadata=quantity("share of the peak bandwidth"))
    gflops: float = field(metadata=quantity("compute throughput", whole="peak_gflops"))
    peak_gflops: float = field(metadata=quantity("peak compute throughput"))
    bound: str = field(metadata=quantity("bottleneck", beside=("busy",)))
    busy: Mapping[str, float] = field(metadata=quantity("busy", "%"))
    phases: tuple[Phase, ...] = field(repr=False)
    commands: Mapping[str, int] = field(metadata=quantity("DRAM commands"))
    dimms: int = field(metadata=quantity("DIMMs"))
    lanes: int = field(metadata=quantity("lanes", beside=("lanes_simulated", "dimms")))
    lanes_simulated: int = field(repr=False, metadata=quantity("distinct lanes simulated"))
    stall_ns: float = field(repr=False)
    idle_ns: Mapping[str, float] = field(metadata=quantity("idle time of a lane, mean"))
    communication_ns: float = field(
        metadata=quantity("communication with the host", beside=("communication_bytes",))
    )
    communication_bytes: int = field(repr=False, metadata=quantity("activations and results"))
    fast_forwarded: float = field(metadata=quantity("reads skipped by exact fast-forward", "%"))
    token_tiles: tuple[int, ...] = field(repr=False, metadata=quantity("token tiles"))
    energy_nj: Mapping[str, float | None] | None = field(metadata=quantity("energy"))
    energy_note: str = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    wall_s: float
    compile_s: float = field(repr=False)
    command_traces: tuple[CommandTrace, ...] = field(default=(), repr=False)
    over_refresh: OverRefresh | None = field(
        default=None, repr=False, metadata=quantity("time over start clocks in a refresh period")
    )
