"""The parts of a page as data, and how a page is written from them: tables, pictures, sections."""

from __future__ import annotations

import base64
import hashlib
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar, NamedTuple, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from ndpsim.base.errors import InputError
from ndpsim.base.files import replacing
from ndpsim.base.reported import flattened
from ndpsim.base.run_files import call_words
from ndpsim.base.units import UNITS, scale_for, significant
from ndpsim.config import Hardware
from ndpsim.report.metrics import is_number, scale_of
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.canvas import rendered
from ndpsim.report.words import counted
from ndpsim.simulate.results.cache import version

_LOADER = PackageLoader("ndpsim.report.html")
_TEMPLATES = Environment(
    loader=_LOADER, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)

#: Limits of a table. A cell takes about 60 bytes, so a page has at most a few MB.
MOST_ROWS = 2000
MOST_CELLS = 40_000

_MEASURED = re.compile(r"([0-9][0-9,]*(?:\.[0-9]+)?) ?(\S*)")
# Scales of all units except seconds, which share names with those of nanoseconds.
_FACTORS = {scale.unit: scale.divisor for name, unit in UNITS.items() if name != "s" for scale in unit.scales}

# ---- tables ----


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
class HtmlTable:
    """A table whose rows a script can sort.

    Attributes:
        columns: names of columns; empty: each row begins with its name, and rows keep their order.
        rows: rows of cells, one for each column.
        elsewhere: words for the place of the rows that are left out, for a note.
        total: number of all rows, if `rows` has only the first ones.
    """

    columns: Sequence[str]
    rows: Sequence[Row]
    elsewhere: str = ""
    total: int = 0
    template: ClassVar = "table.html"

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def shown(self) -> list[list[Cell]]:
        """The rows that a page shows."""
        rows = self.rows[: most_rows(len(self.rows[0]))]
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: its name; the unit is added.
        values: a value for each row; numbers are sorted as such.
        metric: the metric that the values are of, whose unit they share; "": they are shown as they are.
        results: classes of results that may have the metric.
    """

    name: str
    values: Iterable[Any]
    metric: str = ""
    results: Iterable[type] = ()


def plain_cell(value: Any) -> Cell:
    """A value of a configuration: None as an empty cell."""
    if isinstance(value, Cell):
        return value
    return Cell("" if value is None else str(value), value if is_number(value) else None)


def count_cell(number: int) -> Cell:
    """A number with separators."""
    return Cell(f"{number:,}", number)


def measured_cell(text: str) -> Cell:
    """A figure of a text report, sorted by its value: ``981.2 ns`` before ``1.204 µs``."""
    found = _MEASURED.fullmatch(text)
    if found is None or found[2] not in _FACTORS:
        return Cell(text)
    return Cell(text, float(found[1].replace(",", "")) * _FACTORS[found[2]])


def _figures(column: Column) -> tuple[str, list[Cell]]:
    """A common unit for all values of a metric, and the values in it with four digits; text is unchanged."""
    values = list(column.values)
    if not column.metric:
        return "", list(map(plain_cell, values))
    scale = scale_of(column.metric, values, column.results)

    def cell(value: Any) -> Cell:
        if not is_number(value):
            return plain_cell(value)
        if isinstance(value, int) and scale.divisor == 1:
            return count_cell(value)
        return Cell(significant(value / scale.divisor), value)

    return scale.unit, list(map(cell, values))


def table_of(*columns: Column, elsewhere: str = "", total: int = 0) -> HtmlTable:
    """A table of columns; `elsewhere` and `total` as in `HtmlTable`."""
    found = [_figures(column) for column in columns]
    heads = [f"{c.name} ({unit})" if unit else c.name for c, (unit, _) in zip(columns, found, strict=True)]
    return HtmlTable(heads, list(zip(*(cells for _, cells in found), strict=True)), elsewhere, total)


def measured(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> HtmlTable:
    """A table of a text report, whose figures sort; a column with several scales gets one."""
    lines = [[Cell(first), *map(measured_cell, cells)] for first, *cells in rows]
    columns = [
        _in_one_unit(head, cells) for head, cells in zip(heads, zip(*lines, strict=True), strict=False)
    ]
    if not columns:
        return HtmlTable(heads, lines)
    heads = [head for head, _ in columns]
    return HtmlTable(heads, list(zip(*(cells for _, cells in columns), strict=True)))


def _in_one_unit(head: str, cells: Sequence[Cell]) -> tuple[str, Sequence[Cell]]:
    """The head and cells of a column; if they have several scales of a unit, all in that of the largest."""
    texts = [_MEASURED.fullmatch(cell.text) for cell in cells]
    shown = {found[2] for found in texts if found}
    kind = next((name for name, unit in UNITS.items() if shown <= {scale.unit for scale in unit.scales}), "")
    values = [cell.value for cell in cells if cell.value is not None]
    if (
        len(shown) < 2
        or not kind
        or any(found is None and cell.text.strip("-") for found, cell in zip(texts, cells, strict=True))
    ):
        return head, cells
    scale = scale_for(kind, max(values))
    scaled = [
        cell if cell.value is None else Cell(significant(cell.value / scale.divisor), cell.value)
        for cell in cells
    ]
    return f"{head} ({scale.unit})", scaled


def when(spans: Sequence[Any], from_ns: float = 0.0, length: bool = False) -> list[Column]:
    """Columns with `start_ns` and `end_ns` of each, from `from_ns` on, and if wanted how long each took."""
    lengths = [Column("length", [span.end_ns - span.start_ns for span in spans], "time_ns")]
    return [
        Column("start", [span.start_ns - from_ns for span in spans], "time_ns"),
        Column("end", [span.end_ns - from_ns for span in spans], "time_ns"),
        *(lengths if length else ()),
    ]


# ---- pictures ----

_MOST_BYTES = 4_000_000
# The head of the file, comments, metadata and namespaces, which HTML does not need.
_DROPPED = re.compile(
    r'^.*?(?=<svg)|<!--.*?-->|<metadata>.*?</metadata>|\s+xmlns(?::\w+)?="[^"]*"', re.DOTALL
)
_SIZE = re.compile(r'(<svg\b[^>]*?) (?:width|height)="[^"]*"')


@dataclass(frozen=True)
class Picture:
    """A figure as SVG in a page, with a description in words."""

    svg: str
    words: str
    template: ClassVar = "picture.html"


def inline(svg: str, name: str) -> str:
    """An SVG file as part of an HTML page, as wide as its place.

    `name` is the prefix of all ids, so that ids of several pictures on a page differ.
    """
    svg = _DROPPED.sub("", svg).replace("xlink:href=", "href=")
    for _ in ("width", "height"):
        svg = _SIZE.sub(r"\1", svg, count=1)
    svg = re.sub(r'(?<=\s)id="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    return re.sub(r"url\(#", f"url(#{name}-", svg)


def picture(name: str, draw: Callable[[], Figure], words: str) -> Picture | str:
    """A figure as inline SVG, or the reason why it cannot be drawn or is too large.

    Args:
        name: prefix for ids, unique on the page.
        draw: makes the figure in the default size.
        words: a description for readers who cannot see it.
    """
    try:
        svg = rendered(draw(), "svg", DEFAULT_SIZE).decode()
    except InputError as error:
        return f"no picture: {error.problem}"
    found = inline(svg, name)
    if len(found) > _MOST_BYTES:
        size = f"{len(found) / 1e6:.0f} MB"
        return f"no picture: it would take {size}; --plot FILE.png draws it"
    return Picture(found, words)


# ---- sections and pages ----


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
Part: TypeAlias = HtmlTable | Picture | Section | str | list[str]


def configuration(config: Mapping[str, Any], hardware: Hardware | None, *more: Part) -> Section:
    """The whole configuration: the values of the call, then those of the machine with their sources.

    Args:
        config: the configuration in a result.
        hardware: the hardware; None: only `config` describes it.
        more: further parts.
    """
    call = {key: value for key, value in config.items() if hardware is None or key != "hardware"}
    rows = [(key, "" if value is None else str(value)) for key, value in flattened(call).items()]
    parts = [Folded(f"What was run: {counted(len(rows), 'value')}", HtmlTable((), rows))]
    if hardware is not None:
        values = [(row.key, plain_cell(row.value), row.unit, row.origin) for row in hardware.rows()]
        title = f"Hardware: {hardware.system.name}, {counted(len(values), 'value')}"
        parts.append(Folded(title, HtmlTable(("key", "value", "unit", "source, or what is assumed"), values)))
    return Section("Configuration", *parts, *more)


def provenance(more: Mapping[str, str] | None = None) -> Section:
    """The origin of the result and `more`, by name, without date and host: equal results are equal."""

    def installed(name: str) -> str:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return "not installed"

    made = {
        **({"command": call} if (call := call_words()) else {}),
        "ndpsim": installed("ndpsim"),
        "version": f"{version()} (digest of the simulator's sources, Python, NumPy and Numba)",
        "Python": platform.python_version(),
        "NumPy": installed("numpy"),
        "Numba": installed("numba"),
    }
    return Section("Provenance", HtmlTable((), [*made.items(), *(more or {}).items()]))


# The folders of a path from the root; those of an address on the web follow a colon or a slash.
_ABSOLUTE = re.compile(r"(?<![\w.:/*)])/(?:[\w.+@~-]+/)+(?=[\w.+@~-])")


def _clipped(text: str, most: int) -> str:
    """A text of a bounded length; files are named without the folders of this machine."""
    text = _ABSOLUTE.sub("", text)
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} more characters)"


_TEMPLATES.filters["clipped"] = _clipped


def write_page(path: str, title: str, subtitle: str, sections: Sequence[Section]) -> None:
    """Write a page, whole or not at all.

    Args:
        path: the path of the file.
        title, subtitle: plain text.
        sections: in order; those without parts are left out.

    Raises:
        InputError: the file cannot be written.
    """
    script, style = (_LOADER.get_source(_TEMPLATES, name)[0] for name in ("script.js", "style.css"))
    page = _TEMPLATES.get_template("page.html").render(
        title=title,
        subtitle=subtitle.splitlines(),
        parts=sections,
        style=style,
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    with replacing(path) as file:
        file.write(page.encode("utf-8", "replace"))
