"""A DIMM or device as integers, and an expert's weights on the lanes of one or several DIMMs."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np

from ndpsim.base.arguments import Sets, text
from ndpsim.base.caching import cached_by_identity
from ndpsim.base.errors import InputError
from ndpsim.base.reported import Reported, quantity
from ndpsim.base.units import common_ticks, exact, format_bytes, frequency_period_ps
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.layout import (
    ExpertFormat,
    ExpertWeights,
    Geometry,
    Interleaving,
    LaneShare,
    Layout,
    expert_format,
    make_layout,
)
from ndpsim.dimm.units import ActivationUnit, find_unit
from ndpsim.dram import sink, state
from ndpsim.dram.controllers.one_command import OneCommand
from ndpsim.dram.spec import lower
from ndpsim.simulate.lane import Ints, LaneStream, ensure_streams_fit
from ndpsim.simulate.memory import bus_policy
from ndpsim.simulate.power import dram_power, unit_energy
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.workload.models import Expert, MoeShape, load_model

# ---- The memory of a hardware file, for layouts


def geometry_of(hardware: Hardware) -> Geometry:
    """Channels, DIMMs and lanes of a machine.

    Raises:
        InputError: the file has no number of DIMMs, or a channel has none.
    """
    dimm, channels = hardware.system.dimm, hardware.system.host.channels
    return Geometry(channels, dimm.count, dimm.ranks, dimm.subchannels, hardware.lane_device())


def ensure_on_channel(hardware: Hardware) -> None:
    """Check that the host's memory is on channels.

    Raises:
        InputError: the memory is behind a CXL link.
    """
    if hardware.system.cxl is not None:
        problem = "not supported: the host has no channel to memory on a CXL link"
        raise InputError(problem, "unsupported", key="cxl")


# ---- Machines


_CACHED = 16  # cached hardware and placed experts for later calls


class NdpMachine:
    """A DIMM or device as integers, on which the program of an expert runs.

    Raises:
        InputError: the hardware file has no multipliers, or an unsupported machine.
    """

    def __init__(self, hardware: Hardware) -> None:
        name, section = hardware.ndp.multiplier
        self.unit, self.unit_mhz = find_unit(name, section.model_dump()), section.clock_mhz
        activation, system, device = hardware.ndp.activation, hardware.system, hardware.lane_device()
        self.policy = bus_policy(system.dram, device)
        self.geometry, self.device, self.tables = geometry_of(hardware), device, lower(device)
        self.schedule = state.schedule_of(self.tables, self.policy)  # the refresh schedule of a lane
        self.timebase = common_ticks(
            device.clock_ps,
            frequency_period_ps(self.unit_mhz) / self.unit.PARTS,
            frequency_period_ps(activation.clock_mhz),
        )
        self.dram_ticks, self.part_ticks, self.activation_ticks = self.timebase.ticks
        self.unit_ticks = self.part_ticks * self.unit.PARTS
        self.activation = ActivationUnit(
            activation.units, activation.cycles_per_value, activation.latency_cycles
        )
        self.link = system.cxl  # to the host, in each direction; None: the data buses of the sub-channels
        # The ranks of a sub-channel are in lock step, or share a command bus.
        self.lock_step = system.dimm.command_bus == "broadcast"
        self.shared_commands = system.dimm.command_bus == "shared"
        # `dimm` can run two controllers on a rank only if they issue one command a clock.
        self.shares_ranks = isinstance(self.policy.step, OneCommand)
        self.lanes, self.host_buses = hardware.lanes, system.dimm.subchannels
        self.dram_power = dram_power(device, hardware.power_changes)
        self.unit_energy = unit_energy(hardware)
        self.described = hardware.to_dict()  # plain data for the result

    @property
    def values_per_burst(self) -> int:
        """Activations in a burst."""
        return self.device.burst_bytes // self.unit.activation_bytes

    @property
    def activated(self) -> Callable[[Ints, int], int]:
        """The tick at which the last of several hidden values is activated; see `program.Queue`."""
        return functools.partial(self.activation.done, cycle_ticks=self.activation_ticks)

    def clocks_ns(self, clocks: int) -> float:
        """The time of this many DRAM clocks."""
        return self.timebase.to_ns(clocks * self.dram_ticks)

    def after_start_ns(self, tick: int) -> float:
        """The time of a tick, in ns after the first clock."""
        return self.timebase.to_ns(tick - FIRST_CLOCK * self.dram_ticks)

    def clock_after(self, tick: int) -> int:
        """The first clock at or after a tick."""
        return -(-tick // self.dram_ticks)

    def clock_at(self, ns: float) -> int:
        """The first clock at or after a time in ns after the first clock."""
        return FIRST_CLOCK - int(-(exact(ns) * 1000 / self.timebase.tick_ps) // self.dram_ticks)

    def release_tick(self, release_ns: float) -> int:
        """The tick of the first clock at or after the release of a job; 0 without a release."""
        return self.clock_at(release_ns) * self.dram_ticks if release_ns else 0

    def bus_ticks(self, bursts: int) -> int:
        """The time of bursts that all buses to the host share."""
        buses = self.host_buses * self.device.data_buses
        return -(-bursts // buses) * self.tables.burst * self.dram_ticks

    def peak_gflops(self, weights: ExpertWeights) -> float:
        """Peak rate of a DIMM's multipliers, for matrices of equal sizes."""
        bits, burst_bytes = [matrix.bits for matrix in weights.format.matrices], self.device.burst_bytes
        cycles = sum(self.unit.cycles_for_product(self.lanes, burst_bytes, width) for width in bits)
        return float(2 * len(bits) * 1000 / (cycles * frequency_period_ps(self.unit_mhz)))

    @functools.cached_property
    def row_places(self) -> int:
        """Bursts in a row of every bank of a lane, which are consecutive places."""
        return self.device.banks * self.device.bursts_per_row


