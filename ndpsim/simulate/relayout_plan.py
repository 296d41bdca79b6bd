"""The moves of experts: DIMMs of sources and targets, and the nodes that read and write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ndpsim.base.arguments import several, whole_number
from ndpsim.base.errors import InputError, shown
from ndpsim.base.limits import ensure_fits
from ndpsim.base.units import frequency_period_ps
from ndpsim.config import Hardware
from ndpsim.dimm.layout import ExpertWeights, Geometry, Layout, make_layout, parse_layout
from ndpsim.dimm.link import Bridge, link_ticks, make_network
from ndpsim.dimm.link.packing import LanesOfDimms
from ndpsim.dram import state
from ndpsim.dram.controllers.one_command import OneCommand
from ndpsim.dram.spec import Device
from ndpsim.simulate.lane import Ints
from ndpsim.simulate.memory import bus_policy
from ndpsim.simulate.relayout_run import Access, CommandBuses, Transfer

# Bytes of memory, measured and rounded up: for a read or written burst, a lane's controller, and a command.
_BYTES_OF_A_BURST = 512
_BYTES_OF_A_LANE = 1 << 18
_BYTES_RECORDED = 128


def _to_host(geometry: Geometry) -> tuple[Ints, Ints]:
    """The bus to the host of each lane of a machine, counted over all channels, and the lane's rank there."""
    dimm, lane = np.divmod(np.arange(geometry.dimms * geometry.lanes), geometry.lanes)
    bus = geometry.channel_of(dimm) * geometry.subchannels + lane % geometry.subchannels
    return bus, geometry.host_rank(dimm, lane) * geometry.device.ranks


def _policy(hardware: Hardware, device: Device) -> state.Policy:
    """The controller of a lane or a bus.

    Raises:
        InputError: the device does not have this kind of refresh, or gets several commands at a time.
    """
    policy = bus_policy(hardware.system.dram, device)
    if not isinstance(policy.step, OneCommand):
        problem = f"not supported: a relayout under the controller {device.standard.controller}"
        raise hardware.origins["dram.standard"].error(problem, "dram.standard", "unsupported")
    return policy


