"""The command trace of DRAMPower up to 4: clock, command, bank. For DRAMPower 5 and later see "drampower5".

A trace is that of one rank. It has no rows, columns and channels. Banks are numbered through the bank
groups, ``bankgroup * banks per group + bank``; commands to a whole rank have bank 0. There is no PREsb and
REFsb: such a trace is refused, as is one with several ranks. The line ``END`` that may close a trace, so
that the idle time after the last command counts, is not written.

Source: tukl-msd/DRAMPower 4.1, `src/MemCommand.h`, `TraceParser::parseLine` and README, "Command Traces".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.dram.traces.command_form import (
    CommandForm,
    Facts,
    check_clocks,
    check_names,
    fitting_device,
    named,
)
from ndpsim.dram.traces.command_trace import CommandTrace

_NAMES = {
    "ACT": "ACT",
    "PREpb": "PRE",
    "PREab": "PREA",
    "RD": "RD",
    "RDA": "RDA",
    "WR": "WR",
    "WRA": "WRA",
    "REFab": "REF",
}


def _check(trace: CommandTrace, facts: Facts) -> None:
    fitting_device(trace, facts, "drampower")
    check_clocks(facts, "drampower")
    check_names(trace, _NAMES, "drampower")
    ranks = np.unique(trace.rank)
    if len(ranks) > 1:
        problem = f"the form drampower has one rank; the trace has {', '.join(map(str, ranks))}"
        raise InputError(problem, "unsupported", key="form")


def _lines(trace: CommandTrace, facts: Facts) -> Iterator[str]:
    per_group = fitting_device(trace, facts, "drampower").banks_per_group
    return (f"{t},{c},{max(g, 0) * per_group + max(b, 0)}\n" for t, c, _, g, b, _, _ in named(trace, _NAMES))


FORM = CommandForm("drampower", "1952,ACT,0", _lines, check=_check)
