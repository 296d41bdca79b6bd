"""Parts that several reports have: configuration, timelines, and figures in columns of one unit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ndpsim.base.reported import flattened
from ndpsim.base.units import UNITS, significant
from ndpsim.config import Hardware
from ndpsim.inference.layers.record import JobRecord
from ndpsim.report.html.parts import Cell, Folded, Part, Row, Section, Table
from ndpsim.report.metrics import is_number, scale_of
from ndpsim.report.words import counted
from ndpsim.simulate.results import JobTime, Phase, Stretch

Spans: TypeAlias = Sequence[JobRecord | JobTime | Phase | Stretch]
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


def timeline(
    what: str,
    heads: Sequence[str],
    rows: Iterable[Row],
    found: Spans,
    elsewhere: str,
    from_ns: float = 0.0,
    length: bool = False,
) -> Folded:
    """The times of each of several, as a table.

    Args:
        what: words for all of them.
        heads: names of the columns before the times.
        rows: their cells, for each of `found`.
        found: something with a begin and an end.
        elsewhere: options that write all rows.
        from_ns: times are relative to this one.
        length: also how long each took.
    """
    times = {
        "start": ("time_ns", [one.start_ns - from_ns for one in found]),
        "end": ("time_ns", [one.end_ns - from_ns for one in found]),
    }
    if length:
        times["length"] = "time_ns", [one.end_ns - one.start_ns for one in found]
    names, cells = columns(times)
    all_cells = [(*row, *when) for row, when in zip(rows, cells, strict=True)]
    return Folded(f"Timeline: {what}", Table((*heads, *names), all_cells, elsewhere))
