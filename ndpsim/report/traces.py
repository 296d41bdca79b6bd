"""Command traces of the lanes of a DIMM."""

from __future__ import annotations

import numpy as np

from ndpsim.simulate import ContentionResult, ExpertResult
from ndpsim.traces import CommandTrace, write_commands


def all_lanes(traces: tuple[CommandTrace, ...], ranks: int = 1) -> CommandTrace:
    """The lanes' traces as one, by clock and then lane, with the lane instead of the rank.

    Each lane is a channel of one rank, so that nothing is lost and the file keeps the usual columns; of lanes
    with this many `ranks`, these are counted through all lanes.
    """
    columns = np.concatenate([trace.columns() for trace in traces], axis=1)
    lane = np.repeat(np.arange(len(traces)), [len(trace) for trace in traces])
    columns[2] += lane * ranks
    return CommandTrace.of(columns[:, np.lexsort((lane, columns[0]))], traces[0].names)


def write_lanes(path: str, result: ExpertResult | ContentionResult, lane: int | None) -> None:
    """Write the commands of one lane, or of all with `lane` None."""
    traces, ranks = result.command_traces, result.config["hardware"]["derived"]["lane_ranks"]
    write_commands(path, all_lanes(traces, ranks) if lane is None else traces[lane])
