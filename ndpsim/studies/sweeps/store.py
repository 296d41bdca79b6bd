"""The points of a sweep on disk, a file for each, whose name follows from the point.

A file is renamed after it has been written and synced, so that it is complete or missing. Its name is a
digest of the command, the resolved configuration, the contents of inputs and the version of ndpsim. Several
sweeps may write into a folder at once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.files import temporary_beside
from ndpsim.simulate.results.cache import digest_of, version

#: The version of the file format, which is part of names.
SCHEMA = 1

_MOST_WAITING = 64  # records that are not yet on the disk

_log = logging.getLogger("ndpsim")


def point_name(command: str, what: Any) -> str:
    """The name of a point's file; `what` is its `Resolved.key`, or its given values."""
    return digest_of([SCHEMA, command, what, version()])


def write_synced(path: Path, content: bytes, beside: Path) -> None:
    """Write `content` to `path`, through a temporary file in the folder `beside` on the same disk.

    Each file looks for what killed runs left in `beside`, and the folder of points is too large for that.
    """
    with temporary_beside(beside / path.name) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        os.replace(file.name, path)


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that names are on the disk, too."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _text(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _checksum(record: Mapping[str, Any]) -> str:
    return hashlib.blake2b(_text(record), digest_size=16).hexdigest()


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
                f"cannot make {str(self.points)[:200]}: {error.strerror}", "unwritable", key="out"
            ) from None
        if not os.access(self.points, os.W_OK) or not os.access(folder, os.W_OK):
            raise InputError(f"cannot write {folder}: no permission", "unwritable", key="out")
        self._queue: Queue[tuple[str, bytes] | None] = Queue(_MOST_WAITING)
        self._problem: OSError | None = None
        self._writer = Thread(target=self._write_queued, name="points of a sweep", daemon=True)
        self._writer.start()

    def find(self, name: str) -> dict[str, Any] | None:
        """The record of a point; None if it is missing, or damaged, which is logged."""
        path = self.points / f"{name}.json"
        try:
            record = json.loads(path.read_bytes())
            checksum = record.pop("checksum")
            if checksum == _checksum(record) and (record["key"], record["schema"]) == (name, SCHEMA):
                return dict(record)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
            pass
        _log.warning("%s is damaged or of another point; its point is computed again", path)
        return None

    def put(self, record: dict[str, Any]) -> None:
        """Queue a record for writing.

        Raises:
            InputError: an earlier record could not be written.
        """
        self._check()
        content = _text({**record, "checksum": _checksum(record)})
        self._queue.put((f"{record['key']}.json", content))

    def write_file(self, name: str, content: bytes) -> None:
        """Write a file beside the folder of points.

        Raises:
            InputError: the file cannot be written.
        """
        try:
            write_synced(self.folder / name, content, self.folder)
        except OSError as error:
            raise _cannot_write(self.folder / name, error) from None

    def close(self) -> None:
        """Wait until all records are on the disk.

        Raises:
            InputError: a record could not be written.
        """
        self._queue.put(None)
        self._writer.join()
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
            try:
                self._write(file for file in waiting if file is not None)
            except OSError as error:
                self._problem = error

    def _write(self, files: Iterable[tuple[str, bytes]]) -> None:
        for name, content in files:
            write_synced(self.points / name, content, self.folder)
        _sync_folder(self.points)


def _cannot_write(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {path}: {error.strerror or error}", "unwritable", key="out")
