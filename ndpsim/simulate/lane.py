"""A running controller with its own bus: that of a host, or that of a lane and its multipliers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError, MismatchError, no_way_on
from ndpsim.base.limits import ensure_fits
from ndpsim.dram import controller, sink, state
from ndpsim.dram.engines import Controller, compare_channels
from ndpsim.dram.refresh_policies import Due, NoSuchRefreshError, make_schedule
from ndpsim.dram.spec import Device, Standard, Tables, lower
from ndpsim.dram.spec.lower import COMPLETED_BY, CYCLES, SCOPE
from ndpsim.dram.spec.standard import ACTIVATE, BANK_PAIR, ONE_BANK, STACK
from ndpsim.dram.traces import HEADER, CommandTrace

if TYPE_CHECKING:
    from ndpsim.dimm.layout import LaneShare

Ints = NDArray[np.int64]
MakeChannel = Callable[[Tables, state.Policy], Controller]

_CHUNK = 1 << 17  # requests between two reports of progress
_FIRST_ROOM = 1 << 14  # initial commands for which a trace has room

# Bytes of memory, measured and rounded up: for a read or a row of weights of a stream, with its recorded
# transitions; and for a read or write in a command trace, with the commands of its row, until it is in a
# file.
_BYTES_OF_A_READ = 160
_BYTES_OF_A_ROW = 64
_BYTES_RECORDED = 320


def check_refresh(device: Device, refresh: str) -> None:
    """Check that the device has this kind of refresh, and that refreshes leave time for other commands.

    Raises:
        InputError: the device does not have it, or no time is left.
    """
    try:
        schedule = make_schedule(refresh, state.refreshed(lower(device)))
    except NoSuchRefreshError:
        problem = f"{device.standard.name} has no {refresh} refresh"
        raise InputError(problem, "unknown-name", key="refresh") from None
    if not schedule.turns:
        return
    busy = next(command.busy for command in device.standard.by_number if command.busy)
    needed = device.clocks(f"{busy} + nRC") + device.ranks * (device.clocks("nRAS + nRP") + 1)
    if device.clocks("nREFI") < needed:
        sums = f"{busy} + ranks x (nRAS + nRP + 1) + nRC is {needed}"
        raise _no_time(f"{device.clocks('nREFI')} clocks between refreshes leave no time for data: {sums}")
    for rank in range(device.ranks):
        _check_turns(device, [turn for turn in schedule.turns if turn.rank in (-1, rank)], schedule.period)


def _no_time(problem: str, interval: str = "nREFI") -> InputError:
    return InputError(problem, "no-progress", key=interval)


def _check_turns(device: Device, turns: Sequence[Due], period: int) -> None:
    """Check that the refreshes of a rank fit into a period, with time between them to open rows."""
    tables, interval = lower(device), device.standard.by_number[turns[0].command].interval
    of_bank = np.isin(tables.commands[[turn.command for turn in turns], SCOPE], (ONE_BANK, BANK_PAIR))
    # Rules within a rank; if banks are refreshed one by one, only those that constrain other banks.
    gap = tables.gap[[1, 2, STACK] if of_bank.all() else slice(1, None)].max(axis=0)
    until_row = _until_row(tables, gap)
    following = [*turns[1:], *(turn._replace(clock=turn.clock + period) for turn in turns[:1])]
    taken = sum(
        max(turn.pause, int(gap[turn.command, after.command]))
        for turn, after in zip(turns, following, strict=True)
    )
    if taken >= period > 0:
        problem = f"{period} clocks leave no time for {len(turns)} refreshes of a rank, which take {taken}"
        raise _no_time(problem, interval)
    if of_bank.all():
        first = turns[0].command
        name, until_open = device.standard.names[first], int(_until_row(tables, tables.gap[3])[first])
        needed = until_open + device.clocks("nRC")
        if needed > period:
            sums = f"{until_open} from {name} to its next row + nRC is {needed}"
            problem = f"{period} clocks between refreshes of a bank leave no time for data: {sums}"
            raise _no_time(problem, interval)
    for turn, after in zip(turns, following, strict=True):
        name, until_open = device.standard.names[turn.command], int(until_row[turn.command])
        if until_open >= after.clock - turn.clock:
            due = f"the next refresh of its rank is due after {after.clock - turn.clock}"
            raise _no_time(f"no row opens for {until_open} clocks after {name}, and {due}", interval)


def _until_row(tables: Tables, gap: Ints) -> Ints:
    """By command, the clocks after it until a row opens, or begins to; `gap`: between commands."""
    second = int(tables.commands[ACTIVATE, COMPLETED_BY])
    if second < 0:
        return gap[:, ACTIVATE]
    until: Ints = np.maximum(gap[:, ACTIVATE], gap[:, second] - tables.commands[ACTIVATE, CYCLES])
    return until


def ensure_streams_fit(bursts: Sequence[int], rows: int) -> None:
    """Check that streams of this many bursts each, of this many rows of weights, fit into memory.

    Raises:
        InputError: they need too much memory.
    """
    needed = sum(bursts) * _BYTES_OF_A_READ + len(bursts) * rows * _BYTES_OF_A_ROW
    ensure_fits(needed, f"an expert of {max(bursts, default=0)} bursts on a lane")


def ensure_recordable(bursts: int) -> None:
    """Make sure that the commands of this many reads and writes may be recorded.

    Raises:
        InputError: they need too much memory.
    """
    ensure_fits(bursts * _BYTES_RECORDED, f"a record of the commands for {bursts} bursts")


def no_commands() -> state.Commands:
    """A recorder that records nothing."""
    return state.Commands(np.zeros((0, state.RECORD_FIELDS), np.int64), np.zeros(1, np.int64))


def command_room() -> state.Commands:
    """A recorder that `run_channel` enlarges."""
    return state.Commands(np.zeros((_FIRST_ROOM, state.RECORD_FIELDS), np.int64), np.zeros(1, np.int64))


def run_channel(
    channel: Controller,
    source: state.Source,
    data_sink: sink.Sink,
    commands: state.Commands,
    until_served: int,
    until_taken: int = state.FAR,
) -> state.Commands:
    """Run the controller, and enlarge its command trace as needed; returns the trace, maybe moved."""
    while True:
        outcome = channel.run(source, data_sink, commands, until_served, until_taken)
        if outcome in (controller.DONE, controller.PAUSED):
            return commands
        if outcome == controller.STUCK:
            raise no_way_on("refreshes pile up, or requests wait for what never comes")
        commands = state.Commands(
            np.concatenate((commands.entry, np.zeros_like(commands.entry))), commands.length
        )


def decode_commands(
    commands: state.Commands, tables: Tables, standard: Standard, shift: int = 0
) -> CommandTrace:
    """A recorded trace, shifted by this many clocks, with nodes split into rank, bank group and bank."""
    nodes = state.number_nodes(tables)
    clock, command, node, row, column = commands.entry[: commands.length[0]].T
    flat = node - nodes.first_bank
    to_bank = flat >= 0
    group = flat // tables.banks_per_group
    to_group = to_bank & np.isin(tables.commands[command, SCOPE], (ONE_BANK, BANK_PAIR))
    return CommandTrace(
        clock=clock + shift,
        command=command.copy(),
        rank=np.where(to_bank, group // tables.bankgroups, node - 1),
        bankgroup=np.where(to_group, group % tables.bankgroups, -1),
        bank=np.where(to_bank, flat % tables.banks_per_group, -1),
        row=row.copy(),
        column=column.copy(),
        names=standard.names,
    )


def channel_commands(recorded: state.Commands, number: int) -> state.Commands:
    """The commands of one of several channels."""
    return state.Commands(recorded.entry[number], recorded.length[number : number + 1])


def merge_commands(own: CommandTrace, of_host: CommandTrace, rank: int) -> CommandTrace:
    """The commands of a lane and of the host's bus to its rank, in order."""
    chosen = of_host.rank == rank
    columns = {name: np.concatenate((getattr(own, name), getattr(of_host, name)[chosen])) for name in HEADER}
    columns["rank"][:] = 0
    order = np.argsort(columns["clock"], kind="stable")
    return CommandTrace(**{name: values[order] for name, values in columns.items()}, names=own.names)


