"""Collects the values of a hardware file with their sources, and notes about the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ndpsim.base.errors import Code, InputError, one_of
from ndpsim.config.keys import refusal

Value = str | int | list[str]


@dataclass(frozen=True)
class Imported:
    """A configuration of another simulator, as a hardware file.

    `text`: the hardware file. `notes`: settings that could not be converted, one line each.
    """

    name: str
    text: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A place in the imported file: its line, and the key there (``[timing] tRP``)."""

    file: Path
    line: int | None
    key: str

    def error(self, problem: str, code: Code = "invalid") -> InputError:
        """The error `problem`, at this place."""
        return InputError(problem, code, file=self.file, line=self.line, key=self.key)

    def unknown(self, name: str, known: Iterable[str], kind: str) -> InputError:
        """The error that a name at this place is none of the known ones."""
        return self.error(one_of(name, known, kind), "unknown-name")

    def __str__(self) -> str:
        """File and key, as in a source."""
        return f"{self.file.name}, {self.key}"


class Sheet:
    """Collects the values of a hardware file by dotted key."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._leaves: dict[tuple[str, ...], tuple[Value, str]] = {}
        self._notes: list[tuple[int, str]] = []

    def name(self, name: str, by_option: bool) -> None:
        """Name the hardware; `by_option`: by ``--name``, else by the name of the file."""
        if problem := refusal(("name",), name):
            raise InputError(problem, "form", key="--name" if by_option else "name")
        self._leaves["name",] = name, "given with --name" if by_option else f"the name of {self.file.name}"

    def put(self, key: str, value: Value, place: Place, said: str = "") -> None:
        """Put a value. `said`: further words for its source, after the place.

        Raises:
            InputError: the hardware file cannot have this value there.
        """
        path = tuple(key.split("."))
        if problem := refusal(path, value):
            raise place.error(problem, "range")
        self._leaves[path] = value, f"{place}{said}"

    def note(self, place: Place, text: str) -> None:
        """Add a note about `place`."""
        self._notes.append((place.line or 0, str(place.error(text))))

    def imported(self) -> Imported:
        """The hardware file with all values; notes in the order of the file."""
        notes = tuple(note for _, note in sorted(self._notes, key=lambda note: note[0]))
        tree: dict[str, Any] = {}
        for path, (value, source) in self._leaves.items():
            here = tree
            for key in path[:-1]:
                here = here.setdefault(key, {})
            here[path[-1]] = f"{{value: {_written(value)}, source: {_quoted(source)}}}"
        lines = [f"# From {_plain(self.file.name)}, by ndpsim import.", "", *_lines(tree, "")]
        return Imported(str(self._leaves["name",][0]), "\n".join(lines) + "\n", notes)


_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NOT_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def _plain(text: str) -> str:
    """`text` on one line, without characters that YAML cannot contain."""
    return "".join(c if c.isprintable() else "?" for c in text.encode(errors="replace").decode())


def _quoted(text: str) -> str:
    quoted: str = yaml.safe_dump(_plain(text), default_style='"', width=1 << 20, allow_unicode=True)
    return quoted.strip()


def _word(text: str) -> str:
    return text if _WORD.fullmatch(text) and text.lower() not in _NOT_WORDS else _quoted(text)


def _written(value: Value) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_word, value))}]"
    return _word(value) if isinstance(value, str) else str(value)


def _lines(tree: dict[str, Any], indent: str) -> list[str]:
    lines = []
    for key, value in tree.items():
        if isinstance(value, str):
            lines.append(f"{indent}{_word(key)}: {value}")
        else:
            lines += [f"{indent}{_word(key)}:", *_lines(value, indent + "  ")]
    return lines
