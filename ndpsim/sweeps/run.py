"""Running a sweep: what is there is found, the rest is run, and all of it becomes a table."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from ndpsim.arguments import flag, is_flag, path_of, progress_function, several, shown, text
from ndpsim.errors import InputError, one_of
from ndpsim.results.cache import version
from ndpsim.sweeps.command import SweptCommand
from ndpsim.sweeps.commands import swept_commands
from ndpsim.sweeps.definition import Definition
from ndpsim.sweeps.executors import Answers, Task
from ndpsim.sweeps.executors.attempt import failure, reason_of
from ndpsim.sweeps.executors.cluster import run_on_cluster
from ndpsim.sweeps.executors.local import chosen_jobs, run_locally
from ndpsim.sweeps.file import read_definition
from ndpsim.sweeps.store import SCHEMA, Store, point_name
from ndpsim.sweeps.table import SweepResult, csv_of, parquet_of, rows_of
from ndpsim.sweeps.values import checked

__all__ = ["Progress", "defined", "run_sweep", "sweep"]

_log = logging.getLogger("ndpsim")

_FIRST_TABLE_S = 2.0  # after the start
_TABLE_SHARE = 1 / 40  # of the time that passes, at most, goes into tables of what is finished so far
_MOST_POINTS = 1_000_000


@dataclass(frozen=True)
class Progress:
    """How far a sweep is: all points, those that are done, and of these the found and the failed."""

    points: int
    done: int
    found: int
    failed: int


def sweep(
    command: str | os.PathLike[str] | Definition,
    vary: Mapping[str, Any] | None = None,
    *,
    fixed: Mapping[str, Any] | None = None,
    zip: bool | Sequence[Sequence[str]] = False,
    baseline: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    retry_failed: bool = False,
    progress: Callable[[float], None] | None = None,
) -> SweepResult:
    """Run a command at many points, on all cores or on a cluster.

    >>> import ndpsim
    >>> result = ndpsim.sweep("gemv", {"tokens": [1, 2], "dimm.ranks": [2, 4]}, fixed={"shape": "256,128"})
    >>> len(result), result[0]["tokens"], result[3]["dimm.ranks"], result.failed
    (4, 1, 4, 0)

    Args:
        command: gemv, moe, relayout or dram; or a YAML file that describes a sweep; or a `Definition`.
        vary: the keys that vary, each with its values: a list, or a text as ``--vary`` takes it, "1,2,4",
            "1..8", "log:10..1000:7". A key is an option of the command without its dashes (``group-size``)
            or a key of the hardware (``dimm.ranks``). The last one changes fastest. Beside a file or a
            definition, these keys vary in place of what it says of them.
        fixed: keys with one value, the same at all points.
        zip: True: the n-th values of all keys make a point together, instead of every value with every other.
            Groups of keys, [["tokens", "bits"], ...]: those of each group do.
        baseline: values of some varied keys: the column `speedup` compares each point with the one that has
            these values and is otherwise the same.
        out: a folder in which every point is a file as soon as it is finished, beside table.csv and
            table.parquet. The same call finds there what is finished, whatever ended the one before; another
            version of ndpsim or other contents of a named file are other points. None: nothing is stored.
        jobs: processes; None: one a core.
        cluster: address or scheduler file of a Dask cluster to run the points on instead (extra `cluster`).
            Files that are named must be there under the same path, with the same content.
        retry_failed: run points again that have failed before.
        progress: called with the share of points that are done.

    Returns:
        The rows of the table. A point that cannot be run, or fails, has its reason in its row.

    Raises:
        InputError: the sweep makes no sense, or `out` cannot be written.
    """
    definition = defined(command, vary, fixed, zip, baseline)
    show = progress_function(progress)
    return run_sweep(
        definition,
        None if out is None else path_of(out, "out"),
        jobs=jobs,
        cluster=cluster,
        retry_failed=retry_failed,
        watch=lambda state: show(state.done / state.points),
    )


def defined(
    command: str | os.PathLike[str] | Definition,
    vary: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    zipped: bool | Sequence[Sequence[str]] = False,
    baseline: Mapping[str, Any] | None = None,
) -> Definition:
    """The definition that arguments of `sweep` mean.

    Raises:
        InputError: it makes no sense.
    """
    vary, fixed, baseline = _mapping(vary, "vary"), _mapping(fixed, "fixed"), _mapping(baseline, "baseline")
    for key in fixed.keys() & vary.keys():
        raise InputError("has one value and varies, too", key=key)
    if isinstance(command, Definition):
        said = replace(
            command,
            varied={**command.varied, **vary},
            fixed={key: value for key, value in command.fixed.items() if key not in vary},
        )
    elif (name := os.fspath(path_of(command, "command"))) in swept_commands():
        said = Definition(name, varied=vary)
    elif name.endswith((".yaml", ".yml")):
        said = read_definition(name, vary)
    else:
        known = [*swept_commands(), "FILE.yaml"]
        raise InputError(one_of(name, known, "command"), key="command")
    swept = _command_of(said)
    varied = {key: values for key, values in said.varied.items() if key not in fixed}
    baseline = {key: value for key, value in said.baseline.items() if key not in fixed} | baseline
    said = replace(
        said,
        varied=varied,
        fixed={**said.fixed, **fixed},
        zipped=_groups(zipped, varied) or _without(said.zipped, fixed),
        baseline=baseline,
        speedup_of=said.speedup_of if baseline else None,
        published=tuple(one for one in said.published if not fixed.keys() & one.where.keys()),
    )
    return checked(swept, said)


def _groups(zipped: Any, varied: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """The groups of keys whose values go together."""
    if is_flag(zipped):
        return (tuple(varied),) if zipped else ()
    return several(zipped, "zip", lambda group, name: several(group, name, text))


def _without(groups: Sequence[Sequence[str]], fixed: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Groups of keys without those that vary no more."""
    within = (tuple(key for key in group if key not in fixed) for group in groups)
    return tuple(group for group in within if len(group) > 1)


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{shown(value)} is no mapping of keys", key=name)
    return dict(value)


