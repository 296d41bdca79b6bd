"""A DIMM or device as integers, and an expert's weights on the lanes of one or several DIMMs."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ndpsim.base.caching import cached_by_identity
from ndpsim.base.errors import InputError
from ndpsim.base.units import common_ticks, exact, frequency_period_ps
from ndpsim.config import Hardware
from ndpsim.dimm.layout import ExpertWeights, Geometry, Interleaving, LaneShare, Layout
from ndpsim.dimm.units import ActivationUnit, find_unit
from ndpsim.dram import sink, state
from ndpsim.dram.controllers.one_command import OneCommand
from ndpsim.dram.spec import lower
from ndpsim.simulate.lane import Ints, LaneStream, ensure_streams_fit
from ndpsim.simulate.memory import bus_policy
from ndpsim.simulate.power import dram_power, unit_energy
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.simulate.weights import describe_weights

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
        cycles = sum(self.unit.cycles_for_product(self.lanes, burst_bytes, one) for one in bits)
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
    sizes = [(len(part.slice), on_channel[at]) for part, at in zip(layout.parts, channel, strict=True)]
    different = list(dict.fromkeys(sizes))
    of_dimm = tuple(map(different.index, sizes))
    of_channel = (
        sorted(of for of, at in zip(of_dimm, channel, strict=True) if at == number) for number in on_channel
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
        at, reads = interleaving.coordinates(places), np.zeros_like(places)
        period = machine.device.ranks * machine.device.groups_per_stack
        source = state.make_source((*at, reads, places), period=period)
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
