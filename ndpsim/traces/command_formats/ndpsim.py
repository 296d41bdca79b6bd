"""Our own CSV, which `read_commands` reads and `ndpsim check` checks; it expresses all but the channel."""

from __future__ import annotations

from collections.abc import Iterator

from ndpsim.traces.command_form import CommandForm, Setting, named
from ndpsim.traces.command_trace import HEADER, CommandTrace

__all__ = ["FORM"]


def _lines(trace: CommandTrace, setting: Setting) -> Iterator[str]:
    return (f"{t},{c},{r},{g},{b},{w},{k}\n" for t, c, r, g, b, w, k in named(trace))


FORM = CommandForm("ndpsim", "37,RD,0,2,2,123,32", _lines, header=",".join(HEADER))
