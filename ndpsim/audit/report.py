"""Results of checks: the findings in words, the trace, and the device that it is checked against."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.caching import cached_by_identity
from ndpsim.base.reported import Reported, quantities, quantity, said, with_unit
from ndpsim.dram.spec import Device, Standard
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK, WHOLE_RANK
from ndpsim.dram.traces import HEADER, CommandTrace

_SHOWN = 16  # findings in the repr of a report


@dataclass(frozen=True)
class Violation:
    """A command that breaks a rule.

    Attributes:
        index: its index in the trace, from 0; in a file it is on line index + 2.
        clock: its clock.
        rule: the JEDEC name of a timing rule ("tRCD", "tFAW"), or one of "clock order", "command",
            "coordinates", "command bus", "shared command bus", "broadcast command bus", "data bus",
            "row state", "refresh debt", "refresh ahead".
        command: the command and its coordinates, as text.
        shortfall: clocks by which it is too early (for "refresh debt": too late); 0 if waiting would not make
            it legal.
        message: all of it in one line, with the earlier command at fault.
    """

    index: int
    clock: int
    rule: str
    command: str
    shortfall: int
    message: str


class CheckOutcome(Reported):
    """The result of a check; its counts are the fields that have descriptions.

    Attributes:
        passed: the verdict if nothing was found.
        count: the number of findings.
        found: the first findings.
    """

    passed: ClassVar[str]
    count: int

    @property
    def found(self) -> Sequence[Any]:
        raise NotImplementedError

    @property
    def ok(self) -> bool:
        """Whether the check found nothing."""
        return self.count == 0

    @property
    def summary(self) -> str:
        """The verdict and all counts: ``legal; commands 24, violations 0``."""
        return f"{self._verdict()}; {said(self, *quantities(type(self)))}"

    def _verdict(self) -> str:
        return self.passed if self.ok else "fails the check"

    def _plain(self) -> dict[str, Any]:
        return {"ok": self.ok, **super()._plain()}

    def _title(self) -> str:
        return f"{type(self).__name__}: {self._verdict()}"

    def _rows(self) -> list[tuple[str, str]]:
        kind, found = type(self), self.found[:_SHOWN]
        rows = [(name, with_unit(name, getattr(self, name), kind)) for name in quantities(kind)]
        rows += [(finding.rule, finding.message) for finding in found]
        more = self.count - len(found)
        return [*rows, ("...", f"{more} more")] if more else rows


@dataclass(frozen=True, repr=False)
class Report(CheckOutcome):
    """The outcome of a check.

    Attributes:
        commands: the number of commands that were checked.
        count: number of violations; a command is counted once for every rule that it breaks.
        violations: the first of them, in the order of the trace.
        tolerated_overlaps: pairs of a read and a later write on another rank whose data overlap on the bus.
            The reference's rule between ranks allows them, so they do not count; real ranks could not.
    """

    passed = "legal"

    commands: int = field(metadata=quantity("commands"))
    count: int = field(metadata=quantity("violations"))
    violations: tuple[Violation, ...]
    tolerated_overlaps: int = field(metadata=quantity("tolerated overlaps"))

    @property
    def found(self) -> Sequence[Violation]:
        """The violations."""
        return self.violations


COORDINATES = HEADER[2:]


def flags(values: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(values), dtype=np.int64)


class CommandTable(NamedTuple):
    """The commands of a standard by number."""

    names: tuple[str, ...]
    opens: NDArray[np.int64]  # the row of a bank; 2: half, 3: the other half
    closes: NDArray[np.int64]
    reads: NDArray[np.int64]
    writes: NDArray[np.int64]
    refreshes: NDArray[np.int64]
    manages: NDArray[np.int64]  # refresh management (RFM)
    scope: NDArray[np.int64]
    cycles: NDArray[np.int64]  # clocks on its command bus
    on_any_tick: NDArray[np.int64]
    bus: NDArray[np.int64]
    addressed: NDArray[np.bool_]  # [command, coordinate]

    @property
    def columns(self) -> NDArray[np.int64]:
        """The commands that move data."""
        return self.reads | self.writes


@cached_by_identity(16)
def command_table(standard: Standard) -> CommandTable:
    """The properties of commands that the checks need."""
    commands = standard.by_number
    effects = {
        name: flags(getattr(command, name) for command in commands)
        for name in ("opens", "closes", "reads", "writes", "refreshes", "manages")
    }
    for first in commands:
        if first.completed_by:
            effects["opens"][standard.names.index(first.name)] = 2
            effects["opens"][standard.names.index(first.completed_by)] = 3
    scope = flags(standard.scope_of(command) for command in commands)
    buses = list(dict.fromkeys(command.bus for command in commands))
    to_column = effects["reads"] | effects["writes"]
    to_row = (effects["opens"] > 0) | (to_column == 1)
    to_bankgroup = (scope == ONE_BANK) | (scope == BANK_PAIR)
    addressed = (scope >= 0, to_bankgroup, scope != WHOLE_RANK, to_row, to_column == 1)
    return CommandTable(
        names=standard.names,
        **effects,
        scope=scope,
        cycles=flags(command.cycles for command in commands),
        on_any_tick=flags(command.on_any_tick for command in commands),
        bus=flags(buses.index(command.bus) for command in commands),
        addressed=np.stack(addressed, axis=1),
    )


class Breach(NamedTuple):
    """A violation, without the description of its command."""

    number: int  # of the command in the trace of the case
    rule: str
    shortfall: int
    detail: str


@dataclass(frozen=True)
class Found:
    """The findings of one check: their number, the first ones in trace order, and tolerated ones."""

    count: int
    first: list[Breach]
    tolerated: int = 0


@dataclass(frozen=True)
class Case:
    """A trace against a device."""

    trace: CommandTrace
    device: Device
    limit: int
    index: NDArray[np.int64]  # of each command in the whole trace; the case may be one lane of it
    lane: int | None
    kinds: CommandTable
    usable: NDArray[np.int64]  # the commands whose bank (or rank) exists
    part: CommandTrace  # those commands

    def text(self, index: int) -> str:
        """An earlier command as text: its name, clock and line."""
        return f"{_name(self.trace, index)} at clock {self.trace.clock[index]} (line {self.index[index] + 2})"

    def origin(self, index: int) -> int:
        """The index in the trace of usable command `index`."""
        return int(self.usable[index])

    def rank_name(self, rank: int) -> str:
        """The user's name for this rank."""
        return f"rank {rank}" if self.lane is None else f"lane {self.lane}"


