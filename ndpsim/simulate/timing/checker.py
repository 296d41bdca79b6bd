"""The checker's side of a probe: `ndpsim.audit`, which judges the commands so far and one more."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ndpsim.audit import Violation, check
from ndpsim.base.errors import InputError
from ndpsim.dram.spec import Device
from ndpsim.simulate.timing.commands import Issued, trace_of

#: Findings about the rows of banks; waiting does not remove them.
_OF_ROWS = ("row state", "second half", "preparation")
_EDGE, _BUS = "clock edge", "command bus"


class CheckerSide:
    """The earliest clocks of commands as the checker knows them.

    `rows`: whether commands must also find the rows of their banks as they need them.
    """

    def __init__(self, device: Device, rows: bool) -> None:
        self._device, self._rows = device, rows
        # Of rules that bind equally, those of the page are named.
        self._names = {rule.name for rule in (*device.standard.rules, *device.standard.checked_rules)}

    def findings(self, before: Sequence[Issued], one: Issued) -> list[Violation]:
        """What is wrong with a command after others: only its clock.

        Raises:
            InputError: its bank is in a wrong state.
        """
        trace = trace_of([*before, one], self._device)
        report = check(trace, self._device, refresh="none", limit=len(trace) * 8 + 100)
        found = [each for each in report.violations if each.index == len(before)]
        for each in found:
            of_rows = each.rule in _OF_ROWS
            if (of_rows and self._rows) or not (of_rows or each.shortfall or each.rule == _EDGE):
                said = each.message.partition(f" at clock {one.clock}: ")[2]
                raise InputError(_without_lines(said), "conflict", key=each.command)
        return [each for each in found if each.rule not in _OF_ROWS]

    def earliest(self, before: Sequence[Issued], one: Issued) -> tuple[int, str]:
        """The first legal clock of a command after others, and the rule that the clock before breaks."""
        at, rule = max(before[-1].clock if before else 1, 1), ""
        while found := self.findings(before, one._replace(clock=at)):
            most = max(found, key=lambda each: (each.shortfall, each.rule in self._names))
            # A rule that ends between two edges is what binds, not the edge after it.
            if most.rule != _EDGE or not rule:
                rule = most.rule
            at += max(most.shortfall, 1)
        return at, _BUS if rule == "clock order" else rule


def _without_lines(words: str) -> str:
    """A finding without the lines of its trace, which a probe has none of."""
    return re.sub(r" \(line \d+\)", "", words)
