"""Display, comparison and plain data of results."""

from __future__ import annotations

import html
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from os import PathLike
from typing import Any

from ndpsim.base.arguments import flag, path_of, several, text
from ndpsim.base.units import in_unit, unit_ending

_WIDTH = 80  # maximum columns of a repr
_LINES = 22  # maximum rows of a repr
_NAME = 21  # columns for names in a repr

#: Durations of a run, which are no property of the simulated machine.
OF_THE_RUN = ("wall_s", "run_s", "compile_s", "policy_wall_s")


@dataclass(frozen=True)
class Quantity:
    """Label, unit and form of a field of a result.

    Attributes:
        label: words for the field, without the unit.
        unit: a key of `UNITS`; "" if the end of the field's name is its unit, or without a unit.
        beside: fields that explain this one; texts show them in its row.
        whole: a field, such as a peak or a sum; texts show this one as a share of it.
        share: the field with this share, if any.
        parts: labels for keys of a mapping whose names do not explain them.
        numbered: how values of numbered keys, "ndp 0" to "ndp 31", become one of "ndp": "mean" or "sum".
        counts: keys of a mapping whose values are counts, and have no unit.
    """

    label: str
    unit: str = ""
    beside: tuple[str, ...] = ()
    whole: str = ""
    share: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    numbered: str = ""
    counts: tuple[str, ...] = ()


def quantity(label: str, unit: str = "", **more: Any) -> dict[str, Quantity]:
    """The `metadata` of a field of a result: its `Quantity`."""
    return {"quantity": Quantity(label, unit, **more)}


def quantities(result: type) -> dict[str, Quantity]:
    """The fields of a result that have a description, in order."""
    return {f.name: f.metadata["quantity"] for f in fields(result) if "quantity" in f.metadata}


def quantity_of(name: str, results: Iterable[type] = ()) -> Quantity:
    """The quantity of a field, or of a part of one: ``time_ns``, ``energy_nj.total``, ``layer_ns.p99``.

    The unit is that at the end of the last part's name that has one, or that of the field.

    Args:
        name: name of the field, with dots before the names of parts.
        results: classes that may have the field; the first that describes it counts. A field without a
            description is labelled by its name without the unit.
    """
    first, *rest = name.split(".")
    unit, end = unit_ending(first)
    described = (quantities(result).get(first) for result in results)
    known = next(filter(None, described), None) or Quantity(_words(first, unit, end), unit)
    unit = next((found for found, _ in map(unit_ending, reversed(rest)) if found), known.unit or unit)
    unit = "" if any(part in known.counts for part in rest) else unit
    parts = [
        known.parts.get(part) or _words(part, *unit_ending(part))
        for part in rest
        if part not in ("total", "by_name")
    ]
    return replace(known, label=", ".join((known.label, *parts)), unit=unit)


def label_of(name: str, *results: type) -> str:
    """The label of a field; for the arguments see `quantity_of`."""
    return quantity_of(name, results).label


def said(result: Any, *names: str) -> str:
    """Fields of a result, each after its label: ``time 1.000 ms, bandwidth 2.00 GB/s``."""
    kind = type(result)
    return ", ".join(
        f"{label_of(name, kind)} {with_unit(name, getattr(result, name), kind)}" for name in names
    )


def table_of(results: Sequence[Any], *names: str) -> tuple[list[str], list[tuple[str, ...]]]:
    """Labels of fields, and a row of their values for each of several results of a class."""
    kind = type(results[0])
    rows = [tuple(with_unit(name, getattr(result, name), kind) for name in names) for result in results]
    return [label_of(name, kind) for name in names], rows


class Figure:
    """A number whose text has more than its value, such as its error."""

    def in_unit(self, unit: str) -> str:
        """The number as text, in a unit of `UNITS`."""
        raise NotImplementedError


def _words(name: str, unit: str, end: str) -> str:
    drop = end if end.startswith("_") and unit not in ("", "%") else ""
    return name.removesuffix(drop).replace("_", " ")


def with_unit(name: str, value: Any, *results: type) -> str:
    """A value as text, in the unit of its field; for the arguments see `quantity_of`."""
    if isinstance(value, Mapping):
        words = (
            (key, with_unit(f"{name}.{key}", part, *results), isinstance(part, Mapping))
            for key, part in sorted(value.items(), key=lambda item: item[0] != "total")
        )
        return ", ".join(f"{key} ({shown})" if nested else f"{key} {shown}" for key, shown, nested in words)
    if isinstance(value, tuple | list):
        few = len(value) <= 8 and all(isinstance(entry, int | float | str) for entry in value)
        return ", ".join(with_unit(name, e, *results) for e in value) if few else f"{len(value)} of them"
    if isinstance(value, Reported):
        return f"a {type(value).__name__}"
    if isinstance(value, Figure):
        return value.in_unit(quantity_of(name, results).unit)
    if is_dataclass(value) and (parts := quantities(type(value))):
        return said(value, *parts)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return in_unit(value, quantity_of(name, results).unit)
    return "not known" if value is None else str(value)