def access_by_units(hardware: Hardware, geometry: Geometry) -> Access:
    """The relayout units of the DIMMs and the links between them.

    Raises:
        InputError: the file describes no links, or invalid ones.
    """
    link, device, host_gbps = hardware.system.link, geometry.device, hardware.dimm_host_gbps
    if link is None:
        problem = "is missing: there are no links between DIMMs"
        raise InputError(problem, "missing", file=hardware.file, key="link")
    unit = hardware.relayout
    bridge = Bridge(link.group_dimms, geometry.channels, host_gbps, link.host_latency_ns)
    with hardware.errors_at_origins():
        network = make_network(
            link.topology, geometry.dimms, link.ports, link.link_gbps, link.hop_latency_ns, bridge
        )
        if link.packet_bytes < device.burst_bytes:
            problem = f"{link.packet_bytes} is less than a burst, {device.burst_bytes} bytes"
            raise InputError(problem, "range", key="link.packet_bytes")
    lane = np.arange(geometry.dimms * geometry.lanes, dtype=np.int32)
    half = unit.buffer_kib * 1024 // 2
    slots = half // device.burst_bytes
    return Access(
        device=device,
        policy=_policy(hardware, device),
        lanes=geometry.lanes,
        network=network,
        slots=slots,
        receive_bytes=half,
        many_reads=max(1, min(hardware.system.dram.read_buffer, slots // geometry.lanes)),
        packet_bytes=link.packet_bytes,
        header_bytes=link.header_bytes,
        timebase=link_ticks(network, device.clock_ps, frequency_period_ps(unit.clock_mhz)),
        dimm_lanes=LanesOfDimms(lane // geometry.lanes, lane, 0 * lane),
        command_buses=_command_buses(hardware, geometry),
    )


def _command_buses(hardware: Hardware, geometry: Geometry) -> CommandBuses | None:
    """The command buses that the ranks of a DIMM share, if any.

    Raises:
        InputError: the ranks are in lock step.
    """
    kind, standard = hardware.system.dimm.command_bus, geometry.device.standard
    if kind == "private" or geometry.ranks == 1:
        return None
    if kind == "broadcast":
        problem = "not supported: a relayout by ranks in lock step (broadcast)"
        raise InputError(problem, "unsupported", file=hardware.file, key="dimm.command_bus")
    (bus, rank), buses = _to_host(geometry), geometry.channels * geometry.subchannels
    return CommandBuses(
        buses=buses,
        channel_ranks=-(-geometry.dimms // geometry.channels) * geometry.ranks,
        dimm_ranks=geometry.ranks,
        clocks=np.array([command.cycles for command in standard.by_number], dtype=np.int64),
        lane=rank * buses + bus,
    )


def access_by_host(hardware: Hardware, geometry: Geometry) -> Access:
    """The host as a single node, whose lanes are the buses of its channels."""
    dram = hardware.system.dram
    device = hardware.bus_device(-(-geometry.dimms // geometry.channels) * geometry.ranks)
    buses = min(geometry.channels, geometry.dimms) * geometry.subchannels
    network = make_network("chain", 1, 0, 1.0, 0.0)
    bus, rank = (numbers.astype(np.int32) for numbers in _to_host(geometry))
    return Access(
        device=device,
        policy=_policy(hardware, device),
        lanes=buses,
        network=network,
        slots=buses * dram.read_buffer,
        many_reads=buses * dram.read_buffer + 1,  # never; a host is as fast without
        receive_bytes=buses * dram.write_buffer * device.burst_bytes,
        packet_bytes=device.burst_bytes,
        header_bytes=0,
        timebase=link_ticks(network, device.clock_ps, device.clock_ps),
        dimm_lanes=LanesOfDimms(0 * bus, bus, rank),
    )


def first_dimms(
    source: str,
    target: str,
    source_dimms: Sequence[int] | None,
    target_dimms: Sequence[int] | None,
    experts: int,
    count: int,
) -> tuple[list[int], list[int]]:
    """The first DIMM of each expert in two layouts: as given, or spread evenly.

    If both layouts are the same, each expert moves to the next DIMM (or DIMMs).
    """
    first = _first_dimms(source_dimms, source, experts, count, "source")
    second = _first_dimms(target_dimms, target, experts, count, "target")
    if target_dimms is None and source == target != "striped":
        width = max(parse_layout(target)[1], 1)
        second = [(dimm + width) % (count // width * width) for dimm in first]
    return first, second


def _first_dimms(dimms: Sequence[int] | None, layout: str, experts: int, count: int, end: str) -> list[int]:
    try:
        kind, slices = parse_layout(layout)
    except InputError as error:
        raise error.at(key=end) from None
    if kind == "sharded" and not 1 <= slices <= count:
        raise InputError(f"{layout} is not possible with {count} DIMMs", "range", key=end)
    key = f"{end}_dimms"
    if dimms is None:
        places = 1 if kind == "striped" else max(count // max(slices, 1), 1)
        return [expert * places // experts * max(slices, 1) for expert in range(experts)]
    first = several(dimms, key, lambda dimm, name: _dimm(dimm, name, count))
    if len(first) != experts:
        raise InputError(f"{len(first)} DIMMs for {experts} experts; give one for each", "conflict", key=key)
    for dimm in first:
        if kind == "striped" and dimm:
            problem = f"{dimm} is not the first DIMM of striped, which takes all from 0 on"
            raise InputError(problem, "range", key=key)
        if dimm + slices > count:
            problem = f"{layout} from DIMM {dimm} on is not possible with {count} DIMMs"
            raise InputError(problem, "range", key=key)
    return list(first)


def neighbouring_dimms(layout: str, experts: int, count: int) -> list[int]:
    """The first DIMM of each expert, on neighbouring DIMMs where `first_dimms` spreads experts evenly."""
    kind, slices = parse_layout(layout)
    width = count if kind == "striped" else max(slices, 1)
    return [expert * width % (count // width * width) for expert in range(experts)]


def _dimm(value: Any, name: str, count: int) -> int:
    try:
        return whole_number(value, name, 0, count - 1)
    except InputError:
        raise InputError(f"{shown(value)} is not a DIMM, 0 to {count - 1}", "range", key=name) from None


def plan_transfers(
    geometry: Geometry,
    weights: ExpertWeights,
    source: tuple[str, list[int]],
    target: tuple[str, list[int]],
    used: list[int] | None = None,
) -> list[Transfer]:
    """The experts that have to move, sorted by their DIMMs; all others are already at their target.

    Experts are equal, so the order of the arguments makes no difference.

    Args:
        source, target: a layout, and the first DIMM of each expert.
        used: the number of occupied places in lanes by DIMM, to which those of the experts are added.
    """
    taken = [0] * geometry.dimms if used is None else used

    def place(layout: str, dimm: int, end: str) -> Layout:
        """An expert after the existing ones; `end` names the layout in errors."""
        try:
            where = make_layout(layout, geometry, weights, dimm)
        except InputError as error:
            raise error.at(key=end if error.key == "layout" else error.key) from None
        base = max(taken[number] for number in where.dimms)
        placed = make_layout(layout, geometry, weights, dimm, base) if base else where
        for number in placed.dimms:
            taken[number] = placed.end
        return placed

    ends = sorted(zip(source[1], target[1], strict=True))
    away = [pair for pair in ends if source[0] != target[0] or pair[0] != pair[1]]
    sources = [place(source[0], first, "source") for first, _ in away]
    targets = [place(target[0], second, "target") for _, second in away]
    return [Transfer(*pair) for pair in zip(sources, targets, strict=True)]


def ensure_transfers_fit(transfers: Sequence[Transfer], record_commands: bool) -> None:
    """Check that memory suffices to move the experts at the same time."""
    if not transfers:
        return
    geometry = transfers[0].source.geometry
    lanes = geometry.dimms * geometry.lanes
    bursts = sum(expert.source.bursts + expert.target.bursts for expert in transfers)
    ensure_fits(
        bursts * _BYTES_OF_A_BURST + lanes * _BYTES_OF_A_LANE,
        f"{len(transfers)} experts of {bursts} bursts, read and written, at once on {lanes} lanes",
    )
    if record_commands:
        busiest = sum(max(layout.end for layout in layouts) for layouts in zip(*transfers, strict=True))
        needed = lanes * busiest * _BYTES_RECORDED  # every lane has the room of the busiest
        ensure_fits(needed, f"a record of {busiest} reads and writes on a lane")
