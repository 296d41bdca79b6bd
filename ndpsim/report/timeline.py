"""Timelines for Perfetto and chrome://tracing (Trace Event Format, complete events)."""

from __future__ import annotations

import json

from ndpsim.files import replacing
from ndpsim.report.words import unit_of_phase
from ndpsim.simulate import ContentionResult, ExpertResult

__all__ = ["write_timeline"]


def write_timeline(path: str, result: ExpertResult | ContentionResult) -> None:
    """Write the phases of an expert, a row for each unit; times are in us."""
    units = unit_of_phase(result.config["hardware"])
    rows = {unit: number for number, unit in enumerate(dict.fromkeys(units.values()))}
    names = [
        {"ph": "M", "pid": 0, "tid": number, "name": "thread_name", "args": {"name": unit}}
        for unit, number in rows.items()
    ]
    events = [
        {
            "ph": "X",
            "pid": 0,
            "tid": rows[units[phase.name]],
            "name": phase.name,
            "ts": phase.start_ns / 1000,
            "dur": (phase.end_ns - phase.start_ns) / 1000,
            "args": {"tile": phase.tile, "tokens": result.token_tiles[phase.tile]},
        }
        for phase in result.phases
    ]
    with replacing(path) as file:
        file.write(json.dumps({"displayTimeUnit": "ns", "traceEvents": names + events}).encode())
