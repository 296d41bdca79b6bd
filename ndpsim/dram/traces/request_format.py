"""The description of formats of request traces.

A format is one file in `ndpsim/dram/traces/request_formats/` that ends in ``FORMAT = RequestFormat(...)``;
nothing else refers to it. Likewise, modules of `command_formats/` end in ``FORM = CommandForm(...)``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from ndpsim.base.plugins import plugins_by_name
from ndpsim.dram.traces import command_formats as _command_folder
from ndpsim.dram.traces import request_formats as _request_folder
from ndpsim.dram.traces.command_form import CommandForm


@functools.cache
def request_formats() -> dict[str, RequestFormat]:
    """All formats of request traces by name."""
    return plugins_by_name(_request_folder, "FORMAT")


@functools.cache
def command_forms() -> dict[str, CommandForm]:
    """All forms of command traces by name."""
    return plugins_by_name(_command_folder, "FORM")


#: The columns of `Requests.place`.
COORDINATES = ("channel", "rank", "bankgroup", "bank", "row", "column")

_WHAT = ("operation", "address", "cycle", "data", *COORDINATES)
_LONGEST_WORD = 8  # the reader packs a word into 64 bits


@dataclass(frozen=True)
class Field:
    """A field of a line.

    Attributes:
        what: "operation", "address", "cycle", one of `COORDINATES`, or "data", which is the ignored
            hexadecimal data that a write may have at the end of its line.
        base: base of a number: 10; 16, with or without 0x; or 0, decimal unless it begins with 0x.
        after: the separator after it: blanks (spaces and tabs), a character, or a character and blanks.
    """

    what: str
    base: int = 10
    after: str = " "

    def __post_init__(self) -> None:
        if self.what not in _WHAT or self.base not in (0, 10, 16) or len(self.after.rstrip(" ")) > 1:
            raise ValueError(f"no such field: {self}")


@dataclass(frozen=True)
class RequestFormat:
    """A format with a request on each line.

    Attributes:
        name: the name by which users choose it.
        example: a line of this format.
        expects: the parts of a line, in words, for messages.
        fields: the fields of a line, in order.
        reads, writes: the words of the operation field.
        comments: whether lines that begin with ``#`` are skipped.
        blank_lines: whether blank lines between requests are allowed, as they always are at the end.
        overdue: whether a request whose time is before that of the last one is sent together with it;
            otherwise it is refused.
        refused: reasons why a part of the format is not supported, by a text in a bad line.
        refused_suffixes: such reasons by suffix of the file's name.
    """

    name: str
    example: str
    expects: str
    fields: tuple[Field, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    comments: bool = False
    blank_lines: bool = False
    overdue: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    refused_suffixes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for word in (*self.reads, *self.writes):
            if not (word.isascii() and word.isprintable() and 0 < len(word) <= _LONGEST_WORD):
                raise ValueError(f"{self.name}: '{word}' is not a word of up to {_LONGEST_WORD} characters")
        what = [item.what for item in self.fields]
        located = "address" in what or all(name in what for name in COORDINATES)
        if len(set(what)) < len(what) or "operation" not in what or not located:
            raise ValueError(f"{self.name}: its fields tell no operation, or no place")

    @property
    def by_place(self) -> bool:
        """Whether requests have coordinates instead of addresses."""
        return not any(item.what == "address" for item in self.fields)

    @property
    def timed(self) -> bool:
        """Whether requests have times."""
        return any(item.what == "cycle" for item in self.fields)
