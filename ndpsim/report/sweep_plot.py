"""The picture of a sweep, chosen and checked before matplotlib is imported."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ndpsim.base.errors import InputError, unknown
from ndpsim.base.options.swept import KINDS, LOGS, SWEPT
from ndpsim.report.metrics import described, higher_is_better, is_number, key_label, name_of, value_words

NO_LOG = "none"  # the user's word for no logarithmic axis

#: Columns of a row that are neither varied keys nor metrics.
NO_METRICS = ("status", "reason", "version", "config")

_MOST_SERIES = 8
_MOST_PANELS = 6
_LOG_X = 8  # above this ratio, values of equal ratios have a logarithmic axis
_ALIKE = 1.6  # factor by which ratios of neighbours may differ: 1, 2, 5, 10
_LOG_Y = 50

_SUBJECTS = {
    "gemv": "One expert",
    "moe": "Inference",
    "relayout": "Relayout",
    "dram": "Request trace",
    "serve": "Serving",
    "attention": "Attention",
}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class PublishedValue:
    """A published value to compare with.

    Attributes:
        metric: the metric.
        where: values of varied keys at which it holds; it holds for any value of other keys.
        low, high: the published interval; equal for a single value.
        source: paper and place, "TriMoE paper, Figure 9a".
    """

    metric: str
    where: Mapping[str, Any]
    low: float
    high: float
    source: str


class Swept(Protocol):
    """The properties of a sweep that pictures and reports need; `Definition` has them."""

    @property
    def command(self) -> str: ...
    @property
    def results(self) -> tuple[type, ...]: ...
    @property
    def fixed(self) -> Mapping[str, Any]: ...
    @property
    def varied(self) -> Mapping[str, tuple[Any, ...]]: ...
    @property
    def baseline(self) -> Mapping[str, Any]: ...
    @property
    def plot(self) -> Mapping[str, Any]: ...
    @property
    def published(self) -> Sequence[PublishedValue]: ...
    @property
    def title(self) -> str | None: ...
    def points(self) -> list[dict[str, Any]]: ...
    def labelled(self, rows: Sequence[Row]) -> tuple[Swept, list[dict[str, Any]]]: ...


@dataclass(frozen=True)
class SweepPlot:
    """A picture of a sweep.

    Attributes:
        kind: one of `KINDS`.
        x: a varied key; of pareto, a metric.
        y: a metric; for heat, that of the cells.
        by: varied keys: those that form series for lines and bars, that of the vertical axis for heat, and
            those with a colour for each value for pareto.
        log: the logarithmic axes, "", "x", "y" or "xy"; for heat, "y" is the scale of colours.
        title: title of the picture.
        more: for pareto, metrics whose higher values are better.
    """

    kind: str
    x: str
    y: str
    by: tuple[str, ...]
    log: str
    title: str
    more: tuple[str, ...] = ()

    def wants_more(self, metric: str) -> bool:
        """Whether higher values of a metric are better."""
        return metric in self.more


def ordered_values(key: str, swept: Swept, rows: Iterable[Row]) -> list[Any]:
    """The values of a key in rows: numbers by size, others in the order of the sweep."""
    found = {value_words(row[key]): row[key] for row in rows}
    if all(is_number(value) for value in found.values()):
        return sorted(found.values())
    order = {value_words(value): index for index, value in enumerate(swept.varied[key])}
    return [found[words] for words in sorted(found, key=lambda words: order.get(words, len(order)))]


def metrics_of(rows: Iterable[Row], varied: Collection[str]) -> list[str]:
    """The columns with numbers, in the order of the table."""
    names: dict[str, None] = {}
    for row in rows:
        for name, value in row.items():
            if name not in varied and name not in NO_METRICS and is_number(value):
                names.setdefault(name)
    return list(names)


def sweep_title(swept: Swept) -> str:
    """The sweep's own title, or one from its command, model, machine and shared keys."""
    if swept.title:
        return swept.title
    options: Mapping[str, Any] = SWEPT.get(swept.command, {})
    defaults = {key: options[key].default for key in ("model", "hw") if key in options}
    if "shape" in (*swept.fixed, *swept.varied):
        defaults.pop("model", None)
    shared = {key: value for key, value in (defaults | dict(swept.fixed)).items() if key not in swept.varied}
    model, machine = shared.pop("model", None), shared.pop("hw", None)
    subject = f" of {value_words(model)}" if model else ""
    on = f" on {value_words(machine)}" if machine else ""
    rest = "".join(f", {name_of({key: value})}" for key, value in shared.items())
    return f"{_SUBJECTS.get(swept.command, swept.command)}{subject}{on}{rest}"


def _known(name: Any, known: Collection[str] | None, what: str, key: str) -> str:
    """`name`, if it is known, or nothing is."""
    if known is not None and name not in known:
        raise unknown(name, known, what, key=key)
    return str(name)


