"""Checks commands of units in banks against the page of their device, without any scheduler.

It shares only the data of the page with the controllers. A command is expanded to the banks on which it
acts; a rule of a level holds between two commands that act below the same node of that level.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.audit.report import Report, Violation
from ndpsim.base.arguments import instance
from ndpsim.base.errors import InputError
from ndpsim.base.jit import inlined, kernel
from ndpsim.base.options.dram import CHECK
from ndpsim.dram.spec.extension import LEVELS, BankDevice
from ndpsim.dram.traces.unit_commands import COLUMNS, UnitCommands

Ints = NDArray[np.int64]

_CLOCK, _COMMAND, _CHANNEL, _ROW, _COLUMN = 0, 1, 2, 7, 8
_POSTPONED = 8  # refreshes that a device may owe (JESD79, JESD238, JESD250)
_CLOSED, _OPEN, _HALF = range(3)
_UNUSED = -(1 << 40)


class _Facts(NamedTuple):
    """The page as integers. Levels are 0 (channel) to 4 (bank)."""

    shape: Ints
    acts: Ints  # 0: no banks
    opens: Ints
    closes: Ints
    uses: Ints
    refreshes: Ints
    completes: Ints  # the first half of the activation that a command completes; -1: it completes none
    halves: Ints  # 1: the first half of an activation
    previous: Ints  # [rule]
    following: Ints
    level: Ints
    clocks: Ints
    of: Ints  # [rule]: index of the page's rule
    first: Ints  # where the rules of a command start


def _flags(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def judged(device: BankDevice) -> BankDevice:
    """The device without idealisations, but with the order of results that its program has."""
    return replace(device, ideal=device.extension.of_results)


def _facts(device: BankDevice) -> _Facts:
    commands, names = device.commands, device.names
    levels = {"channel": 0} | {name: index + 1 for index, name in enumerate(LEVELS)}
    rules = []
    for index, rule in enumerate(device.rules):
        if rule.window == 1:
            clocks = device.clocks(rule.latency) if _has(device, rule.latency) else 0
            rules += [
                (names.index(b), names.index(a), levels[rule.level], clocks, index)
                for a in rule.previous
                for b in rule.next
            ]
    rules.sort(key=lambda rule: rule[0])
    completed = [names.index(c.completed_by) if c.completed_by else -1 for c in commands]
    table = np.array(rules, dtype=np.int64).reshape(-1, 5)
    return _Facts(
        np.array(device.shape, dtype=np.int64),
        _flags([c.acts_on_banks for c in commands]),
        _flags([c.opens for c in commands]),
        _flags([c.closes for c in commands]),
        _flags([c.uses for c in commands]),
        _flags([c.refreshes for c in commands]),
        _flags([completed.index(n) if n in completed else -1 for n in range(len(names))]),
        _flags([number >= 0 for number in completed]),
        table[:, 1].copy(),
        table[:, 0].copy(),
        table[:, 2].copy(),
        table[:, 3].copy(),
        table[:, 4].copy(),
        np.searchsorted(table[:, 0], np.arange(len(names) + 1)).astype(np.int64),
    )


def _has(device: BankDevice, latency: str) -> bool:
    """Whether the device states all timings of a sum; without refresh it may lack those of refreshes."""
    try:
        device.clocks(latency)
    except InputError:
        if device.refreshes:
            raise
        return False
    return True


@inlined
def _in_node(columns: Ints, facts: _Facts, i: int, level: int, node: int) -> bool:
    """Whether command i acts below a node of a level: it agrees wherever the trace has a coordinate."""
    if level == 0:
        return node == 0
    rest = node
    for n in range(level - 1, -1, -1):
        coordinate = rest % facts.shape[n]
        rest //= facts.shape[n]
        if columns[3 + n, i] >= 0 and columns[3 + n, i] != coordinate:
            return False
    return rest == 0


@inlined
def _note(found: Ints, count: int, command: int, rule: int, culprit: int, short: int) -> int:
    """Note a break, if there is room; returns the number of breaks."""
    if count < len(found):
        found[count, 0], found[count, 1], found[count, 2], found[count, 3] = command, rule, culprit, short
    return count + 1


@kernel
def _find_early(columns: Ints, facts: _Facts, last: Ints, found: Ints) -> int:
    """Commands of one channel that come too soon after an earlier one.

    `last[level, node, command]`: index of the last command, -1: none. Rows of `found`: the command, the rule
    of the page, the earlier command, the missing clocks. Returns their number.
    """
    count = 0
    for i in range(columns.shape[1]):
        command = columns[_COMMAND, i]
        for index in range(facts.first[command], facts.first[command + 1]):
            level, missing, culprit = facts.level[index], 0, -1
            for node in range(last.shape[1] if level > 0 else 1):
                earlier = last[level, node, facts.previous[index]]
                if earlier < 0 or not _in_node(columns, facts, i, level, node):
                    continue
                short = facts.clocks[index] - (columns[_CLOCK, i] - columns[_CLOCK, earlier])
                if short > missing:
                    missing, culprit = short, earlier
            if culprit >= 0:
                count = _note(found, count, i, facts.of[index], culprit, missing)
        for level in range(5):
            for node in range(last.shape[1] if level > 0 else 1):
                if _in_node(columns, facts, i, level, node):
                    last[level, node, command] = i
    return count


@kernel
def _find_row_faults(columns: Ints, facts: _Facts, state: Ints, row: Ints, by: Ints, found: Ints) -> int:
    """Commands of one channel whose banks are not in the state that they need.

    `state`, `row` and `by` (the command that opened or closed it) are by bank. Rows of `found`: the command,
    -1, the bank, the command that gave the bank its state (-1: none). Returns their number.
    """
    count = 0
    for i in range(columns.shape[1]):
        command = columns[_COMMAND, i]
        wrong = since = -1
        for bank in range(len(state)):
            if facts.acts[command] == 0 or not _in_node(columns, facts, i, 4, bank):
                continue
            if facts.uses[command]:
                fault = state[bank] != _OPEN or row[bank] != columns[_ROW, i]
            elif facts.completes[command] >= 0:
                fault = state[bank] != _HALF or row[bank] != columns[_ROW, i]
            else:
                fault = facts.opens[command] + facts.refreshes[command] > 0 and state[bank] != _CLOSED
            if fault and wrong < 0:
                wrong, since = bank, by[bank]
            if facts.opens[command]:
                state[bank] = _HALF if facts.halves[command] else _OPEN
                row[bank] = columns[_ROW, i]
                by[bank] = i
            if facts.closes[command]:
                state[bank] = _CLOSED
                by[bank] = i
        if wrong >= 0:
            count = _note(found, count, i, -1, wrong, since)
    return count


class _Found(NamedTuple):
    """A violation: the place of its command in the trace, its rule, missing clocks and details."""

    place: int
    rule: str
    short: int
    detail: str


class _Check:
    """The check of one trace."""

    def __init__(self, commands: UnitCommands, device: BankDevice) -> None:
        self.table, self.device = commands.columns, judged(device)
        self.found: list[_Found] = []

    def add(self, index: int, rule: str, short: int, detail: str) -> None:
        self.found.append(_Found(int(index), rule, int(short), detail))

    def text(self, index: int) -> str:
        """An earlier command as text."""
        name = self.device.names[self.table[_COMMAND, index]]
        return f"{name} at clock {self.table[_CLOCK, index]} (line {index + 2})"

    def run(self) -> None:
        """All checks."""
        self.coordinates()
        for channel in np.unique(self.table[_CHANNEL]).tolist():
            of_channel = np.flatnonzero(self.table[_CHANNEL] == channel)
            self.order(of_channel)
            self.rules_and_rows(of_channel)
            self.windows(of_channel)
            self.modes(of_channel)
            self.data(of_channel)
            self.data_clock(of_channel)
            if self.device.refreshes:
                self.refreshes(of_channel)

    def coordinates(self) -> None:
        """Addressed coordinates exist."""
        sizes, shape = self.device.sizes, self.device.shape
        limits = [sizes["channels"], *shape, sizes["rows"], sizes["columns"]]
        tables = self.device.extension.table_rows
        for n, limit in enumerate(limits, start=_CHANNEL):
            values = self.table[n]
            wrong = (values < -1) | (values >= limit)
            if n == _ROW:
                wrong &= values < tables
            for index in np.flatnonzero(wrong).tolist():
                self.add(
                    index, "coordinates", 0, f"{COLUMNS[n]} {values[index]} is not from 0 to {limit - 1}"
                )
        for number, command in enumerate(self.device.commands):
            own = np.flatnonzero(self.table[_COMMAND] == number)
            for level in command.path:
                bare = own[self.table[COLUMNS.index(level), own] < 0]
                for index in bare.tolist():
                    self.add(index, "coordinates", 0, f"{command.name} needs a {level}")

    def order(self, own: Ints) -> None:
        """Clocks do not decrease, and a clock has one command of a bus."""
        clock = self.table[_CLOCK, own]
        buses = np.array([["", "row", "column"].index(command.bus) for command in self.device.commands])
        bus = buses[self.table[_COMMAND, own]]
        alone = self.device.extension.controller == "in-order"
        for n in np.flatnonzero(np.diff(clock) < 0).tolist():
            self.add(own[n + 1], "clock order", 0, f"{self.text(own[n])} is before it in the trace")
        for n in np.flatnonzero(np.diff(clock) == 0).tolist():
            if alone or bus[n] == bus[n + 1]:
                self.add(own[n + 1], "command bus", 1, f"{self.text(own[n])} has the same clock")

    def rules_and_rows(self, own: Ints) -> None:
        """Timing rules and states of banks."""
        device, facts, banks = self.device, _facts(self.device), self.device.banks
        found = np.zeros((4 * len(own) + 16, 4), dtype=np.int64)
        columns = np.ascontiguousarray(self.table[:, own])
        last = np.full((5, banks, len(device.names)), -1, dtype=np.int64)
        count = min(_find_early(columns, facts, last, found), len(found))
        for i, rule, culprit, short in found[:count].tolist():
            allowed = columns[_CLOCK, i] + short
            detail = f"{short} clocks too early, {self.text(own[culprit])} allows it from clock {allowed}"
            self.add(own[i], device.rules[rule].name, short, detail)
        state, row, by = np.zeros(banks, np.int64), np.full(banks, -1), np.full(banks, -1)
        count = min(_find_row_faults(columns, facts, state, row, by, found), len(found))
        for i, _, bank, since in found[:count].tolist():
            why = "was never opened" if since < 0 else f"has its state from {self.text(own[since])}"
            self.add(own[i], "row state", 0, f"{self.bank_name(bank)} {why}")

    def bank_name(self, bank: int) -> str:
        words, shape = [], self.device.shape
        for level, size in zip(reversed(LEVELS), reversed(shape), strict=True):
            bank, number = divmod(bank, size)
            if level in self.device.extension.levels:
                words.append(f"{level} {number}")
        return " ".join(reversed(words))

    def windows(self, own: Ints) -> None:
        """Several activations of a node in a time; one that opens several banks there counts as so many."""
        device = self.device
        for rule in device.rules:
            if rule.window == 1:
                continue
            depth = 0 if rule.level == "channel" else LEVELS.index(rule.level) + 1
            times: dict[tuple[int, ...], list[int]] = {}
            names = {*rule.previous, *rule.next}
            span = device.clocks(rule.latency)
            for index in own[
                np.isin(self.table[_COMMAND, own], [device.names.index(n) for n in names])
            ].tolist():
                self.window(index, rule.name, span, rule.window, depth, times)

    def window(
        self,
        index: int,
        name: str,
        span: int,
        window: int,
        depth: int,
        times: dict[tuple[int, ...], list[int]],
    ) -> None:
        clock, weight, nodes = int(self.table[_CLOCK, index]), 1, [()]
        for n, size in enumerate(self.device.shape):
            number = int(self.table[3 + n, index])
            numbers = [number] if number >= 0 else list(range(size))
            if n < depth:
                nodes = [(*node, number) for node in nodes for number in numbers]  # type: ignore[misc]
            else:
                weight *= len(numbers)
        short = 0
        for node in nodes:
            before = times.setdefault(node, [])
            count = min(weight, window)
            allowed = window - count
            recent = [time for time in before if clock - time < span]
            if len(recent) > allowed:
                short = max(short, sorted(recent)[len(recent) - allowed - 1] + span - clock)
            times[node] = [*recent, *[clock] * count]
        if short:
            detail = f"{short} clocks too early, more than {window} activations in {span} clocks"
            self.add(index, name, short, detail)

    def modes(self, own: Ints) -> None:
        """Every command finds the mode that it needs; a channel begins in the normal one."""
        device, (first, second) = self.device, self.device.extension.modes
        mode = first
        for index in own.tolist() if device.extension.mode_change else ():
            command = device.commands[self.table[_COMMAND, index]]
            if command.name == device.extension.mode_change:
                mode = second if mode == first else first
            elif command.mode and command.mode != mode:
                self.add(
                    index,
                    "mode",
                    0,
                    f"{command.name} needs the {command.mode} mode, the channel is in {mode}",
                )

    def data(self, own: Ints) -> None:
        """No two bursts at once on the pins of a pseudo-channel."""
        device, busy = self.device, dict[int, tuple[int, int]]()
        bursts = []
        for index in own.tolist():
            command = device.commands[self.table[_COMMAND, index]]
            if command.drives:
                start = int(self.table[_CLOCK, index]) + device.clocks(command.drives)
                bursts.append((start, index, int(self.table[3, index])))
        length = device.clocks("nBL")
        for start, index, pseudochannel in sorted(bursts):
            end, other = busy.get(pseudochannel, (_UNUSED, -1))
            if start < end:
                later = max(index, other)
                detail = f"its data meet those of {self.text(min(index, other))}"
                self.add(later, "data bus", end - start, detail)
            busy[pseudochannel] = start + length, index

    def data_clock(self, own: Ints) -> None:
        """The data clock runs when a command needs it."""
        device, synced = self.device, _UNUSED
        for index in own.tolist():
            command, clock = device.commands[self.table[_COMMAND, index]], int(self.table[_CLOCK, index])
            prepares = next((c for c in device.commands if c.prepared_by == command.name), None)
            if prepares is not None:
                synced = clock + device.clocks(prepares.synced) + 1
            elif command.prepared_by:
                if clock > synced:
                    self.add(
                        index, "preparation", 0, f"{command.prepared_by} is missing; the data clock stopped"
                    )
                synced = clock + device.clocks(command.synced)

    def refreshes(self, own: Ints) -> None:
        """Each part of a channel gets its refreshes; a device may owe a few."""
        device, interval = self.device, self.device.clocks("nREFI")
        refresh = next(n for n, c in enumerate(device.commands) if c.refreshes)
        parts = range(device.shape[0]) if device.commands[refresh].path else (-1,)
        end = int(self.table[_CLOCK, own[-1]])
        for part in parts:
            done = own[(self.table[_COMMAND, own] == refresh) & ((part < 0) | (self.table[3, own] == part))]
            for n, index in enumerate([*done.tolist(), int(own[-1])], start=1):
                clock = int(self.table[_CLOCK, index]) if n <= len(done) else end
                late = clock - (n + _POSTPONED) * interval
                if late > 0:
                    detail = f"{late} clocks too late, refresh {n} may be postponed by {_POSTPONED} intervals"
                    self.add(index, "refresh debt", late, detail)


def check_units(commands: UnitCommands, device: BankDevice, limit: int = 20) -> Report:
    """Check commands of units in banks: coordinates, buses, rules, states of banks, windows, modes, refresh.

    All banks are closed before the first command. The rules are those of the page without idealisations;
    only the order of results is that of the program.

    >>> device = ndpsim.load_bank_hardware("aim").device
    >>> result = ndpsim.simulate_bank_expert("aim", ndpsim.Expert(256, 256), record_commands=True)
    >>> ndpsim.check_units(result.command_trace, device).ok  # doctest: +SKIP
    True

    Args:
        commands: the commands of all channels.
        device: the device; its idealisations do not count.
        limit: violations to describe; all are counted.

    Raises:
        InputError: the limit is out of range, or the device lacks a timing.
    """
    CHECK["limit"].checked(limit)
    instance(commands, "commands", UnitCommands)
    check = _Check(commands, instance(device, "device", BankDevice))
    check.run()
    found = sorted(check.found, key=lambda fault: fault.place)
    described = tuple(_violation(commands, device, fault) for fault in found[:limit])
    return Report(len(commands), len(found), described, 0)


def _violation(commands: UnitCommands, device: BankDevice, fault: _Found) -> Violation:
    clock = int(commands.columns[_CLOCK, fault.place])
    words = [device.names[commands.columns[_COMMAND, fault.place]]]
    for name, value in zip(COLUMNS[2:], commands.columns[2:, fault.place].tolist(), strict=True):
        if value >= 0 and name in ("channel", *device.extension.levels, "row", "column"):
            words.append(f"{name} {value}")
    text = " ".join(words)
    message = f"line {fault.place + 2}: {text} at clock {clock}: {fault.rule}: {fault.detail}"
    return Violation(fault.place, clock, fault.rule, text, fault.short, message)
