"""The table of a sweep, with rows in the order of points, as CSV, Parquet and a result in Python."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, overload

from ndpsim.base.arguments import choice, imported, instance, path_of, several, text, whole_number
from ndpsim.base.reported import html_columns
from ndpsim.report.metrics import metric_label, metric_text
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.printing import aligned, wrapped
from ndpsim.report.ranking import best_of, deciding_metric, point_name, ranked_answer
from ndpsim.report.sweep_plot import chosen_plot
from ndpsim.report.words import counted
from ndpsim.studies.sweeps.command import numbered_part
from ndpsim.studies.sweeps.values import Definition

#: The columns besides varied keys and metrics: status and identity of a point.
OWN_COLUMNS = ("status", "reason", "version", "config")

#: The main metrics.
_MAIN = ("speedup", "tokens_per_s", "time_ns", "bandwidth_gbps", "energy_nj.total")
_WIDTH = 80  # metrics of a repr
_SHOWN = 20  # rows of a repr
_LONGEST = 24  # maximum characters of a cell in a repr


def rows_of(
    definition: Definition, points: Sequence[tuple[Mapping[str, Any], Mapping[str, Any], str]]
) -> list[dict[str, Any]]:
    """The rows of a table, all with the same columns.

    Args:
        points: for each point in order, values of varied keys, record, and configuration as JSON.
    """
    taken = {*definition.varied, *OWN_COLUMNS}
    metrics = tuple(
        dict.fromkeys(
            name
            for _, record, _ in points
            for name in record["metrics"]
            if name not in taken and numbered_part(name, record["metrics"]) is None
        )
    )
    added: Sequence[dict[str, Any]] = [{}] * len(points)
    if definition.baseline:
        added = [{"speedup": speedup} for speedup in _speedups(definition, points)]
    return [row_of(*point, metrics, more) for point, more in zip(points, added, strict=True)]


def row_of(
    point: Mapping[str, Any],
    record: Mapping[str, Any],
    config: str,
    metrics: Sequence[str],
    added: Mapping[str, Any],
) -> dict[str, Any]:
    """A row of a table with these metrics, and with `added` after them."""
    found, version = record["metrics"], record["version"]
    row = {**point, "status": record["status"], "reason": record["reason"]}
    row.update(zip(metrics, map(found.get, metrics), strict=True))
    row.update(added)
    row["version"], row["config"] = f"{version['ndpsim']} {version['digest']}", config
    return row


class StoredRows(Sequence[dict[str, Any]]):
    """Rows that are made of records when they are asked for.

    Args:
        number: how many.
        failed: how many of them have no result.
        point: values, record and configuration of the point with a number.
        row: the row of a point.
    """

    def __init__(
        self,
        number: int,
        failed: int,
        point: Callable[[int], tuple[Mapping[str, Any], Mapping[str, Any], str]],
        row: Callable[[int], dict[str, Any]],
    ) -> None:
        self._number, self.failed, self.point, self._row = number, failed, point, row

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        numbers = range(self._number)[index]
        return self._row(numbers) if isinstance(numbers, int) else [self._row(number) for number in numbers]


def lists_of(
    definition: Definition, points: Sequence[tuple[Mapping[str, Any], Mapping[str, Any], str]]
) -> list[dict[str, Any]]:
    """A long table of the numbered parts of all points: varied keys, `metric`, `number` and `value`."""
    return [
        {**point, "metric": part[0], "number": part[1], "value": value}
        for point, record, _ in points
        for name, value in record["metrics"].items()
        if (part := numbered_part(name, record["metrics"])) is not None
    ]


def _speedups(
    definition: Definition, points: Sequence[tuple[Mapping[str, Any], Mapping[str, Any], str]]
) -> list[float | None]:
    """The speedup of each point over the one with the baseline's values; None: unknown."""
    metric = definition.speedup_of or definition.swept.time_metric
    times = [record["metrics"].get(metric) for _, record, _ in points]
    index = {_sorted_json(dict(point)): number for number, (point, _, _) in enumerate(points)}
    speedups: list[float | None] = []
    for (point, _, _), own in zip(points, times, strict=True):
        number = index.get(_sorted_json({**point, **definition.baseline}))
        base = None if number is None else times[number]
        speedups.append(base / own if base is not None and own else None)
    return speedups


def _sorted_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _cell(value: Any) -> Any:
    """A value as a cell of a file, where lists are JSON."""
    return _sorted_json(value) if isinstance(value, list | tuple | Mapping) else value


