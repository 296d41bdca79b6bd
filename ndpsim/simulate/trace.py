"""Requests through the controllers of a memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from os import PathLike
from typing import Any

import numpy as np

from ndpsim.base.arguments import Progress, flag, instance, path_of, progress_function, shown
from ndpsim.base.errors import InputError
from ndpsim.base.limits import ensure_fits
from ndpsim.base.options.dram import ChannelSettings, ControllerOptions, TraceSettings
from ndpsim.base.options.settings import called_with, fields_of
from ndpsim.dram import state
from ndpsim.dram.controllers import own_counters
from ndpsim.dram.engines import Controller, ScanController, make_controller
from ndpsim.dram.mapping import Coordinates, map_addresses
from ndpsim.dram.spec import Standard, lower
from ndpsim.dram.spec.standard import READ, READ_AP, WRITE, WRITE_AP
from ndpsim.dram.state import repeating_period
from ndpsim.dram.traces import BYTES_OF_A_REQUEST, Requests, read_requests
from ndpsim.simulate.lane import Bus, Ints, MakeChannel, command_traces, ensure_same, name_commands
from ndpsim.simulate.latencies import latency_distribution, latency_histogram, read_latencies
from ndpsim.simulate.memory import Memory
from ndpsim.simulate.power import dram_power
from ndpsim.simulate.program import IdleTime
from ndpsim.simulate.results.cache import Lookup, ResultCache, chosen_cache
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.simulate.results.trace import TraceResult

# ---- One channel of a trace and its share of the requests


_CHUNK = 1 << 18  # requests between two reports of progress
_BYTES_OF_A_REFRESH = 256  # bytes of memory for a recorded refresh


class TraceChannel(Bus):
    """One channel and its share of the requests."""

    def __init__(
        self,
        memory: Memory,
        requests: Requests,
        places: Coordinates,
        chosen: Any,
        recording: bool,
        make_channel: MakeChannel = make_controller,
    ) -> None:
        tables = lower(memory.device)
        at = (values[chosen] for values in places[:5])
        address = address_of(places, memory) if requests.address is None else requests.address
        cycle = None if requests.cycle is None else requests.cycle[chosen]
        source = state.make_source((*at, requests.write[chosen], address[chosen]), cycle)
        source = source._replace(period=repeating_period(source.place))
        policy = memory.policy
        channel = make_channel(tables, policy)
        super().__init__(tables, channel, source, recording)
        self._memory = memory
        self.accepted: dict[str, Any] | None = None
        self._idle = IdleTime(tables, policy, channel)
        if recording and cycle is not None and len(cycle):
            refreshes = self._idle.refreshes_until(int(cycle[-1]))
            needed = refreshes * _BYTES_OF_A_REFRESH
            ensure_fits(needed, f"a record of {refreshes} refreshes", file=requests.file)
        # In skipped time refreshes would not lower the counters of refresh management.
        steps = recording or cycle is None or policy.rfm.threshold > 0
        pauses = [] if steps else self._idle.long_pauses(source.cycle)
        self._pauses = [*pauses, self.count]
        if pauses:
            self.source = source._replace(cycle=source.cycle.copy())

    def run_reporting(self, report: Callable[[int], None]) -> None:
        """Run to the end, first to the clock that accepts the last request."""
        if self.count == 0:
            return
        first = reported = 0
        for end in self._pauses:
            if self._idle.clocks > 0:
                self.source.cycle[first:end] -= self._idle.clocks
            if end < self.count:  # requests after a pause are not accepted before it
                self.channel.value[state.PAUSE] = self.source.cycle[end] - self._idle.clocks
            # A run may only be interrupted between steps while requests remain to be accepted.
            for until in range(reported + _CHUNK, min(end, self.count - self.channel.most_queued), _CHUNK):
                self.run(until_served=until)
                report(_CHUNK)
                reported += _CHUNK
            if end < self.count:
                self.run(until_served=end)
                self._skip_idle_time(end)
            first = end
        self.run(state.FAR, until_taken=self.count)
        self.accepted = counters_now(self, self._memory.device.standard)
        self.run()
        report(self.count - reported)

    def _skip_idle_time(self, request: int) -> None:
        """Skip idle time before a request, if all earlier ones are served."""
        value = self.channel.value
        if value[state.SERVED] == request:
            self._idle.skip(int(value[state.PAUSE]), self.run_until)
        value[state.PAUSE] = state.FAR

    @property
    def value(self) -> Ints:
        """The channel's counters, with skipped idle time."""
        value = self.channel.value.copy()
        value[[state.CLOCK, state.COUNTED_UNTIL]] += self._idle.clocks
        return value

    @property
    def issued(self) -> Ints:
        """int64[command]: commands issued."""
        return self.channel.issued + self._idle.issued

    @property
    def cycles(self) -> int:
        """Clocks to the last beat of read data, or the last command."""
        return super().cycles + self._idle.clocks

    def open_clocks(self, end: int) -> int:
        return self.channel.open_clocks(end - self._idle.clocks)

    @property
    def bytes_moved(self) -> int:
        """Bytes over the data bus."""
        columns = int(self.issued[[READ, WRITE, READ_AP, WRITE_AP]].sum())
        return columns * self._memory.device.burst_bytes


