"""One lane of a DIMM as a simulation under way: a channel, its stream of weights, and its multipliers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram import controller, sink, state
from ndpsim.dram.engines import Controller
from ndpsim.dram.refresh_policies import Due, NoSuchRefreshError, make_schedule
from ndpsim.errors import InputError, no_way_on
from ndpsim.layout import Interleaving, LaneShare
from ndpsim.limits import ensure_fits
from ndpsim.spec import Device, Standard, Tables, lower
from ndpsim.spec.lower import SCOPE
from ndpsim.spec.standard import ACTIVATE, ONE_BANK, STACK
from ndpsim.traces import HEADER, CommandTrace

__all__ = [
    "Counted",
    "Lane",
    "LaneStream",
    "check_refresh",
    "command_room",
    "commands_by_kind",
    "decode_commands",
    "ensure_recordable",
    "ensure_streams_fit",
    "make_stream",
    "merge_commands",
    "name_commands",
    "no_commands",
    "run_channel",
]

Ints = NDArray[np.int64]

_CHUNK = 1 << 17  # requests between two reports of progress
_FIRST_ROOM = 1 << 14  # commands a trace has room for at first

# Memory that is taken, measured and rounded up: by a read or a row of weights of a stream, transitions that
# are recorded of it included; and by a read or write in a command trace, with its row's commands, until it
# is in a file.
_BYTES_OF_A_READ = 160
_BYTES_OF_A_ROW = 64
_BYTES_RECORDED = 320


def check_refresh(device: Device, refresh: str) -> None:
    """Make sure that the device can be refreshed so, and that refreshes leave time for anything else.

    Raises:
        InputError: it cannot, or they do not.
    """
    try:
        schedule = make_schedule(refresh, state.refreshed(lower(device)))
    except NoSuchRefreshError:
        raise InputError(f"{device.standard.name} has no {refresh} refresh", key="refresh") from None
    turns = schedule.turns
    if not turns:
        return
    busy = next(one.busy for one in device.standard.by_number if one.busy)
    needed = device.clocks(f"{busy} + nRC") + device.ranks * (device.clocks("nRAS + nRP") + 1)
    if device.clocks("nREFI") < needed:
        raise InputError(
            f"{device.clocks('nREFI')} clocks between refreshes leave no time for data: "
            f"{busy} + ranks x (nRAS + nRP + 1) + nRC is {needed}",
            key="nREFI",
        )
    for rank in range(device.ranks):
        _check_turns(device, [turn for turn in schedule.turns if turn.rank in (-1, rank)], schedule.period)


def _check_turns(device: Device, turns: Sequence[Due], period: int) -> None:
    """Make sure that the refreshes of a rank fit into a period, with time between them to open rows."""
    tables = lower(device)
    of_bank = tables.commands[[turn.command for turn in turns], SCOPE] == ONE_BANK
    # Within a rank; where one bank is refreshed alone, only what the others are bound by.
    gap = tables.gap[[1, 2, STACK] if of_bank.all() else slice(1, None)].max(axis=0)
    following = [*turns[1:], *(turn._replace(clock=turn.clock + period) for turn in turns[:1])]
    taken = sum(int(gap[turn.command, after.command]) for turn, after in zip(turns, following, strict=True))
    if taken >= period > 0:
        problem = f"{period} clocks leave no time for {len(turns)} refreshes of a rank, which take {taken}"
        raise InputError(problem, key="nREFI")
    for turn, after in zip(turns, following, strict=True):
        name, until_open = device.standard.names[turn.command], int(gap[turn.command, ACTIVATE])
        if until_open >= after.clock - turn.clock:
            problem = (
                f"no row opens for {until_open} clocks after {name}, and the next refresh of its rank is due "
                f"after {after.clock - turn.clock}"
            )
            raise InputError(problem, key="nREFI")


def ensure_streams_fit(bursts: Sequence[int], rows: int) -> None:
    """Make sure that streams of so many bursts each, of so many rows of weights, may take their memory.

    Raises:
        InputError: they may not.
    """
    needed = sum(bursts) * _BYTES_OF_A_READ + len(bursts) * rows * _BYTES_OF_A_ROW
    ensure_fits(needed, f"an expert of {max(bursts, default=0)} bursts on a lane")


def ensure_recordable(bursts: int) -> None:
    """Make sure that the commands of so many reads and writes may be recorded.

    Raises:
        InputError: they may not.
    """
    ensure_fits(bursts * _BYTES_RECORDED, f"a record of the commands for {bursts} bursts")


def no_commands() -> state.Commands:
    """A recorder that records nothing."""
    return state.Commands(np.zeros((0, state.RECORD_FIELDS), np.int64), np.zeros(1, np.int64))


def command_room() -> state.Commands:
    """A recorder that `run_channel` lets grow."""
    return state.Commands(np.zeros((_FIRST_ROOM, state.RECORD_FIELDS), np.int64), np.zeros(1, np.int64))


def run_channel(
    channel: Controller,
    source: state.Source,
    data_sink: sink.Sink,
    commands: state.Commands,
    until_served: int,
    until_taken: int = state.FAR,
) -> state.Commands:
    """Run the controller, giving its command trace the room it needs; returns the trace, perhaps moved."""
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
    """A recorded trace, so many clocks later, with nodes taken apart into rank, bank group and bank."""
    nodes = state.number_nodes(tables)
    clock, command, node, row, column = commands.entry[: commands.length[0]].T
    flat = node - nodes.first_bank
    to_bank = flat >= 0
    group = flat // tables.banks_per_group
    to_group = to_bank & (tables.commands[command, SCOPE] == ONE_BANK)
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


def merge_commands(own: CommandTrace, of_host: CommandTrace, rank: int) -> CommandTrace:
    """The commands of a lane and those of the host's bus to its rank, in their order."""
    chosen = of_host.rank == rank
    columns = {name: np.concatenate((getattr(own, name), getattr(of_host, name)[chosen])) for name in HEADER}
    columns["rank"][:] = 0
    order = np.argsort(columns["clock"], kind="stable")
    return CommandTrace(**{name: values[order] for name, values in columns.items()}, names=own.names)


