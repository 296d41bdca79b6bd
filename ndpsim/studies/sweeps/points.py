"""The points of a running sweep: found or run, recorded, and turned into rows of a table."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from ndpsim.base.arguments import progress_function
from ndpsim.base.options.swept import StudyOptions
from ndpsim.base.run_files import inputs_recorded
from ndpsim.simulate.results.cache import version
from ndpsim.studies.sweeps.executors import Answers, Task, Tasks, failure, reason_of
from ndpsim.studies.sweeps.store import NOTE, SCHEMA, Note, Store, digests_of, note_of, point_name
from ndpsim.studies.sweeps.table import StoredRows, SweepResult, csv_of, lists_of, parquet_of, rows_of
from ndpsim.studies.sweeps.values import Definition

_FIRST_TABLE_S = 2.0  # after the start
_TABLE_SHARE = 1 / 40  # maximum share of the time for writing tables of finished points


@dataclass(frozen=True)
class Progress:
    """The progress of a sweep: numbers of all, finished, found and failed points."""

    points: int
    done: int
    found: int
    failed: int


def shares(progress: Callable[[float], None] | bool | None) -> Callable[[Progress], object]:
    """A function for `SweepRun` that calls `progress` with the finished share.

    Raises:
        InputError: `progress` cannot be called.
    """
    show = progress_function(progress)
    return lambda state: show(state.done / state.points)


@dataclass
class SweepPoint:
    """A point in a run: its values, and, once known, the name of its file, its configuration and outcome.

    The outcome is what tables need of its record (`_outcome`).
    """

    values: dict[str, Any]
    name: str = ""
    config: str = "{}"
    outcome: dict[str, Any] | None = None


class SweepRun:
    """A run of a sweep; points finish in any order.

    Args:
        definition: the definition of the sweep.
        points: the values of the varied keys at each point.
        options: where and how points run.
        watch: called after every point.
        begin: called before the first computed point.

    Attributes:
        command: the command of the sweep.
        options: as given.
        table: name of its tables, without an extension.
        others: names of further tables.
    """

    table = "table"
    others: tuple[str, ...] = ()

    def __init__(
        self,
        definition: Definition,
        points: list[dict[str, Any]],
        options: StudyOptions,
        watch: Callable[[Progress], object] = lambda state: None,
        begin: Callable[[], object] = lambda: None,
    ) -> None:
        self._definition, self.command, self.options = definition, definition.swept, options
        self._watch, self._begin = watch, begin
        self._store = None if options.folder is None else Store(options.folder)
        self._points = [SweepPoint(values) for values in points]
        self._note: Note | None = None
        self._noted_rows: StoredRows | None = None  # of a sweep that was finished before
        self._inputs: dict[str, str | None] = {}  # files that were read to resolve points, with their digests
        self._same: dict[str, list[SweepPoint]] = {}  # points by name, since equal ones are run once
        self._stored_before: set[str] = set()
        self._done = self._found = self._failed = 0
        self._has_begun = False
        self._version = _version()
        self._next_table = time.monotonic() + _FIRST_TABLE_S

    @property
    def planned(self) -> int:
        """The number of points to run."""
        return len(self._points)

    def tasks(self) -> Tasks:
        """The points that have to run."""
        self._find_noted()
        if self._noted_rows is not None:
            return iter(())
        return self._tasks_of([point for point in self._points if point.outcome is None])

    def _find_noted(self) -> None:
        """Finish the points whose records the note in the folder names."""
        if self._store is None:
            return
        self._note = note = Note(self._store.points, self._definition, self.planned)
        self._inputs = dict(note.inputs)
        if note.has(self._table_files):
            values = [point.values for point in self._points]
            rows = note.rows(self._definition, values, self._store.records)
            if rows is not None and not (rows.failed and self.options.retry_failed):
                self._noted_rows = rows
                self._done, self._found, self._failed = self.planned, self.planned, rows.failed
                self._show()
                return
        for point, name in zip(self._points, note.names, strict=False):
            record = None if name is None else self._stored(name)
            if name is not None and record is not None:
                point.name, point.config = name, record["config"]
                self._same.setdefault(name, []).append(point)
                self._stored_before.add(name)
                self._finish([point], _outcome(record))

    def _tasks_of(self, points: Sequence[SweepPoint]) -> Tasks:
        """Tasks of points, resolved if requested; points without a task are finished at once."""
        for point in points:
            settings = self._definition.settings(point.values)
            try:
                with inputs_recorded() as inputs:
                    resolved = self.command.resolve(settings)
                self._inputs |= digests_of(inputs - self._inputs.keys())
            except Exception as error:  # other points continue after any error
                point.name = point_name(self.command.name, ["given", settings])
                record = self._record(point, failure(reason_of(error)))
                self._finish([point], _outcome(record), record)
                continue
            point.name = point_name(self.command.name, resolved.key)
            point.config = resolved.text
            same = self._same.setdefault(point.name, [])
            same.append(point)
            if same[0].outcome is not None:
                self._finish([point], same[0].outcome)
            elif same[0] is point:
                found = self._stored(point.name)
                if found is None:
                    if not self._has_begun:
                        self._has_begun = True
                        self._begin()
                    yield Task(point.name, settings, resolved.key)
                else:
                    self._stored_before.add(point.name)
                    self._finish([point], _outcome(found))

    def _stored(self, name: str) -> dict[str, Any] | None:
        record = None if self._store is None else self._store.find(name)
        failed = record is not None and record["status"] != "ok"
        return None if failed and self.options.retry_failed else record

    def take(self, answers: Answers) -> None:
        """Take the results of tasks."""
        self._show()
        with closing(answers):  # type: ignore[type-var]
            for task, answer in answers:
                same = self._same[task.name]
                stored = answer.pop("stored", True)
                record = self._record(same[0], answer)
                if record["status"] != "ok" and self._store is not None:
                    # Another sweep may have succeeded meanwhile; its result stays.
                    earlier = self._store.find(task.name)
                    if earlier is not None and earlier["status"] == "ok":
                        record, stored = earlier, False
                self._finish(same, _outcome(record), record if stored else None)
                self._write_tables_now_and_then()

    def claim(self, name: str, described: Mapping[str, Any]) -> None:
        """Take the folder, if any; see `Store.claim`."""
        if self._store is not None:
            self._store.claim(name, described, self.tables, self.options.force)

    def close(self) -> None:
        """Wait until all finished points are in the folder."""
        if self._store is not None:
            self._store.close()

    def _record(self, point: SweepPoint, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The record of a point; its configuration is a text."""
        return {
            "schema": SCHEMA,
            "key": point.name,
            "command": self.command.name,
            "point": point.values,
            "given": self._definition.settings(point.values),
            "config": point.config,
            "host": None,
            "wall_s": None,
            "compile_s": None,
            **answer,
            "version": self._version,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _finish(
        self, points: list[SweepPoint], outcome: dict[str, Any], new: dict[str, Any] | None = None
    ) -> None:
        """Finish points, and store their record if it is new."""
        for point in points:
            if point.outcome is None:
                self._done += 1
                self._failed += outcome["status"] != "ok"
                self._found += point.name in self._stored_before
            point.outcome = outcome
        if new is not None and self._store is not None:
            self._store.put(new)
        self._show()

    def _show(self) -> None:
        self._watch(Progress(self.planned, self._done, self._found, self._failed))

    def _write_tables_now_and_then(self) -> None:
        began = time.monotonic()
        if self._store is not None and began >= self._next_table:
            self._write_tables(self._rows(), noted=False)
            now = time.monotonic()
            self._next_table = now + max(_FIRST_TABLE_S, (now - began) / _TABLE_SHARE)

    def _write_tables(self, rows: list[dict[str, Any]], noted: bool) -> None:
        """Write the tables, and with `noted` that the run is finished."""
        assert self._store is not None
        with self._store.tables() as are_ours:
            if are_ours:
                for name, content in self._tables_of(rows, noted):
                    self._store.write_file(name, content)
                if noted:
                    self._write_note(rows)

    def _tables_of(self, rows: list[dict[str, Any]], all_done: bool) -> Iterator[tuple[str, bytes]]:
        """The names and contents of the tables of finished points."""
        csv, parquet = self.tables[:2]
        yield csv, csv_of(rows)
        with contextlib.suppress(ImportError):  # of the extra `parquet`
            yield parquet, parquet_of(rows)

    @property
    def tables(self) -> list[str]:
        """The names of all tables."""
        return [f"{self.table}.csv", f"{self.table}.parquet", *self.others]

    def _rows(self) -> list[dict[str, Any]]:
        return self._rows_of(self._points)

    def _rows_of(self, points: Sequence[SweepPoint]) -> list[dict[str, Any]]:
        """The rows of finished points."""
        return rows_of(self._definition, _finished(points))

    def result(self) -> SweepResult:
        """The result after all points are finished, with written tables."""
        if self._noted_rows is not None:
            return SweepResult(self._definition, self._noted_rows, 0, self._found)
        rows = self._rows()
        if self._store is not None and not self._is_as_noted():
            self._write_tables(rows, noted=True)
        lists = lists_of(self._definition, _finished(self._points))
        return SweepResult(self._definition, rows, len(rows) - self._found, self._found, lists)

    @property
    def _table_files(self) -> list[Path]:
        folder = self.options.folder
        return [] if folder is None else [folder / name for name in self.tables[:2]]

    def _is_as_noted(self) -> bool:
        """Whether all points were found by the note in the folder, and its tables are there."""
        return self._note is not None and self._found == self.planned and self._note.has(self._table_files)

    def _write_note(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Note in the folder that the run is finished, unless a file has changed meanwhile."""
        if self._note is None or self._store is None or digests_of(self._inputs) != self._inputs:
            return
        names = [point.name if point.name in self._same else None for point in self._points]
        records = self._store.records
        content = note_of(self._definition, names, self._inputs, self._table_files, records, rows)
        self._store.write_file(f"{self._store.points.name}/{NOTE}", content)


def _outcome(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a table needs of a record; all points share the names of metrics."""
    metrics = {sys.intern(name): value for name, value in record["metrics"].items()}
    return {name: record[name] for name in ("status", "reason", "version")} | {"metrics": metrics}


def _finished(points: Sequence[SweepPoint]) -> list[tuple[Any, dict[str, Any], str]]:
    """Values, outcome and configuration of each finished point."""
    return [(point.values, point.outcome, point.config) for point in points if point.outcome is not None]


def _version() -> dict[str, str]:
    return {
        "ndpsim": metadata.version("ndpsim"),
        "digest": version(),
        **{name: metadata.version(name) for name in ("numpy", "numba")},
    }