def counters(channels: Sequence[TraceChannel | Controller], standard: Standard) -> dict[str, Any]:
    """The counters of a result, summed over channels."""
    value = np.sum([channel.value for channel in channels], axis=0)
    return {
        "row_hits": int(value[state.ROW_HITS]),
        "row_misses": int(value[state.ROW_MISSES]),
        "row_conflicts": int(value[state.ROW_CONFLICTS]),
        "reads_forwarded": int(value[state.FORWARDED]),
        "writes_coalesced": int(value[state.COALESCED]),
        "commands": name_commands(np.sum([channel.issued for channel in channels], axis=0), standard),
    }


def counters_now(channel: TraceChannel | Controller, standard: Standard) -> dict[str, Any]:
    """The counters of a channel at its clock, with the additional ones of the standard's controller."""
    value, names = channel.value, own_counters(standard.controller)
    return {
        "cycles": int(value[state.CLOCK]) - 1,
        **counters([channel], standard),
        **{name: int(value[state.OWN_COUNTERS + number]) for number, name in enumerate(names)},
    }


def sizes_in_address(memory: Memory) -> dict[str, int]:
    """The number of parts of each kind in the next larger part: channels, ranks, ..., columns."""
    device = memory.device
    return {
        "channel": memory.channels,
        "rank": device.ranks,
        "bankgroup": device.bankgroups,
        "bank": device.banks_per_group,
        "row": device.rows,
        "column": device.bursts_per_row,
    }


def address_of(places: Coordinates, memory: Memory) -> Ints:
    """A unique number for every burst, for requests with coordinates."""
    return np.ravel_multi_index((places.channel, *places[:-1]), tuple(sizes_in_address(memory).values()))


# ---- Traces


_LATEST = 10**18  # clocks: less than `dram.state.FAR`, even after additions
_BYTES_RECORDED = 512  # bytes of memory for a request with its commands


def _checked_places(requests: Requests, memory: Memory) -> Coordinates:
    """The checked coordinates of requests with coordinates."""
    assert requests.place is not None
    for values, (name, size) in zip(requests.place.T, sizes_in_address(memory).items(), strict=False):
        beyond = np.flatnonzero((values < 0) | (values >= size))
        if len(beyond):
            first = int(beyond[0])
            problem = f"{name} {int(values[first])} is not within 0 to {size - 1}"
            raise InputError(problem, "range", file=requests.file, line=requests.line(first))
    channel, rank, bankgroup, bank, row, column = requests.place.T
    return Coordinates(rank, bankgroup, bank, row, column, channel)


