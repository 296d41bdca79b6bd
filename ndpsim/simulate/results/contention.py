"""The result of an expert concurrent with the host's traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ndpsim.base.reported import Reported, quantity
from ndpsim.dram.traces import CommandTrace
from ndpsim.simulate.results.expert import JobTime, Phase


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
