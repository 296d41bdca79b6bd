"""One expert on a DIMM while the host reads and writes the same DIMM.

The expert program is that of `simulate.expert`, on the lanes and buses of `dram.dimm`, where the model is
described. The host's traffic begins with the program's first clock and goes on until the host has the last
result. Each side is also simulated alone: the expert as `simulate_expert` does it, the host by the same
requests without weights being read. Lanes are not alike when the host asks for data of some and not of
others, so all of them are simulated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from os import PathLike
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.arguments import choice, flag, progress_function, text, whole_number
from ndpsim.config import Hardware, load_hardware
from ndpsim.dram import sink, state
from ndpsim.dram.dimm import common
from ndpsim.dram.dimm import state as shared
from ndpsim.dram.dimm.engines import SharedDimm, make_dimm
from ndpsim.dram.engines import make_controller
from ndpsim.dram.mapping import MAPPERS, parse_mapping
from ndpsim.errors import InputError
from ndpsim.layout import ExpertFormat, parse_layout
from ndpsim.moe import Expert, MoeShape
from ndpsim.ndp import Tiling
from ndpsim.reported import Reported
from ndpsim.simulate.expert import MAX_TOKENS, simulate_expert
from ndpsim.simulate.host_traffic import PATTERNS, HostTraffic, RequestRound, make_round
from ndpsim.simulate.lane import decode_commands, name_commands, no_commands, run_channel
from ndpsim.simulate.machine import (
    Machine,
    Placed,
    every_lane,
    lower_machine,
    place_on_dimms,
)
from ndpsim.simulate.power import Energy
from ndpsim.simulate.program import DOWN, FIRST_CLOCK, GATE_UP
from ndpsim.simulate.result import ExpertResult, Phase
from ndpsim.simulate.result_cache import Lookup, ResultCache
from ndpsim.simulate.samples import Samples, sample_clocks
from ndpsim.simulate.stopwatch import Stopwatch
from ndpsim.simulate.trace import read_latencies
from ndpsim.simulate.weights import named_weights
from ndpsim.spec import COMMANDS, lower
from ndpsim.traces import CommandTrace

__all__ = ["ContentionResult", "simulate_contention"]

Ints = NDArray[np.int64]
Progress = Callable[[float], None]

_MOST_SLOWDOWN = 100  # of the NDP unit; what is slower is given up as starved
_MAX_SLICE = 1 << 30
_STARVATION_CLOCKS = 16384  # clocks: long beside row changes and refreshes, short beside an expert
_NDP, _HOST = shared.NDP, shared.HOST
_DATA = [number for number, kind in enumerate(COMMANDS) if kind.reads or kind.writes]


@dataclass(frozen=True, eq=False, repr=False)
class ContentionResult(Reported):
    """An expert on a DIMM beside the host's traffic. "alone": without the other side.

    Attributes:
        ndp_time_ns: from the first clock to the last result at the host, beside the host's traffic.
        ndp_alone_ns: the same alone, as `simulate_expert` says.
        ndp_slowdown: the one over the other.
        ndp_gbps: weight bytes read over the time weights stream; `ndp_alone_gbps` alone.
        ndp_peak_fraction: `ndp_gbps` over `lanes_peak_gbps`.
        host_requests: requests of the host that went to their lanes in `ndp_time_ns`.
        host_time_ns: to the last beat of data that they read or their last command, as `run_trace` counts it;
            `host_alone_ns` the same requests, alone, as `run_trace` does it on the channel's ranks.
        host_slowdown: the one over the other; None when none went. It can be a little below 1: while weights
            are read, writes are collected for longer and turn the buses around less often.
        host_offered_gbps: what the host asks for; None: as much as it gets.
        host_gbps: bytes over its buses in `ndp_time_ns`; `host_alone_gbps` in `host_alone_ns`, alone.
        host_peak_fraction: `host_gbps` over `bus_peak_gbps`.
        host_latency_ns: of its reads, from being taken from the host to the last beat on its bus: mean, p50,
            p90, p99, max; None without reads. `host_alone_latency_ns` alone. Waiting to be taken is not in
            it. Latencies of more than 65,534 clocks count as 65,535.
        lanes_peak_gbps: what all lanes carry together at their limit.
        lanes_fraction: the share of it that both sides' data takes over `ndp_time_ns`.
        bus_peak_gbps: what the DIMM's buses to the host carry at their limit.
        clock_ns: the DRAM clock.
        rows: by owner, what requests found at their first command: hits, misses, conflicts; and `lost`, rows
            opened for the owner that the other closed.
        turnarounds: of the lanes' data buses between reads and writes; `bus_turnarounds` and
            `bus_rank_switches` of the buses to the host.
        commands: DRAM commands by kind, over all lanes.
        phases: the expert program beside the host's traffic, in order of start.
        token_tiles: tokens of each tile.
        lanes: lanes of the DIMM, all of them simulated.
        by_lane: of each lane, bytes that the NDP unit and the host moved in `ndp_time_ns`.
        energy_nj: by component, and their `total`, until the last data of the host; None where nothing is
            known of the DRAM's currents. `energy_note` says what it rests on, or why.
        config: everything that was used.
        wall_s: how long the call took, without `compile_s`; next to nothing with a result from a cache.
        compile_s: how long kernels were compiled for it; 0 when they were in the cache.
        curve_ns, ndp_curve_gbps, host_curve_gbps: ends of equal times up to `ndp_time_ns`, whole
            refresh intervals or equal parts of one, each to the next clock (the last may be shorter); in each
            of them what the NDP unit read, and what the host moved over its buses.
        command_traces: by lane, when asked for.
    """

    _shown_fields: ClassVar[tuple[str, ...]] = (
        "ndp_time_ns",
        "ndp_alone_ns",
        "ndp_slowdown",
        "ndp_gbps",
        "ndp_alone_gbps",
        "ndp_peak_fraction",
        "host_requests",
        "host_time_ns",
        "host_alone_ns",
        "host_slowdown",
        "host_offered_gbps",
        "host_gbps",
        "host_alone_gbps",
        "host_peak_fraction",
        "host_latency_ns",
        "host_alone_latency_ns",
        "lanes_fraction",
        "rows",
        "commands",
        "energy_nj",
        "wall_s",
    )

    ndp_time_ns: float
    ndp_alone_ns: float
    ndp_slowdown: float
    ndp_gbps: float
    ndp_alone_gbps: float
    ndp_peak_fraction: float
    host_requests: int
    host_time_ns: float
    host_alone_ns: float
    host_slowdown: float | None
    host_offered_gbps: float | None
    host_gbps: float
    host_alone_gbps: float
    host_peak_fraction: float
    host_latency_ns: Mapping[str, float] | None
    host_alone_latency_ns: Mapping[str, float] | None
    lanes_peak_gbps: float
    lanes_fraction: float
    bus_peak_gbps: float
    clock_ns: float
    rows: Mapping[str, Mapping[str, int]]
    turnarounds: int
    bus_turnarounds: int
    bus_rank_switches: int
    commands: Mapping[str, int]
    phases: tuple[Phase, ...]
    token_tiles: tuple[int, ...]
    lanes: int
    by_lane: tuple[Mapping[str, int], ...]
    energy_nj: Mapping[str, float | None] | None
    energy_note: str
    config: Mapping[str, Any]
    wall_s: float
    compile_s: float
    curve_ns: tuple[float, ...]
    ndp_curve_gbps: tuple[float, ...]
    host_curve_gbps: tuple[float, ...]
    command_traces: tuple[CommandTrace, ...] = field(default=(), repr=False)


class _Dimm:
    """A DIMM under way, with samples of what it has moved."""

    def __init__(self, shared_dimm: SharedDimm, sample_clocks: Fraction | int) -> None:
        self.shared = shared_dimm
        self.samples = Samples(2, FIRST_CLOCK, sample_clocks)

    def run(self, goal: int, until_clock: int = state.FAR) -> bool:
        """Run until a goal of `dram.dimm.common`, with a sample of `moved` at equal times.

        Returns whether it was reached, `until_clock` at the latest.
        """
        while not self.shared.run(goal, min(until_clock, self.samples.next_clock)):
            if self.shared.clock >= until_clock:
                return False
            self.samples.note(self.shared.clock, self.moved())
        return True

    def moved(self) -> tuple[int, int]:
        """Bursts so far: read by the NDP unit, and read and written by the host."""
        return int(self.shared.lane_issued[:, _DATA].sum()), int(self.of_host[:, _DATA].sum())

    @property
    def of_host(self) -> Ints:
        """int64[lane, command]: the host's commands to the lanes' ranks."""
        return self.shared.claims.host_issued

    def put_jobs(self, direction: int, ticks: int, ready: Sequence[int]) -> None:
        """Jobs for the buses to the host instead of the last, each for `ticks`, not before `ready`."""
        transfers, count = self.shared.transfers, len(ready)
        self.shared.buses.at[:] = 0
        transfers.ready[:count] = ready
        transfers.value[shared.JOBS] = count
        transfers.value[[shared.JOB_TICKS, shared.JOB_DIRECTION]] = ticks, direction

    @property
    def host_cycles(self) -> int:
        """To the last beat of data that the host read, or its last command; 0: there was none."""
        of_reads, of_commands = state.DATA_END, shared.LAST_COLUMN_CLOCK
        ends = self.shared.host_values[:, of_reads], self.shared.buses.value[:, of_commands]
        return max(0, int(np.max(ends)))

    def counted(self, owner: int, place: int) -> int:
        """A counter of an owner's requests, over all channels."""
        values = self.shared.lane_values if owner == _NDP else self.shared.host_values
        return int(values[:, place].sum())

    def issued(self) -> Ints:
        """int64[command]: commands to the DIMM."""
        issued: Ints = self.shared.lane_issued.sum(axis=0) + self.of_host.sum(axis=0)
        return issued

    def on_buses(self, place: int) -> int:
        """A counter of the buses, over all of them."""
        return int(self.shared.buses.value[:, place].sum())

    def commands_of_lanes(self) -> tuple[CommandTrace, ...]:
        """The commands of each lane, whoever issued them."""
        by_lane, by_bus = self.shared.recorded
        setup = self.shared.setup
        of_host = [
            decode_commands(_commands_at(by_bus, bus), setup.host_tables) for bus in range(len(by_bus.length))
        ]
        traces = []
        for lane in range(len(by_lane.length)):
            rank, bus = divmod(lane, len(of_host))
            own = decode_commands(_commands_at(by_lane, lane), setup.lane_tables)
            traces.append(merge_commands(own, of_host[bus], rank))
        return tuple(traces)


