"""Reads INI files as DRAMsim3 does, with line numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError, shown
from ndpsim.config.importers.sheet import Place

_WHOLE = re.compile(r"[-+]?(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19})")
_NUMBER = re.compile(r"\+?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][-+]?[0-9]{1,2})?")
_BOOL = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_COMMENT = re.compile(r"\s[;#].*")


@dataclass(frozen=True)
class Entry:
    """A key of an INI file.

    Attributes:
        text: its value; the simulator's default where the file does not have the key.
        place: its place in the file.
        is_written: whether the file has it.
    """

    text: str
    place: Place
    is_written: bool = True

    @property
    def said(self) -> str:
        """Words for a source: the value, or that it is missing."""
        missing = f", which is missing: DRAMsim3's default of {self.text}"
        return f" = {self.text}" if self.is_written else missing

    def whole(self) -> int:
        """A whole number, decimal or 0x...; InputError for any other value."""
        if not _WHOLE.fullmatch(self.text):
            raise self.place.error(f"{shown(self.text)} is not a whole number", code="type")
        return int(self.text, 16 if "x" in self.text.lower() else 10)

    def number(self) -> Decimal:
        """A number above zero; InputError for any other value."""
        if not _NUMBER.fullmatch(self.text) or Decimal(self.text) <= 0:
            raise self.place.error(f"{shown(self.text)} is not a number above 0", code="range")
        return Decimal(self.text)

    def flag(self) -> bool:
        """A yes or no; InputError for any other value."""
        if self.text.lower() not in _BOOL:
            raise self.place.error(f"{shown(self.text)} is neither true nor false", code="type")
        return _BOOL[self.text.lower()]


class Ini:
    """The sections and keys of an INI file; as in DRAMsim3, upper and lower case are the same.

    Attributes:
        entries: every key of the file, by section and key in lower case.

    Raises:
        InputError: a line is no section, key or comment, or a key is given twice.
    """

    def __init__(self, text: str, file: Path, defaults: Mapping[str, Mapping[str, Any]]) -> None:
        """`defaults`: the simulator's values for missing keys, by section and key."""
        self.file, self._defaults = file, defaults
        self.entries: dict[tuple[str, str], Entry] = {}
        section = ""
        for number, raw in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
            line = _COMMENT.sub("", f" {raw}").strip()
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1].strip()
            elif line:
                self._take(section, line, number)

    def _take(self, section: str, line: str, number: int) -> None:
        key, equals, value = (part.strip() for part in line.partition("=" if "=" in line else ":"))
        if not equals or not key:
            problem = f"{shown(line)} is neither [section] nor key = value"
            raise InputError(problem, "form", file=self.file, line=number)
        if not section:
            raise InputError("comes before the first [section]", "form", file=self.file, line=number, key=key)
        entry = Entry(value, Place(self.file, number, f"[{section}] {key}"))
        earlier = self.entries.setdefault((section.lower(), key.lower()), entry)
        if earlier is not entry:
            raise entry.place.error(f"is given twice, first in line {earlier.place.line}", code="twice")

    def __getitem__(self, name: tuple[str, str]) -> Entry:
        """The entry of a section and a key, or its default if the file lacks it."""
        section, key = name
        entry = self.entries.get((section.lower(), key.lower()))
        if entry is not None:
            return entry
        default = str(self._defaults[section][key])
        return Entry(default, Place(self.file, None, f"[{section}] {key}"), is_written=False)
