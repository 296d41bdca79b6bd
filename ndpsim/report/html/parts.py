"""Sections that several reports have: configuration, phases, and figures in columns of one unit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ndpsim.config import Hardware
from ndpsim.report.html.page import folded, section
from ndpsim.report.html.tables import Cell, facts_table, table
from ndpsim.report.metrics import is_number, scale_of
from ndpsim.report.words import counted
from ndpsim.reported import flattened
from ndpsim.results import JobTime, Phase
from ndpsim.units import UNITS, significant

_MEASURED = re.compile(r"([0-9][0-9,]*(?:\.[0-9]+)?) ?(\S*)")
# Of all units but seconds, whose scales have the names of those of nanoseconds.
_FACTORS = {one.unit: one.divisor for name, unit in UNITS.items() if name != "s" for one in unit.scales}


def plain_cell(value: Any) -> Cell:
    """A value of a configuration: None as an empty cell."""
    if value is None:
        return Cell("")
    return Cell(str(value), value) if is_number(value) else Cell(str(value))


def measured_cell(text: str) -> Cell:
    """A figure of a text report as print has it, sorted by what it is: ``981.2 ns`` before ``1.204 µs``."""
    found = _MEASURED.fullmatch(text)
    if found is None or found[2] not in _FACTORS:
        return Cell(text)
    return Cell(text, float(found[1].replace(",", "")) * _FACTORS[found[2]])


def figures(name: str, values: Sequence[Any], results: Iterable[type] = ()) -> tuple[str, list[Cell]]:
    """The unit that suits all values of a metric, and each in it to four digits; text stays as it is."""
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


def hardware_table(hardware: Hardware) -> str:
    """Every value of a machine with its unit, and its source or what was assumed."""
    rows = [(row.key, plain_cell(row.value), row.unit, row.origin) for row in hardware.rows()]
    columns = ("key", "value", "unit", "source, or what is assumed")
    return folded(f"Hardware: {hardware.system.name}, {counted(len(rows), 'value')}", table(columns, rows))


def configuration(config: Mapping[str, Any], hardware: Hardware | None, *more: str) -> str:
    """All that was used: the call's own values, then the machine's.

    Args:
        config: of a result.
        hardware: that it ran on; None: there is none but what `config` says.
        more: further parts, as HTML.
    """
    call = {key: value for key, value in config.items() if hardware is None or key != "hardware"}
    rows = [(key, "" if value is None else str(value)) for key, value in flattened(call).items()]
    parts = [folded(f"What was run: {counted(len(rows), 'value')}", facts_table(rows))]
    if hardware is not None:
        parts.append(hardware_table(hardware))
    return section("Configuration", *parts, *more)


def _when(found: Sequence[Phase | JobTime]) -> tuple[list[str], list[list[Cell]]]:
    """Start, end and length: names of columns with their units, and the cells of each column."""
    columns = {
        "start": [one.start_ns for one in found],
        "end": [one.end_ns for one in found],
        "length": [one.end_ns - one.start_ns for one in found],
    }
    shown = {name: figures("time_ns", values) for name, values in columns.items()}
    return [f"{name} ({unit})" for name, (unit, _) in shown.items()], [cells for _, cells in shown.values()]


def phases_table(phases: Sequence[Phase]) -> str:
    """When each phase of an expert program ran."""
    names, cells = _when(phases)
    rows = [
        (phase.name, Cell(str(phase.tile), phase.tile), *when)
        for phase, *when in zip(phases, *cells, strict=True)
    ]
    title = f"Timeline: {counted(len(rows), 'phase')}"
    return folded(title, table(("phase", "tile", *names), rows, "--timeline, --json"))


def jobs_table(jobs: Sequence[JobTime]) -> str:
    """When each of several experts in turn ran; nothing of a single one."""
    if len(jobs) == 1:
        return ""
    names, cells = _when(jobs)
    rows = [
        (Cell(str(number), number), Cell(str(job.tokens), job.tokens), *when)
        for number, (job, *when) in enumerate(zip(jobs, *cells, strict=True))
    ]
    title = f"Timeline: {counted(len(rows), 'expert')} in turn"
    return folded(title, table(("expert", "tokens", *names), rows, "--json"))
