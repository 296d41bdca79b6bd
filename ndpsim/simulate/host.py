"""The host reads an expert through its own memory controllers, to compute the expert itself.

A bus is a sub-channel of a host channel, with the ranks of all DIMMs on the channel. DIMMs share it like any
ranks (with the standard's rank-to-rank turnaround, nCS). Each bus has its own controller. The host reads all
bursts of the open rows of a rank, a row in every bank group, before the next rank. Rank changes are thus
rare, and the next rank's rows are opened during the reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from ndpsim.base.arguments import Progress, flag, progress_function, text
from ndpsim.base.limits import ensure_fits
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.layout import ExpertFormat, Layout, make_layout
from ndpsim.dram import state
from ndpsim.dram.engines import ScanController, make_controller
from ndpsim.dram.spec import Tables, lower
from ndpsim.simulate.geometry import ensure_on_channel, geometry_of
from ndpsim.simulate.lane import (
    Bus,
    Ints,
    MakeChannel,
    command_traces,
    ensure_recordable,
    ensure_same,
    name_commands,
)
from ndpsim.simulate.memory import bus_policy
from ndpsim.simulate.power import DramPower, dram_power
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.simulate.results.cache import Lookup, ResultCache
from ndpsim.simulate.results.host_read import HostReadResult
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.simulate.weights import describe_weights, named_weights
from ndpsim.workload.models import Expert, MoeShape

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

    def source(self, layout: Layout, tables: Tables) -> state.Source:
        """The reads of all bursts, from their layout."""
        device, reads = layout.geometry.device, np.zeros_like(self.place)
        of_lane, bankgroup, bank, row, column = layout.parts[0].interleaving.coordinates(self.place)
        at = self.rank * device.ranks + of_lane, bankgroup, bank, row, column
        period = device.ranks * device.groups_per_stack
        return state.make_source(tables, *at, reads, self.burst, period=period)


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
    run = Bus(tables, make_channel(tables, policy), bus.source(layout, tables), recording)
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


def simulate_host_read(
    hw: str | PathLike[str] | Hardware = "trimoe",
    model: str | PathLike[str] | MoeShape | Expert = "qwen3-235b-a22b",
    layout: str = "striped",
    bits: int | ExpertFormat = 16,
    sets: Sequence[str] = (),
    record_commands: bool = False,
    exact_check: bool = False,
    progress: Progress | None = None,
    cache: bool | ResultCache = False,
) -> HostReadResult:
    """Simulate the host's reading of all weights of an expert, DRAM command by DRAM command.

    Args:
        hw, model, bits, sets: as in `simulate_expert`.
        layout: layout of the weights: "localized", "striped" or "sharded:N".
        record_commands: keep the command trace of every bus.
        exact_check: run a second time, step by step on the plain controller, and compare.
        progress: called with the share of the work that is done, first with 0 after all checks; None: no
            calls.
        cache: as in `simulate_expert`.

    Raises:
        InputError: an argument, the hardware or the model is invalid or does not fit.
        MismatchError: the exact check found a difference.
    """
    stopwatch = Stopwatch()
    layout, progress = text(layout, "layout"), progress_function(progress)
    record_commands, exact_check = flag(record_commands, "record_commands"), flag(exact_check, "exact_check")
    hardware = load_hardware(hw, sets)
    ensure_on_channel(hardware)
    weights, model_name = named_weights(model, bits)
    computing, labels = record_commands or exact_check, {"model": model_name}
    lookup = Lookup(HostReadResult, cache, computing, (hardware, weights, layout), labels)
    if (found := lookup.find(stopwatch, progress)) is not None:
        return found
    laid = make_layout(layout, geometry_of(hardware), weights)
    ensure_fits(laid.bursts * _BYTES_OF_A_BURST, f"an expert of {laid.bursts} bursts")
    if record_commands:
        ensure_recordable(laid.bursts)
    progress(0.0)
    runs = _run_alike(laid, hardware, record_commands, exact_check, progress)
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
