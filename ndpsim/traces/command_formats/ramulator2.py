"""The CSV of Ramulator 2.1's `CmdTraceRecorder`.

There a line shows the address and the type of the request for which its command was issued, whole: an ACT
has the column of the read that needs it, a PREpb the row that is wanted next, and both the read's type, 0.
A command trace does not know that request. So -1 stands wherever a command addresses nothing, as it does
there for refreshes; `type` is 0 for RD and RDA, 1 for WR and WRA, and otherwise -1, as it is there for
commands of the controller itself; `source` is always -1, as it is there for a trace front end. Ramulator's
DDR5 has no PREsb and REFsb; they keep these names.

Source: CMU-SAFARI/ramulator2, `cmd_trace_recorder.cpp` and `base/request.h`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ndpsim.traces.command_form import CommandForm, Setting, named
from ndpsim.traces.command_trace import CommandTrace

__all__ = ["FORM"]

_TYPE = {"RD": 0, "RDA": 0, "WR": 1, "WRA": 1}  # Request::Type


def _lines(trace: CommandTrace, setting: Setting) -> Iterator[str]:
    channel = setting.channel
    return (
        f"{t},{c},{channel},{r},{g},{b},{w},{k},{_TYPE.get(c, -1)},-1\n"
        for t, c, r, g, b, w, k in named(trace)
    )


FORM = CommandForm(
    "ramulator2",
    "37,RD,0,0,2,2,123,32,0,-1",
    _lines,
    header=lambda setting: "clock,command,Channel,Rank,BankGroup,Bank,Row,Column,type,source",
)
