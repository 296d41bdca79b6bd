"""The report of a sweep: pictures, the table of points, common configuration, and failures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.reported import flattened
from ndpsim.config import load_hardware
from ndpsim.report.html.page import (
    Cell,
    Column,
    Folded,
    HtmlTable,
    Section,
    most_rows,
    picture,
    plain_cell,
    provenance,
    table_of,
    write_page,
)
from ndpsim.report.metrics import (
    described,
    higher_is_better,
    is_number,
    key_label,
    metric_label,
    metric_text,
    name_of,
    scale_of,
    value_words,
)
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.sweep import points_figure
from ndpsim.report.sweep_plot import NO_METRICS, Row, SweepPlot, Swept, chosen_plot, metrics_of, sweep_title
from ndpsim.report.words import counted

#: Metrics of the first table beside the drawn ones, if the sweep has them.
_MAIN = (
    "speedup",
    "time_ns",
    "tokens_per_s",
    "bandwidth_gbps",
    "peak_fraction",
    "gflops",
    "energy_nj.total",
    "bound",
    "bottleneck",
)
_MOST_POINTS_DRAWN = 3000  # maximum number of points of a Pareto front in the picture
_MOST_VALUES_SAID = 12
_REST = "table.csv"


def _listed(values: Sequence[Any]) -> str:
    words = [value_words(value) for value in values]
    more = f" and {len(words) - _MOST_VALUES_SAID:,} more" if len(words) > _MOST_VALUES_SAID else ""
    return ", ".join(words[:_MOST_VALUES_SAID]) + more


def _facts(swept: Swept, rows: Sequence[Row], plot: SweepPlot | None) -> list[tuple[str, ...]]:
    """The keys that varied, the number of points, and the best of them."""
    failed = sum(row["status"] == "failed" for row in rows)
    facts: list[tuple[str, ...]] = [
        ("command", f"ndpsim {swept.command}"),
        ("points", f"{len(rows):,}" + (f", {failed:,} of them failed" if failed else "")),
        *(
            (f"varied: {key}", f"{_listed(values)} ({key_label(key)})")
            for key, values in swept.varied.items()
        ),
        *((f"fixed: {key}", value_words(value)) for key, value in swept.fixed.items()),
    ]
    for metric in dict.fromkeys((plot.y, "energy_nj.total")) if plot else ():
        measured = [row for row in rows if is_number(row.get(metric))]
        if measured:
            ends = (max, min) if higher_is_better(metric, swept.results) else (min, max)
            for words, choose in zip(("best", "worst"), ends, strict=True):
                row = choose(measured, key=lambda row: row[metric])
                point = name_of({key: row[key] for key in swept.varied})
                value = metric_text(metric, row[metric], swept.results)
                facts.append((f"{words} {described(metric, swept.results).label}", f"{value} at {point}"))
    return facts


def _points_table(swept: Swept, rows: Sequence[Row], metrics: Sequence[str]) -> HtmlTable:
    """The varied keys and some metrics of each point."""
    count, rows = len(rows), rows[: most_rows(len(swept.varied) + 1 + len(metrics))]
    columns = [Column(key, [_key_cell(row[key]) for row in rows]) for key in swept.varied]
    if any(row["status"] != "ok" for row in rows):
        columns.append(Column("status", [row["status"] for row in rows]))
    results = swept.results
    columns += [
        Column(metric_label(name, results=results), [row.get(name) for row in rows], name, results)
        for name in metrics
    ]
    return table_of(*columns, elsewhere=_REST, total=count)


def _key_cell(value: Any) -> Cell:
    return Cell(value_words(value), value if is_number(value) else None)


def _published_table(swept: Swept, rows: Sequence[Row]) -> Section:
    """Each published value beside the simulated one at the same point."""
    found = []
    for value in swept.published:
        where = {key: value_words(wanted) for key, wanted in value.where.items()}
        ours = [
            row[value.metric]
            for row in rows
            if is_number(row.get(value.metric))
            and all(value_words(row.get(key)) == wanted for key, wanted in where.items())
        ]
        scale = scale_of(value.metric, [value.high, *ours], swept.results)
        low, high = value.low / scale.divisor, value.high / scale.divisor
        said = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
        middle = (value.low + value.high) / 2
        figure = ours[0] if len(ours) == 1 else None
        found.append(
            (
                name_of(value.where) or "all points",
                metric_label(value.metric, scale, results=swept.results),
                Cell(said, middle),
                Cell(f"{figure / scale.divisor:.4g}", figure)
                if figure is not None
                else counted(len(ours), "point"),
                Cell(f"{figure / middle:.3f}", figure / middle) if figure is not None and middle else "",
                value.source,
            )
        )
    columns = ("at", "metric", "published", "ours", "ours over published", "source")
    return Section("Published values beside ours", HtmlTable(columns, found))


def _configurations(rows: Sequence[Row]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Configuration values that all points share, and the different values of the others."""
    flat = [flattened(json.loads(text)) for text in dict.fromkeys(row.get("config") for row in rows) if text]
    found: dict[str, list[Any]] = {}
    for key in dict.fromkeys(key for config in flat for key in config):
        values = {repr(config[key]): config[key] for config in flat if key in config}
        absent = {} if all(key in config for config in flat) else {"None": None}
        found[key] = list((values | absent).values())
    same = {key: values[0] for key, values in found.items() if len(values) == 1}
    return same, {key: values for key, values in found.items() if len(values) > 1}