def name_commands(issued: Ints, standard: Standard) -> dict[str, int]:
    """Numbers of issued commands, int64[command], by name in the standard's order, without zeros."""
    counts = dict(zip(standard.names, issued.tolist(), strict=True))
    return {command.name: counts[command.name] for command in standard.commands if counts[command.name]}


@dataclass(frozen=True, eq=False)
class LaneStream:
    """Reads of the lanes of a DIMM with equal numbers of bursts in every region, which are equal.

    Attributes:
        lanes: the numbers of the lanes.
        share: the weights of each lane.
        source: their reads, none admitted.
        groups: the groups of bursts (`ndp.unit`) of the reads, in any of the lanes.
    """

    lanes: range
    share: LaneShare
    source: state.Source
    groups: sink.Groups

    @functools.cached_property
    def merged_groups(self) -> tuple[sink.Groups, Ints]:
        """Fewer groups, each of which may represent a group of each lane; see `sink.merge_groups`."""
        return sink.merge_groups(self.groups)


class Bus:
    """Requests in a controller.

    Args:
        tables: the channel, with the ranks on the bus.
        channel: its idle controller.
        source: the requests.
        recording: keep the commands.
        data_sink: takes read data; None: data is never delayed.
    """

    def __init__(
        self,
        tables: Tables,
        channel: Controller,
        source: state.Source,
        recording: bool = False,
        data_sink: sink.Sink | None = None,
    ) -> None:
        self.tables, self.channel, self.source, self.count = tables, channel, source, len(source.place)
        self.sink = sink.null_sink() if data_sink is None else data_sink
        self.commands = command_room() if recording else no_commands()

    def run(self, until_served: int | None = None, until_taken: int = state.FAR) -> None:
        """Run until this many requests are served (all without a number), or this many are accepted."""
        served = self.count if until_served is None else until_served
        self.commands = run_channel(self.channel, self.source, self.sink, self.commands, served, until_taken)

    def run_until(self, clock: int) -> None:
        """Run up to, not including, a clock; if requests remain, call it again."""
        self.channel.value[state.PAUSE] = clock
        self.run(state.FAR)

    @property
    def cycles(self) -> int:
        """Clocks to the last beat of read data, or the last command."""
        return max(int(self.channel.value[state.DATA_END]), int(self.channel.value[state.CLOCK]) - 1)


