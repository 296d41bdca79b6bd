"""Results of experts: computed by DIMMs alone, beside a host or in a session, or read by the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ndpsim.base.reported import Reported, quantity
from ndpsim.dram.traces import CommandTrace


@dataclass(frozen=True)
class Phase:
    """A stretch of the expert program, in ns after the first DRAM command.

    `name` is one of "activations-in", "gate-up" ("up" without a gate), "activation", "down", "result-out".
    `tile` counts over all experts, as `token_tiles` does.
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


@dataclass(frozen=True)
class MeanExpert:
    """The fields of an `ExpertResult` and of its `OverRefresh` from which the cost of an expert follows."""

    weight_bytes: int
    bandwidth_gbps: float
    time_ns: float
    mean_ns: float
    mean_energy_nj: Mapping[str, float | None] | None
    start_clocks: tuple[int, ...]


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


@dataclass(frozen=True, eq=False, repr=False)
class HostReadResult(Reported):
    """An expert read by the host. Counters are over all buses that take part.

    Attributes:
        time_ns: the time from the first DRAM command to the last beat of data, on the bus that takes longest.
        cycles: the same in DRAM clocks; `clock_ns` is one of them.
        weight_bytes: bytes of weights, scales and zero points; `weight_bursts` the bursts that hold them.
        bandwidth_gbps: `weight_bytes` over `time_ns`.
        peak_bandwidth_gbps: limit of the channels that take part.
        peak_fraction: `bandwidth_gbps` over `peak_bandwidth_gbps`.
        channels: channels that take part.
        buses: their sub-channels; `buses_simulated`: distinct ones; equal buses are simulated once.
        ranks_per_bus: most ranks behind a bus, of all DIMMs of its channel.
        commands: DRAM commands by kind.
        idle_ns: idle time of a bus by cause, mean over the buses: `refresh`, `rows` (row and rank changes).
        fast_forwarded: share of the reads that fast-forward skipped; results are exact.
        energy_nj: by component (`energy.split`), and their `total`, of all ranks behind the buses; None if
            the DRAM's currents are not known. `energy_note` names the source, or the reason for None.
        config: everything that was used: hardware, model, weights, layout.
        wall_s: duration of the call, without `compile_s`; almost 0 for a result from a cache.
        compile_s: duration of compiling kernels for it; 0 if they were in the cache.
        command_traces: the commands of each bus (channel by channel, of each its sub-channels), if requested.
    """

    time_ns: float = field(metadata=quantity("time", beside=("cycles", "clock_ns")))
    cycles: int = field(metadata=quantity("clock cycles"))
    clock_ns: float = field(metadata=quantity("clock period"))
    weight_bytes: int = field(metadata=quantity("weights", beside=("weight_bursts",)))
    weight_bursts: int = field(repr=False, metadata=quantity("DRAM bursts"))
    bandwidth_gbps: float = field(
        metadata=quantity(
            "bandwidth", beside=("channels",), whole="peak_bandwidth_gbps", share="peak_fraction"
        )
    )
    peak_bandwidth_gbps: float = field(metadata=quantity("peak bandwidth"))
    peak_fraction: float = field(metadata=quantity("share of the peak bandwidth"))
    channels: int = field(metadata=quantity("channels"))
    buses: int = field(metadata=quantity("buses", beside=("buses_simulated", "ranks_per_bus")))
    buses_simulated: int = field(metadata=quantity("distinct buses simulated"))
    ranks_per_bus: int = field(metadata=quantity("ranks on a bus, at most"))
    commands: Mapping[str, int] = field(metadata=quantity("DRAM commands"))
    idle_ns: Mapping[str, float] = field(metadata=quantity("idle time of a bus, mean"))
    fast_forwarded: float = field(metadata=quantity("reads skipped by exact fast-forward", "%"))
    energy_nj: Mapping[str, float | None] | None = field(metadata=quantity("energy"))
    energy_note: str = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    wall_s: float
    compile_s: float = field(repr=False)
    command_traces: tuple[CommandTrace, ...] = field(default=(), repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class ContentionResult(Reported):
    """An expert on a DIMM, with concurrent traffic of the host.

    Fields with `alone` in the name are those of a run without the other side.

    Attributes:
        ndp_time_ns: time of the expert with the host's traffic: from the first clock to the last result at
            the host.
        ndp_alone_ns: time of the expert alone, as by `simulate_expert`.
        ndp_slowdown: `ndp_time_ns` over `ndp_alone_ns`.
        ndp_gbps: weight bytes over the time in which they are read; `ndp_alone_gbps`: the same alone.
        ndp_peak_fraction: `ndp_gbps` over `lanes_peak_gbps`.
        host_requests: requests of the host that went to their lanes in `ndp_time_ns`.
        host_time_ns: time of these requests, to the last beat of read data or the last command, as in
            `run_trace`; `host_alone_ns`: the same requests alone, by `run_trace` on the channel's ranks.
        host_slowdown: `host_time_ns` over `host_alone_ns`; None without requests. It can be a little below 1:
            while weights are read, writes collect for longer and turn the buses around less often.
        host_offered_gbps: requested traffic of the host; None: as much as possible.
        host_gbps: rate on the host's buses in `ndp_time_ns`; `host_alone_gbps`: in `host_alone_ns`.
        host_peak_fraction: `host_gbps` over `bus_peak_gbps`.
        host_latency_ns: latency of the host's reads, from the clock at which a queue takes the request to the
            last beat on the bus: mean, p50, p90, p99, max; None without reads. `host_alone_latency_ns`: the
            same alone. Latencies of more than 65,534 clocks count as 65,535.
        lanes_peak_gbps: limit of all lanes together.
        lanes_fraction: data of both sides over `ndp_time_ns`, as a share of `lanes_peak_gbps`.
        bus_peak_gbps: limit of the DIMM's buses to the host.
        clock_ns: the DRAM clock.
        rows: hits, misses and conflicts of requests at their first command, by master; and `lost`: rows that
            were opened for this master and closed by the other.
        turnarounds: turns of the lanes' data buses between reads and writes; `bus_turnarounds` and
            `bus_rank_switches`: turns, and changes of rank, of the buses to the host.
        commands: DRAM commands by kind, over all lanes.
        jobs: tokens and times of each expert in turn, with the host's traffic.
        phases: the expert program with the host's traffic, in order of start.
        token_tiles: tokens of each tile.
        lanes: lanes of the DIMM, all of them simulated.
        by_lane: bytes of each lane that the NDP unit and the host moved in `ndp_time_ns`.
        energy_nj: by component, and their `total`, until the last data of the host; None if the DRAM's
            currents are not known. `energy_note` names the source, or the reason for None.
        config: everything that was used.
        wall_s: duration of the call, without `compile_s`; almost 0 for a result from a cache.
        compile_s: duration of compiling kernels for it; 0 if they were in the cache.
        curve_ns: ends of equal time slices up to `ndp_time_ns`: whole refresh intervals or equal parts of
            one, each rounded up to a clock; the last slice may be shorter.
        ndp_curve_gbps, host_curve_gbps: rates in each slice at which the NDP unit read, and at which the
            host moved data over its buses.
        command_traces: the commands of each lane, if requested.
    """

    ndp_time_ns: float = field(metadata=quantity("NDP time with host traffic"))
    ndp_alone_ns: float = field(metadata=quantity("NDP time alone"))
    ndp_slowdown: float = field(metadata=quantity("NDP slowdown", beside=("ndp_time_ns", "ndp_alone_ns")))
    ndp_gbps: float = field(
        metadata=quantity(
            "NDP bandwidth", beside=("ndp_alone_gbps",), whole="lanes_peak_gbps", share="ndp_peak_fraction"
        )
    )
    ndp_alone_gbps: float = field(metadata=quantity("NDP bandwidth alone"))
    ndp_peak_fraction: float = field(metadata=quantity("share of the lanes' peak"))
    host_requests: int = field(metadata=quantity("requests"))
    host_time_ns: float = field(metadata=quantity("host time with the NDP unit"))
    host_alone_ns: float = field(metadata=quantity("host time alone"))
    host_slowdown: float | None = field(
        metadata=quantity("host slowdown", beside=("host_time_ns", "host_alone_ns", "host_requests"))
    )
    host_offered_gbps: float | None = field(metadata=quantity("offered load"))
    host_gbps: float = field(
        metadata=quantity(
            "host bandwidth",
            beside=("host_offered_gbps", "host_alone_gbps"),
            whole="bus_peak_gbps",
            share="host_peak_fraction",
        )
    )
    host_alone_gbps: float = field(metadata=quantity("host bandwidth alone"))
    host_peak_fraction: float = field(metadata=quantity("share of the bus's peak"))
    host_latency_ns: Mapping[str, float] | None = field(
        metadata=quantity("host read latency", beside=("host_alone_latency_ns",))
    )
    host_alone_latency_ns: Mapping[str, float] | None = field(metadata=quantity("host read latency alone"))
    lanes_peak_gbps: float = field(repr=False, metadata=quantity("peak of the lanes"))
    lanes_fraction: float = field(metadata=quantity("lanes busy with data of both"))
    bus_peak_gbps: float = field(repr=False, metadata=quantity("peak of the bus"))
    clock_ns: float = field(repr=False)
    rows: Mapping[str, Mapping[str, int]] = field(metadata=quantity("row buffer"))
    turnarounds: int = field(
        repr=False,
        metadata=quantity("turnarounds of the lanes", beside=("bus_turnarounds", "bus_rank_switches")),
    )
    bus_turnarounds: int = field(repr=False, metadata=quantity("turnarounds of the host bus"))
    bus_rank_switches: int = field(repr=False, metadata=quantity("rank switches on it"))
    commands: Mapping[str, int] = field(metadata=quantity("DRAM commands"))
    jobs: tuple[JobTime, ...] = field(repr=False)
    phases: tuple[Phase, ...] = field(repr=False)
    token_tiles: tuple[int, ...] = field(repr=False)
    lanes: int = field(repr=False, metadata=quantity("lanes"))
    by_lane: tuple[Mapping[str, int], ...] = field(repr=False)
    energy_nj: Mapping[str, float | None] | None = field(metadata=quantity("energy"))
    energy_note: str = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    wall_s: float
    compile_s: float = field(repr=False)
    curve_ns: tuple[float, ...] = field(repr=False)
    ndp_curve_gbps: tuple[float, ...] = field(repr=False)
    host_curve_gbps: tuple[float, ...] = field(repr=False)
    command_traces: tuple[CommandTrace, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class ExpertRun:
    """An expert of a session; times in ns after the session's first clock.

    Attributes:
        dimm: the number of the DIMM on the channel.
        tokens: the number of tokens that go through it.
        start_ns: the time at which its first activations begin to come; None: they have not.
        end_ns: the time at which the host has its last result; None: not yet.
    """

    dimm: int
    tokens: int
    start_ns: float | None
    end_ns: float | None


@dataclass(frozen=True)
class HostRun:
    """A stream of requests of the host; times in ns after the session's first clock.

    Attributes:
        start_ns: from when it makes requests.
        end_ns: when its last data so far was read or its last write issued; None: nothing was.
        requests: that have been served; `bytes` their data.
        read_latency_ns: from being taken to the last beat: mean, p50, p90, p99, max; None without reads.
        is_done: all that it asks for has been served.
    """

    start_ns: float
    end_ns: float | None
    requests: int
    bytes: int
    read_latency_ns: Mapping[str, float] | None
    is_done: bool


@dataclass(frozen=True)
class RelayoutRun:
    """Experts of a session that move to another layout; times in ns after the session's first clock.

    Attributes:
        start_ns: the time from which they move.
        end_ns: the time at which the last of their data was written; None: not yet.
        read_bytes, written_bytes: the bytes that the DIMMs of the session have read and written for it.
    """

    start_ns: float
    end_ns: float | None
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, eq=False, repr=False)
class DimmResult(Reported):
    """The result of a session until now.

    Attributes:
        time_ns: since the first clock.
        clock_ns: the DRAM clock.
        jobs: the experts, in the order in which they were added.
        host: the streams of the host, in that order.
        relayouts: experts that moved, in that order.
        ndp_gbps: bytes that NDP units read over `time_ns`; `host_gbps`: bytes that the host moved on their
            ranks.
        commands: DRAM commands by kind, over all ranks of DIMMs with NDP units.
        energy_nj: by component, and their `total`; None if the DRAM's currents are not known. For relayouts
            it includes all links and relayout engines of the machine, but no DRAM of other channels.
            `energy_note` names the source, or the reason for None.
        config: everything that was used.
        wall_s, compile_s: duration of the simulation, and of compiling kernels for it.
        command_traces: the commands of each lane, of all masters, DIMM after DIMM, if requested.
    """

    time_ns: float
    clock_ns: float
    jobs: tuple[ExpertRun, ...]
    host: tuple[HostRun, ...]
    relayouts: tuple[RelayoutRun, ...]
    ndp_gbps: float
    host_gbps: float
    commands: Mapping[str, int]
    energy_nj: Mapping[str, float | None] | None
    energy_note: str = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    wall_s: float
    compile_s: float = field(repr=False)
    command_traces: tuple[CommandTrace, ...] = field(default=(), repr=False)
