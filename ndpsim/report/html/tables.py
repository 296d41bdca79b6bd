"""Tables as HTML: numbers keep their value beside their text, so that they are sorted by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

#: Bounds of a table. A cell takes some 60 bytes, so that a page stays below some MB.
MOST_ROWS = 2000
MOST_CELLS = 40_000
_LONGEST = 300  # characters of a cell
_LONGEST_FACT = 3000


@dataclass(frozen=True)
class Cell:
    """What stands in a table.

    Attributes:
        text: as it is read.
        value: by which it is sorted; None: by its text.
    """

    text: str
    value: float | None = None


def _shortened(text: str, most: int = _LONGEST) -> str:
    return escape(text if len(text) <= most else f"{text[:most]}...")


def _cell(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return f"<td>{_shortened(cell)}</td>"
    if cell.value is None:
        return f"<td>{_shortened(cell.text)}</td>"
    return f'<td class=n data-value="{cell.value!r}">{_shortened(cell.text)}</td>'


def most_rows(columns: int) -> int:
    """How many rows of so many cells a table shows."""
    return max(1, min(MOST_ROWS, MOST_CELLS // max(1, columns)))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell | str]],
    where_all: str = "",
    count: int | None = None,
) -> str:
    """Rows under the names of their columns, which a script lets sort; as many rows as are bounded.

    Args:
        columns: names; none: there is no head.
        rows: cells, as many as columns.
        where_all: where rows that are left out can be found, for the note that says so.
        count: of rows that there are, where `rows` are the first of them alone.
    """
    everything = list(rows)
    if not everything:
        return ""
    most = most_rows(len(everything[0]))
    numeric = [isinstance(cell, Cell) and cell.value is not None for cell in everything[0]]
    head = "".join(
        f"<th scope=col{' class=n' if right else ''}>{_shortened(name)}</th>"
        for name, right in zip(columns, numeric, strict=False)
    )
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in everything[:most])
    found = (f"<thead><tr>{head}</tr></thead>\n" if columns else "") + f"<tbody>\n{body}\n</tbody>"
    kind = " class=sortable" if columns else ""
    note = _cut_note(count or len(everything), most, where_all)
    return f"<div class=scroll><table{kind}>\n{found}\n</table></div>{note}"


def _cut_note(rows: int, most: int, where_all: str) -> str:
    """What says that rows are left out, where some are."""
    if rows <= most:
        return ""
    elsewhere = f"; all of them: {where_all}" if where_all else ""
    return f"\n<p class=note>{most:,} of {rows:,} rows are shown{escape(elsewhere)}</p>"


def facts_table(rows: Iterable[Sequence[str]]) -> str:
    """Names and what there is to say of them."""
    found = list(rows)
    if not found:
        return ""
    lines = []
    for name, *cells in found[:MOST_ROWS]:
        said = "".join(f"<td>{_shortened(cell, _LONGEST_FACT)}</td>" for cell in cells)
        lines.append(f"<tr><th scope=row>{_shortened(name)}</th>{said}</tr>")
    body = "\n".join(lines)
    note = _cut_note(len(found), MOST_ROWS, "")
    return f"<div class=scroll><table class=facts><tbody>\n{body}\n</tbody></table></div>{note}"