def command_traces(buses: Sequence[Bus], standard: Standard, shift: int = 0) -> tuple[CommandTrace, ...]:
    """The commands of each bus that recorded any, shifted by this many clocks; a bus that represents several
    is decoded once.
    """
    recorded = [bus for bus in buses if bus.commands.entry.size]
    decoded = {
        bus: decode_commands(bus.commands, bus.tables, standard, shift) for bus in dict.fromkeys(recorded)
    }
    return tuple(decoded[bus] for bus in recorded)


def ensure_same(name: str, fast: Bus, plain: Bus) -> None:
    """Check that all counts of a bus equal those of its plain run.

    Raises:
        MismatchError: a count differs.
    """
    different = compare_channels(fast.channel, plain.channel)
    if not np.array_equal(fast.sink.value[sink.COMPARED], plain.sink.value[sink.COMPARED]):
        different.append("what the multipliers did")
    if different:
        raise MismatchError(f"{name} differs from its plain run in {', '.join(different)}")


class LaneCounts(NamedTuple):
    """Counts of equal lanes: the number of lanes, and counts of each of them.

    `counter` (places in `dram.state`) and `issued` are those of its channel, `open_clocks` the clocks for
    which banks were open, summed over all banks, `skipped` the reads that were fast-forwarded; `busy` the
    ticks for which all its multipliers together had work.
    """

    lanes: int
    counter: list[int]
    issued: Ints
    open_clocks: int
    skipped: int
    busy: float


class Lane(Bus):
    """The running lanes of a stream; for arguments see `Bus`."""

    def __init__(
        self, stream: LaneStream, tables: Tables, channel: Controller, recording: bool, data_sink: sink.Sink
    ) -> None:
        source = stream.source._replace(admitted=np.zeros(1, dtype=np.int64))
        super().__init__(tables, channel, source, recording, data_sink)
        self.stream = stream
        self.busy = 0.0  # busy ticks of all multipliers

    def begin(self, first_row: int) -> None:
        """Read rows this far after those of the stream, after all earlier reads."""
        first = self.stream.source.place
        place = np.empty_like(first) if self.source.place is first else self.source.place
        np.add(first, first_row << state.ROW_SHIFT, out=place)
        self.source = self.source._replace(place=place)

    def read_region(
        self,
        region: int,
        runs: Iterable[tuple[int, int, int]],
        servers: int,
        release: int,
        report: Callable[[int], None],
    ) -> None:
        """Read the next region; `done` then has the ticks at which the bursts of each group are done.

        Args:
            region: number of the region, from 0; regions are read in turn, repeatedly.
            runs: bursts, the ticks for which each occupies its multipliers, and the ticks after the last one.
            servers: number of simultaneous bursts. Those of the previous region are done at `release`.
            release: the tick before which the multipliers may not start on the region.
            report: called occasionally with the number of read bursts.
        """
        value, served = self.sink.value, int(self.channel.value[state.SERVED])
        if servers != self.sink.servers:
            self.sink = self.sink._replace(servers=servers, free=np.zeros(servers, dtype=np.int64))
            value[sink.SERVER] = 0
        busy = int(value[sink.BUSY])
        self.source.admitted[0] = served + self.stream.share.bursts[region]
        for bursts, ticks, gap in runs:
            value[sink.RELEASE], value[sink.SERVICE] = release, ticks
            end = served + bursts
            for until in (*range(served + _CHUNK, end, _CHUNK), end):
                self.run(until)
                report(until - served)
                served = until
            release = int(value[sink.FINISHED]) + gap
            self.busy += gap
        self.busy += (int(value[sink.BUSY]) - busy) / servers

    def done(self, groups: slice) -> Ints:
        """The ticks at which the bursts of groups are done in these lanes; 0 for groups without bursts."""
        return self.sink.done[self.stream.merged_groups[1][groups]]

    def refresh_until(self, clock: int) -> None:
        """Advance without reads up to, not including, `clock`; due refreshes are issued."""
        value = self.channel.value
        if clock <= value[state.CLOCK]:
            return
        self.run_until(clock)
        value[state.PAUSE] = state.FAR
        # With empty queues, it does not matter at which step before `clock` a controller stops.
        value[state.CLOCK], value[state.COUNTED_UNTIL] = clock, clock - 1