class _HostAlone:
    """The host's requests on a bus, on the controller that has the bus to itself."""

    def __init__(self, setup: shared.Setup, source: state.Source) -> None:
        self.channel = make_controller(setup.host_tables, setup.policy)
        run_channel(self.channel, source, sink.nobody(), no_commands(), len(source.place))

    @property
    def cycles(self) -> int:
        """To the last beat of data that is read, or the last command."""
        return max(int(self.channel.value[state.DATA_END]), int(self.channel.value[state.CLOCK]) - 1)


def _commands_at(recorded: state.Commands, number: int) -> state.Commands:
    """Those of one channel."""
    return state.Commands(recorded.entry[number], recorded.length[number : number + 1])


def merge_commands(own: CommandTrace, of_host: CommandTrace, rank: int) -> CommandTrace:
    """The commands of a lane and those of the host's bus to its rank, in their order."""
    chosen = of_host.rank == rank
    columns = {
        field.name: np.concatenate((getattr(own, field.name), getattr(of_host, field.name)[chosen]))
        for field in dataclasses.fields(CommandTrace)
    }
    columns["rank"][:] = 0
    order = np.argsort(columns["clock"], kind="stable")
    return CommandTrace(**{name: values[order] for name, values in columns.items()})


def _setup(machine: Machine, placed: Placed, arbitration: str, slice_clocks: int) -> shared.Setup:
    """What a DIMM runs under."""
    servers = {work.servers for work in placed.work}
    if len(servers) > 1:
        problem = "beside the host's traffic, bits that leave a lane more multipliers for down than for gate"
        raise InputError(f"not supported: {problem} and up", key="bits")
    geometry, timings = machine.geometry, machine.device.timings
    host_ranks = len(geometry.dimms_of(0)) * geometry.ranks
    return shared.Setup(
        lane_tables=machine.tables,
        host_tables=lower(dataclasses.replace(machine.device, ranks=host_ranks)),
        policy=machine.policy,
        arbitration=shared.ARBITRATIONS[arbitration],
        slice_clocks=slice_clocks,
        starvation_clocks=_STARVATION_CLOCKS,
        read_latency=timings["nCL"],
        write_latency=timings["nCWL"],
        dram_ticks=machine.dram_ticks,
        unit_ticks=machine.gemv_ticks,
        fifo_bursts=machine.gemv.fifo_bursts,
        servers=servers.pop(),
    )


