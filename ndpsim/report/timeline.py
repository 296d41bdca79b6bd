"""Timelines for Perfetto and chrome://tracing (Trace Event Format, complete events)."""

from __future__ import annotations

import json
from typing import Any

from ndpsim.files import replacing
from ndpsim.report.trace_events import Rows, span_of
from ndpsim.report.words import unit_of_phase
from ndpsim.simulate import ContentionResult, ExpertResult


def write_timeline(path: str, result: ExpertResult | ContentionResult) -> None:
    """Write the phases of an expert, a row for each unit, more where phases of DIMMs overlap; in us."""
    units, rows = unit_of_phase(result.config["hardware"]), Rows()
    events: list[dict[str, Any]] = []
    for phase in sorted(result.phases, key=lambda one: one.start_ns):
        number, naming = rows.place(units[phase.name], phase.start_ns, phase.end_ns)
        if naming is not None:
            events.append({"pid": 0, **naming})
        events.append(
            {
                "ph": "X",
                "pid": 0,
                "tid": number,
                "name": phase.name,
                **span_of(phase.start_ns, phase.end_ns),
                "args": {"tile": phase.tile, "tokens": result.token_tiles[phase.tile]},
            }
        )
    with replacing(path) as file:
        file.write(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}).encode())
