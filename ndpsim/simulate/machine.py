"""The DIMMs of a machine as integers, and an expert's weights on their lanes."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from ndpsim.config import Hardware
from ndpsim.dram import state
from ndpsim.energy import UnitEnergy
from ndpsim.errors import InputError
from ndpsim.kept import kept_by_identity
from ndpsim.layout import Dealing, ExpertFormat, ExpertWeights, Geometry, make_layout
from ndpsim.ndp import ActivationUnit, GemvUnit
from ndpsim.simulate.geometry import geometry_of
from ndpsim.simulate.lane import LaneStream, check_refresh, lane_streams
from ndpsim.simulate.memory import controller_options
from ndpsim.simulate.power import DramPower, dram_power, unit_energy
from ndpsim.simulate.weights import describe_weights
from ndpsim.spec import Device, Tables, lower
from ndpsim.units import Timebase, common_ticks, frequency_period_ps

__all__ = [
    "Machine",
    "Placed",
    "PlacedOnDimms",
    "Work",
    "every_lane",
    "lower_machine",
    "place_on_dimms",
]

_KEPT = 16  # hardware and placed experts that are kept for the next call


@dataclass(frozen=True, eq=False)
class Machine:
    """A DIMM, lowered: what the program of an expert runs on."""

    geometry: Geometry
    device: Device
    tables: Tables
    policy: state.Policy
    timebase: Timebase
    gemv: GemvUnit
    activation: ActivationUnit
    lanes: int
    lane_peak_gbps: float
    host_buses: int
    dram_power: DramPower
    unit_energy: UnitEnergy
    described: Mapping[str, Any]  # for the result: the hardware as plain data

    @functools.cached_property
    def dram_ticks(self) -> int:
        return self.timebase.ticks[0]

    @functools.cached_property
    def gemv_ticks(self) -> int:
        return self.timebase.ticks[1]

    @functools.cached_property
    def activation_ticks(self) -> int:
        return self.timebase.ticks[2]

    def bus_ticks(self, bursts: int) -> int:
        """Time on the buses to the host for bursts that all of them share."""
        return -(-bursts // self.host_buses) * self.tables.burst * self.dram_ticks


@kept_by_identity(_KEPT)
def lower_machine(hardware: Hardware) -> Machine:
    gemv, activation = hardware.gemv, hardware.ndp.activation
    dram, device = hardware.system.dram, hardware.lane_device()
    check_refresh(device, dram.refresh)
    return Machine(
        geometry=geometry_of(hardware),
        device=device,
        tables=lower(device),
        policy=state.make_policy(controller_options(dram)),
        timebase=common_ticks(
            device.clock_ps, frequency_period_ps(gemv.clock_mhz), frequency_period_ps(activation.clock_mhz)
        ),
        gemv=GemvUnit(
            multipliers=gemv.multipliers,
            values_per_multiplier=gemv.values_per_multiplier,
            native_bits=gemv.native_bits,
            bit_serial_cycles=gemv.bit_serial_cycles,
            adder_tree_cycles=gemv.adder_tree_cycles,
            buffer_bytes=gemv.buffer_kib * 1024,
            activation_bytes=gemv.activation_bytes,
            fifo_bursts=gemv.fifo_bursts,
        ),
        activation=ActivationUnit(activation.units, activation.cycles_per_value, activation.latency_cycles),
        lanes=hardware.lanes,
        lane_peak_gbps=device.peak_gbps,
        host_buses=hardware.system.dimm.subchannels,
        dram_power=dram_power(device, hardware.power_changes),
        unit_energy=unit_energy(hardware),
        described=hardware.to_dict(),
    )


class Work(NamedTuple):
    """What a burst of a region asks of the multipliers of its lane."""

    servers: int  # bursts that they hold at once
    pass_cycles: int  # for a token
    bits: int  # of a weight


@dataclass(frozen=True, eq=False)
class Placed:
    """Weights on the lanes of a DIMM, or of several that have as much and run alike."""

    dealing: Dealing
    streams: tuple[LaneStream, ...]  # of lanes that run alike
    work: tuple[Work, ...]  # by region
    rows: tuple[slice, ...]  # by region, of all rows
    on_channel: int  # DIMMs, of all that take part, on the channel of each


@dataclass(frozen=True, eq=False)
class PlacedOnDimms:
    """An expert on one DIMM or several: DIMM n has `placed[of_dimm[n]]`."""

    bytes: int
    bursts: int
    placed: tuple[Placed, ...]
    of_dimm: tuple[int, ...]
    channels: tuple[tuple[int, ...], ...]  # what the DIMMs of a channel have, each such channel once
    slice: int  # the largest part of the intermediate dimension that a DIMM has
    peak_gflops: float
    pass_cycles: int  # for a weight of each matrix, together
    described: Mapping[str, Any]  # for the result: the weights as plain data


@functools.lru_cache(maxsize=_KEPT)
def place_on_dimms(machine: Machine, name: str, weights: ExpertWeights) -> PlacedOnDimms:
    layout = make_layout(name, machine.geometry, weights)
    channel = [int(machine.geometry.channel_of(part.dimm[0])) for part in layout.parts]
    on_channel = Counter(channel)
    kinds = [
        (len(part.slice), on_channel[of_part]) for part, of_part in zip(layout.parts, channel, strict=True)
    ]
    different = list(dict.fromkeys(kinds))
    of_dimm = tuple(different.index(kind) for kind in kinds)
    work = _work(machine, weights.format)
    return PlacedOnDimms(
        bytes=layout.bytes,
        bursts=layout.bursts,
        placed=tuple(
            _placed(machine, layout.parts[of_dimm.index(number)].dealing, work, sharing)
            for number, (_, sharing) in enumerate(different)
        ),
        of_dimm=of_dimm,
        channels=tuple(
            {
                tuple(sorted(of for of, at in zip(of_dimm, channel, strict=True) if at == number))
                for number in on_channel
            }
        ),
        slice=max(size for size, _ in kinds),
        peak_gflops=len(of_dimm) * _peak_gflops(machine, work),
        pass_cycles=sum(machine.gemv.pass_cycles(matrix.bits) for matrix in weights.format.matrices),
        described=describe_weights(weights, None),
    )


def _work(machine: Machine, written: ExpertFormat) -> tuple[Work, ...]:
    """By region. A burst asks for as much as one full of weights, though it may hold scales as well."""
    if written.gate.bits != written.up.bits:
        raise InputError(
            f"gate and up, read row by row in turn, need equal bits, not {written.gate.bits} "
            f"and {written.up.bits}",
            key="bits",
        )
    burst_bytes = machine.device.burst_bytes
    bits = (written.gate.bits, written.down.bits)
    return tuple(Work(*machine.gemv.burst_work(machine.lanes, burst_bytes, one), one) for one in bits)


def _peak_gflops(machine: Machine, work: tuple[Work, ...]) -> float:
    """What the multipliers of a DIMM do at their limit; of three weights, one belongs to down."""
    tick_ps, burst_bits = machine.timebase.tick_ps, machine.device.burst_bytes * 8
    passes = sum(
        Fraction(one.pass_cycles * one.bits * matrices, one.servers)
        for one, matrices in zip(work, (2, 1), strict=True)
    )
    products = 2 * 3 * machine.lanes * burst_bits * tick_ps.denominator
    return float(products * 1000 / (passes * machine.gemv_ticks * tick_ps.numerator))


def _placed(machine: Machine, dealing: Dealing, work: tuple[Work, ...], on_channel: int) -> Placed:
    groups = [list(lanes) for _, lanes in itertools.groupby(range(machine.lanes), dealing.share)]
    streams = lane_streams(machine.tables, dealing, [range(lanes[0], lanes[-1] + 1) for lanes in groups])
    ends = itertools.accumulate((region.rows for region in dealing.regions), initial=0)
    rows = tuple(slice(first, end) for first, end in itertools.pairwise(ends))
    return Placed(dealing, streams, work, rows, on_channel)


def every_lane(machine: Machine, expert: PlacedOnDimms) -> PlacedOnDimms:
    """The same with every lane on its own."""
    lanes = [range(lane, lane + 1) for lane in range(machine.lanes)]
    return replace(
        expert,
        placed=tuple(
            replace(placed, streams=lane_streams(machine.tables, placed.dealing, lanes))
            for placed in expert.placed
        ),
    )