def _weights(setup: shared.Setup, placed: Placed, tiles: int) -> shared.Weights:
    """The weights of an expert, read once a tile in two steps."""
    shares = np.array([stream.share.bursts for stream in placed.streams], dtype=np.int64)
    ends = np.cumsum(np.tile(shares, (1, tiles)), axis=1)
    rows = sum(region.rows for region in placed.dealing.regions)
    streams = placed.streams
    return shared.make_weights(
        setup, [stream.source for stream in streams], [stream.rows for stream in streams], ends, rows
    )


class _Program:
    """The expert program of `simulate.expert` on a shared DIMM; times are ticks."""

    def __init__(
        self,
        machine: Machine,
        placed: Placed,
        tiling: Tiling,
        setup: shared.Setup,
        traffic: shared.Traffic,
        recording: bool,
        alone_cycles: int,
    ) -> None:
        self.machine, self.placed, self.tiling = machine, placed, tiling
        interval = machine.tables.refresh_interval
        self.deadline = _MOST_SLOWDOWN * (alone_cycles + interval)
        self.regions = placed.dealing.regions
        self.weights = _weights(setup, placed, len(tiling.tokens))
        self.per_job = machine.device.burst_bytes // machine.gemv.activation_bytes
        jobs = 1 + -(-self.regions[DOWN].rows // self.per_job)
        width = sample_clocks(alone_cycles, interval)
        lanes, buses = machine.lanes, machine.host_buses
        self.dimm = _Dimm(make_dimm(setup, lanes, buses, self.weights, traffic, jobs, recording), width)
        self.dimm.shared.transfers.value[shared.JOB_ROWS] = 1
        self.phases: list[Phase] = []
        # Bursts that hold weights of each row, over all lanes.
        change = np.zeros(len(self.weights.left) + 1, dtype=np.int64)
        for stream in placed.streams:
            np.add.at(change, stream.rows.first_row, 1)
            np.add.at(change, stream.rows.last_row + 1, -1)
        self.bursts_of_row = np.cumsum(change)[:-1]

    def run_until(self, goal: int) -> None:
        """Run until a goal.

        Raises:
            InputError: the host leaves the NDP unit next to nothing.
        """
        if not self.dimm.run(goal, self.deadline):
            raise InputError(
                f"not supported: the host's traffic slows the NDP unit down more than {_MOST_SLOWDOWN} "
                "times; choose another arbitration or less traffic",
                key="host_gbps",
            )

    def note(self, name: str, tile: int, start: int, end: int) -> None:
        """Remember a phase."""
        origin = FIRST_CLOCK * self.machine.dram_ticks
        self.phases.append(
            Phase(name, tile, *(self.machine.timebase.to_ns(at - origin) for at in (start, end)))
        )

    def activations_in(self, tile: int, tokens: int, start: int) -> int:
        """The host writes the activations of a tile; returns when the last has arrived."""
        machine, columns = self.machine, self.regions[GATE_UP].columns
        bursts = -(-tokens * columns * machine.gemv.activation_bytes // machine.device.burst_bytes)
        ready = start + machine.device.timings["nCWL"] * machine.dram_ticks
        self.dimm.put_jobs(shared.WRITE, machine.bus_ticks(bursts), [ready])
        self.run_until(common.JOBS_DONE)
        end = int(self.dimm.shared.buses.end.max())
        self.note("activations-in", tile, start, end)
        return end

    def multiply(self, region: int, tile: int, tokens: int, release: int) -> Ints:
        """Read a region and multiply; returns when the sum of each of its rows is known.

        Of the last region, rows become results, and jobs for the buses, as they are known.
        """
        machine, weights, regions = self.machine, self.weights, self.regions
        first = sum(before.rows for before in regions[:region])
        after = first + regions[region].rows
        adder_ticks = machine.gemv.adder_tree_cycles * machine.gemv_ticks
        weights.left[first:after] = self.bursts_of_row[first:after]
        value, transfers = weights.value, self.dimm.shared.transfers.value
        value[shared.BURSTS_LEFT] = regions[region].bursts
        value[shared.NEXT_ROW] = value[shared.FIRST_ROW] = value[shared.END_ROW] = first
        value[shared.ROWS_SUMMED] = 0
        if region == DOWN:
            value[shared.END_ROW] = after
            self.dimm.put_jobs(shared.READ, machine.bus_ticks(tokens), [])
            transfers[shared.JOB_ROWS], transfers[shared.JOB_LATENCY] = self.per_job, adder_ticks
        step = 2 * tile + region
        weights.service[step] = tokens * self.placed.work[region].pass_cycles * machine.gemv_ticks
        weights.release[step] = release
        self.run_until(common.WEIGHTS_READ)
        rows: Ints = np.maximum.accumulate(weights.done[first:after]) + adder_ticks
        self.note(regions[region].name, tile, release, int(rows[-1]))
        return rows

    def activate(self, tile: int, tokens: int, rows: Ints) -> int:
        """SiLU(gate) x up of every hidden value; returns when the last is known."""
        known = rows[1::2]  # gate and up rows alternate, and up comes second
        end = self.machine.activation.done(known, tokens, self.machine.activation_ticks)
        self.note("activation", tile, int(known[0]), end)
        return end

    def results_out(self, tile: int) -> int:
        """The results that are still on their way leave; returns when the host has the last."""
        machine, dimm = self.machine, self.dimm
        self.run_until(common.JOBS_DONE)
        end = int(dimm.shared.buses.end.max()) + machine.device.timings["nCL"] * machine.dram_ticks
        self.note("result-out", tile, int(dimm.shared.transfers.ready[0]), end)
        return end

    def run(self, progress: Progress) -> int:
        """All tiles; returns when the host has the last result, and stands at that clock."""
        at = FIRST_CLOCK * self.machine.dram_ticks
        for tile, tokens in enumerate(self.tiling.tokens):
            progress(tile / len(self.tiling.tokens))
            at = self.activations_in(tile, tokens, at)
            at = self.activate(tile, tokens, self.multiply(GATE_UP, tile, tokens, at))
            self.multiply(DOWN, tile, tokens, at)
            at = self.results_out(tile)
        self.dimm.run(common.NOTHING, until_clock=-(-at // self.machine.dram_ticks))
        return at


def _rows(dimm: _Dimm, owner: int) -> dict[str, int]:
    """What an owner's requests found, and the rows it lost to the other."""
    places = {"hits": state.ROW_HITS, "misses": state.ROW_MISSES, "conflicts": state.ROW_CONFLICTS}
    found = {name: dimm.counted(owner, place) for name, place in places.items()}
    return {**found, "lost": int(dimm.shared.claims.tally[:, shared.ROWS_LOST + owner].sum())}


@dataclass(frozen=True, eq=False)
class _Moved:
    """Bytes moved so far: by lane for each owner, int64[owner, lane], and for the host over its buses."""

    by_lane: Ints
    to_host: int

    @classmethod
    def of(cls, dimm: _Dimm, burst_bytes: int) -> _Moved:
        by_lane = np.stack(
            (dimm.shared.lane_issued[:, _DATA].sum(axis=1), dimm.of_host[:, _DATA].sum(axis=1))
        )
        return cls(by_lane * burst_bytes, dimm.moved()[1] * burst_bytes)


class _Curves(NamedTuple):
    """The curves of a result."""

    end_ns: tuple[float, ...]
    ndp_gbps: tuple[float, ...]
    host_gbps: tuple[float, ...]

    @classmethod
    def of(cls, dimm: _Dimm, machine: Machine) -> _Curves:
        """What a DIMM has moved until now, over time."""
        dimm.samples.note(dimm.shared.clock, dimm.moved())
        clocks, bursts = dimm.samples.rises()
        at_ns = np.array(
            [machine.timebase.to_ns(clock * machine.dram_ticks) for clock in (clocks - FIRST_CLOCK).tolist()]
        )
        ndp, host = bursts * machine.device.burst_bytes / np.diff(at_ns)
        return cls(tuple(at_ns[1:].tolist()), tuple(ndp.tolist()), tuple(host.tolist()))


def _round(hardware: Hardware, machine: Machine, placed: Placed, traffic: HostTraffic) -> RequestRound:
    """The host's requests to the rows that the weights leave."""
    dram, dimm = hardware.system.dram, hardware.system.dimm
    mapping = (
        MAPPERS[dram.mapper] if dram.mapping is None else parse_mapping(dram.mapping.order, dram.mapping.xor)
    )
    dealing = placed.dealing
    most = max(stream.share.total for stream in placed.streams)
    last = max(int(dealing.lane_bursts(stream.share).max(initial=-1)) for stream in placed.streams)
    first_row = int(dealing.coordinates(np.array([last]))[2][0]) + 1 if most else 0
    return make_round(traffic, machine.device, mapping, machine.host_buses, dimm.ranks, first_row)


def simulate_contention(
    hw: str | PathLike[str] | Hardware = "trimoe",
    model: str | PathLike[str] | MoeShape | Expert = "qwen3-235b-a22b",
    tokens: int = 1,
    host_gbps: float | str = "saturate",
    read_share: float = 0.67,
    pattern: str | PathLike[str] = "sequential",
    arbitration: str = "host-first",
    slice_clocks: int = 1000,
    layout: str = "localized",
    bits: int | ExpertFormat = 16,
    sets: Sequence[str] = (),
    record_commands: bool = False,
    progress: Progress | None = None,
    cache: bool | ResultCache = False,
) -> ContentionResult:
    """Simulate one expert on one DIMM, cycle by cycle, while the host reads and writes the DIMM.

    Args:
        hw, model, tokens, layout, bits, sets: as in `simulate_expert`.
        host_gbps: what the host asks this DIMM for, in GB/s, 0 for nothing; or "saturate": all that it gets.
        read_share: the share of reads among its requests, 0 to 1.
        pattern: "sequential", "random" (seeded, always the same), or a request trace (any format of
            `traces.read_requests`): its addresses and kinds again and again, at the pace of `host_gbps`.
        arbitration: "host-first", "ndp-first" or "slice", see `dram.dimm`. Under each of them, a request
            that has waited for more than 16384 clocks in a lane makes it its owner's turn.
        slice_clocks: DRAM clocks of each turn under "slice".
        record_commands: keep the command trace of every lane.
        progress: called with the share of the work that is done, first with 0 when all is checked; None:
            nothing is called.
        cache: True, or a `ResultCache`, to find the result there where the very same was simulated before;
            with `record_commands` everything is simulated.

    Raises:
        InputError: an argument, the hardware, the model or the trace makes no sense or does not fit, or the
            host's traffic leaves the NDP unit nothing at all.
    """
    stopwatch = Stopwatch()
    arbitration = choice(arbitration, "arbitration", shared.ARBITRATIONS, "arbitration")
    slice_clocks = whole_number(slice_clocks, "slice_clocks", 1, _MAX_SLICE, " of clocks")
    tokens, layout = whole_number(tokens, "tokens", 1, MAX_TOKENS), text(layout, "layout")
    record_commands, progress = flag(record_commands, "record_commands"), progress_function(progress)
    hardware = load_hardware(hw, sets)
    host = HostTraffic.of(host_gbps, read_share, pattern, hardware.dimm_host_gbps)
    if hardware.system.cxl is not None:
        raise InputError("not supported: the host has no channel to memory on a CXL link", key="cxl")
    if parse_layout(layout)[1] > 1:
        raise InputError("beside the host's traffic one DIMM is simulated: localized", key="layout")
    weights, model_name = named_weights(model, bits)
    named = host.pattern in PATTERNS
    given = (tokens, layout, host.gbps, host.read_share, arbitration, slice_clocks)
    lookup = Lookup(
        ContentionResult,
        cache,
        record_commands,
        (hardware, weights, *given, host.pattern if named else None),
        {"model": model_name, "pattern": host.pattern},
        None if named else host.pattern,
    )
    if (found := lookup.find(stopwatch, progress)) is not None:
        return found
    alone = simulate_expert(hardware, model, tokens, layout, bits, progress=lambda share: progress(0.0))

    machine = lower_machine(hardware)
    expert = every_lane(machine, place_on_dimms(machine, layout, weights))
    placed = expert.placed[0]
    tiling = machine.gemv.tile(tokens, weights.hidden, weights.intermediate)
    requests = _round(hardware, machine, placed, host)
    pace = host.pace(machine.device.burst_bytes, machine.device.clock_ps)
    setup = _setup(machine, placed, arbitration, slice_clocks)

    offered = host.offered(machine.host_buses)
    traffic = requests.traffic(machine.tables, machine.host_buses, pace, offered)
    program = _Program(machine, placed, tiling, setup, traffic, record_commands, alone.cycles)
    end = program.run(progress)
    meanwhile = _Moved.of(program.dimm, machine.device.burst_bytes)
    curves = _Curves.of(program.dimm, machine)
    taken = program.dimm.shared.host_values[:, state.TAKEN].copy()
    traffic.offered[:] = taken
    program.dimm.run(common.REQUESTS_DONE)
    quiet = [
        _HostAlone(setup, requests.first(setup.host_tables, bus, int(count), pace))
        for bus, count in enumerate(taken)
        if count
    ]
    config = {
        **alone.config,
        "host_gbps": "saturate" if host.gbps is None else host.gbps,
        "read_share": host.read_share if host.pattern in PATTERNS else None,
        "pattern": host.pattern,
        "arbitration": arbitration,
        "slice_clocks": slice_clocks if arbitration == "slice" else None,
    }
    energy = _energy(program.dimm, machine, alone.energy_nj)
    return lookup.store(
        _result(program, meanwhile, curves, quiet, end, alone, host, energy, config, stopwatch)
    )


def _energy(dimm: _Dimm, machine: Machine, alone: Mapping[str, float | None] | None) -> Energy:
    """The energy of the DIMM until all is done: its units work as they do alone, its buses carry more."""
    end = dimm.shared.clock
    # A lane knows of all commands to its rank, whoever issued them.
    open_clocks = dimm.shared.open_clocks(end)
    units = {name: nj for name, nj in (alone or {}).items() if name.startswith("ndp_")}
    beside = ((alone or {}).get("host") or 0.0) + machine.dram_power.io_nj(dimm.moved()[1])
    return machine.dram_power.split(
        dimm.issued(),
        (end - FIRST_CLOCK) * machine.lanes,
        open_clocks,
        {**units, "host": beside},
    )


def _result(
    program: _Program,
    meanwhile: _Moved,
    curves: _Curves,
    quiet: Sequence[_HostAlone],
    end: int,
    alone: ExpertResult,
    host: HostTraffic,
    energy: Energy,
    config: dict[str, Any],
    stopwatch: Stopwatch,
) -> ContentionResult:
    machine, dimm = program.machine, program.dimm
    device, burst_bytes = machine.device, machine.device.burst_bytes

    def ns(clocks: int) -> float:
        return machine.timebase.to_ns(clocks * machine.dram_ticks)

    time_ns = ns(-(-end // machine.dram_ticks) - FIRST_CLOCK)
    streamed = int(dimm.shared.lane_values[:, state.DATA_END].max()) - FIRST_CLOCK
    ndp_gbps = alone.weight_bytes * alone.weight_reads / ns(streamed)
    busy_ns, quiet_ns = ns(dimm.host_cycles), ns(max((one.cycles for one in quiet), default=0))
    host_gbps = meanwhile.to_host / time_ns
    lanes_peak, bus_peak = alone.peak_bandwidth_gbps, machine.host_buses * device.peak_gbps
    requests = dimm.counted(_HOST, state.TAKEN)
    return ContentionResult(
        ndp_time_ns=time_ns,
        ndp_alone_ns=alone.time_ns,
        ndp_slowdown=time_ns / alone.time_ns,
        ndp_gbps=ndp_gbps,
        ndp_alone_gbps=alone.bandwidth_gbps,
        ndp_peak_fraction=ndp_gbps / lanes_peak,
        host_requests=requests,
        host_time_ns=busy_ns,
        host_alone_ns=quiet_ns,
        host_slowdown=busy_ns / quiet_ns if requests else None,
        host_offered_gbps=host.gbps,
        host_gbps=host_gbps,
        host_alone_gbps=requests * burst_bytes / quiet_ns if requests else 0.0,
        host_peak_fraction=host_gbps / bus_peak,
        host_latency_ns=read_latencies(
            dimm.shared.host_latencies, dimm.counted(_HOST, state.READ_LATENCY), alone.clock_ns
        ),
        host_alone_latency_ns=read_latencies(
            [one.channel.latencies for one in quiet],
            sum(int(one.channel.value[state.READ_LATENCY]) for one in quiet),
            alone.clock_ns,
        ),
        lanes_peak_gbps=lanes_peak,
        lanes_fraction=int(meanwhile.by_lane.sum()) / time_ns / lanes_peak,
        bus_peak_gbps=bus_peak,
        clock_ns=alone.clock_ns,
        rows={"ndp": _rows(dimm, _NDP), "host": _rows(dimm, _HOST)},
        turnarounds=int(dimm.shared.claims.tally[:, shared.TURNAROUNDS].sum()),
        bus_turnarounds=dimm.on_buses(shared.BUS_TURNAROUNDS),
        bus_rank_switches=dimm.on_buses(shared.RANK_SWITCHES),
        commands=name_commands(dimm.issued()),
        phases=tuple(sorted(program.phases, key=lambda phase: phase.start_ns)),
        token_tiles=program.tiling.tokens,
        lanes=machine.lanes,
        by_lane=tuple(
            {"ndp_bytes": int(ndp), "host_bytes": int(of_host)}
            for ndp, of_host in zip(*meanwhile.by_lane, strict=True)
        ),
        energy_nj=energy[0],
        energy_note=energy[1],
        config=config,
        wall_s=stopwatch.wall_s(),
        compile_s=stopwatch.compile_s(),
        curve_ns=curves.end_ns,
        ndp_curve_gbps=curves.ndp_gbps,
        host_curve_gbps=curves.host_gbps,
        command_traces=dimm.commands_of_lanes() if dimm.shared.recorded[0].entry.size else (),
    )