def chosen_plot(
    swept: Swept,
    rows: Sequence[Row] | None = None,
    kind: str | None = None,
    x: str | None = None,
    y: str | None = None,
    by: str | Sequence[str] | None = None,
    log: str | None = None,
) -> SweepPlot:
    """The picture to draw, by the arguments, the sweep's `plot`, or defaults, in this order.

    The defaults are lines over the number with the most values, or bars over words; other keys are series.

    Args:
        swept: the sweep.
        rows: its results; None before any exist, when metrics cannot be checked.
        kind, x, y, by, log: see `SweepPlot`; `by` may be a text with commas, `log` may be "none".

    Raises:
        InputError: no such kind, key or metric exists, or there would be too many series to distinguish.
    """
    arguments = {"kind": kind, "x": x, "y": y, "by": by, "log": log}
    wanted = {**swept.plot, **{name: value for name, value in arguments.items() if value is not None}}
    points: Sequence[Row] = swept.points() if rows is None else rows
    if not points:
        raise InputError("the sweep has no points", "missing", key="plot")
    metrics = None if rows is None else metrics_of(rows, swept.varied)
    if metrics is not None and not metrics:
        raise InputError("no point has a number that could be drawn: all failed", "missing", key="plot")
    if not swept.varied:
        raise InputError("nothing varies, so that there is nothing to draw", "missing", key="plot")
    otherwise = _default_kind(wanted.get("x"), swept, points, wanted.get("log") in ("x", "xy"))
    chosen_kind = _known(wanted.get("kind") or otherwise, KINDS, "kind", "kind")
    named = wanted.get("by")
    names = named.split(",") if isinstance(named, str) else named or ()
    chosen_by = tuple(name for name in (str(name).strip() for name in names) if name)
    for name in chosen_by:
        _known(name, swept.varied, "key that varies", "by")
    if chosen_kind == "pareto":
        return _pareto(swept, rows, metrics, wanted, chosen_by)
    key = wanted.get("x") or _default_x(chosen_kind, swept, points, chosen_by)
    if _known(key, swept.varied, "key that varies", "x") in chosen_by:
        raise InputError(f"{key} is on the horizontal axis already", "twice", key="by")
    metric = _known(wanted.get("y") or _default_y(swept, metrics), metrics, "metric", "y")
    series = _default_by(chosen_kind, swept, points, key) if named is None else chosen_by
    if chosen_kind == "heat" and len(series) != 1:
        problem = f"a heat map has one key on its vertical axis, not {len(series)}"
        raise InputError(problem, "conflict", key="by")
    _check_count(chosen_kind, swept, points, key, series)
    log = "x" if chosen_kind == "lines" and _is_geometric(key, swept, points) else ""
    log += "y" if rows is not None and chosen_kind != "bars" and _spans(metric, rows) else ""
    keys = [key, *series] if chosen_kind == "heat" else [key]
    words = " and ".join(key_label(shown).partition(" (")[0] for shown in keys)
    chosen_log = _log(wanted, log)
    if wanted.get("log") is not None:
        _check_log(chosen_log, chosen_kind, key, metric, points, rows)
    drawn = f"{described(metric, swept.results).label} {'over' if chosen_kind == 'lines' else 'by'} {words}"
    return SweepPlot(
        chosen_kind, key, metric, series, chosen_log, swept.title or f"{sweep_title(swept)}: {drawn}"
    )


def _log(wanted: Mapping[str, Any], otherwise: str) -> str:
    """The chosen logarithmic axes, or `otherwise`."""
    if wanted.get("log") is None:
        return otherwise
    log = _known(wanted["log"] or NO_LOG, LOGS, "choice of logarithmic axes", "log")
    return "" if log == NO_LOG else log


def _check_log(
    log: str, kind: str, x: str, metric: str, points: Sequence[Row], rows: Sequence[Row] | None
) -> None:
    """Refuse a logarithmic axis that was asked for and cannot be drawn.

    Raises:
        InputError: the picture has no such axis, or values are not above 0.
    """
    if "x" in log and kind != "lines":
        problem = (
            f"{kind} have no logarithmic horizontal axis; lines have"
            if kind == "bars"
            else ("the horizontal axis of a heat map has names; y is the scale of its colours")
        )
        raise InputError(problem, "conflict", key="log")
    values = {x: [point[x] for point in points]} if "x" in log else {}
    if "y" in log and rows is not None:
        values[metric] = [row[metric] for row in rows if row.get(metric) is not None]
    for name, found in values.items():
        low = next((value for value in found if not is_number(value) or value <= 0), None)
        if low is not None:
            problem = f"{name} has {value_words(low)}, which no logarithmic axis shows"
            raise InputError(problem, "conflict", key="log")


def _pareto(
    swept: Swept,
    rows: Sequence[Row] | None,
    metrics: Sequence[str] | None,
    wanted: Mapping[str, Any],
    by: tuple[str, ...],
) -> SweepPlot:
    x = _known(wanted.get("x") or "time_ns", metrics, "metric", "x")
    y = _known(wanted.get("y") or "energy_nj.total", metrics, "metric", "y")
    if rows is not None:
        _check_series(len({_combination(row, by) for row in rows}), by)
    log = "".join(axis for axis, metric in (("x", x), ("y", y)) if _spans(metric, rows or ()))
    results = swept.results
    more = tuple(metric for metric in (x, y) if higher_is_better(metric, results))
    drawn = f"{described(y, results).label} against {described(x, results).label}"
    title = swept.title or f"{sweep_title(swept)}: {drawn}"
    return SweepPlot("pareto", x, y, by, _log(wanted, log), title, more)


