"""The command trace of DRAMsim3 built with CMD_TRACE: clock, command, channel, rank, bank group, bank, row
and column in columns of fixed width, the last two hexadecimal.

-1 (-0x1) stands where a command addresses nothing, as it does there for refreshes; DRAMsim3 itself shows
the row and column of the waiting request also with ACT and precharges, and no channel with refreshes.
DRAMsim3 precharges banks one by one: PREab becomes a ``precharge`` of bank -1, which its own tools do not
expect, and PREsb and REFsb a ``precharge`` and a ``refresh_bank`` of bank group -1.

There are no commands of refresh management (RFM): such a trace is refused.

Source: umd-memsys/DRAMsim3, `src/common.cc`, `Controller::IssueCommand` and `scripts/validation.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ndpsim.dram.traces.command_form import CommandForm, Facts, check_clocks, check_names, named
from ndpsim.dram.traces.command_trace import CommandTrace

_NAMES = {
    "ACT": "activate",
    "PREpb": "precharge",
    "PREab": "precharge",
    "PREsb": "precharge",
    "RD": "read",
    "RDA": "read_p",
    "WR": "write",
    "WRA": "write_p",
    "REFab": "refresh",
    "REFsb": "refresh_bank",
}


def _check(trace: CommandTrace, facts: Facts) -> None:
    check_clocks(facts, "dramsim3")
    check_names(trace, _NAMES, "dramsim3")


def _lines(trace: CommandTrace, facts: Facts) -> Iterator[str]:
    channel = facts.channel
    return (
        f"{t:<18} {c:<20} {channel:>3} {r:>3} {g:>3} {b:>3} {w:>#8x} {k:>#8x}\n"
        for t, c, r, g, b, w, k in named(trace, _NAMES)
    )


FORM = CommandForm(
    "dramsim3",
    "1952               activate               0   0   0   0    0x800     -0x1",
    _lines,
    check=_check,
)