def _command_of(definition: Definition) -> SweptCommand:
    commands = swept_commands()
    if definition.command not in commands:
        raise InputError(one_of(definition.command, commands, "command"), key="command")
    return commands[definition.command]


def run_sweep(
    definition: Definition,
    out: Path | None = None,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    retry_failed: bool = False,
    watch: Callable[[Progress], None] = lambda state: None,
) -> SweepResult:
    """As `sweep`, of a definition that `defined` has made; `watch` is called after every point.

    Raises:
        InputError: `out` cannot be written, or there is no such cluster.
    """
    command = _command_of(definition)
    if jobs is not None and cluster is not None:
        raise InputError("the cluster says how many points run at once; leave it out", key="jobs")
    if cluster is not None and not text(cluster, "cluster").strip():
        raise InputError("is empty: give the address of a scheduler, or its file", key="cluster")
    jobs = chosen_jobs(jobs)
    retry_failed = flag(retry_failed, "retry_failed")
    points = definition.points()
    if len(points) > _MOST_POINTS:
        raise InputError(f"{len(points):,} points are more than {_MOST_POINTS:,}", key="vary")
    store = None if out is None else Store(out)
    run = _Run(definition, command, points, store, retry_failed, watch)
    try:
        if store is not None:
            store.write_file("sweep.json", _definition_text(definition))
        tasks = run.tasks()
        answers = (
            run_locally(command, tasks, jobs) if cluster is None else run_on_cluster(command, tasks, cluster)
        )
        run.take(answers)
    finally:
        if store is not None:
            store.close()
    return run.result()


def _definition_text(definition: Definition) -> bytes:
    return json.dumps(asdict(definition), indent=2).encode() + b"\n"


@dataclass
class _Point:
    """A point in a run: its values, its file's name, configuration and record once they are known."""

    values: dict[str, Any]
    name: str = ""
    config: str = "{}"
    record: dict[str, Any] | None = None