# ---- defaults ----


def _numeric(key: str, points: Iterable[Row]) -> bool:
    return all(is_number(point[key]) for point in points)


def _count(key: str, points: Iterable[Row]) -> int:
    return len({value_words(point[key]) for point in points})


def _default_kind(x: str | None, swept: Swept, points: Sequence[Row], log_x: bool) -> str:
    """The kind if none is chosen; lines may have a logarithmic horizontal axis, and bars may not."""
    if x is not None and x not in swept.varied:
        return "pareto"
    keys, fewest = swept.varied if x is None else (x,), 2 if log_x else 3
    lines = any(_numeric(key, points) and _count(key, points) >= fewest for key in keys)
    return "lines" if lines else "bars"


def _default_x(kind: str, swept: Swept, points: Sequence[Row], by: Collection[str]) -> str:
    """The number with the most values; for bars, the words with the most."""
    free = [key for key in swept.varied if key not in by]
    if not free:
        raise InputError("names all keys that vary; leave one for the horizontal axis", "conflict", key="by")
    wanted = [key for key in free if _numeric(key, points) == (kind != "bars")]
    return max(wanted or free, key=lambda key: _count(key, points))


def _default_y(swept: Swept, metrics: Sequence[str] | None) -> str:
    wanted = ["speedup"] if swept.baseline else []
    wanted += ["tokens_per_s"] if swept.command in ("moe", "serve") else []
    wanted.append("time_ns")
    if metrics is None:
        return wanted[0]
    return next((name for name in wanted if name in metrics), metrics[0])


def _default_by(kind: str, swept: Swept, points: Sequence[Row], x: str) -> tuple[str, ...]:
    """All other keys in which points differ, up to the number of series that readers can distinguish."""
    others = [key for key in panel_keys(swept, points, (x,)) if _count(key, points) > 1]
    if kind == "heat":
        if not others:
            raise InputError("a heat map needs two keys that vary", "conflict", key="kind")
        return (max(others, key=lambda key: _count(key, points)),)
    while others and len({_combination(point, others) for point in points}) > _MOST_SERIES:
        others.remove(min(others, key=lambda key: _count(key, points)))
    return tuple(others)


def panel_keys(swept: Swept, points: Sequence[Row], drawn: Collection[str]) -> tuple[str, ...]:
    """The other keys in which points differ that have equal values of all drawn keys."""
    told = list(drawn)
    for key in swept.varied:
        if key in told:
            continue
        groups: dict[str, set[str]] = {}
        for point in points:
            groups.setdefault(_combination(point, told), set()).add(value_words(point[key]))
        if any(len(values) > 1 for values in groups.values()):
            told.append(key)
    return tuple(key for key in told if key not in drawn)


def _combination(point: Row, keys: Iterable[str]) -> str:
    return "\0".join(value_words(point[key]) for key in keys)


def _check_series(count: int, by: Sequence[str]) -> None:
    if count > _MOST_SERIES:
        raise InputError(
            f"{' and '.join(by)}: {count} series are more than {_MOST_SERIES}, which can be told apart",
            "too-large",
            key="by",
        )


def _check_count(kind: str, swept: Swept, points: Sequence[Row], x: str, by: tuple[str, ...]) -> None:
    if kind != "heat":
        _check_series(len({_combination(point, by) for point in points}), by)
    panels = panel_keys(swept, points, (x, *by))
    count = len({_combination(point, panels) for point in points})
    if count > _MOST_PANELS:
        others = ", ".join(f"{key} ({_count(key, points)} values)" for key in swept.varied if key != x)
        raise InputError(
            f"{count} panels for {' and '.join(panels)} are more than {_MOST_PANELS}: vary less, or choose "
            f"keys that make at most {_MOST_SERIES} series: {others}",
            "too-large",
            key="by",
        )


def _is_geometric(key: str, swept: Swept, points: Sequence[Row]) -> bool:
    """Whether values grow by factors rather than steps: 1, 2, 4, 8, 16."""
    values = ordered_values(key, swept, points)
    if not all(is_number(value) for value in values) or len(values) < 3 or values[0] <= 0:
        return False
    ratios = [high / low for low, high in itertools.pairwise(values)]
    return bool(values[-1] >= _LOG_X * values[0] and max(ratios) <= _ALIKE * min(ratios))


def _spans(metric: str, rows: Iterable[Row]) -> bool:
    """Whether the values of a metric differ so much that small ones would not be visible."""
    values = [row[metric] for row in rows if is_number(row.get(metric))]
    return bool(values) and min(values) > 0 and math.inf > max(values) > _LOG_Y * min(values)
