"""CSV files of measurements that begin with lines ``# key: value``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ndpsim.base.errors import Code, InputError, one_of, shown, unknown
from ndpsim.config.nodes import read_text

_MAX_THREADS = 1 << 16


class SheetLine(NamedTuple):
    """Cells by column, and the line in the file, from 1."""

    line: int
    cells: Mapping[str, str]


class Sheet(NamedTuple):
    """A file: `said` by its lines ``# key: value``, `columns`, and `rows` in their order."""

    file: str
    said: Mapping[str, str]
    columns: tuple[str, ...]
    rows: tuple[SheetLine, ...]

    def error(
        self, problem: str, row: SheetLine | None = None, key: str | None = None, code: Code = "range"
    ) -> InputError:
        """An error that names a row, or the file."""
        line = None if row is None else row.line
        return InputError(problem, code, file=self.file, line=line, key=key)

    def whole(self, row: SheetLine, column: str, most: int) -> int:
        """The value of a cell: a whole number from 1.

        Raises:
            InputError: it is none.
        """
        if problem := _wrong_number(row.cells[column], most):
            raise self.error(problem, row, column)
        return int(row.cells[column])

    def above_zero(self, row: SheetLine, column: str, what: str) -> float:
        """The value of a cell: a number above 0; `what`: its meaning in words.

        Raises:
            InputError: it is none.
        """
        try:
            number = float(row.cells[column])
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf:
            raise self.error(f"{shown(row.cells[column])} is not {what} above 0", row, column)
        return number


def sheet_names(bundled: Path) -> list[str]:
    """The names of the bundled files in a folder, sorted."""
    return sorted(path.stem for path in bundled.glob("*.csv"))


def read_sheet(
    name: str,
    folder: Path,
    bundled: Path,
    headers: Sequence[str],
    words: Mapping[str, Sequence[str]],
    numbers: Mapping[str, int],
    defaults: Mapping[str, str],
) -> Sheet:
    """A bundled file by its name, or one ending in .csv, its path relative to `folder`.

    Args:
        headers: the allowed lines of column names.
        words: allowed values by key; empty: any text.
        numbers: keys of whole numbers from 1, with their maximum.
        defaults: values of optional keys; all other keys are required.

    Raises:
        InputError: there is no such file, or a line of it is wrong.
    """
    if not name.endswith(".csv"):
        if name not in sheet_names(bundled):
            problem = f"{one_of(name, sheet_names(bundled), 'table')}; a path ends in .csv"
            raise InputError(problem, "unknown-name")
        path, file = bundled / f"{name}.csv", f"{name}.csv"
    else:
        path, file = folder / name, str(folder / name)
    if "\0" in name:
        raise InputError("no such file", "unreadable", file=file)
    lines = read_text(path).removeprefix("\ufeff").splitlines()
    said = _said(lines, file, words, numbers, defaults)
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    header = rows[0][1].strip() if rows else ""
    if header not in headers:
        line = rows[0][0] if rows else None
        raise InputError(f"the columns are not {' or '.join(headers)}", "form", file=file, line=line)
    columns = tuple(header.split(","))
    return Sheet(file, said, columns, tuple(_rows(rows[1:], columns, file)))


def rising_threads(sheet: Sheet, row: SheetLine, before: Sequence[int]) -> int:
    """The threads of a row, at least those of the row `before`; 0 in a file without this column.

    Raises:
        InputError: they are fewer, or no such number.
    """
    if "threads" not in sheet.columns:
        return 0
    threads, last = sheet.whole(row, "threads", _MAX_THREADS), max(before, default=0)
    if threads < last:
        raise sheet.error(
            f"{threads} does not come after {last}: threads rise", row, "threads", code="conflict"
        )
    return threads


def chosen_threads(sheet: Sheet, measured: Sequence[int], asked: int | None) -> int:
    """The requested threads (`asked`), or the largest `measured` number; 0 in a file without threads.

    Raises:
        InputError: there are no measurements with this number.
    """
    chosen = max(measured) if asked is None or "threads" not in sheet.columns else asked
    if chosen not in measured:
        listed = ", ".join(map(str, measured))
        raise sheet.error(f"{asked} were not measured, but {listed}", key="threads", code="conflict")
    return chosen


def _rows(lines: Iterable[tuple[int, str]], columns: Sequence[str], file: str) -> Iterable[SheetLine]:
    for number, text in lines:
        cells = [cell.strip() for cell in text.split(",")]
        if len(cells) != len(columns):
            raise InputError(f"{shown(text)} is not {','.join(columns)}", "form", file=file, line=number)
        yield SheetLine(number, dict(zip(columns, cells, strict=True)))


def _said(
    lines: Sequence[str],
    file: str,
    words: Mapping[str, Sequence[str]],
    numbers: Mapping[str, int],
    defaults: Mapping[str, str],
) -> dict[str, str]:
    """Values of the lines ``# key: value``; each key is there once."""
    keys = [*words, *numbers]
    said: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.startswith("#"):
            continue
        key, colon, value = (part.strip() for part in line[1:].partition(":"))
        if not colon or key not in keys:
            raise unknown(key, keys, "key", file=file, line=number)
        if key in said:
            raise InputError("is given twice", "twice", file=file, line=number, key=key)
        problem = _wrong_number(value, numbers[key]) if key in numbers else _wrong_word(value, words[key])
        if problem:
            raise InputError(problem, "range", file=file, line=number, key=key)
        said[key] = value
    said = {**defaults, **said}
    for key in keys:
        if key not in said:
            raise InputError(f"is missing; give it in a line '# {key}: ...'", "missing", file=file, key=key)
    return said


def _wrong_word(value: str, allowed: Sequence[str]) -> str | None:
    if allowed:
        return None if value in allowed else one_of(value, allowed, "value")
    return None if value else "is empty"


def _wrong_number(value: str, most: int) -> str | None:
    right = value.isascii() and value.isdigit() and len(value) < 20 and 1 <= int(value) <= most
    return None if right else f"{shown(value)} is not a whole number from 1 to {most}"
