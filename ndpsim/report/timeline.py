"""Timelines for Perfetto and chrome://tracing (Trace Event Format, complete events)."""

from __future__ import annotations

import json

from ndpsim.files import replacing
from ndpsim.simulate import ContentionResult, ExpertResult

__all__ = ["write_timeline"]

_UNITS = {
    "activations-in": "host bus",
    "gate-up": "GEMV unit",
    "activation": "activation unit",
    "down": "GEMV unit",
    "result-out": "host bus",
}


def write_timeline(path: str, result: ExpertResult | ContentionResult) -> None:
    """Write the phases of an expert, a row for each unit of the buffer chip; times are in us."""
    rows = {unit: number for number, unit in enumerate(dict.fromkeys(_UNITS.values()))}
    names = [
        {"ph": "M", "pid": 0, "tid": number, "name": "thread_name", "args": {"name": unit}}
        for unit, number in rows.items()
    ]
    events = [
        {
            "ph": "X",
            "pid": 0,
            "tid": rows[_UNITS[phase.name]],
            "name": phase.name,
            "ts": phase.start_ns / 1000,
            "dur": (phase.end_ns - phase.start_ns) / 1000,
            "args": {"tile": phase.tile, "tokens": result.token_tiles[phase.tile]},
        }
        for phase in result.phases
    ]
    with replacing(path) as file:
        file.write(json.dumps({"displayTimeUnit": "ns", "traceEvents": names + events}).encode())