def _origins(swept: Swept) -> dict[str, tuple[str, str]]:
    """Units and sources of the hardware's values, if all points have one hardware that can be read."""
    name = swept.fixed.get("hw")
    if not isinstance(name, str) or "hw" in swept.varied:
        return {}
    sets = [f"{key}={value_words(value)}" for key, value in swept.fixed.items() if "." in key]
    try:
        return {row.key: (row.unit, row.origin) for row in load_hardware(name, sets).rows()}
    except InputError:
        return {}


def _configuration_section(swept: Swept, rows: Sequence[Row]) -> Section:
    same, differing = _configurations(rows)
    origins = _origins(swept)

    def row_of(key: str, value: Any) -> tuple[Cell | str, ...]:
        unit, origin = origins.get(key.removeprefix("hardware."), ("", ""))
        return key, plain_cell(value), unit, origin

    shared = [row_of(key, value) for key, value in same.items()]
    columns = ("key", "value", "unit", "source, or what is assumed")
    differ = [(key, f"{len(values):,} values: {_listed(values)}") for key, values in differing.items()]
    return Section(
        "Configuration",
        Folded(f"What all points share: {counted(len(shared), 'value')}", HtmlTable(columns, shared)),
        Folded(f"What differs: {counted(len(differ), 'value')}", HtmlTable((), differ)),
        f"The whole configuration of every point is in {_REST}.",
    )


def _pictures(swept: Swept, rows: Sequence[Row], plot: SweepPlot | None, reason: str) -> Section:
    if plot is None:
        return Section("Pictures", [f"no picture: {reason}"])
    plots = {"sweep": plot}
    both = {"time_ns", "energy_nj.total"} <= set(metrics_of(rows, swept.varied))
    if plot.kind != "pareto" and both and len(rows) <= _MOST_POINTS_DRAWN:
        plots["pareto"] = chosen_plot(swept, rows, kind="pareto", x="time_ns", y="energy_nj.total", by=())
    drawn = [
        picture(
            name,
            lambda shown=shown: points_figure(rows, swept, shown, DEFAULT_SIZE),  # type: ignore[misc]
            f"{shown.title}: {described(shown.y, swept.results).label} over {shown.x}",
        )
        for name, shown in plots.items()
    ]
    return Section("Pictures", *drawn)


def write_sweep_report(path: str, swept: Swept, rows: Sequence[Row], plot: SweepPlot | None = None) -> None:
    """The report of a sweep.

    Args:
        path: the path of the file.
        swept: the sweep.
        rows: the rows of its table in the order of points, all with the same columns.
        plot: the first picture; None: that of the sweep's definition, or a default.

    Raises:
        InputError: the file cannot be written.
    """
    reason = ""
    try:
        plot = chosen_plot(swept, rows) if plot is None else plot
    except InputError as error:
        reason = str(error)
    metrics = [
        name for name in (rows[0] if rows else ()) if name not in swept.varied and name not in NO_METRICS
    ]
    wanted = dict.fromkeys((*([plot.x, plot.y] if plot else []), *_MAIN))
    main = [name for name in wanted if name in metrics]
    failures = [
        (name_of({key: row[key] for key in swept.varied}), str(row["reason"]))
        for row in rows
        if row["status"] == "failed"
    ]
    versions = dict.fromkeys(str(row["version"]) for row in rows if row.get("version"))
    sections = [
        Section("Summary", HtmlTable((), _facts(swept, rows, plot))),
        _pictures(swept, rows, plot, reason),
        Section(
            "Points",
            _points_table(swept, rows, main),
            Folded(f"All metrics: {len(metrics):,}", _points_table(swept, rows, metrics)),
        ),
        Section("Points that failed", HtmlTable(("point", "reason"), failures, _REST)),
        _published_table(swept, rows),
        _configuration_section(swept, rows),
        provenance({"points of version": ", ".join(versions)} if versions else None),
    ]
    write_page(
        path, sweep_title(swept), f"ndpsim sweep {swept.command}, {counted(len(rows), 'point')}", sections
    )
