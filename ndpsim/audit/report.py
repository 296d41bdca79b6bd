"""Results of checks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ndpsim.reported import Shown

_SHOWN = 16  # violations in the repr of a report


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


class Outcome(Shown):
    """The result of a check. `count`: how much it found."""

    count: int

    @property
    def ok(self) -> bool:
        """Whether the check found nothing."""
        return self.count == 0


@dataclass(frozen=True, repr=False)
class Report(Outcome):
    """The outcome of a check.

    Attributes:
        commands: the number of commands that were checked.
        count: number of violations; a command is counted once for every rule that it breaks.
        violations: the first of them, in the order of the trace.
        tolerated_overlaps: pairs of a read and a later write on another rank whose data overlap on the bus.
            The reference's rule between ranks allows them, so they do not count; real ranks could not.
    """

    commands: int
    count: int
    violations: tuple[Violation, ...]
    tolerated_overlaps: int

    def _title(self) -> str:
        return "Report: legal" if self.ok else f"Report: {self.count} violations"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("commands", str(self.commands)), ("tolerated_overlaps", str(self.tolerated_overlaps))]
        rows += [
            (one.rule, f"line {one.index + 2}, clock {one.clock}: {one.command}")
            for one in self.violations[:_SHOWN]
        ]
        more = self.count - min(len(self.violations), _SHOWN)
        return [*rows, ("...", f"{more} more")] if more else rows

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON."""
        return {
            "ok": self.ok,
            "commands": self.commands,
            "count": self.count,
            "tolerated_overlaps": self.tolerated_overlaps,
            "violations": [asdict(violation) for violation in self.violations],
        }
