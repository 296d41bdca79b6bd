"""One lane of a DIMM as a simulation under way: a channel, its stream of weights, and its multipliers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram import controller, sink, state
from ndpsim.dram.engines import Controller, make_controller
from ndpsim.errors import InputError
from ndpsim.layout import LaneShare, LocalizedLayout
from ndpsim.spec import COMMANDS, Device, Tables
from ndpsim.traces import CommandTrace

__all__ = [
    "Lane",
    "check_refresh",
    "command_room",
    "commands_by_kind",
    "decode_commands",
    "no_commands",
    "run_channel",
]

Ints = NDArray[np.int64]

_OF_ONE_BANK = [number for number, command in enumerate(COMMANDS) if command.scope == "bank"]
_CHUNK = 1 << 16  # requests between two reports of progress
_FIRST_ROOM = 1 << 14  # commands a trace has room for at first


def check_refresh(device: Device, refresh: str) -> None:
    """Make sure that the device can be refreshed so, and that refreshes leave time for anything else.

    Raises:
        InputError: it cannot, or they do not.
    """
    timings = device.timings
    if refresh == "same-bank" and "nRFCsb" not in timings:
        raise InputError(f"{device.standard.name} has no same-bank refresh", key="refresh")
    needed = timings["nRFC"] + device.ranks * (timings["nRAS"] + timings["nRP"] + 1) + timings["nRC"]
    if refresh != "none" and timings["nREFI"] < needed:
        raise InputError(
            f"{timings['nREFI']} clocks between refreshes leave no time for data: "
            f"nRFC + ranks x (nRAS + nRP + 1) + nRC is {needed}",
            key="nREFI",
        )


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
        if outcome == controller.DONE:
            return commands
        if outcome == controller.STUCK:
            raise RuntimeError("the controller cannot go on: requests wait for something that never comes")
        commands = state.Commands(
            np.concatenate((commands.entry, np.zeros_like(commands.entry))), commands.length
        )


def decode_commands(commands: state.Commands, tables: Tables) -> CommandTrace:
    """A recorded trace with nodes taken apart into rank, bank group and bank."""
    nodes = state.number_nodes(tables)
    clock, command, node, row, column = commands.entry[: commands.length[0]].T
    flat = node - nodes.first_bank
    to_bank = flat >= 0
    group = flat // tables.banks_per_group
    to_group = to_bank & np.isin(command, _OF_ONE_BANK)
    return CommandTrace(
        clock=clock.copy(),
        command=command.copy(),
        rank=np.where(to_bank, group // tables.bankgroups, node - 1),
        bankgroup=np.where(to_group, group % tables.bankgroups, -1),
        bank=np.where(to_bank, flat % tables.banks_per_group, -1),
        row=row.copy(),
        column=column.copy(),
    )


def commands_by_kind(channels: Iterable[Controller]) -> dict[str, int]:
    """Commands issued over all `channels`, by name; kinds that were issued at all."""
    issued = np.sum([channel.issued for channel in channels], axis=0)
    return {command.name: int(count) for command, count in zip(COMMANDS, issued, strict=True) if count}


class Lane:
    """The lanes of a DIMM that hold equally many bursts of every region: they run alike, so one runs."""

    def __init__(
        self,
        tables: Tables,
        policy: state.Policy,
        layout: LocalizedLayout,
        share: LaneShare,
        data_sink: sink.Sink,
        recording: bool,
    ) -> None:
        self.share, self.sink = share, data_sink
        places = layout.lane_bursts(share)
        bankgroup, bank, row, column = layout.coordinates(places)
        reads = np.zeros_like(places)
        self.source = state.make_source(
            tables, reads, bankgroup, bank, row, column, reads, places, period=tables.bankgroups
        )
        self.source.admitted[0] = 0
        self.channel = make_controller(tables, policy, with_sink=True)
        self.commands = command_room() if recording else no_commands()

    def read_region(self, region: int, release: int, service: int, report: Callable[[int], None]) -> Ints:
        """Read the next region; returns when each of its bursts has been worked on, in ticks.

        Args:
            region: which, counted from 0; regions are read in turn, again and again.
            release: the tick before which the multipliers may not start on it.
            service: ticks that a burst holds its multipliers.
            report: called with the number of bursts read, now and then.
        """
        bursts = self.share.bursts[region]
        served = int(self.channel.value[state.SERVED])
        self.sink.value[sink.RELEASE], self.sink.value[sink.SERVICE] = release, service
        self.source.admitted[0] = served + bursts
        for until in (*range(served + _CHUNK, served + bursts, _CHUNK), served + bursts):
            self.commands = run_channel(self.channel, self.source, self.sink, self.commands, until)
            report(until - int(served))
            served = until
        first = sum(self.share.bursts[:region])
        return self.sink.done[first : first + bursts].copy()

    def count(self, place: int) -> int:
        """One of the channel's counters (places in `dram.state`)."""
        return int(self.channel.value[place])