def _name(trace: CommandTrace, index: int) -> str:
    kind = int(trace.command[index])
    return trace.names[kind] if 0 <= kind < len(trace.names) else f"command number {kind}"


def counted(number: int, what: str) -> str:
    """A number of things, in words: ``2 clocks``."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def too_early(shortfall: int) -> str:
    """The clocks by which a command is too early, in words."""
    return f"{counted(shortfall, 'clock')} too early"


def wrong_coordinates(trace: CommandTrace, device: Device, kinds: CommandTable) -> NDArray[np.bool_]:
    """By coordinate and command: whether the coordinate is out of range or should be -1."""
    sizes = (device.ranks, device.bankgroups, device.banks_per_group, device.rows, device.bursts_per_row)
    values = trace.columns()[2:]
    known = (trace.command >= 0) & (trace.command < len(kinds.names))
    addressed = kinds.addressed[np.where(known, trace.command, 0)].T
    out_of_range = (values < 0) | (values >= np.array(sizes)[:, None])
    return np.where(addressed, out_of_range, values != -1) & known


def case_of(
    trace: CommandTrace, device: Device, limit: int, index: NDArray[np.int64], lane: int | None = None
) -> Case:
    """The case of `trace` on `device`, with at most `limit` violations of each sort described.

    `index`: the index of each command in the whole trace. `lane`: the user's number for its rank 0.
    """
    kinds = command_table(device.standard)
    trace = _renumbered(trace, device.standard)
    known = (trace.command >= 0) & (trace.command < len(kinds.names))
    usable = np.flatnonzero(known & ~wrong_coordinates(trace, device, kinds)[:3].any(axis=0))
    return Case(trace, device, limit, index, lane, kinds, usable, trace.take(usable))


def _renumbered(trace: CommandTrace, standard: Standard) -> CommandTrace:
    """The trace with commands numbered as in the standard; unknown commands get the numbers after these."""
    names = tuple(dict.fromkeys((*standard.names, *trace.names)))
    nameless = (trace.command < 0) | (trace.command >= len(trace.names))
    command = np.where(nameless, trace.command, trace.numbered(names))
    return replace(trace, command=command, names=names)


def _words(case: Case, index: int) -> str:
    words = [_name(case.trace, index)]
    kind = int(case.trace.command[index])
    addressed = case.kinds.addressed[kind] if 0 <= kind < len(case.kinds.names) else np.zeros(5, np.bool_)
    if 0 <= kind < len(case.trace.names):
        for coordinate, name in enumerate(COORDINATES):
            value = int(getattr(case.trace, name)[index])
            if addressed[coordinate] or value != -1:
                words.append(case.rank_name(value) if name == "rank" else f"{name} {value}")
    return " ".join(words)


def violation(case: Case, finding: Breach) -> Violation:
    """`finding` in full."""
    index, clock = int(case.index[finding.number]), int(case.trace.clock[finding.number])
    command = _words(case, finding.number)
    message = f"line {index + 2}: {command} at clock {clock}: {finding.rule}: {finding.detail}"
    return Violation(index, clock, finding.rule, command, finding.shortfall, message)


def no_such_lane(trace: CommandTrace, index: int, lanes: int) -> Violation:
    """The violation of the command at `index`, which addresses none of the `lanes`."""
    lane, clock, name = int(trace.rank[index]), int(trace.clock[index]), _name(trace, index)
    wrong = f"lane {lane} is not within 0 to {lanes - 1}"
    message = f"line {index + 2}: {name} at clock {clock}: coordinates: {wrong}"
    return Violation(index, clock, "coordinates", name, 0, message)
