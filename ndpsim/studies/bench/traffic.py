"""Rows with streams and random requests on one channel, for ndpsim's two controllers and Ramulator 2.1.

Every request is an address of the mapper RoBaRaCoCh, so Ramulator issues the same commands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import MismatchError
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.config import Hardware, load_hardware
from ndpsim.dram import sink, state
from ndpsim.dram.engines import Controller, ScanController, compare_channels, make_controller
from ndpsim.dram.mapping import map_addresses
from ndpsim.dram.spec import Device, Standard, Tables, lower
from ndpsim.dram.traces import Requests
from ndpsim.simulate import Memory, simulate_contention, simulate_relayout
from ndpsim.simulate.lane import name_commands, no_commands, run_channel
from ndpsim.simulate.trace_channel import counters_now
from ndpsim.studies import ramulator
from ndpsim.studies.bench.row import Benchmark, BenchRow, Results, TimedRuns, expect
from ndpsim.workload.models import Expert, load_model

Ints = NDArray[np.int64]
MakeController = Callable[[Tables, state.Policy], Controller]

#: Maximum number of runs of Ramulator, which take seconds each.
RAMULATOR_RUNS = 3

_SEED = 20240229
_WRITE_PERCENT = 33
_OPEN = ControllerOptions()
_DDR5 = "DDR5", "DDR5_16Gb_x8", "DDR5_4800AN"


def contiguous(device: Device, count: int) -> Ints:
    """Addresses that rotate over the bank groups, then fill the row's columns, then bank, rank and row.

    Where there are no bank groups, they rotate over the banks. With stacks, they rotate over the groups of
    one stack, and the stack changes before the bank. If each rank has its own data bus, they rotate over
    ranks first.
    """
    groups = device.bankgroups // device.stacks
    turning = device.banks_per_group if groups == 1 else 1
    turns = device.ranks if device.standard.own_data_buses else 1
    rest, turn = np.divmod(np.arange(count, dtype=np.int64), turns)
    rest, bankgroup = np.divmod(rest, groups)
    rest, in_turn = np.divmod(rest, turning)
    rest, column = np.divmod(rest, device.bursts_per_row)
    rest, stack = np.divmod(rest, device.stacks)
    rest, bank = np.divmod(rest, device.banks_per_group // turning)
    row, rank = np.divmod(rest, device.ranks // turns)
    # RoBaRaCoCh, from its most significant field down.
    address: Ints = row * device.banks_per_group + bank * turning + in_turn
    address = address * groups + bankgroup
    address = address * device.stacks + stack
    address = address * device.ranks + rank + turn
    return (address * device.bursts_per_row + column) * device.burst_bytes


def random_bursts(device: Device, count: int) -> tuple[Ints, NDArray[np.int8]]:
    """Addresses drawn evenly from all bursts of the device, and flags that mark 33% of them as writes."""
    # A bit generator's raw words are the same in every version of NumPy.
    words = np.random.PCG64(_SEED).random_raw((2, count))
    bursts = device.capacity_bytes // device.burst_bytes
    address = (words[0] % np.uint64(bursts)).astype(np.int64) * device.burst_bytes
    return address, (words[1] % np.uint64(100) < _WRITE_PERCENT).astype(np.int8)


class _Timed(NamedTuple):
    """A controller that has served everything."""

    channel: Controller
    seconds: float
    accepted: Mapping[str, int]  # counters at the clock that took the last request, where Ramulator ends
    skipped: int


@dataclass(frozen=True)
class Traffic(Benchmark):
    """Requests to a channel with FR-FCFS, under Ramulator's rules if they differ from the standard's.

    Attributes:
        ranks: the number of ranks of the channel.
        random: requests are random instead of one contiguous stream.
        writes: 33% of the requests are writes.
        fast_forward: the source gives the number of reads after which it repeats.
        options: options of the controller; by default open rows and queues of 32.
        presets: standard, organisation and timings of the channel.
    """

    ranks: int
    random: bool = False
    writes: bool = False
    fast_forward: bool = False
    options: ControllerOptions = _OPEN
    presets: tuple[str, str, str] = _DDR5

    def memory(self) -> Memory:
        """The channel."""
        return Memory.named(*self.presets, self.ranks, options=self.options, rules="reference")

    def requests(self, device: Device) -> Requests:
        """The requests to the channel."""
        address, write = random_bursts(device, self.pinned.requests)
        if not self.random:
            address = contiguous(device, self.pinned.requests)
        return Requests.of(address, write if self.writes else np.zeros_like(write))

    def run(self, repeat: int) -> BenchRow:
        """Measure the fast controller, and compare it with the general one.

        Raises:
            MismatchError: the pinned work, the plain controller or Ramulator disagrees.
        """
        memory = self.memory()
        requests = self.requests(memory.device)
        source = self._source(memory, requests)
        plain = self._runs(ScanController, source, memory, repeat)
        fast = self._runs(make_controller, source, memory, repeat)
        for run in fast + plain:
            different = compare_channels(run.channel, plain[0].channel)
            if different:
                raise MismatchError(f"{self.name}: fast and plain differ in {', '.join(different)}")
        work = self._work(plain[0].channel, memory.device.standard)
        expect(self.name, work, self.pinned)
        seconds = min(run.seconds for run in fast[1:])
        return BenchRow(
            self.name,
            work,
            seconds,
            ratio_plain=min(run.seconds for run in plain[1:]) / seconds,
            ratio_ramulator=self._ratio_ramulator(requests, memory, repeat, fast[0].accepted, seconds),
            fast_forwarded=fast[0].skipped / work.requests,
        )

    def _source(self, memory: Memory, requests: Requests) -> state.Source:
        device, address = memory.device, requests.address
        assert address is not None
        # Rank, bank group, bank, row, column.
        coordinates = map_addresses(address, memory.mapping, device)[:5]
        period = device.bankgroups if self.fast_forward else 0
        return state.make_source((*coordinates, requests.write, address), period=period)

    def _runs(self, make: MakeController, source: state.Source, memory: Memory, repeat: int) -> list[_Timed]:
        """One run that may compile, and `repeat` measured runs."""
        tables, standard = lower(memory.device), memory.device.standard
        policy = memory.policy
        return [_serve(make(tables, policy), source, standard) for _ in range(1 + repeat)]

    def _work(self, channel: Controller, standard: Standard) -> Results:
        cycles = max(int(channel.value[state.DATA_END]), int(channel.value[state.CLOCK]) - 1)
        return Results(int(channel.value[state.SERVED]), cycles, name_commands(channel.issued, standard))

    def _ratio_ramulator(
        self, requests: Requests, memory: Memory, repeat: int, accepted: Mapping[str, int], seconds: float
    ) -> float | None:
        if not ramulator.is_available():
            return None
        theirs, ramulator_s = ramulator.timed_runs(requests, memory, min(repeat, RAMULATOR_RUNS))
        for name, count in theirs.items():
            if accepted[name] != count:
                raise MismatchError(f"{self.name}: {name}: ours {accepted[name]}, Ramulator's {count}")
        return ramulator_s / seconds


def _serve(channel: Controller, source: state.Source, standard: Standard) -> _Timed:
    """Serve all requests; only the controller's own time counts."""
    count, data_sink, silent = len(source.place), sink.null_sink(), no_commands()
    began = time.perf_counter()
    run_channel(channel, source, data_sink, silent, state.FAR, until_taken=count)
    taken = time.perf_counter()
    accepted = counters_now(channel, standard)
    resumed = time.perf_counter()
    run_channel(channel, source, data_sink, silent, count)
    seconds = time.perf_counter() - resumed + taken - began
    return _Timed(channel, seconds, accepted, channel.skipped)


