"""The result of experts that move to another layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ndpsim.base.reported import Reported, quantity
from ndpsim.dram.traces import CommandTrace


@dataclass(frozen=True)
class Stretch:
    """From when to when a DIMM was at something ("read" or "write"), in ns."""

    name: str
    dimm: int
    start_ns: float
    end_ns: float


@dataclass(frozen=True, eq=False, repr=False)
class HostMove(Reported):
    """The same move by the host, through its channels.

    Attributes:
        time_ns: from the first command to the last beat written.
        bandwidth_gbps: weight bytes over `time_ns`.
        bus_busy: share of the time for which the busiest bus carried data.
        bound_ns: that bus's data without any gap.
        commands: DRAM commands by kind.
        energy_nj: as that of the relayout.
    """

    time_ns: float = field(metadata=quantity("time"))
    bandwidth_gbps: float = field(metadata=quantity("bandwidth"))
    bus_busy: float = field(metadata=quantity("busiest bus", "%"))
    bound_ns: float = field(metadata=quantity("lower bound on the time"))
    commands: Mapping[str, int]
    energy_nj: Mapping[str, float | None] | None = field(metadata=quantity("energy"))


@dataclass(frozen=True, eq=False, repr=False)
class OtherDimms(Reported):
    """The same experts on neighbouring DIMMs: on as many channels as there are, but close on the links.

    Attributes:
        source_dimms, target_dimms: the first DIMM of each expert.
        time_ns: as that of the relayout.
        host_time_ns, host_speedup: as those of the relayout; None where the host was not asked for.
    """

    source_dimms: list[int]
    target_dimms: list[int]
    time_ns: float
    host_time_ns: float | None
    host_speedup: float | None


@dataclass(frozen=True, eq=False, repr=False)
class RelayoutResult(Reported):
    """Experts moved from one layout to another.

    Attributes:
        time_ns: the time from the first DRAM command to the last beat written.
        cycles: the same in DRAM clocks.
        clock_ns: the DRAM clock.
        experts: number of experts.
        moved: experts that moved; the others were in place already.
        waves: groups of experts that moved one after the other.
        weight_bytes: bytes of weights, scales and zero points of those that moved.
        read_bytes, sent_bytes, local_bytes, written_bytes: bytes read; sent over links; moved within a DIMM;
            written. Sent and local bytes add up to bytes read, which equal bytes written.
        wire_bytes: bytes sent over links, with headers; each packet counts once.
        bandwidth_gbps: weight bytes over `time_ns`.
        topology: the topology of the links.
        link_busy: share of the time for which each wire carried packets, by name; without idle wires.
        dram_busy: share of the time for which the busiest lane's data bus carried reads ("read"), writes
            ("write") and either ("both").
        bounds_ns: lower bound of each resource: "links" (the busiest wire), "source DRAM", "target DRAM"
            (data on the bus of the busiest lane that reads, or writes), "DRAM" (either).
        bottleneck: the resource with the highest bound: "link dimm 0 to 1", "source DRAM", ... If the time is
            far above this bound, buffers, row changes or turnarounds delay it.
        transit_bytes: most bytes in the buffers of a DIMM's router.
        commands: DRAM commands by kind; those of a lane end with its last data.
        host: the same move by the host; None if not requested.
        host_speedup: the host's time over `time_ns`.
        other_dimms: the same move with experts on neighbouring DIMMs; None if not requested.
        stretches: times of reading and writing, by DIMM.
        energy_nj: by component, and their `total`, of all DIMMs and links; None if nothing moved, or if the
            DRAM's currents are not known. `energy_note` names the source, or the reason for None.
        curve_ns: ends of equal time slices: whole refresh intervals or equal parts of one; the last slice may
            be shorter.
        read_gbps, written_gbps: rates in each slice of reads from DRAM, and of data that arrived to be
            written.
        config: everything that was used.
        wall_s: duration of the call, without `compile_s`; almost 0 for a result from a cache.
        compile_s: duration of compiling kernels for it; 0 if they were in the cache.
        command_traces: the commands of each wave, DIMM and lane, if requested.
    """

    time_ns: float = field(metadata=quantity("time", beside=("cycles", "clock_ns")))
    cycles: int = field(metadata=quantity("clock cycles"))
    clock_ns: float = field(repr=False, metadata=quantity("clock period"))
    experts: int = field(metadata=quantity("experts"))
    moved: int = field(metadata=quantity("experts moved"))
    waves: int = field(metadata=quantity("waves"))
    weight_bytes: int = field(
        metadata=quantity("weights moved", beside=("sent_bytes", "local_bytes", "moved", "experts", "waves"))
    )
    read_bytes: int = field(repr=False)
    sent_bytes: int = field(metadata=quantity("sent over links"))
    local_bytes: int = field(metadata=quantity("moved within a DIMM"))
    written_bytes: int = field(repr=False)
    wire_bytes: int = field(metadata=quantity("sent with headers"))
    bandwidth_gbps: float = field(metadata=quantity("bandwidth"))
    topology: str = field(metadata=quantity("link topology", beside=("link_busy", "wire_bytes")))
    link_busy: Mapping[str, float] = field(metadata=quantity("wire busy", "%"))
    dram_busy: Mapping[str, float] = field(metadata=quantity("data bus of the busiest lane", "%"))
    bounds_ns: Mapping[str, float] = field(metadata=quantity("lower bounds on the time"))
    bottleneck: str = field(metadata=quantity("bottleneck", beside=("bounds_ns",)))
    transit_bytes: int = field(repr=False, metadata=quantity("transit buffer of a router, most used"))
    commands: Mapping[str, int] = field(metadata=quantity("DRAM commands"))
    host: HostMove | None = field(metadata=quantity("by the host"))
    host_speedup: float | None = field(metadata=quantity("speed-up over the host", beside=("host",)))
    other_dimms: OtherDimms | None = field(metadata=quantity("on other DIMMs"))
    stretches: tuple[Stretch, ...] = field(repr=False)
    energy_nj: Mapping[str, float | None] | None = field(metadata=quantity("energy"))
    energy_note: str = field(repr=False)
    curve_ns: tuple[float, ...] = field(repr=False)
    read_gbps: tuple[float, ...] = field(repr=False)
    written_gbps: tuple[float, ...] = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    wall_s: float
    compile_s: float = field(repr=False)
    command_traces: tuple[tuple[CommandTrace, ...], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class MovedExpert:
    """The fields of a `RelayoutResult` from which the cost of a move follows."""

    time_ns: float
    weight_bytes: int
    link_busy: Mapping[str, float]
    energy_nj: Mapping[str, float | None] | None