def _places(requests: Requests, memory: Memory, wrap: bool) -> Coordinates:
    if requests.address is None:
        return _checked_places(requests, memory)
    address, capacity = requests.address, memory.capacity_bytes
    if wrap:
        address = address % capacity
    elif int(address.max()) >= capacity:
        first = int(np.argmax(address >= capacity))
        raise InputError(
            f"address {int(address[first]):#x} is beyond the memory's {capacity:#x} bytes; "
            "--wrap folds it back",
            "range",
            file=requests.file,
            line=requests.line(first),
        )
    return map_addresses(address, memory.mapping, memory.device, memory.channels)


def _check_cycles(requests: Requests) -> None:
    """Check that the last request is before the clock that controllers use as never."""
    last = 0 if requests.cycle is None else int(requests.cycle[-1])
    if last >= _LATEST:
        problem = f"cycle {last} is not below {_LATEST}"
        raise InputError(problem, "range", file=requests.file, line=requests.line(len(requests) - 1))


def _exact_check(requests: Requests, memory: Memory, places: Coordinates) -> None:
    """Run every channel on both controllers, step by step on the plain one, and compare."""
    for channel in range(memory.channels):
        chosen = np.flatnonzero(places.channel == channel)
        fast = TraceChannel(memory, requests, places, chosen, False)
        plain = TraceChannel(memory, requests, places, chosen, False, ScanController)
        for run in (fast, plain):
            run.run_reporting(lambda count: None)
        ensure_same(f"channel {channel}", fast, plain)


def run_requests(
    requests: Requests,
    memory: Memory,
    wrap: bool = False,
    record_commands: bool = False,
    exact_check: bool = False,
    progress: Progress | None = None,
    cache: bool | ResultCache = False,
) -> TraceResult:
    """Run requests through a memory until all are served.

    Args:
        requests: the requests; a channel accepts at most one a clock, and no request before its cycle.
        memory: the channels and their controllers.
        wrap, record_commands, exact_check: as in `run_trace`.
        progress: called with the share of the requests that are served; None: no calls.
        cache: True, or a `ResultCache`, to reuse the result of an equal run; with `record_commands` or
            `exact_check` everything is run.

    Raises:
        InputError: an argument is invalid, or a request is beyond the memory.
        MismatchError: the exact check found a difference.
    """
    requests, memory = instance(requests, "requests", Requests), instance(memory, "memory", Memory)
    wrap, record_commands = flag(wrap, "wrap"), flag(record_commands, "record_commands")
    exact_check, progress = flag(exact_check, "exact_check"), progress_function(progress)
    whole = Stopwatch()
    computing, labels = record_commands or exact_check, {"trace": requests.file}
    lookup = Lookup(TraceResult, cache, computing, (requests, memory, wrap), labels)
    if (found := lookup.find(whole, progress)) is not None:
        return found
    needed = len(requests) * (_BYTES_RECORDED if record_commands else BYTES_OF_A_REQUEST)
    ensure_fits(needed, f"{len(requests)} requests", file=requests.file)
    _check_cycles(requests)
    places = _places(requests, memory, wrap)
    if exact_check:
        _exact_check(requests, memory, places)
    shares: list[Any] = [slice(None)]  # a view if there is one channel
    if memory.channels > 1:
        shares = [np.flatnonzero(places.channel == channel) for channel in range(memory.channels)]
    runs = [TraceChannel(memory, requests, places, share, record_commands) for share in shares]
    del places
    done = 0

    interrupted = threading.Event()

    def report(count: int) -> None:
        nonlocal done
        if interrupted.is_set():
            raise InterruptedError
        done += count
        progress(done / len(requests.write))

    progress(0.0)
    running = Stopwatch()
    with ThreadPoolExecutor(min(len(runs), os.cpu_count() or 1)) as pool:
        outcomes = [pool.submit(run.run_reporting, report) for run in runs]
        try:
            for outcome in outcomes:
                outcome.result()
        except BaseException:
            interrupted.set()  # the other channels stop at their next report
            raise
    return lookup.store(_result(requests, memory, runs, running.wall_s(), whole))


