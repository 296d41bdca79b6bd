"""Requests through the controllers of a memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np

from ndpsim.base.arguments import Progress, flag, instance, progress_function
from ndpsim.base.errors import InputError, shown
from ndpsim.base.limits import ensure_fits
from ndpsim.base.options.dram import JOBS, ChannelSettings, ControllerOptions, TraceSettings
from ndpsim.base.options.settings import called_with, fields_of
from ndpsim.dram import state
from ndpsim.dram.engines import Controller, ScanController, make_controller
from ndpsim.dram.mapping import Coordinates
from ndpsim.dram.shares import make_map_tables, make_shares, share_addresses, share_places
from ndpsim.dram.spec import lower
from ndpsim.dram.traces import Requests, RequestStream, stream_of
from ndpsim.simulate.lane import Ints, MakeChannel, command_traces, ensure_same
from ndpsim.simulate.memory import Memory
from ndpsim.simulate.power import dram_power
from ndpsim.simulate.results.cache import Lookup, ResultCache, chosen_cache
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.simulate.results.trace import TraceResult
from ndpsim.simulate.statistics import latency_distribution, latency_histogram, read_latencies
from ndpsim.simulate.trace_channel import TraceChannel, counters, room_of

_LATEST = 10**18  # clocks: less than `dram.state.FAR`, even after additions
_BYTES_BUFFERED = 32  # bytes of memory for a request in the buffer of its channel
_BYTES_RECORDED = 512  # bytes of memory for a request with its commands

#: Calls a function for each channel.
ForEach = Callable[[Callable[[TraceChannel], None], list[TraceChannel]], Iterable[None]]


# ---- The place of each request


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


class TraceRun:
    """The channels of a memory, which run blocks of requests.

    Args:
        memory: the channels and their controllers.
        wrap, recording: as `wrap` and `record_commands` of `run_trace`.
        stream: the requests that are to come.
        make: makes the controllers.

    Raises:
        InputError: the mapping does not fit the memory, or there is no room for the buffers.
    """

    def __init__(
        self,
        memory: Memory,
        wrap: bool,
        recording: bool,
        stream: RequestStream,
        make: MakeChannel = make_controller,
    ) -> None:
        self._memory, self._recording = memory, recording
        tables, policy = lower(memory.device), memory.policy
        controllers = [make(tables, policy) for _ in range(memory.channels)]
        room = room_of(memory.channels, controllers[0].most_queued)
        room = room if stream.count is None else min(room, stream.count)
        ensure_fits(memory.channels * room * _BYTES_BUFFERED, f"buffers of {room} requests", file=stream.file)
        self._shares = make_shares(memory.channels, room, stream.timed)
        self.channels = [
            TraceChannel(memory, self._shares, number, recording, controller, stream.file)
            for number, controller in enumerate(controllers)
        ]
        self._tables: Any = None
        if not stream.by_place:
            self._tables = make_map_tables(memory.mapping, memory.device, memory.channels, wrap)
        self.requests = self.writes = 0
        self.run_s = 0.0

    def take(self, requests: Requests, for_each: ForEach, report: Callable[[], None]) -> None:
        """Put a block of requests into the buffers; run channels as long as one has no room.

        Raises:
            InputError: a request is beyond the memory, or its cycle beyond the clocks of controllers.
        """
        self.requests += len(requests)
        self.writes += int(np.count_nonzero(requests.write))
        if self._recording:
            ensure_fits(self.requests * _BYTES_RECORDED, f"{self.requests} requests", file=requests.file)
        _check_cycles(requests)
        share = self._sharing(requests)
        first = share(0)
        while first < len(requests):
            self._check_address(requests, first)
            self._run(TraceChannel.run_ahead, for_each)
            report()
            first = share(first)

    def finish(self, for_each: ForEach) -> None:
        """Run all channels to the end."""
        self._run(TraceChannel.run_to_end, for_each)

    def _run(self, run: Callable[[TraceChannel], None], for_each: ForEach) -> None:
        stopwatch = Stopwatch()
        for _ in for_each(run, self.channels):
            pass
        self.run_s += stopwatch.wall_s()

    def _sharing(self, requests: Requests) -> Callable[[int], int]:
        """A function that puts requests, from a number on, into the buffers; see `shares.share_addresses`."""
        none, shares = np.empty(0, dtype=np.int64), self._shares
        cycle = none if requests.cycle is None else np.ascontiguousarray(requests.cycle)
        write = np.ascontiguousarray(requests.write)
        share: Any
        if requests.address is not None:
            address = np.ascontiguousarray(requests.address)
            share = share_addresses
            return lambda first: int(share(self._tables, address, write, cycle, first, shares))
        places = _checked_places(requests, self._memory)
        words = state.pack_place(*places[:4], write)
        channel, column = (np.ascontiguousarray(part, dtype=np.int64) for part in places[:3:-1])
        number = address_of(places, self._memory)
        share = share_places
        return lambda first: int(share(channel, words, column, number, cycle, first, shares))

    def _check_address(self, requests: Requests, number: int) -> None:
        """Check the address of a request that was put into no buffer."""
        if requests.address is None or self._tables.wraps:
            return
        address, capacity = int(requests.address[number]), self._memory.capacity_bytes
        if address >= capacity:
            problem = f"address {address:#x} is beyond the memory's {capacity:#x} bytes; --wrap folds it back"
            raise InputError(problem, "range", file=requests.file, line=requests.line(number))


def _check_cycles(requests: Requests) -> None:
    """Check that the last request is before the clock that controllers use as never."""
    last = 0 if requests.cycle is None else int(requests.cycle[-1])
    if last >= _LATEST:
        problem = f"cycle {last} is not below {_LATEST}"
        raise InputError(problem, "range", file=requests.file, line=requests.line(len(requests) - 1))


# ---- Runs


@contextmanager
def _threads(jobs: int, stream: RequestStream) -> Iterator[tuple[ForEach, Iterable[Requests]]]:
    """A function that runs channels on so many threads, and the blocks, read ahead if there are several."""
    if jobs == 1:
        yield map, stream
        return
    with ThreadPoolExecutor(jobs) as pool:
        yield pool.map, stream if stream.count is not None else _ahead(stream, pool)


def _ahead(stream: RequestStream, pool: ThreadPoolExecutor) -> Iterator[Requests]:
    """The blocks of a stream; the next one is read meanwhile."""
    blocks = iter(stream)
    following = pool.submit(next, blocks, None)
    while (block := following.result()) is not None:
        following = pool.submit(next, blocks, None)
        yield block


def _check_exactly(runs: list[TraceRun]) -> None:
    """Compare every channel of runs of the fast controllers with that of the plain ones, the last."""
    for number, plain in enumerate(runs[-1].channels):
        ensure_same(f"channel {number}", runs[-2].channels[number], plain)


def run_requests(
    requests: Requests | RequestStream | Iterator[Any],
    memory: Memory,
    wrap: bool = False,
    record_commands: bool = False,
    exact_check: bool = False,
    progress: Progress | bool | None = None,
    cache: bool | ResultCache = False,
    jobs: int | None = None,
) -> TraceResult:
    """Run requests through a memory until all are served.

    >>> from pathlib import Path
    >>> _ = Path("two.trace").write_text("LD 0x0\\nST 0x40\\n")
    >>> ndpsim.run_requests(ndpsim.read_requests("two.trace"), ndpsim.Memory.named()).reads
    1

    Args:
        requests: the requests, or an iterator of blocks, see `run_trace`; a channel accepts at most one a
            clock, and no request before its cycle.
        memory: the channels and their controllers.
        wrap, record_commands, exact_check, jobs: as in `run_trace`.
        progress: called with the share of the requests that are served; None: no calls.
        cache: True, or a `ResultCache`, to reuse the result of an equal run; it needs all requests in memory.
            With `record_commands` or `exact_check` everything is run.

    Raises:
        InputError: an argument is invalid, or a request is beyond the memory.
        MismatchError: the exact check found a difference.
    """
    if not isinstance(requests, (Requests, RequestStream, Iterator)):
        problem = f"{shown(requests)} is neither Requests nor an iterator of blocks"
        raise InputError(problem, "type", key="requests")
    stream, memory = stream_of(requests), instance(memory, "memory", Memory)
    wrap, record_commands = flag(wrap, "wrap"), flag(record_commands, "record_commands")
    exact_check, progress = flag(exact_check, "exact_check"), progress_function(progress)
    jobs = os.cpu_count() or 1 if jobs is None else JOBS.checked(jobs)
    whole = Stopwatch()
    computing, labels = record_commands or exact_check, {"trace": stream.file}
    if chosen_cache(cache) is not None and not computing:
        stream = RequestStream([stream.joined()], stream.file)
    lookup = Lookup(TraceResult, cache, computing, (stream.whole, memory, wrap), labels)
    if (found := lookup.find(whole, progress)) is not None:
        return found
    runs = [TraceRun(memory, wrap, record_commands, stream)]
    if exact_check:
        runs += [TraceRun(memory, wrap, False, stream)] if record_commands else []
        runs += [TraceRun(memory, wrap, False, stream, ScanController)]
    _run_all(runs, stream, jobs, progress)
    if exact_check:
        _check_exactly(runs)
    return lookup.store(_result(runs[0], memory, stream.file, whole))


def _run_all(runs: list[TraceRun], stream: RequestStream, jobs: int, progress: Progress) -> None:
    """Run the requests of a stream in each of several runs."""
    reported = 0.0

    def report() -> None:
        nonlocal reported
        served = sum(channel.served for channel in runs[0].channels)
        expected = stream.expected(runs[0].requests)
        reported = max(reported, min(served / expected, 1.0)) if expected else reported
        progress(reported)

    progress(0.0)
    with _threads(jobs, stream) as (for_each, blocks):
        for block in blocks:
            for run in runs:
                run.take(block, for_each, report)
        for run in runs:
            run.finish(for_each)
    progress(1.0)


def _reads_by_latency(channels: list[Controller]) -> Ints:
    """int64[clocks]: reads of all channels by latency, up to the longest."""
    reads: Ints = np.sum([channel.latencies for channel in channels], axis=0)
    return reads[: int(np.flatnonzero(reads)[-1]) + 1 if reads.any() else 1]


def _result(run: TraceRun, memory: Memory, file: str | None, whole: Stopwatch) -> TraceResult:
    runs, device = run.channels, memory.device
    channels = [bus.channel for bus in runs]
    clock_ns, cycles = float(device.clock_ps / 1000), max(bus.cycles for bus in runs)
    reads = _reads_by_latency(channels)
    latency = sum(int(channel.value[state.READ_LATENCY]) for channel in channels)

    def gbps(moved: int, clocks: int) -> float:
        return float(Fraction(moved, clocks) / device.clock_ps * 1000) if clocks > 0 else 0.0

    bandwidth, peak = gbps(sum(bus.bytes_moved for bus in runs), cycles), memory.channels * device.peak_gbps
    clocks = sum(int(bus.value[state.COUNTED_UNTIL]) for bus in runs)
    energy_nj, energy_note = dram_power(device, memory.power).split(
        np.sum([bus.issued for bus in runs], axis=0),
        cycles * device.ranks * len(runs),
        sum(bus.open_clocks(cycles) for bus in runs),
    )
    return TraceResult(
        requests=run.requests,
        reads=run.requests - run.writes,
        writes=run.writes,
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
            {"requests": bus.count, "cycles": bus.cycles, "bandwidth_gbps": gbps(bus.bytes_moved, bus.cycles)}
            for bus in runs
        ),
        fast_forwarded=sum(channel.skipped for channel in channels) / run.requests,
        energy_nj=energy_nj,
        energy_note=energy_note,
        config={**memory.to_dict(), "trace": file},
        run_s=run.run_s,
        **whole.times(),
        command_traces=command_traces(runs, memory.device.standard),
        **counters(runs, memory.device.standard),
    )


@called_with(TraceSettings)
def run_trace(settings: TraceSettings) -> TraceResult:
    """Run requests until all are served. A channel accepts at most one request a clock.

    >>> from pathlib import Path
    >>> _ = Path("two.trace").write_text("LD 0x0\\nST 0x40\\n")
    >>> ndpsim.run_trace("two.trace").writes
    1

    Args:

    Raises:
        InputError: a name, a number or the trace is invalid, or an address is beyond the memory.
        MismatchError: the exact check found a difference.
    """
    chosen_cache(settings.cache)  # checked before a trace is read, which may take long
    options = ControllerOptions(**fields_of(ControllerOptions, settings))
    memory = Memory.named(**fields_of(ChannelSettings, settings), options=options, rules=settings.rules)
    ways = settings.wrap, settings.record_commands, settings.exact_check
    stream = stream_of(settings.requests)
    return run_requests(stream, memory, *ways, cache=settings.cache, jobs=settings.jobs)