# ---- Rows with an expert beside the host, and with a relayout, compared with the time of the hardware


#: The DRAM commands of a call, the simulated time in ns, and the DRAM clock in ns.
Outcome = tuple[Mapping[str, int], float, float]


def beside_host(hardware: Hardware, expert: Expert) -> Outcome:
    """An expert beside saturating host traffic."""
    result = simulate_contention(hardware, expert)
    return result.commands, result.ndp_time_ns, result.clock_ns


def relayout_of_four(hardware: Hardware, expert: Expert) -> Outcome:
    """Four experts from one DIMM each to stripes over all, and the same by the host."""
    result = simulate_relayout(hardware, expert, experts=4)
    return result.commands, result.time_ns, result.clock_ns


@dataclass(frozen=True)
class ChannelCall(TimedRuns):
    """A call, measured after a first call that is not. Only compiled kernels are left from earlier runs.

    Attributes:
        call: the measured call, on hardware that is read again; requests are reads and writes of lanes.
    """

    call: Callable[[Hardware, Expert], Outcome]

    def timed(self) -> BenchRow:
        hardware, expert = replace(load_hardware(self.hw)), load_model(self.model).expert
        began = time.perf_counter()
        commands, time_ns, clock_ns = self.call(hardware, expert)
        seconds = time.perf_counter() - began
        known = hardware.lane_device().standard.commands
        requests = sum(commands.get(command.name, 0) for command in known if command.reads or command.writes)
        work = Results(requests, round(time_ns / clock_ns), dict(commands))
        return BenchRow(self.name, work, seconds, simulated_s=time_ns / 1e9)
