"""Command traces of the lanes of a DIMM."""

from __future__ import annotations

import numpy as np

from ndpsim.dram.traces import CommandTrace, write_commands
from ndpsim.simulate import ContentionResult, ExpertResult


def all_lanes(traces: tuple[CommandTrace, ...], ranks: int = 1) -> CommandTrace:
    """One trace of all lanes, by clock and then lane, with the lane instead of the rank.

    A lane is a channel of one rank, so nothing is lost and the file has its usual columns. With several
    `ranks` in a lane, the ranks of all lanes are counted consecutively.
    """
    columns = np.concatenate([trace.columns() for trace in traces], axis=1)
    lane = np.repeat(np.arange(len(traces)), [len(trace) for trace in traces])
    columns[2] += lane * ranks
    return CommandTrace.of(columns[:, np.lexsort((lane, columns[0]))], traces[0].names)


def write_lanes(path: str, result: ExpertResult | ContentionResult, lane: int | None) -> None:
    """Write the commands of one lane, or with `lane` None of all."""
    traces, ranks = result.command_traces, result.config["hardware"]["derived"]["lane_ranks"]
    write_commands(path, all_lanes(traces, ranks) if lane is None else traces[lane])
