"""Sections that several reports have: configuration, phases, and figures in columns of one unit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ndpsim.config import Hardware
from ndpsim.orchestrator.record import JobRecord
from ndpsim.report.html.parts import Cell, Folded, Part, Row, Section, Table
from ndpsim.report.metrics import is_number, scale_of
from ndpsim.report.words import counted
from ndpsim.reported import flattened
from ndpsim.results import JobTime, Phase, Stretch
from ndpsim.units import UNITS, significant

Spans: TypeAlias = Sequence[JobRecord | JobTime | Phase | Stretch]  # something with a begin and an end
_MEASURED = re.compile(r"([0-9][0-9,]*(?:\.[0-9]+)?) ?(\S*)")
# Scales of all units except seconds, which share names with those of nanoseconds.
_FACTORS = {one.unit: one.divisor for name, unit in UNITS.items() if name != "s" for one in unit.scales}


def plain_cell(value: Any) -> Cell:
    """A value of a configuration: None as an empty cell."""
    if value is None:
        return Cell("")
    return Cell(str(value), value) if is_number(value) else Cell(str(value))


def measured_cell(text: str) -> Cell:
    """A figure of a text report, sorted by its value: ``981.2 ns`` before ``1.204 µs``."""
    found = _MEASURED.fullmatch(text)
    if found is None or found[2] not in _FACTORS:
        return Cell(text)
    return Cell(text, float(found[1].replace(",", "")) * _FACTORS[found[2]])


def figures(name: str, values: Sequence[Any], results: Iterable[type] = ()) -> tuple[str, list[Cell]]:
    """A common unit for all values of a metric, and the values in it with four digits; text is unchanged."""
    scale = scale_of(name, values, results)
    cells = []
    for value in values:
        if not is_number(value):
            cells.append(plain_cell(value))
        elif isinstance(value, int) and scale.divisor == 1:
            cells.append(Cell(f"{value:,}", value))
        else:
            cells.append(Cell(significant(value / scale.divisor), value))
    return scale.unit, cells


def columns(named: Mapping[str, tuple[str, Sequence[Any]]]) -> tuple[list[str], list[tuple[Cell, ...]]]:
    """Names of columns with a common unit for all values of each, and the rows.

    Args:
        named: for each column's name its metric, and a value for each row.
    """
    shown = {name: figures(metric, values) for name, (metric, values) in named.items()}
    heads = [f"{name} ({unit})" if unit else name for name, (unit, _) in shown.items()]
    return heads, list(zip(*(cells for _, cells in shown.values()), strict=True))


def configuration(config: Mapping[str, Any], hardware: Hardware | None, *more: Part) -> Section:
    """The whole configuration: the values of the call, then those of the machine with their sources.

    Args:
        config: the configuration in a result.
        hardware: the hardware; None: only `config` describes it.
        more: further parts.
    """
    call = {key: value for key, value in config.items() if hardware is None or key != "hardware"}
    rows = [(key, "" if value is None else str(value)) for key, value in flattened(call).items()]
    parts = [Folded(f"What was run: {counted(len(rows), 'value')}", Table((), rows))]
    if hardware is not None:
        values = [(row.key, plain_cell(row.value), row.unit, row.origin) for row in hardware.rows()]
        title = f"Hardware: {hardware.system.name}, {counted(len(values), 'value')}"
        parts.append(Folded(title, Table(("key", "value", "unit", "source, or what is assumed"), values)))
    return Section("Configuration", *parts, *more)


def spans(found: Spans, from_ns: float = 0.0) -> dict[str, tuple[str, list[float]]]:
    """Start and end of each, relative to a time, for `columns`."""
    return {
        "start": ("time_ns", [one.start_ns - from_ns for one in found]),
        "end": ("time_ns", [one.end_ns - from_ns for one in found]),
    }


def _when(found: Spans) -> tuple[list[str], list[tuple[Cell, ...]]]:
    """Start, end and length of each."""
    return columns({**spans(found), "length": ("time_ns", [one.end_ns - one.start_ns for one in found])})


def phases_table(phases: Sequence[Phase]) -> Folded:
    """The times of each phase of an expert program."""
    names, times = _when(phases)
    rows: list[Row] = [
        (phase.name, plain_cell(phase.tile), *when) for phase, when in zip(phases, times, strict=True)
    ]
    title = f"Timeline: {counted(len(rows), 'phase')}"
    return Folded(title, Table(("phase", "tile", *names), rows, "--timeline, --json"))


def jobs_table(jobs: Sequence[JobTime]) -> Folded:
    """The times of each of several experts in turn; nothing for a single expert."""
    names, times = _when(jobs)
    rows: list[Row] = [
        (plain_cell(number), plain_cell(job.tokens), *when)
        for number, (job, when) in enumerate(zip(jobs, times, strict=True))
    ]
    title = f"Timeline: {counted(len(rows), 'expert')} in turn"
    return Folded(title, Table(("expert", "tokens", *names), rows if len(jobs) > 1 else (), "--json"))
