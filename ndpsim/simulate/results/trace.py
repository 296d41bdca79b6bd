"""The result of a run of requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ndpsim.base.reported import Reported, quantity
from ndpsim.dram.traces import CommandTrace


@dataclass(frozen=True, eq=False, repr=False)
class TraceResult(Reported):
    """The result of a request trace; every request was served.

    Counters are summed over the channels. Times are in ns, cycles in DRAM clocks, from clock 0.

    Attributes:
        requests, reads, writes: the number of each.
        cycles: clocks until the last beat of read data or the last command; `time_ns`: the same in ns;
            `clock_ns`: the clock period.
        bandwidth_gbps: bytes moved over `time_ns`; `peak_fraction`: its share of `peak_bandwidth_gbps`.
        row_hits, row_misses, row_conflicts: state of the row at a request's first command.
        reads_forwarded, writes_coalesced: requests that a queued write answered or absorbed.
        read_latency_ns: from arrival to the last beat: mean, p50, p90, p99, max; None without reads.
        read_latency_histogram: number of `reads` with latencies from `from_ns` to below `to_ns`.
        read_latency_distribution: number of `reads` with a latency of at most `ns`; the entries are closer
            together at the slow end.
        queue_occupancy: mean requests in the read and in the write queue of a channel.
        commands: DRAM commands by kind.
        accepted: counters at the clock in which the last request was taken, where the reference's runs end;
            None with several channels.
        per_channel: requests, cycles and bandwidth_gbps of each.
        fast_forwarded: share of the requests that fast-forward skipped; results are exact.
        energy_nj: by component (`energy.split`), and their `total`, with background to the end of `cycles`;
            None if the DRAM's currents are not known. `energy_note` names the sources, or the reason why the
            energy is missing.
        config: everything that was used.
        run_s: duration of the controllers' run, also for a result from a cache.
        wall_s: duration of the call without reading the trace.
        compile_s: compile time of kernels, which is not in `run_s` and `wall_s`.
        command_traces: the commands of each channel, if requested.
    """

    requests: int = field(metadata=quantity("requests", beside=("reads", "writes")))
    reads: int = field(metadata=quantity("reads"))
    writes: int = field(metadata=quantity("writes"))
    cycles: int = field(metadata=quantity("clock cycles"))
    time_ns: float = field(metadata=quantity("time", beside=("cycles", "clock_ns")))
    clock_ns: float = field(metadata=quantity("clock period"))
    bandwidth_gbps: float = field(
        metadata=quantity("bandwidth", whole="peak_bandwidth_gbps", share="peak_fraction")
    )
    peak_bandwidth_gbps: float = field(metadata=quantity("peak bandwidth"))
    peak_fraction: float = field(metadata=quantity("share of the peak bandwidth"))
    row_hits: int = field(metadata=quantity("row hits", beside=("row_misses", "row_conflicts")))
    row_misses: int = field(metadata=quantity("row misses"))
    row_conflicts: int = field(metadata=quantity("row conflicts"))
    reads_forwarded: int = field(
        metadata=quantity("reads forwarded from queued writes", beside=("writes_coalesced",))
    )
    writes_coalesced: int = field(metadata=quantity("writes coalesced"))
    read_latency_ns: Mapping[str, float] | None = field(metadata=quantity("read latency"))
    read_latency_histogram: tuple[Mapping[str, float], ...] = field(repr=False)
    read_latency_distribution: tuple[Mapping[str, float], ...] = field(repr=False)
    queue_occupancy: Mapping[str, float] = field(metadata=quantity("requests in a queue, mean"))
    commands: Mapping[str, int] = field(metadata=quantity("DRAM commands"))
    accepted: Mapping[str, Any] | None = field(repr=False)
    per_channel: tuple[Mapping[str, Any], ...] = field(repr=False)
    fast_forwarded: float = field(metadata=quantity("requests skipped by exact fast-forward", "%"))
    energy_nj: Mapping[str, float | None] | None = field(metadata=quantity("energy"))
    energy_note: str = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    run_s: float
    wall_s: float
    compile_s: float = field(repr=False)
    command_traces: tuple[CommandTrace, ...] = field(default=(), repr=False)