@cached_by_identity(_CACHED)
def lower_machine(hardware: Hardware) -> NdpMachine:
    """The machine of a hardware file; raises the errors of `NdpMachine`."""
    return NdpMachine(hardware)


@dataclass(frozen=True, eq=False)
class Placed:
    """Weights on the lanes of a DIMM, or of several equal DIMMs."""

    interleaving: Interleaving
    streams: tuple[LaneStream, ...]  # one for equal lanes
    groups: tuple[slice, ...]  # all groups of bursts, by region
    on_channel: int  # participating DIMMs on the channel of each


@dataclass(frozen=True, eq=False)
class PlacedOnDimms:
    """An expert on one DIMM or several: DIMM n has `placed[of_dimm[n]]`."""

    weights: ExpertWeights
    layout: Layout
    end: int  # the first place of the rows after it, in every lane
    placed: tuple[Placed, ...]
    of_dimm: tuple[int, ...]
    channels: tuple[tuple[int, ...], ...]  # the weights of a channel's DIMMs, once for equal channels
    slice: int  # the largest part of the intermediate dimension on a DIMM
    peak_gflops: float
    described: Mapping[str, Any]  # the weights as plain data for the result


@functools.lru_cache(maxsize=_CACHED)
def place_on_dimms(machine: NdpMachine, name: str, weights: ExpertWeights, base: int = 0) -> PlacedOnDimms:
    """An expert in a layout, from place `base` of every lane.

    Raises:
        InputError: the unit cannot multiply these weights, or not in this layout, or they do not fit.
    """
    layout = machine.unit.place(name, machine.geometry, weights, base)
    machine.unit.check_format(weights.format)
    channel = [int(machine.geometry.channel_of(part.dimm[0])) for part in layout.parts]
    on_channel = Counter(channel)
    sizes = [
        (len(part.slice), on_channel[its_channel])
        for part, its_channel in zip(layout.parts, channel, strict=True)
    ]
    different = list(dict.fromkeys(sizes))
    of_dimm = tuple(map(different.index, sizes))
    of_channel = (
        sorted(dimm for dimm, its_channel in zip(of_dimm, channel, strict=True) if its_channel == number)
        for number in on_channel
    )
    return PlacedOnDimms(
        weights=weights,
        layout=layout,
        end=-(-layout.end // machine.row_places) * machine.row_places,
        placed=tuple(
            _placed(machine, layout.parts[of_dimm.index(number)].interleaving, sharing)
            for number, (_, sharing) in enumerate(different)
        ),
        of_dimm=of_dimm,
        channels=tuple(set(map(tuple, of_channel))),
        slice=max(size for size, _ in sizes),
        peak_gflops=len(of_dimm) * machine.peak_gflops(weights),
        described=describe_weights(weights, None),
    )


def _placed(machine: NdpMachine, interleaving: Interleaving, on_channel: int) -> Placed:
    ends = itertools.accumulate(machine.unit.group_counts(interleaving), initial=0)
    groups = tuple(slice(first, end) for first, end in itertools.pairwise(ends))
    shares = [_share(machine, interleaving, lane) for lane in range(machine.lanes)]
    reads = [machine.unit.reads_of(interleaving, lane, share) for lane, share in enumerate(shares)]
    equal = [list(lanes) for _, lanes in itertools.groupby(range(machine.lanes), reads.__getitem__)]
    streams = _streams(machine, interleaving, [range(lanes[0], lanes[-1] + 1) for lanes in equal])
    return Placed(interleaving, streams, groups, on_channel)


def _share(machine: NdpMachine, interleaving: Interleaving, lane: int) -> LaneShare:
    """The reads of a lane; in lock step, those of its sub-channel's lane with the most."""
    return interleaving.share(lane % machine.host_buses if machine.lock_step else lane)


def _streams(machine: NdpMachine, interleaving: Interleaving, equal: list[range]) -> tuple[LaneStream, ...]:
    """The reads of neighbouring lanes with equal numbers of reads."""
    shares = [_share(machine, interleaving, lanes[0]) for lanes in equal]
    groups = np.arange(sum(machine.unit.group_counts(interleaving)))
    ensure_streams_fit([share.total for share in shares], len(groups))
    streams = []
    for lanes, share in zip(equal, shares, strict=True):
        places = interleaving.lane_bursts(share)
        coordinates, reads = interleaving.coordinates(places), np.zeros_like(places)
        period = machine.device.ranks * machine.device.groups_per_stack
        source = state.make_source((*coordinates, reads, places), period=period)
        first, last = machine.unit.groups(interleaving, lanes, share)
        ends = np.searchsorted(first, groups, "right") - 1
        of_burst = sink.Groups(*(each.astype(np.int32) for each in (first, last, ends)))
        streams.append(LaneStream(lanes, share, source, of_burst))
    return tuple(streams)


def every_lane(machine: NdpMachine, expert: PlacedOnDimms) -> PlacedOnDimms:
    """The same weights, with each lane separate."""
    lanes = [range(lane, lane + 1) for lane in range(machine.lanes)]
    return replace(
        expert,
        placed=tuple(
            replace(placed, streams=_streams(machine, placed.interleaving, lanes)) for placed in expert.placed
        ),
    )


# ---- The location of an expert on a machine's DIMMs, and its weights


def named_weights(
    model: str | PathLike[str] | MoeShape | Expert, bits: int | ExpertFormat
) -> tuple[ExpertWeights, str | None]:
    """Weights, and the name of their model, or None for a shape.

    Raises:
        InputError: there is no such model, or the bits are invalid.
    """
    if isinstance(model, Expert):
        expert, name = model, None
    else:
        shape = load_model(model)
        expert, name = shape.expert, shape.name
    return ExpertWeights(expert.hidden, expert.intermediate, expert_format(bits, expert.gated)), name


def describe_weights(weights: ExpertWeights, model: str | None) -> dict[str, Any]:
    """Model, shape and bits as plain data for results."""
    described: dict[str, Any] = {
        "model": model,
        "hidden": weights.hidden,
        "intermediate": weights.intermediate,
        "bits": weights.format.bits(),
    }
    if any(of_matrix.group_size for of_matrix in weights.format.matrices):
        formats = weights.format
        described["formats"] = dict(zip(formats.names, map(asdict, formats.matrices), strict=True))
    return described


@dataclass(frozen=True)
class LanePart:
    """The weights of an expert on a lane of a DIMM.

    Attributes:
        lane, rank, subchannel: their numbers on the DIMM.
        matrix_bytes: bytes of each matrix, scales and zero points included.
    """

    lane: int
    rank: int
    subchannel: int
    matrix_bytes: dict[str, int | float] = field(metadata=quantity("weights of a lane"))


@dataclass(frozen=True)
class DimmPart:
    """The weights of an expert on a DIMM; see `LanePart`."""

    dimm: int = field(metadata=quantity("DIMM"))
    channel: int = field(metadata=quantity("channel"))
    matrix_bytes: dict[str, int | float] = field(metadata=quantity("weights"))
    lanes: list[LanePart]


@dataclass(frozen=True, eq=False, repr=False)
class PlacedExpert(Reported):
    """An expert's weights on the DIMMs of a machine.

    Attributes:
        layout: maps weights to addresses and back.
        hardware: the machine's name.
        described: model, shape and bits, as in results.
    """

    layout: Layout
    hardware: str
    described: dict[str, Any]

    @property
    def dimms(self) -> list[DimmPart]:
        """The part of each DIMM that holds weights."""
        geometry, held = self.layout.geometry, self.layout.lane_bits()
        return [
            DimmPart(
                dimm,
                dimm % geometry.channels,
                self._by_matrix(held[dimm].sum(axis=0)),
                [
                    LanePart(lane, *divmod(lane, geometry.subchannels), self._by_matrix(held[dimm, lane]))
                    for lane in range(geometry.lanes)
                ],
            )
            for dimm in self.layout.dimms
        ]

    def _plain(self) -> dict[str, Any]:
        """Bytes by matrix, DIMM and lane, scales and zero points included."""
        layout, geometry = self.layout, self.layout.geometry
        return {
            "layout": layout.name,
            "hardware": self.hardware,
            **self.described,
            "bytes": layout.bytes,
            "bursts": layout.bursts,
            "burst_bytes": geometry.device.burst_bytes,
            "matrix_bytes": self._by_matrix(layout.lane_bits().sum(axis=(0, 1))),
            "dimm_capacity_bytes": geometry.dimm_bytes,
            "dimms": [asdict(part) for part in self.dimms],
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlacedExpert):
            return NotImplemented
        mine, others = (
            (
                placed.layout.name,
                placed.layout.base,
                placed.layout.geometry,
                placed.layout.weights,
                placed.described,
            )
            for placed in (self, other)
        )
        return self.hardware == other.hardware and mine == others

    def _title(self) -> str:
        return f"PlacedExpert of {self.described['model'] or 'a shape'} on {self.hardware}"

    def _rows(self) -> list[tuple[str, str]]:
        layout, geometry = self.layout, self.layout.geometry
        hidden, intermediate = layout.weights.hidden, layout.weights.intermediate
        dimms = ", ".join(map(str, layout.dimms[:8])) + (", ..." if len(layout.dimms) > 8 else "")
        return [
            ("layout", layout.name),
            ("shape", f"{hidden} x {intermediate}, {self.described['bits']} bits"),
            ("bytes", f"{layout.bytes} ({format_bytes(layout.bytes)})"),
            ("bursts", f"{layout.bursts} of {geometry.device.burst_bytes} bytes"),
            ("dimms", f"{len(layout.dimms)} of {geometry.dimms}: {dimms}"),
            ("lanes", f"{geometry.lanes} of each DIMM"),
        ]

    def _by_matrix(self, bits: Sequence[int]) -> dict[str, int | float]:
        return {
            name: int(count) // 8 if count % 8 == 0 else int(count) / 8
            for name, count in zip(self.layout.weights.format.names, bits, strict=True)
        }


def place_expert(
    hw: str | PathLike[str] | Mapping[str, Any] | Hardware = "trimoe",
    model: str | PathLike[str] | MoeShape | Expert = "qwen3-235b-a22b",
    layout: str = "localized",
    bits: int | ExpertFormat = 16,
    sets: Sets = (),
) -> PlacedExpert:
    """Place an expert on the DIMMs of a machine, from the first DIMM on.

    >>> ndpsim.place_expert("trimoe", ndpsim.Expert(256, 128), bits=4).described["bits"]
    4

    Args:
        hw, model, bits, sets: as in `simulate_expert`.
        layout: "localized", "striped" or "sharded:N". On a device with systolic arrays, "localized" stores
            weights tile by tile.

    Raises:
        InputError: an argument, the hardware or the model is invalid, or the expert does not fit.
    """
    layout = text(layout, "layout")
    hardware = load_hardware(hw, sets)
    weights, name = named_weights(model, bits)
    if hardware.system.ndp is None:
        laid = make_layout(layout, geometry_of(hardware), weights)
    else:
        unit_name, section = hardware.system.ndp.multiplier
        with hardware.errors_at_origins():
            unit = find_unit(unit_name, section.model_dump())
            laid = unit.place(layout, geometry_of(hardware), weights, base=0)
    return PlacedExpert(laid, hardware.system.name, describe_weights(weights, name))
