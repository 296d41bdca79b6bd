"""Our own CSV, which `read_commands` reads and `ndpsim check` checks; it expresses all but the channel."""

from __future__ import annotations

from collections.abc import Iterator

from ndpsim.dram.traces.command_form import CommandForm, Facts, columns_of, named, split_stacks, with_names
from ndpsim.dram.traces.command_trace import HEADER, CommandTrace


def _lines(trace: CommandTrace, facts: Facts) -> Iterator[str]:
    if facts.device is None or columns_of(facts.device) == HEADER:
        return (f"{t},{c},{r},{g},{b},{w},{k}\n" for t, c, r, g, b, w, k in named(trace))
    columns = split_stacks(trace.columns(), facts.device)
    return (",".join(map(str, line)) + "\n" for line in with_names(columns, trace.names))


FORM = CommandForm(
    "ndpsim", "37,RD,0,2,2,123,32", _lines, header=lambda facts: ",".join(columns_of(facts.device))
)
