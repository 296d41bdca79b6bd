"""The parts of a page as data, which its templates show. A part that has nothing to show is false."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

#: Bounds of a table. A cell takes some 60 bytes, so that a page stays below some MB.
MOST_ROWS = 2000
MOST_CELLS = 40_000


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: as it is read.
        value: by which it is sorted; None: by its text.
    """

    text: str
    value: float | None = None


Row: TypeAlias = Sequence[Cell | str]


def most_rows(columns: int) -> int:
    """How many rows of so many cells a table shows."""
    return max(1, min(MOST_ROWS, MOST_CELLS // max(1, columns)))


@dataclass(frozen=True)
class Table:
    """Rows under the names of their columns, which a script lets sort.

    Attributes:
        columns: names; none: each row begins with its name, and rows keep their order.
        rows: cells, as many as columns.
        elsewhere: where rows that are left out can be found, for the note that says so.
        of: how many rows there are, where `rows` are only the first of them.
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
    """A figure as SVG of a page, and what is seen in words."""

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
    """Parts behind a title that opens them."""

    template = "folded.html"


#: A text is a paragraph; several are a list.
Part: TypeAlias = Table | Picture | Section | str | list[str]
