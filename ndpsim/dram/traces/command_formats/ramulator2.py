"""The CSV of Ramulator 2.1's `CmdTraceRecorder`.

There a line shows the whole address and the type of the request for which its command was issued: an ACT
has the column of the read that needs it, a PREpb the row that is wanted next, and both the read's type, 0.
A command trace does not have that request. Therefore -1 stands wherever a command addresses nothing, as
there for refreshes; `type` is 0 for RD and RDA, 1 for WR and WRA, and otherwise -1, as it is there for
commands of the controller itself; `source` is always -1, as it is there for a trace front end. Ramulator's
DDR5 has no PREsb and REFsb; they keep these names. Its GDDR6 has no ranks, its GDDR7 no bank groups either,
its HBM3 pseudo-channels and stacks.

Source: CMU-SAFARI/ramulator2, `cmd_trace_recorder.cpp` and `base/request.h`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ndpsim.dram.spec import Device
from ndpsim.dram.traces.command_form import CommandForm, Facts, columns_of, named, split_stacks, with_names
from ndpsim.dram.traces.command_trace import HEADER, CommandTrace

_TYPE = {"RD": 0, "RDA": 0, "WR": 1, "WRA": 1}  # Request::Type
_CALLED = {"rank": "Rank", "pseudochannel": "PseudoChannel", "stack": "Sid", "bankgroup": "BankGroup"}


def _missing_levels(device: Device | None) -> int:
    """The number of levels with a column here and none there: a single rank, a single bank group."""
    if device is None or device.organisation.ranks != 1:
        return 0
    return 1 if device.bankgroups > 1 else 2


def _header(facts: Facts) -> str:
    levels = columns_of(facts.device)[2 + _missing_levels(facts.device) :]
    named_so = ",".join(_CALLED.get(name, name.capitalize()) for name in levels)
    return f"clock,command,Channel,{named_so},type,source"


def _lines(trace: CommandTrace, facts: Facts) -> Iterator[str]:
    channel, device = facts.channel, facts.device
    lines = named(trace)
    if device is not None and columns_of(device) != HEADER:
        lines = with_names(split_stacks(trace.columns(), device), trace.names)
    first = 2 + _missing_levels(device)
    return (
        f"{line[0]},{line[1]},{channel},{','.join(map(str, line[first:]))},{_TYPE.get(line[1], -1)},-1\n"
        for line in lines
    )


FORM = CommandForm("ramulator2", "37,RD,0,0,2,2,123,32,0,-1", _lines, header=_header)
