"""The parts of a page as data for the templates. A part without contents is false."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

#: Limits of a table. A cell takes about 60 bytes, so a page has at most a few MB.
MOST_ROWS = 2000
MOST_CELLS = 40_000


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: its text.
        value: sort key; None: the text.
    """

    text: str
    value: float | None = None


Row: TypeAlias = Sequence[Cell | str]


def most_rows(columns: int) -> int:
    """The maximum number of rows of a table with this number of cells in a row."""
    return max(1, min(MOST_ROWS, MOST_CELLS // max(1, columns)))


@dataclass(frozen=True)
class Table:
    """A table whose rows a script can sort.

    Attributes:
        columns: names of columns; empty: each row begins with its name, and rows keep their order.
        rows: rows of cells, one for each column.
        elsewhere: words for the place of the rows that are left out, for a note.
        of: total number of rows, if `rows` has only the first ones.
    """

    columns: Sequence[str]
    rows: Sequence[Row]
    elsewhere: str = ""
    of: int = 0
    template: ClassVar = "table.html"

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def shown(self) -> list[list[Cell]]:
        """The rows that a page shows."""
        rows = self.rows[: most_rows(len(self.rows[0]))]
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]


@dataclass(frozen=True)
class Picture:
    """A figure as SVG in a page, with a description in words."""

    svg: str
    words: str
    template: ClassVar = "picture.html"


class Section:
    """Parts under a title."""

    template = "section.html"

    def __init__(self, title: str, *parts: Part) -> None:
        self.title, self.parts = title, parts

    def __bool__(self) -> bool:
        return any(self.parts)


class Folded(Section):
    """Parts that are hidden until their title is clicked."""

    template = "folded.html"


#: A text is a paragraph; several are a list.
Part: TypeAlias = Table | Picture | Section | str | list[str]