def csv_of(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as CSV, with a header."""
    file = io.BytesIO()  # a text would take four times the memory
    with io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True) as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(rows[0] if rows else ())
        writer.writerows([_cell(value) for value in row.values()] for row in rows)
        return file.getvalue()


def parquet_of(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as Parquet.

    Raises:
        ImportError: pyarrow is not installed.
    """
    import pyarrow.parquet  # noqa: PLC0415 (an extra, and it takes its time)

    file = io.BytesIO()
    pyarrow.parquet.write_table(_arrow(rows), file)
    return file.getvalue()


def _arrow(rows: Sequence[Mapping[str, Any]]) -> Any:
    import pyarrow  # noqa: PLC0415

    columns = {name: [_cell(row[name]) for row in rows] for name in (rows[0] if rows else ())}
    return pyarrow.table({name: _array(pyarrow, values) for name, values in columns.items()})


def _array(pyarrow: Any, values: list[Any]) -> Any:
    """A column of a single type for all its values: Booleans, whole numbers, numbers or text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pyarrow.array(values, pyarrow.bool_())
    if kinds == {int} and all(-(1 << 63) <= value < 1 << 63 for value in values if value is not None):
        return pyarrow.array(values, pyarrow.int64())
    if kinds and kinds <= {int, float}:
        return pyarrow.array([None if v is None else float(v) for v in values], pyarrow.float64())
    return pyarrow.array([None if v is None else str(v) for v in values], pyarrow.string())


class Listed:
    """A result that behaves like the list `listed` of its rows."""

    listed: Sequence[dict[str, Any]]

    def __len__(self) -> int:
        return len(self.listed)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.listed)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return list(self.listed[index]) if isinstance(index, slice) else self.listed[index]


class SweepResult(Listed):
    """The result of `sweep`: the rows of its table, one a point, in the order of points.

    A row is a mapping with these keys: the varied keys, `status` ("ok" or "failed"), `reason` (of a failure,
    else None), the metrics of the command, named as in ``to_dict(flat=True)`` of its result, `speedup` with a
    baseline, `version`, and `config`, the whole resolved configuration as JSON. All rows have all columns; a
    missing value is None.

    ``pandas.DataFrame(result)`` and ``polars.DataFrame(result)`` have these rows and columns; polars needs
    pyarrow. Results with equal definitions and rows are equal.

    Attributes:
        definition: the definition of the sweep.
        computed: points that this call ran, or found to be impossible.
        found: points that an earlier call ran.
        lists: a long table of numbered parts, such as the utilization of each DIMM: rows with the varied
            keys, `metric`, `number` and `value`. Rows of points have their mean or sum.
    """

    def __init__(
        self,
        definition: Definition,
        rows: Sequence[dict[str, Any]],
        computed: int = 0,
        found: int = 0,
        lists: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        self.definition = instance(definition, "definition", Definition)
        self.listed, self._lists = rows, lists
        self._stored = rows if isinstance(rows, StoredRows) else None
        self.computed, self.found = computed, found

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows, as a list; of a sweep that was finished before, they are read with the first use."""
        if not isinstance(self.listed, list):
            self.listed = list(self.listed)
        return self.listed

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    @property
    def lists(self) -> Sequence[dict[str, Any]]:
        """The long table of numbered parts; of a sweep that was finished before, read with the first use."""
        if self._lists is None:
            stored = self._stored
            points = [] if stored is None else [stored.point(number) for number in range(len(stored))]
            self._lists = lists_of(self.definition, points)
        return self._lists

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(self.listed[0]) if self.listed else ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """The columns that are metrics."""
        others = {*self.definition.varied, *OWN_COLUMNS}
        return tuple(name for name in self.columns if name not in others)

    @property
    def failed(self) -> int:
        """The number of points without a result."""
        if isinstance(self.listed, StoredRows):
            return self.listed.failed
        return sum(row["status"] != "ok" for row in self.rows)

    def config(self, number: int) -> dict[str, Any]:
        """The resolved configuration of a point, from 0.

        Raises:
            InputError: there is no such point.
        """
        number = whole_number(number, "number", 0, len(self) - 1)
        return dict(json.loads(self.listed[number]["config"]))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the definition's keys, and the rows, with `config` as an object."""
        rows = [{**row, "config": json.loads(row["config"])} for row in self.rows]
        return {
            "command": self.definition.command,
            "fixed": dict(self.definition.fixed),
            "varied": {key: list(values) for key, values in self.definition.varied.items()},
            "baseline": dict(self.definition.baseline),
            "failed": self.failed,
            "points": rows,
        }

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` of the rows.

        Raises:
            InputError: pandas is not installed.
        """
        return imported("pandas").DataFrame(self.rows, columns=list(self.columns))

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` of the metrics, with a dimension for each varied key (extra `xarray`).

        Points that are no full grid, as of a sweep with `zip`, have one dimension, "point", and the varied
        keys along it. Lists among values are texts.

        Raises:
            InputError: xarray or pandas is not installed.
        """
        imported("xarray", "pip install 'ndpsim[xarray]'")
        keys = list(self.definition.varied)
        frame = self.to_pandas().drop(columns=["version", "config"])
        for key in keys:
            frame[key] = frame[key].map(_cell)
        grid = math.prod(frame[key].nunique() for key in keys)
        if not keys or grid != len(frame) or frame.duplicated(keys).any():
            frame.index.name = "point"
            return frame.to_xarray()
        return frame.set_index(keys).to_xarray()

    def plot(
        self,
        file: str | PathLike[str] | None = None,
        *,
        kind: str | None = None,
        x: str | None = None,
        y: str | None = None,
        by: str | Sequence[str] | None = None,
        log: str | None = None,
        size: str = DEFAULT_SIZE,
    ) -> Any:
        """Draw the points, as ``--plot`` does; a notebook shows the returned `matplotlib.figure.Figure`.

        Args:
            file: also write the picture to this file; its ending is the format.
            kind, x, y, by, log: as the options of ``ndpsim sweep``; None: the sweep's own, or a default.
            size: "column", "two-columns" or "slide".

        Raises:
            InputError: there is no such kind, key or metric, or the file cannot be written.
        """
        from ndpsim.report.pictures.canvas import save  # noqa: PLC0415 (imports matplotlib)
        from ndpsim.report.pictures.sweep import points_figure  # noqa: PLC0415

        words = {"kind": kind, "x": x, "y": y, "log": log, "size": size}
        words = {name: None if word is None else text(word, name) for name, word in words.items()}
        by = by if by is None or isinstance(by, str) else several(by, "by", text)
        file = None if file is None else path_of(file, "file")
        chosen = chosen_plot(
            self.definition, self.rows, words["kind"], words["x"], words["y"], by, words["log"]
        )
        figure = points_figure(self.rows, self.definition, chosen, size)
        if file is not None:
            save(figure, str(file), size)
        return figure

    def answer(self) -> str:
        """Which point is best by the main metric, by how much, and what limits it; "" of a single point."""
        metric = deciding_metric(self.metrics, self.definition.varied)
        names = [point_name(row, list(self.definition.varied)) for row in self.rows]
        return "" if metric is None else ranked_answer(self.rows, names, metric, self.definition.results)

    @property
    def __arrow_c_stream__(self) -> Any:
        """The rows for polars and others that take Arrow, by its PyCapsule interface; needs pyarrow."""
        try:
            return _arrow(self.rows).__arrow_c_stream__
        except ImportError:
            raise AttributeError("pyarrow is not installed: pip install 'ndpsim[parquet]'") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SweepResult):
            return NotImplemented
        return (self.definition, self.rows) == (other.definition, other.rows)

    def title(self) -> str:
        """A title with the varied keys."""
        keys = ", ".join(self.definition.varied)
        failed = f"; {self.failed} failed" if self.failed else ""
        return f"{counted(len(self), 'point')} of {self.definition.command} by {keys}{failed}"

    def cells(self, metrics: Sequence[str], most: int) -> tuple[list[str], list[list[str]]]:
        """Labels and cells, with units, of the first rows: varied keys, then metrics.

        If a point failed, a column between them has the status.

        Raises:
            InputError: there is no such metric.
        """
        most = whole_number(most, "most", 0)
        metrics = several(metrics, "metrics", lambda name, key: choice(name, key, self.metrics, "metric"))
        plain = [*self.definition.varied, *(["status"] if self.failed else [])]
        cells = [
            [
                *(str(_cell(row[name])) for name in plain),
                *(metric_text(name, row[name], self.definition.results) for name in metrics),
            ]
            for row in self.listed[:most]
        ]
        labels = (metric_label(name, results=self.definition.results) for name in metrics)
        return [*plain, *labels], cells

    @property
    def main_metrics(self) -> tuple[str, ...]:
        """The most important metrics of this sweep."""
        return tuple(name for name in _MAIN if name in self.metrics) or self.metrics[:3]

    def _few(self) -> tuple[list[str], list[list[str]]]:
        names, cells = self.cells(self.main_metrics[:4], _SHOWN)
        return names, [[_shortened(cell) for cell in row] for row in cells]

    def __repr__(self) -> str:
        names, cells = self._few()
        found = self.answer()
        answer = wrapped(found, _WIDTH) if found else []
        lines = [f"SweepResult: {self.title()}", *answer, *aligned(cells, _WIDTH, names)]
        if len(self) > _SHOWN:
            lines.append(f"... and {len(self) - _SHOWN} more")
        return "\n".join(line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..." for line in lines)

    def _repr_html_(self) -> str:
        names, cells = self._few()
        metric = deciding_metric(self.metrics, self.definition.varied)
        best = None if metric is None else best_of(self.rows, metric, self.definition.results)
        return html_columns(self.title(), names, cells, best)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
