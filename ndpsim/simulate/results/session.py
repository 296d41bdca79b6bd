"""The result of a session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ndpsim.base.reported import Reported
from ndpsim.dram.traces import CommandTrace


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
