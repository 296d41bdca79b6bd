"""Relayout: experts move from one layout to another, by the relayout units of DIMMs, or by the host.

Each DIMM's unit reads its bursts in order into one half of its buffer, sends them as packets, receives into
the other half, and writes: `ndpsim.link.moving` says exactly when. Experts beyond those that may migrate at
once wait until the ones before have arrived.

The host does the same through its channels: it reads each burst, and writes it when it has it, with as many
bursts in flight as its controllers' queues hold. No time on its cores is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ndpsim.arguments import flag, progress_function, several, shown, text, whole_number
from ndpsim.config import Hardware, load_hardware
from ndpsim.dram import state
from ndpsim.dram.masks.state import fits
from ndpsim.energy import transfer_nj
from ndpsim.errors import InputError
from ndpsim.layout import ExpertFormat, ExpertWeights, Geometry, Layout, Places, make_layout, parse_layout
from ndpsim.limits import ensure_fits
from ndpsim.link import Bridge, Network, link_ticks, make_network
from ndpsim.moe import Expert, MoeShape
from ndpsim.reported import Reported
from ndpsim.simulate.geometry import geometry_of
from ndpsim.simulate.lane import check_refresh, name_commands
from ndpsim.simulate.memory import controller_options
from ndpsim.simulate.moving import Mover, Moving, Run, run_moving
from ndpsim.simulate.power import DramPower, Energy, dram_power
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.simulate.result_cache import Lookup, ResultCache
from ndpsim.simulate.samples import equal_clocks, sample_clocks
from ndpsim.simulate.stopwatch import Stopwatch
from ndpsim.simulate.weights import describe_weights, named_weights
from ndpsim.spec import Device, lower
from ndpsim.traces import CommandTrace
from ndpsim.units import frequency_period_ps

__all__ = ["MAX_EXPERTS", "HostMove", "RelayoutResult", "Stretch", "simulate_relayout"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Progress = Callable[[float], None]

#: Most experts of one call.
MAX_EXPERTS = 64

# Memory, measured and rounded up: of a burst that is read or written, of a lane's controller, of a command.
_BYTES_OF_A_BURST = 512
_BYTES_OF_A_LANE = 1 << 18
_BYTES_RECORDED = 128


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

    time_ns: float
    bandwidth_gbps: float
    bus_busy: float
    bound_ns: float
    commands: Mapping[str, int]
    energy_nj: Mapping[str, float | None] | None


@dataclass(frozen=True, eq=False, repr=False)
class RelayoutResult(Reported):
    """Experts moved from one layout to another.

    Attributes:
        time_ns: from the first DRAM command to the last beat written.
        cycles: the same in DRAM clocks.
        clock_ns: the DRAM clock.
        experts: experts asked for.
        moved: those of them that do not lie where they shall already.
        waves: groups of them that moved one after the other.
        weight_bytes: bytes of weights, scales and zero points of those that moved.
        read_bytes, sent_bytes, kept_bytes, written_bytes: of these, read; sent over links; moved within their
            DIMM; written. The second and third make the first, which equals the fourth.
        wire_bytes: sent over links, with headers, each packet once.
        bandwidth_gbps: weight bytes over `time_ns`.
        topology: of the links.
        link_busy: share of the time for which each wire carried packets, by name; those that did.
        dram_busy: share of the time for which the busiest lane's data bus carried reads ("read"), writes
            ("write") and either ("both").
        bounds_ns: the time that each resource needs at least: "links" (the busiest wire), "source DRAM",
            "target DRAM" (data on the bus of the busiest lane that reads, or writes), "DRAM" (either).
        bottleneck: the one that needs longest, with its name: "link dimm 0 to 1", "source DRAM", ... Where
            the time is far above its bound, buffers, row changes or turnarounds hold it back.
        transit_bytes: what the buffers of a DIMM's router have to hold, at most.
        commands: DRAM commands by kind; those of a lane end with its last data.
        host: the same move by the host; None where it was not asked for.
        host_speedup: the host's time over `time_ns`.
        stretches: which DIMM read and wrote when.
        energy_nj: by component, and their `total`, of all DIMMs and links; None where nothing moved or is
            known of the DRAM's currents. `energy_note` says what it rests on, or why.
        curve_ns, read_gbps, written_gbps: ends of equal times, which are whole refresh intervals or equal
            parts of one (the last may be shorter), and what came from DRAM and arrived for it in each.
        config: everything that was used.
        wall_s: how long the call took, without `compile_s`; next to nothing with a result from a cache.
        compile_s: how long kernels were compiled for it; 0 when they were in the cache.
        command_traces: by wave, then by DIMM and lane, when asked for.
    """

    _shown_fields: ClassVar[tuple[str, ...]] = (
        "time_ns",
        "cycles",
        "experts",
        "moved",
        "waves",
        "weight_bytes",
        "sent_bytes",
        "kept_bytes",
        "wire_bytes",
        "bandwidth_gbps",
        "topology",
        "link_busy",
        "dram_busy",
        "bounds_ns",
        "bottleneck",
        "commands",
        "host",
        "host_speedup",
        "energy_nj",
        "wall_s",
    )

    time_ns: float
    cycles: int
    clock_ns: float
    experts: int
    moved: int
    waves: int
    weight_bytes: int
    read_bytes: int
    sent_bytes: int
    kept_bytes: int
    written_bytes: int
    wire_bytes: int
    bandwidth_gbps: float
    topology: str
    link_busy: Mapping[str, float]
    dram_busy: Mapping[str, float]
    bounds_ns: Mapping[str, float]
    bottleneck: str
    transit_bytes: int
    commands: Mapping[str, int]
    host: HostMove | None
    host_speedup: float | None
    stretches: tuple[Stretch, ...]
    energy_nj: Mapping[str, float | None] | None
    energy_note: str
    curve_ns: tuple[float, ...]
    read_gbps: tuple[float, ...]
    written_gbps: tuple[float, ...]
    config: Mapping[str, Any]
    wall_s: float
    compile_s: float
    command_traces: tuple[tuple[CommandTrace, ...], ...] = field(default=(), repr=False)


def network_of(hardware: Hardware) -> Network:
    """The links between the DIMMs of a machine.

    Raises:
        InputError: the file describes none, or DIMMs have too few ports for the topology.
    """
    system, link = hardware.system, hardware.system.link
    if link is None:
        raise InputError("is missing: there are no links between DIMMs", file=hardware.file, key="link")
    bridge = Bridge(link.group_dimms, system.host.channels, hardware.dimm_host_gbps, link.host_latency_ns)
    try:
        return make_network(
            link.topology, system.dimm.count, link.ports, link.link_gbps, link.hop_latency_ns, bridge
        )
    except InputError as error:
        key = f"link.{error.key}"
        raise hardware.origins[key].error(error.problem, key) from None


def _policy(hardware: Hardware, device: Device) -> state.Policy:
    """The controller of a lane or a bus."""
    dram = hardware.system.dram
    check_refresh(device, dram.refresh)
    policy = state.make_policy(controller_options(dram))
    if not fits(lower(device), policy, with_sink=False):
        problem = (
            "a relayout is simulated with row_policy: open, queues of up to 64 requests and up to 16 ranks "
            "on a bus only"
        )
        raise InputError(problem, file=hardware.file, key="dram")
    return policy


def _write_latency(device: Device) -> int:
    return device.timings["nCWL"] + device.timings["nBL"]


def _by_units(hardware: Hardware, geometry: Geometry) -> Mover:
    """The relayout units of the DIMMs and the links between them."""
    network, device, unit = network_of(hardware), geometry.device, hardware.relayout
    half = unit.buffer_kib * 1024 // 2
    link = hardware.system.link
    assert link is not None
    if link.packet_bytes < device.burst_bytes:
        problem = f"{link.packet_bytes} is less than a burst, {device.burst_bytes} bytes"
        raise hardware.origins["link.packet_bytes"].error(problem, "link.packet_bytes")
    return Mover(
        tables=lower(device),
        policy=_policy(hardware, device),
        burst_bytes=device.burst_bytes,
        write_latency=_write_latency(device),
        lanes=geometry.lanes,
        network=network,
        slots=half // device.burst_bytes,
        receive_bytes=half,
        packet_bytes=link.packet_bytes,
        header_bytes=link.header_bytes,
        timebase=link_ticks(network, device.clock_ps, frequency_period_ps(unit.clock_mhz)),
        place=lambda places: (places.dimm, places.lane, np.zeros_like(places.lane)),
    )


def _by_host(hardware: Hardware, geometry: Geometry) -> Mover:
    """The host: one node, whose lanes are the buses of its channels."""
    dram = hardware.system.dram
    device = hardware.bus_device(-(-geometry.dimms // geometry.channels) * geometry.ranks)
    buses = min(geometry.channels, geometry.dimms) * geometry.subchannels
    network = make_network("chain", 1, 0, 1.0, 0.0)

    def place(places: Places) -> tuple[Ints, Ints, Ints]:
        bus = geometry.channel_of(places.dimm) * geometry.subchannels + places.lane % geometry.subchannels
        return np.zeros_like(bus), bus, geometry.host_rank(places.dimm, places.lane)

    return Mover(
        tables=lower(device),
        policy=_policy(hardware, device),
        burst_bytes=device.burst_bytes,
        write_latency=_write_latency(device),
        lanes=buses,
        network=network,
        slots=buses * dram.read_buffer,
        receive_bytes=buses * dram.write_buffer * device.burst_bytes,
        packet_bytes=device.burst_bytes,
        header_bytes=0,
        timebase=link_ticks(network, device.clock_ps, device.clock_ps),
        place=place,
    )


def _first_dimms(dimms: Sequence[int] | None, layout: str, experts: int, count: int, end: str) -> list[int]:
    """The first DIMM of each expert: as given, or spread evenly."""
    try:
        kind, slices = parse_layout(layout)
    except InputError as error:
        raise InputError(error.problem, key=end) from None
    if kind == "sharded" and not 1 <= slices <= count:
        raise InputError(f"{layout} is not possible with {count} DIMMs", key=end)
    key = f"{end}_dimms"
    if dimms is None:
        places = 1 if kind == "striped" else max(count // max(slices, 1), 1)
        return [expert * places // experts * max(slices, 1) for expert in range(experts)]
    first = several(dimms, key, lambda dimm, name: _dimm(dimm, name, count))
    if len(first) != experts:
        raise InputError(f"{len(first)} DIMMs for {experts} experts; give one for each", key=key)
    for dimm in first:
        if kind == "striped" and dimm:
            raise InputError(f"{dimm} is not the first DIMM of striped, which takes all from 0 on", key=key)
        if dimm + slices > count:
            raise InputError(f"{layout} from DIMM {dimm} on is not possible with {count} DIMMs", key=key)
    return list(first)


def _dimm(value: Any, name: str, count: int) -> int:
    try:
        return whole_number(value, name, 0, count - 1)
    except InputError:
        raise InputError(f"{shown(value)} is not a DIMM, 0 to {count - 1}", key=name) from None


class _Memory:
    """What of the machine's lanes is taken."""

    def __init__(self, geometry: Geometry, weights: ExpertWeights) -> None:
        self.geometry, self.weights, self.used = geometry, weights, [0] * geometry.dimms

    def place(self, layout: str, dimm: int, end: str) -> Layout:
        """An expert behind those that are there; `end`: which of the two layouts it is, for the message."""
        try:
            where = make_layout(layout, self.geometry, self.weights, dimm)
        except InputError as error:
            raise InputError(error.problem, key=end if error.key == "layout" else error.key) from None
        base = max(self.used[of] for of in where.dimms)
        placed = make_layout(layout, self.geometry, self.weights, dimm, base) if base else where
        for of in placed.dimms:
            self.used[of] = placed.end
        return placed


