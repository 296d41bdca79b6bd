"""DRAM commands as slices of the banks' time and of the data buses, for timelines and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from ndpsim.dram.spec import Device
from ndpsim.dram.spec.lower import NO_RULE, lower
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK, SAME_BANKS, Command
from ndpsim.dram.traces import CommandTrace
from ndpsim.simulate import ContentionResult, ExpertResult, HostReadResult

#: Rank, bank group (counted over all stacks of the rank), and bank in the group.
Bank = tuple[int, int, int]


@dataclass(frozen=True)
class Slice:
    """A command on a bank, or its data on a bus; all times in clocks.

    Attributes:
        command: its name.
        bank: the bank; that of a command to several banks has a slice on each.
        start, end: the clock of issue, and that from which the bank can take the next command that opens,
            reads or writes, or takes another command; on a bus, those of the data.
        row, column: -1 if the command addresses none.
    """

    command: str
    bank: Bank
    start: int
    end: int
    row: int
    column: int


@dataclass(frozen=True)
class CommandSlices:
    """The commands of a channel, or of a lane, in a part of its time.

    Attributes:
        device: its DRAM.
        first_clock: the clock of the first command of the whole trace.
        end_clock: the end of the part.
        banks: the slices of each addressed bank, in order of time.
        buses: the slices of each data bus by rank, in order of time; -1: the bus of all ranks.
    """

    device: Device
    first_clock: int
    end_clock: int
    banks: dict[Bank, list[Slice]]
    buses: dict[int, list[Slice]]

    def bank_name(self, bank: Bank) -> str:
        """``rank 0, bankgroup 3, bank 1``, in the terms of the standard."""
        _, rank, *_, group, inner = self.device.standard.levels
        return f"{rank} {bank[0]}, {group} {bank[1]}, {inner} {bank[2]}"

    def bus_name(self, rank: int) -> str:
        """``data bus``, and its rank if each has its own."""
        return "data bus" if rank < 0 else f"data bus of {self.device.standard.levels[1]} {rank}"


def command_slices(trace: CommandTrace, device: Device, microseconds: float) -> CommandSlices:
    """The commands of the first `microseconds` from the first command on, as slices.

    A slice on a bank lasts until the bank can be opened, read or written next: that of an activation tRCD,
    of a precharge tRP, of a refresh tRFC, of a read tCCD_L.
    """
    first = int(trace.clock.min()) if len(trace) else 0
    end = first + max(1, round(microseconds * 1e6 / float(device.clock_ps)))
    end = min(end, int(trace.clock.max()) + device.read_clocks) if len(trace) else end
    shown = trace.take(np.flatnonzero(trace.clock < end))
    banks: dict[Bank, list[Slice]] = {}
    buses: dict[int, list[Slice]] = {}
    by_name, lasting = {command.name: command for command in device.standard.commands}, _lasting(device)
    rows = zip(*shown.columns().tolist(), strict=True)
    for name, (clock, _, rank, group, inner, row, column) in zip(
        shown.names_of(np.arange(len(shown))).tolist(), rows, strict=True
    ):
        command = by_name[name]
        for bank in _addressed(device, command, (rank, group, inner)):
            _add(banks.setdefault(bank, []), Slice(name, bank, clock, clock + lasting[name], row, column))
        for begins in _data_clocks(device, command):
            bus = buses.setdefault(rank if device.standard.own_data_buses else -1, [])
            start = clock + begins
            _add(bus, Slice(name, (rank, group, inner), start, start + device.burst_clocks, row, column))
    return CommandSlices(device, first, end, dict(sorted(banks.items())), dict(sorted(buses.items())))


def lane_slices(
    result: ExpertResult | ContentionResult | HostReadResult,
    device: Device,
    microseconds: float,
    lane: int | None,
) -> Iterator[tuple[str, CommandSlices]]:
    """The slices of one lane, or with `lane` None of all that differ, with their names.

    Lanes with equal commands share a trace, and so come once.
    """
    what = "bus" if isinstance(result, HostReadResult) else "lane"
    alike: dict[int, list[int]] = {}
    for number, trace in enumerate(result.command_traces):
        alike.setdefault(id(trace), []).append(number)
    for numbers in alike.values():
        if lane is None or lane in numbers:
            others = len(numbers) - 1
            have = f"{others} others have" if others > 1 else "1 other has"
            same = f" ({have} the same commands)" if lane is None and others else ""
            name = f"{what} {numbers[0] if lane is None else lane}{same}"
            yield name, command_slices(result.command_traces[numbers[0]], device, microseconds)


def _add(row: list[Slice], added: Slice) -> None:
    """Append a slice; one that has not ended ends where it begins."""
    if row and row[-1].end > added.start:
        last = row.pop()
        row.append(Slice(last.command, last.bank, last.start, added.start, last.row, last.column))
    row.append(added)


@cache
def _banks_of_rank(groups: int, banks: int) -> tuple[tuple[int, int], ...]:
    return tuple((group, bank) for group in range(groups) for bank in range(banks))


def _addressed(device: Device, command: Command, named: Bank) -> list[Bank]:
    """The banks that a command addresses, of which its coordinates name one, or only the rank."""
    scope, (rank, group, bank) = device.standard.scope_of(command), named
    if scope == ONE_BANK:
        return [named]
    if scope == BANK_PAIR:
        half = device.bankgroups // 2
        return [(rank, group % half, bank), (rank, group % half + half, bank)]
    every = _banks_of_rank(device.bankgroups, device.banks_per_group)
    return [(rank, *each) for each in every if scope != SAME_BANKS or each[1] == bank]


def _data_clocks(device: Device, command: Command) -> list[int]:
    """The clocks from a command to the first beats of its bursts."""
    if not command.reads and not command.writes:
        return []
    latency = device.read_latency if command.reads else device.write_latency
    second = [latency + device.clocks(command.second_burst)] if command.second_burst else []
    return [latency, *second]


def _lasting(device: Device) -> dict[str, int]:
    """The clocks from each command until its bank can be opened, read or written."""
    gap, commands = lower(device).gap, device.standard.by_number
    uses = [
        number for number, command in enumerate(commands) if command.opens or command.reads or command.writes
    ]
    lasting = {}
    for number, command in enumerate(commands):
        # The first level is that of the command bus.
        ruled = [after for after in uses if gap[1:, number, after].max() > NO_RULE]
        times = [int(gap[:, number, after].max()) for after in ruled]
        lasting[command.name] = max(command.cycles, min(times, default=command.cycles))
    return lasting