def text_table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A title and rows of (name, value) as text, at most 80 columns wide."""
    lines = [title, *(f"  {name:<{_NAME}} {value}" for name, value in rows)]
    return "\n".join(line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..." for line in lines)


def html_table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A title and rows of (name, value) as a table for notebooks."""
    cells = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows
    )
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>"


def html_columns(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], best: int | None) -> str:
    """Rows of cells under the names of columns as a table for notebooks; the row `best` is marked."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("", *heads))
    lines = []
    for number, row in enumerate(rows):
        mark, tag = ("best", "th") if number == best else ("", "td")
        cells = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in (mark, *row))
        lines.append(f"<tr>{cells}</tr>")
    return f"<table><caption>{html.escape(title)}</caption><tr>{head}</tr>{''.join(lines)}</table>"


def _plain(value: Any) -> Any:
    """A value for JSON: dataclasses and mappings as objects, tuples as lists."""
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, tuple | list) else value


def flattened(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data as scalars by dotted key, as described at `Reported.to_dict`."""
    return dict(_flat("", plain))


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Plain data as scalars by dotted key."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _flat(f"{key}.{name}" if key else str(name), part)
    elif isinstance(value, list):
        yield from _flat_list(key, value)
    else:
        yield key, value


def _flat_list(key: str, values: list[Any]) -> Iterator[tuple[str, Any]]:
    """The number of entries, and the extremes of numbers, or of each number in records by their names."""
    if values and all(isinstance(entry, Mapping) for entry in values):
        yield f"{key}.count", len(values)
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for entry in values:
            groups.setdefault(f"{key}.{entry['name']}" if "name" in entry else key, []).append(entry)
        for group, records in groups.items():
            for name in dict.fromkeys(name for record in records for name in record if name != "name"):
                yield from _extremes(f"{group}.{name}", [record.get(name) for record in records])
    elif all(_is_number(entry) for entry in values):
        yield f"{key}.count", len(values)
        yield from _extremes(key, values)
    else:
        yield key, json.dumps(values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _extremes(key: str, values: list[Any]) -> Iterator[tuple[str, Any]]:
    numbers = [value for value in values if _is_number(value)]
    if numbers:
        yield f"{key}.min", min(numbers)
        yield f"{key}.max", max(numbers)


class Shown:
    """A result that is displayed as a table, in text and in notebooks."""

    def _title(self) -> str:
        return type(self).__name__

    def _rows(self) -> Iterable[tuple[str, str]]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return text_table(self._title(), self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._title(), self._rows())


class Reported(Shown):
    """Base class of results, which are frozen dataclasses.

    Results are equal if all their fields except durations are equal. They contain mappings, and therefore
    have no hash.
    """

    def plot(
        self,
        file: str | PathLike[str] | None = None,
        size: str = "two-columns",
        panels: Sequence[str] | None = None,
    ) -> Any:
        """Draw the result, as ``--plot`` does; a notebook shows the returned `matplotlib.figure.Figure`.

        Args:
            file: also write the picture to this file; its ending is the format.
            size: "column", "two-columns" or "slide".
            panels: names of the panels to draw; None: all.

        Raises:
            InputError: there is no picture of such a result, it has no recorded commands, or the file cannot
                be written.
        """
        file = None if file is None else path_of(file, "file")
        size = text(size, "size")
        panels = None if panels is None else several(panels, "panels", text)
        drawing = importlib.import_module("ndpsim.report.pictures.results")  # in a higher layer
        return drawing.drawn(self, file, size, panels)

    def to_dict(self, flat: bool = False) -> dict[str, Any]:
        """Plain data for JSON; command traces are left out.

        Args:
            flat: only scalars, for one row of a DataFrame. Keys of mappings are joined by dots:
                ``busy.memory``. A list of numbers gives ``.count``, ``.min`` and ``.max``. A list of records
                gives ``.count``, and ``.min`` and ``.max`` of each number, by the names of the records if
                they have names: ``phases.down.end_ns.max``. Any other list becomes its JSON text.
        """
        plain = self._plain()
        return flattened(plain) if flag(flat, "flat") else plain

    def _plain(self) -> dict[str, Any]:
        return {f.name: _plain(getattr(self, f.name)) for f in self._fields() if f.name != "command_traces"}

    def _fields(self) -> tuple[Any, ...]:
        assert is_dataclass(self)
        return fields(self)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = (f.name for f in self._fields() if f.name not in OF_THE_RUN)
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def _title(self) -> str:
        config = getattr(self, "config", {})
        title, what = type(self).__name__, config.get("model") or config.get("trace")
        if what is None and "hidden" in config:
            what = f"{config['hidden']} x {config['intermediate']}"
        machine = config.get("hardware", {}).get("name") or config.get("timing")
        title += f" of {what}" if what else ""
        return f"{title} on {machine}" if machine else title

    def _rows(self) -> list[tuple[str, str]]:
        names = [f.name for f in self._fields() if f.repr]
        rows = [(name, with_unit(name, getattr(self, name), type(self))) for name in names[:_LINES]]
        more = len(self._fields()) - len(rows)
        return rows + ([("...", f"{more} more fields")] if more else [])

    def _repr_html_(self) -> str:
        rows = ((label_of(name, type(self)), value) for name, value in self._rows())
        return html_table(self._title(), rows)
