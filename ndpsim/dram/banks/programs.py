"""Programs of units in banks: CSV files, gzip-compressed or not.

Two forms, by the controller of the units. Requests (look-ahead):
``request,channels,pseudochannel,rank,bankgroup,bank,row,column``. Instructions (in-order):
``instruction,size,channels,bank,row``; `size` is the number of columns, `bank` counts through the bank
groups. `channels` is a list of ranges: ``0-2 5``. A line goes to these channels in ascending order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ndpsim.base.arguments import path_of
from ndpsim.base.errors import InputError, shown, unknown
from ndpsim.base.text_files import read_bytes
from ndpsim.dram.banks.lower import Ints
from ndpsim.dram.spec.extension import LEVELS, BankDevice, Request

#: The columns of a program by the controller of its units.
HEADERS = {
    "look-ahead": ("request", "channels", *LEVELS, "row", "column"),
    "in-order": ("instruction", "size", "channels", "bank", "row"),
}

_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)
_FACTOR = 24  # approximate bytes of memory for each byte of a file
_WHOLE = re.compile(r"[0-9]{1,12}", re.ASCII)
_MOST_CHANNELS = 1 << 12
_MOST_COLUMNS = 1 << 16
_PIECE = 1 << 13  # lines

#: Lines of a program that comes again that are held at most.
MOST_HELD = 1 << 17


class Line(NamedTuple):
    """A line of a program: its word, the columns of a row, its channels, bank, row and column; -1: none."""

    word: str
    channels: tuple[int, ...]
    place: tuple[int, int, int, int] = (0, 0, 0, 0)
    row: int = -1
    column: int = -1
    size: int = 1


class Piece(NamedTuple):
    """Lines of a program as columns; `word` and `listed` are numbers in `words` and `lists` of channels."""

    words: tuple[str, ...]
    lists: tuple[tuple[int, ...], ...]
    word: Ints
    listed: Ints
    place: Ints  # [line, level]
    row: Ints
    column: Ints
    size: Ints

    def shifted(self, rows: int) -> Piece:
        """The same lines so many rows further."""
        return self._replace(row=np.where(self.row >= 0, self.row + rows, self.row)) if rows else self

    def repeated(self, times: int) -> Piece:
        """Each line so many times in a row."""
        return Piece(self.words, self.lists, *(np.repeat(column, times, axis=0) for column in self[2:]))

    def until(self, end: int) -> Piece:
        """The lines before the one of this number; it may count from the last one, as -1."""
        cut = (column[:end] for column in self[2:])
        return Piece(self.words, self.lists, *cut)

    def since(self, begin: int) -> Piece:
        """The lines from the one of this number on."""
        return Piece(self.words, self.lists, *(column[begin:] for column in self[2:]))

    def lines(self) -> Iterator[Line]:
        """The lines one by one."""
        columns = (self.word, self.listed, self.place, self.row, self.column, self.size)
        for word, listed, place, row, column, size in zip(*(c.tolist() for c in columns), strict=True):
            yield Line(self.words[word], self.lists[listed], tuple(place), row, column, size)


def piece_of(lines: Sequence[Line]) -> Piece:
    """Lines as columns."""
    names, channels, places, rows, columns, sizes = zip(*lines, strict=True)
    # Words and lists of channels are few: each is looked up once, and lines have their numbers.
    words = {word: n for n, word in enumerate(dict.fromkeys(names))}
    lists = {listed: n for n, listed in enumerate(dict.fromkeys(channels))}
    return Piece(
        tuple(words),
        tuple(lists),
        np.array([words[name] for name in names]),
        np.array([lists[listed] for listed in channels]),
        np.array(places),
        np.array(rows),
        np.array(columns),
        np.array(sizes),
    )


def joined(pieces: Sequence[Piece]) -> Piece:
    """Pieces one after the other."""
    if len(pieces) == 1:
        return pieces[0]
    words = {word: n for n, word in enumerate(dict.fromkeys(w for piece in pieces for w in piece.words))}
    lists = {listed: n for n, listed in enumerate(dict.fromkeys(c for piece in pieces for c in piece.lists))}
    return Piece(
        tuple(words),
        tuple(lists),
        np.concatenate([np.array([words[w] for w in piece.words])[piece.word] for piece in pieces]),
        np.concatenate([np.array([lists[c] for c in piece.lists])[piece.listed] for piece in pieces]),
        *(np.concatenate([piece[n] for piece in pieces]) for n in range(4, 8)),
    )


def as_program(lines: Program | Iterable[Line]) -> Program:
    """The lines of a program as one."""
    if isinstance(lines, Program):
        return lines
    made = list(lines)
    return Program(lambda: made, {line.word for line in made})


class Program:
    """A program that is made when it is read, so that it is never in memory as a whole.

    Args:
        make: makes its lines, alone or in pieces.
        words: all words of its lines, or None: they are not known. With them, runs compare less state.
    """

    def __init__(
        self, make: Callable[[], Iterable[Line | Piece]], words: Iterable[str] | None = None
    ) -> None:
        self._make, self.words = make, None if words is None else frozenset(words)

    def pieces(self) -> Iterator[Piece]:
        """The program in pieces; lines that were made alone are taken some thousands at a time."""
        lines: list[Line] = []
        for item in self._make():
            if isinstance(item, Line):
                lines.append(item)
            if lines and (isinstance(item, Piece) or len(lines) == _PIECE):
                yield piece_of(lines)
                lines = []
            if isinstance(item, Piece):
                yield item
        if lines:
            yield piece_of(lines)

    def held(self) -> Program:
        """The same program, whose pieces are kept when they are made first, if they have few lines."""
        kept: list[Piece] = []

        def pieces() -> Iterator[Piece]:
            if kept:
                yield from kept
                return
            lines, first = 0, list[Piece]()
            for piece in self.pieces():
                lines += len(piece.word)
                first = [*first, piece] if lines <= MOST_HELD else []
                yield piece
            if first:
                kept.append(joined(first))

        return Program(pieces, self.words)

    def __iter__(self) -> Iterator[Line]:
        for piece in self.pieces():
            yield from piece.lines()


@cache
def channel_list(text: str) -> tuple[int, ...]:
    """The channels of a list of ranges such as ``0-2 5``, ascending.

    Raises:
        InputError: it is none, or names a channel twice.
    """
    found: list[int] = []
    for part in text.split():
        match = _RANGE.fullmatch(part)
        if match is None:
            raise InputError(
                f"{shown(part)} is not a channel or a range such as 0-15", "form", key="channels"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= _MOST_CHANNELS:
            problem = f"'{part}' is not a range of channels below {_MOST_CHANNELS}"
            raise InputError(problem, "range", key="channels")
        found += range(first, last + 1)
    if len(set(found)) < len(found):
        raise InputError(f"{shown(text)} names a channel twice", "twice", key="channels")
    return tuple(sorted(found))


def _whole(values: Mapping[str, str], name: str, below: int, missing: int | None = None) -> int:
    text = values[name].strip()
    if not text and missing is not None:
        return missing
    if not _WHOLE.fullmatch(text):
        raise InputError(f"{shown(text)} is not a whole number from 0 on", "type", key=name)
    if int(text) >= below:
        raise InputError(f"{text} is not from 0 to {below - 1}", "range", key=name)
    return int(text)


def _request(device: BankDevice, word: Request, values: Mapping[str, str]) -> Line:
    """A line of requests."""
    sizes = device.sizes
    place = tuple(_whole(values, level, size, 0) for level, size in zip(LEVELS, device.shape, strict=True))
    row = _whole(values, "row", sizes["rows"], 0)
    column = _whole(values, "column", sizes["columns"], 0)
    return Line(values["request"], channel_list(values["channels"]), place, row, column)  # type: ignore[arg-type]


def _instruction(device: BankDevice, word: Request, values: Mapping[str, str]) -> Line:
    """A line of instructions."""
    everywhere = tuple(range(device.sizes["channels"]))
    channels = everywhere if word.everywhere else channel_list(values["channels"])
    size, column = 1, -1
    if word.sized:
        # The reference takes columns that a row does not have.
        most = _MOST_COLUMNS if device.ideal else device.sizes["columns"]
        size, column = _whole(values, "size", most + 1), 0
        if size == 0:
            raise InputError("0 is not a number of columns from 1", "range", key="size")
    elif word.command and values["size"] not in ("", "1"):
        problem = f"{values['instruction']} is one request, so its size is empty, not {shown(values['size'])}"
        raise InputError(problem, "range", key="size")
    command = next((c for c in device.commands if c.name == word.command), None)
    group, bank = 0, 0
    if command is not None and command.path:
        group, bank = divmod(_whole(values, "bank", device.banks), device.shape[3])
    row = -1
    if word.first_row >= 0:
        row = word.first_row + _whole(values, "row", 1 << 20, 0)
    elif command is not None and command.uses:
        row = _whole(values, "row", device.sizes["rows"])
    return Line(values["instruction"], channels, (0, 0, group, bank), row, column, size)


_READERS = {"look-ahead": _request, "in-order": _instruction}


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from read_bytes(path, _FACTOR).decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise InputError("is not a program: it has bytes beyond ASCII", "form", file=path) from None


def read_program(path: str | os.PathLike[str], device: BankDevice) -> list[Line]:
    """Read a program for a device.

    Raises:
        InputError: the file cannot be read, or a line of it is malformed or does not fit the device.
    """
    file = path_of(path, "program")
    header = HEADERS[device.extension.controller]
    lines = _lines(file)
    first = next(lines, "")
    if tuple(first.strip().split(",")) != header:
        problem = f"the header must be {','.join(header)}; it is {shown(first)}"
        raise InputError(problem, "form", file=file, line=1)
    found: list[Line] = []
    parsed: dict[str, Line] = {}
    ended = False
    for number, text in enumerate(lines, start=2):
        line = parsed.get(text)
        try:
            if line is None:
                line = parsed[text] = _parsed(device, header, text)
            if ended:
                raise InputError(f"{line.word} comes after the end of the program", "conflict", key=header[0])
        except InputError as error:
            raise error.at(file, number) from None
        ended = device.extension.requests[line.word].ends
        found.append(line)
    if not found:
        raise InputError("holds no program", "form", file=file)
    return found


def _parsed(device: BankDevice, header: Sequence[str], text: str) -> Line:
    fields = text.split(",")
    if len(fields) != len(header):
        raise InputError(f"the line has {len(fields)} of {len(header)} fields: {shown(text)}", "form")
    values = dict(zip(header, fields, strict=True))
    words, name = device.extension.requests, values[header[0]]
    if name not in words:
        raise unknown(name, words, header[0], key=header[0])
    line = _READERS[device.extension.controller](device, words[name], values)
    if not line.channels and (words[name].command or words[name].barrier):
        raise InputError("names no channel", "missing", key="channels")
    if line.channels and line.channels[-1] >= device.sizes["channels"]:
        problem = f"{line.channels[-1]} is not from 0 to {device.sizes['channels'] - 1}"
        raise InputError(problem, "range", key="channels")
    return line
