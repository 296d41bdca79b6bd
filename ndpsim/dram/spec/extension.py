"""The description of units in banks: commands and rules that a page adds to a standard.

An extension is one file in `ndpsim/dram/spec/extensions/` that ends in ``EXTENSION = Extension(...)``;
nothing else refers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property
from typing import NamedTuple

from ndpsim.base.errors import InputError, unknown
from ndpsim.base.plugins import plugins_by_name
from ndpsim.dram.spec.standard import Rule, latency_terms

#: The levels between a channel and a bank; an extension leaves out those that its device lacks.
LEVELS = ("pseudochannel", "rank", "bankgroup", "bank")

#: The level of a rule between banks of one number in all bank groups of a channel.
SAME_BANK = "same-bank"

#: The modules of `ndpsim/dram/banks` that schedule, as pages name them.
CONTROLLERS = ("look-ahead", "in-order")

#: The classes of commands of which a clock has one each; "": a clock has no other command.
BUSES = ("row", "column", "")


@dataclass(frozen=True)
class UnitCommand:
    """A command of a device with units in its banks.

    `path`: the levels that it addresses. If it acts on banks, these are all banks that agree with it there:
    without any level all banks of the channel. `row`, `column`: whether traces show these coordinates.
    `opens`, `closes`, `uses`, `refreshes`: its effect on these banks; `uses`: their rows must be open.
    `opened_by`, `closed_by`: for a command that uses rows, those that open its row and close another.
    `bus`: the class of commands that share a clock with no other of the class: "row", "column", or "".
    `mode`: the mode of the channel that it needs. `waits_for`: earlier requests that it does not overtake.
    `completed_by`: the command of the next clock that completes an activation. `prepared_by`: the command
    that starts the data clock if it has stopped; `synced`: clocks for which this command keeps it running.
    `latency`: clocks from a command to its answer, if it `answers`, or for which its data are on their way.
    `drives`: clocks from a command to its data on the pins, which are busy for nBL; "": no data cross them.
    `checked_at_channel`: rules of deeper levels do not hold it (only between paths, see `Extension`).
    """

    name: str
    path: tuple[str, ...] = ()
    row: bool = False
    column: bool = False
    opens: bool = False
    closes: bool = False
    uses: bool = False
    refreshes: bool = False
    opened_by: str = ""
    closed_by: str = ""
    bus: str = "column"
    mode: str = "normal"
    waits_for: tuple[str, ...] = ()
    completed_by: str = ""
    prepared_by: str = ""
    synced: str = ""
    latency: str = "1"
    answers: bool = False
    drives: str = ""
    checked_at_channel: bool = False

    @property
    def acts_on_banks(self) -> bool:
        """Whether it opens, closes, uses or refreshes banks."""
        return self.opens or self.closes or self.uses or self.refreshes


@dataclass(frozen=True)
class Request:
    """A word of a program.

    `command`: the command that serves it; empty: none, it takes a clock of decoding.
    `sized`: a line stands for a request for each of its columns. `host`: an access of the host.
    `blocks`: the next line waits until all channels have answered. `everywhere`: it goes to all channels.
    `barrier`: later requests wait until earlier ones have issued.
    `ends`: it is the last of a program.
    `first_row`: the row of number 0 of its table; -1: the line has its row.
    """

    command: str = ""
    sized: bool = False
    host: bool = False
    blocks: bool = False
    everywhere: bool = False
    barrier: bool = False
    ends: bool = False
    first_row: int = -1


@dataclass(frozen=True)
class Extension:
    """Commands and rules of units in banks.

    `commands`, `rules`: functions of the idealisations in force, a set of names of `idealisations`.
    `paths`: the idealisation under which a rule looks only at the paths of addressed banks; without it, a
    rule holds between all banks on which two commands act.
    `misplaced`: rules that are also marked at a wrong bank, and the idealisation that does so.
    `row_sets`: the idealisation under which an open bank may open a further row. `reopens`: that under which
    an activation of several banks may find some of them open.
    `controller`: the module of `ndpsim/dram/banks` that schedules: "look-ahead" or "in-order".
    `refresh_waits`: the idealisation under which commands of an open row overtake a refresh that waits.
    `any_write_answers`: the idealisation under which any queued write answers a read of the host.
    `leaves_accesses`: that under which a word without a command, which waits for answers, does not wait for
    accesses of the host whose row was opened for them.
    `mode_change`: the command that changes the mode; empty: there is one mode. `modes`: the two modes of a
    channel, the first at its start.
    `table_rows`: rows from this number on are the units' tables, beside the rows of the device.
    `of_results`: the idealisations of the order of results, which is the program's and no rule of the DRAM.
    `always`: what every simulation of these units idealises, by name.

    In a rule with a window, a command that opens several banks of a node counts as so many activations, at
    most as many as the window has.
    """

    name: str
    standard: str
    source: str
    levels: tuple[str, ...]
    commands: Callable[[frozenset[str]], tuple[UnitCommand, ...]]
    rules: Callable[[frozenset[str]], tuple[Rule, ...]]
    requests: Mapping[str, Request]
    controller: str
    idealisations: Mapping[str, str] = field(default_factory=dict)
    paths: str = ""
    misplaced: Callable[[frozenset[str]], tuple[Rule, ...]] = field(default=lambda _: ())
    row_sets: str = ""
    reopens: str = ""
    refresh_waits: str = ""
    any_write_answers: str = ""
    leaves_accesses: str = ""
    mode_change: str = ""
    modes: tuple[str, str] = ("normal", "register")
    table_rows: int = 1 << 62
    of_results: frozenset[str] = frozenset()
    always: Mapping[str, str] = field(default_factory=dict)


class Values(NamedTuple):
    """What a file of hardware states of the device: sizes by level with "channels", "rows" and "columns"."""

    sizes: Mapping[str, int]
    timings: Mapping[str, int]
    clock_ps: Fraction
    refreshes: bool


@dataclass(frozen=True)
class BankDevice:
    """A device with units in its banks, resolved.

    Attributes:
        extension: its page.
        sizes: channels, and in a channel (or the next higher level) pseudochannels, ranks, bankgroups and
            banks; rows, columns.
        timings: in clocks.
        clock_ps: the period of a command clock.
        refreshes: whether all banks are refreshed every nREFI.
        ideal: the idealisations in force.
    """

    extension: Extension
    sizes: Mapping[str, int]
    timings: Mapping[str, int]
    clock_ps: Fraction
    refreshes: bool
    ideal: frozenset[str]

    @cached_property
    def commands(self) -> tuple[UnitCommand, ...]:
        """The commands by number."""
        return self.extension.commands(self.ideal)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the commands by number."""
        return tuple(command.name for command in self.commands)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in force."""
        return self.extension.rules(self.ideal)

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """Pseudo-channels of a channel, and so on to banks; 1 for levels that the device lacks."""
        pseudochannels, ranks, groups, banks = (self.sizes.get(f"{level}s", 1) for level in LEVELS)
        return pseudochannels, ranks, groups, banks

    @property
    def banks(self) -> int:
        """Banks of a channel."""
        pseudochannels, ranks, groups, banks = self.shape
        return pseudochannels * ranks * groups * banks

    def clocks(self, latency: str) -> int:
        """A sum of timings in clocks.

        Raises:
            InputError: a timing is missing, or it is no sum.
        """
        total = 0
        try:
            terms = latency_terms(latency)
        except ValueError as error:
            raise InputError(str(error), "form", key=self.extension.name) from None
        for sign, term in terms:
            if isinstance(term, str) and term not in self.timings:
                raise InputError(f"{self.extension.name} needs {term}", "missing", key=term)
            total += sign * (term if isinstance(term, int) else self.timings[term])
        return total


def device_of(extension: Extension, values: Values, ideal: frozenset[str]) -> BankDevice:
    """Resolve a page with the values of a device.

    Raises:
        InputError: an idealisation is unknown, a timing or a size is missing, or the page has a mistake.
    """
    for name in sorted(ideal):
        if name not in extension.idealisations:
            raise unknown(name, extension.idealisations, "idealisation", key="idealise")
    for size in ("channels", *(f"{level}s" for level in extension.levels), "rows", "columns"):
        if size not in values.sizes:
            raise InputError(f"{extension.name} needs the number of {size}", "missing", key=size)
    device = BankDevice(extension, values.sizes, values.timings, values.clock_ps, values.refreshes, ideal)
    refuse_mistakes(device)
    for rule in device.rules:
        if values.refreshes or not any(
            device.commands[device.names.index(n)].refreshes for n in rule.previous
        ):
            device.clocks(rule.latency)
    if values.refreshes:
        device.clocks("nREFI")
    return device


def refuse_mistakes(device: BankDevice) -> None:
    """Refuse a page that names what it does not have, or whose commands cannot be scheduled.

    Raises:
        InputError: the first mistake.
    """
    extension, names = device.extension, device.names
    if extension.controller not in CONTROLLERS:
        raise unknown(extension.controller, CONTROLLERS, "controller", key=extension.name)
    for level in extension.levels:
        if level not in LEVELS:
            raise unknown(level, LEVELS, "level", key=f"{extension.name}: levels")
    for command in device.commands:
        _refuse_command(device, command)
    served = {f"request {name}": word.command for name, word in extension.requests.items()}
    for where, name in {**served, "mode_change": extension.mode_change}.items():
        if name and name not in names:
            raise unknown(name, names, "command", key=f"{extension.name}: {where}")


def _refuse_command(device: BankDevice, command: UnitCommand) -> None:
    extension, where = device.extension, f"{device.extension.name}: {command.name}"
    for level in command.path:
        if level not in extension.levels:
            raise unknown(level, extension.levels, "level", key=where)
    if command.bus not in BUSES:
        raise unknown(command.bus, BUSES, "bus", key=where)
    modes = ("", *extension.modes) if extension.mode_change else ("", "normal")
    if command.mode not in modes:
        raise unknown(command.mode, modes, "mode", key=where)
    needed = (command.uses and "opened_by", (command.uses or command.refreshes) and "closed_by")
    for field_name in ("opened_by", "closed_by", "completed_by", "prepared_by"):
        name = getattr(command, field_name)
        if name and name not in device.names:
            raise unknown(name, device.names, "command", key=f"{where}: {field_name}")
        if not name and field_name in needed:
            problem = (
                f"names no command; a command that {'uses rows' if command.uses else 'refreshes'} needs one"
            )
            raise InputError(problem, "missing", key=f"{where}: {field_name}")


@cache
def extensions() -> dict[str, Extension]:
    """All extensions by name."""
    from ndpsim.dram.spec import extensions as folder  # noqa: PLC0415 (its modules import this one)

    return plugins_by_name(folder, "EXTENSION")


def extension_named(name: str) -> Extension:
    """The extension of this name.

    Raises:
        InputError: there is none.
    """
    if name not in extensions():
        raise unknown(name, extensions(), "extension", key="extension")
    return extensions()[name]
