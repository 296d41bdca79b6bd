"""Requests through the controllers of a memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ndpsim.base.arguments import Progress, flag, instance, path_of, progress_function, shown
from ndpsim.base.errors import InputError
from ndpsim.base.limits import ensure_fits
from ndpsim.dram import state
from ndpsim.dram.engines import ScanController
from ndpsim.dram.mapping import Coordinates, map_addresses
from ndpsim.dram.traces import BYTES_OF_A_REQUEST, Requests, read_requests
from ndpsim.simulate.lane import command_traces, ensure_same
from ndpsim.simulate.latencies import latency_distribution, latency_histogram, read_latencies
from ndpsim.simulate.memory import Memory
from ndpsim.simulate.power import dram_power
from ndpsim.simulate.results.cache import Lookup, ResultCache, chosen_cache
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.simulate.results.trace import TraceResult
from ndpsim.simulate.trace_channel import TraceChannel, counters, sizes_in_address

_LATEST = 10**18  # clocks: less than `dram.state.FAR`, even after additions
_BYTES_RECORDED = 512  # bytes of memory for a request with its commands


def _checked_places(requests: Requests, memory: Memory) -> Coordinates:
    """The checked coordinates of requests with coordinates."""
    assert requests.place is not None
    for number, (name, size) in enumerate(sizes_in_address(memory).items()):
        values = requests.place[:, number]
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


def run_trace(
    requests: str | PathLike[str] | Requests | tuple[ArrayLike, ArrayLike],
    standard: str = "DDR5",
    org: str = "DDR5_16Gb_x8",
    timing: str = "DDR5_4800AN",
    ranks: int = 1,
    overrides: Mapping[str, int | str] | None = None,
    mapper: str = "RoBaRaCoCh",
    scheduler: str = "FRFCFS",
    row_policy: str = "open",
    row_cap: int = 4,
    refresh: str = "all-bank",
    read_buffer: int = 32,
    write_buffer: int = 32,
    channels: int = 1,
    wrap: bool = False,
    record_commands: bool = False,
    exact_check: bool = False,
    cache: bool | ResultCache = False,
    rules: str = "standard",
    wck: str = "need-sync",
    refresh_control: str | None = None,
    rfm: str = "off",
    rfm_threshold: int | None = None,
    rck: str = "always-on",
    rck_idle: int = 32,
) -> TraceResult:
    """Run requests until all are served. A channel accepts at most one request a clock.

    Args:
        requests: a trace file in any format of `traces.read_requests`, `Requests`, or two integer arrays of
            one length: byte addresses, and 1 for a write or 0 for a read.
        standard, org, timing, ranks, overrides: a channel, as in `spec.resolve`.
        mapper: how addresses become coordinates: one of `dram.mapping.MAPPERS`.
        scheduler: "FRFCFS" or "FRFCFS-RowHit".
        row_policy: "open", or "closed-cap": close a row after `row_cap` column accesses.
        refresh: "all-bank", "staggered", "elastic", "same-bank" (DDR5), "per-bank" or "none".
        rules: as in `spec.resolve`.
        wck, refresh_control, rfm, rfm_threshold, rck, rck_idle: as in `ControllerOptions`.
        read_buffer, write_buffer: slots of the queues.
        channels: number of channels; consecutive bursts are on consecutive channels.
        wrap: take addresses beyond the memory modulo its size, instead of refusing them.
        record_commands: keep the command traces; fast-forward then skips no request.
        exact_check: first run on both controllers, step by step on the plain one, and compare.
        cache: as in `run_requests`; a trace file is always read, because its contents are part of the key.

    Raises:
        InputError: a name, a number or the trace is invalid, or an address is beyond the memory.
        MismatchError: the exact check found a difference.
    """
    queues, clock = (read_buffer, write_buffer, wck), (rck, rck_idle)
    options = state.ControllerOptions(
        scheduler, row_policy, row_cap, refresh, *queues, refresh_control, rfm, rfm_threshold, *clock
    )
    memory = Memory.named(standard, org, timing, ranks, overrides, mapper, channels, options, rules)
    for name, value in (("wrap", wrap), ("record_commands", record_commands), ("exact_check", exact_check)):
        flag(value, name)  # before reading a trace, which may take long
    chosen_cache(cache)
    return run_requests(_requests(requests), memory, wrap, record_commands, exact_check, cache=cache)


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
