"""Relayout: experts are moved from one layout to another, by the relayout units of DIMMs or by the host.

Each DIMM's unit reads its bursts in order into one half of its buffer, sends them as packets, receives into
the other half, and writes: for exact times see `ndpsim.dimm.link.engine`. If there are more experts than may
migrate at once, they migrate in waves, which `relayout_waves` chooses.

The host does the same through its channels: it reads each burst and then writes it, with as many bursts in
flight as its controllers' queues hold. Time of its cores is not included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import Progress, progress_function
from ndpsim.base.errors import InputError
from ndpsim.base.options.relayout import RelayoutSettings
from ndpsim.base.options.settings import called_with
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.link.engine_state import Bits
from ndpsim.dimm.link.fabric import FAR
from ndpsim.dimm.link.packing import counts_between, spans
from ndpsim.simulate.lane import Ints, name_commands
from ndpsim.simulate.machine import describe_weights, geometry_of, named_weights
from ndpsim.simulate.power import Energy, dram_power, engine_energy
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.simulate.relayout_plan import (
    access_by_host,
    access_by_units,
    ensure_transfers_fit,
    first_dimms,
    neighbouring_dimms,
    plan_transfers,
)
from ndpsim.simulate.relayout_run import Access, RelayoutRun, Transfer, choose_waves, run_relayout
from ndpsim.simulate.results.cache import Lookup
from ndpsim.simulate.results.relayout import HostMove, OtherDimms, RelayoutResult, Stretch
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.simulate.statistics import equal_clocks, sample_clocks

#: For each wave, the node of each burst, and the tick at which it was there.
Bursts = list[tuple[NDArray[np.int32], Ints]]


def _simulate(
    transfers: Sequence[Transfer],
    at_once: int,
    access: Access,
    by_host: Access | None,
    record: bool,
    progress: Progress,
) -> tuple[list[RelayoutRun], list[RelayoutRun]]:
    """Runs by the units, and by the host if requested, each in its own thread, since they share nothing."""
    stop = Event()

    def runs(access: Access, record: bool, progress: Progress) -> list[RelayoutRun]:
        waves = choose_waves(access, transfers, at_once)
        return [run_relayout(access, [transfers[n] for n in wave], record, progress, stop) for wave in waves]

    with ThreadPoolExecutor(1) as pool:
        host = pool.submit(runs, by_host, False, lambda share: None) if by_host else None
        try:
            return runs(access, record, progress), host.result() if host else []
        finally:
            stop.set()  # otherwise an error or Ctrl-C would wait for the other thread


def _on_neighbours(
    run: Callable[..., RelayoutResult], experts: int, source: str, target: str, dimms: int
) -> OtherDimms:
    """The relayout by `run` with experts on neighbouring ones of this many DIMMs."""
    first = neighbouring_dimms(source, experts, dimms)
    second = None if source == target else neighbouring_dimms(target, experts, dimms)
    result = run(source_dimms=first, target_dimms=second)
    return OtherDimms(
        source_dimms=result.config["source_dimms"],
        target_dimms=result.config["target_dimms"],
        time_ns=result.time_ns,
        host_time_ns=result.host.time_ns if result.host else None,
        host_speedup=result.host_speedup,
    )


@called_with(RelayoutSettings)
def simulate_relayout(
    settings: RelayoutSettings, *, progress: Progress | bool | None = None
) -> RelayoutResult:
    """Move experts of a model from one layout to another, cycle by cycle.

    >>> moved = ndpsim.simulate_relayout(model=ndpsim.Expert(256, 128), target="sharded:2", host=False)
    >>> moved.time_ns > 0
    True

    Args:
        progress: called with the share of the work that is done; None: no calls.

    Raises:
        InputError: an argument, the hardware or the model is invalid or does not fit.
    """
    stopwatch = Stopwatch()
    experts, source, target, host = settings.experts, settings.source, settings.target, settings.host
    record_commands = settings.record_commands
    if settings.other_dimms and (settings.source_dimms is not None or settings.target_dimms is not None):
        problem = "spreads experts evenly and cannot be used when DIMMs are given"
        raise InputError(problem, "conflict", key="other_dimms")
    progress = progress_function(progress)
    hardware = load_hardware(settings.hw, settings.sets, "relayout")
    weights, model_name = named_weights(settings.model, settings.bits)
    geometry = geometry_of(hardware)
    first, second = first_dimms(
        source, target, settings.source_dimms, settings.target_dimms, experts, geometry.dimms
    )
    inputs = (hardware, weights, source, target, first, second, host, settings.other_dimms)
    lookup = Lookup(RelayoutResult, settings.cache, record_commands, inputs, {"model": model_name})
    if (found := lookup.find(stopwatch, progress)) is not None:
        return found
    transfers = plan_transfers(geometry, weights, (source, first), (target, second))
    progress(0.0)
    access = access_by_units(hardware, geometry)
    at_once = hardware.relayout.concurrent_experts
    ensure_transfers_fit(transfers[:at_once], record_commands)
    by_host = access_by_host(hardware, geometry) if host and transfers else None
    with hardware.errors_at_origins():
        runs, host_runs = _simulate(transfers, at_once, access, by_host, record_commands, progress)
    moved = _Moved(hardware, access, runs)
    edges = equal_clocks(moved.cycles, sample_clocks(moved.cycles, access.tables.refresh_interval))
    by_host_move = _Moved(hardware, by_host, host_runs).by_host() if by_host else None
    again = partial(
        simulate_relayout,
        hardware,
        settings.model,
        experts,
        source,
        target,
        bits=settings.bits,
        host=host,
        progress=progress,
    )
    other = _on_neighbours(again, experts, source, target, geometry.dimms) if settings.other_dimms else None
    reads = [(run.read_node, run.read_tick) for run in runs]
    writes = [(run.write_node, run.write_tick) for run in runs]
    energy_nj, energy_note = moved.energy_of_units() if runs else (None, "nothing moved")
    dram = {"read": "source DRAM", "write": "target DRAM", "both": "DRAM"}
    result = RelayoutResult(
        time_ns=moved.time_ns,
        cycles=moved.cycles,
        clock_ns=moved.clock_ns,
        experts=experts,
        moved=len(transfers),
        waves=len(runs),
        weight_bytes=sum(sum(expert.source.weights.matrix_bits()) for expert in transfers) // 8,
        read_bytes=moved.bits.read // 8,
        sent_bytes=moved.bits.sent // 8,
        local_bytes=moved.bits.read // 8 - moved.bits.sent // 8,
        written_bytes=moved.bits.written // 8,
        wire_bytes=sum(run.wire_bytes for run in runs),
        bandwidth_gbps=moved.bits.written / 8 / moved.time_ns if runs else 0.0,
        topology=access.network.topology,
        link_busy=moved.link_busy(),
        dram_busy={
            name: moved.bounds_ns[resource] / moved.time_ns if runs else 0.0
            for name, resource in dram.items()
        },
        bounds_ns=moved.bounds_ns,
        bottleneck=moved.bottleneck(),
        transit_bytes=max((int(run.most_waiting.max()) for run in runs), default=0),
        commands=moved.commands,
        host=by_host_move,
        host_speedup=by_host_move.time_ns / moved.time_ns if by_host_move else None,
        other_dimms=other,
        stretches=(*moved.stretches("read", reads), *moved.stretches("write", writes)),
        energy_nj=energy_nj,
        energy_note=energy_note,
        curve_ns=tuple((edges[1:] * moved.clock_ns).tolist()),
        read_gbps=moved.curve(reads, edges),
        written_gbps=moved.curve(writes, edges),
        config={
            "hardware": hardware.to_dict(),
            **describe_weights(weights, model_name),
            "source": source,
            "target": target,
            "source_dimms": first,
            "target_dimms": second,
        },
        **stopwatch.times(),
        command_traces=tuple(run.traces for run in runs if run.traces),
    )
    return lookup.store(result)


class _Moved:
    """Consecutive waves, by the units or by the host.

    Attributes:
        cycles: clocks of all waves.
        time_ns: time of all waves.
        clock_ns: time of a clock.
        begins: the clock at tick 0 of each wave.
        bits: the bits of all waves.
        busy: ticks by wire.
        issued: commands by number.
        commands: commands by name.
        bounds_ns: lower bound of the time of each resource.
    """

    def __init__(self, hardware: Hardware, access: Access, runs: Sequence[RelayoutRun]) -> None:
        self.hardware, self.access, self.runs = hardware, access, runs
        ends, to_ns = np.cumsum([0, *(run.end - 1 for run in runs)]).tolist(), access.timebase.to_ns
        self.cycles = ends[-1]
        self.clock_ns = to_ns(access.timebase.ticks[0])
        self.time_ns = to_ns(self.cycles * access.timebase.ticks[0])
        # A wave's tick 0 is a clock before its first command.
        self.begins = [end - FIRST_CLOCK for end in ends[:-1]]
        self.bits = Bits(*(sum(run.bits[n] for run in runs) for n in range(4)))
        self.busy = sum((run.busy for run in runs), np.zeros(len(access.network.wire_names), dtype=np.int64))
        self.issued = sum((run.issued for run in runs), np.zeros(len(access.tables.commands), dtype=np.int64))
        self.commands = name_commands(self.issued, access.device.standard)
        burst = access.tables.burst * access.timebase.ticks[0]
        self.bounds_ns = {
            "links": sum(to_ns(int(run.busy.max(initial=0))) for run in runs),
            "source DRAM": sum(to_ns(int(run.reads.max()) * burst) for run in runs),
            "target DRAM": sum(to_ns(int(run.writes.max()) * burst) for run in runs),
            "DRAM": sum(to_ns(int((run.reads + run.writes).max()) * burst) for run in runs),
        }

    def by_host(self) -> HostMove:
        """The runs of a host."""
        time_ns, bound_ns = self.cycles * self.clock_ns, self.bounds_ns["DRAM"]
        return HostMove(
            time_ns=time_ns,
            bandwidth_gbps=self.bits.written / 8 / time_ns,
            bus_busy=bound_ns / time_ns,
            bound_ns=bound_ns,
            commands=self.commands,
            energy_nj=self._energy({})[0],
        )

    def energy_of_units(self) -> Energy:
        """The energy of all DIMMs, of the links, and of channels that bridge groups."""
        access, bits = self.access, self.bits.read
        others = engine_energy(self.hardware, access.network, access.timebase, self.busy, bits, self.time_ns)
        return self._energy(others)

    def _energy(self, others: Mapping[str, float | None]) -> Energy:
        """The energy, in which all lanes draw power from the first to the last clock of each wave."""
        power = dram_power(self.hardware.lane_device(), self.hardware.power_changes)
        lanes = self.access.network.dimms * self.access.lanes * self.access.tables.ranks
        open_clocks = sum(run.open_clocks for run in self.runs)
        return power.split(self.issued, self.cycles * lanes, open_clocks, others)

    def link_busy(self) -> dict[str, float]:
        """The share of the time for which each used wire sent data."""
        tick_ns, wires = self.access.timebase.to_ns(1), self.access.network.wire_names
        busy = zip(wires, self.busy, strict=True)
        return {name: float(ticks * tick_ns / self.time_ns) for name, ticks in busy if ticks}

    def bottleneck(self) -> str:
        """The resource that needs the most time; a wire by its name."""
        longest = max(self.bounds_ns.values())
        if not longest:
            return "nothing"
        name = next(name for name, ns in self.bounds_ns.items() if ns == longest)
        if name != "links":
            return name
        return f"link {self.access.network.wire_names[int(np.argmax(self.busy))]}"

    def curve(self, bursts: Bursts, edges: Ints) -> tuple[float, ...]:
        """Bursts at given ticks, as GB/s in each interval between edges, which are in clocks."""
        counts, dram_ticks = np.zeros(len(edges) - 1, dtype=np.int64), self.access.timebase.ticks[0]
        for (_, tick), clock in zip(bursts, self.begins, strict=True):
            counts_between(tick, (edges - clock) * dram_ticks, counts)
        moved_bytes, widths_ns = counts * self.access.device.burst_bytes, np.diff(edges) * self.clock_ns
        return tuple((moved_bytes / widths_ns).tolist())

    def stretches(self, name: str, bursts: Bursts) -> Iterator[Stretch]:
        """First and last time of bursts of each node, wave by wave."""
        dimms, timebase = self.access.network.dimms, self.access.timebase
        for (node, tick), clock in zip(bursts, self.begins, strict=True):
            first, last = np.full(dimms, FAR), np.zeros(dimms, dtype=np.int64)
            spans(tick, node, first, last)
            begin = clock * timebase.ticks[0]
            for dimm in np.flatnonzero(last):
                ends = (timebase.to_ns(begin + ticks[dimm]) for ticks in (first, last))
                yield Stretch(name, int(dimm), *ends)
