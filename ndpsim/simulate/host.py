"""The host reads an expert through its own memory controllers, to compute the expert itself.

A bus is a sub-channel of a host channel, with the ranks of all DIMMs on the channel. DIMMs share it like any
ranks (with the standard's rank-to-rank turnaround, nCS). Each bus has its own controller. The host reads all
bursts of the open rows of a rank, a row in every bank group, before the next rank. Rank changes are thus
rare, and the next rank's rows are opened during the reads.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ndpsim.base.arguments import Progress, progress_function
from ndpsim.base.limits import ensure_fits
from ndpsim.base.options.gemv import HostReadSettings
from ndpsim.base.options.settings import called_with
from ndpsim.config import Hardware, load_hardware
from ndpsim.config.system import Cxl
from ndpsim.dimm.layout import Layout, make_layout
from ndpsim.dimm.link import Pipe
from ndpsim.dimm.units import last_served
from ndpsim.dram import state
from ndpsim.dram.energy import transfer_nj
from ndpsim.dram.engines import ScanController, make_controller
from ndpsim.dram.spec import lower
from ndpsim.simulate.lane import (
    Bus,
    Ints,
    MakeChannel,
    command_traces,
    ensure_recordable,
    ensure_same,
    name_commands,
)
from ndpsim.simulate.machine import (
    NdpMachine,
    PlacedOnDimms,
    describe_weights,
    ensure_on_channel,
    geometry_of,
    named_weights,
)
from ndpsim.simulate.memory import bus_policy
from ndpsim.simulate.power import DramPower, dram_power
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.simulate.results.cache import Lookup
from ndpsim.simulate.results.expert import HostReadResult
from ndpsim.simulate.results.stopwatch import Stopwatch

# ---- The path between the host and the DIMMs that share an expert: the buses of their channels, or a link
#
# Times are ticks. Values for each DIMM are for the different DIMMs of `PlacedOnDimms.placed`.


class Buses:
    """The host's channels, which the DIMMs of a channel share burst by burst.

    Attributes:
        values_per_message: results of a token that leave together, in a burst or a packet.
        busy_ticks: time for which the busiest bus or link carried data.
    """

    def __init__(self, machine: NdpMachine, expert: PlacedOnDimms) -> None:
        self.machine, self.expert = machine, expert
        self.values_per_message = machine.values_per_burst
        self.busy_ticks = 0
        self._bursts = 0  # of all DIMMs

    def write(self, start: int, values: int) -> list[int]:
        """The host writes this many activations to every DIMM; returns when each has its last."""
        machine, expert = self.machine, self.expert
        bursts = -(-values * machine.unit.activation_bytes // machine.device.burst_bytes)
        self._bursts += bursts * len(expert.of_dimm)
        first = start + machine.device.write_latency * machine.dram_ticks
        arrived = [first + machine.bus_ticks(bursts * placed.on_channel) for placed in expert.placed]
        self.busy_ticks += max(arrived) - first
        return arrived

    def read(self, known: Sequence[Ints], values: int, tokens: int) -> int:
        """The host reads this many results of each token; returns the time at which it has the last.

        `known`: for each different DIMM, the times at which a token's messages are known.
        """
        machine, channels = self.machine, self.expert.channels
        on_bus = machine.bus_ticks(tokens)
        # Results of a channel's DIMMs leave in the order of the times at which they are known.
        together = [np.sort(np.concatenate([known[bus] for bus in channel])) for channel in channels]
        messages = len(known[0])
        self._bursts += tokens * messages * len(self.expert.of_dimm)
        self.busy_ticks += max(map(len, channels)) * messages * on_bus
        end = max(last_served(ready, on_bus) for ready in together)
        return end + machine.device.read_latency * machine.dram_ticks

    def energy(self) -> dict[str, float | None]:
        """Energy in nJ by component."""
        return {"host": self.machine.dram_power.io_nj(self._bursts)}


class Link:
    """A link to every device: the activations of a tile are a message, and so is each packet of results.

    For methods and attributes see `Buses`.
    """

    def __init__(self, machine: NdpMachine, expert: PlacedOnDimms, link: Cxl) -> None:
        self.machine, self.devices, self.pj_per_bit = machine, expert.of_dimm, link.pj_per_bit
        self.link = Pipe(link.gbps, link.latency_ns, link.packet_bytes, link.header_bytes)
        self.values_per_message = max(1, link.packet_bytes // machine.unit.activation_bytes)
        self._busy_ps, self._bytes = Fraction(0), 0  # of one link; of all links

    def write(self, start: int, values: int) -> list[int]:
        sizes = self._messages(values, values, 1)
        return [self._send(np.array([start]), sizes)] * (max(self.devices) + 1)

    def read(self, known: Sequence[Ints], values: int, tokens: int) -> int:
        sizes = self._messages(values, self.values_per_message, tokens)
        return max(self._send(np.repeat(ready, tokens), sizes) for ready in known)

    @property
    def busy_ticks(self) -> Fraction:
        return self._busy_ps / self.machine.timebase.tick_ps

    def energy(self) -> dict[str, float | None]:
        return {"link": transfer_nj(self._bytes, self.pj_per_bit)}

    def _messages(self, values: int, per_message: int, tokens: int) -> Ints:
        """Bytes of each message that is sent on a link, which is then counted."""
        value_bytes = self.machine.unit.activation_bytes
        sizes, size, busy_ps = _messages(self.link, values, per_message, value_bytes, tokens)
        self._busy_ps += busy_ps
        self._bytes += size * len(self.devices)
        return sizes

    def _send(self, ready: Ints, sizes: Ints) -> int:
        """The time at which the last of several messages has arrived; the link counts in ps, rounded up."""
        tick = self.machine.timebase.tick_ps
        arrived = self.link.arrivals(-(-ready * tick.numerator // tick.denominator), sizes)
        return -(-int(arrived[-1]) * tick.denominator // tick.numerator)


@functools.lru_cache(maxsize=64)
def _messages(
    link: Pipe, values: int, per_message: int, value_bytes: int, tokens: int
) -> tuple[Ints, int, Fraction]:
    """Bytes of each message with this many values of each token, their sum, and their ps on a link."""
    left = np.arange(values, 0, -per_message)
    sizes = np.repeat(np.minimum(left, per_message) * value_bytes, tokens)
    return sizes, int(sizes.sum()), link.busy_ps(sizes)


def host_path(machine: NdpMachine, expert: PlacedOnDimms) -> Buses | Link:
    """An unused path of a machine's DIMMs."""
    return Buses(machine, expert) if machine.link is None else Link(machine, expert, machine.link)


