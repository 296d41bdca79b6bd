"""Reads INI files as DRAMsim3 does, with line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from ndpsim.errors import InputError
from ndpsim.importers.sheet import Place

_WHOLE = re.compile(r"[-+]?(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19})")
_NUMBER = re.compile(r"\+?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][-+]?[0-9]{1,2})?")
_BOOL = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_COMMENT = re.compile(r"\s[;#].*")


class Ini:
    """The sections and keys of an INI file; as in DRAMsim3, upper and lower case are the same.

    `defaults`: the simulator's defaults for missing keys, by section and key.

    Raises:
        InputError: a line is no section, key or comment, or a key is given twice.
    """

    def __init__(self, text: str, file: Path, defaults: Mapping[str, Mapping[str, Any]]) -> None:
        self.file, self._defaults = file, defaults
        self._values: dict[tuple[str, str], tuple[str, Place]] = {}
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
            problem = f"{line[:60]!r} is neither [section] nor key = value"
            raise InputError(problem, "form", file=self.file, line=number)
        if not section:
            raise InputError("comes before the first [section]", "form", file=self.file, line=number, key=key)
        place = Place(self.file, number, f"[{section}] {key}")
        before = self._values.get((section.lower(), key.lower()))
        if before is not None:
            raise place.error(f"is given twice, first in line {before[1].line}", code="twice")
        self._values[section.lower(), key.lower()] = (value, place)

    def entries(self) -> Iterator[tuple[str, str, Place]]:
        """Every section and key, lower case, with its place."""
        for (section, key), (_, place) in self._values.items():
            yield section, key, place

    def has(self, section: str, key: str) -> bool:
        """Whether the file has this key."""
        return (section.lower(), key.lower()) in self._values

    def place(self, section: str, key: str) -> Place:
        """The place where the file has this key, or would have it."""
        known = self._values.get((section.lower(), key.lower()))
        return Place(self.file, None, f"[{section}] {key}") if known is None else known[1]

    def said(self, section: str, key: str) -> str:
        """Words about a key for a source: its value, or that it is missing."""
        if self.has(section, key):
            return f" = {self.word(section, key)}"
        return f", which is missing: DRAMsim3's default of {self._defaults[section][key]}"

    def word(self, section: str, key: str) -> str:
        """The text of a key."""
        known = self._values.get((section.lower(), key.lower()))
        return str(self._defaults[section][key]) if known is None else known[0]

    def whole(self, section: str, key: str) -> int:
        """A whole number, decimal or 0x...; InputError for any other value."""
        text = self.word(section, key)
        if not _WHOLE.fullmatch(text):
            raise self.place(section, key).error(f"{text[:60]!r} is not a whole number", code="type")
        return int(text, 16 if "x" in text.lower() else 10)

    def number(self, section: str, key: str) -> Decimal:
        """A number above zero; InputError for any other value."""
        text = self.word(section, key)
        if not _NUMBER.fullmatch(text) or Decimal(text) <= 0:
            raise self.place(section, key).error(f"{text[:60]!r} is not a number above 0", code="range")
        return Decimal(text)

    def flag(self, section: str, key: str) -> bool:
        """A yes or no; InputError for any other value."""
        text = self.word(section, key)
        if text.lower() not in _BOOL:
            raise self.place(section, key).error(f"{text[:60]!r} is neither true nor false", code="type")
        return _BOOL[text.lower()]