class _Run:
    """A run of a sweep; points come to it in any order."""

    def __init__(
        self,
        definition: Definition,
        command: SweptCommand,
        points: list[dict[str, Any]],
        store: Store | None,
        retry_failed: bool,
        watch: Callable[[Progress], None],
    ) -> None:
        self._definition, self._command, self._store = definition, command, store
        self._retry_failed, self._watch = retry_failed, watch
        self._points = [_Point(values) for values in points]
        self._same: dict[str, list[_Point]] = {}  # points by name: equal ones are run once
        self._stored_before: set[str] = set()
        self._done = self._found = self._failed = 0
        self._version = _version()
        self._next_table = time.monotonic() + _FIRST_TABLE_S

    def tasks(self) -> Iterator[Task]:
        """What has to be run, resolved when it is asked for; the rest is done on the way."""
        for point in self._points:
            given = self._definition.given(point.values)
            try:
                resolved = self._command.resolve(given)
            except Exception as error:  # the other points go on, whatever is wrong with this one
                point.name = point_name(self._command.name, ["given", given])
                self._finish([point], self._record(point, failure(reason_of(error))), store=True)
                continue
            point.name = point_name(self._command.name, resolved.key)
            point.config = json.dumps(resolved.config, sort_keys=True)
            same = self._same.setdefault(point.name, [])
            same.append(point)
            if same[0].record is not None:
                self._finish([point], same[0].record)
            elif same[0] is point:
                record = self._stored(point.name)
                if record is None:
                    yield Task(point.name, given, resolved.key)
                else:
                    self._stored_before.add(point.name)
                    self._finish([point], record)

    def _stored(self, name: str) -> dict[str, Any] | None:
        record = None if self._store is None else self._store.find(name)
        failed = record is not None and record["status"] != "ok"
        return None if failed and self._retry_failed else record

    def take(self, answers: Answers) -> None:
        """Take what comes of the tasks."""
        self._show()
        with closing(answers):  # type: ignore[type-var]
            for task, answer in answers:
                same = self._same[task.name]
                stored = answer.pop("stored", True)
                record = self._record(same[0], answer)
                if record["status"] != "ok" and self._store is not None:
                    # Another sweep may have had more luck meanwhile; its result stays.
                    other = self._store.find(task.name)
                    if other is not None and other["status"] == "ok":
                        record, stored = other, False
                self._finish(same, record, store=stored)
                self._write_tables_now_and_then()

    def _record(self, point: _Point, answer: Mapping[str, Any]) -> dict[str, Any]:
        """What the file of a point says."""
        return {
            "schema": SCHEMA,
            "key": point.name,
            "command": self._command.name,
            "point": point.values,
            "given": self._definition.given(point.values),
            "config": json.loads(point.config),
            "host": None,
            "wall_s": None,
            "compile_s": None,
            **answer,
            "version": self._version,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _finish(self, points: list[_Point], record: dict[str, Any], store: bool = False) -> None:
        """Points are done; their record is stored where it is new."""
        for point in points:
            if point.record is None:
                self._done += 1
                self._failed += record["status"] != "ok"
                self._found += point.name in self._stored_before
            point.record = record
        if store and self._store is not None:
            self._store.put(record)
        self._show()

    def _show(self) -> None:
        self._watch(Progress(len(self._points), self._done, self._found, self._failed))

    def _write_tables_now_and_then(self) -> None:
        began = time.monotonic()
        if self._store is not None and began >= self._next_table:
            self._write_tables(self._rows())
            now = time.monotonic()
            self._next_table = now + max(_FIRST_TABLE_S, (now - began) / _TABLE_SHARE)

    def _write_tables(self, rows: list[dict[str, Any]]) -> None:
        assert self._store is not None
        self._store.write_file("table.csv", csv_of(rows))
        try:
            parquet = parquet_of(rows)
        except ImportError:
            if self._done == len(self._points):
                _log.warning("table.parquet is not written: it needs pip install 'ndpsim[parquet]'")
        else:
            self._store.write_file("table.parquet", parquet)

    def _rows(self) -> list[dict[str, Any]]:
        finished = [
            (point.values, point.record, point.config) for point in self._points if point.record is not None
        ]
        return rows_of(self._definition, self._command, finished)

    def result(self) -> SweepResult:
        """All of it, once all points are done; the tables are written."""
        rows = self._rows()
        if self._store is not None:
            self._write_tables(rows)
        return SweepResult(self._definition, rows, len(rows) - self._found, self._found)


def _version() -> dict[str, str]:
    return {
        "ndpsim": metadata.version("ndpsim"),
        "digest": version(),
        **{name: metadata.version(name) for name in ("numpy", "numba")},
    }