# ---- Reads of the host


_BYTES_OF_A_BURST = 128  # bytes of memory, measured and rounded up


@dataclass(frozen=True, eq=False)
class HostBus:
    """Reads or writes of the host on one bus, in order.

    Attributes:
        channel, subchannel: the numbers of the bus.
        ranks: ranks behind it.
        rank, place: the rank on the bus, and the place within the lane, of each burst.
        burst: the numbers of the bursts in the layout.
    """

    channel: int
    subchannel: int
    ranks: int
    rank: Ints
    place: Ints
    burst: Ints

    @property
    def alike(self) -> tuple[int, bytes, bytes]:
        """A key that is equal for equal buses."""
        return self.ranks, self.rank.tobytes(), self.place.tobytes()

    def source(self, layout: Layout) -> state.Source:
        """The reads of all bursts, from their layout."""
        device, reads = layout.geometry.device, np.zeros_like(self.place)
        of_lane, bankgroup, bank, row, column = layout.parts[0].interleaving.coordinates(self.place)
        coordinates = self.rank * device.ranks + of_lane, bankgroup, bank, row, column
        period = device.ranks * device.groups_per_stack
        return state.make_source((*coordinates, reads, self.burst), period=period)


def host_buses(layout: Layout) -> list[HostBus]:
    """The buses that carry a layout's bursts to the host, with the bursts of each in the host's order."""
    geometry, places = layout.geometry, layout.places()
    rank = geometry.host_rank(places.dimm, places.lane)
    bus = geometry.channel_of(places.dimm) * geometry.subchannels + places.lane % geometry.subchannels
    order = np.lexsort((places.place, rank, places.place // geometry.device.open_bursts, bus))
    found = []
    for number, chosen in _runs(bus[order], order):
        channel, subchannel = divmod(number, geometry.subchannels)
        ranks = len(geometry.dimms_of(channel)) * geometry.ranks
        found.append(HostBus(channel, subchannel, ranks, rank[chosen], places.place[chosen], chosen))
    return found


def _runs(numbers: Ints, order: Ints) -> list[tuple[int, Ints]]:
    """The parts of `order` with equal `numbers`, each with its number."""
    first = np.flatnonzero(np.diff(numbers, prepend=-1))
    return list(zip(numbers[first].tolist(), np.split(order, first[1:]), strict=True))


def _run(bus: HostBus, layout: Layout, hardware: Hardware, recording: bool, make_channel: MakeChannel) -> Bus:
    """A bus after all its reads."""
    device = hardware.bus_device(bus.ranks)
    tables, policy = lower(device), bus_policy(hardware.system.dram, device)
    run = Bus(tables, make_channel(tables, policy), bus.source(layout), recording)
    run.run()
    return run


def _run_alike(
    layout: Layout, hardware: Hardware, recording: bool, exact_check: bool, progress: Progress
) -> list[Bus]:
    """The run of each bus; equal buses share one."""
    runs: dict[tuple[int, bytes, bytes], Bus] = {}
    buses = host_buses(layout)
    for number, bus in enumerate(buses):
        if bus.alike not in runs:
            run = runs[bus.alike] = _run(bus, layout, hardware, recording, make_controller)
            if exact_check:
                plain = _run(bus, layout, hardware, False, ScanController)
                ensure_same(f"bus {number}", run, plain)
        progress((number + 1) / len(buses))
    return [runs[bus.alike] for bus in buses]


@called_with(HostReadSettings)
def simulate_host_read(
    settings: HostReadSettings, *, progress: Progress | bool | None = None
) -> HostReadResult:
    """Simulate the host's reading of all weights of an expert, DRAM command by DRAM command.

    >>> ndpsim.simulate_host_read("trimoe", ndpsim.Expert(256, 128)).channels
    8

    Args:
        progress: called with the share of the work that is done, first with 0 after all checks; None: no
            calls.

    Raises:
        InputError: an argument, the hardware or the model is invalid or does not fit.
        MismatchError: the exact check found a difference.
    """
    stopwatch, show = Stopwatch(), progress_function(progress)
    layout, recording, exact_check = settings.layout, settings.record_commands, settings.exact_check
    hardware = load_hardware(settings.hw, settings.sets)
    ensure_on_channel(hardware)
    weights, model_name = named_weights(settings.model, settings.bits)
    inputs, labels = (hardware, weights, layout), {"model": model_name}
    lookup = Lookup(HostReadResult, settings.cache, recording or exact_check, inputs, labels)
    if (found := lookup.find(stopwatch, show)) is not None:
        return found
    laid = make_layout(layout, geometry_of(hardware), weights)
    ensure_fits(laid.bursts * _BYTES_OF_A_BURST, f"an expert of {laid.bursts} bursts")
    if recording:
        ensure_recordable(laid.bursts)
    show(0.0)
    runs = _run_alike(laid, hardware, recording, exact_check, show)
    config = {"hardware": hardware.to_dict(), **describe_weights(weights, model_name), "layout": layout}
    power = dram_power(hardware.lane_device(), hardware.power_changes)
    return lookup.store(_result(laid, runs, power, config, stopwatch))


def _result(
    layout: Layout, runs: list[Bus], power: DramPower, config: dict[str, Any], stopwatch: Stopwatch
) -> HostReadResult:
    geometry = layout.geometry
    clock_ps = geometry.device.clock_ps
    cycles = max(run.cycles for run in runs) - FIRST_CLOCK
    time_ns, clock_ns = float(cycles * clock_ps / 1000), float(clock_ps / 1000)
    channels = len(np.unique(geometry.channel_of(np.array(layout.dimms))))
    peak_gbps = channels * geometry.subchannels * geometry.device.peak_gbps
    bandwidth_gbps = layout.bytes / time_ns
    issued = np.sum([run.channel.issued for run in runs], axis=0)
    energy_nj, energy_note = power.split(
        issued,
        cycles * sum(run.tables.ranks for run in runs),
        sum(run.channel.open_clocks(cycles + FIRST_CLOCK) for run in runs),
    )
    idle = [
        sum(int(run.channel.value[place]) for run in runs) / len(runs)
        for place in (state.IDLE_REFRESH, state.IDLE_ROW)
    ]
    return HostReadResult(
        time_ns=time_ns,
        cycles=cycles,
        clock_ns=clock_ns,
        weight_bytes=layout.bytes,
        weight_bursts=layout.bursts,
        bandwidth_gbps=bandwidth_gbps,
        peak_bandwidth_gbps=peak_gbps,
        peak_fraction=bandwidth_gbps / peak_gbps,
        channels=channels,
        buses=len(runs),
        buses_simulated=len({id(run) for run in runs}),
        ranks_per_bus=max(run.tables.ranks for run in runs),
        commands=name_commands(issued, geometry.device.standard),
        idle_ns=dict(zip(("refresh", "rows"), (clocks * clock_ns for clocks in idle), strict=True)),
        fast_forwarded=sum(run.channel.skipped for run in runs) / layout.bursts,
        energy_nj=energy_nj,
        energy_note=energy_note,
        config=config,
        **stopwatch.times(),
        command_traces=command_traces(runs, geometry.device.standard),
    )
