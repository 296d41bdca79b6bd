"""A host channel with all its DIMMs, and any combination of their users, on one clock.

Each DIMM has a queue of experts; the host has streams of requests. An expert never delays an earlier one of
its DIMM. See `dimm` for the sharing of ranks and buses by NDP units and host.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ndpsim.base.arguments import number, several, whole_number
from ndpsim.base.errors import InputError, shown, unknown
from ndpsim.base.options.gemv import LAST_RELEASE_NS
from ndpsim.base.options.session import (
    DimmSettings,
    LaterMoveSettings,
    QueuedSettings,
    ReadSettings,
    SessionSettings,
    StreamSettings,
)
from ndpsim.base.options.settings import called_with, documented_with, fields_of
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm import state as shared
from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.dimm.building import Stream
from ndpsim.dimm.engines import OpenRow
from ndpsim.dimm.layout import make_layout, parse_layout
from ndpsim.dimm.link.engine_state import bits_by_stage
from ndpsim.dimm.relayout import START, UNSERVED, Relayout
from ndpsim.dram import state
from ndpsim.simulate.channel import Channel
from ndpsim.simulate.host import HostBus, host_buses
from ndpsim.simulate.host_traffic import HostTraffic, host_round
from ndpsim.simulate.lane import Ints, name_commands
from ndpsim.simulate.machine import ensure_on_channel, geometry_of, lower_machine, named_weights
from ndpsim.simulate.power import Energy, engine_energy, unit_work
from ndpsim.simulate.program import FIRST_CLOCK, Job
from ndpsim.simulate.relayout_plan import access_by_units, ensure_transfers_fit, first_dimms, plan_transfers
from ndpsim.simulate.relayout_run import Wave, last_data
from ndpsim.simulate.results.expert import DimmResult, ExpertRun, HostRun, RelayoutRun
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.simulate.statistics import read_latencies

# ---- Results of a session: its experts, streams, relayouts and energy


def expert_run(run: Channel, job: Job) -> ExpertRun:
    """An expert."""
    dimm, ns = job.expert.dimm, run.machine.after_start_ns
    start, end = run.queues[dimm].span_of(job)
    start_ns, end_ns = None if start is None else ns(start), None if end is None else ns(end)
    return ExpertRun(dimm, sum(job.tokens), start_ns, end_ns)


def host_run(run: Channel, stream: int) -> HostRun:
    """A stream of the host."""
    traffic, machine = run.dimms.agents.traffic, run.machine
    of_buses = traffic.totals[stream]
    of_stream, end = of_buses.sum(axis=0), int(of_buses[:, shared.STREAM_END].max())
    served, latency = int(of_stream[shared.STREAM_SERVED]), int(of_stream[shared.STREAM_LATENCY])
    return HostRun(
        start_ns=run.clock_ns(int(traffic.pace[stream, 1])),
        end_ns=run.clock_ns(end) if end else None,
        requests=served,
        bytes=served * machine.device.burst_bytes,
        read_latency_ns=read_latencies(run.dimms.host_latencies[:, stream], latency, machine.clocks_ns(1)),
        is_done=served == int(traffic.offered[stream].sum()),
    )


def relayout_run(run: Channel, relayout: Relayout) -> RelayoutRun:
    """A relayout."""
    read, written = (int(bursts) * run.machine.device.burst_bytes for bursts in relayout.served.sum(axis=1))
    return RelayoutRun(
        start_ns=run.clock_ns(int(relayout.value[START]) + FIRST_CLOCK),
        end_ns=None if relayout.value[UNSERVED] else run.clock_ns(last_data(run.machine.device, relayout)),
        read_bytes=read,
        written_bytes=written,
    )


def channel_energy(run: Channel, hardware: Hardware) -> Energy:
    """The energy of DIMMs with NDP units; relayouts include all engines and links of the machine."""
    machine, works = run.machine, []
    for job in run.experts:
        expert, ran = job.expert, run.queues[job.expert.dimm].of_phase
        tiles = zip(job.tiles, job.tokens, strict=True)
        done = [tokens for tile, tokens in tiles if ("result-out", tile) in ran]
        read = len(done) * sum(region.bytes for region in expert.placed.interleaving.regions)
        works.append(unit_work(machine.unit, expert.weights, sum(done), read))
    products, activated, weight, values = (sum(each) for each in zip((0.0, 0, 0, 0), *works, strict=True))
    time_ns = len(run.queues) * run.clock_ns(run.dimms.clock)
    others = machine.unit_energy.split(products, activated, weight, values, time_ns)
    host_bursts = run.moved()[1] + sum(lanes.host_bursts for lanes in run.lanes)
    others["host"] = machine.dram_power.io_nj(host_bursts)
    for name, nj in _relayout_energy(run, hardware).items():
        before = others.get(name, 0.0)
        others[name] = None if before is None or nj is None else before + nj
    return run.energy(others)


def _relayout_energy(run: Channel, hardware: Hardware) -> dict[str, float | None]:
    """Energy of engines and links so far, by component."""
    if not run.waves:
        return {}
    bits_read = sum(bits_by_stage(wave.engine).read for wave in run.waves)
    busy = np.sum([wave.engine.packets.busy for wave in run.waves], axis=0)
    access = run.waves[0].access
    time_ns = run.clock_ns(run.dimms.clock)
    return engine_energy(hardware, access.network, access.timebase, busy, bits_read, time_ns)


# ---- Sessions


_NONE: Ints = np.zeros(0, dtype=np.int64)
_MOST_LAG = 2048  # clocks of a host read, longer than all ranks' refreshes, but shorter than an expert


@documented_with(SessionSettings)
class Session:
    """A host channel with all its DIMMs on one clock.

    Args:

    Raises:
        InputError: an argument or the hardware is invalid.
    """

    @called_with(SessionSettings)
    def __init__(self, settings: SessionSettings) -> None:
        self._stopwatch, start_clock = Stopwatch(), settings.start_clock
        checked_arbitration(settings.arbitration)
        self.hardware = load_hardware(settings.hw, settings.sets)
        ensure_on_channel(self.hardware)
        with self.hardware.errors_at_origins():
            self.machine = machine = lower_machine(self.hardware)
        on_channel = len(machine.geometry.dimms_of(0))
        dimms = on_channel if settings.dimms is None else settings.dimms
        count = whole_number(dimms, "dimms", 1, on_channel)
        ranks = on_channel * machine.geometry.ranks
        rows = several(
            settings.open_rows, "open_rows", lambda row, _: _checked_row(row, ranks, machine.device)
        )
        with self.hardware.errors_at_origins():
            recording = settings.record_commands
            self._run = Channel(machine, settings.arbiter, count, recording, start_clock, rows)
        self._config = {
            "hardware": machine.described,
            "dimms": count,
            "arbitration": settings.arbitration,
            "slice_clocks": settings.own_slice_clocks,
            "start_clock": start_clock,
            "open_rows": rows,
        }

    @called_with(QueuedSettings)
    def expert(self, settings: QueuedSettings) -> int:
        """Add an expert to the queue of a DIMM; its weights are placed behind the weights of earlier experts.

        Args:

        Returns:
            Its number among the experts of the session.

        Raises:
            InputError: an argument is invalid, or the weights do not fit.
        """
        dimm = whole_number(settings.dimm, "dimm", 0, len(self._run.queues) - 1)
        weights, _ = named_weights(settings.model, settings.bits)
        tick = self._not_past(settings.release_ns) * self.machine.dram_ticks
        with self.hardware.errors_at_origins():
            self._run.add_expert(dimm, weights, settings.tokens, tick)
        return len(self._run.experts) - 1

    @called_with(StreamSettings)
    def host(self, settings: StreamSettings) -> int:
        """Let the host read and write a DIMM from a time on, without end; its data is behind the weights.

        Args:

        Returns:
            Its number among the host's streams.

        Raises:
            InputError: an argument is invalid, or weights leave no rows.
        """
        machine, run = self.machine, self._run
        asked = settings.gbps, settings.read_share, settings.pattern
        traffic = HostTraffic.of(*asked, self.hardware.dimm_host_gbps, "gbps")
        dimm = whole_number(settings.dimm, "dimm", 0, len(machine.geometry.dimms_of(0)) - 1)
        place = run.first_free_place[dimm] if dimm < len(run.first_free_place) else 0
        requests = host_round(self.hardware, traffic, place)
        requests = requests.on_ranks_from(dimm * machine.geometry.ranks)
        clock = self._not_past(settings.start_ns)
        return run.dimms.add_stream(requests.stream(machine.host_buses, clock))

    @called_with(ReadSettings)
    def host_read(self, settings: ReadSettings) -> int:
        """Let the host read the part of an expert's weights that is on this channel, once.

        Args:

        Returns:
            Its number among the host's streams.

        Raises:
            InputError: an argument is invalid, or no weights are on this channel.
        """
        machine, run, layout = self.machine, self._run, settings.layout
        traffic = HostTraffic.of(settings.gbps, 1.0, "sequential", self.hardware.dimm_host_gbps, "gbps")
        weights, _ = named_weights(settings.model, settings.bits)
        geometry, first = geometry_of(self.hardware), 0
        if parse_layout(layout)[0] != "striped":
            own = geometry.dimms_of(0)
            first = own[whole_number(settings.dimm, "dimm", 0, len(own) - 1)]
        base = max(run.first_free_place) if settings.behind else 0
        placed = make_layout(layout, geometry, weights, first, base)
        buses = [bus for bus in host_buses(placed) if bus.channel == 0]
        if not buses:
            raise InputError(
                f"{layout} leaves nothing of the weights on the first channel", "unsupported", key="layout"
            )
        tables = run.setup.host_tables
        by_bus, count = {bus.subchannel: bus for bus in buses}, machine.host_buses
        idle = HostBus(0, 0, tables.ranks, _NONE, _NONE, _NONE)
        sources = [by_bus.get(number, idle).source(placed) for number in range(count)]
        numbers = [np.arange(len(source.place)) * count + bus for bus, source in enumerate(sources)]
        offered = np.array([0 if traffic.gbps == 0 else len(each) for each in numbers], dtype=np.int64)
        pace, clock = traffic.pace(machine.device), self._not_past(settings.start_ns)
        if settings.behind:
            run.first_free_place[:] = [placed.end] * len(run.first_free_place)
        return run.dimms.add_stream(Stream(sources, numbers, clock, pace, offered, _MOST_LAG))

    @called_with(LaterMoveSettings)
    def relayout(self, settings: LaterMoveSettings) -> int:
        """Move experts to another layout; one relayout at a time.

        Before and after the move, the experts are behind the data on the DIMMs of this channel. Links are
        those of the whole machine, and DIMMs are numbered over it; every n-th is on this channel. DIMMs of
        other channels are not simulated: they read and write without delay.

        Args:

        Returns:
            Its number among the relayouts of the session.

        Raises:
            InputError: an argument is invalid, the experts do not fit, do not move at all, move in no
                time, or the last relayout is not done.
        """
        run, geometry, hardware = self._run, self.machine.geometry, self.hardware
        if run.relayouts and run.relayouts[-1].value[UNSERVED]:
            problem = "another relayout is under way; run until it is done"
            raise InputError(problem, "conflict", key="relayout")
        source, target = settings.source, settings.target
        experts = whole_number(settings.experts, "experts", 1, hardware.relayout.concurrent_experts)
        weights, _ = named_weights(settings.model, settings.bits)
        places = settings.source_dimms, settings.target_dimms
        first, second = first_dimms(source, target, *places, experts, geometry.dimms)
        own, used = geometry.dimms_of(0), [0] * geometry.dimms
        for dimm, place in zip(own, run.first_free_place, strict=False):
            used[dimm] = place
        clock = self._not_past(settings.start_ns)
        with hardware.errors_at_origins():
            transfers = plan_transfers(geometry, weights, (source, first), (target, second), used)
            if not transfers:
                raise InputError("all experts are there already", "invalid", key="target")
            ensure_transfers_fit(transfers, False)
            run.add_relayout(Wave(access_by_units(hardware, geometry), transfers), clock - 1)
        run.first_free_place[:] = [used[dimm] for dimm in own[: len(run.first_free_place)]]
        return len(run.relayouts) - 1

    def _not_past(self, ns: float) -> int:
        """The first clock that is neither before a time nor before now."""
        return max(self.machine.clock_at(ns), self._run.dimms.clock)

    def run(self, until_ns: float | None = None) -> None:
        """Run until a time, or until all experts and all finite work of the host are done.

        You may add work and call it again.

        Raises:
            InputError: no work has an end, or the time has passed, or is later than 1e9 ns.
        """
        run = self._run
        if until_ns is not None:
            clock = self.machine.clock_at(number(until_ns, "until_ns", 0, LAST_RELEASE_NS))
            if clock < run.dimms.clock:
                raise InputError(f"{until_ns} ns is before now, {self.now_ns:g} ns", "range", key="until_ns")
            run.run_until(clock)
            return
        if not (run.experts or run.relayouts or run.has_streams_that_end()):
            problem = "is missing; endless host traffic needs an end"
            raise InputError(problem, "missing", key="until_ns")
        run.run_to_end()
        run.dimms.run_host(state.FAR)
        run.finish_relayout()

    @property
    def now_ns(self) -> float:
        """The simulated time after the first clock."""
        return self._run.clock_ns(self._run.dimms.clock)

    @property
    def ndp_bytes(self) -> tuple[int, ...]:
        """Bytes of weights that the unit of each DIMM has read until now, in whole bursts."""
        by_lane = self._run.moved_by_lane()[shared.NDP] * self.machine.device.burst_bytes
        of_dimms = by_lane.reshape(-1, self.machine.lanes).sum(axis=1)
        return tuple(int(of_dimm) for of_dimm in of_dimms)

    @property
    def jobs(self) -> tuple[ExpertRun, ...]:
        """The experts, in the order in which they were added."""
        return tuple(expert_run(self._run, job) for job in self._run.experts)

    @property
    def hosts(self) -> tuple[HostRun, ...]:
        """The streams of the host, in the order in which they were added."""
        return tuple(host_run(self._run, n) for n in range(len(self._run.dimms.agents.traffic.first)))

    @property
    def relayouts(self) -> tuple[RelayoutRun, ...]:
        """The relayouts, in the order in which they were added."""
        return tuple(relayout_run(self._run, relayout) for relayout in self._run.relayouts)

    def result(self) -> DimmResult:
        """The result until now."""
        run, machine, time_ns = self._run, self.machine, self.now_ns
        energy_nj, energy_note = channel_energy(run, self.hardware)
        ndp, host = (bursts * machine.device.burst_bytes / max(time_ns, 1e-9) for bursts in run.moved())
        return DimmResult(
            time_ns=time_ns,
            clock_ns=machine.clocks_ns(1),
            jobs=self.jobs,
            host=self.hosts,
            relayouts=self.relayouts,
            ndp_gbps=ndp,
            host_gbps=host,
            commands=name_commands(run.issued(), machine.device.standard),
            energy_nj=energy_nj,
            energy_note=energy_note,
            config=self._config,
            **self._stopwatch.times(),
            command_traces=run.command_traces(),
        )


def _checked_row(row: Any, ranks: int, device: Any) -> OpenRow:
    """A row that is open at the start.

    Raises:
        InputError: there is no such row.
    """
    try:
        values = tuple(row)
    except TypeError:
        values = ()
    if len(values) != 4:
        raise InputError(f"{row!r} is not (rank, bank group, bank, row)", "form", key="open_rows")
    ends = (ranks, device.bankgroups, device.banks_per_group, device.rows)
    checked = [whole_number(value, "open_rows", 0, end - 1) for value, end in zip(values, ends, strict=True)]
    return checked[0], checked[1], checked[2], checked[3]


# ---- All in one call


@called_with(DimmSettings)
def simulate_dimm(settings: DimmSettings) -> DimmResult:
    """Simulate experts on the DIMMs of a host channel, with the host and a relayout, on one clock.

    >>> ndpsim.simulate_dimm(experts=[{"model": ndpsim.Expert(256, 128)}]).time_ns > 0
    True

    Args:

    Raises:
        InputError: an argument is invalid.
    """
    session = Session(**fields_of(SessionSettings, settings))
    for add, key, calls in (
        (session.expert, "experts", settings.experts),
        (session.host, "host", settings.host),
        (session.host_read, "host_reads", settings.host_reads),
        (session.relayout, "relayout", () if settings.relayout is None else (settings.relayout,)),
    ):
        for arguments in several(calls, key, _mapping):
            _call(add, key, arguments)
    session.run(settings.until_ns)
    return session.result()


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{shown(value)} is not a mapping of arguments", "type", key=name)
    return value


def _call(function: Callable[..., int], key: str, arguments: Mapping[str, Any]) -> None:
    """Call a function with the arguments of a mapping.

    Raises:
        InputError: the function has no such argument.
    """
    allowed = list(inspect.signature(function).parameters)
    for name in arguments:
        if name not in allowed:
            raise unknown(str(name), allowed, "argument", key=key)
    function(**arguments)
