"""Results of checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ndpsim.base.reported import Reported, quantities, quantity, said, with_unit

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