def _plan(
    geometry: Geometry, weights: ExpertWeights, source: tuple[str, list[int]], target: tuple[str, list[int]]
) -> list[Moving]:
    """The experts that move; the rest lies where it shall."""
    memory = _Memory(geometry, weights)
    ends = [*zip(source[1], target[1], strict=True)]
    moving = [pair for pair in ends if source[0] != target[0] or pair[0] != pair[1]]
    sources = [memory.place(source[0], first, "source") for first, _ in moving]
    targets = [memory.place(target[0], second, "target") for _, second in moving]
    return [Moving(*pair) for pair in zip(sources, targets, strict=True)]


def _ensure_fits(moving: Sequence[Moving], record_commands: bool) -> None:
    """Make sure that experts may move at the same time, as far as memory goes."""
    if not moving:
        return
    geometry = moving[0].source.geometry
    lanes = geometry.dimms * geometry.lanes
    bursts = sum(expert.source.bursts + expert.target.bursts for expert in moving)
    ensure_fits(
        bursts * _BYTES_OF_A_BURST + lanes * _BYTES_OF_A_LANE,
        f"{len(moving)} experts of {bursts} bursts, read and written, at once on {lanes} lanes",
    )
    if record_commands:
        busiest = sum(max(layout.end for layout in layouts) for layouts in zip(*moving, strict=True))
        needed = lanes * busiest * _BYTES_RECORDED  # every lane has room for as many as the busiest
        ensure_fits(needed, f"a record of {busiest} reads and writes on a lane")