class Counted(Protocol):
    """What a channel has counted: a controller's, or those of one with time that was jumped over."""

    @property
    def value(self) -> Ints:
        """Counters, by the places in `dram.state`."""

    @property
    def issued(self) -> Ints:
        """int64[command]: commands issued."""


def commands_by_kind(channels: Iterable[Counted], standard: Standard) -> dict[str, int]:
    """Commands issued over all `channels`, by name; kinds that were issued at all."""
    return name_commands(np.sum([channel.issued for channel in channels], axis=0), standard)


def name_commands(issued: Ints, standard: Standard) -> dict[str, int]:
    """Commands issued, int64[command], by name as the standard lists them; those that were issued at all."""
    counts = dict(zip(standard.names, issued.tolist(), strict=True))
    return {command.name: counts[command.name] for command in standard.commands if counts[command.name]}


@dataclass(frozen=True, eq=False)
class LaneStream:
    """What the lanes of a DIMM read that hold equally many bursts of every region: they run alike.

    Attributes:
        lanes: which they are.
        share: what each of them holds.
        source: their reads, none admitted.
        groups: which groups of bursts (`ndp.unit`) the reads belong to, in any of the lanes.
    """

    lanes: range
    share: LaneShare
    source: state.Source
    groups: sink.Groups


def make_stream(
    tables: Tables,
    layout: Interleaving,
    lanes: range,
    share: LaneShare,
    groups: tuple[Ints, Ints],
    group_count: int,
) -> LaneStream:
    """The stream of neighbouring lanes of which as much, `share`, is read.

    `groups`: the first and the last group of each burst, of `group_count`.
    """
    places = layout.lane_bursts(share)
    bankgroup, bank, row, column = layout.coordinates(places)
    reads = np.zeros_like(places)
    source = state.make_source(
        tables, reads, bankgroup, bank, row, column, reads, places, period=tables.bankgroups
    )
    first, last = groups
    ends = np.searchsorted(first, np.arange(group_count), "right") - 1
    return LaneStream(
        lanes, share, source, sink.Groups(*(each.astype(np.int32) for each in (first, last, ends)))
    )


class Lane:
    """The lanes of a stream under way."""

    def __init__(
        self, stream: LaneStream, channel: Controller, data_sink: sink.Sink, commands: state.Commands
    ) -> None:
        self.stream, self.channel, self.sink, self.commands = stream, channel, data_sink, commands
        self.source = stream.source._replace(admitted=np.zeros(1, dtype=np.int64))
        self.busy = 0.0  # ticks for which the multipliers had work, all of them

    def begin(self, first_row: int) -> None:
        """Read what lies so many rows behind the stream; of what was read before everything has been."""
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
        """Read the next region: `sink.done` tells when the bursts of each group are done, in ticks.

        Args:
            region: which, counted from 0; regions are read in turn, again and again.
            runs: bursts, the ticks that each holds its multipliers, and those that pass behind the last.
            servers: bursts that they hold at once. Those of the region before are done at `release`.
            release: the tick before which the multipliers may not start on it.
            report: called with the number of bursts read, now and then.
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
                self.commands = run_channel(self.channel, self.source, self.sink, self.commands, until)
                report(until - served)
                served = until
            release = int(value[sink.FINISHED]) + gap
            self.busy += gap
        self.busy += (int(value[sink.BUSY]) - busy) / servers

    def refresh_until(self, clock: int) -> None:
        """Go on without reads up to, not including, `clock`: refreshes are issued as they fall due."""
        value = self.channel.value
        if clock <= value[state.CLOCK]:
            return
        value[state.PAUSE] = clock
        self.commands = run_channel(self.channel, self.source, self.sink, self.commands, state.FAR)
        value[state.PAUSE] = state.FAR
        # Nothing is queued any more, so it does not matter at which step before `clock` a controller stopped.
        value[state.CLOCK], value[state.COUNTED_UNTIL] = clock, clock - 1
