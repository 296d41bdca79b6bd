"""What a check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Report", "Violation"]


@dataclass(frozen=True)
class Violation:
    """A command that breaks a rule.

    Attributes:
        index: its place in the trace, from 0; in a file it stands on line index + 2.
        clock: its clock.
        rule: the JEDEC name of a timing rule ("tRCD", "tFAW"), or one of "clock order", "command",
            "coordinates", "command bus", "data bus", "row state", "refresh debt", "refresh ahead".
        command: the command and its coordinates, in words.
        shortfall: clocks by which it comes too early (for "refresh debt": too late); 0 where no
            waiting would make it legal.
        message: all of it in one line, with the earlier command at fault.
    """

    index: int
    clock: int
    rule: str
    command: str
    shortfall: int
    message: str


@dataclass(frozen=True)
class Report:
    """The outcome of a check.

    Attributes:
        commands: how many commands were checked.
        count: how many violations were found; a command counts once for every rule that it breaks.
        violations: the first of them, in the order of the trace.
        tolerated_overlaps: pairs of a read and a later write on another rank whose data overlap on the bus.
            The reference's rule between ranks allows them, so they do not count; real ranks could not.
    """

    commands: int
    count: int
    violations: tuple[Violation, ...]
    tolerated_overlaps: int

    @property
    def ok(self) -> bool:
        """Whether the trace is legal."""
        return self.count == 0

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON."""
        return {
            "ok": self.ok,
            "commands": self.commands,
            "count": self.count,
            "tolerated_overlaps": self.tolerated_overlaps,
            "violations": [asdict(violation) for violation in self.violations],
        }