def simulate_relayout(
    hw: str | PathLike[str] | Hardware = "trimoe",
    model: str | PathLike[str] | MoeShape | Expert = "qwen3-235b-a22b",
    experts: int = 1,
    source: str = "localized",
    target: str = "striped",
    source_dimms: Sequence[int] | None = None,
    target_dimms: Sequence[int] | None = None,
    bits: int | ExpertFormat = 16,
    sets: Sequence[str] = (),
    host: bool = True,
    record_commands: bool = False,
    progress: Progress | None = None,
    cache: bool | ResultCache = False,
) -> RelayoutResult:
    """Move experts of a model from one layout to another, cycle by cycle.

    Args:
        hw: a bundled hardware name, a path of a hardware file, or a loaded `Hardware`.
        model: a bundled model name, a path of a Hugging Face config.json, what `load_model` returns, or an
            `Expert`.
        experts: how many, 1 to `MAX_EXPERTS`.
        source, target: the layouts: "localized", "striped", "sharded:N".
        source_dimms, target_dimms: the first DIMM of each expert; without, they are spread evenly, and from
            a layout to the same one each expert goes to the next DIMM (or DIMMs).
        bits: bits of a weight, 16, 8, 4, 3, 2 or 1, or the format of each matrix.
        sets: changes to the hardware, "link.topology=mesh".
        host: also simulate the same move by the host.
        record_commands: keep the command trace of every lane.
        progress: called with the share of the work that is done; None: nothing is called.
        cache: True, or a `ResultCache`, to find the result there where the very same was simulated before;
            with `record_commands` everything is simulated.

    Raises:
        InputError: an argument, the hardware or the model makes no sense, or does not fit.
    """
    stopwatch = Stopwatch()
    experts = whole_number(experts, "experts", 1, MAX_EXPERTS)
    source, target = text(source, "source"), text(target, "target")
    host, record_commands = flag(host, "host"), flag(record_commands, "record_commands")
    progress = progress_function(progress)
    hardware = load_hardware(hw, sets)
    weights, model_name = named_weights(model, bits)
    geometry = geometry_of(hardware)
    first = _first_dimms(source_dimms, source, experts, geometry.dimms, "source")
    second = _first_dimms(target_dimms, target, experts, geometry.dimms, "target")
    if target_dimms is None and source == target != "striped":
        width = max(parse_layout(target)[1], 1)
        second = [(dimm + width) % (geometry.dimms // width * width) for dimm in first]
    given = (hardware, weights, source, target, first, second, host)
    lookup = Lookup(RelayoutResult, cache, record_commands, given, {"model": model_name})
    if (found := lookup.find(stopwatch, progress)) is not None:
        return found
    moving = _plan(geometry, weights, (source, first), (target, second))
    progress(0.0)
    mover = _by_units(hardware, geometry)
    at_once = hardware.relayout.concurrent_experts
    _ensure_fits(moving[:at_once], record_commands)
    waves = [moving[n : n + at_once] for n in range(0, len(moving), at_once)]
    with hardware.errors_at_origins():
        runs = [run_moving(mover, wave, record_commands, progress) for wave in waves]
    by_host = _host_move(hardware, geometry, waves, progress) if host and waves else None
    config = {
        "hardware": hardware.to_dict(),
        **describe_weights(weights, model_name),
        "source": source,
        "target": target,
        "source_dimms": first,
        "target_dimms": second,
    }
    energy = _energy(hardware, mover, runs)
    return lookup.store(_result(mover, moving, runs, by_host, energy, config, experts, stopwatch))


def _dram(power: DramPower, mover: Mover, runs: Sequence[Run], others: Mapping[str, float | None]) -> Energy:
    """The energy of runs, whose lanes all draw power from the first to the last clock of each."""
    lanes = mover.network.dimms * mover.lanes * mover.tables.ranks
    return power.split(
        np.sum([run.issued for run in runs], axis=0),
        sum(run.end - 1 for run in runs) * lanes,
        sum(run.open_clocks for run in runs),
        others,
    )


def _energy(hardware: Hardware, mover: Mover, runs: Sequence[Run]) -> Energy:
    """The energy of all DIMMs, of the links, and of channels that bridge groups."""
    power = dram_power(hardware.lane_device(), hardware.power_changes)
    link, unit, network = hardware.system.link, hardware.relayout, mover.network
    assert link is not None, "there is a network"
    if not runs:
        return None, "nothing moved"
    bytes_over = [0.0, 0.0]  # links, channels
    wires = {hop.wire: hop for hop in network.hops}
    for wire, ticks in enumerate(np.sum([run.busy for run in runs], axis=0)):
        hop = wires[wire]
        over_channel = max(hop.source, hop.target) >= network.dimms
        bytes_over[over_channel] += mover.timebase.to_ns(int(ticks)) * hop.gbps
    passed = 2 * sum(run.bits.read for run in runs) // 8  # a buffer at each end
    static = None if unit.static_mw is None else unit.static_mw * network.dimms
    time_ns = mover.timebase.to_ns(sum(run.end - 1 for run in runs) * mover.timebase.ticks[0])
    others = {
        "ndp_relayout": None if unit.pj_per_byte is None else unit.pj_per_byte * passed / 1000,
        "ndp_static": None if static is None else static * time_ns / 1000,
        "link": transfer_nj(round(bytes_over[0]), link.pj_per_bit),
    }
    if bytes_over[1]:
        others["host"] = power.io_nj(round(bytes_over[1] / mover.burst_bytes))
    return _dram(power, mover, runs, others)


def _host_move(
    hardware: Hardware, geometry: Geometry, waves: Sequence[Sequence[Moving]], progress: Progress
) -> HostMove:
    mover = _by_host(hardware, geometry)
    runs = [run_moving(mover, wave, False, progress) for wave in waves]
    clock_ns = mover.timebase.to_ns(mover.timebase.ticks[0])
    time_ns = sum(run.end - 1 for run in runs) * clock_ns
    bound_ns = _bounds(mover, runs)["DRAM"]
    return HostMove(
        time_ns=time_ns,
        bandwidth_gbps=sum(run.bits.written for run in runs) / 8 / time_ns,
        bus_busy=bound_ns / time_ns,
        bound_ns=bound_ns,
        commands=name_commands(np.sum([run.issued for run in runs], axis=0)),
        energy_nj=_dram(dram_power(geometry.device, hardware.power_changes), mover, runs, {})[0],
    )


def _bounds(mover: Mover, runs: Sequence[Run]) -> dict[str, float]:
    """The least time of each resource in ns, over waves that follow each other."""
    tick, burst = mover.timebase.to_ns, mover.tables.burst * mover.timebase.ticks[0]
    return {
        "links": sum(tick(int(run.busy.max(initial=0))) for run in runs),
        "source DRAM": sum(tick(int(run.reads.max()) * burst) for run in runs),
        "target DRAM": sum(tick(int(run.writes.max()) * burst) for run in runs),
        "DRAM": sum(tick(int((run.reads + run.writes).max()) * burst) for run in runs),
    }


def _bottleneck(mover: Mover, runs: Sequence[Run], bounds: Mapping[str, float]) -> str:
    """The resource that needs longest; a wire by its name."""
    longest = max(bounds.values())
    if not longest:
        return "nothing"
    name = next(name for name, ns in bounds.items() if ns == longest)
    if name != "links":
        return name
    return f"link {mover.network.wire_names[int(np.argmax(np.sum([run.busy for run in runs], axis=0)))]}"


def _curve(mover: Mover, at_ns: Sequence[Floats], edges_ns: Floats) -> tuple[float, ...]:
    """Bursts that were somewhere at some times, as GB/s in each of the times between edges."""
    counts, _ = np.histogram(np.concatenate(at_ns), edges_ns)
    return tuple((counts * mover.burst_bytes / np.diff(edges_ns)).tolist())


def _stretches(name: str, node: Sequence[Ints], at_ns: Sequence[Floats]) -> list[Stretch]:
    """From when to when bursts of each node were somewhere, wave by wave."""
    return [
        Stretch(name, int(dimm), float(at[of == dimm].min()), float(at[of == dimm].max()))
        for of, at in zip(node, at_ns, strict=True)
        for dimm in np.unique(of)
    ]


def _result(
    mover: Mover,
    moving: Sequence[Moving],
    runs: Sequence[Run],
    host: HostMove | None,
    energy: Energy,
    config: Mapping[str, Any],
    experts: int,
    stopwatch: Stopwatch,
) -> RelayoutResult:
    clock_ns, tick_ns = mover.timebase.to_ns(mover.timebase.ticks[0]), mover.timebase.to_ns(1)
    ends = np.cumsum([0, *(run.end - 1 for run in runs)]) * clock_ns
    time_ns, cycles = float(ends[-1]), sum(run.end - 1 for run in runs)
    edges_ns: Floats = np.float64(clock_ns) * equal_clocks(
        cycles, sample_clocks(cycles, mover.tables.refresh_interval)
    )
    begins = ends[:-1] - FIRST_CLOCK * clock_ns  # of a wave: its tick 0 is a clock before its first command
    read_ns = [begin + run.read_tick * tick_ns for begin, run in zip(begins, runs, strict=True)]
    written_ns = [begin + run.write_tick * tick_ns for begin, run in zip(begins, runs, strict=True)]
    read, sent, _, written = (sum(run.bits[n] for run in runs) for n in range(4))
    wires = zip(
        mover.network.wire_names, np.sum([run.busy for run in runs], axis=0) if runs else (), strict=False
    )
    bounds = _bounds(mover, runs)
    dram = {"read": "source DRAM", "write": "target DRAM", "both": "DRAM"}
    return RelayoutResult(
        time_ns=time_ns,
        cycles=cycles,
        clock_ns=clock_ns,
        experts=experts,
        moved=len(moving),
        waves=len(runs),
        weight_bytes=sum(sum(expert.source.weights.matrix_bits()) for expert in moving) // 8,
        read_bytes=read // 8,
        sent_bytes=sent // 8,
        kept_bytes=read // 8 - sent // 8,
        written_bytes=written // 8,
        wire_bytes=sum(run.wire_bytes for run in runs),
        bandwidth_gbps=written / 8 / time_ns if runs else 0.0,
        topology=mover.network.topology,
        link_busy={name: float(ticks * tick_ns / time_ns) for name, ticks in wires if ticks},
        dram_busy={name: bounds[bound] / time_ns if runs else 0.0 for name, bound in dram.items()},
        bounds_ns=bounds,
        bottleneck=_bottleneck(mover, runs, bounds),
        transit_bytes=max((int(run.most_waiting.max()) for run in runs), default=0),
        commands=name_commands(np.sum([run.issued for run in runs], axis=0)) if runs else {},
        host=host,
        host_speedup=host.time_ns / time_ns if host else None,
        stretches=(
            *_stretches("read", [run.read_node for run in runs], read_ns),
            *_stretches("write", [run.write_node for run in runs], written_ns),
        ),
        energy_nj=energy[0],
        energy_note=energy[1],
        curve_ns=tuple(edges_ns[1:].tolist()),
        read_gbps=_curve(mover, read_ns, edges_ns) if runs else (),
        written_gbps=_curve(mover, written_ns, edges_ns) if runs else (),
        config=config,
        wall_s=stopwatch.wall_s(),
        compile_s=stopwatch.compile_s(),
        command_traces=tuple(run.traces for run in runs if run.traces),
    )
