"""Requests through the controller of one channel."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram import sink, state
from ndpsim.dram.mapping import MAPPERS, map_addresses
from ndpsim.errors import InputError, one_of
from ndpsim.simulate.lane import check_refresh, command_room, decode_commands, no_commands, run_channel
from ndpsim.spec import COMMANDS, Device, lower, resolve
from ndpsim.traces import CommandTrace, Requests, read_requests

__all__ = ["TraceResult", "run_trace"]

_CHOICES = {
    "scheduler": ("FRFCFS", "FRFCFS-RowHit"),
    "row_policy": ("open", "closed-cap"),
    "refresh": ("all-bank", "none"),
}
_MAX_SLOTS = 1024


@dataclass(frozen=True)
class TraceResult:
    """A request trace run to its end on one channel.

    `cycles` counts DRAM clocks from 0 to the last beat of data; `accepted` holds the counters of the
    clock in which the last request was taken, where the reference controller's runs end.

    Attributes:
        requests, reads, writes: how many.
        cycles, time_ns, clock_ns: how long.
        bandwidth_gbps: bytes moved over `time_ns`; `peak_fraction` of `peak_bandwidth_gbps`.
        row_hits, row_misses, row_conflicts: what requests found at their first command.
        reads_forwarded, writes_coalesced: requests that a queued write made needless.
        read_latency_ns: mean, from arrival to the last beat.
        commands: DRAM commands by kind.
        config: everything that was used.
        wall_s: how long the simulation took.
        command_trace: when asked for.
    """

    requests: int
    reads: int
    writes: int
    cycles: int
    time_ns: float
    clock_ns: float
    bandwidth_gbps: float
    peak_bandwidth_gbps: float
    peak_fraction: float
    row_hits: int
    row_misses: int
    row_conflicts: int
    reads_forwarded: int
    writes_coalesced: int
    read_latency_ns: float | None
    commands: Mapping[str, int]
    accepted: Mapping[str, Any]
    config: Mapping[str, Any]
    wall_s: float
    command_trace: CommandTrace | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the command trace is left out."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "command_trace"}


def _counts(channel: state.Channel) -> dict[str, Any]:
    value = channel.value
    return {
        "row_hits": int(value[state.ROW_HITS]),
        "row_misses": int(value[state.ROW_MISSES]),
        "row_conflicts": int(value[state.ROW_CONFLICTS]),
        "reads_forwarded": int(value[state.FORWARDED]),
        "writes_coalesced": int(value[state.COALESCED]),
        "commands": {
            command.name: int(count) for command, count in zip(COMMANDS, channel.issued, strict=True) if count
        },
    }


def _checked_options(options: Mapping[str, Any]) -> state.ControllerOptions:
    for name, allowed in _CHOICES.items():
        if options[name] not in allowed:
            raise InputError(one_of(options[name], allowed, name.replace("_", " ")), key=name)
    for name in ("read_buffer", "write_buffer", "row_cap"):
        number = options[name]
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _MAX_SLOTS:
            raise InputError(f"{number!r} is not a whole number from 1 to {_MAX_SLOTS}", key=name)
    return state.ControllerOptions(**options)


def _source(requests: Requests, device: Device, mapper: str) -> state.Source:
    beyond = np.flatnonzero(requests.address >= device.capacity_bytes)
    if len(beyond):
        first = int(beyond[0])
        raise InputError(
            f"address {int(requests.address[first]):#x} is beyond the channel's "
            f"{device.capacity_bytes:#x} bytes",
            file=requests.file,
            line=requests.line(first),
        )
    places = map_addresses(requests.address, MAPPERS[mapper], device)
    return state.make_source(lower(device), *places, requests.write, requests.address)


def run_trace(
    requests: str | Path | tuple[NDArray[np.int64], NDArray[np.int64]],
    standard: str,
    org: str,
    timing: str,
    ranks: int = 1,
    overrides: Mapping[str, int] | None = None,
    mapper: str = "RoBaRaCoCh",
    scheduler: str = "FRFCFS",
    row_policy: str = "open",
    row_cap: int = 4,
    refresh: str = "all-bank",
    read_buffer: int = 32,
    write_buffer: int = 32,
    record_commands: bool = False,
) -> TraceResult:
    """Run requests, offered one a clock as fast as they are taken, until all are done.

    Args:
        requests: a trace file of ``LD 0x..``/``ST 0x..`` lines, gzip or not, or (byte addresses,
            1 where a write), two integer arrays of one length.
        standard, org, timing, ranks, overrides: the channel, as in `spec.resolve`.
        mapper: how addresses become coordinates: one of `dram.mapping.MAPPERS`.
        scheduler: "FRFCFS" or "FRFCFS-RowHit".
        row_policy: "open", or "closed-cap": close a row after `row_cap` column accesses.
        refresh: "all-bank" or "none".
        read_buffer, write_buffer: slots of the queues.
        record_commands: keep the command trace.

    Raises:
        InputError: a name, a number or the trace makes no sense, or an address is beyond the channel.
    """
    began = time.perf_counter()
    if mapper not in MAPPERS:
        raise InputError(one_of(mapper, MAPPERS, "mapper"), key="mapper")
    settings = {
        "scheduler": scheduler,
        "row_policy": row_policy,
        "row_cap": row_cap,
        "refresh": refresh,
        "read_buffer": read_buffer,
        "write_buffer": write_buffer,
    }
    policy = state.make_policy(_checked_options(settings))
    device = resolve(standard, org, timing, ranks, overrides)
    check_refresh(device, refresh)
    stream = read_requests(requests) if isinstance(requests, (str, Path)) else Requests.of(*requests)
    source, tables = _source(stream, device, mapper), lower(device)

    channel, count = state.make_channel(tables, policy), len(stream.address)
    commands = command_room() if record_commands else no_commands()
    nobody = sink.nobody()
    commands = run_channel(tables, policy, source, channel, nobody, commands, state.FAR, until_taken=count)
    accepted = {"cycles": int(channel.value[state.CLOCK]) - 1, **_counts(channel)}
    commands = run_channel(tables, policy, source, channel, nobody, commands, until_served=count)

    writes = int(stream.write.sum())
    end = max(int(channel.value[state.DATA_END]), int(channel.value[state.CLOCK]) - 1)
    moved = (
        int(channel.value[state.SERVED])
        - int(channel.value[state.FORWARDED])
        - int(channel.value[state.COALESCED])
    )
    gbps = float(Fraction(moved * device.burst_bytes, end) / device.clock_ps * 1000)
    clock_ns = float(device.clock_ps / 1000)
    return TraceResult(
        requests=count,
        reads=count - writes,
        writes=writes,
        cycles=end,
        time_ns=float(end * device.clock_ps / 1000),
        clock_ns=clock_ns,
        bandwidth_gbps=gbps,
        peak_bandwidth_gbps=device.peak_gbps,
        peak_fraction=gbps / device.peak_gbps,
        read_latency_ns=int(channel.value[state.READ_LATENCY]) / (count - writes) * clock_ns
        if count > writes
        else None,
        accepted=accepted,
        config={
            "standard": standard,
            "org": org,
            "timing": timing,
            "ranks": ranks,
            "overrides": dict(overrides or {}),
            "timings": dict(device.timings),
            "mapper": mapper,
            **settings,
        },
        wall_s=time.perf_counter() - began,
        command_trace=decode_commands(commands, tables) if record_commands else None,
        **_counts(channel),
    )
