"""Text files of other programs, plain or gzip: their first bytes, their lines, their JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from ndpsim.base.errors import InputError, shown
from ndpsim.base.files import open_plain_or_gzip, reading
from ndpsim.base.limits import ensure_fits, memory_limit

_HEAD = 1 << 16
_NOT_BLANK = re.compile(r"\S")
_LONGEST_LINE = 1 << 28
# Approximate bytes of Python's objects for each byte of a text, and of JSON.
_LINE_FACTOR = 12
_JSON_FACTOR = 40


class FileFormat(Protocol):
    """A format for `recognised`.

    Attributes:
        meaning: a phrase that names the program and its file.
    """

    @property
    def meaning(self) -> str: ...

    def recognises(self, path: Path, head: bytes, /) -> bool:
        """Whether a file has this format, from its path and first bytes."""


def first_bytes(path: Path) -> bytes:
    """The first 64 KiB of a file, from which its format is recognised.

    Raises:
        InputError: it cannot be read.
    """
    with open_plain_or_gzip(path) as file, reading(path):
        return file.read(_HEAD)


def recognised(path: Path, formats: Mapping[str, FileFormat], kind: str) -> str:
    """The name of the first format that recognises a file; ``ndpsim list KIND`` describes the formats.

    Raises:
        InputError: the file cannot be read, or none recognises it.
    """
    head = first_bytes(path)
    for name, form in formats.items():
        if form.recognises(path, head):
            return name
    begins = head.lstrip().partition(b"\n")[0].decode(errors="replace").strip()
    problem = f"is unknown: the file begins with {shown(begins)}. Formats: ndpsim list {kind}"
    raise InputError(problem, file=path, key="format", code="form")


def json_with(*keys: str) -> Callable[[Path, bytes], bool]:
    """Whether a file begins with a JSON object that has one of these keys, for `recognises`."""
    quoted = [f'"{key}"'.encode() for key in keys]
    return lambda path, head: head.lstrip().startswith(b"{") and any(key in head for key in quoted)


def numbered_lines(path: Path, held: bool = True) -> Iterator[tuple[int, str]]:
    """The lines of a text file, plain or gzip, that are not blank, with their numbers from 1.

    Args:
        held: whether the caller keeps what it reads, so that a large file is refused.

    Raises:
        InputError: the file cannot be read, is not UTF-8 text, or would need too much memory.
    """
    total = 0
    with open_plain_or_gzip(path) as file, reading(path):
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
            total += len(line)
            if len(line) == _LONGEST_LINE:
                raise InputError(
                    f"has more than {_LONGEST_LINE >> 20} MiB", "too-large", file=path, line=number
                )
            if held and number % 4096 == 1:
                ensure_fits(_LINE_FACTOR * total, "its content", file=path, line=number)
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError:
                raise InputError("is not UTF-8 text", "form", file=path, line=number) from None
            if text:
                yield number, text


def read_bytes(path: Path, factor: int) -> bytes:
    """The content of a file, plain or gzip, of which each byte takes `factor` bytes of memory in the end.

    Raises:
        InputError: the file cannot be read, or would need too much memory.
    """
    most = memory_limit() // factor
    with open_plain_or_gzip(path) as file, reading(path):
        content = file.read(most + 1)
    if len(content) > most:
        ensure_fits(factor * len(content), "its content", file=path)
    return content


def read_json(path: Path) -> Any:
    """The content of a JSON file, plain or gzip.

    Raises:
        InputError: the file cannot be read, is not JSON, or would need too much memory.
    """
    content = read_bytes(path, _JSON_FACTOR)
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise InputError(f"invalid JSON: {error.msg}", "form", file=path, line=error.lineno) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"invalid JSON: {error}", "form", file=path) from None


def json_values(path: Path) -> list[tuple[int, Any]]:
    """The values of a file with one JSON value or several in a row, with the lines where they begin.

    Raises:
        InputError: as for `read_json`.
    """
    try:
        text = read_bytes(path, _JSON_FACTOR).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", "form", file=path) from None
    decoder, values, end, line = json.JSONDecoder(), [], 0, 1
    while rest := _NOT_BLANK.search(text, end):
        line += text.count("\n", end, rest.start())
        try:
            value, end = decoder.raw_decode(text, rest.start())
        except json.JSONDecodeError as error:
            raise InputError(f"invalid JSON: {error.msg}", "form", file=path, line=error.lineno) from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"invalid JSON: {error}", "form", file=path, line=line) from None
        values.append((line, value))
        line += text.count("\n", rest.start(), end)
    return values


def json_objects(path: Path, held: bool = True) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, plain or gzip, with the numbers of their lines from 1.

    Args:
        held: as for `numbered_lines`.

    Raises:
        InputError: the file cannot be read, or a line is not a JSON object.
    """
    for line, text in numbered_lines(path, held):
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"invalid JSON: {error}", "form", file=path, line=line) from None
        if not isinstance(record, dict):
            raise InputError("is not a JSON object", "form", file=path, line=line)
        yield line, record


def whole_of(record: dict[str, Any], key: str, file: Path, line: int | None) -> int:
    """A whole number from 0 in a JSON object.

    Raises:
        InputError: it is missing or invalid.
    """
    value = record.get(key)
    if key not in record:
        raise InputError("is missing", "missing", file=file, line=line, key=key)
    if type(value) is not int or value < 0:
        problem = f"{shown(value)} is not a whole number from 0"
        raise InputError(problem, "type", file=file, line=line, key=key)
    return value
