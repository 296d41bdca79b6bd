"""Timelines for Perfetto and chrome://tracing (Trace Event Format, complete events)."""

from __future__ import annotations

from ndpsim.report.serving_timeline import timeline_file
from ndpsim.report.text import title_of
from ndpsim.report.words import unit_of_phase
from ndpsim.simulate import ContentionResult, ExpertResult


def write_timeline(path: str, result: ExpertResult | ContentionResult) -> None:
    """Write the phases of an expert in us, a row for each unit, or several if phases of DIMMs overlap."""
    units = unit_of_phase(result.config["hardware"])
    with timeline_file(path) as timeline:
        timeline.begin_process(title_of(result))
        for one in sorted(result.phases, key=lambda one: one.start_ns):
            arguments = {"tile": one.tile, "tokens": result.token_tiles[one.tile]}
            timeline.span(units[one.name], one.name, one.start_ns, one.end_ns, arguments)
