"""The note in a folder that a sweep is finished: opened again, its points need not be resolved.

The note counts while the definition, the version of ndpsim and all files that were read for it are the same.
A point whose record is missing is resolved, and run, as if there were no note.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ndpsim.simulate.results.cache import version
from ndpsim.studies.sweeps.definition import Definition
from ndpsim.studies.sweeps.parameters import file_digests

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
) -> bytes:
    """The note of a sweep whose tables are written.

    Args:
        names: the name of the record of each point; None: it could not be resolved.
        inputs: the files that were read for it, with their digests.
    """
    note = {
        "definition": _identity(definition),
        "names": list(names),
        "inputs": dict(inputs),
        "tables": _stamps(tables),
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
        self._tables: Any = None
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            note = json.loads((folder / NOTE).read_bytes())
            is_same = note["definition"] == _identity(definition) and len(note["names"]) == points
            if is_same and note["inputs"] == digests_of(note["inputs"]):
                self.names, self.inputs, self._tables = note["names"], note["inputs"], note["tables"]

    def has(self, tables: Sequence[Path]) -> bool:
        """Whether these tables are those that were written before the note."""
        return bool(self.names) and _stamps(tables) == self._tables
