"""The result of a host that reads an expert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ndpsim.base.reported import Reported, quantity
from ndpsim.dram.traces import CommandTrace


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
