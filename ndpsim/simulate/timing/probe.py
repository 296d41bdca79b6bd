"""Asks for the first clock of a command, on two ways that share no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, Self

from ndpsim.base.arguments import choice, flag, instance, text, whole_number
from ndpsim.base.caching import cached_by_identity
from ndpsim.base.errors import InputError, MismatchError
from ndpsim.base.options.dram import RULE_SET, ChannelSettings
from ndpsim.base.reported import text_table
from ndpsim.dram.spec import Device, Rule, resolve, standards
from ndpsim.simulate.timing.sides import CheckerSide, Issued, TablesSide, placed

_LAST_CLOCK = 10**15
#: Two of them, so that commands can go to another rank.
_RANKS = 2


class Earliest(NamedTuple):
    """The first clock of a command, and what keeps it from the clock before.

    Attributes:
        command: its name.
        clock: the first clock at which it may go.
        rule: the rule that binds, by its name on the standard's page; "command bus" or "clock edge" if none
            of them does; empty if the command could go at once.
        latency: the sum of timings of the rule, for instance "nCL + nBL + 2 - nCWL".
        clocks: that sum in clocks.
        after: the earlier command from which the rule counts; empty if there is none.
        after_clock: its clock; -1 if there is none.
        controller, checker: the first clock by the controller's tables and by the checker.
    """

    command: str
    clock: int
    rule: str
    latency: str
    clocks: int
    after: str
    after_clock: int
    controller: int
    checker: int

    def __str__(self) -> str:
        if not self.latency:
            return f"{self.command} from clock {self.clock}: {self.rule or 'no rule binds it'}"
        since = f"{self.latency} = {self.clocks} clocks after {self.after} at clock {self.after_clock}"
        apart = self.checker - self.after_clock
        cycles = f" ({apart} between their first cycles)" if apart != self.clocks else ""
        only = "" if self.controller == self.checker else f" (the controller alone: {self.controller})"
        return f"{self.command} from clock {self.clock}: {self.rule}, {since}{cycles}{only}"


class Probe:
    """One channel to which commands are given, one by one, to learn the first clock of the next.

    Coordinates have the names of the standard's levels: rank, bankgroup, bank for DDR5; pseudochannel, stack,
    bankgroup, bank for HBM3. Those that are not given are 0. A clock is that of the first cycle of a command,
    counted from 1, in clocks of command traces. All banks are closed at first. No refreshes are due.

    Args:
        standard: "DDR4", "DDR5", ...; the name of `ndpsim list standards`.
        org, timing: presets; by default the standard's first, of DDR5 DDR5_16Gb_x8 and DDR5_4800AN.
        ranks: ranks of the channel; by default 2, or the standard's fixed number.
        rules: "standard" or "reference".
        overrides: timings and sizes that replace those of the presets, as in `resolve`.
        rows: whether commands must find banks open and closed as they need them. With False only clocks
            count, so that any command may follow any other.

    Raises:
        InputError: a name is unknown or a number is out of range.
    """

    def __init__(
        self,
        standard: str = "DDR5",
        org: str | None = None,
        timing: str | None = None,
        ranks: int | None = None,
        rules: str = "standard",
        overrides: Mapping[str, int | str] | None = None,
        rows: bool = True,
    ) -> None:
        found = standards()[choice(standard, "standard", standards(), "standard")]
        found = found.under(RULE_SET.checked(rules))
        usual = standard == ChannelSettings.standard
        first = ChannelSettings.org if usual else next(iter(found.organisations))
        speed = ChannelSettings.timing if usual else next(iter(found.speeds))
        org = first if org is None else text(org, "org")
        timing = speed if timing is None else timing
        if ranks is None:
            fixed = org in found.organisations and found.organisations[org].ranks
            ranks = 1 if fixed else _RANKS
        self._begin(resolve(standard, org, timing, ranks, overrides, rules), rows)

    @classmethod
    def of(cls, device: Device, rows: bool = True) -> Self:
        """A probe of a channel that `resolve` has made.

        Raises:
            InputError: `device` is no `Device`.
        """
        probe = cls.__new__(cls)
        probe._begin(instance(device, "device", Device), rows)
        return probe

    def _begin(self, device: Device, rows: bool) -> None:
        self.device = device
        self.commands: list[Issued] = []
        self._tables = TablesSide(device)
        self._checker = CheckerSide(device, flag(rows, "rows"))
        self._scheduled = CheckerSide(_without_checked_rules(device), rows)

    def _candidate(self, command: object, place: Mapping[str, object]) -> Issued:
        """The command at its place, by default with the row that its bank has had last."""
        command_here = placed(self.device, command, place, 0)
        where = command_here.rank, command_here.group, command_here.bank
        rows = [each.row for each in self.commands if each.row >= 0 and each[2:5] == where]
        opens = self.device.standard.by_number[self.device.standard.names.index(command_here.name)].opens
        if rows and command_here.row >= 0 and "row" not in place and not opens:
            command_here = command_here._replace(row=rows[-1])
        return command_here

    def issue(self, command: str, *, clock: int | None = None, **place: int) -> int:
        """Issue a command, at its first clock unless one is given; returns the clock.

        Args:
            command: a command of the standard: "ACT", "RD", "PREab", ...
            clock: when; None: as early as possible.
            place: coordinates by the standard's levels, and `row` and `column` where the command has them.
                The row of a read or write is by default that of its bank.

        Raises:
            InputError: a name is unknown, a number is out of range, the clock is too early, or the bank is
                open or closed where it must not be.
        """
        issued = self._candidate(command, place)
        if clock is not None:
            issued = issued._replace(clock=whole_number(clock, "clock", 1, _LAST_CLOCK))
            found = self._checker.findings(self.commands, issued)
            if found:
                first = self._why(issued)
                problem = f"clock {issued.clock} is too early; {first}"
                if found[0].rule == "clock edge":
                    problem = f"clock {issued.clock} is between two edges; {first}"
                raise InputError(problem, "range", key=issued.name)
        else:
            issued = issued._replace(clock=self._why(issued).clock)
            self._checker.findings(self.commands, issued)
        self._tables.note(issued)
        self.commands.append(issued)
        return issued.clock

    def earliest(self, command: str, **place: int) -> int:
        """The first clock at which a command may follow the commands so far.

        The controller's tables and the checker are asked, each on its own.

        Raises:
            InputError: a name is unknown, a number is out of range, or the bank is open or closed where it
                must not be.
            MismatchError: controller and checker differ.
        """
        return self.why(command, **place).clock

    def why(self, command: str, **place: int) -> Earliest:
        """`earliest`, with the rule that binds.

        Raises:
            InputError, MismatchError: as `earliest`.
        """
        return self._why(self._candidate(command, place))

    def assert_earliest(self, command: str, *, clock: int, **place: int) -> None:
        """Check from both sides that a command may go at a clock, and not at the clock before.

        Raises:
            AssertionError: the controller or the checker says another clock; one line with the rule that
                binds and both clocks.
            InputError: as `earliest`.
        """
        candidate = self._candidate(command, place)
        clock = whole_number(clock, "clock", 1, _LAST_CLOCK)
        first = self._why(candidate)
        before, then = (candidate._replace(clock=at) for at in (clock - 1, clock))
        start = self.commands[-1].clock if self.commands else 1
        legal = not self._checker.findings(self.commands, then) if clock >= start else False
        blocked = clock <= start or bool(self._checker.findings(self.commands, before))
        if first.clock != clock or not legal or not blocked:
            at = f"{self.device.standard.name} {self.device.timing}"
            both = f"controller {first.controller}, checker {first.checker}"
            raise AssertionError(
                f"{at}: {candidate.name} not from clock {clock}, but {first.clock} ({both}): {first}"
            )

    def _why(self, candidate: Issued) -> Earliest:
        """The first clock of a command by both sides; raises MismatchError if they differ."""
        controller = self._tables.earliest(candidate)
        checker, rule = self._checker.earliest(self.commands, candidate)
        if controller != checker:
            scheduled = checker
            if self.device.standard.checked_rules:
                scheduled = self._scheduled.earliest(self.commands, candidate)[0]
            if scheduled != controller:
                last = ", ".join(each.words for each in self.commands[-3:])
                problem = (
                    f"{candidate.name} after {last}: the controller's tables allow it from clock {controller}"
                )
                raise MismatchError(f"{problem}, the checker from clock {checker} ({rule or 'no rule'})")
        latency, clocks, since = self._binding(candidate, checker, rule)
        after, after_clock = (since.name, since.clock) if since is not None else ("", -1)
        return Earliest(
            candidate.name, checker, rule, latency, clocks, after, after_clock, controller, checker
        )

    def _binding(self, candidate: Issued, clock: int, rule: str) -> tuple[str, int, Issued | None]:
        """The sum of timings of the rule that binds, its clocks, and the command from which they count."""
        standard = self.device.standard
        cycles = {command.name: command.cycles for command in standard.commands}
        for each in (*standard.rules, *standard.checked_rules):
            if each.name != rule or candidate.name not in each.next:
                continue
            clocks = self.device.clocks(each.latency)
            for since in reversed(self.commands):
                apart = clocks + cycles.get(since.name, 1) - cycles[candidate.name]
                due = since.name in each.previous and self._is_at_level(each, since, candidate)
                if due and since.clock + apart <= clock < since.clock + apart + standard.ticks_per_clock:
                    return each.latency, clocks, since
        return "", 0, None

    def _is_at_level(self, rule: Rule, since: Issued, candidate: Issued) -> bool:
        """Whether ranks are the same, or are not where the rule is for others."""
        level = self.device.standard.level_of(rule.level)
        return level == 0 or (since.rank == candidate.rank) != (rule.siblings and level == 1)

    def __repr__(self) -> str:
        device = self.device
        rows = {"device": f"{device.org} at {device.timing}, rules {device.rules}"}
        rows |= {name: str(count) for name, count in device.parts.items()}
        rows["commands"] = ", ".join(issued.words for issued in self.commands[-5:]) or "none yet"
        return text_table(f"Probe of {device.standard.name}", rows.items())


@cached_by_identity(16)
def _without_checked_rules(device: Device) -> Device:
    """The device with the rules that controllers know, alone."""
    return replace(device, standard=replace(device.standard, checked_rules=(), reference={}))
