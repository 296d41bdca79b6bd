"""The records of points in a folder: files of lines, one for each run that stored a point.

A run appends only to its own file, so several may write at once. A line is on the disk before its point
counts as stored. A line without an end was being written when its run was killed, and is left out; its point
is run again. Earlier versions wrote a file for each point, ``NAME.json``, which are read, too.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

#: The version of the format of records, which is part of names.
SCHEMA = 1

_LINE = re.compile(
    rb'\{"key":"([^"\\]+)","status":"([^"\\]+)","checksum":"([0-9a-f]{32})","config_bytes":([0-9]+),(.*)\}\n',
    re.S,
)
_CONFIG, _RECORD = b'"config":', b',"record":'

_log = logging.getLogger("ndpsim")


def _text(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _checksum(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def line_of(record: Mapping[str, Any]) -> bytes:
    """The line of a record, whose configuration is a text."""
    config: bytes = record["config"].encode()
    rest = _text({name: value for name, value in record.items() if name != "config"})
    text = _CONFIG + config + _RECORD + rest
    head = {"key": record["key"], "status": record["status"], "checksum": _checksum(text)}
    return _text(head | {"config_bytes": len(config)})[:-1] + b"," + text + b"}\n"


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that names are on the disk, too."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class RecordFile:
    """The file to which a run appends; it is made with the first line."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / f"{os.getpid()}-{os.urandom(8).hex()}.jsonl"
        self._file: int | None = None
        self._size = 0

    def append(self, lines: Iterable[bytes]) -> None:
        """Append lines, which are on the disk afterwards.

        Raises:
            OSError: they are not; the file is as before.
        """
        content = b"".join(lines)
        is_new = self._file is None
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        try:
            for first in range(0, len(content), 1 << 20):
                _write(self._file, content[first : first + (1 << 20)])
            os.fsync(self._file)
            if is_new:
                _sync_folder(self._folder)
        except OSError:
            self._undo()
            raise
        self._size += len(content)

    def _undo(self) -> None:
        """Remove what was written of lines that are not all on the disk."""
        with suppress(OSError):
            if self._size:
                os.truncate(self.path, self._size)
            else:
                self.path.unlink()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _write(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


class _Place(NamedTuple):
    """Where a record is."""

    path: Path
    start: int
    size: int
    is_ok: bool


class Records:
    """The records that all runs have stored in a folder.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places: dict[str, _Place] = {}
        self._read: dict[Path, int] = {}  # bytes of each file
        self._listed = -1  # when the folder last had another file

    def find(self, name: str) -> dict[str, Any] | None:
        """The record of a point; None if it is missing, or damaged, which is logged.

        Of several records of a point, one of a success comes first.
        """
        if name not in self._places or not self._places[name].is_ok:
            self._read_new()
        place = self._places.get(name)
        return self._find_file(name) if place is None else _record_of(self._line(place), name)

    def _find_file(self, name: str) -> dict[str, Any] | None:
        """The record in the file of a point alone."""
        path = self.folder / f"{name}.json"
        try:
            record = json.loads(path.read_bytes())
            checksum = record.pop("checksum")
            if checksum == _checksum(_text(record)) and (record["key"], record["schema"]) == (name, SCHEMA):
                return {**record, "config": json.dumps(record["config"], sort_keys=True)}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
            pass
        _log.warning("%s is damaged or of another point; its point is computed again", path)
        return None

    def _read_new(self) -> None:
        """Note the lines that were appended since the last call."""
        changed = os.stat(self.folder).st_mtime_ns
        if changed != self._listed:
            self._listed = changed
            for path in sorted(self.folder.glob("*.jsonl")):
                self._read.setdefault(path, 0)
        for path, read in self._read.items():
            with suppress(OSError):
                if os.stat(path).st_size > read:
                    self._read[path] = self._note_lines(path, read)

    def _note_lines(self, path: Path, start: int) -> int:
        """Note the whole lines of a file from a byte on; returns the end of the last one."""
        with path.open("rb") as file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is being written, or its run was killed
                self._note(path, start, line)
                start += len(line)
        return start

    def _note(self, path: Path, start: int, line: bytes) -> None:
        found = _LINE.fullmatch(line)
        if found is None or _checksum(found[5]).encode() != found[3]:
            _log.warning("a line of %s is damaged; its point is computed again", path)
            return
        name, is_ok = found[1].decode("latin-1"), found[2] == b"ok"
        if name not in self._places or is_ok or not self._places[name].is_ok:
            self._places[name] = _Place(path, start, len(line), is_ok)

    def _line(self, place: _Place) -> bytes:
        try:
            with place.path.open("rb") as file:
                file.seek(place.start)
                return file.read(place.size)
        except OSError:
            return b""

    def places_of(self, names: Sequence[str | None]) -> dict[str, Any] | None:
        """Where the records of points are, as plain data for `know`; None: some have no line in a file."""
        self._read_new()
        found = [self._places.get(name or "") for name in names]
        if None in found:
            return None
        files = list(dict.fromkeys(place.path for place in found if place is not None))
        number = {path: index for index, path in enumerate(files)}
        return {
            "files": {path.name: _stamp(path) for path in files},
            "places": [[number[p.path], p.start, p.size, p.is_ok] for p in found if p is not None],
        }

    def know(self, names: Sequence[str | None], noted: Any) -> bool:
        """Take over what `places_of` said of these points; False: the files have changed since."""
        try:
            files = [self.folder / os.path.basename(name) for name in noted["files"]]
            if list(map(_stamp, files)) != list(noted["files"].values()):
                return False
            for name, (file, start, size, is_ok) in zip(names, noted["places"], strict=True):
                self._places[str(name)] = _Place(files[file], int(start), int(size), bool(is_ok))
            self._read = {path: path.stat().st_size for path in files}
        except (OSError, KeyError, TypeError, ValueError, IndexError, AttributeError):
            return False
        return True


def _stamp(path: Path) -> list[int]:
    """Size and time of the last change of a file."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _record_of(line: bytes, name: str) -> dict[str, Any] | None:
    """The record in a line that was noted; None if it is damaged, or another one now."""
    found = _LINE.fullmatch(line)
    if found is None or _checksum(found[5]).encode() != found[3]:
        return None
    config, text = len(_CONFIG), found[5]
    end = config + int(found[4])
    try:
        record = json.loads(text[end + len(_RECORD) :])
        is_it = (record["key"], record["schema"]) == (name, SCHEMA)
        return {**record, "config": text[config:end].decode()} if is_it else None
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
