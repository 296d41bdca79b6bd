"""Text on standard output: wrapped between words, never padded, never cut.

Lines are as wide as `COLUMNS` says, else as the terminal; in a file or pipe their length is not limited.
A number stays on the line of the word after it, such as its unit.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

import click
from rich.cells import cell_len

from ndpsim.base.units import PLUS_MINUS, TIMES

_GAP = "  "
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_NUMBER = re.compile(r"\(?-?[0-9](?:[0-9.,]*[0-9])?")
_ASCII = str.maketrans({"µ": "u", TIMES: "x", PLUS_MINUS: "+-", "²": "2"})  # if the encoding has no other
_COUNTED = re.compile(r"[A-Za-zµ%]\S{0,13}")


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def line_width() -> int | None:
    """The maximum length of a line; None without a limit."""
    columns = os.environ.get("COLUMNS", "")
    if re.fullmatch("[1-9][0-9]{0,5}", columns):
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (AttributeError, OSError, ValueError):  # standard output is a file, a pipe, or missing
        return None


def _words(text: str) -> list[str]:
    """Unbreakable parts of a text: words, and numbers with the short word after them."""
    words: list[str] = []
    number = False
    for word in filter(None, text.split(" ")):
        if number and _COUNTED.fullmatch(word):
            words[-1] += f" {word}"
        else:
            words.append(word)
        number = _NUMBER.fullmatch(word) is not None
    return words


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """`text` as lines of at most `width` characters, all but the first indented.

    A longer word has a line of its own. Control characters become blanks.
    """
    text = _CONTROL.sub(" ", text).rstrip()
    if width is None or cell_len(text) <= width:
        return [text]
    lines: list[str] = []
    for word in _words(text):
        if lines and cell_len(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(indent + word if lines and cell_len(indent + word) <= width else word)
    return lines


def _column_widths(rows: Sequence[Sequence[str]], width: int | None) -> list[int] | None:
    """The width of each column, where the widest shrink first; None if the words do not fit."""
    columns = list(zip(*rows, strict=True))
    natural = [max(map(cell_len, cells)) for cells in columns]
    if width is None:
        return natural
    least = [max(cell_len(word) for cell in cells for word in _words(cell) or [""]) for cells in columns]
    room = width - len(_GAP) * (len(columns) - 1)
    if sum(least) > room:
        return None
    limit = max(natural)
    while sum(map(lambda low, full: max(low, min(full, limit)), least, natural)) > room:
        limit -= 1
    return [max(low, min(full, limit)) for low, full in zip(least, natural, strict=True)]


def _row_lines(cells: Sequence[str], widths: Sequence[int], left: int) -> Iterator[str]:
    """The lines of a row; all columns after the first `left` are right-aligned."""
    parts = [wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, parts))):
        line = []
        for column, (part, width) in enumerate(zip(parts, widths, strict=True)):
            text = part[number] if number < len(part) else ""
            blanks = " " * (width - cell_len(text))
            line.append(text + blanks if column < left else blanks + text)
        yield _GAP.join(line).rstrip()


def aligned(
    rows: Iterable[Sequence[str]],
    width: int | None,
    header: Sequence[str] = (),
    left: int | None = None,
    heading: int = 1,
) -> list[str]:
    """Rows of cells as lines with columns; if columns do not fit, cells are below each other.

    Args:
        rows: rows with equal numbers of cells.
        width: maximum length of a line; None without a limit.
        header: names of the columns, if any.
        left: number of left-aligned columns, None for all; the others are right-aligned.
        heading: number of cells of a row that precede the others if columns do not fit.
    """
    cells = [[_CONTROL.sub(" ", cell) for cell in row] for row in rows]
    table = [list(header), *cells] if header else cells
    if not table:
        return []
    widths = _column_widths(table, width)
    if widths is None:
        return [line for row in cells for line in _below_each_other(row, header, width, heading)]
    flush = len(widths) if left is None else left
    return [line for row in table for line in _row_lines(row, widths, flush)]


def _below_each_other(
    row: Sequence[str], header: Sequence[str], width: int | None, heading: int
) -> Iterator[str]:
    """A row whose columns do not fit: its first cells, then each other cell with its name on a line."""
    names = header[heading:] if len(header) > heading + 1 else [""] * (len(row) - heading)
    first, more = row[0], [cell for cell in row[1:heading] if cell]
    title = f"{first}: {' '.join(more)}" if more else first
    yield from wrapped(f"{header[0]} {title}" if header and heading == 1 else title, width, _GAP)
    for name, cell in zip(names, row[heading:], strict=True):
        text = f"{name}: {cell}" if name else cell
        room = None if width is None else width - len(_GAP)
        indented = room is None or all(cell_len(word) <= room for word in _words(text))
        if cell:
            yield from (_GAP + line for line in wrapped(text, room)) if indented else wrapped(text, width)


def print_text(text: str, *, bold: bool = False, indent: str = "") -> None:
    """Print a paragraph, with all lines but the first indented; `bold` only affects terminals."""
    styled = bold and is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for line in wrapped(text, line_width(), indent):
        _print_line(line, styled)


def _print_line(line: str, bold: bool = False) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        line = line.translate(_ASCII)
    written = line.encode(encoding, "backslashreplace").decode(encoding)
    click.echo(click.style(written, bold=True) if bold else written)


def print_grid(rows: Iterable[Sequence[str]]) -> None:
    """Print cells in columns, without a title or names."""
    for line in aligned(rows, line_width()):
        _print_line(line)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int | None = 2,
    heading: int = 1,
) -> None:
    """Print cells under the names of columns, see `aligned`; an empty title is omitted."""
    if title:
        print_text(title, bold=True)
    for line in aligned(rows, line_width(), columns, left, heading):
        _print_line(line)