def _result(
    requests: Requests, memory: Memory, runs: list[TraceChannel], run_s: float, whole: Stopwatch
) -> TraceResult:
    device, channels = memory.device, [run.channel for run in runs]
    clock_ns, cycles = float(device.clock_ps / 1000), max(run.cycles for run in runs)
    count, writes = len(requests.write), int(np.sum(requests.write))
    reads = np.sum([channel.latencies for channel in channels], axis=0)
    latency = sum(int(channel.value[state.READ_LATENCY]) for channel in channels)

    def gbps(moved: int, clocks: int) -> float:
        return float(Fraction(moved, clocks) / device.clock_ps * 1000) if clocks > 0 else 0.0

    bandwidth, peak = gbps(sum(run.bytes_moved for run in runs), cycles), memory.channels * device.peak_gbps
    clocks = sum(int(run.value[state.COUNTED_UNTIL]) for run in runs)
    energy_nj, energy_note = dram_power(device, memory.power).split(
        np.sum([run.issued for run in runs], axis=0),
        cycles * device.ranks * len(runs),
        sum(run.open_clocks(cycles) for run in runs),
    )
    return TraceResult(
        requests=count,
        reads=count - writes,
        writes=writes,
        cycles=cycles,
        time_ns=float(cycles * device.clock_ps / 1000),
        clock_ns=clock_ns,
        bandwidth_gbps=bandwidth,
        peak_bandwidth_gbps=peak,
        peak_fraction=bandwidth / peak,
        read_latency_ns=read_latencies([reads], latency, clock_ns),
        read_latency_histogram=latency_histogram(reads, clock_ns),
        read_latency_distribution=latency_distribution(reads, clock_ns),
        queue_occupancy={
            "read": sum(int(channel.value[state.READ_QUEUE]) for channel in channels) / max(clocks, 1),
            "write": sum(int(channel.value[state.WRITE_QUEUE]) for channel in channels) / max(clocks, 1),
        },
        accepted=runs[0].accepted if len(runs) == 1 else None,
        per_channel=tuple(
            {"requests": run.count, "cycles": run.cycles, "bandwidth_gbps": gbps(run.bytes_moved, run.cycles)}
            for run in runs
        ),
        fast_forwarded=sum(channel.skipped for channel in channels) / count,
        energy_nj=energy_nj,
        energy_note=energy_note,
        config={**memory.to_dict(), "trace": requests.file},
        run_s=run_s,
        **whole.times(),
        command_traces=command_traces(runs, memory.device.standard),
        **counters(runs, memory.device.standard),
    )


@called_with(TraceSettings)
def run_trace(settings: TraceSettings) -> TraceResult:
    """Run requests until all are served. A channel accepts at most one request a clock.

    Args:

    Raises:
        InputError: a name, a number or the trace is invalid, or an address is beyond the memory.
        MismatchError: the exact check found a difference.
    """
    chosen_cache(settings.cache)  # checked before a trace is read, which may take long
    options = ControllerOptions(**fields_of(ControllerOptions, settings))
    memory = Memory.named(**fields_of(ChannelSettings, settings), options=options, rules=settings.rules)
    ways = settings.wrap, settings.record_commands, settings.exact_check
    return run_requests(_requests(settings.requests), memory, *ways, cache=settings.cache)


def _requests(given: Any) -> Requests:
    """Requests from the argument of `run_trace`."""
    if isinstance(given, Requests):
        return given
    if isinstance(given, (str, PathLike)):
        return read_requests(path_of(given, "requests"))
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        problem = "is neither a path, nor Requests, nor (byte addresses, 1 where a write)"
        raise InputError(f"{shown(given)} {problem}", "type", key="requests")
    try:
        return Requests.of(*given)
    except InputError as error:
        problem = error.problem if error.key == "requests" else str(error)
        raise InputError(problem, error.code, key="requests") from None
