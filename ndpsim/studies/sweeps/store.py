"""The folder of a sweep: the records of its points, and its tables.

The name of a point is a digest of the command, the resolved configuration, the contents of inputs and the
version of ndpsim. Several sweeps may store points in a folder at once. Its tables are those of one of them,
which the file with the description names (`Store.claim`).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

from ndpsim.base.errors import InputError, shown
from ndpsim.base.files import temporary_beside
from ndpsim.simulate.results.cache import digest_of, version
from ndpsim.studies.sweeps.command import file_digests
from ndpsim.studies.sweeps.records import SCHEMA, RecordFile, Records, line_of
from ndpsim.studies.sweeps.table import OWN_COLUMNS, StoredRows, row_of
from ndpsim.studies.sweeps.values import Definition

__all__ = ["SCHEMA", "Store", "point_name"]

_MOST_WAITING = 64  # records that are not yet on the disk
#: Keys besides a sweep's definition in which searches differ.
_SEARCHED = ("objectives", "constraints", "derived", "sampler", "seed", "batch")


def point_name(command: str, what: Any) -> str:
    """The name of a point; `what` is its `Resolved.key`, or its given values."""
    return digest_of([SCHEMA, command, what, version()])


class Store:
    """The folder of a sweep.

    A thread writes records, so that no worker waits for the disk; closing the store waits for all of them.

    Args:
        folder: the folder, which is created if it does not exist.

    Raises:
        InputError: the folder cannot be created or written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.points = folder, folder / "points"
        try:
            self.points.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make {shown(self.points)}: {error.strerror}", "unwritable", key="out"
            ) from None
        if not os.access(self.points, os.W_OK) or not os.access(folder, os.W_OK):
            raise InputError(f"cannot write {folder}: no permission", "unwritable", key="out")
        self._file = RecordFile(self.points)
        self._records = Records(self.points)
        self._queue: Queue[bytes | None] = Queue(_MOST_WAITING)
        self._problem: OSError | None = None
        self._claim: tuple[str, Mapping[str, Any]] | None = None
        self._writer = Thread(target=self._write_queued, name="points of a sweep", daemon=True)
        self._writer.start()

    def find(self, name: str) -> dict[str, Any] | None:
        return self._records.find(name)

    @property
    def records(self) -> Records:
        """The records of all runs."""
        return self._records

    def put(self, record: dict[str, Any]) -> None:
        """Queue a record for writing.

        Raises:
            InputError: an earlier record could not be written.
        """
        self._check()
        self._queue.put(line_of(record))

    def write_file(self, name: str, content: bytes) -> None:
        """Write a file beside the folder of points.

        Raises:
            InputError: the file cannot be written.
        """
        try:
            with temporary_beside(self.folder / name) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, self.folder / name)
        except OSError as error:
            raise _cannot_write(self.folder / name, error) from None

    def claim(self, name: str, described: Mapping[str, Any], tables: Sequence[str], force: bool) -> None:
        """Write the description of a run, whose tables the folder has from now on.

        Args:
            name: the file of the description.
            tables: names of all its tables. Those of a run that another description named are removed.
            force: whether another run may be replaced.

        Raises:
            InputError: the folder has the tables of another run, and `force` is false.
        """
        self._claim = name, described
        with self._alone():
            before = self._described()
            problem = _other_run(before, described)
            if before is None:
                found = [table for table in tables if (self.folder / table).exists()]
                problem = f"has a {found[0]} that no sweep wrote" if found else None
            if problem is not None and not force:
                raise self._taken(
                    f"{problem}; choose -o DIR, or --force to replace its tables (in Python: out, force=True)"
                )
            if problem is not None:
                for path in (self.points / NOTE, *(self.folder / table for table in tables)):
                    path.unlink(missing_ok=True)
            self._describe()

    def _described(self) -> Any:
        """The description in the folder; None: there is none."""
        assert self._claim is not None
        try:
            return json.loads((self.folder / self._claim[0]).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            return f"a damaged {self._claim[0]}"

    def _describe(self) -> None:
        assert self._claim is not None
        name, described = self._claim
        self.write_file(name, json.dumps(described, indent=2).encode() + b"\n")

    @contextmanager
    def tables(self) -> Iterator[bool]:
        """While the block runs, no other run writes tables; whether this run writes them.

        It does not if a run with all its values, and more, took the folder.

        Raises:
            InputError: another run has taken the folder.
        """
        assert self._claim is not None
        described = json.loads(json.dumps(self._claim[1]))
        with self._alone():
            there = self._described()
            problem = _other_run(there, described)
            if problem is None and there != described:
                self._describe()
            if problem is not None and _other_run(described, there) is not None:
                raise self._taken(f"{problem}: another run took it meanwhile; points are kept")
            yield problem is None

    def _taken(self, problem: str) -> InputError:
        return InputError(f"{shown(str(self.folder))} {problem}", "unwritable", key="out")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While the block runs, other runs wait that want to claim the folder or write its tables."""
        try:
            number = os.open(self.folder, os.O_RDONLY)
        except OSError as error:
            raise _cannot_write(self.folder, error) from None
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(number, fcntl.LOCK_EX)
            yield
        finally:
            os.close(number)

    def close(self) -> None:
        """Wait until all records are on the disk.

        Raises:
            InputError: a record could not be written.
        """
        self._queue.put(None)
        self._writer.join()
        self._file.close()
        self._check()

    def _check(self) -> None:
        if self._problem is not None:
            raise _cannot_write(self.points, self._problem)

    def _write_queued(self) -> None:
        more = True
        while more:
            waiting = [self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get())
            more = None not in waiting
            lines = [line for line in waiting if line is not None]
            try:
                if lines and self._problem is None:
                    self._file.append(lines)
            except OSError as error:
                self._problem = error


def _cannot_write(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {path}: {error.strerror or error}", "unwritable", key="out")


def _other_run(before: Any, now: Any) -> str | None:
    """The difference of a described run from an earlier one, except for further values and points, if any."""
    try:
        return None if before is None else _difference(before, json.loads(json.dumps(now)))
    except (KeyError, TypeError, AttributeError):
        return "has a description that no sweep wrote"


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The difference of a run from an earlier one, except for further values and points, if any."""
    if before["command"] != now["command"]:
        return f"has another sweep: of {before['command']}, not of {now['command']}"
    if list(before["varied"]) != list(now["varied"]):
        return f"has another sweep: over {', '.join(before['varied'])}"
    for key in sorted({*before["fixed"], *now["fixed"]}):
        values = [definition.get(key) for definition in (before["fixed"], now["fixed"])]
        if values[0] != values[1]:
            there, here = ("its default" if value is None else shown(value) for value in values)
            return f"has another sweep: with {key} {there}, not {here}"
    for key, values in before["varied"].items():
        is_range = isinstance(values, str)
        kept = set(map(_hashable, [now["varied"][key]] if is_range else now["varied"][key]))
        gone = [value for value in ([values] if is_range else values) if _hashable(value) not in kept]
        if gone:
            return f"has another sweep: with {key} {shown(gone[0])}, too"
    for name in _SEARCHED:
        if before.get(name) != now.get(name):
            return f"has another search: with {name} {shown(before.get(name))}, not {shown(now.get(name))}"
    return None


def _hashable(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


# ---- The note in a folder that a sweep is finished: opened again, its points need not be resolved
#
# It counts while the definition, the version of ndpsim and all files that were read for it are the same. A
# point whose record is missing is resolved, and run, as if there were no note.


#: The name of the note, beside the records.
NOTE = "finished.json"


def _identity(definition: Definition) -> str:
    """A digest of a definition, of the folder in which its files are named, and of ndpsim."""
    text = json.dumps([asdict(definition), os.getcwd(), version()], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def digests_of(files: Iterable[str]) -> dict[str, str | None]:
    """The digest of the content of each file; None: there is none."""
    names = sorted(files)
    return dict(zip(names, file_digests(*names), strict=True))


def _stamps(tables: Sequence[Path]) -> list[list[int]]:
    """Size and time of the last change of each table that exists."""
    found = [os.stat(table) for table in tables if table.exists()]
    return [[status.st_size, status.st_mtime_ns] for status in found]


def note_of(
    definition: Definition,
    names: Sequence[str | None],
    inputs: Mapping[str, str | None],
    tables: Sequence[Path],
    records: Records,
    rows: Sequence[Mapping[str, Any]],
) -> bytes:
    """The note of a sweep whose tables are written.

    Args:
        names: the name of the record of each point; None: it could not be resolved.
        inputs: the files that were read for it, with their digests.
        rows: the rows of its tables.
    """
    note = {
        "definition": _identity(definition),
        "names": list(names),
        "inputs": dict(inputs),
        "tables": _stamps(tables),
        "records": records.places_of(names),
        "columns": list(rows[0]),
        "speedups": [row["speedup"] for row in rows] if definition.baseline else None,
        "failed": sum(row["status"] != "ok" for row in rows),
    }
    return json.dumps(note).encode() + b"\n"


class Note:
    """The note in a folder, if it is of this sweep.

    Attributes:
        names, inputs: as in `note_of`; empty: there is no note that counts.
    """

    def __init__(self, folder: Path, definition: Definition, points: int) -> None:
        self.names: list[str | None] = []
        self.inputs: dict[str, str | None] = {}
        self._note: dict[str, Any] = {}
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            note = json.loads((folder / NOTE).read_bytes())
            is_same = note["definition"] == _identity(definition) and len(note["names"]) == points
            if is_same and note["inputs"] == digests_of(note["inputs"]):
                self.names, self.inputs, self._note = note["names"], note["inputs"], note

    def has(self, tables: Sequence[Path]) -> bool:
        """Whether these tables are those that were written before the note."""
        return bool(self.names) and _stamps(tables) == self._note["tables"]

    def rows(
        self, definition: Definition, points: Sequence[Mapping[str, Any]], records: Records
    ) -> StoredRows | None:
        """The rows of the noted sweep; None: there is no such note, or its records have changed since."""
        note = self._note
        if not note or not records.know(self.names, note.get("records")):
            return None
        own = {*definition.varied, *OWN_COLUMNS, *(["speedup"] if definition.baseline else [])}
        metrics = tuple(name for name in note["columns"] if name not in own)

        def point(number: int) -> tuple[Mapping[str, Any], Mapping[str, Any], str]:
            record = records.find(str(self.names[number]))
            if record is None:
                problem = (
                    f"a record of the sweep in {shown(str(records.folder))} is damaged; remove {NOTE} there"
                )
                raise InputError(f"{problem} to compute its point again", "form")
            return points[number], record, record["config"]

        def row(number: int) -> dict[str, Any]:
            added = {"speedup": note["speedups"][number]} if definition.baseline else {}
            return row_of(*point(number), metrics, added)

        return StoredRows(len(self.names), note["failed"], point, row)
